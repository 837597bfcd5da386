//! `[tls]` and `--tls`: which ports speak TLS, with which certificates.
//!
//! Files are read here, as whoever started the server: keys may be readable by root alone. What they hold goes with the plan, in sealed
//! memory, to the front.

use std::{
    fs,
    io::{ErrorKind, Read},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use hayate_certificates::{
    Certificate, MinVersion, Pair, Pem, Resolver, Verify,
    acme::{Authority, Challenge, OnDemand, Secret},
    doubts_about_authorities, is_name,
};
use hayate_front::ListenAddr;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::{App, flag, places, tls_keys};
use crate::{
    args::ServeArgs,
    config::{self, ChallengeChoice, ConfigError, Listen, OneOrMany, Source, Step, TlsVersion, VerifyChoice},
    privileges::is_root,
};

/// How connections of one address begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Port {
    /// With TLS.
    pub tls: bool,
    /// With the PROXY protocol.
    pub proxy_protocol: bool,
}

/// TLS, once it is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tls {
    /// From files, in the order of the configuration: the first is the default.
    pub pairs: Vec<Pair>,
    /// Hosts that get a certificate of our own.
    pub self_signed: Vec<String>,
    /// Who gives certificates for other hosts.
    pub authority: Option<Authority>,
    /// Those hosts.
    pub hosts: Vec<String>,
    /// The oldest version.
    pub min_version: MinVersion,
    /// Certificates of clients.
    pub verify: Verify,
    /// Requests without TLS are sent to this port.
    pub redirect: Option<u16>,
    /// The port by which visitors come, if it is another one than is listened on.
    #[serde(default)]
    pub public_port: Option<u16>,
    /// How long browsers are to remember that there is TLS.
    pub hsts: Option<Duration>,
    /// Ports on which HTTP/3 is spoken.
    pub http3: Vec<u16>,
}

/// Bytes of a file of certificates or keys; above it is something else.
pub const LONGEST_FILE: u64 = 1 << 20;
/// Ports on which TLS is spoken unless the configuration says otherwise.
const TLS_PORTS: [u16; 2] = [443, 8443];
/// Ports of `--listen` that stay plain with `--tls`: the second only beside others.
const PLAIN_PORTS: [u16; 2] = [80, 8080];
/// Certificates in the configuration.
const MOST_PAIRS: usize = 10_000;
/// A certificate that ends sooner than this is spoken of.
const SOON: i64 = 14 * 24 * 3600;

/// What is said of a file that is no text.
const NO_TEXT: &str = "is no PEM, but holds other bytes; convert it: `openssl x509 -inform der` for a certificate in DER, `openssl pkey -inform der` for \
                       a key, `openssl pkcs12 -nodes` for PKCS#12 (.p12, .pfx)";

/// Reads a file of PEM. The error has the remedy.
pub fn read(path: &Path) -> Result<String, String> {
    let read = || {
        let mut text = String::new();
        // A pipe that nobody writes to would hold up for good whoever looks after the files.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(std::io::Error::other("it is no regular file"));
        }
        file.take(LONGEST_FILE).read_to_string(&mut text)?;
        Ok::<_, std::io::Error>(text)
    };
    read().map_err(|error| match error.kind() {
        ErrorKind::InvalidData => format!("{} {NO_TEXT}", path.display()),
        _ => format!("{} cannot be read: {error}", path.display()),
    })
}

fn tls_key<'a>(key: &'a str) -> [Step<'a>; 2] {
    [Step::Key("tls"), Step::Key(key)]
}

/// Whether `[tls]` or `--tls` asks for TLS at all.
pub(super) fn is_wanted(file: &config::Tls, args: &ServeArgs) -> bool {
    !args.tls.is_empty() || !file.certificates.is_empty() || file.acme.is_some()
}

/// Whether an authority is asked for certificates. With --dev there is a certificate of our own, unless somebody was named who gives others.
pub(super) fn wants_authority(file: &config::Tls, args: &ServeArgs, development: bool) -> bool {
    file.acme.is_some() || (!args.tls.is_empty() && !development)
}

/// Where those are kept.
pub(super) fn storage(source: &Source, file: &config::Tls) -> PathBuf {
    let Some(path) = &file.acme_storage else { return default_storage() };
    let path = source.directory().unwrap_or(Path::new(".")).join(path);
    std::path::absolute(&path).unwrap_or(path)
}

/// The addresses to listen on, and how connections of each begin.
pub(super) fn listen(
    source: &Source,
    written: Option<config::Listens>,
    args: &ServeArgs,
    tls: bool,
) -> Result<Vec<(ListenAddr, Port)>, ConfigError> {
    let from_file = |path: &Path| source.directory().unwrap_or(Path::new(".")).join(path);
    let by_itself = |addr: &ListenAddr| {
        let tls = tls && matches!(addr, ListenAddr::Tcp(addr) if TLS_PORTS.contains(&addr.port()));
        Port { tls, proxy_protocol: false }
    };
    if !args.listen.is_empty() {
        // Who names a host and an address on the command line means that address; a flag has no place for more words.
        let is_plain = |port| PLAIN_PORTS.contains(&port);
        let of_tls = |addr: &&ListenAddr| matches!(addr, ListenAddr::Tcp(addr) if !is_plain(addr.port()));
        let others = args.listen.iter().any(|addr| of_tls(&addr));
        let port = |addr: &ListenAddr| match addr {
            ListenAddr::Tcp(tcp) if !args.tls.is_empty() => {
                Port { tls: !is_plain(tcp.port()) || (tcp.port() != 80 && !others), proxy_protocol: false }
            }
            _ => by_itself(addr),
        };
        let placed = args.listen.iter().map(|addr| {
            let addr = places::listen(addr.clone(), Path::to_path_buf);
            addr.map(|addr| (addr.clone(), port(&addr))).map_err(|why| flag(format!("--listen: {why}")))
        });
        return placed.collect();
    }
    let Some(written) = written else {
        let ports: &[u16] = match (tls, args.dev) {
            (false, _) => {
                return Ok(vec![(ListenAddr::Tcp((Ipv4Addr::LOCALHOST, 8080).into()), Port::default())]);
            }
            // For the developer alone.
            (true, true) => &[8080, 8443],
            (true, false) => &[80, 443],
        };
        let (v4, v6) = match args.dev {
            true => (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST),
            false => (Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED),
        };
        // What the kernel does not have cannot be listened on.
        let has_v6 = fs::read("/proc/net/if_inet6").is_ok_and(|addresses| !addresses.is_empty());
        let addresses = ports.iter().flat_map(|port| {
            let v6 = has_v6.then_some(SocketAddr::from((v6, *port)));
            [Some(SocketAddr::from((v4, *port))), v6].into_iter().flatten()
        });
        return Ok(addresses.map(ListenAddr::Tcp).map(|addr| (addr.clone(), by_itself(&addr))).collect());
    };
    let written = written.into_vec();
    let wrong = |why: String| source.error(&[Step::Key("listen")], why);
    if written.is_empty() {
        return Err(wrong("listen: write at least one address, such as 127.0.0.1:8080".into()));
    }
    let parse = |entry: Listen| {
        let (text, speaks_tls, proxy_protocol) = match entry {
            Listen::Address(text) => (text, None, false),
            Listen::Table(table) => (table.address, table.tls, table.proxy_protocol),
        };
        let addr = places::listen(text.parse().map_err(wrong)?, from_file);
        let addr = addr.map_err(|why| wrong(format!("listen: {why}")))?;
        let port = Port { tls: speaks_tls.unwrap_or(by_itself(&addr).tls), proxy_protocol };
        if port.tls && !tls {
            return Err(wrong(format!(
                "listen: {text} is to speak TLS, and there is no certificate; set certificates or acme in [tls]"
            )));
        }
        if port.tls && matches!(addr, ListenAddr::Unix(_)) {
            return Err(wrong(format!(
                "listen: {text}: TLS is for TCP ports; a unix socket does not leave the machine"
            )));
        }
        Ok((addr, port))
    };
    written.into_iter().map(parse).collect()
}

/// The UDP ports beside those of TCP that speak TLS. Not where a PROXY header comes first: who sends one is a proxy, which speaks to
/// clients itself.
pub(super) fn quic(ports: &[(ListenAddr, Port)]) -> impl Iterator<Item = (SocketAddr, Port)> {
    ports.iter().filter_map(|(addr, port)| match addr {
        ListenAddr::Tcp(addr) if port.tls && !port.proxy_protocol => Some((*addr, *port)),
        _ => None,
    })
}

/// The port to which visitors without TLS are sent. Where a PROXY header comes first they cannot connect; with such ports alone, the proxy's
/// is the likeliest.
fn for_visitors(ports: &[(ListenAddr, Port)]) -> Option<u16> {
    let of_tls = ports.iter().filter_map(|(addr, port)| match addr {
        ListenAddr::Tcp(addr) if port.tls => Some((port.proxy_protocol, addr.port())),
        _ => None,
    });
    // Of equals it takes the first.
    of_tls.min_by_key(|(by_proxy, _)| *by_proxy).map(|(_, port)| port)
}

/// Everything else.
pub(super) fn resolve(
    source: &Source,
    file: config::Tls,
    args: &ServeArgs,
    development: bool,
    ports: &[(ListenAddr, Port)],
    apps: &[App],
) -> Result<Option<Tls>, ConfigError> {
    let error = |key: &str, why: String| source.error(&tls_key(key), format!("{key}: {why}"));
    let from_file = |path: &Path| {
        let path = source.directory().unwrap_or(Path::new(".")).join(path);
        std::path::absolute(&path).unwrap_or(path)
    };
    let is_wanted = is_wanted(&file, args);
    if let Some((key, why)) = tls_keys::in_vain(&file, args, is_wanted) {
        return Err(error(key, why.into()));
    }
    if !is_wanted {
        return Ok(None);
    }
    if file.certificates.len() > MOST_PAIRS {
        return Err(error("certificates", format!("write {MOST_PAIRS} at most")));
    }
    let mut pairs = Vec::new();
    for (i, files) in file.certificates.iter().enumerate() {
        let steps = [Step::Key("tls"), Step::Key("certificates"), Step::At(i)];
        let wrong = |why: String| source.error(&steps, why);
        let (certificate, key) = (from_file(&files.certificate), from_file(&files.key));
        let pair = Pair {
            chain: Pem(read(&certificate).map_err(wrong)?),
            key: Pem(read(&key).map_err(wrong)?),
            certificate,
            private: key,
        };
        pair.parse().map_err(wrong)?;
        pairs.push(pair);
    }
    for host in &args.tls {
        let address = development && host.parse::<std::net::IpAddr>().is_ok();
        if !is_name(host) && !address {
            return Err(flag(format!("--tls: '{host}' is no host name; write shop.example.org")));
        }
    }
    let own = development && file.acme.is_none();
    let self_signed = if own { args.tls.clone() } else { Vec::new() };
    let mut hosts: Vec<String> = match own {
        true => Vec::new(),
        false => args.tls.iter().map(|host| host.to_ascii_lowercase()).collect(),
    };
    let wants_acme = wants_authority(&file, args, development);
    if wants_acme {
        let all = match &file.acme_hosts {
            Some(hosts) => hosts.clone().into_vec(),
            None => {
                apps.iter().flat_map(|app| app.hosts.iter().cloned()).filter(|host| is_name(host)).collect()
            }
        };
        for host in all {
            let host = host.to_ascii_lowercase();
            if !is_name(&host) {
                let why =
                    format!("'{host}' is no host name; wildcards need a certificate in files (certificates)");
                return Err(error("acme_hosts", why));
            }
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        let covered =
            |host: &String| pairs.iter().filter_map(|pair| pair.parse().ok()).any(|c| c.covers(host));
        hosts.retain(|host| !covered(host));
    }
    let authority = wants_acme.then(|| authority(source, &file)).transpose()?;
    if let Some(authority) = &authority
        && hosts.is_empty()
        && authority.on_demand.patterns.is_empty()
        && pairs.is_empty()
    {
        let why =
            "no host is known to get a certificate for; set hosts in [[app]], acme_hosts, or --tls HOST";
        return Err(error("acme", why.into()));
    }
    let ca = || {
        let Some(path) = &file.client_ca else {
            return Err(error(
                "verify",
                "needs client_ca, a file with the authorities of clients' certificates".into(),
            ));
        };
        read(&from_file(path)).map(Pem).map_err(|why| error("client_ca", why))
    };
    let is_asked = file.verify.is_some_and(|verify| verify != VerifyChoice::Off);
    let verify = match file.verify.unwrap_or_default() {
        // Looked at all the same: whoever switches it on again is to find it good.
        VerifyChoice::Off if file.client_ca.is_some() => Verify::Optional(ca()?),
        VerifyChoice::Off => Verify::Off,
        VerifyChoice::Optional => Verify::Optional(ca()?),
        VerifyChoice::Required => Verify::Required(ca()?),
    };
    let min_version = match file.min_version.unwrap_or_default() {
        TlsVersion::Tls12 => MinVersion::Tls12,
        TlsVersion::Tls13 => MinVersion::Tls13,
    };
    // The authorities are looked at.
    let (resolver, _) = Resolver::new();
    hayate_certificates::server(resolver, min_version, &verify, &[])
        .map_err(|fault| error("client_ca", fault.to_string()))?;
    if file.public_port == Some(0) {
        return Err(error("public_port", "expected a port, 1 to 65535, found 0".into()));
    }
    let Some(first) = for_visitors(ports) else {
        if !args.listen.is_empty() {
            return Err(flag("--listen: none of these addresses speaks TLS; add --listen :443"));
        }
        let why = "no address speaks TLS; add \":443\" to listen, or { address = \":4430\", tls = true }";
        return Err(source.error(&[Step::Key("listen")], why));
    };
    Ok(Some(Tls {
        pairs,
        self_signed,
        authority,
        hosts,
        min_version,
        verify: if is_asked { verify } else { Verify::Off },
        redirect: file.redirect_http.unwrap_or(true).then_some(file.public_port.unwrap_or(first)),
        public_port: file.public_port,
        hsts: file.hsts.and_then(|time| time.0),
        http3: if file.http3.unwrap_or(false) {
            quic(ports).map(|(addr, _)| addr.port()).collect()
        } else {
            Vec::new()
        },
    }))
}

fn authority(source: &Source, file: &config::Tls) -> Result<Authority, ConfigError> {
    let error = |key: &str, why: String| source.error(&tls_key(key), format!("{key}: {why}"));
    let from_file = |path: &Path| source.directory().unwrap_or(Path::new(".")).join(path);
    let contact = file.acme.as_deref().filter(|mail| *mail != "on");
    if let Some(mail) = contact
        && !(mail.contains('@') && mail.bytes().all(|b| b.is_ascii_graphic()))
    {
        return Err(error(
            "acme",
            format!("'{mail}' is no mail address; write admin@example.org, or \"on\" for none"),
        ));
    }
    let directory = match file.acme_directory.as_deref().unwrap_or("letsencrypt") {
        "letsencrypt" => "https://acme-v02.api.letsencrypt.org/directory",
        "letsencrypt-staging" => "https://acme-staging-v02.api.letsencrypt.org/directory",
        other if other.starts_with("https://") => other,
        other => {
            let why =
                format!("'{other}' is no directory; write letsencrypt, letsencrypt-staging or https://…");
            return Err(error("acme_directory", why));
        }
    };
    let root = match &file.acme_ca {
        None => None,
        Some(path) => Some(Pem(read(&from_file(path)).map_err(|why| error("acme_ca", why))?)),
    };
    let external = match (&file.acme_eab_kid, &file.acme_eab_key) {
        (None, None) => None,
        (Some(kid), Some(path)) => {
            let text = read(&from_file(path)).map_err(|why| error("acme_eab_key", why))?;
            let key = BASE64_URL_SAFE_NO_PAD.decode(text.trim().trim_end_matches('='));
            let key = key.map_err(|_| {
                error("acme_eab_key", "it is to hold the key as the authority gave it, in base64url".into())
            })?;
            Some((kid.clone(), Secret(key)))
        }
        _ => return Err(error("acme_eab_kid", "acme_eab_kid and acme_eab_key belong together".into())),
    };
    let patterns: Vec<String> = file.on_demand.clone().map(OneOrMany::into_vec).unwrap_or_default();
    for pattern in &patterns {
        if !is_name(pattern.strip_prefix("*.").unwrap_or(pattern)) || !pattern.contains('.') {
            let why = format!(
                "'{pattern}' allows too much or nothing; write shop.example.org or *.shops.example.org"
            );
            return Err(error("on_demand", why));
        }
    }
    let ask = match &file.on_demand_ask {
        Some(_) if patterns.is_empty() => {
            return Err(error(
                "on_demand_ask",
                "on_demand names no host that it could be asked about".into(),
            ));
        }
        Some(address) => Some(address.parse().map_err(|why| error("on_demand_ask", why))?),
        None => None,
    };
    Ok(Authority {
        directory: directory.to_owned(),
        contact: contact.map(str::to_owned),
        root,
        challenge: match file.acme_challenge.unwrap_or_default() {
            ChallengeChoice::Http01 => Challenge::Http01,
            ChallengeChoice::TlsAlpn01 => Challenge::TlsAlpn01,
        },
        profile: file.acme_profile.clone(),
        external,
        storage: storage(source, file),
        on_demand: OnDemand {
            patterns: patterns.into_iter().map(|pattern| pattern.to_ascii_lowercase()).collect(),
            ask,
        },
    })
}

/// Why a directory is not given to the front's user.
const FULL: &str = "it belongs to root and holds something already, and the front's user would own it; name a directory that is there for this alone, \
                    or one that is missing";

/// Whether a directory is root's, though it is for the front's user.
enum Roots {
    No,
    /// Then it may be given to this one.
    Empty(u32),
    Full,
}

fn of_root(directory: &std::os::fd::OwnedFd, user: Option<u32>) -> std::io::Result<Roots> {
    let owner = rustix::fs::fstat(directory)?.st_uid;
    let Some(user) = user.filter(|user| is_root() && *user != owner && owner == 0) else {
        return Ok(Roots::No);
    };
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            return Ok(Roots::Full);
        }
    }
    Ok(Roots::Empty(user))
}

fn default_storage() -> PathBuf {
    if is_root() {
        return "/var/lib/hayate/acme".into();
    }
    // Empty or relative it counts as unset (XDG Base Directory Specification).
    let data =
        std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|directory| directory.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".local/share"));
    data.or_else(home).unwrap_or_else(|| "/var/lib".into()).join("hayate/acme")
}

impl Tls {
    /// Makes the directory in which certificates are kept, and gives it to the front's user.
    pub fn prepare_storage(&self, user: Option<u32>) -> Result<(), String> {
        use std::os::unix::fs::DirBuilderExt;
        let Some(authority) = &self.authority else { return Ok(()) };
        let path = &authority.storage;
        let made = || {
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            match fs::DirBuilder::new().mode(0o700).create(path) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            let directory = rustix::fs::open(
                path,
                rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::CLOEXEC,
                rustix::fs::Mode::empty(),
            )?;
            match of_root(&directory, user)? {
                Roots::Full => return Err(std::io::Error::other(FULL)),
                Roots::Empty(user) => {
                    rustix::fs::fchown(&directory, Some(rustix::process::Uid::from_raw(user)), None)?;
                }
                Roots::No => {}
            }
            Ok(())
        };
        made().map_err(|error| format!("acme_storage: {}: {error}", path.display()))
    }

    /// What is wrong with that directory, if it is there; nothing is changed.
    pub fn storage_fault(&self, user: Option<u32>) -> Option<String> {
        let path = &self.authority.as_ref()?.storage;
        let flags =
            rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::CLOEXEC;
        let why = match rustix::fs::open(path, flags, rustix::fs::Mode::empty()) {
            Ok(directory) => match of_root(&directory, user) {
                Ok(Roots::Full) => FULL.to_owned(),
                _ => return None,
            },
            Err(rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => "it is no directory".to_owned(),
            Err(_) => return None,
        };
        Some(format!("acme_storage: {}: {why}", path.display()))
    }

    /// What `hayate check` says: what there is, then what is wrong with it.
    pub fn describe(&self, apps: &[App]) -> Vec<Described> {
        let mut lines = Vec::new();
        let parsed = self.pairs.iter().filter_map(|pair| Some((pair, pair.parse().ok()?)));
        let parsed: Vec<(&Pair, Certificate)> = parsed.collect();
        let hosts: Vec<String> =
            apps.iter().flat_map(|app| app.hosts.iter().map(|host| host.to_ascii_lowercase())).collect();
        let any = apps.iter().any(|app| app.hosts.is_empty());
        for (pair, certificate) in &parsed {
            let file = pair.certificate.display();
            lines.push(Described::Line(format!(
                "certificate   {}: {}, until {}",
                certificate.names().join(" "),
                file,
                certificate.end()
            )));
            if let Some(begins) = certificate.begins() {
                lines.push(Described::Warning(format!(
                    "{file} is not valid yet, but from {begins}; is this machine's clock right?"
                )));
            }
            if certificate.remaining() <= 0 {
                lines.push(Described::Warning(format!("{file} has expired; renew it")));
            } else if certificate.remaining() < SOON {
                lines.push(Described::Warning(format!(
                    "{file} expires in {} days; renew it",
                    certificate.remaining() / 86400
                )));
            }
            let used = |host: &String| certificate.covers(host) || certificate.names().contains(host);
            if !any && !hosts.iter().any(used) {
                lines.push(Described::Warning(format!("{file} names no host of an application")));
            }
        }
        if let Some(authority) = &self.authority {
            let names = if self.hosts.is_empty() { "(on demand)".to_owned() } else { self.hosts.join(" ") };
            lines.push(Described::Line(format!(
                "certificates  {names}: from {}, kept in {}",
                authority.directory,
                authority.storage.display()
            )));
        }
        if !self.self_signed.is_empty() {
            lines.push(Described::Line(format!(
                "certificate   {}: self-signed, for development",
                self.self_signed.join(" ")
            )));
        }
        if let Verify::Optional(client_ca) | Verify::Required(client_ca) = &self.verify {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
            let doubts = doubts_about_authorities(client_ca, now);
            lines.extend(doubts.into_iter().map(|doubt| Described::Warning(format!("client_ca: {doubt}"))));
        }
        for host in &hosts {
            let covered = parsed
                .iter()
                .any(|(_, certificate)| certificate.covers(host) || certificate.names().contains(host))
                || self.hosts.contains(host)
                || self.self_signed.contains(host)
                || self
                    .authority
                    .as_ref()
                    .is_some_and(|authority| authority.on_demand.patterns.contains(host));
            if !covered {
                lines.push(Described::Warning(format!(
                    "{host} has no certificate: its visitors see that of another host"
                )));
            }
        }
        lines
    }
}

/// What `hayate check` says of certificates.
pub enum Described {
    /// As it stands.
    Line(String),
    /// Something may be wrong.
    Warning(String),
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_key_that_is_a_pipe_holds_up_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("key.pem");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert!(read(&pipe).unwrap_err().ends_with("key.pem cannot be read: it is no regular file"));
        assert!(read(dir.path()).is_err());
    }

    #[test]
    fn visitors_are_sent_where_they_can_connect() {
        let port = |port: u16, tls, proxy_protocol| {
            let addr = ListenAddr::Tcp((Ipv4Addr::UNSPECIFIED, port).into());
            (addr, Port { tls, proxy_protocol })
        };
        let plain = port(80, false, false);
        let ports = [plain.clone(), port(8443, true, true), port(8444, true, false), port(443, true, false)];
        assert_eq!(for_visitors(&ports), Some(8444));
        assert_eq!(
            for_visitors(&[plain.clone(), port(8445, true, true), port(8446, true, true)]),
            Some(8445)
        );
        assert_eq!(for_visitors(&[plain]), None);
    }

    #[test]
    fn addresses_of_the_command_line_speak_tls_with_it() {
        let tls = |addresses: &[&str], hosts: &[&str]| {
            let args = ServeArgs {
                listen: addresses.iter().map(|addr| addr.parse().unwrap()).collect(),
                tls: hosts.iter().map(|host| (*host).to_owned()).collect(),
                ..ServeArgs::default()
            };
            let listen = listen(&Source::default(), None, &args, true).unwrap();
            listen.into_iter().map(|(_, port)| port.tls).collect::<Vec<_>>()
        };
        let host = &["localhost"];
        assert_eq!(tls(&["127.0.0.1:8443"], host), [true]);
        assert_eq!(tls(&["127.0.0.1:4430"], host), [true]);
        assert_eq!(tls(&["127.0.0.1:8080"], host), [true]);
        assert_eq!(tls(&[":80", ":4430", "unix:/run/x"], host), [false, true, false]);
        assert_eq!(tls(&[":8080", ":8443"], host), [false, true]);
        assert_eq!(tls(&[":80", ":8080"], host), [false, true]);
        // Of the configuration alone nothing is taken for granted but the usual ports.
        assert_eq!(tls(&[":4430", ":443", ":8443", ":80"], &[]), [false, true, true, false]);
    }
}
