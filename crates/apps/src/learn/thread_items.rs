//! What the threads of a recording did, as parts of a program.

use super::call_waits::CallWaits;
use super::files::ItemIndex;

/// An access to a file, or a change of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordedFileOp {
    /// Reads; sequential if it begins at the end of the thread's last access.
    Read {
        bytes: u64,
        sequential: bool,
    },
    /// Writes at the end of the thread's last access.
    Write {
        bytes: u64,
    },
    /// Writes at another offset inside the file.
    Overwrite {
        bytes: u64,
    },
    /// Writes at the end of the file.
    Append {
        bytes: u64,
    },
    /// Opens a file, and creates it if it did not exist before.
    OpenOrCreate,
    Delete,
    /// Renames the file so that it replaces this one.
    Rename {
        to: usize,
    },
    Truncate {
        bytes: u64,
    },
    Fsync {
        data_only: bool,
    },
}

/// A part of what a thread did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ThreadItem {
    /// CPU work, in ns.
    Cpu(i64),
    /// A sleep, or a wait whose cause is unknown, in ns.
    Pause(i64),
    /// Bytes over the network, and the number of waits for an answer.
    Network {
        bytes: u64,
        round_trips: u64,
    },
    /// An operation on a file, by its number.
    File(usize, RecordedFileOp),
    Sync,
    /// A position for which others may wait.
    Mark,
    /// Starts another thread, by its number.
    Start(usize),
    /// Signals that another thread can continue from here.
    Signal(u32),
    Wait(u32),
}

/// How the time until the next call of a thread is used, after a call without a duration or without an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GapAttribution {
    /// By work of the thread.
    Work,
    /// By the call, which waits.
    Wait,
    /// By the call, which sleeps, or by a stop by a signal.
    Sleep,
    /// By the call, which accesses a file.
    Storage,
    /// By the call, which waits for the network.
    Network,
}

/// A thread.
#[derive(Debug)]
pub(super) struct RecordedThread {
    /// The thread id.
    pub number: u32,
    /// The number of its descriptor table.
    pub table: usize,
    /// Whether it was started by a thread of the recording.
    pub started: bool,
    pub started_ns: i64,
    /// The end of its last call.
    pub at: i64,
    pub items: Vec<ThreadItem>,
    /// The end of its last access in each file.
    pub cursors: rustc_hash::FxHashMap<usize, u64>,
    /// Whether the last item is a wait that the network may have caused.
    pub polled: bool,
    /// Whether it has sent something since it last received.
    pub awaits_reply: bool,
    /// How the time after its last call is used, if that call has no duration.
    pub open: GapAttribution,
    /// The thread that started it.
    pub parent: Option<usize>,
    /// The end of the child that ended last: its position and time.
    pub child_end: Option<(ItemIndex, i64)>,
    /// The position of the call in progress, if others may wait for it.
    pub within: Option<ItemIndex>,
    /// Waits whose cause is not in the recording.
    pub unexplained: CallWaits,
    /// Sleeps, timeouts and stops by a signal.
    pub asleep: CallWaits,
    /// The name of the last call that waited.
    pub waited_in: String,
    /// The file that it opened last, with the begin and end of the call.
    pub opened: Option<(usize, i64, i64)>,
    /// The program that it executes; empty if its start was not recorded.
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

    /// The name of the thread in the program.
    pub fn name(&self) -> String {
        if self.number == 0 { "main".to_owned() } else { format!("thread {}", self.number) }
    }

    /// The name for messages, with the program that it executes.
    pub fn title(&self) -> String {
        let name = self.name();
        if self.program.is_empty() { name } else { format!("{name} ({})", self.program) }
    }

    /// Adds work; consecutive work is combined.
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

    /// Adds a transfer. If the thread waited just before it received, that was a wait for the network, so it is removed from the pauses.
    /// Returns its parts in ns: unexplained waits, and timeouts.
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

/// Items to be inserted after others: signals to waiting threads.
#[derive(Debug, Default)]
pub(super) struct ItemInsertions(Vec<(ItemIndex, ThreadItem)>);

impl ItemInsertions {
    pub fn add(&mut self, place: ItemIndex, item: ThreadItem) {
        self.0.push((place, item));
    }

    /// Inserts all of them.
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
