//! Counts commands, syncs and journal commits from their events.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use emmclab_base::{Bytes, Nanos};

use super::activity::{Activity, CommandCounts, HostActivity, JournalCounts, SyncCounts, SyncStall};
use super::command::{CommandEvent, CommandKind, CommandStep};
use super::file::{FsEvent, FsStep};
use crate::names::unfilled;

/// Maximum number of open commands or calls; if there are more, the ends of some were lost.
const MOST_OPEN: usize = 4096;
/// Maximum number of rows of processes, hosts or journals; further ones are counted together, without a name.
const MOST_ROWS: usize = 4096;
/// Number of waits for durability that are kept individually, which are the longest.
const MOST_STALLS: usize = 256;

/// The counts of a recording.
#[derive(Debug, Default)]
pub(super) struct Meter {
    hosts: BTreeMap<[u8; 16], Host>,
    /// Time at which the open call of a task began.
    open_syncs: HashMap<i32, Nanos>,
    syncs: Syncs,
    /// The syncs since the last [`Meter::take_syncs`].
    recent: Syncs,
    /// The longest waits, with the shortest of them on top.
    stalls: BinaryHeap<Reverse<Stall>>,
    journals: BTreeMap<String, Journal>,
}

/// The entry of this name, or the one without a name if there are [`MOST_ROWS`] already.
fn place<K: Ord + Default, V: Default>(rows: &mut BTreeMap<K, V>, name: K) -> &mut V {
    let full = rows.len() >= MOST_ROWS && !rows.contains_key(&name);
    rows.entry(if full { K::default() } else { name }).or_default()
}

#[derive(Debug, Default)]
struct Journal {
    commits: u64,
    handles: u64,
    blocks: u64,
}

type Syncs = BTreeMap<(Task, &'static str), Sync>;

/// The task of a row, by its name if it was known, otherwise by its id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    Named(String),
    Number(i32),
}

impl Task {
    /// The name of the task, as known now, or `pid N`.
    fn name(&self, name_of: impl Fn(i32) -> Option<String>) -> String {
        match self {
            Task::Named(name) => name.clone(),
            Task::Number(pid) => name_of(*pid).unwrap_or_else(|| format!("pid {pid}")),
        }
    }
}

/// One wait of a task. The order is by length first, so that the longest are kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Stall {
    time: Nanos,
    start: Nanos,
    task: Task,
    system: &'static str,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sync {
    calls: u64,
    errors: u64,
    time: Nanos,
    longest: Nanos,
}

impl Sync {
    fn add(&mut self, other: Sync) {
        self.calls += other.calls;
        self.errors += other.errors;
        self.time = sum(self.time, other.time);
        self.longest = self.longest.max(other.longest);
    }
}

/// The time between two events; 0 if the second is before the first.
fn between(begin: Nanos, end: Nanos) -> Nanos {
    Nanos(end.0.saturating_sub(begin.0).max(0))
}

fn sum(a: Nanos, b: Nanos) -> Nanos {
    Nanos(a.0.saturating_add(b.0))
}

#[derive(Debug, Default)]
struct Host {
    open: HashMap<u64, (Nanos, CommandKind)>,
    busy_since: Nanos,
    busy: Nanos,
    unpaired: u64,
    kinds: BTreeMap<CommandKind, CommandCounts>,
}

impl Host {
    fn kind(&mut self, kind: CommandKind) -> &mut CommandCounts {
        self.kinds.entry(kind).or_insert(CommandCounts {
            kind,
            count: 0,
            bytes: Bytes(0),
            packed: 0,
            reliable: 0,
            retries: 0,
            errors: 0,
            time: Nanos::ZERO,
            longest: Nanos::ZERO,
        })
    }

    fn start(&mut self, time: Nanos, id: u64, kind: CommandKind) {
        if self.open.is_empty() {
            self.busy_since = time;
        }
        if self.open.len() >= MOST_OPEN {
            self.unpaired += self.open.drain().count() as u64;
        }
        self.unpaired += u64::from(self.open.insert(id, (time, kind)).is_some());
    }

    fn done(&mut self, time: Nanos, id: u64, failed: bool, again: bool) {
        let Some((start, kind)) = self.open.remove(&id) else {
            self.unpaired += 1;
            return;
        };
        if self.open.is_empty() {
            self.busy = sum(self.busy, between(self.busy_since, time));
        }
        let took = between(start, time);
        let row = self.kind(kind);
        row.errors += u64::from(failed);
        row.retries += u64::from(again);
        row.time = sum(row.time, took);
        row.longest = row.longest.max(took);
    }
}

impl Meter {
    /// Counts the start or end of a command.
    pub(super) fn command(&mut self, time: Nanos, event: &CommandEvent) {
        let host = place(&mut self.hosts, event.host);
        match event.step {
            CommandStep::Start { kind, bytes, packed, reliable, .. } => {
                let row = host.kind(kind);
                row.count += 1;
                row.bytes = Bytes(row.bytes.0.saturating_add(bytes));
                row.packed += u64::from(packed);
                row.reliable += u64::from(reliable);
                host.start(time, event.id, kind);
            }
            CommandStep::Done { failed, again } => host.done(time, event.id, failed, again),
        }
    }

    /// Counts an event of a file system. `device` is the name of the mounted device, `task` the name of the task.
    pub(super) fn file_system(&mut self, time: Nanos, event: &FsEvent, device: &str, task: Option<&str>) {
        match event.step {
            FsStep::SyncBegin => {
                if self.open_syncs.len() >= MOST_OPEN {
                    self.open_syncs.clear();
                }
                self.open_syncs.insert(event.pid, time);
            }
            FsStep::SyncEnd { failed } => {
                // A call that began before the recording has no duration, and is left out.
                let Some(begin) = self.open_syncs.remove(&event.pid) else { return };
                let took = between(begin, time);
                let call = Sync { calls: 1, errors: u64::from(failed), time: took, longest: took };
                let task = task.map_or(Task::Number(event.pid), |name| Task::Named(name.to_owned()));
                for syncs in [&mut self.syncs, &mut self.recent] {
                    let mut key = (task.clone(), event.system);
                    if syncs.len() >= MOST_ROWS && !syncs.contains_key(&key) {
                        key.0 = Task::Named(String::new());
                    }
                    syncs.entry(key).or_default().add(call);
                }
                self.keep_stall(Stall { time: took, start: begin, task, system: event.system });
            }
            FsStep::Commit { handles, blocks } => {
                let journal = place(&mut self.journals, device.to_owned());
                journal.commits += 1;
                journal.handles = journal.handles.saturating_add(handles);
                journal.blocks = journal.blocks.saturating_add(blocks);
            }
        }
    }

    /// Keeps a wait if it is one of the longest.
    fn keep_stall(&mut self, stall: Stall) {
        if self.stalls.len() >= MOST_STALLS {
            match self.stalls.peek() {
                Some(Reverse(shortest)) if *shortest < stall => drop(self.stalls.pop()),
                _ => return,
            }
        }
        self.stalls.push(Reverse(stall));
    }

    /// Returns the syncs since the last call.
    pub(super) fn take_syncs(&mut self, name_of: impl Fn(i32) -> Option<String>) -> Vec<SyncCounts> {
        if self.recent.is_empty() { Vec::new() } else { rows(&std::mem::take(&mut self.recent), name_of) }
    }

    /// The activity so far. `name_of` returns the names of tasks that had no name when they were counted.
    pub(super) fn activity(&self, name_of: impl Fn(i32) -> Option<String>) -> Activity {
        let host = |(name, host): (&[u8; 16], &Host)| HostActivity {
            host: String::from_utf8_lossy(unfilled(name)).into_owned(),
            busy: host.busy,
            unpaired: host.unpaired + host.open.len() as u64,
            commands: host.kinds.values().cloned().collect(),
        };
        let journal = |(device, journal): (&String, &Journal)| JournalCounts {
            device: device.clone(),
            commits: journal.commits,
            handles: journal.handles,
            blocks: journal.blocks,
        };
        Activity {
            hosts: self.hosts.iter().map(host).collect(),
            syncs: rows(&self.syncs, &name_of),
            stalls: stalls(&self.stalls, &name_of),
            journals: self.journals.iter().map(journal).collect(),
        }
    }
}

/// The longest waits, in order of their starts.
fn stalls(stalls: &BinaryHeap<Reverse<Stall>>, name_of: impl Fn(i32) -> Option<String>) -> Vec<SyncStall> {
    let row = |Reverse(stall): &Reverse<Stall>| SyncStall {
        process: stall.task.name(&name_of),
        file_system: stall.system.to_owned(),
        start: stall.start,
        time: stall.time,
    };
    let mut rows: Vec<_> = stalls.iter().map(row).collect();
    rows.sort_by(|a, b| (a.start, a.time, &a.process).cmp(&(b.start, b.time, &b.process)));
    rows
}

/// The syncs by process and file system, the most calls first.
fn rows(syncs: &Syncs, name_of: impl Fn(i32) -> Option<String>) -> Vec<SyncCounts> {
    // The name of a task may have become known after the call.
    let mut named: BTreeMap<(String, &str), Sync> = BTreeMap::new();
    for ((task, system), sync) in syncs {
        named.entry((task.name(&name_of), system)).or_default().add(*sync);
    }
    let mut rows: Vec<_> = named
        .into_iter()
        .map(|((process, system), sync)| SyncCounts {
            process,
            file_system: system.to_owned(),
            calls: sync.calls,
            errors: sync.errors,
            time: sync.time,
            longest: sync.longest,
        })
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.calls));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Target;
    use crate::names::fixed;

    fn start(id: u64, kind: CommandKind) -> CommandEvent {
        let step = CommandStep::Start {
            kind,
            bytes: 4096,
            target: Target::Nowhere,
            packed: id == 2,
            reliable: false,
        };
        CommandEvent { host: fixed(b"mmc0"), id, step }
    }

    fn done(id: u64, failed: bool) -> CommandEvent {
        CommandEvent { step: CommandStep::Done { failed, again: failed }, ..start(id, CommandKind::Write) }
    }

    #[test]
    fn busy_time_is_that_in_which_any_command_is_under_way() {
        let mut meter = Meter::default();
        for (time, event) in [
            (100, start(1, CommandKind::Write)),
            (150, start(2, CommandKind::Write)),
            (200, done(1, false)),
            (300, done(2, true)),
            (1000, start(3, CommandKind::Flush)),
            (1400, done(3, false)),
            (1500, done(9, false)),
            (1600, start(4, CommandKind::Read)),
        ] {
            meter.command(Nanos(time), &event);
        }
        let activity = meter.activity(|_| None);
        let host = &activity.hosts[0];
        assert_eq!((&*host.host, host.busy, host.unpaired), ("mmc0", Nanos(200 + 400), 2));
        let kinds: Vec<_> = host.commands.iter().map(|row| (row.kind, row.count)).collect();
        assert_eq!(kinds, [(CommandKind::Read, 1), (CommandKind::Write, 2), (CommandKind::Flush, 1)]);
        let writes = &host.commands[1];
        assert_eq!((writes.bytes, writes.packed, writes.errors, writes.retries), (Bytes(8192), 1, 1, 1));
        assert_eq!((writes.time, writes.longest), (Nanos(100 + 150), Nanos(150)));
    }

    #[test]
    fn a_sync_is_its_process_s_also_where_the_name_comes_later() {
        let mut meter = Meter::default();
        let event = |pid, step| FsEvent { system: "ext4", device: 5, pid, step };
        for (time, pid, step) in [
            (10, 7, FsStep::SyncBegin),
            (15, 8, FsStep::SyncBegin),
            (40, 7, FsStep::SyncEnd { failed: false }),
            (50, 8, FsStep::SyncEnd { failed: true }),
            (60, 9, FsStep::SyncEnd { failed: false }),
            (70, 3, FsStep::Commit { handles: 4, blocks: 9 }),
        ] {
            meter.file_system(Nanos(time), &event(pid, step), "sda1", (pid == 7).then_some("sqlite3"));
        }
        let recent = meter.take_syncs(|_| None);
        assert_eq!(recent.iter().map(|row| &*row.process).collect::<Vec<_>>(), ["pid 8", "sqlite3"]);
        assert!(meter.take_syncs(|_| None).is_empty());
        let activity = meter.activity(|pid| (pid == 8).then(|| "sqlite3".to_owned()));
        let row = &activity.syncs[0];
        assert_eq!((activity.syncs.len(), &*row.process, row.calls, row.errors), (1, "sqlite3", 2, 1));
        assert_eq!((row.time, row.longest), (Nanos(30 + 35), Nanos(35)));
        let stalls: Vec<_> =
            activity.stalls.iter().map(|stall| (&*stall.process, stall.start, stall.time)).collect();
        assert_eq!(stalls, [("sqlite3", Nanos(10), Nanos(30)), ("sqlite3", Nanos(15), Nanos(35))]);
        assert_eq!(Activity::from_json(&activity.to_json().unwrap_or_default()), Some(activity.clone()));
        assert_eq!(
            activity.journals,
            [JournalCounts { device: "sda1".into(), commits: 1, handles: 4, blocks: 9 }]
        );
    }

    #[test]
    fn of_very_many_waits_the_longest_stay_each_with_its_time() {
        let mut meter = Meter::default();
        let event = |step| FsEvent { system: "f2fs", device: 5, pid: 1, step };
        for i in 0..3 * MOST_STALLS as i64 {
            // 7 is prime to 768, so that each length occurs once.
            let (start, time) = (10_000 * i, 7 * i % 768);
            meter.file_system(Nanos(start), &event(FsStep::SyncBegin), "sda1", Some("app"));
            meter.file_system(
                Nanos(start + time),
                &event(FsStep::SyncEnd { failed: false }),
                "sda1",
                Some("app"),
            );
        }
        let activity = meter.activity(|_| None);
        assert_eq!((activity.syncs[0].calls, activity.stalls.len()), (768, MOST_STALLS));
        assert!(activity.stalls.is_sorted_by_key(|stall| stall.start));
        assert!(
            activity
                .stalls
                .iter()
                .all(|stall| stall.time.0 >= 512 && stall.time.0 == 7 * (stall.start.0 / 10_000) % 768)
        );
    }
}
