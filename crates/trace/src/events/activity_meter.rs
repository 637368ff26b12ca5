//! Counts commands, syncs and journal commits from their events.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};

use super::matcher::writers_of;
use crate::{
    ByteCount, CommandCounts, CommandEvent, CommandKind, CommandStep, FsEvent, FsStep, FsWriterThreads, HostActivity,
    JournalCounts, LostEventsGap, Nanos, RecordedActivity, SyncCounts, SyncWait, UnfinishedWait, unfilled,
};

/// Maximum number of open commands or calls; a greater number means that events of their ends were lost.
const MOST_OPEN: usize = 4096;
/// Maximum number of rows of processes, hosts or journals; further ones share a row without a name.
const MOST_ROWS: usize = 4096;
/// Maximum number of periods with lost events; further periods extend the last one.
const MOST_GAPS: usize = 4096;
/// Maximum number of waits for durability, and of commits, that are kept individually. The longest ones are kept.
const MOST_KEPT: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct ActivityMeter {
    hosts: BTreeMap<[u8; 16], HostCommandCounters>,
    /// The sync call in progress of each task, by the id of the task.
    open_syncs: HashMap<i32, OpenSync>,
    syncs: Syncs,
    /// The syncs since the last [`ActivityMeter::take_syncs`].
    recent: Syncs,
    waits: LongestDurations<TimedSyncWait>,
    /// Names of mounted devices by device number.
    devices: BTreeMap<u32, String>,
    journals: BTreeMap<String, JournalCounters>,
    commits: LongestDurations<TimedCommit>,
    gaps: Vec<LostEventsGap>,
}

#[derive(Clone, Copy, Debug)]
struct OpenSync {
    begin: Nanos,
    system: &'static str,
    device: u32,
}

/// The largest of the values that were added, in bounded number.
#[derive(Debug)]
struct LongestDurations<T>(BinaryHeap<Reverse<T>>);

impl<T: Ord> Default for LongestDurations<T> {
    fn default() -> Self {
        Self(BinaryHeap::new())
    }
}

impl<T: Ord> LongestDurations<T> {
    /// Keeps a value if it is one of the largest.
    fn keep(&mut self, value: T) {
        if self.0.len() >= MOST_KEPT {
            match self.0.peek() {
                Some(Reverse(smallest)) if *smallest < value => drop(self.0.pop()),
                _ => return,
            }
        }
        self.0.push(Reverse(value));
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|Reverse(value)| value)
    }
}

/// The entry with this name; the entry without a name if there are already [`MOST_ROWS`] others.
fn entry_or_unnamed<K: Ord + Default, V: Default>(rows: &mut BTreeMap<K, V>, name: K) -> &mut V {
    let full = rows.len() >= MOST_ROWS && !rows.contains_key(&name);
    rows.entry(if full { K::default() } else { name }).or_default()
}

#[derive(Debug, Default)]
struct JournalCounters {
    commits: u64,
    handles: u64,
    blocks: u64,
    thread: Option<i32>,
    open: Option<Nanos>,
}

/// A commit of a journal. Its first field is the duration, by which commits are sorted to keep the longest ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TimedCommit {
    time: Nanos,
    start: Nanos,
    device: u32,
}

/// Counts by task and file system; the names in the counts are empty.
type Syncs = BTreeMap<(TaskKey, &'static str), SyncCounts>;

/// The task of a row: by name if it was known, otherwise by id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TaskKey {
    Named(String),
    Number(i32),
}

impl TaskKey {
    /// The name of the task if it is known by now, otherwise `pid N`.
    fn name(&self, name_of: impl Fn(i32) -> Option<String>) -> String {
        match self {
            TaskKey::Named(name) => name.clone(),
            TaskKey::Number(pid) => name_of(*pid).unwrap_or_else(|| format!("pid {pid}")),
        }
    }
}

/// A wait of a task. Waits are ordered by length, so that the longest ones are kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TimedSyncWait {
    time: Nanos,
    start: Nanos,
    task: TaskKey,
    pid: i32,
    system: &'static str,
    device: u32,
}

/// The time between two events; 0 if the second is before the first.
fn between(begin: Nanos, end: Nanos) -> Nanos {
    Nanos(end.0.saturating_sub(begin.0).max(0))
}

fn sum(a: Nanos, b: Nanos) -> Nanos {
    Nanos(a.0.saturating_add(b.0))
}

#[derive(Debug, Default)]
struct HostCommandCounters {
    open: HashMap<u64, (Nanos, CommandKind)>,
    busy_since: Nanos,
    busy: Nanos,
    unpaired: u64,
    kinds: BTreeMap<CommandKind, CommandCounts>,
}

impl HostCommandCounters {
    fn kind(&mut self, kind: CommandKind) -> &mut CommandCounts {
        self.kinds.entry(kind).or_insert(CommandCounts { kind, ..CommandCounts::default() })
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

    fn command_done(&mut self, time: Nanos, id: u64, failed: bool, repeated: bool) {
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
        row.retries += u64::from(repeated);
        row.time = sum(row.time, took);
        row.longest = row.longest.max(took);
    }
}

impl ActivityMeter {
    pub(super) fn command(&mut self, time: Nanos, event: &CommandEvent) {
        let host = entry_or_unnamed(&mut self.hosts, event.host);
        match event.step {
            CommandStep::Start { kind, bytes, packed, reliable, .. } => {
                let row = host.kind(kind);
                row.count += 1;
                row.bytes = ByteCount(row.bytes.0.saturating_add(bytes));
                row.packed += u64::from(packed);
                row.reliable += u64::from(reliable);
                host.start(time, event.id, kind);
            }
            CommandStep::Done { failed, will_be_repeated } => {
                host.command_done(time, event.id, failed, will_be_repeated);
            }
        }
    }

    /// Counts an event of a file system. `device` is the name of the mounted device, `task` the name of the task.
    pub(super) fn file_system(&mut self, time: Nanos, event: &FsEvent, device: &str, task: Option<&str>) {
        if self.devices.len() < MOST_ROWS && !self.devices.contains_key(&event.device) {
            self.devices.insert(event.device, device.to_owned());
        }
        match event.step {
            FsStep::SyncBegin => {
                if self.open_syncs.len() >= MOST_OPEN {
                    self.open_syncs.clear();
                }
                let open = OpenSync { begin: time, system: event.system, device: event.device };
                self.open_syncs.insert(event.pid, open);
            }
            FsStep::SyncEnd { failed } => {
                // A call that began before the recording has no duration and is omitted.
                let Some(OpenSync { begin, .. }) = self.open_syncs.remove(&event.pid) else { return };
                let took = between(begin, time);
                let errors = u64::from(failed);
                let call = SyncCounts { calls: 1, errors, time: took, longest: took, ..SyncCounts::default() };
                let task = task.map_or(TaskKey::Number(event.pid), |name| TaskKey::Named(name.to_owned()));
                for syncs in [&mut self.syncs, &mut self.recent] {
                    let mut key = (task.clone(), event.system);
                    if syncs.len() >= MOST_ROWS && !syncs.contains_key(&key) {
                        key.0 = TaskKey::Named(String::new());
                    }
                    syncs.entry(key).or_default().add(&call);
                }
                let (pid, system, device) = (event.pid, event.system, event.device);
                self.waits.keep(TimedSyncWait { time: took, start: begin, task, pid, system, device });
            }
            FsStep::CommitBegin | FsStep::CommitEnd | FsStep::Commit { .. } => {
                self.commit(time, event, device);
            }
        }
    }

    /// Counts an event of the thread of a journal.
    fn commit(&mut self, time: Nanos, event: &FsEvent, device: &str) {
        let journal = entry_or_unnamed(&mut self.journals, device.to_owned());
        journal.thread = Some(event.pid);
        match event.step {
            FsStep::Commit { handles, blocks } => {
                journal.commits += 1;
                journal.handles = journal.handles.saturating_add(handles);
                journal.blocks = journal.blocks.saturating_add(blocks);
            }
            FsStep::CommitBegin => journal.open = Some(time),
            FsStep::CommitEnd => {
                if let Some(start) = journal.open.take() {
                    self.commits.keep(TimedCommit { time: between(start, time), start, device: event.device });
                }
            }
            FsStep::SyncBegin | FsStep::SyncEnd { .. } => {}
        }
    }

    /// Returns the syncs since the last call, by process and file system.
    pub(super) fn take_syncs(&mut self, name_of: impl Fn(i32) -> Option<String>) -> Vec<SyncCounts> {
        if self.recent.is_empty() { Vec::new() } else { rows(&std::mem::take(&mut self.recent), name_of) }
    }

    /// Returns the activity so far. `tasks` contains the known names of tasks by id. `name_of` finds the name of a task that was unknown
    /// when it was counted.
    pub(super) fn activity<'a>(
        &self, name_of: impl Fn(i32) -> Option<String>, tasks: impl Iterator<Item = (i32, &'a [u8])>,
    ) -> RecordedActivity {
        let host = |(name, host): (&[u8; 16], &HostCommandCounters)| HostActivity {
            host: String::from_utf8_lossy(unfilled(name)).into_owned(),
            busy: host.busy,
            unpaired: host.unpaired + host.open.len() as u64,
            commands: host.kinds.values().cloned().collect(),
        };
        let mut commits: Vec<_> = self.commits.iter().copied().collect();
        commits.sort_by_key(|commit| (commit.start, commit.time));
        let journal = |(device, journal): (&String, &JournalCounters)| {
            let own = || commits.iter().filter(|commit| self.device(commit.device) == device);
            JournalCounts {
                device: device.clone(),
                commits: journal.commits,
                handles: journal.handles,
                blocks: journal.blocks,
                commit_starts: own().map(|commit| commit.start).collect(),
                commit_times: own().map(|commit| commit.time).collect(),
            }
        };
        let mut waits: Vec<_> = self.waits.iter().map(|wait| self.wait(wait, &name_of)).collect();
        waits.sort();
        let mut unfinished: Vec<_> = self
            .open_syncs
            .iter()
            .map(|(pid, open)| UnfinishedWait {
                process: TaskKey::Number(*pid).name(&name_of),
                pid: *pid,
                file_system: open.system.to_owned(),
                device: self.device(open.device).to_owned(),
                start: open.begin,
            })
            .collect();
        unfinished.sort_by_key(|wait| (wait.start, wait.pid));
        RecordedActivity {
            hosts: self.hosts.iter().map(host).collect(),
            syncs: rows(&self.syncs, &name_of),
            waits,
            unfinished,
            writers: self.writers(&tasks.collect::<Vec<_>>()),
            journals: self.journals.iter().map(journal).collect(),
            gaps: self.gaps.clone(),
        }
    }

    pub(super) fn lose(&mut self, gap: LostEventsGap) {
        if self.gaps.len() < MOST_GAPS {
            self.gaps.push(gap);
        } else if let Some(last) = self.gaps.last_mut() {
            last.from = last.from.min(gap.from);
            last.to = last.to.max(gap.to);
            last.events += gap.events;
        }
    }

    /// The name of a mounted device; empty if the table of names was full.
    fn device(&self, device: u32) -> &str {
        self.devices.get(&device).map_or("", String::as_str)
    }

    fn wait(&self, wait: &TimedSyncWait, name_of: impl Fn(i32) -> Option<String>) -> SyncWait {
        SyncWait {
            start: wait.start,
            time: wait.time,
            process: wait.task.name(name_of),
            pid: wait.pid,
            file_system: wait.system.to_owned(),
            device: self.device(wait.device).to_owned(),
        }
    }

    /// The kernel threads that write for the file systems on which processes waited.
    fn writers(&self, tasks: &[(i32, &[u8])]) -> Vec<FsWriterThreads> {
        let of_waits = self.waits.iter().map(|wait| (wait.system, wait.device)).collect::<BTreeSet<_>>();
        of_waits
            .into_iter()
            .map(|(system, number)| {
                let device = self.device(number);
                let journal = self.journals.get(device).and_then(|journal| journal.thread);
                let pids = journal.map_or_else(|| writers_of(system, number, device, tasks), |pid| vec![pid]);
                FsWriterThreads { file_system: system.to_owned(), device: device.to_owned(), pids }
            })
            .collect()
    }
}

/// The syncs by process and file system, most calls first.
fn rows(syncs: &Syncs, name_of: impl Fn(i32) -> Option<String>) -> Vec<SyncCounts> {
    // The name of a task may have become known only after its calls, so the rows are combined by name.
    let mut named: BTreeMap<(String, &str), SyncCounts> = BTreeMap::new();
    for ((task, system), sync) in syncs {
        named.entry((task.name(&name_of), system)).or_default().add(sync);
    }
    let row =
        |((process, system), sync): ((String, &str), SyncCounts)| SyncCounts { process, file_system: system.to_owned(), ..sync };
    let mut rows: Vec<_> = named.into_iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.calls));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::CommandTarget;
    use crate::name_table::fixed;

    fn start(id: u64, kind: CommandKind) -> CommandEvent {
        let step = CommandStep::Start { kind, bytes: 4096, target: CommandTarget::Nowhere, packed: id == 2, reliable: false };
        CommandEvent { host: fixed(b"mmc0"), id, step }
    }

    fn done(id: u64, failed: bool) -> CommandEvent {
        CommandEvent { step: CommandStep::Done { failed, will_be_repeated: failed }, ..start(id, CommandKind::Write) }
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
        let activity = meter.activity(|_| None, std::iter::empty());
        let host = &activity.hosts[0];
        assert_eq!((&*host.host, host.busy, host.unpaired), ("mmc0", Nanos(200 + 400), 2));
        let kinds: Vec<_> = host.commands.iter().map(|row| (row.kind, row.count)).collect();
        assert_eq!(kinds, [(CommandKind::Read, 1), (CommandKind::Write, 2), (CommandKind::Flush, 1)]);
        let writes = &host.commands[1];
        assert_eq!((writes.bytes, writes.packed, writes.errors, writes.retries), (ByteCount(8192), 1, 1, 1));
        assert_eq!((writes.time, writes.longest), (Nanos(100 + 150), Nanos(150)));
    }

    #[test]
    fn a_sync_is_its_process_s_also_where_the_name_comes_later() {
        let mut meter = ActivityMeter::default();
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
        let activity = meter.activity(|pid| (pid == 8).then(|| "sqlite3".to_owned()), std::iter::empty());
        let row = &activity.syncs[0];
        assert_eq!((activity.syncs.len(), &*row.process, row.calls, row.errors), (1, "sqlite3", 2, 1));
        assert_eq!((row.time, row.longest), (Nanos(30 + 35), Nanos(35)));
        let waits: Vec<_> = activity.waits.iter().map(|wait| (&*wait.process, wait.pid, wait.start, wait.time)).collect();
        assert_eq!(waits, [("sqlite3", 7, Nanos(10), Nanos(30)), ("sqlite3", 8, Nanos(15), Nanos(35))]);
        assert_eq!(RecordedActivity::from_json(&activity.to_json().unwrap_or_default()), Some(activity.clone()));
        let journal = &activity.journals[0];
        assert_eq!((&*journal.device, journal.commits, journal.handles, journal.blocks), ("sda1", 1, 4, 9));
    }

    #[test]
    fn a_commit_has_its_time_and_its_thread_and_a_wait_may_have_no_end() {
        let mut meter = ActivityMeter::default();
        let event = |system, pid, step| FsEvent { system, device: 8 << 20 | 1, pid, step };
        for (time, system, pid, step) in [
            (5, "jbd2", 3, FsStep::CommitEnd), // it began before the recording
            (10, "ext4", 7, FsStep::SyncBegin),
            (20, "jbd2", 3, FsStep::CommitBegin),
            (60, "jbd2", 3, FsStep::CommitEnd),
            (70, "ext4", 7, FsStep::SyncEnd { failed: false }),
            (80, "ext4", 7, FsStep::SyncBegin),
            (90, "jbd2", 3, FsStep::CommitBegin),
        ] {
            meter.file_system(Nanos(time), &event(system, pid, step), "sda1", None);
        }
        let activity = meter.activity(|_| None, std::iter::empty());
        let journal = &activity.journals[0];
        assert_eq!((&journal.commit_starts[..], &journal.commit_times[..]), (&[Nanos(20)][..], &[Nanos(40)][..]));
        let writers = FsWriterThreads { file_system: "ext4".into(), device: "sda1".into(), pids: vec![3] };
        assert_eq!(activity.writers, [writers]);
        assert_eq!((activity.waits.len(), activity.unfinished[0].start), (1, Nanos(80)));
        assert_eq!(RecordedActivity::from_json(&activity.to_json().unwrap_or_default()), Some(activity));
    }

    #[test]
    fn of_very_many_waits_the_longest_stay_each_with_its_time() {
        let mut meter = ActivityMeter::default();
        let event = |step| FsEvent { system: "f2fs", device: 5, pid: 1, step };
        let calls = MOST_KEPT as i64 + 512;
        for i in 0..calls {
            // 7 and the number of calls have no common factor, so each duration occurs exactly once.
            let (start, time) = (100_000 * i, 7 * i % calls);
            for (time, step) in [(start, FsStep::SyncBegin), (start + time, FsStep::SyncEnd { failed: false })] {
                meter.file_system(Nanos(time), &event(step), "sda1", Some("app"));
            }
        }
        let activity = meter.activity(|_| None, std::iter::empty());
        assert_eq!((activity.syncs[0].calls, activity.waits.len()), (calls as u64, MOST_KEPT));
        assert!(activity.waits.is_sorted_by_key(|wait| wait.start));
        let is_right = |wait: &SyncWait| wait.time.0 >= 512 && wait.time.0 == 7 * (wait.start.0 / 100_000) % calls;
        assert!(activity.waits.iter().all(is_right));
    }
}
