//! Paths, and the files that they name.

use emmclab_base::{Error, ErrorClass, Result};

use crate::operation::{FileClass, FileId, FileSpec, FolderId, MountId};

/// Maximum number of paths of a host.
const MOST: u32 = 1 << 24;

/// Maximum number of folders of a mount.
const FOLDERS: u32 = 1 << 16;

/// Checks the number of a folder.
pub(super) fn check_folder(folder: FolderId) -> Result<()> {
    if folder.0 < FOLDERS {
        return Ok(());
    }
    Err(Error::new(ErrorClass::Value, "the number of the folder is too high")
        .of_field("folder", 0, folder.0.to_string().as_bytes())
        .hint(format!("use less than {FOLDERS}")))
}

/// A path.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathEntry {
    pub spec: FileSpec,
    /// The file that it names; it stays here if it was removed while open.
    pub inode: Option<u32>,
}

/// All paths.
#[derive(Debug, Default)]
pub(super) struct PathTable(Vec<Option<PathEntry>>);

fn fault(problem: &str, file: FileId) -> Error {
    Error::new(ErrorClass::Value, problem).of_field("file", 0, file.0.to_string().as_bytes())
}

impl PathTable {
    pub fn declare(&mut self, file: FileId, spec: FileSpec, mounts: usize) -> Result<()> {
        if usize::from(spec.mount.0) >= mounts {
            let MountId(mount) = spec.mount;
            return Err(Error::new(ErrorClass::Value, "there is no such mount")
                .of_field("mount", 0, mount.to_string().as_bytes())
                .hint(format!("use a mount below {mounts}; they are numbered from 0")));
        }
        if file.0 >= MOST {
            return Err(fault("the number of the file is too high", file).hint(format!("use less than {MOST}")));
        }
        check_folder(spec.folder)?;
        let at = file.0 as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, None);
        }
        if self.0[at].is_some() {
            return Err(fault("the file was declared before", file).hint("declare each file once"));
        }
        self.0[at] = Some(PathEntry { spec, inode: None });
        Ok(())
    }

    pub fn get(&self, file: FileId) -> Result<PathEntry> {
        let name = self.0.get(file.0 as usize).copied().flatten();
        name.ok_or_else(|| fault("the file was not declared", file).hint("declare it first"))
    }

    /// The class of the first file that was declared in a folder; [`FileClass::Other`] without one.
    pub fn class_of_folder(&self, mount: MountId, folder: FolderId) -> FileClass {
        let specs = self.0.iter().flatten().map(|name| name.spec);
        let mut inside = specs.filter(|spec| (spec.mount, spec.folder) == (mount, folder));
        inside.next().map_or(FileClass::Other, |spec| spec.class)
    }

    /// The file that a path names.
    pub fn inode(&self, file: FileId) -> Result<u32> {
        let missing = || fault("the file does not exist", file).hint("open it with `create`, or preload it");
        self.get(file)?.inode.ok_or_else(missing)
    }

    pub fn set(&mut self, file: FileId, inode: Option<u32>) {
        if let Some(Some(name)) = self.0.get_mut(file.0 as usize) {
            name.inode = inode;
        }
    }
}
