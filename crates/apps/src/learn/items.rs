//! The work of a recording's threads, as parts of a program.

use super::files::Place;
use super::waits::Waits;

/// An access of a file, or a change of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// Reads; whether where the thread's last access ended.
    Read {
        bytes: u64,
        sequential: bool,
    },
    /// Writes where the thread's last access ended.
    Write {
        bytes: u64,
    },
    /// Writes elsewhere inside the file.
    Overwrite {
        bytes: u64,
    },
    /// Writes at the end.
    Append {
        bytes: u64,
    },
    /// Opens a file that is made if it turns out that it was not there.
    OpenOrCreate,
    Delete,
    /// Takes the place of this file.
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
pub(super) enum Item {
    /// Work, in ns.
    Cpu(i64),
    /// A sleep, or a wait whose cause is unknown, in ns.
    Pause(i64),
    /// Bytes over the network, and how often an answer was waited for.
    Network {
        bytes: u64,
        round_trips: u64,
    },
    /// On a file, by its number.
    File(usize, Operation),
    Sync,
    /// A place that others may wait for.
    Mark,
    /// Another thread begins, by its number.
    Start(usize),
    /// Another thread goes on behind this.
    Signal(u32),
    Wait(u32),
}

/// What the time up to the next call of a thread is, behind a call without a duration or without an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Open {
    /// Work.
    Work,
    /// The call, which waits.
    Wait,
    /// The call, which sleeps, or a stop by a signal.
    Sleep,
    /// The call, which uses a file.
    Storage,
    /// The call, which waits for the network.
    Network,
}

/// A thread.
#[derive(Debug)]
pub(super) struct Thread {
    /// The kernel's number.
    pub number: u32,
    /// The table of its descriptors.
    pub table: usize,
    /// Whether a thread of the recording began it.
    pub started: bool,
    pub begun: i64,
    /// The end of its last call.
    pub at: i64,
    pub items: Vec<Item>,
    /// Where it is in each file: the end of its last access.
    pub cursors: rustc_hash::FxHashMap<usize, u64>,
    /// Whether the last item is a wait that the network may be the cause of.
    pub polled: bool,
    /// Whether it has sent something since it received last.
    pub asked: bool,
    /// What its last call is, where that has no duration.
    pub open: Open,
    /// The thread that began it.
    pub parent: Option<usize>,
    /// The end of the child that ended last, and when.
    pub child_end: Option<(Place, i64)>,
    /// The place of the call that it is in, where others may wait for that.
    pub within: Option<Place>,
    /// Waits whose cause is not in the recording.
    pub unexplained: Waits,
    /// Sleeps, timeouts and stops by a signal.
    pub asleep: Waits,
    /// The call of the last wait.
    pub waited_in: String,
    /// The file that it opened last, and when the call began and ended.
    pub opened: Option<(usize, i64, i64)>,
    /// The name of the program that it runs; empty if the recording does not have its begin.
    pub program: String,
}

impl Thread {
    pub fn new(number: u32, table: usize, begun: i64) -> Self {
        Self {
            number,
            table,
            started: false,
            begun,
            at: begun,
            items: Vec::new(),
            cursors: rustc_hash::FxHashMap::default(),
            polled: false,
            asked: false,
            open: Open::Work,
            parent: None,
            child_end: None,
            within: None,
            unexplained: Waits::default(),
            asleep: Waits::default(),
            opened: None,
            program: String::new(),
            waited_in: String::new(),
        }
    }

    /// The name that it has in the program.
    pub fn name(&self) -> String {
        if self.number == 0 { "main".to_owned() } else { format!("thread {}", self.number) }
    }

    /// The name in messages, with what it runs.
    pub fn title(&self) -> String {
        let name = self.name();
        if self.program.is_empty() { name } else { format!("{name} ({})", self.program) }
    }

    /// Adds work, to the last item where that is work, too.
    pub fn work(&mut self, ns: i64) {
        if ns <= 0 {
            return;
        }
        match self.items.last_mut() {
            Some(Item::Cpu(known)) => *known += ns,
            _ => self.items.push(Item::Cpu(ns)),
        }
    }

    /// Adds a sleep, or a wait whose cause is unknown.
    pub fn pause(&mut self, ns: i64) {
        match self.items.last_mut() {
            Some(Item::Pause(known)) => *known += ns,
            _ => self.items.push(Item::Pause(ns)),
        }
    }

    /// Adds a transfer. A wait just before an answer was a wait for it, and is given back in ns: what was unexplained, and the timeouts.
    pub fn transfer(&mut self, bytes: u64, received: bool) -> (i64, i64) {
        let mut waited = (0, 0);
        if received
            && self.polled
            && let Some(Item::Pause(ns)) = self.items.last()
        {
            let all = *ns;
            self.items.pop();
            let paused = self.unexplained.take_back(&self.waited_in, all);
            waited = (paused, self.asleep.take_back(&self.waited_in, all - paused));
            let other = all - waited.0 - waited.1;
            if other > 0 {
                self.items.push(Item::Pause(other));
            }
        }
        let trips = u64::from(received && (self.asked || waited != (0, 0)));
        self.asked = !received;
        match self.items.last_mut() {
            Some(Item::Network { bytes: known, round_trips }) => {
                *known += bytes;
                *round_trips += trips;
            }
            _ => self.items.push(Item::Network { bytes, round_trips: trips }),
        }
        waited
    }
}

/// Items that go after others: signals to threads that have to wait.
#[derive(Debug, Default)]
pub(super) struct Behind(Vec<(Place, Item)>);

impl Behind {
    pub fn add(&mut self, place: Place, item: Item) {
        self.0.push((place, item));
    }

    /// Puts all of them in.
    pub fn put_in(mut self, threads: &mut [Thread]) {
        self.0.sort_by_key(|(place, _)| (place.thread, place.item));
        let mut behind = self.0.into_iter().peekable();
        for (number, thread) in threads.iter_mut().enumerate() {
            let old = std::mem::take(&mut thread.items);
            for (at, item) in old.into_iter().enumerate() {
                thread.items.push(item);
                while let Some((place, _)) = behind.peek()
                    && *place == (Place { thread: number, item: at })
                {
                    thread.items.extend(behind.next().map(|(_, item)| item));
                }
            }
        }
    }
}
