//! Converts system calls into the actions of each thread on files, on the network, and on other threads.

mod file_calls;
mod waking_actions;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::strace::{CallArgument, SystemCall};
use super::thread_items::{
    DescriptorTarget, GapAttribution, ItemIndex, ItemInsertions, OpenFileDescription, RecordedFileOp, RecordedFiles,
    RecordedThread, SyncWriteScope, ThreadItem,
};
pub(super) use file_calls::is_wait;
use file_calls::{POLLS, is_timer, reaches_storage, waits};

/// Placeholder for an unknown working folder of a process; relative paths are placed below it.
const UNKNOWN_FOLDER: &str = "?";

/// Times in ns by cause, and counts of activity that a recording of system calls cannot show.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CallTimes {
    /// Number of calls that have returned.
    pub calls: u64,
    /// Time between calls, and in calls that neither wait nor use files. In the program, it becomes work on a core.
    pub work_ns: i64,
    /// Time in calls that wait for an unknown cause, such as another process or the user. The learned program pauses for this time.
    pub pause_ns: i64,
    /// Time in sleeps, timeouts and stops by a signal. The program contains pauses of this length instead.
    pub asleep_ns: i64,
    /// Time of waits for other recorded threads and processes. They remain waits in the program.
    pub awaited_ns: i64,
    /// Number of calls whose duration is not in the recording.
    pub untimed_calls: u64,
    /// Time of waits for the network. The program replaces them with transfers, whose duration the network model determines.
    pub network_ns: i64,
    /// Time in calls on files. The program replaces them with file operations, whose duration the simulation determines.
    pub storage_ns: i64,
    /// Bytes sent and received over the network.
    pub network_bytes: u64,
    /// Number of operations on files.
    pub file_operations: u64,
    /// Bytes read from files.
    pub read_bytes: u64,
    /// Bytes written to files.
    pub written_bytes: u64,
    /// Number of memory-mapped files, whose reads and writes are not visible.
    pub mapped_files: u64,
    /// Number of requests through `io_uring` and asynchronous I/O, which are not visible.
    pub unseen_requests: u64,
    /// Number of calls on descriptors that were opened before the recording, or whose path is not recorded.
    pub unknown_descriptors: u64,
}

/// The state of a recording that is being converted.
#[derive(Debug, Default)]
pub(super) struct CallRecording {
    pub threads: Vec<RecordedThread>,
    numbers: FxHashMap<u32, usize>,
    /// Descriptor tables. Threads and processes that share descriptors share a table.
    tables: Vec<FxHashMap<i64, DescriptorTarget>>,
    /// The working folder of each descriptor table, if known.
    folders: Vec<String>,
    pub files: RecordedFiles,
    pub times: CallTimes,
    /// Counts of calls by name.
    pub calls: BTreeMap<String, u64>,
    /// Number of calls without an equivalent program step, and of lines that are not system calls, by kind.
    pub dropped: BTreeMap<String, u64>,
    causes: waking_actions::WakingActions,
    insertions: ItemInsertions,
    signals: u32,
    /// The first time in the recording, in ns.
    pub first: Option<i64>,
    pub last: i64,
}

impl CallRecording {
    /// Handles the end of a thread.
    pub fn exit(&mut self, number: u32, at: i64) {
        let thread = self.thread(number, at);
        self.passes(thread, at, GapAttribution::Work);
        self.ended(thread, at);
    }

    /// Handles the beginning of a call whose return is reported on a later line.
    pub fn began(&mut self, call: &SystemCall) {
        let thread = self.cut_off(call);
        self.begins(thread, call);
    }

    /// Handles the beginning of a call that returns later, or never because the thread ends in it. Returns the thread.
    pub fn cut_off(&mut self, call: &SystemCall) -> usize {
        let thread = self.thread(call.thread, call.started_ns);
        let open = self.in_progress(thread, call);
        self.passes(thread, call.started_ns, open);
        call.name.clone_into(&mut self.threads[thread].waited_in);
        thread
    }

    /// Handles a stop of a thread by a signal (`stopped` is true), or the continuation of a stopped thread.
    pub fn stops(&mut self, number: u32, at: i64, stopped: bool) {
        let thread = self.thread(number, at);
        self.passes(thread, at, if stopped { GapAttribution::Sleep } else { GapAttribution::Work });
        if stopped {
            "stop by a signal".clone_into(&mut self.threads[thread].waited_in);
        }
    }

    /// Advances a thread to the time `at`. `open` states what the thread does from then on.
    fn passes(&mut self, thread: usize, at: i64, open: GapAttribution) {
        self.between(thread, at);
        let current = &mut self.threads[thread];
        (current.at, current.open) = (current.at.max(at), open);
        self.last = self.last.max(at);
    }

    /// Accounts for the time between a thread's last call and `to`: it is work, or belongs to a call whose duration was not recorded.
    fn between(&mut self, thread: usize, to: i64) {
        let current = &mut self.threads[thread];
        let (gap, open) = (to - current.at, std::mem::replace(&mut current.open, GapAttribution::Work));
        if gap <= 0 {
            return;
        }
        match open {
            GapAttribution::Work => {
                self.times.work_ns += gap;
                current.work(gap);
                current.polled = false;
            }
            GapAttribution::Wait => {
                self.times.pause_ns += gap;
                current.pause(gap);
                current.unexplained.add(&current.waited_in, to - gap, to);
            }
            GapAttribution::Sleep => {
                self.times.asleep_ns += gap;
                current.pause(gap);
                current.asleep.add(&current.waited_in, to - gap, to);
            }
            GapAttribution::Storage => self.times.storage_ns += gap,
            GapAttribution::Network => self.times.network_ns += gap,
        }
    }

    /// Counts a call without an equivalent program step, or a line that is not a call.
    pub fn drops(&mut self, name: &str) {
        *self.dropped.entry(name.to_owned()).or_default() += 1;
    }

    pub fn call(&mut self, call: &SystemCall) {
        let thread = self.thread(call.thread, call.started_ns);
        self.times.calls += 1;
        match self.calls.get_mut(&call.name) {
            Some(count) => *count += 1,
            None => {
                self.calls.insert(call.name.clone(), 1);
            }
        }
        self.last = self.last.max(call.ended_ns);
        self.times.untimed_calls += u64::from(!call.timed);
        let took = (call.ended_ns - call.started_ns).max(0);
        self.between(thread, call.started_ns);
        self.threads[thread].at = self.threads[thread].at.max(call.ended_ns);
        // With `strace -y`, a call with a relative path also shows the working directory (`AT_FDCWD</path>`).
        let here = call.arguments.iter().find(|argument| argument.word().is_some_and(|word| word.starts_with("AT_FDCWD<")));
        if let Some(folder) = here.and_then(CallArgument::path) {
            let table = self.threads[thread].table;
            folder.clone_into(&mut self.folders[table]);
        }
        self.take(thread, call, took);
    }

    /// Ends the recording and inserts the signals that wake waiting threads.
    pub fn finish(&mut self) {
        std::mem::take(&mut self.insertions).put_in(&mut self.threads);
    }

    fn thread(&mut self, number: u32, at: i64) -> usize {
        if self.tables.is_empty() {
            self.tables.push(FxHashMap::default());
            self.folders.push(UNKNOWN_FOLDER.to_owned());
        }
        self.first.get_or_insert(at);
        if let Some(known) = self.numbers.get(&number) {
            return *known;
        }
        let new = self.threads.len();
        self.threads.push(RecordedThread::new(number, 0, at));
        self.numbers.insert(number, new);
        self.assign_child(new);
        new
    }

    fn open(&self, thread: usize, call: &SystemCall, at: usize) -> Option<&DescriptorTarget> {
        self.tables[self.threads[thread].table].get(&call.number(at)?)
    }

    /// The open file description of a descriptor. If its open was not recorded, the path that `-y` shows is used.
    fn open_description(&mut self, thread: usize, call: &SystemCall, at: usize) -> Option<Rc<OpenFileDescription>> {
        match self.open(thread, call, at) {
            Some(DescriptorTarget::File(description)) => return Some(description.clone()),
            Some(_) => return None,
            None => {}
        }
        let path = call.arguments.get(at).and_then(CallArgument::path).filter(|path| !is_virtual(path));
        let Some(path) = path.map(str::to_owned) else {
            let seen = call.arguments.get(at).is_some_and(|argument| argument.word().is_some_and(|word| word.contains('<')));
            self.times.unknown_descriptors += u64::from(!seen && call.number(at).is_some_and(|number| number > 2));
            return None;
        };
        let file = self.files.of(&path);
        self.files.decide_existence(file);
        Some(self.insert(thread, call.number(at)?, file, false, None))
    }

    fn insert(
        &mut self, thread: usize, number: i64, file: usize, append: bool, durable: Option<SyncWriteScope>,
    ) -> Rc<OpenFileDescription> {
        let description = Rc::new(OpenFileDescription { file: Cell::new(file), position: Cell::new(0), append, durable });
        self.files.opened(file);
        self.assign_descriptor(thread, number, DescriptorTarget::File(description.clone()));
        description
    }

    /// Assigns a target to a descriptor number. If the descriptor is in use, it is closed first.
    fn assign_descriptor(&mut self, thread: usize, number: i64, open: DescriptorTarget) {
        let table = self.threads[thread].table;
        if let Some(old) = self.tables[table].insert(number, open) {
            self.close_descriptor(thread, old);
        }
    }

    /// Handles a closed descriptor.
    fn close_descriptor(&mut self, thread: usize, old: DescriptorTarget) {
        if let DescriptorTarget::File(description) = old
            && let Some(description) = Rc::into_inner(description)
        {
            let file = description.file.get();
            if self.files.closed(file) {
                self.change(thread, file, RecordedFileOp::Delete);
            }
        }
    }

    /// Adds an operation on the file. If another thread created or renamed the file, this thread waits for that operation.
    fn uses(&mut self, thread: usize, file: usize, operation: RecordedFileOp) {
        self.times.file_operations += 1;
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

    /// Adds an operation that creates, deletes or replaces the file. The thread waits for all other threads that have used it.
    fn change(&mut self, thread: usize, file: usize, operation: RecordedFileOp) {
        self.times.file_operations += 1;
        let mut before = std::mem::take(&mut self.files.all[file].uses);
        before.extend(self.files.all[file].last_change);
        for place in before.into_iter().filter(|place| place.thread != thread) {
            self.wait_for(thread, place);
        }
        let place = self.add(thread, file, operation);
        self.files.all[file].last_change = Some(place);
    }

    fn wait_for(&mut self, thread: usize, place: ItemIndex) {
        self.signals += 1;
        self.insertions.add(place, ThreadItem::Signal(self.signals));
        self.threads[thread].items.push(ThreadItem::Wait(self.signals));
    }

    fn add(&mut self, thread: usize, file: usize, operation: RecordedFileOp) -> ItemIndex {
        let items = &mut self.threads[thread].items;
        items.push(ThreadItem::File(file, operation));
        ItemIndex { thread, item: items.len() - 1 }
    }

    /// Adds the actions of a call to its thread.
    fn take(&mut self, thread: usize, call: &SystemCall, took: i64) {
        let name = call.name.as_str();
        let place = self.threads[thread].within.take();
        if self.on_files(thread, call, name) {
            self.times.storage_ns += took;
            self.open_end(thread, call, if reaches_storage(name) { GapAttribution::Storage } else { GapAttribution::Work });
            return;
        }
        if self.on_network(thread, call, name, took) {
            self.open_end(thread, call, GapAttribution::Network);
            return;
        }
        if self.on_processes(thread, call, name, took) {
            return;
        }
        let channel = self.channel(thread, call);
        self.wakes(thread, call, place, channel);
        if !waits(call, channel.is_some()) {
            self.times.work_ns += took;
            self.threads[thread].work(took);
            self.threads[thread].polled = false;
            return;
        }
        let is_timer = is_timer(call);
        self.open_end(thread, call, if is_timer { GapAttribution::Sleep } else { GapAttribution::Wait });
        if let Some(cause) = self.cause(thread, call, channel) {
            self.times.awaited_ns += took;
            self.waits_with(thread, cause.thread, call);
            self.wait_for(thread, cause);
            return;
        }
        let current = &mut self.threads[thread];
        name.clone_into(&mut current.waited_in);
        if took > 0 {
            current.pause(took);
            current.polled = POLLS.contains(&name);
            let (known, waits) = if is_timer {
                (&mut self.times.asleep_ns, &mut current.asleep)
            } else {
                (&mut self.times.pause_ns, &mut current.unexplained)
            };
            *known += took;
            waits.add(name, call.started_ns, call.started_ns + took);
        }
    }

    /// Sets the category of the time until the thread's next call, if the duration of the call is not recorded.
    fn open_end(&mut self, thread: usize, call: &SystemCall, open: GapAttribution) {
        if !call.timed {
            self.threads[thread].open = open;
            call.name.clone_into(&mut self.threads[thread].waited_in);
        }
    }

    /// Handles calls on sockets. Returns false for other calls.
    fn on_network(&mut self, thread: usize, call: &SystemCall, name: &str, took: i64) -> bool {
        let received = match name {
            "socket" => {
                if call.result >= 0 {
                    let inet = ["AF_INET", "AF_INET6", "PF_INET", "PF_INET6"].iter().any(|family| call.has_flag(0, family))
                        || call.arguments.first().and_then(CallArgument::word).is_some_and(|word| word == "0x2" || word == "0xa");
                    self.assign_descriptor(
                        thread,
                        call.result,
                        if inet { DescriptorTarget::Socket } else { DescriptorTarget::Other },
                    );
                }
                return false;
            }
            "connect" | "recvfrom" | "recvmsg" | "recvmmsg" | "recv" | "read" | "readv" => true,
            "sendto" | "sendmsg" | "sendmmsg" | "send" | "write" | "writev" => false,
            _ => return false,
        };
        let shown = call.arguments.first().and_then(CallArgument::annotation).unwrap_or_default();
        let internet = ["TCP:", "UDP:", "TCPv6:", "UDPv6:"].iter().any(|protocol| shown.starts_with(protocol));
        if !matches!(self.open(thread, call, 0), Some(DescriptorTarget::Socket)) && !internet {
            return false;
        }
        let bytes = if name == "connect" { 0 } else { call.result.max(0) as u64 };
        let current = &mut self.threads[thread];
        if name == "connect" {
            current.awaits_reply = true;
        }
        let (paused, slept) = current.transfer(bytes, received);
        current.polled = false;
        self.times.network_bytes += bytes;
        self.times.network_ns += took + paused + slept;
        self.times.pause_ns -= paused;
        self.times.asleep_ns -= slept;
        true
    }

    /// Handles calls that start threads or create descriptors without a file. Returns true if the time of the call has been accounted for.
    fn on_processes(&mut self, thread: usize, call: &SystemCall, name: &str, took: i64) -> bool {
        if is_spawn(name) {
            self.spawned(thread, call, took);
            return true;
        }
        if call.result < 0 {
            return false;
        }
        match name {
            "execve" | "execveat" => {
                let program = call.text(usize::from(name == "execveat")).unwrap_or_default();
                let name = program.rsplit('/').next().unwrap_or_default();
                name.clone_into(&mut self.threads[thread].program);
            }
            "pipe" | "pipe2" | "socketpair" => {
                self.pairs(thread, call, if name == "socketpair" { 3 } else { 0 });
            }
            "eventfd" | "eventfd2" => {
                let number = self.causes.new_channel();
                self.assign_descriptor(thread, call.result, DescriptorTarget::Channel(number));
            }
            "timerfd_create" | "signalfd4" | "epoll_create" | "epoll_create1" | "inotify_init1" | "accept" | "accept4"
            | "memfd_create" => {
                self.assign_descriptor(thread, call.result, DescriptorTarget::Other);
            }
            _ => {}
        }
        false
    }

    /// The path of an argument, absolute if the folder is known; `None` if it is not a path on a device.
    fn path(&self, thread: usize, call: &SystemCall, folder: Option<usize>, at: usize) -> Option<String> {
        let path = call.text(at)?;
        if path.starts_with('/') {
            let path = plain(&path);
            return (!is_virtual(&path)).then_some(path);
        }
        if path.is_empty() {
            return None;
        }
        let base = folder.and_then(|folder| {
            let known = match self.open(thread, call, folder) {
                Some(DescriptorTarget::Folder(known)) => Some(known.as_str()),
                _ => None,
            };
            known.or_else(|| call.arguments[folder].path()).map(str::to_owned)
        });
        let here = match folder.and_then(|folder| call.arguments[folder].word()) {
            // The directory descriptor was opened before the recording began, so its path is unknown.
            Some(word) if base.is_none() && !is_here(word) => UNKNOWN_FOLDER,
            _ => self.folders[self.threads[thread].table].as_str(),
        };
        let path = plain(&format!("{}/{path}", base.as_deref().unwrap_or(here).trim_end_matches('/')));
        (!is_virtual(&path)).then_some(path)
    }
}

/// Whether a call starts a thread or a process.
fn is_spawn(name: &str) -> bool {
    matches!(name, "clone" | "clone2" | "clone3" | "fork" | "vfork")
}

/// Folders whose files are not stored on a device.
const VIRTUAL: &[&str] = &["/proc/", "/sys/", "/dev/", "/run/", "/acct/", "anon_inode:"];

/// Whether a folder argument denotes the working folder of the process (`AT_FDCWD`).
fn is_here(word: &str) -> bool {
    word.contains("AT_FDCWD") || word == "-100" || word.trim_start_matches("0x").trim_start_matches('f') == "9c"
}

/// Normalises a path: removes `.`, `..` and empty components.
fn plain(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != ".." && *last != UNKNOWN_FOLDER) => {
                parts.pop();
            }
            ".." if path.starts_with('/') => {}
            part => parts.push(part),
        }
    }
    let root = if path.starts_with('/') { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}

fn is_virtual(path: &str) -> bool {
    VIRTUAL.iter().any(|folder| path.starts_with(folder))
}
