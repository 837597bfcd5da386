//! As whom an application's files are sent.
//!
//! The front may read more than each application: it is in the groups of all of them, and its own logs and keys are its own. Who can make
//! a link in a document root must not have it read for him what he may not read himself. So what a link leads to, outside of the root, is
//! sent only if the application's own user could open it: this looks at the permissions of the file and of all directories above it.
//!
//! It knows owner, group and others. With an access control list the group's part of the mode is not the group's right but the list's mask, and
//! the list may take away what others have. So where one is, nothing is sent.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use rustix::{fs::lgetxattr, io::Errno};

use crate::site::FileId;

/// The user that an application's scripts run as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reader {
    user: u32,
    groups: Vec<u32>,
}

const READ: u32 = 4;
const SEARCH: u32 = 1;

impl Reader {
    /// `None` for root, who may read everything.
    pub fn new(user: u32, groups: Vec<u32>) -> Option<Reader> {
        (user != 0).then_some(Reader { user, groups })
    }

    /// Whether this user may open the file `id` at a path that has no link in it. May wait for the disk.
    pub(crate) fn may_read(&self, path: &Path, id: FileId) -> bool {
        let mut file = None;
        for (above, step) in path.ancestors().enumerate() {
            let Ok(meta) = fs::symlink_metadata(step) else { return false };
            let right = if above == 0 {
                file = Some(FileId::new(meta.dev(), meta.ino()));
                READ
            } else if meta.is_dir() {
                SEARCH
            } else {
                // A link has taken its place since.
                return false;
            };
            if !self.has(right, meta.mode(), meta.uid(), meta.gid()) || may_have_a_list(step) {
                return false;
            }
        }
        file == Some(id)
    }

    /// As path_resolution(7): the first of owner, group and others that it is decides.
    fn has(&self, right: u32, mode: u32, user: u32, group: u32) -> bool {
        let rights = if user == self.user {
            mode >> 6
        } else if self.groups.contains(&group) {
            mode >> 3
        } else {
            mode
        };
        rights & right != 0
    }
}

/// Whether there is an access control list of POSIX (acl(5)), or that cannot be told.
fn may_have_a_list(path: &Path) -> bool {
    // No room for one: a list is an error as well (ERANGE).
    let list = lgetxattr(path, "system.posix_acl_access", &mut [0; 1]);
    !matches!(list, Err(Errno::NODATA | Errno::OPNOTSUPP))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_first_of_owner_group_and_others_decides() {
        let reader = Reader::new(1000, vec![1000, 33]).unwrap();
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
        assert_eq!(Reader::new(0, Vec::new()), None);
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
        // Nobody's number: others' rights hold.
        let reader = Reader::new(0x7fff_fff0, Vec::new()).unwrap();
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
        // Whoever makes one sees it in the mode, if at all, as a right of the group. user::rw- user:1:r-- group::r-- mask::r-- other::r--
        let entries =
            [(1u16, 6u16, u32::MAX), (2, 4, 1), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 4, u32::MAX)];
        let entry = |(tag, rights, id): (u16, u16, u32)| {
            [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let list = [2u32.to_le_bytes().to_vec(), entries.map(entry).concat()].concat();
        rustix::fs::setxattr(&file, "system.posix_acl_access", &list, rustix::fs::XattrFlags::empty())
            .expect("the directory for temporary files is to know access control lists");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o644);
        assert!(!reader.may_read(&file, id), "a list");
        rustix::fs::removexattr(&file, "system.posix_acl_access").unwrap();
        assert!(reader.may_read(&file, id));
        assert!(!reader.may_read(&file, FileId::new(0, 0)), "another file is there");
        assert!(!reader.may_read(&root.join("d/missing"), id));
        std::os::unix::fs::symlink("d", root.join("link")).unwrap();
        assert!(!reader.may_read(&root.join("link/a.txt"), id), "a link above it");
    }
}
