//! Counts commands, syncs and commits as they come.

use std::collections::{BTreeMap, HashMap};

use emmclab_trace::{Bytes, Nanos};

use crate::activity::{Activity, CommandCounts, HostActivity, JournalCounts, SyncCounts};
use crate::block_event::unfilled;
use crate::command_event::{CommandEvent, CommandKind, CommandStep};
use crate::fs_event::{FsEvent, FsStep};
use crate::tasks::Tasks;

/// Commands or calls that may be open at a time; more are left overs of lost events.
const MOST_OPEN: usize = 4096;
/// Rows of processes; what further ones do is counted together, without a name.
const MOST_ROWS: usize = 4096;

/// Counts of a recording.
#[derive(Default)]
pub(crate) struct ActivityMeter {
    hosts: BTreeMap<[u8; 16], Host>,
    /// When the call of a task began.
    open_syncs: HashMap<i32, Nanos>,
    syncs: Syncs,
    /// Those since they were last taken.
    recent: Syncs,
    journals: BTreeMap<String, JournalCounts>,
}

type Syncs = BTreeMap<(Task, &'static str), Sync>;

/// Whose row it is: by name as soon as that is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    Named(String),
    Number(i32),
}

#[derive(Clone, Copy, Default)]
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
        self.time += other.time;
        self.longest = self.longest.max(other.longest);
    }
}

#[derive(Default)]
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
            self.busy += time - self.busy_since;
        }
        let took = time - start;
        let row = self.kind(kind);
        row.errors += u64::from(failed);
        row.retries += u64::from(again);
        row.time += took;
        row.longest = row.longest.max(took);
    }
}

impl ActivityMeter {
    /// Counts the beginning or the end of a command.
    pub(crate) fn command(&mut self, time: Nanos, event: &CommandEvent) {
        let host = self.hosts.entry(event.host).or_default();
        match event.step {
            CommandStep::Start { kind, bytes, packed, reliable, .. } => {
                let row = host.kind(kind);
                row.count += 1;
                row.bytes += Bytes(bytes);
                row.packed += u64::from(packed);
                row.reliable += u64::from(reliable);
                host.start(time, event.id, kind);
            }
            CommandStep::Done { failed, again } => host.done(time, event.id, failed, again),
        }
    }

    /// Counts a file system's event on the mounted device of this name.
    pub(crate) fn file_system(&mut self, time: Nanos, event: &FsEvent, device: &str, tasks: &Tasks) {
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
                let took = time - begin;
                let call = Sync { calls: 1, errors: u64::from(failed), time: took, longest: took };
                self.sync(tasks.name(event.pid), event.pid, event.system, call);
            }
            FsStep::Commit { handles, blocks } => {
                if !self.journals.contains_key(device) {
                    let counts =
                        JournalCounts { device: device.to_owned(), commits: 0, handles: 0, blocks: 0 };
                    self.journals.insert(device.to_owned(), counts);
                }
                if let Some(counts) = self.journals.get_mut(device) {
                    counts.commits += 1;
                    counts.handles += handles;
                    counts.blocks += blocks;
                }
            }
        }
    }

    fn sync(&mut self, name: Option<&str>, pid: i32, system: &'static str, call: Sync) {
        let task = name.map_or(Task::Number(pid), |name| Task::Named(name.to_owned()));
        for syncs in [&mut self.syncs, &mut self.recent] {
            let mut key = (task.clone(), system);
            if syncs.len() >= MOST_ROWS && !syncs.contains_key(&key) {
                key.0 = Task::Named(String::new());
            }
            syncs.entry(key).or_default().add(call);
        }
    }

    /// Takes the syncs since the last call.
    pub(crate) fn take_syncs(&mut self, tasks: &Tasks) -> Vec<SyncCounts> {
        rows(&std::mem::take(&mut self.recent), tasks)
    }

    /// What was learned so far.
    pub(crate) fn activity(&self, tasks: &Tasks) -> Activity {
        let host = |(name, host): (&[u8; 16], &Host)| HostActivity {
            host: String::from_utf8_lossy(unfilled(name)).into_owned(),
            busy: host.busy,
            unpaired: host.unpaired + host.open.len() as u64,
            commands: host.kinds.values().cloned().collect(),
        };
        Activity {
            hosts: self.hosts.iter().map(host).collect(),
            syncs: rows(&self.syncs, tasks),
            journals: self.journals.values().cloned().collect(),
        }
    }
}

/// By process and file system, the most calls first.
fn rows(syncs: &Syncs, tasks: &Tasks) -> Vec<SyncCounts> {
    // A name may have become known after the call.
    let mut named: BTreeMap<(String, &str), Sync> = BTreeMap::new();
    for ((task, system), sync) in syncs {
        let name = match task {
            Task::Named(name) => name.clone(),
            Task::Number(pid) => tasks.name(*pid).map_or_else(|| format!("pid {pid}"), str::to_owned),
        };
        named.entry((name, system)).or_default().add(*sync);
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
    use crate::block_event::fixed;

    fn start(id: u64, kind: CommandKind) -> CommandEvent {
        let step = CommandStep::Start { kind, bytes: 4096, sector: None, packed: id == 2, reliable: false };
        CommandEvent { host: fixed(b"mmc0"), device: 1, id, step }
    }

    fn done(id: u64, failed: bool) -> CommandEvent {
        CommandEvent { step: CommandStep::Done { failed, again: failed }, ..start(id, CommandKind::Write) }
    }

    #[test]
    fn busy_time_is_that_in_which_any_command_is_under_way() {
        let mut meter = ActivityMeter::default();
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
        let activity = meter.activity(&Tasks::default());
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
        let mut meter = ActivityMeter::default();
        let mut tasks = Tasks::default();
        tasks.learn(7, b"sqlite3");
        let event = |pid, step| FsEvent { system: "ext4", device: 5, pid, step };
        for (time, pid, step) in [
            (10, 7, FsStep::SyncBegin),
            (15, 8, FsStep::SyncBegin),
            (40, 7, FsStep::SyncEnd { failed: false }),
            (50, 8, FsStep::SyncEnd { failed: true }),
            (60, 9, FsStep::SyncEnd { failed: false }),
            (70, 3, FsStep::Commit { handles: 4, blocks: 9 }),
        ] {
            meter.file_system(Nanos(time), &event(pid, step), "sda1", &tasks);
        }
        let recent = meter.take_syncs(&tasks);
        assert_eq!(recent.iter().map(|row| &*row.process).collect::<Vec<_>>(), ["pid 8", "sqlite3"]);
        assert!(meter.take_syncs(&tasks).is_empty());
        tasks.learn_list("7 renamed\n8 sqlite3\n");
        let activity = meter.activity(&tasks);
        let row = &activity.syncs[0];
        assert_eq!((activity.syncs.len(), &*row.process, row.calls, row.errors), (1, "sqlite3", 2, 1));
        assert_eq!((row.time, row.longest), (Nanos(30 + 35), Nanos(35)));
        assert_eq!(
            activity.journals,
            [JournalCounts { device: "sda1".into(), commits: 1, handles: 4, blocks: 9 }]
        );
    }
}
