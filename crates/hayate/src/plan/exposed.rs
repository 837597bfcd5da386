//! Files that hold secrets, and that users of applications may read: the configuration, keys of certificates, hashes of passwords.
//!
//! It warns and refuses nothing: who may read what is for the operator to say. It judges by the rights and access control lists of a file and of the
//! directories above it, as the front does ([`Reader`]), and becomes nobody: a process with a user's number could be sent that user's signals. Of
//! PHP that runs as who started the server nothing is said: what the server can read that can read as well.

use std::{
    collections::HashSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use hayate_front::Reader;
use rustix::process::geteuid;

use super::App;
use crate::{
    config::{File, Source, Step},
    privileges::Identity,
};

/// Files that are looked at above all though their mode lets somebody in; warnings; applications that are named in one.
const LOOKED_AT: usize = 1000;
const LISTED: usize = 8;
const NAMED: usize = 3;

/// Last words of names whose values are secrets, most likely.
const SECRETS: [&str; 8] = ["PASSWORD", "PASSWD", "PASS", "PW", "SECRET", "TOKEN", "KEY", "CREDENTIALS"];

/// Nobody's number (chown(2) takes it for none).
const NOBODY: u32 = u32::MAX;

/// What a configuration keeps or names.
pub(super) struct Secrets(Vec<Secret>);

struct Secret {
    path: PathBuf,
    place: Place,
}

/// By what the configuration names it.
enum Place {
    /// It holds one itself: in this table of this application, by this name.
    Setting {
        app: usize,
        table: &'static str,
        name: String,
    },
    Key(usize),
    ExternalKey,
    Users {
        app: usize,
        rule: usize,
    },
}

impl Secrets {
    /// Those of a configuration.
    pub(super) fn of(source: &Source, file: &File) -> Secrets {
        let beside = |directory: Option<&Path>, path: &Path| directory.unwrap_or(Path::new(".")).join(path);
        let mut all = Vec::new();
        for (i, app) in file.app.iter().enumerate() {
            let env = app.env.iter().map(|(name, value)| ("env", name, value.to_string()));
            let tables = [("ini", &app.ini), ("admin_ini", &app.admin_ini)];
            let ini = tables.into_iter().flat_map(|(table, all)| {
                all.iter().flat_map(move |(name, setting)| {
                    setting.clone().into_values().into_iter().map(move |value| (table, name, value))
                })
            });
            if let Some(path) = source.path_of(i)
                && let Some((table, name, _)) = env.chain(ini).find(|(_, name, value)| is_secret(name, value))
            {
                let place = Place::Setting { app: i, table, name: name.clone() };
                all.push(Secret { path: path.to_owned(), place });
            }
            for (rule, auth) in
                app.rule.iter().enumerate().filter_map(|(j, rule)| Some((j, rule.basic_auth.as_ref()?)))
            {
                all.push(Secret {
                    path: beside(source.directory_of(i), &auth.users),
                    place: Place::Users { app: i, rule },
                });
            }
        }
        let keys = file.tls.certificates.iter().enumerate();
        all.extend(
            keys.map(|(i, pair)| Secret {
                path: beside(source.directory(), &pair.key),
                place: Place::Key(i),
            }),
        );
        let external = file.tls.acme_eab_key.iter();
        all.extend(
            external.map(|path| Secret { path: beside(source.directory(), path), place: Place::ExternalKey }),
        );
        Secrets(all)
    }

    /// Which of them users of these applications may read, in words with the remedy. `storage`: where certificates had by ACME are kept.
    pub(super) fn warnings(&self, source: &Source, apps: &[App], storage: Option<&Path>) -> Vec<String> {
        let askers = Askers::of(apps);
        if askers.users.is_empty() {
            return Vec::new();
        }
        let mut warnings = Vec::new();
        let (mut left, mut more) = (LOOKED_AT, 0u64);
        let mut told: HashSet<&Path> = HashSet::new();
        for Secret { path, place } in &self.0 {
            // Who has it in his environment need not read it here.
            let own = match place {
                // One of them is enough to close the file for.
                Place::Setting { .. } if told.contains(&**path) => continue,
                Place::Setting { app, .. } => Some(*app),
                _ => None,
            };
            let Some(who) = askers.readers(path, own, &mut left) else { continue };
            if own.is_some() {
                told.insert(path);
            }
            if warnings.len() == LISTED {
                more += 1;
                continue;
            }
            let (steps, what) = place.words(path);
            let why = format!("{what}, and {who} may read it: {}", remedy(path));
            warnings.push(source.error(&steps, why).to_string());
        }
        if more > 0 {
            warnings.push(format!(
                "{more} more files that hold secrets, and that the configuration names, may be read by users of applications"
            ));
        }
        // Names below it are not the operator's words: they are not shown.
        let mut read_by = |file: PathBuf| askers.readers(&file, None, &mut left);
        if let Some(storage) = storage
            && let Some(who) = keys_in(storage).into_iter().find_map(&mut read_by)
        {
            warnings.push(format!(
                "acme_storage: {} holds keys of certificates, and {who} may read them: give the front a user of its own (front_user), and \
                 that directory to it alone (chmod 700)",
                storage.display()
            ));
        }
        warnings
    }
}

impl Place {
    /// The steps to it, and what is wrong with it.
    fn words(&self, path: &Path) -> (Vec<Step<'_>>, String) {
        let shown = path.display();
        let app = |app: &usize| [Step::Key("app"), Step::At(*app)];
        match self {
            Place::Setting { app: i, table, name } => (
                [&app(i)[..], &[Step::Key(table), Step::Key(name)]].concat(),
                format!("{table}: {name} looks like a secret in {shown}"),
            ),
            Place::Key(i) => (
                vec![Step::Key("tls"), Step::Key("certificates"), Step::At(*i)],
                format!("certificates: {shown} holds a key"),
            ),
            Place::ExternalKey => (
                vec![Step::Key("tls"), Step::Key("acme_eab_key")],
                format!("acme_eab_key: {shown} holds a key"),
            ),
            Place::Users { app: i, rule } => (
                [&app(i)[..], &[Step::Key("rule"), Step::At(*rule), Step::Key("basic_auth")]].concat(),
                format!("basic_auth: {shown} holds hashes of passwords"),
            ),
        }
    }
}

fn remedy(path: &Path) -> String {
    let shown = path.display();
    format!("the server reads it as root, so take it from all others: chown root: {shown}; chmod 600 {shown}")
}

/// Whose PHP could read something that it should not.
struct Askers<'a> {
    users: Vec<User<'a>>,
    anybody: Option<Reader>,
}

/// Of applications, by their places among all.
struct User<'a> {
    identity: &'a Identity,
    reader: Reader,
    first: &'a str,
    apps: Vec<usize>,
}

impl Askers<'_> {
    fn of(apps: &[App]) -> Askers<'_> {
        let mut users: Vec<User<'_>> = Vec::new();
        let started = geteuid().as_raw();
        for (i, app) in apps.iter().enumerate().filter(|(_, app)| app.beside.is_none() && !app.is_static) {
            let Some(identity) = app.identity.as_ref().filter(|user| user.uid() != started) else { continue };
            if let Some(known) = users.iter_mut().find(|known| known.identity == identity) {
                known.apps.push(i);
            } else if let Some(reader) = Reader::new("", identity.uid(), identity.groups()) {
                users.push(User { identity, reader, first: &app.spec.name, apps: vec![i] });
            }
        }
        Askers { users, anybody: Reader::new("", NOBODY, Vec::new()) }
    }

    /// Who may read a file, in words. `own`: the application that may. `left`: how many files are looked at.
    fn readers(&self, path: &Path, own: Option<usize>, left: &mut usize) -> Option<String> {
        let meta = fs::metadata(path).ok()?;
        // The group's rights are the mask of an access control list.
        if meta.mode() & 0o044 == 0 && !self.users.iter().any(|user| user.identity.uid() == meta.uid()) {
            return None;
        }
        *left = left.checked_sub(1)?;
        if self.anybody.as_ref().is_some_and(|anybody| anybody.may_open(path)) {
            return Some("everybody on this machine".into());
        }
        let others = self.users.iter().filter(|user| own.is_none_or(|own| !user.apps.contains(&own)));
        let mut named: Vec<String> =
            others.filter(|user| user.reader.may_open(path)).map(User::words).collect();
        let more = named.len().saturating_sub(NAMED);
        named.truncate(NAMED);
        if more > 0 {
            named.push(format!("{more} more"));
        }
        (!named.is_empty()).then(|| named.join(" and "))
    }
}

impl User<'_> {
    fn words(&self) -> String {
        let Identity { name, .. } = self.identity;
        format!("PHP of '{}', which runs as {name} (uid {}),", self.first, self.identity.uid())
    }
}

/// Keys and accounts below a storage directory, as `hayate_certificates` keeps them.
fn keys_in(storage: &Path) -> Vec<PathBuf> {
    let entries = |directory: &Path| {
        let all = fs::read_dir(directory).into_iter().flatten().flatten();
        all.take(LOOKED_AT).map(|entry| entry.path())
    };
    let is_key = |path: &PathBuf| {
        path.extension().is_some_and(|end| end == "pem")
            || path.file_name().is_some_and(|name| name == "account.json")
    };
    entries(storage).flat_map(|of_authority| entries(&of_authority)).take(LOOKED_AT).filter(is_key).collect()
}

/// Whether the value of a variable or setting is a secret, most likely.
fn is_secret(name: &str, value: &str) -> bool {
    let mut words = name.rsplit(|c: char| !c.is_ascii_alphanumeric()).map(str::to_ascii_uppercase);
    let ends = words.next().is_some_and(|last| SECRETS.contains(&&*last));
    let is_public = words.next().is_some_and(|before| before == "PUBLIC" || before == "PUBLISHABLE");
    let in_url = || {
        let (_, rest) = value.split_once("://")?;
        let (user, _) = rest.split(['/', '?', '#']).next()?.rsplit_once('@')?;
        user.split_once(':').filter(|(_, password)| !password.is_empty())
    };
    let of_redis = value.contains("://") && (value.contains("?auth=") || value.contains("&auth="));
    !value.is_empty() && (ends && !is_public || in_url().is_some() || of_redis)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;
    use crate::{args::ServeArgs, plan::Plan, privileges::is_root};

    #[test]
    fn values_that_are_secrets() {
        for (name, value) in [
            ("DB_PASSWORD", "x"),
            ("app_secret", "x"),
            ("STRIPE_KEY", "x"),
            ("mysqli.default_pw", "x"),
            ("DATABASE_URL", "mysql://app:pw@db/app"),
            ("session.save_path", "tcp://redis:6379?auth=x"),
        ] {
            assert!(is_secret(name, value), "{name}");
        }
        for (name, value) in [
            ("DB_PASSWORD", ""),
            ("DB_PASSWORD_FILE", "/run/secrets/db"),
            ("STRIPE_PUBLIC_KEY", "x"),
            ("KEYS", "x"),
            ("APP_ENV", "prod"),
            ("DATABASE_URL", "sqlite:///srv/app.db"),
            ("DATABASE_URL", "mysql://app@db/app"),
            ("APP_URL", "https://a.test/?to=x:y@b"),
            ("memory_limit", "64M"),
        ] {
            assert!(!is_secret(name, value), "{name} {value}");
        }
    }

    #[test]
    fn who_may_read_a_secret_is_named_with_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let rights =
            |name: &str, mode| fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        for made in ["site", "acme", "acme/ca"] {
            fs::create_dir(at(made)).unwrap();
        }
        let hash = "anna:$2y$04$zKvuQyLoJkufXBLEEw2tHuDAXemS4DBB5AHAQ5D33cEVu/WXXZqvy\n";
        for (name, text) in [("host", ""), ("staff", hash), ("acme/ca/account.json", "{}")] {
            fs::write(at(name), text).unwrap();
            rights(name, 0o600);
        }
        rights("host", 0o755);
        let warnings = |text: &str, dev| {
            fs::write(at("hayate.toml"), text.replace("HOST", &at("host").display().to_string())).unwrap();
            let args = ServeArgs { config: Some(at("hayate.toml")), dev, ..ServeArgs::default() };
            let place = format!("{}/", dir.path().display());
            let said = Plan::load(&args).unwrap().exposed;
            said.into_iter().map(|why| why.replace(&place, "")).collect::<Vec<_>>()
        };
        let text = "user = 'nobody'\n[tls]\nacme = 'on'\nacme_storage = 'acme'\n[[app]]\nroot = 'site'\nphp = 'HOST'\nhosts = 'a.test'\n\
                    [app.env]\nDB_PASSWORD = 'x'\n[[app.rule]]\nbasic_auth = { users = 'staff' }\n";
        rights("", 0o700);
        assert_eq!(warnings(text, false), [""; 0], "the directory is closed");
        rights("", 0o755);
        rights("hayate.toml", 0o600);
        assert_eq!(warnings(text, false), [""; 0], "each file is closed");
        rights("hayate.toml", 0o644);
        let remedy = |name: &str| {
            format!(
                "the server reads it as root, so take it from all others: chown root: {name}; chmod 600 {name}"
            )
        };
        let of_file = format!(
            "hayate.toml:10: env: DB_PASSWORD looks like a secret in hayate.toml, and everybody on this machine may read it: {}",
            remedy("hayate.toml")
        );
        // The names of the remedy had the directory before them, too.
        assert_eq!(warnings(text, false), [&*of_file]);
        assert_eq!(warnings(&text.replace("DB_PASSWORD = 'x'", "APP_ENV = 'prod'"), false), [""; 0]);
        assert_eq!(warnings(text, true), [""; 0], "a developer's own");
        assert_eq!(warnings(&text.replace("user = 'nobody'\n", ""), false), [""; 0], "as who started it");
        rights("staff", 0o604);
        rights("acme/ca/account.json", 0o604);
        let said = warnings(text, false);
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(
            said[1].starts_with("hayate.toml:12: basic_auth: staff holds hashes of passwords, and everybody"),
            "{said:?}"
        );
        assert!(
            said[2].starts_with("acme_storage: acme holds keys of certificates, and everybody"),
            "{said:?}"
        );
        if !is_root() {
            return;
        }
        // By its owner alone: an application's own secret is its own, another's is not.
        let nobody = Identity::find("nobody", None).unwrap().uid();
        for name in ["hayate.toml", "staff", "acme/ca/account.json"] {
            rights(name, 0o600);
            chown(at(name), Some(nobody), None).unwrap();
        }
        let said = warnings(text, false);
        assert_eq!(said.len(), 2, "{said:?}");
        let who = format!("PHP of 'site', which runs as nobody (uid {nobody}), may read it: ");
        assert!(said[0].contains(&who) && said[1].contains("front_user"), "{said:?}");
        let two = format!(
            "{text}[[app]]\nname = 'other'\nroot = 'site'\nphp = 'HOST'\nhosts = 'b.test'\nuser = 'daemon'\n[app.env]\nAPP_KEY = 'x'\n"
        );
        let said = warnings(&two, false);
        assert!(
            said.iter().any(|why| why.starts_with("hayate.toml:20: env: APP_KEY") && why.contains(&who)),
            "{said:?}"
        );
    }
}
