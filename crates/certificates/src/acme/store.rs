//! The directory in which accounts, certificates and failures are kept. Files are written beside their place and renamed, so that a reader
//! sees a whole one; who writes holds a lock (flock), so that of several servers one asks the authority.
//!
//! ```text
//!  <storage>/<authority>/account.json          the account's key
//!                        <name>.pem            chain and key of one certificate
//!                        <name>.failed         how often an order failed, and until when nobody tries again
//!                        allowance.json        what was used of the allowances of names on demand
//!                        <name>.lock, account.held, allowance.held
//!                        account.forgotten             one that the authority did not know any more
//!                        authority.root        who vouches for the authority's own server
//!                        challenges/<token>    what the authority is to be told, by whichever server it asks
//! ```
//!
//! Everything is its owner's alone (0700, 0600). A host may be called "account": what is no host's ends with none of hosts' endings.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::demand::Used;
use crate::{Certificate, is_name};

/// No file here is longer.
pub(super) const LONGEST: u64 = 256 << 10;
/// Bytes that have to be free before an authority is asked for what is to be kept: a chain with its key takes less.
const ROOM: usize = 32 << 10;
/// How long after an account was put aside the next one may be.
const FORGETS: Duration = Duration::from_secs(3600);
/// Directories of other authorities that are looked at.
const MOST_OTHERS: usize = 64;

/// Locks that are no host's, see [`Store::lock_own`].
pub(super) const ACCOUNT: &str = "account.held";
pub(super) const ALLOWANCE: &str = "allowance.held";

/// See the module.
#[derive(Debug, Clone)]
pub struct Store {
    directory: PathBuf,
}

/// A lock; goes with its file.
pub(super) struct Lock(#[allow(dead_code)] File);

/// Orders that failed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Failed {
    /// In a row.
    pub(super) times: u32,
    /// Seconds since the epoch: before that nobody tries again.
    pub(super) until: i64,
    /// The same: when it failed last.
    #[serde(default)]
    pub(super) at: i64,
}

impl Store {
    /// Opens the part of a storage directory that is for one authority; makes what is missing.
    pub fn open(storage: &Path, directory_url: &str) -> io::Result<Store> {
        let place = directory_url.trim_start_matches("https://");
        let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '_' };
        // Dots alone would lead elsewhere.
        let name: String = place.chars().take(120).map(safe).collect::<String>().replace("..", "_");
        let directory = storage.join(name);
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(directory.join("challenges"))?;
        Ok(Store { directory })
    }

    /// Whether its directories are there still.
    pub(super) fn is_there(&self) -> bool {
        self.directory.join("challenges").is_dir()
    }

    /// Whether what an authority gives can be kept. Asked before: what cannot be kept has cost one of the few that there are in a week.
    pub(super) fn has_room(&self) -> io::Result<()> {
        let path = self.directory.join(format!("room.{}", std::process::id()));
        let written = write(&path, &[0; ROOM]);
        let _ = fs::remove_file(&path);
        written
    }

    /// A certificate of a name that another authority, whose directory lies beside this one, has given; of several that are good the one that is
    /// good for longest.
    pub(super) fn elsewhere(&self, name: &str) -> Option<Certificate> {
        let beside = fs::read_dir(self.directory.parent()?).ok()?.flatten().take(MOST_OTHERS);
        let others = beside.map(|entry| Store { directory: entry.path() });
        let good = |certificate: &Certificate| certificate.covers(name) && certificate.remaining() > 0;
        let found = others.filter_map(|store| store.certificate(name).ok().flatten()).filter(good);
        found.max_by_key(Certificate::remaining)
    }

    fn path(&self, name: &str, ending: &str) -> io::Result<PathBuf> {
        if is_name(name) {
            return Ok(self.directory.join(format!("{name}.{ending}")));
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("'{name}' is no name of a host")))
    }

    /// The lock of a name, if nobody has it.
    pub(super) fn lock(&self, name: &str) -> io::Result<Option<Lock>> {
        Store::lock_file(&self.path(name, "lock")?)
    }

    /// The lock of the account, or of what was used of allowances, if nobody has it.
    pub(super) fn lock_own(&self, file: &str) -> io::Result<Option<Lock>> {
        Store::lock_file(&self.directory.join(file))
    }

    fn lock_file(path: &Path) -> io::Result<Option<Lock>> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The certificate of a name, and when its file was written. An error names the file.
    pub(super) fn certificate(&self, name: &str) -> io::Result<Option<Certificate>> {
        let path = self.path(name, "pem")?;
        let Some(text) = read(&path)? else { return Ok(None) };
        Certificate::from_pem(&text, &text).map(Some).map_err(|fault| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: {fault}", path.display()))
        })
    }

    /// Names that have a certificate here, good or not.
    pub(super) fn names(&self) -> Vec<String> {
        let files = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let name = |file: fs::DirEntry| Some(file.file_name().to_str()?.strip_suffix(".pem")?.to_owned());
        files.filter_map(name).filter(|name| is_name(name)).collect()
    }

    /// When the file of a name's certificate was written.
    pub(super) fn written(&self, name: &str) -> Option<SystemTime> {
        fs::metadata(self.path(name, "pem").ok()?).ok()?.modified().ok()
    }

    pub(super) fn keep_certificate(&self, name: &str, chain: &str, key: &str) -> io::Result<()> {
        write(&self.path(name, "pem")?, format!("{}\n{key}", chain.trim_end()).as_bytes())
    }

    pub(super) fn failed(&self, name: &str) -> Failed {
        self.path(name, "failed").ok().and_then(|path| json(&path)).unwrap_or_default()
    }

    /// Notes how a name's orders fail; `None`: no more.
    pub(super) fn note_failed(&self, name: &str, failed: Option<&Failed>) -> io::Result<()> {
        let path = self.path(name, "failed")?;
        match failed {
            Some(failed) => write(&path, &serde_json::to_vec(failed)?),
            None => match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        }
    }

    pub(super) fn account<T: DeserializeOwned>(&self) -> Option<T> {
        json(&self.directory.join("account.json"))
    }

    pub(super) fn keep_account(&self, account: &impl Serialize) -> io::Result<()> {
        write(&self.directory.join("account.json"), &serde_json::to_vec(account)?)
    }

    /// Puts an account aside that the authority does not know any more, unless another server has replaced it. Its key is kept beside. `false`: one
    /// was put aside a short while ago. An authority makes few accounts for one address, and may say so of each.
    pub(super) fn forget_account(&self, id: &str) -> io::Result<bool> {
        // Somebody is about to make one.
        let Some(_lock) = self.lock_own(ACCOUNT)? else { return Ok(true) };
        let path = self.directory.join("account.json");
        let forgotten = self.directory.join("account.forgotten");
        let stored: Option<serde_json::Value> = json(&path);
        if stored.is_some_and(|stored| stored.get("id").and_then(serde_json::Value::as_str) == Some(id)) {
            let before = fs::metadata(&forgotten).ok().and_then(|file| file.modified().ok());
            let ago = before.map(|at| SystemTime::now().duration_since(at).unwrap_or_default());
            if ago.is_some_and(|ago| ago < FORGETS) {
                return Ok(false);
            }
            fs::rename(&path, &forgotten)?;
            // The moment it was put aside, not made.
            File::open(&forgotten)?.set_modified(SystemTime::now())?;
        }
        Ok(true)
    }

    /// What was used of allowances. An error names the file.
    pub(super) fn allowance(&self) -> io::Result<Used> {
        let path = self.directory.join("allowance.json");
        let Some(text) = read(&path)? else { return Ok(Used::default()) };
        serde_json::from_slice(&text).map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}; remove it", path.display()))
        })
    }

    pub(super) fn keep_allowance(&self, used: &Used) -> io::Result<()> {
        write(&self.directory.join("allowance.json"), &serde_json::to_vec(used)?)
    }

    fn challenge_path(&self, token: &str) -> Option<PathBuf> {
        is_token(token).then(|| self.directory.join("challenges").join(token))
    }

    /// What the authority is to be told of a token.
    pub(super) fn challenge(&self, token: &str) -> Option<String> {
        String::from_utf8(read(&self.challenge_path(token)?).ok()??).ok()
    }

    pub(super) fn keep_challenge(&self, token: &str, answer: &str) -> io::Result<()> {
        let path = self.challenge_path(token);
        let path = path.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a malformed token"))?;
        write(&path, answer.as_bytes())
    }

    pub(super) fn forget_challenge(&self, token: &str) {
        if let Some(path) = self.challenge_path(token) {
            // It may be gone already.
            let _ = fs::remove_file(path);
        }
    }

    /// A file for something that is wanted as one.
    pub(super) fn keep_root(&self, pem: &str) -> io::Result<PathBuf> {
        let path = self.directory.join("authority.root");
        write(&path, pem.as_bytes())?;
        Ok(path)
    }
}

/// Whether it may be a token of an authority's: base64url (RFC 8555, 8.3).
pub(super) fn is_token(token: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    (1..=128).contains(&token.len()) && token.bytes().all(plain)
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

fn json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&read(path).ok()??).ok()
}

/// Writes a file that is there as a whole or not at all, also after a power failure.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let written = (|| {
        // One that an ended process of this number has left.
        let _ = fs::remove_file(&beside);
        let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn names_and_tokens_lead_nowhere_else() {
        let storage = tempfile::tempdir().unwrap();
        let store = Store::open(storage.path(), "https://ca.example/../../etc/directory").unwrap();
        assert!(store.directory.starts_with(storage.path()));
        assert!(!store.directory.display().to_string().contains(".."));
        for wrong in ["../x", "a/b", "", ".", "a\0b"] {
            assert!(store.lock(wrong).is_err() && store.keep_certificate(wrong, "", "").is_err());
            assert!(store.keep_challenge(wrong, "x").is_err() && store.challenge(wrong).is_none());
        }
        store.keep_challenge("abc_-9", "abc.def").unwrap();
        assert_eq!(store.challenge("abc_-9").as_deref(), Some("abc.def"));
        let file = fs::metadata(store.directory.join("challenges/abc_-9")).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
        store.forget_challenge("abc_-9");
        assert_eq!(store.challenge("abc_-9"), None);
    }

    #[test]
    fn one_at_a_time_holds_a_lock() {
        let storage = tempfile::tempdir().unwrap();
        let store = Store::open(storage.path(), "https://ca.example/directory").unwrap();
        let lock = store.lock("a.example").unwrap();
        assert!(lock.is_some() && store.lock("a.example").unwrap().is_none());
        assert!(store.lock("b.example").unwrap().is_some());
        // Hosts as well.
        let others = ["account", "allowance", "authority"].map(|host| store.lock(host).unwrap().unwrap());
        let own = [ACCOUNT, ALLOWANCE].map(|file| store.lock_own(file).unwrap().unwrap());
        assert!(store.lock_own(ACCOUNT).unwrap().is_none());
        drop((others, own));
        let root = store.keep_root("a root").unwrap();
        assert!(store.certificate("authority").unwrap().is_none() && store.names().is_empty());
        assert_eq!(fs::read_to_string(root).unwrap(), "a root");
        drop(lock);
        assert!(store.lock("a.example").unwrap().is_some());
    }

    #[test]
    fn an_account_is_put_aside_unless_it_is_another_one_by_now() {
        let storage = tempfile::tempdir().unwrap();
        let store = Store::open(storage.path(), "https://ca.example/directory").unwrap();
        store.keep_account(&serde_json::json!({ "id": "https://ca.example/account/1" })).unwrap();
        assert!(store.forget_account("https://ca.example/account/2").unwrap());
        assert!(store.account::<serde_json::Value>().is_some());
        let lock = store.lock_own(ACCOUNT).unwrap();
        assert!(store.forget_account("https://ca.example/account/1").unwrap());
        assert!(store.account::<serde_json::Value>().is_some(), "somebody else is at it");
        drop(lock);
        assert!(store.forget_account("https://ca.example/account/1").unwrap());
        assert!(store.account::<serde_json::Value>().is_none());
        assert!(store.directory.join("account.forgotten").exists());
        // The next one is not put aside at once.
        store.keep_account(&serde_json::json!({ "id": "https://ca.example/account/3" })).unwrap();
        assert!(!store.forget_account("https://ca.example/account/3").unwrap());
        assert!(store.account::<serde_json::Value>().is_some());
    }

    #[test]
    fn a_certificate_comes_back_with_its_key() {
        let storage = tempfile::tempdir().unwrap();
        let store = Store::open(storage.path(), "https://ca.example/directory").unwrap();
        assert!(store.certificate("a.example").unwrap().is_none());
        let (made, key) = crate::self_signed(&["a.example".into()]).unwrap();
        store.keep_certificate("a.example", &crate::client::pem(&made.chain()[0]), &key.0).unwrap();
        assert!(store.certificate("a.example").unwrap().unwrap().covers("a.example"));
        fs::write(store.path("a.example", "pem").unwrap(), "nonsense").unwrap();
        let error = store.certificate("a.example").unwrap_err();
        assert!(error.to_string().contains("a.example.pem"));
    }
}
