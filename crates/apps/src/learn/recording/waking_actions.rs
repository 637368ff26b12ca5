//! Determines what a thread waits for: a child that ends, a thread that wakes it, or a writer or reader of a pipe.

use rustc_hash::{FxHashMap, FxHashSet};

use super::file_calls::{POLLS, is_sleep};
use super::{CallRecording, is_spawn};
use crate::learn::strace::{CallArgument, SystemCall};
use crate::learn::thread_items::{DescriptorTarget, ItemIndex, ThreadItem};

/// An action that can end the wait of another thread: the acting thread, the index of the action in that thread's list, and its start time.
#[derive(Clone, Copy, Debug)]
struct WakingAction {
    thread: usize,
    item: ItemIndex,
    at: i64,
}

/// A call in progress that starts a thread.
#[derive(Debug)]
struct SpawningCall {
    parent: usize,
    shares: bool,
    child: Option<usize>,
}

/// The recorded actions that can end the waits of other threads, by what the other thread waits for.
#[derive(Debug, Default)]
pub(super) struct WakingActions {
    channels: u32,
    /// The last write to each channel (pipe, event or local socket).
    written: FxHashMap<u32, WakingAction>,
    read: FxHashMap<u32, WakingAction>,
    /// Numbers of channels by the name that strace's `-y` shows.
    named: FxHashMap<String, u32>,
    /// Paths that are known to be named pipes.
    pipes: FxHashSet<String>,
    /// The last wake-up of each futex, by the descriptor table of the process and the address.
    woken: FxHashMap<(usize, String), WakingAction>,
    /// The last wake-up in each process, by the descriptor table of the process.
    woken_in: FxHashMap<usize, WakingAction>,
    /// The ends of threads, by thread id.
    ends: FxHashMap<u32, WakingAction>,
    spawning: Vec<SpawningCall>,
}

impl WakingActions {
    pub fn new_channel(&mut self) -> u32 {
        self.channels += 1;
        self.channels
    }

    fn channel_of_name(&mut self, shown: &str) -> u32 {
        if let Some(known) = self.named.get(shown) {
            return *known;
        }
        let number = self.new_channel();
        self.named.insert(shown.to_owned(), number);
        number
    }
}

impl CallRecording {
    /// Adds a mark to the recorded items of a thread, and returns its position. Other threads can wait for a mark.
    fn mark(&mut self, thread: usize) -> ItemIndex {
        let items = &mut self.threads[thread].items;
        items.push(ThreadItem::Mark);
        ItemIndex { thread, item: items.len() - 1 }
    }

    /// Handles the beginning of a call. Threads that wait for the call may continue before the line that shows its return.
    pub(super) fn begins(&mut self, thread: usize, call: &SystemCall) {
        if is_spawn(&call.name) {
            self.causes.spawning.push(SpawningCall { parent: thread, shares: shares_files(call), child: None });
            return;
        }
        let channel = self.channel(thread, call);
        if channel.is_some() || call.name.starts_with("futex") {
            // The call may wake other threads before it returns, so its program step is created when the call begins.
            self.threads[thread].within = self.wakes(thread, call, None, channel);
        }
    }

    /// Assigns a new thread to a call in progress that started it.
    pub(super) fn assign_child(&mut self, child: usize) {
        let Some(spawn) = self.causes.spawning.iter_mut().find(|spawn| spawn.child.is_none()) else { return };
        spawn.child = Some(child);
        let (parent, shares) = (spawn.parent, spawn.shares);
        self.start(parent, child, shares);
    }

    fn start(&mut self, parent: usize, child: usize, shares: bool) {
        let table = self.threads[parent].table;
        let table = if shares {
            table
        } else {
            self.tables.push(self.tables[table].clone());
            self.folders.push(self.folders[table].clone());
            self.tables.len() - 1
        };
        let program = self.threads[parent].program.clone();
        let begun = &mut self.threads[child];
        (begun.started, begun.parent) = (true, Some(parent));
        if begun.program.is_empty() {
            begun.program = program;
        }
        if begun.items.is_empty() {
            begun.table = table;
        }
        self.threads[parent].items.push(ThreadItem::Start(child));
    }

    /// Handles the return of a call that starts a thread.
    pub(super) fn spawned(&mut self, thread: usize, call: &SystemCall, took: i64) {
        let known = self.causes.spawning.iter().position(|spawn| spawn.parent == thread);
        let known = known.map(|at| self.causes.spawning.remove(at));
        let waits = call.name == "vfork" || has_word(call, "CLONE_VFORK");
        if let Ok(number) = u32::try_from(call.result)
            && number > 0
        {
            let appeared = known.as_ref().and_then(|spawn| spawn.child);
            let child = match appeared {
                Some(child) if self.threads[child].number == number => child,
                _ => {
                    let child = self.thread(number, call.ended_ns);
                    if child != thread && !self.threads[child].started {
                        self.start(thread, child, shares_files(call));
                    }
                    child
                }
            };
            // A parent that called `vfork` waits until the child executes another program or exits.
            if waits && child != thread && !self.threads[child].items.is_empty() {
                let place = self.mark(child);
                self.wait_for(thread, place);
                self.times.awaited_ns += took;
                return;
            }
        }
        self.times.work_ns += took;
        self.threads[thread].work(took);
    }

    pub(super) fn ended(&mut self, thread: usize, at: i64) {
        let place = self.mark(thread);
        self.causes.ends.insert(self.threads[thread].number, WakingAction { thread, item: place, at });
        if let Some(parent) = self.threads[thread].parent {
            self.threads[parent].child_end = Some((place, at));
        }
    }

    /// The pipe, event or local socket on which a call operates.
    pub(super) fn channel(&mut self, thread: usize, call: &SystemCall) -> Option<u32> {
        if !matches!(call.name.as_str(), "read" | "readv" | "write" | "writev" | "recvfrom" | "recvmsg" | "sendto" | "sendmsg") {
            return None;
        }
        if let Some(DescriptorTarget::Channel(number)) = self.open(thread, call, 0) {
            return Some(*number);
        }
        let shown = call.arguments.first()?.annotation()?;
        shown.starts_with("pipe:[").then(|| self.causes.channel_of_name(shown))
    }

    /// Handles a call that creates two descriptors of one pipe or socket pair, such as `[3, 4]` or `[3<pipe:[5]>, 4<pipe:[5]>]`.
    pub(super) fn pairs(&mut self, thread: usize, call: &SystemCall, at: usize) {
        let Some(word) = call.arguments.get(at).and_then(CallArgument::word) else { return };
        let numbers: Vec<i64> =
            word.trim_start_matches('[').split(", ").filter_map(|part| CallArgument::Word(part.to_owned()).number()).collect();
        let channel = self.causes.new_channel();
        if let Some(shown) = word.trim_start_matches('[').split(", ").next().and_then(|descriptor| {
            let (_, rest) = descriptor.split_once('<')?;
            rest.strip_suffix('>')
        }) {
            self.causes.named.insert(shown.to_owned(), channel);
        }
        for number in numbers {
            self.assign_descriptor(thread, number, DescriptorTarget::Channel(channel));
        }
    }

    /// Records an action that can end the wait of another thread. Returns the position of the action.
    pub(super) fn wakes(
        &mut self, thread: usize, call: &SystemCall, place: Option<ItemIndex>, channel: Option<u32>,
    ) -> Option<ItemIndex> {
        let (name, at) = (call.name.as_str(), call.started_ns);
        let wakes = name.starts_with("futex")
            && ["FUTEX_WAKE", "REQUEUE", "FUTEX_UNLOCK"]
                .iter()
                .any(|word| call.arguments.get(1).and_then(CallArgument::word).is_some_and(|flags| flags.contains(word)));
        if !wakes && channel.is_none() {
            return None;
        }
        let place = place.unwrap_or_else(|| self.mark(thread));
        let deed = WakingAction { thread, item: place, at };
        if let Some(channel) = channel {
            let writes = matches!(name, "write" | "writev" | "sendto" | "sendmsg");
            let side = if writes { &mut self.causes.written } else { &mut self.causes.read };
            side.insert(channel, deed);
        }
        if wakes && let Some(address) = call.arguments.first().and_then(CallArgument::word) {
            let table = self.threads[thread].table;
            self.causes.woken.insert((table, address.to_owned()), deed);
            self.causes.woken_in.insert(table, deed);
        }
        Some(place)
    }

    /// Returns the position of the action in another thread that ended the wait of a call; `None` if the recording does not show it.
    pub(super) fn cause(&mut self, thread: usize, call: &SystemCall, channel: Option<u32>) -> Option<ItemIndex> {
        let name = call.name.as_str();
        let during = |deed: &&WakingAction| deed.thread != thread && (call.started_ns..=call.ended_ns).contains(&deed.at);
        if let Some(channel) = channel {
            let writes = matches!(name, "write" | "writev" | "sendto" | "sendmsg");
            let side = if writes { &self.causes.read } else { &self.causes.written };
            let other = side.get(&channel).filter(during).map(|deed| deed.item);
            // A reader of a pipe is also woken when the writing process exits.
            return other.or_else(|| self.child_that_ended(thread, call));
        }
        match name {
            "wait4" | "waitpid" | "waitid" => {
                if let Some(deed) = reaped(call).and_then(|number| self.causes.ends.get(&number)) {
                    return (deed.thread != thread).then_some(deed.item);
                }
                self.child_that_ended(thread, call)
            }
            _ if name.starts_with("futex") => self.waker(thread, call),
            "rt_sigsuspend" | "rt_sigtimedwait" | "pause" | "restart_syscall" if !is_sleep(call) => {
                self.child_that_ended(thread, call)
            }
            _ if POLLS.contains(&name) && call.result > 0 => {
                let latest = self.causes.written.values().filter(during).max_by_key(|deed| deed.at);
                latest.map(|deed| deed.item)
            }
            _ if call.result == -1 && !is_sleep(call) => self.child_that_ended(thread, call),
            _ => None,
        }
    }

    /// Accounts for a wait of `thread` for the thread `other`. Sleeps and unexplained waits of `other` during this time also count for
    /// `thread`.
    pub(super) fn waits_with(&mut self, thread: usize, other: usize, call: &SystemCall) {
        let waited = &self.threads[other];
        let unexplained = waited.unexplained.between(call.started_ns, call.ended_ns);
        let asleep = waited.asleep.between(call.started_ns, call.ended_ns);
        let name = format!("{} for {}", call.name, waited.title());
        let waiting = &mut self.threads[thread];
        for (waits, spans) in [(&mut waiting.unexplained, unexplained), (&mut waiting.asleep, asleep)] {
            for (begun, ended) in spans {
                waits.add(&name, begun, ended);
            }
        }
    }

    /// Opens a path that is known to be a named pipe. Returns false for other files.
    pub(super) fn opens_pipe(&mut self, thread: usize, call: &SystemCall, path: &str) -> bool {
        if !self.causes.pipes.contains(path) {
            return false;
        }
        let channel = self.causes.channel_of_name(path);
        self.assign_descriptor(thread, call.result, DescriptorTarget::Channel(channel));
        self.waits_at_open(thread, call.started_ns, call.ended_ns);
        true
    }

    /// Handles a `stat` call that reports a named pipe, by path or by descriptor. An earlier open may have treated the pipe as a file.
    pub(super) fn is_a_pipe(&mut self, thread: usize, call: &SystemCall, path: Option<String>) {
        if let Some(path) = path {
            self.causes.pipes.insert(path);
            return;
        }
        let (Some(number), Some(DescriptorTarget::File(description))) = (call.number(0), self.open(thread, call, 0)) else {
            return;
        };
        let file = description.file.get();
        let path = self.files.all[file].path.clone();
        let channel = self.causes.channel_of_name(&path);
        self.assign_descriptor(thread, number, DescriptorTarget::Channel(channel));
        if let Some((_, begun, ended)) = self.threads[thread].opened.take().filter(|opened| opened.0 == file) {
            self.waits_at_open(thread, begun, ended);
        }
        self.causes.pipes.insert(path);
    }

    /// Counts the open of a pipe as a wait for an unknown cause, because the recording does not show which process opens the other end.
    /// Subtracts its time from the time in calls on files.
    fn waits_at_open(&mut self, thread: usize, begun: i64, ended: i64) {
        self.times.storage_ns -= ended - begun;
        self.times.pause_ns += ended - begun;
        let opener = &mut self.threads[thread];
        opener.pause(ended - begun);
        opener.unexplained.add("open of a pipe", begun, ended);
    }

    /// Returns the item at which a child of this thread ended, if it ended during the call; otherwise `None`.
    fn child_that_ended(&self, thread: usize, call: &SystemCall) -> Option<ItemIndex> {
        let (place, at) = self.threads[thread].child_end?;
        (call.started_ns..=call.ended_ns).contains(&at).then_some(place)
    }

    /// Returns the recorded action of another thread that ended the wait of this call at a memory address (futex). The end of a thread also
    /// wakes the threads that join it.
    fn waker(&self, thread: usize, call: &SystemCall) -> Option<ItemIndex> {
        if call.result < 0 {
            return None;
        }
        let during = |deed: &&WakingAction| deed.thread != thread && (call.started_ns..=call.ended_ns).contains(&deed.at);
        let table = self.threads[thread].table;
        let address = call.arguments.first().and_then(CallArgument::word)?;
        let woken = self.causes.woken.get(&(table, address.to_owned())).filter(during);
        let joined = || {
            let number = u32::try_from(call.number(2)?).ok()?;
            self.causes.ends.get(&number).filter(during)
        };
        let any = || self.causes.woken_in.get(&table).filter(during);
        woken.or_else(joined).or_else(any).map(|deed| deed.item)
    }
}

/// The process for which a wait call returned: its result, or the process in the siginfo of `waitid`.
fn reaped(call: &SystemCall) -> Option<u32> {
    if call.name != "waitid" {
        return u32::try_from(call.result).ok().filter(|number| *number > 0);
    }
    let mut words = call.arguments.iter().filter_map(CallArgument::word);
    let named = words.find_map(|word| word.split_once("si_pid="));
    let digits = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text[..end].parse().ok()
    };
    match named {
        Some((_, rest)) => digits(rest),
        None if call.has_flag(0, "P_PID") => u32::try_from(call.number(1)?).ok(),
        None => None,
    }
}

fn shares_files(call: &SystemCall) -> bool {
    has_word(call, "CLONE_FILES")
}

fn has_word(call: &SystemCall, flag: &str) -> bool {
    call.arguments.iter().filter_map(CallArgument::word).any(|word| word.contains(flag))
}
