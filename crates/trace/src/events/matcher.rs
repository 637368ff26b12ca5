//! From the kernel's events to requests, and to what happened around them.

use std::collections::HashMap;

use emmclab_base::{Flags, NameId, Nanos, Op, Request, SECTOR_BYTES};

use super::accounts::AccountedRequests;
use super::activity::{Activity, SyncCounts};
use super::command::{CommandEvent, CommandKind, CommandStep, Target};
use super::driver::DriverRequests;
use super::file::FsEvent;
use super::meter::Meter;
use super::scsi;
use super::tasks::Tasks;
use crate::ledger::Ledger;
use crate::names::Names;
use crate::pairing::{Event, EventKind, Pairer};
use crate::zones::{ZoneCommand, ZoneCommands};

/// The thread that writes a journal of ext4 is named `jbd2/DEVICE-INODE`.
const JOURNAL_THREAD: &[u8] = b"jbd2/";
/// Disks of MMC hosts that are looked through, and hosts whose disks are remembered.
const MOST_DISKS: usize = 64;

/// Requests without a block event after which the recording is taken to have none.
const ENOUGH: usize = 4096;
/// Commands in progress whose requests are remembered.
const MOST_COMMANDS: usize = 4096;

/// The events that requests are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Level {
    /// Not known yet: no block event was met.
    #[default]
    Unknown,
    /// Events of the block layer; those of drivers give times.
    Block,
    /// `block_io_start` and `block_io_done`.
    Accounted,
    /// Commands of drivers.
    Driver,
}

/// Matches the events of a recording to requests. Events come in order of time. Where the recording holds no block events,
/// the commands of the drivers become the requests.
#[derive(Debug, Default)]
pub struct Matcher {
    pairer: Pairer,
    level: Level,
    driver: DriverRequests,
    accounted: AccountedRequests,
    zones: ZoneCommands,
    meter: Meter,
    tasks: Tasks,
    mmc_disks: Vec<NameId>,
    scsi_disks: Vec<NameId>,
    /// The disk that a host's commands were found to go to.
    disk_of: HashMap<[u8; 16], NameId>,
    /// The requests of commands in progress, by host and command.
    under_way: HashMap<([u8; 16], u64), (NameId, u64, Op)>,
}

impl Matcher {
    /// For a recording that is known to be made with block events.
    pub fn of_block_events() -> Self {
        Self { level: Level::Block, ..Self::default() }
    }

    /// Registers a disk with its major number, so that [`Matcher::command`] can find the disk of a host.
    pub fn add_disk(&mut self, disk: NameId, major: u32) {
        let disks = match major {
            179 => &mut self.mmc_disks,
            8 | 65..=71 | 128..=135 => &mut self.scsi_disks,
            _ => return,
        };
        if disks.len() < MOST_DISKS && !disks.contains(&disk) {
            disks.push(disk);
        }
    }

    /// Takes an event of the block layer and appends the requests that it ends. `task` is the kernel's name of the
    /// task that ran, empty if unknown.
    pub fn block(&mut self, mut event: Event, task: &[u8], ledger: &mut Ledger, out: &mut Vec<Request>) {
        if !self.of_block_layer(ledger) {
            return;
        }
        self.learn_submitter(&mut event, task);
        self.pairer.feed(&event, ledger, out);
    }

    /// Whether requests are made of the events of the block layer, of which one was met.
    fn of_block_layer(&mut self, ledger: &mut Ledger) -> bool {
        match self.level {
            Level::Unknown => {
                self.level = Level::Block;
                self.driver.clear();
                self.accounted.clear(ledger);
            }
            Level::Block => {}
            Level::Driver | Level::Accounted => ledger.skipped += 1,
        }
        self.level == Level::Block
    }

    /// Takes the process from an event of its own, and the mark of a journal from its name.
    fn learn_submitter(&mut self, event: &mut Event, task: &[u8]) {
        if !event.kind.is_by_submitter() {
            (event.pid, event.process) = (None, None);
            return;
        }
        if let Some(pid) = event.pid {
            self.tasks.learn(pid, task);
        }
        if task.starts_with(JOURNAL_THREAD) {
            event.flags = event.flags.union(Flags::JOURNAL);
        }
    }

    /// Takes a step of a command to a zone, which is no request and is counted by its name.
    pub fn zone(&mut self, command: ZoneCommand, step: EventKind) {
        self.zones.see(command, step);
    }

    /// Takes `block_io_start` (as [`EventKind::Insert`]) or `block_io_done` (as [`EventKind::Complete`]), which say nothing new
    /// beside other block events.
    pub fn accounted(&mut self, mut event: Event, task: &[u8], ledger: &mut Ledger, out: &mut Vec<Request>) {
        if self.level == Level::Block || self.level == Level::Driver {
            ledger.skipped += 1;
            return;
        }
        self.learn_submitter(&mut event, task);
        if event.kind == EventKind::Complete {
            self.accounted.end(&event, ledger);
        } else {
            self.accounted.start(&event, ledger);
        }
        if self.level == Level::Accounted || self.accounted.len() >= ENOUGH {
            self.level = Level::Accounted;
            self.driver.clear();
            self.accounted.take(ledger, out);
        }
    }

    /// Takes a command of a driver. Beside block events it is counted, and its request gets the time at which the device got
    /// it; the events name the host, and where the disk behind it is unknown, it is the disk that has issued a request for this
    /// range. Without block events it becomes a request itself, of a device that is named in `devices` as its host.
    pub fn command(
        &mut self,
        time: Nanos,
        event: &CommandEvent,
        disk: Option<NameId>,
        devices: &mut Names,
        ledger: &mut Ledger,
        out: &mut Vec<Request>,
    ) {
        if event.host.starts_with(scsi::HOST) {
            // The commands of a UFS are counted by its controller's events, and block events tell more.
            if self.level == Level::Block {
                ledger.skipped += 1;
                return;
            }
        } else {
            self.meter.command(time, event);
        }
        if self.level == Level::Block {
            return self.submit(time, event, disk, ledger, out);
        }
        if self.level == Level::Accounted {
            return;
        }
        self.driver.command(time, event, ledger);
        let enough = self.accounted.is_empty() && self.driver.len() >= ENOUGH;
        if self.level == Level::Driver || enough {
            self.level = Level::Driver;
            self.driver.take(devices, ledger, out);
        }
    }

    /// Notes in the request that a command belongs to when the device got it, and when it was done with it.
    fn submit(
        &mut self,
        time: Nanos,
        event: &CommandEvent,
        disk: Option<NameId>,
        ledger: &mut Ledger,
        out: &mut Vec<Request>,
    ) {
        let command = (event.host, event.id);
        let CommandStep::Start { kind, bytes, target, .. } = event.step else {
            if let Some((device, sector, op)) = self.under_way.remove(&command)
                && !matches!(event.step, CommandStep::Done { again: true, .. })
            {
                self.pairer.served(device, sector, op, time);
            }
            return;
        };
        let op = match kind {
            CommandKind::Read => Op::Read,
            CommandKind::Write => Op::Write,
            _ => return,
        };
        let Some((device, sector)) = self.find_request(event.host, target, op, disk, ledger) else { return };
        let sectors = u32::try_from(bytes / SECTOR_BYTES).unwrap_or(u32::MAX);
        let (flags, pid, process) = (Flags::default(), None, None);
        let kind = EventKind::Submit;
        let event = Event { time, kind, device, op, flags, sector, sectors, pid, process };
        self.pairer.feed(&event, ledger, out);
        if self.under_way.len() >= MOST_COMMANDS {
            self.under_way.clear();
        }
        self.under_way.insert(command, (device, sector, op));
    }

    /// The disk and the first sector of the issued request that a command is for.
    fn find_request(
        &mut self,
        host: [u8; 16],
        target: Target,
        op: Op,
        disk: Option<NameId>,
        ledger: &mut Ledger,
    ) -> Option<(NameId, u64)> {
        /// Sectors of a logical block of UFS.
        const LONG_BLOCK: u64 = 8;
        match target {
            Target::Sectors { first, .. } => {
                let found = disk.or_else(|| self.find_disk(host, first, op, ledger))?;
                Some((found, first))
            }
            // In logical blocks, or in sectors: see the requests made of such commands.
            Target::Blocks { first, .. } => {
                [first.saturating_mul(LONG_BLOCK), first].into_iter().find_map(|sector| {
                    let mut disks = self.scsi_disks.iter().copied();
                    disks.find(|disk| self.pairer.has_issued(*disk, sector, op)).map(|disk| (disk, sector))
                })
            }
            _ => None,
        }
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
        let oldest = [self.pairer.oldest_open(), self.driver.oldest(), self.accounted.oldest()];
        oldest.into_iter().flatten().min()
    }

    /// Ends the recording: what is still open is unpaired, except where no completions were recorded.
    pub fn finish(&mut self, devices: &mut Names, ledger: &mut Ledger, out: &mut Vec<Request>) {
        self.pairer.finish(ledger, out);
        if self.accounted.is_empty() {
            self.driver.finish(ledger);
            self.driver.take(devices, ledger, out);
        } else {
            self.accounted.finish(ledger);
            self.accounted.take(ledger, out);
        }
    }

    /// What has to be known of the requests: how they were made where it was not of block events, and the commands to zones.
    pub fn note(&self) -> Option<String> {
        let made = self.accounted.note().or_else(|| self.driver.note());
        let notes: Vec<_> = made.into_iter().chain(self.zones.note()).collect();
        (!notes.is_empty()).then(|| notes.join("; "))
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
