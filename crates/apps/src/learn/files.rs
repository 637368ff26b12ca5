//! The files of a recording: whether they existed before it, their sizes, and who changed them last.

use std::cell::Cell;
use std::rc::Rc;

use rustc_hash::FxHashMap;

/// Whether a file existed before the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PriorExistence {
    Unknown,
    There,
    Absent,
}

/// A file with one path.
#[derive(Debug)]
pub(super) struct RecordedFile {
    pub path: String,
    pub before: PriorExistence,
    /// Its size before the recording, as far as known from reads and status calls.
    pub first_size: u64,
    pub size: u64,
    /// Whether its contents have been changed.
    pub changed: bool,
    /// Number of further hard links.
    links: u32,
    /// Number of open file descriptions.
    opens: u32,
    /// Whether it was unlinked while it was open.
    pub unlinked: bool,
    /// The last item that created, deleted or renamed it.
    pub last_change: Option<ItemIndex>,
    /// The items that used it since then, one per thread.
    pub uses: Vec<ItemIndex>,
}

/// An item of a thread, identified by the two indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ItemIndex {
    pub thread: usize,
    pub item: usize,
}

/// An open file description, which several descriptors may share.
#[derive(Debug)]
pub(super) struct OpenFileDescription {
    pub file: Cell<usize>,
    pub position: Cell<u64>,
    pub append: bool,
    /// Whether each write is durable with metadata (`O_SYNC`), only with its data (`O_DSYNC`), or not at all (`None`).
    pub durable: Option<SyncWriteScope>,
}

/// What a synchronous write makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncWriteScope {
    Data,
    All,
}

/// What a descriptor refers to.
#[derive(Clone, Debug)]
pub(super) enum DescriptorTarget {
    File(Rc<OpenFileDescription>),
    Folder(String),
    Socket,
    /// A pipe, an event or a local socket, with its number.
    Channel(u32),
    /// A device, or something unknown.
    Other,
}

/// All files by number, and by their present path.
#[derive(Debug, Default)]
pub(super) struct RecordedFiles {
    pub all: Vec<RecordedFile>,
    by_path: FxHashMap<String, usize>,
}

impl RecordedFiles {
    /// The number of the file with this path; it is added if it is new.
    pub fn of(&mut self, path: &str) -> usize {
        if let Some(number) = self.by_path.get(path) {
            return *number;
        }
        let number = self.all.len();
        self.all.push(RecordedFile {
            path: path.to_owned(),
            before: PriorExistence::Unknown,
            first_size: 0,
            size: 0,
            changed: false,
            links: 0,
            opens: 0,
            unlinked: false,
            last_change: None,
            uses: Vec::new(),
        });
        self.by_path.insert(path.to_owned(), number);
        number
    }

    /// Records that the file has at least this size, as a status call, a seek or a read has shown.
    pub fn has(&mut self, number: usize, size: u64) {
        let file = &mut self.all[number];
        if size > 0 && file.before == PriorExistence::Unknown && !file.changed {
            file.before = PriorExistence::There;
        }
        if file.before == PriorExistence::There && !file.changed {
            file.first_size = file.first_size.max(size);
        }
        file.size = file.size.max(size);
    }

    /// Decides whether the file existed before the recording, because it is now used: it did, unless a thread created it.
    pub fn decide_existence(&mut self, number: usize) {
        let file = &mut self.all[number];
        if file.before == PriorExistence::Unknown {
            file.before = if file.last_change.is_some() { PriorExistence::Absent } else { PriorExistence::There };
        }
    }

    pub fn opened(&mut self, number: usize) {
        self.all[number].opens += 1;
    }

    /// Removes an open file description; true if the file is deleted with it.
    pub fn closed(&mut self, number: usize) -> bool {
        let file = &mut self.all[number];
        file.opens = file.opens.saturating_sub(1);
        file.opens == 0 && std::mem::take(&mut file.unlinked)
    }

    /// Unlinks a path. Returns the file, and whether it is deleted now.
    pub fn unlinked(&mut self, path: &str) -> (usize, bool) {
        let number = self.of(path);
        self.by_path.remove(path);
        self.decide_existence(number);
        let file = &mut self.all[number];
        if file.links > 0 {
            file.links -= 1;
            return (number, false);
        }
        file.unlinked = file.opens > 0;
        (number, !file.unlinked)
    }

    /// Handles an open file whose path is taken by another file: it continues under a new number and a placeholder path. Returns the old
    /// and the new number; `None` if it is not open.
    pub fn replaced(&mut self, path: &str) -> Option<(usize, usize)> {
        let old = self.of(path);
        if self.all[old].opens == 0 {
            return None;
        }
        self.decide_existence(old);
        let new = self.of(&format!("{path} (replaced)"));
        self.by_path.remove(&self.all[new].path);
        let (size, opens) = (self.all[old].size, std::mem::take(&mut self.all[old].opens));
        let file = &mut self.all[new];
        (file.before, file.size, file.changed) = (PriorExistence::Absent, size, true);
        (file.opens, file.unlinked) = (opens, true);
        Some((old, new))
    }

    /// Adds a second path to a file.
    pub fn linked(&mut self, old: &str, new: &str) {
        let number = self.of(old);
        self.decide_existence(number);
        self.all[number].links += 1;
        self.by_path.insert(new.to_owned(), number);
    }

    /// Whether files in this folder are known.
    pub fn is_folder(&self, path: &str) -> bool {
        self.by_path.keys().any(|known| is_below(known, path))
    }

    /// Renames a folder, and the paths of the files in it.
    pub fn folder_renamed(&mut self, from: &str, to: &str) {
        let below: Vec<String> = self.by_path.keys().filter(|known| is_below(known, from)).cloned().collect();
        for path in below {
            if let Some(number) = self.by_path.remove(&path) {
                self.by_path.insert(format!("{to}{}", &path[from.len()..]), number);
            }
        }
    }

    /// Renames a file so that it replaces the file of another path; returns both numbers.
    pub fn renamed(&mut self, from: &str, to: &str) -> (usize, usize) {
        let (old, new) = (self.of(from), self.of(to));
        self.decide_existence(old);
        if self.all[new].before == PriorExistence::Unknown {
            self.all[new].before = PriorExistence::Absent;
        }
        self.by_path.remove(from);
        let (size, opens) = (self.all[old].size, std::mem::take(&mut self.all[old].opens));
        let file = &mut self.all[new];
        (file.size, file.opens, file.changed) = (size, opens, true);
        (old, new)
    }
}

/// Whether a path is inside a folder.
pub(super) fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}
