//! The files of a recording: which of them existed beforehand, how long they are, and who changed them last.

use std::cell::Cell;
use std::rc::Rc;

use rustc_hash::FxHashMap;

/// Whether a file was there before the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    Unknown,
    There,
    Absent,
}

/// A file, under one path.
#[derive(Debug)]
pub(super) struct File {
    pub path: String,
    pub before: Before,
    /// Its size beforehand, as far as reads and status calls tell.
    pub first_size: u64,
    pub size: u64,
    /// Whether its contents were changed yet.
    pub changed: bool,
    /// Further names, by links.
    links: u32,
    /// Descriptions that have it open.
    opens: u32,
    /// Whether it lost its path while it was open.
    pub unlinked: bool,
    /// The item that made, removed or renamed it last.
    pub last_change: Option<Place>,
    /// Items that used it since then, one for each thread.
    pub uses: Vec<Place>,
}

/// An item of a thread, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub thread: usize,
    pub item: usize,
}

/// An open file, which several descriptors may share.
#[derive(Debug)]
pub(super) struct Description {
    pub file: Cell<usize>,
    pub position: Cell<u64>,
    pub append: bool,
    /// Whether each write is made durable (`O_SYNC`), or its data alone (`O_DSYNC`).
    pub durable: Option<Durable>,
}

/// What a synchronous write makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durable {
    Data,
    All,
}

/// The file, socket or pipe behind a descriptor.
#[derive(Clone, Debug)]
pub(super) enum Open {
    File(Rc<Description>),
    Folder(String),
    Socket,
    /// A pipe, an event or a local socket, by a number.
    Channel(u32),
    /// A device, or what is not known.
    Other,
}

/// All files by number, and by the path that they have now.
#[derive(Debug, Default)]
pub(super) struct Files {
    pub all: Vec<File>,
    by_path: FxHashMap<String, usize>,
}

impl Files {
    /// The file of a path, new where there is none.
    pub fn of(&mut self, path: &str) -> usize {
        if let Some(number) = self.by_path.get(path) {
            return *number;
        }
        let number = self.all.len();
        self.all.push(File {
            path: path.to_owned(),
            before: Before::Unknown,
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

    /// A status call, a seek or a read tells that the file has at least this size.
    pub fn has(&mut self, number: usize, size: u64) {
        let file = &mut self.all[number];
        if size > 0 && file.before == Before::Unknown && !file.changed {
            file.before = Before::There;
        }
        if file.before == Before::There && !file.changed {
            file.first_size = file.first_size.max(size);
        }
        file.size = file.size.max(size);
    }

    /// It is used in a way that tells whether it was there before: unless a thread may have made it, it was.
    pub fn settle(&mut self, number: usize) {
        let file = &mut self.all[number];
        if file.before == Before::Unknown {
            file.before = if file.last_change.is_some() { Before::Absent } else { Before::There };
        }
    }

    pub fn opened(&mut self, number: usize) {
        self.all[number].opens += 1;
    }

    /// A description is gone; true if the file goes with it.
    pub fn closed(&mut self, number: usize) -> bool {
        let file = &mut self.all[number];
        file.opens = file.opens.saturating_sub(1);
        file.opens == 0 && std::mem::take(&mut file.unlinked)
    }

    /// The path is gone; true if the file goes with it.
    pub fn unlinked(&mut self, path: &str) -> (usize, bool) {
        let number = self.of(path);
        self.by_path.remove(path);
        self.settle(number);
        let file = &mut self.all[number];
        if file.links > 0 {
            file.links -= 1;
            return (number, false);
        }
        file.unlinked = file.opens > 0;
        (number, !file.unlinked)
    }

    /// A file that is open loses its path to another one: the number that it has from now on, under a path without a name; none if it
    /// is not open.
    pub fn replaced(&mut self, path: &str) -> Option<(usize, usize)> {
        let old = self.of(path);
        if self.all[old].opens == 0 {
            return None;
        }
        self.settle(old);
        let new = self.of(&format!("{path} (replaced)"));
        self.by_path.remove(&self.all[new].path);
        let (size, opens) = (self.all[old].size, std::mem::take(&mut self.all[old].opens));
        let file = &mut self.all[new];
        (file.before, file.size, file.changed) = (Before::Absent, size, true);
        (file.opens, file.unlinked) = (opens, true);
        Some((old, new))
    }

    /// A file has a second path from now on.
    pub fn linked(&mut self, old: &str, new: &str) {
        let number = self.of(old);
        self.settle(number);
        self.all[number].links += 1;
        self.by_path.insert(new.to_owned(), number);
    }

    /// Whether files below a path are known.
    pub fn is_folder(&self, path: &str) -> bool {
        self.by_path.keys().any(|known| is_below(known, path))
    }

    /// A folder has another path from now on, and with it the files below it.
    pub fn folder_renamed(&mut self, from: &str, to: &str) {
        let below: Vec<String> = self.by_path.keys().filter(|known| is_below(known, from)).cloned().collect();
        for path in below {
            if let Some(number) = self.by_path.remove(&path) {
                self.by_path.insert(format!("{to}{}", &path[from.len()..]), number);
            }
        }
    }

    /// The file of one path replaces that of another: both numbers.
    pub fn renamed(&mut self, from: &str, to: &str) -> (usize, usize) {
        let (old, new) = (self.of(from), self.of(to));
        self.settle(old);
        if self.all[new].before == Before::Unknown {
            self.all[new].before = Before::Absent;
        }
        self.by_path.remove(from);
        let (size, opens) = (self.all[old].size, std::mem::take(&mut self.all[old].opens));
        let file = &mut self.all[new];
        (file.size, file.opens, file.changed) = (size, opens, true);
        (old, new)
    }
}

/// Whether a path is inside of a folder.
pub(super) fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}
