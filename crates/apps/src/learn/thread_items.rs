//! The recorded actions of threads, as items from which the steps of a program are built.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;

use rustc_hash::FxHashMap;

/// An access to a file, or a change of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordedFileOp {
    /// Reads; `sequential` if the read begins at the end of the thread's last access.
    Read { bytes: u64, sequential: bool },
    /// Writes at the end of the thread's last access.
    Write { bytes: u64 },
    /// Writes at another offset inside the file.
    Overwrite { bytes: u64 },
    /// Writes at the end of the file.
    Append { bytes: u64 },
    /// Opens a file, and creates it if it did not exist before.
    OpenOrCreate,
    /// Removes the file.
    Delete,
    /// Renames the file to the path of the file `to`, which it replaces.
    Rename { to: usize },
    /// Sets the length of the file.
    Truncate { bytes: u64 },
    /// Syncs the file.
    Fsync { data_only: bool },
}

/// An action of a thread, or a mark in its list of actions for which other threads can wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ThreadItem {
    /// CPU work, in ns.
    Cpu(i64),
    /// A sleep, or a wait whose cause is unknown, in ns.
    Pause(i64),
    /// A transfer of this number of bytes over the network, and the number of waits for a reply.
    Network { bytes: u64, round_trips: u64 },
    /// An operation on the file with this number.
    File(usize, RecordedFileOp),
    /// A sync of all files.
    Sync,
    /// A mark for which other threads can wait.
    Mark,
    /// Starts the thread with this number.
    Start(usize),
    /// Sends a signal, so that a thread that waits for this signal can continue.
    Signal(u32),
    /// Waits for the signal with this number.
    Wait(u32),
}

/// What a thread did between two calls, if the duration or the end of the first call was not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GapAttribution {
    /// The thread works on a core.
    Work,
    /// The thread waits in the call for an unknown cause.
    Wait,
    /// The call sleeps, or a signal has stopped the thread.
    Sleep,
    /// The call accesses a file.
    Storage,
    /// The call waits for the network.
    Network,
}

#[derive(Debug)]
pub(super) struct RecordedThread {
    /// The thread id in the recording.
    pub number: u32,
    /// The number of the thread's descriptor table.
    pub table: usize,
    /// Whether another thread of the recording started this thread.
    pub started: bool,
    pub started_ns: i64,
    /// The time at which the thread's last call ended, in ns.
    pub at: i64,
    pub items: Vec<ThreadItem>,
    /// The position of the thread in each file, which is the end of its last access.
    pub cursors: rustc_hash::FxHashMap<usize, u64>,
    /// Whether the last item is a pause that may have been a wait for the network.
    pub polled: bool,
    /// Whether the thread has sent data since it last received some.
    pub awaits_reply: bool,
    /// What the time since the thread's last call belongs to: work, or the call itself if its duration was not recorded.
    pub open: GapAttribution,
    /// The thread that started this thread.
    pub parent: Option<usize>,
    /// Position and time in ns of the end of the child that ended last.
    pub child_end: Option<(ItemIndex, i64)>,
    /// The position of the call in progress, if other threads can wait for this call.
    pub within: Option<ItemIndex>,
    /// Waits of the thread whose cause is not in the recording.
    pub unexplained: CallWaits,
    /// Sleeps, timeouts and stops by a signal of the thread.
    pub asleep: CallWaits,
    /// The name of the last call in which the thread waited.
    pub waited_in: String,
    /// The file that the thread opened last, with the start and end time of the open call in ns.
    pub opened: Option<(usize, i64, i64)>,
    /// The program that the thread executes; empty if its start was not recorded.
    pub program: String,
}

impl RecordedThread {
    pub fn new(number: u32, table: usize, begun: i64) -> Self {
        Self {
            number,
            table,
            started: false,
            started_ns: begun,
            at: begun,
            items: Vec::new(),
            cursors: rustc_hash::FxHashMap::default(),
            polled: false,
            awaits_reply: false,
            open: GapAttribution::Work,
            parent: None,
            child_end: None,
            within: None,
            unexplained: CallWaits::default(),
            asleep: CallWaits::default(),
            opened: None,
            program: String::new(),
            waited_in: String::new(),
        }
    }

    /// The name of the thread in the learned program.
    pub fn name(&self) -> String {
        if self.number == 0 { "main".to_owned() } else { format!("thread {}", self.number) }
    }

    /// The name of the thread in messages, with the program that it executes.
    pub fn title(&self) -> String {
        let name = self.name();
        if self.program.is_empty() { name } else { format!("{name} ({})", self.program) }
    }

    /// Adds CPU work; consecutive work is combined into one item.
    pub fn work(&mut self, ns: i64) {
        if ns <= 0 {
            return;
        }
        match self.items.last_mut() {
            Some(ThreadItem::Cpu(known)) => *known += ns,
            _ => self.items.push(ThreadItem::Cpu(ns)),
        }
    }

    /// Adds a sleep, or a wait whose cause is unknown.
    pub fn pause(&mut self, ns: i64) {
        match self.items.last_mut() {
            Some(ThreadItem::Pause(known)) => *known += ns,
            _ => self.items.push(ThreadItem::Pause(ns)),
        }
    }

    /// Adds a network transfer. A pause directly before received data was a wait for the network, and is removed. Returns two removed times
    /// in ns: that of unexplained waits, and that of timeouts.
    pub fn transfer(&mut self, bytes: u64, received: bool) -> (i64, i64) {
        let mut waited = (0, 0);
        if received
            && self.polled
            && let Some(ThreadItem::Pause(ns)) = self.items.last()
        {
            let all = *ns;
            self.items.pop();
            let paused = self.unexplained.take_back(&self.waited_in, all);
            waited = (paused, self.asleep.take_back(&self.waited_in, all - paused));
            let other = all - waited.0 - waited.1;
            if other > 0 {
                self.items.push(ThreadItem::Pause(other));
            }
        }
        let trips = u64::from(received && (self.awaits_reply || waited != (0, 0)));
        self.awaits_reply = !received;
        match self.items.last_mut() {
            Some(ThreadItem::Network { bytes: known, round_trips }) => {
                *known += bytes;
                *round_trips += trips;
            }
            _ => self.items.push(ThreadItem::Network { bytes, round_trips: trips }),
        }
        waited
    }
}

/// Items that will be inserted after existing items, such as signals to waiting threads.
#[derive(Debug, Default)]
pub(super) struct ItemInsertions(Vec<(ItemIndex, ThreadItem)>);

impl ItemInsertions {
    pub fn add(&mut self, place: ItemIndex, item: ThreadItem) {
        self.0.push((place, item));
    }

    /// Inserts all collected items into the lists of their threads.
    pub fn put_in(mut self, threads: &mut [RecordedThread]) {
        self.0.sort_by_key(|(place, _)| (place.thread, place.item));
        let mut behind = self.0.into_iter().peekable();
        for (number, thread) in threads.iter_mut().enumerate() {
            let old = std::mem::take(&mut thread.items);
            for (at, item) in old.into_iter().enumerate() {
                thread.items.push(item);
                while let Some((place, _)) = behind.peek()
                    && *place == (ItemIndex { thread: number, item: at })
                {
                    thread.items.extend(behind.next().map(|(_, item)| item));
                }
            }
        }
    }
}

/// Whether a file existed before the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PriorExistence {
    Unknown,
    There,
    Absent,
}

#[derive(Debug)]
pub(super) struct RecordedFile {
    pub path: String,
    pub before: PriorExistence,
    /// The file size before the recording, in bytes, as far as reads and status calls show it.
    pub first_size: u64,
    pub size: u64,
    /// Whether a recorded call has changed the contents of the file.
    pub changed: bool,
    /// Number of hard links in addition to the first one.
    links: u32,
    /// Number of open file descriptions.
    opens: u32,
    /// Whether the file was unlinked while it was open.
    pub unlinked: bool,
    /// The last item that created, deleted or renamed the file.
    pub last_change: Option<ItemIndex>,
    /// The last use of the file since `last_change` by each thread.
    pub uses: Vec<ItemIndex>,
}

/// The position of an item: the index of a thread, and the index of the item in this thread.
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
    /// What each write makes durable: data and metadata (`O_SYNC`), only data (`O_DSYNC`), or nothing (`None`).
    pub durable: Option<SyncWriteScope>,
}

/// What a synchronous write makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncWriteScope {
    Data,
    All,
}

/// The target of a descriptor.
#[derive(Clone, Debug)]
pub(super) enum DescriptorTarget {
    File(Rc<OpenFileDescription>),
    Folder(String),
    Socket,
    /// A pipe, an event or a local socket, with its number.
    Channel(u32),
    /// A device file, or an unknown target.
    Other,
}

/// All files by number, and the numbers by current path.
#[derive(Debug, Default)]
pub(super) struct RecordedFiles {
    pub all: Vec<RecordedFile>,
    by_path: FxHashMap<String, usize>,
}

impl RecordedFiles {
    /// Returns the number of the file with this path. A path that is not known yet gets a new number.
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

    /// Records that the file has at least this size, according to a status call, a seek or a read.
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

    /// Decides at the first use of a file whether it existed before the recording: yes, unless a thread of the recording has created it.
    pub fn decide_existence(&mut self, number: usize) {
        let file = &mut self.all[number];
        if file.before == PriorExistence::Unknown {
            file.before = if file.last_change.is_some() { PriorExistence::Absent } else { PriorExistence::There };
        }
    }

    pub fn opened(&mut self, number: usize) {
        self.all[number].opens += 1;
    }

    /// Closes an open file description of the file. Returns true if it was the last one and the file is unlinked, so that it is deleted.
    pub fn closed(&mut self, number: usize) -> bool {
        let file = &mut self.all[number];
        file.opens = file.opens.saturating_sub(1);
        file.opens == 0 && std::mem::take(&mut file.unlinked)
    }

    /// Unlinks a path. Returns the number of the file, and whether the file is deleted because nothing else refers to it.
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

    /// Called when another file takes over the path of a file. If the file is open, it gets a new number and a placeholder path, and the
    /// old and new number are returned. Otherwise returns `None`.
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

    /// Renames the paths of the files in a folder. Returns false if the path is not a folder that contains known files.
    pub fn folder_renamed(&mut self, from: &str, to: &str) -> bool {
        let below: Vec<String> = self.by_path.keys().filter(|known| is_below(known, from)).cloned().collect();
        for path in &below {
            if let Some(number) = self.by_path.remove(path) {
                self.by_path.insert(format!("{to}{}", &path[from.len()..]), number);
            }
        }
        !below.is_empty()
    }

    /// Renames a file so that it replaces the file at another path. Returns the numbers of both files.
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

/// The waits of one kind (sleeps or unexplained waits) of a thread, and of the threads for which it waited.
#[derive(Debug, Default)]
pub(super) struct CallWaits {
    /// Time by the name of the call, in ns.
    by_call: BTreeMap<String, i64>,
    /// Start and end of each wait, in ns on the clock of the recording, in order of their ends.
    spans: Vec<(i64, i64)>,
}

impl CallWaits {
    pub fn add(&mut self, call: &str, begun: i64, ended: i64) {
        *self.by_call.entry(call.to_owned()).or_default() += ended - begun;
        self.spans.push((begun, ended));
    }

    /// Removes up to `ns` from the last waits in calls named `call`, because the cause of this time has become known. Returns the removed
    /// time in ns.
    pub fn take_back(&mut self, call: &str, ns: i64) -> i64 {
        let Some(known) = self.by_call.get_mut(call) else { return 0 };
        let all = ns.min(*known);
        *known -= all;
        let mut ns = all;
        while let Some((begun, ended)) = self.spans.last_mut() {
            let taken = ns.min(*ended - *begun);
            *ended -= taken;
            ns -= taken;
            if ended > begun {
                break;
            }
            self.spans.pop();
        }
        all
    }

    /// The waits between two times, in order of their ends. Waits that extend beyond these times are cut.
    pub fn between(&self, begun: i64, ended: i64) -> Vec<(i64, i64)> {
        let mut parts: Vec<_> = (self.spans.iter().rev())
            .take_while(|span| span.1 > begun)
            .map(|span| (span.0.max(begun), span.1.min(ended)))
            .filter(|span| span.0 < span.1)
            .collect();
        parts.reverse();
        parts
    }

    /// The total time of all waits, in ns.
    pub fn total(&self) -> i64 {
        self.by_call.values().sum()
    }

    /// The calls that waited longest, at most `most` of them, with their times in ns.
    pub fn longest(&self, most: usize) -> Vec<(&str, i64)> {
        let mut calls: Vec<_> = self.by_call.iter().map(|(call, ns)| (call.as_str(), *ns)).collect();
        calls.retain(|(_, ns)| *ns > 0);
        calls.sort_by_key(|(_, ns)| Reverse(*ns));
        calls.truncate(most);
        calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_taken_between_two_times_and_given_back_from_the_end() {
        let mut waits = CallWaits::default();
        waits.add("poll", 10, 20);
        waits.add("ioctl", 30, 60);
        assert_eq!(waits.between(15, 40), [(15, 20), (30, 40)]);
        assert_eq!(waits.between(20, 30), []);
        assert_eq!(waits.longest(1), [("ioctl", 30)]);
        assert_eq!(waits.take_back("ioctl", 30), 30);
        assert_eq!(waits.take_back("poll", 4), 4);
        assert_eq!((waits.total(), waits.between(0, 100)), (6, vec![(10, 16)]));
        assert_eq!((waits.take_back("never", 6), waits.take_back("poll", 9), waits.total()), (0, 6, 0));
    }
}
