//! From the kernel's events to requests, and to what happened around them.

use std::collections::HashMap;

use emmclab_base::{Flags, NameId, Nanos, Op, Request, SECTOR_BYTES};

use super::activity::{Activity, SyncCounts};
use super::command::{CommandEvent, CommandKind, CommandStep};
use super::file::FsEvent;
use super::meter::Meter;
use super::tasks::Tasks;
use crate::ledger::Ledger;
use crate::pairing::{Event, EventKind, Pairer};

/// The thread that writes a journal of ext4 is named `jbd2/DEVICE-INODE`.
const JOURNAL_THREAD: &[u8] = b"jbd2/";
/// Disks of MMC hosts that are looked through, and hosts whose disks are remembered.
const MOST_DISKS: usize = 64;

/// Matches the events of a recording to requests. Events come in order of time.
#[derive(Debug, Default)]
pub struct Matcher {
    pairer: Pairer,
    meter: Meter,
    tasks: Tasks,
    mmc_disks: Vec<NameId>,
    /// The disk that a host's commands were found to go to.
    disk_of: HashMap<[u8; 16], NameId>,
}

impl Matcher {
    /// Major number of the disks of MMC hosts.
    pub const MMC_MAJOR: u32 = 179;

    /// Notes a disk that the commands of MMC hosts may be for: [`Matcher::command`] then finds the disk itself.
    pub fn add_mmc_disk(&mut self, disk: NameId) {
        if self.mmc_disks.len() < MOST_DISKS && !self.mmc_disks.contains(&disk) {
            self.mmc_disks.push(disk);
        }
    }

    /// Takes an event of the block layer and appends the requests that it ends. `task` is the kernel's name of the
    /// task that ran, empty where unknown.
    pub fn block(&mut self, mut event: Event, task: &[u8], ledger: &mut Ledger, out: &mut Vec<Request>) {
        if event.kind.is_by_submitter() {
            if let Some(pid) = event.pid {
                self.tasks.learn(pid, task);
            }
            if task.starts_with(JOURNAL_THREAD) {
                event.flags = event.flags.union(Flags::JOURNAL);
            }
        } else {
            (event.pid, event.process) = (None, None);
        }
        self.pairer.feed(&event, ledger, out);
    }

    /// Counts a command, and notes in its request the time at which the device got it. The events name the host; where the
    /// disk behind it is unknown, it is the disk that has issued a request for this range.
    pub fn command(
        &mut self,
        time: Nanos,
        event: &CommandEvent,
        disk: Option<NameId>,
        ledger: &mut Ledger,
        out: &mut Vec<Request>,
    ) {
        self.meter.command(time, event);
        let CommandStep::Start { kind, bytes, sector: Some(sector), .. } = event.step else { return };
        let op = if kind == CommandKind::Write { Op::Write } else { Op::Read };
        let Some(device) = disk.or_else(|| self.find_disk(event.host, sector, op, ledger)) else { return };
        let sectors = u32::try_from(bytes / SECTOR_BYTES).unwrap_or(u32::MAX);
        let (flags, pid, process) = (Flags::default(), None, None);
        let kind = EventKind::Submit;
        let event = Event { time, kind, device, op, flags, sector, sectors, pid, process };
        self.pairer.feed(&event, ledger, out);
    }

    /// The MMC disk with an issued request at this sector. Of several it is the one that the host's commands went to
    /// before, and a choice that is counted.
    fn find_disk(&mut self, host: [u8; 16], sector: u64, op: Op, ledger: &mut Ledger) -> Option<NameId> {
        let known = self.disk_of.get(&host).copied();
        let has_it = |disk: &NameId| self.pairer.has_issued(*disk, sector, op);
        let mut having = self.mmc_disks.iter().copied().filter(has_it);
        let first = having.next()?;
        if having.next().is_some() {
            ledger.ambiguous += 1;
            return known.filter(has_it);
        }
        if self.disk_of.len() < MOST_DISKS || known.is_some() {
            self.disk_of.insert(host, first);
        }
        Some(first)
    }

    /// Counts an event of the file system on the mounted device of this name. `process` is its process, where the
    /// reader knows more than earlier events contained.
    pub fn file_system(&mut self, time: Nanos, event: &FsEvent, device: &str, process: Option<&str>) {
        self.meter.file_system(time, event, device, process.or_else(|| self.tasks.name(event.pid)));
    }

    /// Notes that an event of this task names it.
    pub fn learn_task(&mut self, pid: i32, name: &[u8]) {
        self.tasks.learn(pid, name);
    }

    /// Takes the lines `PID NAME` of `saved_cmdlines`, for tasks that no event named.
    pub fn learn_tasks(&mut self, saved: &str) {
        self.tasks.learn_list(saved);
    }

    /// Arrival of the oldest request that is still open.
    pub fn oldest_open(&self) -> Option<Nanos> {
        self.pairer.oldest_open()
    }

    /// Ends the recording: what is still open is unpaired, except where the device's completions were not recorded.
    pub fn finish(&mut self, ledger: &mut Ledger, out: &mut Vec<Request>) {
        self.pairer.finish(ledger, out);
    }

    /// Takes the waits for durability since the last call.
    pub fn take_syncs(&mut self) -> Vec<SyncCounts> {
        let Self { meter, tasks, .. } = self;
        meter.take_syncs(|pid| tasks.name(pid).map(str::to_owned))
    }

    /// The activity so far beside the requests. `name_of` knows the processes of tasks that no event named.
    pub fn activity(&self, name_of: impl Fn(i32) -> Option<String>) -> Activity {
        self.meter.activity(|pid| name_of(pid).or_else(|| self.tasks.name(pid).map(str::to_owned)))
    }
}
