//! From system calls to what each thread did with which file.

use std::cell::Cell;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::call::{Argument, Call};
use super::files::{Before, Description, Files, Open, Place};
use super::items::{Behind, Item, Operation, Thread};

/// Calls that wait for something that no recording of calls names.
const WAITS: &[&str] = &[
    "poll",
    "ppoll",
    "select",
    "_newselect",
    "pselect6",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "futex",
    "nanosleep",
    "clock_nanosleep",
    "wait4",
    "waitid",
    "rt_sigtimedwait",
    "rt_sigsuspend",
    "pause",
    "accept",
    "accept4",
    "io_getevents",
    "restart_syscall",
    "ioctl",
    "futex_time64",
    "clock_nanosleep_time64",
    "ppoll_time64",
    "pselect6_time64",
    "flock",
    "msgrcv",
    "semop",
];
/// Of these, calls that wait for an answer of the network where one follows.
const POLLS: &[&str] = &[
    "poll",
    "ppoll",
    "select",
    "_newselect",
    "pselect6",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "ppoll_time64",
];
/// Folders of files that are no files of a device.
const VIRTUAL: &[&str] = &["/proc/", "/sys/", "/dev/", "/run/", "/acct/", "anon_inode:"];
/// A relative path is below this, as the folder of the process is unknown.
const UNKNOWN_FOLDER: &str = "?";

/// Time in ns by what is known of it, and what a recording of calls cannot show.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Known {
    /// Calls that have returned.
    pub calls: u64,
    /// Time between calls, and of calls that neither wait nor use files: taken as work on a core.
    pub work_ns: i64,
    /// Time in calls that wait for an unknown cause (another thread, a timer, the user): taken as pauses.
    pub pause_ns: i64,
    /// Time of waits for the network, which the network of the host takes the place of.
    pub network_ns: i64,
    /// Time in calls on files, which the model of the host takes the place of.
    pub storage_ns: i64,
    /// Bytes over the network.
    pub network_bytes: u64,
    /// Operations on files.
    pub file_operations: u64,
    /// Bytes that were read and written.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Files mapped into memory, whose reads and writes are not seen.
    pub mapped_files: u64,
    /// Calls of `io_uring` and of asynchronous I/O, whose requests are not seen.
    pub unseen_requests: u64,
    /// Calls on descriptors that were opened before the recording, or whose path it does not have.
    pub unknown_descriptors: u64,
}

/// A recording while it is read.
#[derive(Debug, Default)]
pub(super) struct Recording {
    pub threads: Vec<Thread>,
    numbers: FxHashMap<u32, usize>,
    /// Descriptors, of processes that do not share them.
    tables: Vec<FxHashMap<i64, Open>>,
    /// The folder of each of these processes, as far as the recording tells.
    folders: Vec<String>,
    pub files: Files,
    pub known: Known,
    behind: Behind,
    signals: u32,
    /// The first time, and the last one.
    pub first: Option<i64>,
    pub last: i64,
}

impl Recording {
    /// A thread has ended.
    pub fn exit(&mut self, number: u32, at: i64) {
        let thread = self.thread(number, at);
        let since = at - self.threads[thread].at;
        self.threads[thread].work(since.max(0));
        self.threads[thread].at = self.threads[thread].at.max(at);
        self.last = self.last.max(at);
    }

    /// A call has returned.
    pub fn call(&mut self, call: &Call) {
        let thread = self.thread(call.thread, call.begun);
        self.known.calls += 1;
        self.last = self.last.max(call.ended);
        let gap = call.begun - self.threads[thread].at;
        let took = (call.ended - call.begun).max(0);
        if gap > 0 {
            self.known.work_ns += gap;
            self.threads[thread].work(gap);
            self.threads[thread].polled = false;
        }
        self.threads[thread].at = self.threads[thread].at.max(call.ended);
        // `-y` tells the folder of the process wherever a call is relative to it.
        let here =
            call.arguments.iter().find(|one| one.word().is_some_and(|word| word.starts_with("AT_FDCWD<")));
        if let Some(folder) = here.and_then(Argument::path) {
            let table = self.threads[thread].table;
            folder.clone_into(&mut self.folders[table]);
        }
        self.take(thread, call, took);
    }

    /// Ends the recording: items that hold threads back are put in.
    pub fn finish(&mut self) {
        std::mem::take(&mut self.behind).put_in(&mut self.threads);
    }

    fn thread(&mut self, number: u32, at: i64) -> usize {
        if self.tables.is_empty() {
            self.tables.push(FxHashMap::default());
            self.folders.push(UNKNOWN_FOLDER.to_owned());
        }
        self.first.get_or_insert(at);
        *self.numbers.entry(number).or_insert_with(|| {
            self.threads.push(Thread::new(number, 0, at));
            self.threads.len() - 1
        })
    }

    fn open(&self, thread: usize, call: &Call, at: usize) -> Option<&Open> {
        self.tables[self.threads[thread].table].get(&call.number(at)?)
    }

    /// The file of a descriptor; where the recording did not see it opened, by the path that `-y` gives.
    fn described(&mut self, thread: usize, call: &Call, at: usize) -> Option<Rc<Description>> {
        match self.open(thread, call, at) {
            Some(Open::File(description)) => return Some(description.clone()),
            Some(_) => return None,
            None => {}
        }
        let path = call.arguments.get(at).and_then(Argument::path).filter(|path| !is_virtual(path));
        let Some(path) = path.map(str::to_owned) else {
            let seen = call
                .arguments
                .get(at)
                .is_some_and(|argument| argument.word().is_some_and(|word| word.contains('<')));
            self.known.unknown_descriptors +=
                u64::from(!seen && call.number(at).is_some_and(|number| number > 2));
            return None;
        };
        let file = self.files.of(&path);
        self.files.settle(file);
        Some(self.insert(thread, call.number(at)?, file, false))
    }

    fn insert(&mut self, thread: usize, number: i64, file: usize, append: bool) -> Rc<Description> {
        let description = Rc::new(Description { file: Cell::new(file), position: Cell::new(0), append });
        self.files.opened(file);
        self.put(thread, number, Open::File(description.clone()));
        description
    }

    /// Gives a descriptor its meaning; what it stood for before is closed.
    fn put(&mut self, thread: usize, number: i64, open: Open) {
        let table = self.threads[thread].table;
        if let Some(old) = self.tables[table].insert(number, open) {
            self.gone(thread, old);
        }
    }

    /// A descriptor is closed.
    fn gone(&mut self, thread: usize, old: Open) {
        if let Open::File(description) = old
            && let Some(description) = Rc::into_inner(description)
        {
            let file = description.file.get();
            if self.files.closed(file) {
                self.change(thread, file, Operation::Delete);
            }
        }
    }

    /// Adds an operation that needs the file. A thread waits for the one that made it.
    fn uses(&mut self, thread: usize, file: usize, operation: Operation) {
        self.known.file_operations += 1;
        let changed = self.files.all[file].last_change;
        let known = self.files.all[file].uses.iter().any(|place| place.thread == thread);
        if let Some(place) = changed.filter(|place| place.thread != thread && !known) {
            self.wait_for(thread, place);
        }
        let place = self.add(thread, file, operation);
        let uses = &mut self.files.all[file].uses;
        uses.retain(|known| known.thread != thread);
        uses.push(place);
    }

    /// Adds an operation that makes, removes or replaces the file. The thread waits for all others that used it.
    fn change(&mut self, thread: usize, file: usize, operation: Operation) {
        self.known.file_operations += 1;
        let mut before = std::mem::take(&mut self.files.all[file].uses);
        before.extend(self.files.all[file].last_change);
        for place in before.into_iter().filter(|place| place.thread != thread) {
            self.wait_for(thread, place);
        }
        let place = self.add(thread, file, operation);
        self.files.all[file].last_change = Some(place);
    }

    fn wait_for(&mut self, thread: usize, place: Place) {
        self.signals += 1;
        self.behind.add(place, Item::Signal(self.signals));
        self.threads[thread].items.push(Item::Wait(self.signals));
    }

    fn add(&mut self, thread: usize, file: usize, operation: Operation) -> Place {
        let items = &mut self.threads[thread].items;
        items.push(Item::File(file, operation));
        Place { thread, item: items.len() - 1 }
    }

    /// Takes in the effect of a call.
    fn take(&mut self, thread: usize, call: &Call, took: i64) {
        let name = call.name.as_str();
        if self.on_files(thread, call, name) {
            self.known.storage_ns += took;
            return;
        }
        if self.on_network(thread, call, name, took) {
            return;
        }
        self.on_processes(thread, call, name);
        let waits = WAITS.contains(&name) || matches!(name, "read" | "readv" | "recvfrom" | "recvmsg");
        if !waits {
            self.known.work_ns += took;
            self.threads[thread].work(took);
            self.threads[thread].polled = false;
        } else if took > 0 {
            self.known.pause_ns += took;
            let found = &mut self.threads[thread];
            found.pause(took);
            found.polled = POLLS.contains(&name);
        }
    }

    /// Calls on files and descriptors; false for others.
    fn on_files(&mut self, thread: usize, call: &Call, name: &str) -> bool {
        let done = call.result >= 0;
        match name {
            "open" | "creat" | "openat" | "openat2" => {
                if done {
                    self.opens(thread, call, name);
                }
            }
            "close" => {
                let table = self.threads[thread].table;
                if let Some(old) = call.number(0).and_then(|number| self.tables[table].remove(&number)) {
                    self.gone(thread, old);
                }
            }
            "dup" | "dup2" | "dup3" | "fcntl" | "fcntl64" => {
                let copies = !name.starts_with("fcntl")
                    || call.has_flag(1, "F_DUPFD")
                    || call.has_flag(1, "F_DUPFD_CLOEXEC");
                if done
                    && copies
                    && let Some(open) = self.open(thread, call, 0).cloned()
                {
                    self.put(thread, call.result, open);
                }
            }
            "read" | "readv" | "pread64" | "preadv" | "preadv2" => {
                let Some(description) = self.described(thread, call, 0) else { return false };
                if call.result > 0 {
                    let at = positioned(call, name);
                    self.reads(thread, &description, at, call.result as u64);
                }
            }
            "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" => {
                let Some(description) = self.described(thread, call, 0) else { return false };
                if call.result > 0 {
                    let at = positioned(call, name);
                    self.writes(thread, &description, at, call.result as u64);
                }
            }
            "sendfile" | "sendfile64" | "copy_file_range" => {
                let (from, to) = if name == "copy_file_range" { (0, 2) } else { (1, 0) };
                let (source, target) = (self.described(thread, call, from), self.described(thread, call, to));
                if source.is_none() && target.is_none() {
                    return false;
                }
                let bytes = call.result.max(0) as u64;
                if let Some(source) = source.filter(|_| bytes > 0) {
                    self.reads(thread, &source, None, bytes);
                }
                if let Some(target) = target.filter(|_| bytes > 0) {
                    self.writes(thread, &target, None, bytes);
                }
            }
            "lseek" | "_llseek" => {
                if let Some(description) = self.described(thread, call, 0).filter(|_| done) {
                    if call.has_flag(2, "SEEK_END") && call.number(1) == Some(0) {
                        self.files.has(description.file.get(), call.result as u64);
                    }
                    description.position.set(call.result as u64);
                }
            }
            "fsync" | "fdatasync" => {
                let Some(description) = self.described(thread, call, 0) else { return true };
                let data_only = name == "fdatasync";
                self.uses(thread, description.file.get(), Operation::Fsync { data_only });
            }
            "chdir" => {
                if let Some(path) = self.path(thread, call, None, 0).filter(|_| done) {
                    let table = self.threads[thread].table;
                    self.folders[table] = path;
                }
            }
            "sync" | "syncfs" => {
                self.known.file_operations += 1;
                self.threads[thread].items.push(Item::Sync);
            }
            "ftruncate" | "ftruncate64" => {
                if let Some(description) = self.described(thread, call, 0).filter(|_| done) {
                    self.truncates(thread, description.file.get(), call.number(1));
                }
            }
            "truncate" | "truncate64" => {
                if let Some(path) = self.path(thread, call, None, 0).filter(|_| done) {
                    let file = self.files.of(&path);
                    self.truncates(thread, file, call.number(1));
                }
            }
            "unlink" | "unlinkat" => {
                let at = usize::from(name == "unlinkat");
                let folder = call.has_flag(2, "AT_REMOVEDIR");
                if let Some(path) = self.path(thread, call, at.checked_sub(1), at).filter(|_| done && !folder)
                {
                    let (file, goes) = self.files.unlinked(&path);
                    if goes {
                        self.change(thread, file, Operation::Delete);
                    }
                }
            }
            "rename" | "renameat" | "renameat2" => {
                let paths = if name == "rename" {
                    (self.path(thread, call, None, 0), self.path(thread, call, None, 1))
                } else {
                    (self.path(thread, call, Some(0), 1), self.path(thread, call, Some(2), 3))
                };
                if let (Some(old), Some(new), true) = (paths.0, paths.1, done) {
                    self.renames(thread, &old, &new);
                }
            }
            "fstat" | "fstat64" | "newfstatat" | "fstatat64" | "stat" | "stat64" | "lstat" | "lstat64"
            | "statx" | "access" | "faccessat" | "faccessat2" => self.status(thread, call, name),
            "mmap" | "mmap2" => {
                let Some(description) = self.described(thread, call, 4) else { return false };
                self.known.mapped_files += u64::from(done);
                self.files.settle(description.file.get());
            }
            "io_uring_enter" | "io_submit" => {
                self.known.unseen_requests += call.number(1).unwrap_or(0).max(0) as u64;
                return false;
            }
            _ => return false,
        }
        true
    }

    fn opens(&mut self, thread: usize, call: &Call, name: &str) {
        let (folder, path, flags) = if name.starts_with("openat") { (Some(0), 1, 2) } else { (None, 0, 1) };
        let shown = call.arguments.get(path).is_some_and(|argument| argument.word().is_some());
        let Some(path) = self.path(thread, call, folder, path) else {
            // ftrace has the address of the path: a file for each time that it is opened.
            if shown {
                let file = self.files.of(&format!("{UNKNOWN_FOLDER}/opened-{}", self.known.calls));
                self.files.settle(file);
                self.insert(thread, call.result, file, false);
            } else {
                self.put(thread, call.result, Open::Other);
            }
            return;
        };
        if call.has_flag(flags, "O_DIRECTORY") || call.has_flag(flags, "O_PATH") {
            self.put(thread, call.result, Open::Folder(path));
            return;
        }
        let file = self.files.of(&path);
        let creates = name == "creat" || call.has_flag(flags, "O_CREAT");
        let empties = name == "creat" || call.has_flag(flags, "O_TRUNC");
        let known = &mut self.files.all[file];
        if creates && call.has_flag(flags, "O_EXCL") && known.before == Before::Unknown {
            known.before = Before::Absent;
        }
        let existed = known.before == Before::There || known.changed || known.last_change.is_some();
        if !creates && known.before == Before::Unknown && known.last_change.is_none() {
            known.before = Before::There;
        }
        self.insert(thread, call.result, file, call.has_flag(flags, "O_APPEND"));
        if creates && !existed {
            self.change(thread, file, Operation::OpenOrCreate);
        }
        if empties {
            self.truncates(thread, file, Some(0));
        }
    }

    fn truncates(&mut self, thread: usize, file: usize, bytes: Option<i64>) {
        let bytes = bytes.unwrap_or(0).max(0) as u64;
        let known = &mut self.files.all[file];
        if known.size == bytes && known.before != Before::Unknown {
            return;
        }
        (known.size, known.changed) = (bytes, true);
        self.uses(thread, file, Operation::Truncate { bytes });
    }

    fn renames(&mut self, thread: usize, old: &str, new: &str) {
        if old == new {
            return;
        }
        if let Some((file, kept)) = self.files.replaced(new) {
            self.moves(thread, file, kept);
        }
        let (from, to) = self.files.renamed(old, new);
        self.moves(thread, from, to);
    }

    /// A file has the path of another one from now on, also for those that have it open.
    fn moves(&mut self, thread: usize, from: usize, to: usize) {
        for open in self.tables.iter().flat_map(FxHashMap::values) {
            if let Open::File(description) = open
                && description.file.get() == from
            {
                description.file.set(to);
            }
        }
        let mut others = std::mem::take(&mut self.files.all[to].uses);
        others.extend(self.files.all[to].last_change);
        self.files.all[from].uses.append(&mut others);
        self.change(thread, from, Operation::Rename { to });
        let place = self.files.all[from].last_change;
        self.files.all[to].last_change = place;
    }

    fn status(&mut self, thread: usize, call: &Call, name: &str) {
        if matches!(name, "fstat" | "fstat64") {
            if let (Some(description), Some(size)) = (self.described(thread, call, 0), size_of(call, 1)) {
                self.files.has(description.file.get(), size);
            }
            return;
        }
        let relative = matches!(name, "newfstatat" | "fstatat64" | "statx" | "faccessat" | "faccessat2");
        let at = usize::from(relative);
        let Some(path) = self.path(thread, call, at.checked_sub(1), at) else { return };
        let file = self.files.of(&path);
        if call.result < 0 {
            if self.files.all[file].before == Before::Unknown && !self.files.all[file].changed {
                self.files.all[file].before = Before::Absent;
            }
        } else if let Some(size) = size_of(call, at + 1).or_else(|| size_of(call, 4)) {
            self.files.has(file, size);
        }
    }

    fn reads(&mut self, thread: usize, description: &Description, at: Option<u64>, bytes: u64) {
        let file = description.file.get();
        let offset = at.unwrap_or(description.position.get());
        if at.is_none() {
            description.position.set(offset + bytes);
        }
        self.files.has(file, offset.saturating_add(bytes));
        self.known.read_bytes += bytes;
        let cursor = self.threads[thread].cursors.insert(file, offset.saturating_add(bytes)).unwrap_or(0);
        self.uses(thread, file, Operation::Read { bytes, sequential: cursor == offset });
    }

    fn writes(&mut self, thread: usize, description: &Description, at: Option<u64>, bytes: u64) {
        let file = description.file.get();
        self.files.settle(file);
        let size = self.files.all[file].size;
        let offset = if description.append { size } else { at.unwrap_or(description.position.get()) };
        let end = offset.saturating_add(bytes);
        if at.is_none() {
            description.position.set(end);
        }
        if offset > size {
            self.uses(thread, file, Operation::Truncate { bytes: offset });
        }
        self.known.written_bytes += bytes;
        let cursor = self.threads[thread].cursors.insert(file, end).unwrap_or(0);
        let operation = if offset >= size {
            Operation::Append { bytes }
        } else if cursor == offset {
            Operation::Write { bytes }
        } else {
            Operation::Overwrite { bytes }
        };
        if matches!(operation, Operation::Append { .. }) {
            // An append of the model leaves its cursor where it was.
            self.threads[thread].cursors.insert(file, cursor);
        }
        self.uses(thread, file, operation);
        let known = &mut self.files.all[file];
        (known.size, known.changed) = (known.size.max(end), true);
    }

    /// Calls on sockets; false for others.
    fn on_network(&mut self, thread: usize, call: &Call, name: &str, took: i64) -> bool {
        let received = match name {
            "socket" => {
                if call.result >= 0 {
                    let inet = ["AF_INET", "AF_INET6", "PF_INET", "PF_INET6"]
                        .iter()
                        .any(|one| call.has_flag(0, one))
                        || call
                            .arguments
                            .first()
                            .and_then(Argument::word)
                            .is_some_and(|word| word == "0x2" || word == "0xa");
                    self.put(thread, call.result, if inet { Open::Socket } else { Open::Other });
                }
                return false;
            }
            "connect" | "recvfrom" | "recvmsg" | "recvmmsg" | "recv" | "read" | "readv" => true,
            "sendto" | "sendmsg" | "sendmmsg" | "send" | "write" | "writev" => false,
            _ => return false,
        };
        if !matches!(self.open(thread, call, 0), Some(Open::Socket)) {
            return false;
        }
        let bytes = if name == "connect" { 0 } else { call.result.max(0) as u64 };
        let found = &mut self.threads[thread];
        if name == "connect" {
            found.asked = true;
        }
        let waited = found.transfer(bytes, received);
        found.polled = false;
        self.known.network_bytes += bytes;
        self.known.network_ns += took + waited;
        self.known.pause_ns -= waited;
        true
    }

    /// Threads that begin, and descriptors that are no files.
    fn on_processes(&mut self, thread: usize, call: &Call, name: &str) {
        if call.result < 0 {
            return;
        }
        match name {
            "clone" | "clone3" | "fork" | "vfork" if call.result > 0 => {
                let shares = (0..call.arguments.len()).any(|at| {
                    call.has_flag(at, "CLONE_FILES")
                        || call.has_flag(at, "flags=CLONE_FILES")
                        || call.arguments[at].word().is_some_and(|word| word.contains("CLONE_FILES"))
                });
                let parent = self.threads[thread].table;
                let table = if shares {
                    parent
                } else {
                    let copy = self.tables[parent].clone();
                    self.tables.push(copy);
                    self.folders.push(self.folders[parent].clone());
                    self.tables.len() - 1
                };
                let child = self.thread(call.result as u32, call.ended);
                if child == thread || self.threads[child].started {
                    return;
                }
                let begun = &mut self.threads[child];
                begun.started = true;
                if begun.items.is_empty() {
                    begun.table = table;
                }
                self.threads[thread].items.push(Item::Start(child));
            }
            "eventfd2" | "timerfd_create" | "signalfd4" | "epoll_create1" | "inotify_init1" | "accept"
            | "accept4" | "memfd_create" => self.put(thread, call.result, Open::Other),
            _ => {}
        }
    }

    /// The path of an argument, whole as far as that is known; none of what is no file of a device.
    fn path(&self, thread: usize, call: &Call, folder: Option<usize>, at: usize) -> Option<String> {
        let path = call.text(at)?;
        if path.starts_with('/') {
            return (!is_virtual(&path)).then_some(path);
        }
        if path.is_empty() {
            return None;
        }
        let base = folder.and_then(|folder| {
            let known = match self.open(thread, call, folder) {
                Some(Open::Folder(known)) => Some(known.as_str()),
                _ => None,
            };
            known.or_else(|| call.arguments[folder].path()).map(str::to_owned)
        });
        let here = &self.folders[self.threads[thread].table];
        let path = format!("{}/{path}", base.as_deref().unwrap_or(here).trim_end_matches('/'));
        (!is_virtual(&path)).then_some(path)
    }
}

/// The offset that a call names; none where it is at the position of the descriptor.
fn positioned(call: &Call, name: &str) -> Option<u64> {
    if !name.starts_with('p') {
        return None;
    }
    call.number(3).and_then(|offset| u64::try_from(offset).ok())
}

/// `st_size=` of a status, or `stx_size=`.
fn size_of(call: &Call, at: usize) -> Option<u64> {
    let words = call.arguments.get(at)?.word()?;
    let regular = words.contains("S_IFREG");
    let (_, rest) = words.split_once("_size=")?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok().filter(|_| regular)
}

fn is_virtual(path: &str) -> bool {
    VIRTUAL.iter().any(|folder| path.starts_with(folder))
}
