//! The files of a program: which files of each set exist and how long they are. Converts the accesses of threads into file operations.

use emmclab_base::{Error, ErrorClass, Result};
use emmclab_host::{FileId, FileOp, FileSpec, FolderId, MountId};

use crate::program::{AccessPattern, AppProgram, FilePickOrder};
use crate::random_draws::ThreadDraws;
use crate::sqlite::SqliteState;
use crate::storage::FileStore;
use crate::thread_code::FileAccessKind;

/// Alignment of accesses at random offsets, in bytes. Smaller accesses are aligned to their own size.
const ALIGNMENT: u64 = 4096;
/// Number of the random stream from which initial file sizes are drawn. Threads use other numbers.
const SIZES: u32 = u32::MAX - 1;

#[derive(Debug)]
struct FileSetState {
    name: String,
    first: u32,
    members: Vec<Option<u64>>,
    /// Number of files of the set that exist.
    existing: u32,
    /// Index of the file of the set that is created next.
    next: u32,
    /// Length of the part at the beginning of a file that random and repeated accesses use, in bytes; `None` for the whole file.
    in_use: Option<u64>,
}

/// The current file of a thread in a set of files, and the thread's position in this file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FileCursor {
    member: u32,
    position: u64,
}

#[derive(Debug)]
pub(crate) struct ProgramFiles {
    sets: Vec<FileSetState>,
    pub(crate) databases: Vec<SqliteState>,
    specs: Vec<FileSpec>,
}

impl ProgramFiles {
    /// Creates the initial files of a program in a store. Each set and each database has its own folder.
    /// Errors: for a partition that does not exist, and if a partition has not enough space for the files.
    pub fn new(
        program: &AppProgram, seed: u64, mount: impl Fn(&str) -> Option<MountId>, store: &mut impl FileStore,
    ) -> Result<Self> {
        let mut out = Self { sets: Vec::new(), databases: Vec::new(), specs: Vec::new() };
        let mut draws = ThreadDraws::of_thread(seed, SIZES);
        let mounted = |owner: &str, name: &str| {
            mount(name).ok_or_else(|| {
                Error::new(ErrorClass::Config, format!("`{owner}` is on a partition that the host does not have"))
                    .of_field("partition", 0, name.as_bytes())
                    .hint("use a partition of the host; `emmclab apps hosts` lists them")
            })
        };
        let mut folder = 0;
        for set in &program.files {
            folder += 1;
            let spec = FileSpec { mount: mounted(&set.name, &set.partition)?, folder: FolderId(folder), class: set.class };
            let sizes = set.size.as_ref().map(crate::random_draws::Amount::resolved);
            let first = out.specs.len() as u32;
            let mut members = Vec::with_capacity(set.count as usize);
            for _ in 0..set.count {
                let size = sizes.as_ref().map(|sizes| sizes.draw(&mut draws));
                out.declare(spec, size, store).map_err(|error| error.of_field("file.name", 0, set.name.as_bytes()))?;
                members.push(size);
            }
            let existing = if set.size.is_some() { set.count } else { 0 };
            out.sets.push(FileSetState {
                name: set.name.clone(),
                first,
                members,
                existing,
                next: 0,
                in_use: set.working_set.map(|size| size.0),
            });
        }
        for database in &program.databases {
            folder += 1;
            let mount = mounted(&database.name, &database.partition)?;
            let spec = |class| FileSpec { mount, folder: FolderId(folder), class };
            let file = out.declare(spec(emmclab_host::FileClass::Database), Some(database.size.0), store)?;
            let journal = out.declare(spec(emmclab_host::FileClass::DatabaseJournal), None, store)?;
            out.databases.push(SqliteState::new(database, file, journal, (mount, FolderId(folder))));
        }
        Ok(out)
    }

    fn declare(&mut self, spec: FileSpec, size: Option<u64>, store: &mut impl FileStore) -> Result<FileId> {
        let file = FileId(self.specs.len() as u32);
        self.specs.push(spec);
        store.declare(file, spec)?;
        if let Some(size) = size {
            store.preload(file, size)?;
        }
        Ok(file)
    }

    pub fn sets(&self) -> usize {
        self.sets.len()
    }

    /// Class and partition of the file that an operation accesses; `None` for an operation on all files.
    pub fn spec_of(&self, operation: &FileOp) -> Option<FileSpec> {
        if let FileOp::FsyncFolder { mount, folder } = *operation {
            return self.specs.iter().find(|spec| spec.mount == mount && spec.folder == folder).copied();
        }
        self.specs.get(operation.file()?.0 as usize).copied()
    }

    /// Selects a file of a set as the thread's current file.
    /// Errors: if no file of the set exists.
    pub fn pick(&self, set: u32, pick: FilePickOrder, cursor: &mut FileCursor, draws: &mut ThreadDraws) -> Result<()> {
        let files = &self.sets[set as usize];
        let count = files.members.len() as u32;
        let from = match pick {
            FilePickOrder::Same => cursor.member,
            FilePickOrder::Next => cursor.member + 1,
            FilePickOrder::Random => draws.below(u64::from(count)) as u32,
        };
        if files.existing == 0 {
            return Err(files.none_exists());
        }
        let mut member = from % count;
        while files.members[member as usize].is_none() {
            member = (member + 1) % count;
        }
        *cursor = FileCursor { member, position: 0 };
        Ok(())
    }

    /// Creates the next file of a set; if it exists, truncates it to 0 bytes.
    pub fn create(&mut self, set: u32, cursor: &mut FileCursor, out: &mut impl Extend<FileOp>) {
        let files = &mut self.sets[set as usize];
        let member = files.next;
        files.next = (member + 1) % files.members.len() as u32;
        *cursor = FileCursor { member, position: 0 };
        let file = files.file(member);
        out.extend([FileOp::Open { file, create: true }]);
        if files.members[member as usize].is_some() {
            files.members[member as usize] = Some(0);
            out.extend([FileOp::Truncate { file, bytes: 0 }]);
        }
        out.extend([FileOp::Close { file }]);
    }

    /// Marks a file as existing for all threads. Called when the file is closed after its creation.
    pub fn closed(&mut self, file: FileId) {
        let after = self.sets.partition_point(|set| set.first <= file.0);
        let Some(files) = after.checked_sub(1).map(|at| &mut self.sets[at]) else { return };
        if let Some(member) = files.members.get_mut((file.0 - files.first) as usize)
            && member.is_none()
        {
            *member = Some(0);
            files.existing += 1;
        }
    }

    /// Returns the file operation that accesses `bytes`; `None` if the file is empty and there is nothing to read.
    /// Errors: if no file of the set exists.
    pub fn access(
        &mut self, set: u32, kind: FileAccessKind, bytes: u64, cursor: &mut FileCursor, draws: &mut ThreadDraws,
    ) -> Result<Option<FileOp>> {
        self.exists(set, cursor, draws)?;
        let files = &mut self.sets[set as usize];
        let file = files.file(cursor.member);
        let in_use = files.in_use;
        let Some(Some(size)) = files.members.get_mut(cursor.member as usize) else { return Ok(None) };
        Ok(match kind {
            FileAccessKind::Append => {
                *size += bytes;
                Some(FileOp::Append { file, bytes })
            }
            FileAccessKind::Write => {
                let offset = cursor.position;
                cursor.position += bytes;
                *size = (*size).max(cursor.position);
                Some(FileOp::Write { file, offset, bytes })
            }
            FileAccessKind::Read(place) | FileAccessKind::Overwrite(place) => {
                let room = in_use.unwrap_or(*size).min(*size);
                let bytes = bytes.min(room);
                if bytes == 0 {
                    return Ok(None);
                }
                let offset = match place {
                    AccessPattern::Sequential if cursor.position + bytes > room => 0,
                    AccessPattern::Sequential => cursor.position,
                    AccessPattern::Random => {
                        let step = bytes.min(ALIGNMENT);
                        step * draws.below((room - bytes) / step + 1)
                    }
                };
                cursor.position = offset + bytes;
                Some(match kind {
                    FileAccessKind::Read(_) => FileOp::Read { file, offset, bytes },
                    _ => FileOp::Write { file, offset, bytes },
                })
            }
        })
    }

    /// The current file of a thread in a set.
    /// Errors: if no file of the set exists.
    pub fn current(&self, set: u32, cursor: &mut FileCursor, draws: &mut ThreadDraws) -> Result<FileId> {
        self.exists(set, cursor, draws)?;
        Ok(self.sets[set as usize].file(cursor.member))
    }

    /// Deletes the current file of a thread in a set.
    /// Errors: if no file of the set exists.
    pub fn delete(&mut self, set: u32, cursor: &mut FileCursor, draws: &mut ThreadDraws) -> Result<FileOp> {
        let file = self.current(set, cursor, draws)?;
        let files = &mut self.sets[set as usize];
        files.members[cursor.member as usize] = None;
        files.existing -= 1;
        Ok(FileOp::Unlink { file })
    }

    /// Truncates or extends the current file of a thread in a set.
    /// Errors: if no file of the set exists.
    pub fn truncate(&mut self, set: u32, bytes: u64, cursor: &mut FileCursor, draws: &mut ThreadDraws) -> Result<FileOp> {
        let file = self.current(set, cursor, draws)?;
        self.sets[set as usize].members[cursor.member as usize] = Some(bytes);
        cursor.position = cursor.position.min(bytes);
        Ok(FileOp::Truncate { file, bytes })
    }

    /// Renames the thread's current file of the set `from` to the name of its current file of the set `to`. An existing file with this name
    /// is replaced.
    /// Errors: if no file of the set `from` exists.
    pub fn rename(&mut self, (from, to): (u32, u32), cursors: &mut [FileCursor], draws: &mut ThreadDraws) -> Result<FileOp> {
        let old = self.current(from, &mut cursors[from as usize], draws)?;
        let (source, target) = (cursors[from as usize].member, cursors[to as usize].member);
        let size = self.sets[from as usize].members[source as usize].take();
        self.sets[from as usize].existing -= 1;
        let replaced = &mut self.sets[to as usize];
        if std::mem::replace(&mut replaced.members[target as usize], size).is_none() {
            replaced.existing += 1;
        }
        cursors[to as usize].position = 0;
        Ok(FileOp::Rename { from: old, to: self.sets[to as usize].file(target) })
    }

    /// Selects an existing file if the current file does not exist.
    fn exists(&self, set: u32, cursor: &mut FileCursor, draws: &mut ThreadDraws) -> Result<()> {
        if self.sets[set as usize].members[cursor.member as usize].is_some() {
            return Ok(());
        }
        self.pick(set, FilePickOrder::Same, cursor, draws)
    }
}

impl FileSetState {
    fn file(&self, member: u32) -> FileId {
        FileId(self.first + member)
    }

    fn none_exists(&self) -> Error {
        Error::new(ErrorClass::Config, "the program uses a file of this file set at a time when none of its files exists")
            .of_field("file", 0, self.name.as_bytes())
            .hint("give the file set a `size`, so that its files exist from the start, or `create` a file before it is used")
    }
}
