//! Handles calls on files and descriptors, and calls that wait: for the device, for a timer, or for something that is not recorded.

use rustc_hash::FxHashMap;

use super::{CallRecording, GapAttribution, UNKNOWN_FOLDER};
use crate::learn::strace::{CallArgument, SystemCall};
use crate::learn::thread_items::{
    DescriptorTarget, OpenFileDescription, PriorExistence, RecordedFileOp, SyncWriteScope, ThreadItem, is_below,
};

/// Calls that change the contents of the device, but have no equivalent step in a program.
const NOT_MODELLED: &[&str] = &[
    "mkdir", "mkdirat", "rmdir", "symlink", "symlinkat", "mknod", "mknodat", "chmod", "fchmod", "fchmodat", "chown", "fchown",
    "lchown", "fchownat", "utime", "utimes", "utimensat", "futimesat", "setxattr", "fsetxattr", "lsetxattr", "removexattr",
    "fremovexattr", "msync", "sync_file_range", "getdents", "getdents64",
];

impl CallRecording {
    /// Handles calls on files and descriptors. Returns false for other calls.
    pub(super) fn on_files(&mut self, thread: usize, call: &SystemCall, name: &str) -> bool {
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
                    self.close_descriptor(thread, old);
                }
            }
            _ if waits_for_a_lock(call) => return false,
            "dup" | "dup2" | "dup3" | "fcntl" | "fcntl64" => {
                let copies = !name.starts_with("fcntl") || call.has_flag(1, "F_DUPFD") || call.has_flag(1, "F_DUPFD_CLOEXEC");
                if done
                    && copies
                    && let Some(open) = self.open(thread, call, 0).cloned()
                {
                    self.assign_descriptor(thread, call.result, open);
                }
            }
            "read" | "readv" | "pread64" | "preadv" | "preadv2" => {
                let Some(description) = self.open_description(thread, call, 0) else { return false };
                if call.result > 0 {
                    let at = positioned(call, name);
                    self.reads(thread, &description, at, call.result as u64);
                }
            }
            "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" => {
                let Some(description) = self.open_description(thread, call, 0) else { return false };
                if call.result > 0 {
                    let at = positioned(call, name);
                    self.writes(thread, &description, at, call.result as u64);
                    let scope = durable(|flag| call.has_flag(call.arguments.len() - 1, flag), "RWF_SYNC", "RWF_DSYNC");
                    if let Some(durable) = scope.or(description.durable) {
                        let data_only = durable == SyncWriteScope::Data;
                        self.uses(thread, description.file.get(), RecordedFileOp::Fsync { data_only });
                    }
                }
            }
            "sendfile" | "sendfile64" | "copy_file_range" => {
                let (from, to) = if name == "copy_file_range" { (0, 2) } else { (1, 0) };
                let (source, target) = (self.open_description(thread, call, from), self.open_description(thread, call, to));
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
                if let Some(description) = self.open_description(thread, call, 0).filter(|_| done) {
                    if call.has_flag(2, "SEEK_END") && call.number(1) == Some(0) {
                        self.files.has(description.file.get(), call.result as u64);
                    }
                    description.position.set(call.result as u64);
                }
            }
            "fsync" | "fdatasync" => {
                let Some(description) = self.open_description(thread, call, 0) else { return true };
                let data_only = name == "fdatasync";
                self.uses(thread, description.file.get(), RecordedFileOp::Fsync { data_only });
            }
            "fchdir" => {
                if let Some(DescriptorTarget::Folder(path)) = self.open(thread, call, 0).cloned()
                    && done
                {
                    let table = self.threads[thread].table;
                    self.folders[table] = path;
                }
            }
            "getcwd" => {
                if let Some(path) = call.text(0).filter(|path| done && path.starts_with('/')) {
                    let table = self.threads[thread].table;
                    self.folders[table] = path;
                }
            }
            "link" | "linkat" => {
                let paths = if name == "link" {
                    (self.path(thread, call, None, 0), self.path(thread, call, None, 1))
                } else {
                    (self.path(thread, call, Some(0), 1), self.path(thread, call, Some(2), 3))
                };
                if let (Some(old), Some(new), true) = (paths.0, paths.1, done) {
                    self.files.linked(&old, &new);
                    self.drops(name);
                }
            }
            "fallocate" => {
                let Some(description) = self.open_description(thread, call, 0).filter(|_| done) else {
                    return false;
                };
                let file = description.file.get();
                let end = call.number(2).unwrap_or(0).saturating_add(call.number(3).unwrap_or(0));
                if call.number(1) == Some(0) && end > self.files.all[file].size as i64 {
                    self.truncates(thread, file, Some(end));
                } else {
                    self.drops(name);
                }
            }
            _ if NOT_MODELLED.contains(&name) => {
                if done {
                    self.drops(name);
                }
            }
            "chdir" => {
                if let Some(path) = self.path(thread, call, None, 0).filter(|_| done) {
                    let table = self.threads[thread].table;
                    self.folders[table] = path;
                }
            }
            "sync" | "syncfs" => {
                self.times.file_operations += 1;
                self.threads[thread].items.push(ThreadItem::Sync);
            }
            "ftruncate" | "ftruncate64" => {
                if let Some(description) = self.open_description(thread, call, 0).filter(|_| done) {
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
                let folder = at == 1 && (call.has_flag(2, "AT_REMOVEDIR") || call.number(2) == Some(0x200));
                if folder && done {
                    self.drops("rmdir");
                }
                if let Some(path) = self.path(thread, call, at.checked_sub(1), at).filter(|_| done && !folder) {
                    let (file, goes) = self.files.unlinked(&path);
                    if goes {
                        self.change(thread, file, RecordedFileOp::Delete);
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
            "fstat" | "fstat64" | "newfstatat" | "fstatat64" | "stat" | "stat64" | "lstat" | "lstat64" | "statx" | "access"
            | "faccessat" | "faccessat2" => self.status(thread, call, name),
            "mmap" | "mmap2" => {
                let Some(description) = self.open_description(thread, call, 4) else { return false };
                self.times.mapped_files += u64::from(done);
                self.files.decide_existence(description.file.get());
            }
            "io_uring_enter" | "io_submit" => {
                self.times.unseen_requests += call.number(1).unwrap_or(0).max(0) as u64;
            }
            _ => return false,
        }
        true
    }

    fn opens(&mut self, thread: usize, call: &SystemCall, name: &str) {
        let (folder, path, flags) = if name.starts_with("openat") { (Some(0), 1, 2) } else { (None, 0, 1) };
        let shown = call.arguments.get(path).is_some_and(|argument| argument.word().is_some());
        let Some(path) = self.path(thread, call, folder, path) else {
            // ftrace records only the address of the path string, so each open is treated as the open of a different file.
            if shown {
                let file = self.files.of(&format!("{UNKNOWN_FOLDER}/opened-{}", self.times.calls));
                self.files.decide_existence(file);
                self.insert(thread, call.result, file, false, None);
            } else {
                self.assign_descriptor(thread, call.result, DescriptorTarget::Other);
            }
            return;
        };
        // `strace -y` prints the path with resolved symbolic links, so that path is preferred.
        let path = call.opened.clone().unwrap_or(path);
        if super::is_virtual(&path) {
            self.assign_descriptor(thread, call.result, DescriptorTarget::Other);
            return;
        }
        if opens_with(call, flags, "O_DIRECTORY") || opens_with(call, flags, "O_PATH") {
            self.assign_descriptor(thread, call.result, DescriptorTarget::Folder(path));
            return;
        }
        if self.opens_pipe(thread, call, &path) {
            return;
        }
        let file = self.files.of(&path);
        self.threads[thread].opened = Some((file, call.started_ns, call.ended_ns));
        let creates = name == "creat" || opens_with(call, flags, "O_CREAT");
        let empties = name == "creat" || opens_with(call, flags, "O_TRUNC");
        let known = &mut self.files.all[file];
        if creates && opens_with(call, flags, "O_EXCL") && known.before == PriorExistence::Unknown {
            known.before = PriorExistence::Absent;
        }
        let existed = known.before == PriorExistence::There || known.changed || known.last_change.is_some();
        if !creates && known.before == PriorExistence::Unknown && known.last_change.is_none() {
            known.before = PriorExistence::There;
        }
        let durable = durable(|flag| opens_with(call, flags, flag), "O_SYNC", "O_DSYNC");
        self.insert(thread, call.result, file, opens_with(call, flags, "O_APPEND"), durable);
        if creates && !existed {
            self.change(thread, file, RecordedFileOp::OpenOrCreate);
        }
        if empties {
            self.truncates(thread, file, Some(0));
        }
    }

    fn truncates(&mut self, thread: usize, file: usize, bytes: Option<i64>) {
        let bytes = bytes.unwrap_or(0).max(0) as u64;
        let known = &mut self.files.all[file];
        if known.size == bytes && known.before != PriorExistence::Unknown {
            return;
        }
        (known.size, known.changed) = (bytes, true);
        self.uses(thread, file, RecordedFileOp::Truncate { bytes });
    }

    fn renames(&mut self, thread: usize, old: &str, new: &str) {
        if old == new {
            return;
        }
        if self.files.folder_renamed(old, new) {
            for open in self.tables.iter_mut().flat_map(FxHashMap::values_mut) {
                if let DescriptorTarget::Folder(path) = open
                    && (path == old || is_below(path, old))
                {
                    *path = format!("{new}{}", &path[old.len()..]);
                }
            }
            self.drops("rename of a folder");
            return;
        }
        if let Some((file, kept)) = self.files.replaced(new) {
            self.moves(thread, file, kept);
        }
        let (from, to) = self.files.renamed(old, new);
        self.moves(thread, from, to);
    }

    /// Moves a file to the path of another file. Descriptors that are open on the file follow the move.
    fn moves(&mut self, thread: usize, from: usize, to: usize) {
        for open in self.tables.iter().flat_map(FxHashMap::values) {
            if let DescriptorTarget::File(description) = open
                && description.file.get() == from
            {
                description.file.set(to);
            }
        }
        let mut others = std::mem::take(&mut self.files.all[to].uses);
        others.extend(self.files.all[to].last_change);
        self.files.all[from].uses.append(&mut others);
        self.change(thread, from, RecordedFileOp::Rename { to });
        let place = self.files.all[from].last_change;
        self.files.all[to].last_change = place;
    }

    fn status(&mut self, thread: usize, call: &SystemCall, name: &str) {
        if matches!(name, "fstat" | "fstat64") {
            if is_of_pipe(call) {
                self.is_a_pipe(thread, call, None);
            } else if let (Some(description), Some(size)) = (self.open_description(thread, call, 0), size_of(call, 1)) {
                self.files.has(description.file.get(), size);
            }
            return;
        }
        let relative = matches!(name, "newfstatat" | "fstatat64" | "statx" | "faccessat" | "faccessat2");
        let at = usize::from(relative);
        let path = self.path(thread, call, at.checked_sub(1), at);
        if is_of_pipe(call) {
            return self.is_a_pipe(thread, call, path);
        }
        let Some(path) = path else { return };
        let file = self.files.of(&path);
        if call.result < 0 {
            if self.files.all[file].before == PriorExistence::Unknown && !self.files.all[file].changed {
                self.files.all[file].before = PriorExistence::Absent;
            }
        } else if let Some(size) = size_of(call, at + 1).or_else(|| size_of(call, 4)) {
            self.files.has(file, size);
        }
    }

    fn reads(&mut self, thread: usize, description: &OpenFileDescription, at: Option<u64>, bytes: u64) {
        let file = description.file.get();
        let offset = at.unwrap_or(description.position.get());
        if at.is_none() {
            description.position.set(offset + bytes);
        }
        self.files.has(file, offset.saturating_add(bytes));
        self.times.read_bytes += bytes;
        let cursor = self.threads[thread].cursors.insert(file, offset.saturating_add(bytes)).unwrap_or(0);
        self.uses(thread, file, RecordedFileOp::Read { bytes, sequential: cursor == offset });
    }

    fn writes(&mut self, thread: usize, description: &OpenFileDescription, at: Option<u64>, bytes: u64) {
        let file = description.file.get();
        self.files.decide_existence(file);
        let size = self.files.all[file].size;
        let offset = if description.append { size } else { at.unwrap_or(description.position.get()) };
        let end = offset.saturating_add(bytes);
        if at.is_none() {
            description.position.set(end);
        }
        if offset > size {
            self.uses(thread, file, RecordedFileOp::Truncate { bytes: offset });
        }
        self.times.written_bytes += bytes;
        let cursor = self.threads[thread].cursors.insert(file, end).unwrap_or(0);
        let operation = if offset >= size {
            RecordedFileOp::Append { bytes }
        } else if cursor == offset {
            RecordedFileOp::Write { bytes }
        } else {
            RecordedFileOp::Overwrite { bytes }
        };
        if matches!(operation, RecordedFileOp::Append { .. }) {
            // In the program model, an append does not change the file position of the thread, so the previous position is restored.
            self.threads[thread].cursors.insert(file, cursor);
        }
        self.uses(thread, file, operation);
        let known = &mut self.files.all[file];
        (known.size, known.changed) = (known.size.max(end), true);
    }
}

/// Returns which part of a file a write makes durable: data and metadata if the flag named `all` is set, only data for the flag named
/// `data`, `None` without these flags.
fn durable(has: impl Fn(&str) -> bool, all: &str, data: &str) -> Option<SyncWriteScope> {
    if has(all) {
        return Some(SyncWriteScope::All);
    }
    has(data).then_some(SyncWriteScope::Data)
}

/// Whether a call opens a file with a flag. Flags are names, or numbers in strace with `-X raw` and in ftrace. The numeric values are those
/// of x86 and ARM64, except `O_DIRECTORY`, for which only the value of x86 is recognised.
fn opens_with(call: &SystemCall, at: usize, flag: &str) -> bool {
    let bit = match flag {
        "O_CREAT" => 0o100,
        "O_EXCL" => 0o200,
        "O_TRUNC" => 0o1000,
        "O_APPEND" => 0o2000,
        "O_DSYNC" => 0o10_000,
        "O_SYNC" => 0o4_000_000,
        "O_DIRECTORY" => 0o200_000,
        "O_PATH" => 0o10_000_000,
        _ => 0,
    };
    call.has_flag(at, flag) || call.number(at).is_some_and(|bits| bits & bit != 0)
}

/// Whether a `stat` call reports a named pipe.
fn is_of_pipe(call: &SystemCall) -> bool {
    call.result >= 0 && call.arguments.iter().filter_map(CallArgument::word).any(|word| word.contains("mode=S_IFIFO"))
}

/// The offset argument of a call; `None` if the call uses the position of the descriptor.
fn positioned(call: &SystemCall, name: &str) -> Option<u64> {
    if !name.starts_with('p') {
        return None;
    }
    call.number(3).and_then(|offset| u64::try_from(offset).ok())
}

/// Returns the file size in a `stat` or `statx` result: the value of `st_size=` or `stx_size=`.
fn size_of(call: &SystemCall, at: usize) -> Option<u64> {
    let words = call.arguments.get(at)?.word()?;
    let regular = words.contains("S_IFREG");
    let (_, rest) = words.split_once("_size=")?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok().filter(|_| regular)
}

/// Calls that wait for any of several events, such as a reply from the network.
pub(super) const POLLS: &[&str] = &[
    "poll", "ppoll", "select", "_newselect", "pselect6", "pselect6_time64", "epoll_wait", "epoll_pwait", "epoll_pwait2",
    "ppoll_time64",
];
/// Calls that may wait for the device.
const REACH_STORAGE: &[&str] = &[
    "open", "openat", "openat2", "creat", "read", "readv", "pread64", "preadv", "preadv2", "sendfile", "sendfile64",
    "copy_file_range", "fsync", "fdatasync", "sync", "syncfs", "unlink", "unlinkat", "rename", "renameat", "renameat2",
    "truncate", "ftruncate",
];
/// Calls on files, sockets or pipes.
const TRANSFERS: &[&str] = &["connect", "read", "readv", "recvfrom", "recvmsg", "write", "writev", "sendto", "sendmsg"];
const SLEEPS: &[&str] = &["nanosleep", "clock_nanosleep", "clock_nanosleep_time64"];
/// Calls that wait for something that is not recorded, except [`POLLS`] and [`SLEEPS`].
const WAITS: &[&str] = &[
    "futex", "futex_time64", "futex_wait", "futex_waitv", "wait4", "waitpid", "waitid", "rt_sigtimedwait",
    "rt_sigtimedwait_time64", "rt_sigsuspend", "pause", "accept", "accept4", "io_getevents", "io_pgetevents", "restart_syscall",
    "ioctl", "flock", "msgrcv", "msgsnd", "mq_timedreceive", "mq_timedsend", "semop", "semtimedop", "semtimedop_time64",
];

pub(super) fn reaches_storage(name: &str) -> bool {
    REACH_STORAGE.contains(&name)
}

/// Whether system calls of this name wait for an event or a timer.
pub(in crate::learn) fn is_wait(name: &str) -> bool {
    [POLLS, SLEEPS, WAITS].iter().any(|names| names.contains(&name))
}

/// Whether a call waits for something other than a file on a device. `on_channel` is true for a call on a pipe, event or local socket.
pub(super) fn waits(call: &SystemCall, on_channel: bool) -> bool {
    let name = call.name.as_str();
    is_wait(name)
        || matches!(name, "read" | "readv" | "recvfrom" | "recvmsg")
        || on_channel && matches!(name, "write" | "writev" | "sendto" | "sendmsg")
        || waits_for_a_lock(call)
}

/// Whether a call waits until another process unlocks a part of a file.
pub(super) fn waits_for_a_lock(call: &SystemCall) -> bool {
    call.name.starts_with("fcntl") && ["F_SETLKW", "F_SETLKW64", "F_OFD_SETLKW"].iter().any(|flag| call.has_flag(1, flag))
}

/// Whether a call sleeps, or continues a sleep after a signal.
pub(super) fn is_sleep(call: &SystemCall) -> bool {
    SLEEPS.contains(&call.name.as_str()) || resumes(call, "nanosleep")
}

/// Whether a timer ends the wait of a call: a sleep, or a timeout.
pub(super) fn is_timer(call: &SystemCall) -> bool {
    let name = call.name.as_str();
    let polls = POLLS.contains(&name) || ["poll", "select"].iter().any(|polls| resumes(call, polls));
    let of_a_clock = call.arguments.first().and_then(CallArgument::annotation).is_some_and(|shown| shown.contains("[timerfd]"));
    is_sleep(call)
        || polls && call.result == 0
        || (name.starts_with("futex") || name.starts_with("rt_sigtimedwait")) && call.result == -1
        || of_a_clock
}

/// Whether a call continues a call of this kind after a signal, as in `restart_syscall(<... resuming interrupted nanosleep ...>)`.
fn resumes(call: &SystemCall, kind: &str) -> bool {
    call.name == "restart_syscall" && call.arguments.iter().filter_map(CallArgument::word).any(|word| word.contains(kind))
}

impl CallRecording {
    /// Returns the category to which the time from the beginning of a call to its return is assigned.
    pub(super) fn in_progress(&mut self, thread: usize, call: &SystemCall) -> GapAttribution {
        let on_channel = self.channel(thread, call).is_some();
        let open = self.open(thread, call, 0);
        let transfers = TRANSFERS.contains(&call.name.as_str());
        let of_file = match open {
            Some(open) => matches!(open, DescriptorTarget::File(_)),
            None => call.arguments.first().is_some_and(|argument| argument.path().is_some()),
        };
        if is_sleep(call) {
            GapAttribution::Sleep
        } else if transfers && matches!(open, Some(DescriptorTarget::Socket)) {
            GapAttribution::Network
        } else if reaches_storage(&call.name) && (of_file || !transfers) {
            GapAttribution::Storage
        } else if waits(call, on_channel) {
            GapAttribution::Wait
        } else {
            GapAttribution::Work
        }
    }
}
