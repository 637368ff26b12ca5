//! The states of a thread over time, without gaps or overlaps. A wait with several causes is divided into one part per cause.

use std::collections::BTreeMap;
use std::io::{self, Write};

use emmclab_base::Nanos;
use emmclab_host::{FileClass, MountId, WaitCategory, WaitReason};
use emmclab_perfetto::{Argument, ArgumentValue, SliceRow, TrackSlice, TrackWriter};
use serde::{Serialize, Serializer};

/// The states of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ThreadState {
    /// The thread runs on a core.
    Running,
    /// The thread is ready to run, but all cores are busy.
    Core,
    /// The thread transfers data over the network.
    Network,
    /// The thread waits for data or metadata to be read from the device.
    Read,
    /// The thread waits until data is durable.
    Fsync,
    /// The thread's writes are throttled, because there is too much dirty data, or a queue or the journal is full.
    Throttled,
    /// The thread waits for another thread: for a signal, for a lock of the program or of a file, or for the thread's end.
    Thread,
    /// The thread pauses, for the think time of a user or for a timer.
    Think,
}

impl ThreadState {
    /// All thread states.
    pub const ALL: [Self; 8] =
        [Self::Running, Self::Core, Self::Network, Self::Read, Self::Fsync, Self::Throttled, Self::Thread, Self::Think];

    /// Names of the states in results and descriptions for users, in the order of the enum.
    const NAMES: [(&'static str, &'static str); 8] = [
        ("running", "running"),
        ("core", "waiting for a core"),
        ("network", "network"),
        ("read", "read"),
        ("fsync", "fsync"),
        ("throttled", "writes held back"),
        ("thread", "waiting for a thread"),
        ("think", "pause"),
    ];

    /// The name of the state in results.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }

    /// The description of the state for users.
    pub const fn description(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    const fn of(wait: WaitReason) -> Self {
        match wait.group() {
            WaitCategory::Read => Self::Read,
            WaitCategory::Fsync => Self::Fsync,
            WaitCategory::Throttled => Self::Throttled,
            WaitCategory::Lock => Self::Thread,
        }
    }
}

impl Serialize for ThreadState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// What a thread does: its state with details, such as the cause of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ThreadActivity {
    Running,
    Core,
    Network,
    /// A wait of a file operation: its cause, and class and mount of the file (`None` for `sync`, which applies to all files).
    Storage(WaitReason, Option<(FileClass, MountId)>),
    /// A wait for the thread with this number.
    Thread(u32),
    Think,
    /// The thread has not started, or has ended.
    Absent,
}

impl ThreadActivity {
    pub(crate) fn state(self) -> Option<ThreadState> {
        Some(match self {
            Self::Running => ThreadState::Running,
            Self::Core => ThreadState::Core,
            Self::Network => ThreadState::Network,
            Self::Storage(wait, _) => ThreadState::of(wait),
            Self::Thread(_) => ThreadState::Thread,
            Self::Think => ThreadState::Think,
            Self::Absent => return None,
        })
    }
}

/// A part of a timeline: the state of a thread from the end of the previous part until `end`.
#[derive(Clone, Copy, Debug)]
struct TimelinePart {
    end: Nanos,
    doing: ThreadActivity,
}

/// The timeline of a thread, beginning at time 0.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadTimeline(Vec<TimelinePart>);

impl ThreadTimeline {
    /// The end of the timeline.
    pub fn end(&self) -> Nanos {
        self.0.last().map_or(Nanos::ZERO, |part| part.end)
    }

    /// Appends a state that lasts from the current end until the time `until`.
    pub fn push(&mut self, doing: ThreadActivity, until: Nanos) {
        if until == self.end() {
            return;
        }
        match self.0.last_mut() {
            Some(last) if last.doing == doing => last.end = until,
            _ => self.0.push(TimelinePart { end: until, doing }),
        }
    }

    /// The parts of the timeline between two times, as start, end and activity.
    pub fn between(&self, from: Nanos, to: Nanos) -> impl Iterator<Item = (Nanos, Nanos, ThreadActivity)> + '_ {
        let first = self.0.partition_point(|part| part.end <= from);
        let begin = first.checked_sub(1).map_or(Nanos::ZERO, |before| self.0[before].end);
        let mut at = begin;
        self.0[first..]
            .iter()
            .map(move |part| {
                let begin = at.max(from);
                at = part.end;
                (begin, part.end.min(to), part.doing)
            })
            .take_while(move |(begin, ..)| *begin < to)
    }
}

/// The states of the thread that the user waits for. While a thread waits for another thread, the state of the other thread counts.
pub(crate) struct CriticalPath<'a> {
    threads: &'a [&'a ThreadTimeline],
    emit: &'a mut dyn FnMut(Nanos, Nanos, ThreadActivity),
}

impl<'a> CriticalPath<'a> {
    /// Calls `each` for each part of the critical path that ends with `thread` at time `end`, in order of time.
    pub fn of(threads: &'a [&'a ThreadTimeline], thread: u32, end: Nanos, each: &'a mut dyn FnMut(Nanos, Nanos, ThreadActivity)) {
        Self { threads, emit: each }.follow(thread, Nanos::ZERO, end, 0);
    }

    fn follow(&mut self, thread: u32, from: Nanos, to: Nanos, depth: usize) {
        let mut at = from;
        for (begin, end, doing) in self.threads[thread as usize].between(from, to) {
            at = end;
            match doing {
                // The depth limit ends the search if threads wait for each other in a cycle.
                ThreadActivity::Thread(other) if depth < self.threads.len() && (other as usize) < self.threads.len() => {
                    self.follow(other, begin, end, depth + 1);
                }
                // The awaited thread has not started yet, and it is unknown which thread will start it.
                ThreadActivity::Absent => (self.emit)(begin, end, ThreadActivity::Thread(thread)),
                doing => (self.emit)(begin, end, doing),
            }
        }
        if at < to {
            (self.emit)(at, to, ThreadActivity::Thread(thread));
        }
    }
}

/// Total time of each thread activity.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActivityTimes(BTreeMap<ThreadActivity, Nanos>);

impl ActivityTimes {
    pub fn add(&mut self, doing: ThreadActivity, time: Nanos) {
        *self.0.entry(doing).or_default() += time;
    }

    pub fn iter(&self) -> impl Iterator<Item = (ThreadActivity, Nanos)> + '_ {
        self.0.iter().map(|(doing, time)| (*doing, *time))
    }

    pub fn of(&self, state: ThreadState) -> Nanos {
        self.iter().filter(|(doing, _)| doing.state() == Some(state)).map(|(_, time)| time).sum()
    }
}

/// Process id of the program in Perfetto; the ids of its threads follow it.
const PID: i32 = 1_000;

/// The states of all threads of a run over time.
pub struct ThreadTimes {
    pub(crate) program: String,
    pub(crate) timelines: Vec<ThreadTimeline>,
    pub(crate) names: Vec<String>,
    pub(crate) partitions: Vec<String>,
    /// The thread that the user waits for.
    pub(crate) awaited_thread: u32,
    pub(crate) end: Nanos,
}

impl ThreadTimes {
    /// Draws the program as a process in a Perfetto trace: first the critical path, then its threads.
    /// Errors: if the output of `tracks` cannot be written.
    pub fn draw<W: Write>(&self, tracks: &mut TrackWriter<W>) -> io::Result<()> {
        let process = tracks.process(PID, &self.program)?;
        let mut path = SliceRow::new(tracks, process, "critical path");
        let all: Vec<_> = self.timelines.iter().collect();
        let mut drawn = Ok(());
        CriticalPath::of(&all, self.awaited_thread, self.end, &mut |begin, end, doing| {
            if drawn.is_ok() {
                drawn = self.part(tracks, &mut path, (begin, end, doing));
            }
        });
        drawn?;
        for ((tid, name), timeline) in (PID + 1..).zip(&self.names).zip(&self.timelines) {
            let thread = tracks.thread(process, (PID, tid), name)?;
            let mut row = SliceRow::of_thread(tracks, thread, name);
            let parts = timeline.between(Nanos::ZERO, self.end);
            parts.into_iter().try_for_each(|part| self.part(tracks, &mut row, part))?;
        }
        Ok(())
    }

    fn part<W: Write>(
        &self, tracks: &mut TrackWriter<W>, row: &mut SliceRow, (begin, end, doing): (Nanos, Nanos, ThreadActivity),
    ) -> io::Result<()> {
        let Some(state) = doing.state() else { return Ok(()) };
        let text = |name, text| (name, ArgumentValue::Text(text));
        let mut arguments: Vec<Argument<'_>> = Vec::new();
        match doing {
            ThreadActivity::Storage(wait, place) => {
                arguments.push(text("wait", wait.name()));
                if let Some((class, mount)) = place {
                    arguments.push(text("class", class.name()));
                    arguments.push(text("partition", &self.partitions[usize::from(mount.0)]));
                }
            }
            // If the awaited thread is unknown at the end of the run, its name is omitted.
            ThreadActivity::Thread(other) => {
                if let Some(name) = self.names.get(other as usize) {
                    arguments.push(text("thread", name));
                }
            }
            ThreadActivity::Running
            | ThreadActivity::Core
            | ThreadActivity::Network
            | ThreadActivity::Think
            | ThreadActivity::Absent => {}
        }
        let arguments = &arguments;
        row.slice(tracks, &TrackSlice { name: state.description(), category: state.name(), begin, end, arguments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(parts: &[(i64, ThreadActivity)]) -> ThreadTimeline {
        let mut out = ThreadTimeline::default();
        for (end, doing) in parts {
            out.push(*doing, Nanos(*end));
        }
        out
    }

    fn path(threads: &[&ThreadTimeline], end: i64) -> Vec<(i64, i64, ThreadActivity)> {
        let mut out = Vec::new();
        let mut push = |from: Nanos, to: Nanos, doing| out.push((from.0, to.0, doing));
        CriticalPath::of(threads, 0, Nanos(end), &mut push);
        out
    }

    #[test]
    fn a_wait_for_a_thread_is_what_that_thread_did() {
        let read = ThreadActivity::Storage(WaitReason::Read, None);
        let user = timeline(&[(10, ThreadActivity::Running), (50, ThreadActivity::Thread(1)), (60, ThreadActivity::Running)]);
        let worker = timeline(&[(20, ThreadActivity::Think), (30, ThreadActivity::Thread(2)), (50, ThreadActivity::Network)]);
        let third = timeline(&[(25, read), (90, ThreadActivity::Running)]);
        assert_eq!(
            path(&[&user, &worker, &third], 60),
            [
                (0, 10, ThreadActivity::Running),
                (10, 20, ThreadActivity::Think),
                (20, 25, read),
                (25, 30, ThreadActivity::Running),
                (30, 50, ThreadActivity::Network),
                (50, 60, ThreadActivity::Running),
            ]
        );
    }

    #[test]
    fn the_path_covers_the_run_where_the_other_thread_is_not_there() {
        let user = timeline(&[(10, ThreadActivity::Thread(1)), (12, ThreadActivity::Running)]);
        let late = timeline(&[(4, ThreadActivity::Absent), (8, ThreadActivity::Running)]);
        let parts = path(&[&user, &late], 12);
        let total: i64 = parts.iter().map(|(from, to, _)| to - from).sum();
        assert_eq!(total, 12);
        assert_eq!(parts[1], (4, 8, ThreadActivity::Running));
        assert_eq!(parts[2], (8, 10, ThreadActivity::Thread(1)));
    }

    #[test]
    fn equal_states_are_one_part_and_empty_ones_none() {
        let single = timeline(&[(5, ThreadActivity::Running), (5, ThreadActivity::Think), (9, ThreadActivity::Running)]);
        assert_eq!(single.0.len(), 1);
        assert_eq!(single.end(), Nanos(9));
    }
}
