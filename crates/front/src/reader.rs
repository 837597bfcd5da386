//! As whom an application's files are sent.
//!
//! The front may read more than each application: it is in the groups of all of them, and its own logs and keys are its own. Who can make
//! a link in a document root must not have it read for him what he may not read himself. So what a link leads to, outside of the root, is
//! sent only if the application's own user could open it: this looks at the permissions of the file and of all directories above it. It goes
//! up from the directory that has the file, and asks what it holds, not what a name means: who may rename a directory would else put one that
//! anybody may search in its place between two looks.
//!
//! It knows owner, group and others, and the access control lists of POSIX (acl(5)), which say more: there the group's part of the mode is
//! the list's mask, and the list may take away what others have. What it cannot read or does not understand gives no right.

use std::{
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, Stat, fstat, getxattr, open, openat, openat2, stat},
    io::Errno,
};

use crate::{near::Meta, shown::Shown, site::FileId};

/// The user that an application's scripts run as.
#[derive(Debug, Clone)]
pub struct Reader {
    app: String,
    user: u32,
    groups: Vec<u32>,
    /// It is in the log that this user may not read something. Once: a visitor asks as often as he likes.
    told: Arc<AtomicBool>,
}

/// What opens anything, only to be looked at; a link itself.
const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

const READ: u16 = 4;
const SEARCH: u16 = 1;

/// Bytes of an extended attribute, at most (XATTR_SIZE_MAX).
const LONGEST_LIST: usize = 64 << 10;

impl Reader {
    /// `app`: the application's name, for the log. `None` for root, who may read everything.
    pub fn new(app: &str, user: u32, groups: Vec<u32>) -> Option<Reader> {
        let told = Arc::default();
        (user != 0).then(|| Reader { app: app.to_owned(), user, groups, told })
    }

    /// Whether both are the same user.
    pub(crate) fn is_user_of(&self, other: &Reader) -> bool {
        self.user == other.user && self.groups == other.groups
    }

    /// Whether this user may open what a path leads to, as far as can be told. May wait for the disk. The log says nothing of it.
    pub fn may_open(&self, path: &Path) -> bool {
        let told = Arc::new(AtomicBool::new(true));
        let quiet = Reader { told, ..self.clone() };
        let Ok(real) = path.canonicalize() else { return false };
        stat(&real).is_ok_and(|meta| quiet.may_read(&real, Meta::of(&meta).id))
    }

    /// Whether this user may open the file `id` at a path that has no link in it. May wait for the disk.
    pub(crate) fn may_read(&self, path: &Path, id: FileId) -> bool {
        // What is no longer there, or as it was, gives no right.
        self.looks(path, id).unwrap_or(false)
    }

    fn looks(&self, path: &Path, id: FileId) -> Result<bool, Errno> {
        let mut steps = path.ancestors();
        let (Some(file), Some(above), Some(name)) = (steps.next(), path.parent(), path.file_name()) else {
            return Ok(false);
        };
        let mut directory = directory(above)?;
        let mut list = vec![0; LONGEST_LIST];
        let opened = openat(&directory, name, LOOK, Mode::empty())?;
        let meta = fstat(&opened)?;
        if Meta::of(&meta).id != id {
            return Ok(false);
        }
        if !self.has_right(READ, &opened, &meta, &mut list) {
            self.tell(path, file);
            return Ok(false);
        }
        let root = Meta::of(&stat("/")?).id;
        for step in steps {
            let meta = fstat(&directory)?;
            if !self.has_right(SEARCH, &directory, &meta, &mut list) {
                self.tell(path, step);
                return Ok(false);
            }
            if step.parent().is_none() {
                // Else it was moved meanwhile, and there are others above it.
                return Ok(Meta::of(&meta).id == root);
            }
            directory = openat(&directory, "..", LOOK | OFlags::DIRECTORY, Mode::empty())?;
        }
        Ok(false)
    }

    /// Whether it has this right to what is open there. `list` is room for an access control list.
    fn has_right(&self, right: u16, opened: &OwnedFd, meta: &Stat, list: &mut [u8]) -> bool {
        let (mode, owner, group) = (meta.st_mode, meta.st_uid, meta.st_gid);
        // What is open only to be looked at has no attributes but by a name.
        let name = format!("/proc/self/fd/{}", opened.as_raw_fd());
        match getxattr(name, "system.posix_acl_access", &mut list[..]) {
            // The kernel passes over a list whose mask, which the group's bits are, gives nothing.
            Ok(_) if mode & 0o070 == 0 => self.has(right, mode, owner, group),
            Ok(len) => self.has_by_list(right, list.get(..len).unwrap_or_default(), owner, group),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => self.has(right, mode, owner, group),
            // It is open, so its name there can only be missing where all of them are.
            Err(Errno::NOENT) => {
                if !self.told.swap(true, Relaxed) {
                    tracing::warn!(
                        app = self.app,
                        "nothing outside of the document root is sent: who may read it cannot be told without /proc/self/fd; mount /proc"
                    );
                }
                false
            }
            Err(_) => false,
        }
    }

    /// As path_resolution(7): the first of owner, group and others that it is decides.
    fn has(&self, right: u16, mode: u32, owner: u32, group: u32) -> bool {
        let rights = if owner == self.user {
            mode >> 6
        } else if self.groups.contains(&group) {
            mode >> 3
        } else {
            mode
        };
        rights & u32::from(right) != 0
    }

    /// As acl(5), Access Check Algorithm: the owner; a user that is named, by the mask; any of the groups that it is in, by the mask; others.
    fn has_by_list(&self, right: u16, list: &[u8], owner: u32, group: u32) -> bool {
        let Some(entries) = entries(list) else { return false };
        let find = |tag, id: Option<u32>| {
            let mut found =
                entries.iter().filter(|entry| entry.tag == tag && id.is_none_or(|id| id == entry.id));
            found.next().map(|entry| entry.rights)
        };
        let mask = find(MASK, None).unwrap_or(u16::MAX);
        if owner == self.user {
            return find(OWNER, None).is_some_and(|rights| rights & right != 0);
        }
        if let Some(rights) = find(USER, Some(self.user)) {
            return rights & mask & right != 0;
        }
        let mut of_groups = entries.iter().filter(|entry| match entry.tag {
            OWNING_GROUP => self.groups.contains(&group),
            GROUP => self.groups.contains(&entry.id),
            _ => false,
        });
        match of_groups.next() {
            Some(first) => {
                (first.rights & mask & right != 0) || of_groups.any(|entry| entry.rights & mask & right != 0)
            }
            None => find(OTHERS, None).is_some_and(|rights| rights & right != 0),
        }
    }

    fn tell(&self, path: &Path, step: &Path) {
        if self.told.swap(true, Relaxed) {
            return;
        }
        let (path, step) = (Shown(path.as_os_str().as_bytes()), Shown(step.as_os_str().as_bytes()));
        tracing::warn!(
            app = self.app,
            "\"{path}\" lies outside of the document root and was not sent: the application's user (uid {}) may not read it, for the rights of \
             \"{step}\"; give them to that user if the file is to be sent. What else is refused for that reason is not said again",
            self.user
        );
    }
}

/// A directory at a path that has no link in it.
fn directory(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = LOOK | OFlags::DIRECTORY;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // Before Linux 5.6, and in containers that do not know of it. By links as well, then: it is asked which file it holds.
        Err(Errno::NOSYS | Errno::PERM) => open(path, flags, Mode::empty()),
        opened => opened,
    }
}

/// An entry of a list (linux/posix_acl_xattr.h).
struct Entry {
    tag: u16,
    rights: u16,
    id: u32,
}

const VERSION: [u8; 4] = 2u32.to_le_bytes();
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;

/// `None`: it is of another version, or cut.
fn entries(list: &[u8]) -> Option<Vec<Entry>> {
    let (entries, []) = list.strip_prefix(&VERSION)?.as_chunks::<8>() else { return None };
    let entry = |[a, b, c, d, id @ ..]: [u8; 8]| Entry {
        tag: u16::from_le_bytes([a, b]),
        rights: u16::from_le_bytes([c, d]),
        id: u32::from_le_bytes(id),
    };
    Some(entries.iter().copied().map(entry).collect())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt, PermissionsExt},
    };

    use super::*;

    #[test]
    fn the_first_of_owner_group_and_others_decides() {
        let reader = Reader::new("a", 1000, vec![1000, 33]).unwrap();
        for (mode, user, group, may) in [
            (0o644, 0, 0, true),
            (0o640, 0, 0, false),
            (0o640, 0, 33, true),
            (0o604, 0, 33, false),
            (0o400, 1000, 0, true),
            (0o044, 1000, 33, false),
        ] {
            assert_eq!(reader.has(READ, mode, user, group), may, "{mode:o} {user} {group}");
        }
        assert!(Reader::new("a", 0, Vec::new()).is_none());
    }

    /// Entries: tag, rights, id.
    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let entry = |(tag, rights, id): &(u16, u16, u32)| {
            [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        [VERSION.to_vec(), entries.iter().flat_map(entry).collect()].concat()
    }

    const NONE: u32 = u32::MAX;
    /// Nobody's number: others' rights hold.
    const NOBODY: u32 = 0x7fff_fff0;

    #[test]
    fn a_list_decides_as_the_kernel_does() {
        let reader = Reader::new("a", 1000, vec![1000, 33]).unwrap();
        let base =
            |group, others| vec![(OWNER, 6, NONE), (OWNING_GROUP, group, NONE), (OTHERS, others, NONE)];
        let with = |more: &[(u16, u16, u32)], group, others| list(&[&base(group, others)[..], more].concat());
        for (what, list, owner, group, may) in [
            ("others", with(&[], 0, 4), 0, 0, true),
            ("no others", with(&[], 4, 0), 0, 0, false),
            ("the owner", list(&[(OWNER, 0, NONE), (OTHERS, 4, NONE)]), 1000, 33, false),
            ("the owner, whom no mask concerns", with(&[(MASK, 0, NONE)], 0, 0), 1000, 0, true),
            ("who is named", with(&[(USER, 4, 1000), (MASK, 4, NONE)], 0, 0), 0, 0, true),
            ("who is named, by the mask", with(&[(USER, 4, 1000), (MASK, 2, NONE)], 4, 4), 0, 33, false),
            ("who is named has no more", with(&[(USER, 0, 1000), (MASK, 7, NONE)], 4, 4), 0, 33, false),
            ("another is named", with(&[(USER, 4, 1001), (MASK, 4, NONE)], 0, 0), 0, 0, false),
            ("the owning group", with(&[(MASK, 4, NONE)], 4, 0), 0, 33, true),
            ("the owning group, by the mask", with(&[(MASK, 2, NONE)], 4, 4), 0, 33, false),
            ("a group", with(&[(GROUP, 4, 33), (MASK, 4, NONE)], 0, 0), 0, 0, true),
            ("another group", with(&[(GROUP, 4, 34), (MASK, 4, NONE)], 0, 0), 0, 0, false),
            (
                "any of its groups",
                with(&[(GROUP, 0, 33), (GROUP, 4, 1000), (MASK, 4, NONE)], 0, 0),
                0,
                33,
                true,
            ),
            ("a group that has nothing", with(&[(GROUP, 0, 33), (MASK, 4, NONE)], 4, 4), 0, 0, false),
            ("nothing", Vec::new(), 1000, 1000, false),
            ("another version", vec![3, 0, 0, 0], 1000, 1000, false),
            ("cut", with(&[], 4, 4)[..19].to_vec(), 1000, 1000, false),
        ] {
            assert_eq!(reader.has_by_list(READ, &list, owner, group), may, "{what}");
        }
    }

    #[test]
    fn lists_of_files_and_directories() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let file = root.join("a.txt");
        fs::write(&file, "a").unwrap();
        let set = |path: &Path, mode, entry: (u16, u16, u32)| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            let rights = |by: u32| (mode >> by & 7) as u16;
            let entries = [
                (OWNER, rights(6), NONE),
                entry,
                (OWNING_GROUP, 0, NONE),
                (MASK, 7, NONE),
                (OTHERS, rights(0), NONE),
            ];
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(path, "system.posix_acl_access", &list(&entries), flags)
        };
        if set(&file, 0o644, (USER, 0, NOBODY)) == Err(Errno::OPNOTSUPP) {
            eprintln!("not tested: the file system of TMPDIR knows no access control lists");
            return;
        }
        let meta = fs::metadata(&file).unwrap();
        let id = FileId::new(meta.dev(), meta.ino());
        let reader = Reader::new("a", NOBODY, Vec::new()).unwrap();
        set(&root, 0o755, (USER, 0, 1)).unwrap();
        assert!(!reader.may_read(&file, id), "the list of the file takes away");
        set(&file, 0o600, (USER, 4, NOBODY)).unwrap();
        assert!(reader.may_read(&file, id), "the list of the file gives");
        // Which makes the mask of the list empty.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o604)).unwrap();
        assert!(reader.may_read(&file, id), "a list whose mask gives nothing is passed over");
        set(&file, 0o600, (USER, 4, NOBODY)).unwrap();
        set(&root, 0o755, (USER, 6, NOBODY)).unwrap();
        assert!(!reader.may_read(&file, id), "the list of the directory takes away");
        set(&root, 0o700, (USER, 1, NOBODY)).unwrap();
        assert!(reader.may_read(&file, id), "the list of the directory gives");
        assert!(reader.told.load(Relaxed), "it is in the log");
    }

    #[test]
    fn a_directory_that_changes_places_has_the_say_of_the_one_that_the_file_is_in() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
        for (name, mode) in [("closed", 0o700), ("open", 0o755)] {
            fs::create_dir(root.join(name)).unwrap();
            fs::write(root.join(name).join("a.txt"), name).unwrap();
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let meta = fs::metadata(root.join("closed/a.txt")).unwrap();
        let id = FileId::new(meta.dev(), meta.ino());
        let reader = Reader::new("a", NOBODY, Vec::new()).unwrap();
        // Else it would say no to anything.
        let open = fs::metadata(root.join("open/a.txt")).unwrap();
        let open = FileId::new(open.dev(), open.ino());
        assert!(
            reader.may_read(&root.join("open/a.txt"), open),
            "tests need a TMPDIR that anybody may search"
        );
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    let flags = rustix::fs::RenameFlags::EXCHANGE;
                    rustix::fs::renameat_with(
                        rustix::fs::CWD,
                        root.join("closed"),
                        rustix::fs::CWD,
                        root.join("open"),
                        flags,
                    )
                    .unwrap();
                }
            });
            let path = root.join("closed/a.txt");
            let may = (0..100_000).filter(|_| reader.may_read(&path, id)).count();
            over.store(true, Relaxed);
            assert_eq!(may, 0);
        });
    }

    #[test]
    fn each_directory_above_has_a_say() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("d")).unwrap();
        let file = root.join("d/a.txt");
        fs::write(&file, "a").unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let meta = fs::metadata(&file).unwrap();
        let id = FileId::new(meta.dev(), meta.ino());
        let reader = Reader::new("a", NOBODY, Vec::new()).unwrap();
        set(&root, 0o755);
        for (directory, mode, may) in
            [(0o755, 0o644, true), (0o711, 0o604, true), (0o750, 0o644, false), (0o755, 0o640, false)]
        {
            set(&root.join("d"), directory);
            set(&file, mode);
            assert_eq!(reader.may_read(&file, id), may, "{directory:o} {mode:o}");
        }
        set(&root.join("d"), 0o755);
        set(&file, 0o644);
        assert!(!reader.may_read(&file, FileId::new(0, 0)), "another file is there");
        assert!(!reader.may_read(&root.join("d/missing"), id));
        std::os::unix::fs::symlink("d", root.join("link")).unwrap();
        assert!(!reader.may_read(&root.join("link/a.txt"), id), "a link above it");
    }
}
