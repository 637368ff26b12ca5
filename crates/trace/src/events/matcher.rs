//! Combines kernel events into requests, and counts other activity.

use std::collections::HashMap;

use super::activity_meter::ActivityMeter;
use super::command::SCSI_HOST;
use super::driver_requests::{AccountedRequests, DriverRequests};
use crate::{
    BlockEventKind, BlockLayerEvent, CommandEvent, CommandKind, CommandStep, CommandTarget, EventPairer, FsEvent, Ledger,
    LostEventsGap, NameId, NameTable, Nanos, Op, RecordedActivity, Request, RequestFlags, SECTOR_BYTES, SyncCounts, ZoneCommand,
    dev_t_label, fixed, unfilled,
};

/// Maximum number of MMC disks, and of SCSI disks. Also the maximum number of MMC hosts whose disk is known.
const MOST_DISKS: usize = 64;

/// Number of requests without a block event after which the recording is assumed to have no block events.
const ENOUGH: usize = 4096;
/// Maximum number of commands in progress whose requests are remembered.
const MOST_COMMANDS: usize = 4096;

/// The events from which requests are built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EventLevel {
    /// Not known: no block event was read so far.
    #[default]
    Unknown,
    /// Events of the block layer; events of drivers only add times.
    Block,
    /// The events `block_io_start` and `block_io_done`.
    Accounted,
    /// Commands of drivers.
    Driver,
}

/// Combines the events of a recording, in order of time, into requests. Without block events, the commands of drivers become requests.
#[derive(Debug, Default)]
pub struct EventMatcher {
    pairer: EventPairer,
    level: EventLevel,
    driver: DriverRequests,
    accounted: AccountedRequests,
    meter: ActivityMeter,
    tasks: TaskNames,
    mmc_disks: Vec<NameId>,
    scsi_disks: Vec<NameId>,
    /// The disk of each host, determined from its commands.
    disk_of: HashMap<[u8; 16], NameId>,
    /// The requests of commands in progress, by host and command id.
    under_way: HashMap<([u8; 16], u64), (NameId, u64, Op)>,
}

impl EventMatcher {
    /// A matcher for a recording that is known to have block events.
    pub fn of_block_events() -> Self {
        Self { level: EventLevel::Block, ..Self::default() }
    }

    /// Registers a disk and its major number, so that [`EventMatcher::command`] can determine the disk of a host.
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

    /// Handles an event of the block layer and appends the requests that it ends to `out`. `task` is the kernel's name of the
    /// running task; empty if it is not known.
    pub fn block(&mut self, mut event: BlockLayerEvent, task: &[u8], ledger: &mut Ledger, out: &mut Vec<Request>) {
        if !self.of_block_layer(ledger) {
            return;
        }
        self.learn_submitter(&mut event, task);
        self.pairer.feed(&event, ledger, out);
    }

    /// Whether requests are built from events of the block layer. Called for each such event. The answer is yes, unless [`ENOUGH`] requests
    /// from other events came before the first block-layer event.
    fn of_block_layer(&mut self, ledger: &mut Ledger) -> bool {
        match self.level {
            EventLevel::Unknown => {
                self.level = EventLevel::Block;
                self.driver.clear();
                self.accounted.clear(ledger);
            }
            EventLevel::Block => {}
            EventLevel::Driver | EventLevel::Accounted => ledger.skipped += 1,
        }
        self.level == EventLevel::Block
    }

    /// Removes the process from an event, unless such events always occur in the process that submitted the I/O. Sets
    /// [`RequestFlags::JOURNAL`] if this process is a journal thread.
    fn learn_submitter(&mut self, event: &mut BlockLayerEvent, task: &[u8]) {
        if !event.kind.is_by_submitter() {
            (event.pid, event.process) = (None, None);
            return;
        }
        if let Some(pid) = event.pid {
            self.tasks.learn(pid, task);
        }
        if task.starts_with(JOURNAL_THREAD) {
            event.flags = event.flags.union(RequestFlags::JOURNAL);
        }
    }

    /// Counts a step of a zone command, which is not a request.
    pub fn zone(&mut self, command: ZoneCommand, step: BlockEventKind) {
        self.pairer.special.zones.see(command, step);
    }

    /// Counts a step of a pass-through command of a program, which is not a request. `code` is its operation code, if it was recorded.
    pub fn packet(&mut self, code: Option<u8>, step: BlockEventKind) {
        self.pairer.special.packets.see(code, step);
    }

    /// Records that the device of this name passed I/O on to another device.
    pub(crate) fn remap(&mut self, from: &str, devices: &NameTable) {
        if let Some(device) = devices.id(from) {
            self.pairer.remap(device);
        }
    }

    /// The commands that programs passed through to a device, as text; `None` if there are none.
    pub fn packets(&self) -> Option<String> {
        self.pairer.special.packets_text()
    }

    /// Handles `block_io_start` (as [`BlockEventKind::Insert`]) or `block_io_done` (as [`BlockEventKind::Complete`]); both are
    /// ignored if the recording has other block events.
    pub fn accounted(&mut self, mut event: BlockLayerEvent, task: &[u8], ledger: &mut Ledger, out: &mut Vec<Request>) {
        if self.level == EventLevel::Block || self.level == EventLevel::Driver {
            ledger.skipped += 1;
            return;
        }
        self.learn_submitter(&mut event, task);
        if event.kind == BlockEventKind::Complete {
            self.accounted.end(&event, ledger);
        } else {
            self.accounted.start(&event, ledger);
        }
        if self.level == EventLevel::Accounted || self.accounted.len() >= ENOUGH {
            self.level = EventLevel::Accounted;
            self.driver.clear();
            self.accounted.take(ledger, out);
        }
    }

    /// Handles a command of a driver. If the recording has block events, the command is counted and sets the issue and served times of its
    /// request. If `disk` is `None`, the disk is the one with an issued request at the sector of the command. Without block events, the
    /// command itself becomes a request, whose device is named after the host in `devices`.
    pub fn command(
        &mut self, time: Nanos, event: &CommandEvent, disk: Option<NameId>, devices: &mut NameTable, ledger: &mut Ledger,
        out: &mut Vec<Request>,
    ) {
        if event.host.starts_with(SCSI_HOST) {
            // SCSI events are skipped here. UFS commands are counted by the events of the controller, and block events describe their
            // requests in more detail.
            if self.level == EventLevel::Block {
                ledger.skipped += 1;
                return;
            }
        } else {
            self.meter.command(time, event);
        }
        if self.level == EventLevel::Block {
            return self.submit(time, event, disk, ledger, out);
        }
        if self.level == EventLevel::Accounted {
            return;
        }
        self.driver.command(time, event, ledger);
        let enough = self.accounted.is_empty() && self.driver.len() >= ENOUGH;
        if self.level == EventLevel::Driver || enough {
            self.level = EventLevel::Driver;
            self.driver.take(devices, ledger, out);
        }
    }

    /// Sets the issue and served times of the request of a command.
    fn submit(&mut self, time: Nanos, event: &CommandEvent, disk: Option<NameId>, ledger: &mut Ledger, out: &mut Vec<Request>) {
        let command = (event.host, event.id);
        let CommandStep::Start { kind, bytes, target, .. } = event.step else {
            if let Some((device, sector, op)) = self.under_way.remove(&command)
                && !matches!(event.step, CommandStep::Done { will_be_repeated: true, .. })
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
        let (flags, pid, process) = (RequestFlags::default(), None, None);
        let kind = BlockEventKind::Submit;
        let (error, zeroes) = (0, false);
        let event = BlockLayerEvent { time, kind, device, op, flags, sector, sectors, pid, process, error, zeroes };
        self.pairer.feed(&event, ledger, out);
        if self.under_way.len() >= MOST_COMMANDS {
            self.under_way.clear();
        }
        self.under_way.insert(command, (device, sector, op));
    }

    /// Determines the disk and the first sector of the issued request to which a command belongs; `None` if there is no such request.
    fn find_request(
        &mut self, host: [u8; 16], target: CommandTarget, op: Op, disk: Option<NameId>, ledger: &mut Ledger,
    ) -> Option<(NameId, u64)> {
        /// Sectors of a logical block of UFS.
        const LONG_BLOCK: u64 = 8;
        match target {
            CommandTarget::Sectors { first, .. } => {
                let disk = disk.or_else(|| self.find_disk(host, first, op, ledger))?;
                Some((disk, first))
            }
            // The address is in logical blocks of 4 KiB or in sectors. The issued requests show which unit applies.
            CommandTarget::Blocks { first, .. } => [first.saturating_mul(LONG_BLOCK), first].into_iter().find_map(|sector| {
                let mut disks = self.scsi_disks.iter().copied();
                disks.find(|disk| self.pairer.has_issued(*disk, sector, op)).map(|disk| (disk, sector))
            }),
            _ => None,
        }
    }

    /// Returns the MMC disk that has an issued request at this sector. If several disks have one, counts the ambiguity, and returns the
    /// disk that was determined for this host earlier if it is among them.
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

    /// Counts an event of the file system on the mounted device of this name. `process` is the name of the process that caused the event,
    /// if the reader knows it from a source other than earlier events.
    pub fn file_system(&mut self, time: Nanos, event: &FsEvent, device: &str, process: Option<&str>) {
        self.meter.file_system(time, event, device, process.or_else(|| self.tasks.name(event.pid)));
    }

    /// Records that events were lost.
    pub fn lose(&mut self, gap: LostEventsGap) {
        self.meter.lose(gap);
    }

    /// Stores the name of a task that an event contains.
    pub fn learn_task(&mut self, pid: i32, name: &[u8]) {
        self.tasks.learn(pid, name);
    }

    /// Reads the lines `PID NAME` of `saved_cmdlines`, for tasks whose names no event contains.
    pub fn learn_tasks(&mut self, saved: &str) {
        self.tasks.learn_list(saved);
    }

    /// Arrival of the oldest open request.
    pub fn oldest_open(&self) -> Option<Nanos> {
        let oldest = [self.pairer.oldest_open(), self.driver.oldest(), self.accounted.oldest()];
        oldest.into_iter().flatten().min()
    }

    /// Ends the recording. Open requests are unpaired, unless the recording has no completions.
    pub fn finish(&mut self, devices: &mut NameTable, ledger: &mut Ledger, out: &mut Vec<Request>) {
        self.pairer.finish(ledger, out);
        if self.accounted.is_empty() {
            self.driver.finish(ledger);
            self.driver.take(devices, ledger, out);
        } else {
            self.accounted.finish(ledger);
            self.accounted.take(ledger, out);
        }
    }

    /// The note for the trace; `None` if there is nothing to note. It states the origin of requests that do not come from block events, and
    /// it counts zone commands, writes of zeroes, and errors.
    pub fn note(&self) -> Option<String> {
        let origin = self.accounted.note().or_else(|| self.driver.note());
        let notes: Vec<_> = origin.into_iter().chain(self.pairer.special.note()).collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    /// Returns the waits for durability since the last call.
    pub fn take_syncs(&mut self) -> Vec<SyncCounts> {
        let Self { meter, tasks, .. } = self;
        meter.take_syncs(|pid| tasks.name(pid).map(str::to_owned))
    }

    /// The recorded activity up to now, without the requests. `name_of` returns the name of a task if no event contains the name.
    pub fn activity(&self, name_of: impl Fn(i32) -> Option<String>) -> RecordedActivity {
        let name = |pid| name_of(pid).or_else(|| self.tasks.name(pid).map(str::to_owned));
        self.meter.activity(name, self.tasks.iter())
    }
}

/// Maximum number of tasks; when it is exceeded, all names are dropped and learned again.
const MOST_TASKS: usize = 1 << 16;

/// Names of tasks, from events and from the list that the kernel saves.
#[derive(Debug, Default)]
pub(super) struct TaskNames {
    names: HashMap<i32, [u8; 16]>,
    /// Id and name of the last task, because consecutive events are often of the same task.
    last: (i32, [u8; 16]),
}

impl TaskNames {
    #[inline]
    pub(super) fn learn(&mut self, pid: i32, name: &[u8]) {
        let name = fixed(name);
        if name[0] == 0 || self.last == (pid, name) {
            return;
        }
        self.last = (pid, name);
        if self.names.len() >= MOST_TASKS && !self.names.contains_key(&pid) {
            self.names.clear();
        }
        self.names.insert(pid, name);
    }

    /// Reads the lines `PID NAME` of `saved_cmdlines`, for tasks whose names no event contains.
    pub(super) fn learn_list(&mut self, text: &str) {
        for line in text.lines() {
            let Some((pid, name)) = line.trim_start().split_once(' ') else { continue };
            if let Ok(pid) = pid.parse::<i32>()
                && !self.names.contains_key(&pid)
            {
                self.learn(pid, name.as_bytes());
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (i32, &[u8])> {
        self.names.iter().map(|(pid, name)| (*pid, unfilled(name)))
    }

    pub(super) fn name(&self, pid: i32) -> Option<&str> {
        self.names.get(&pid).and_then(|name| std::str::from_utf8(unfilled(name)).ok())
    }
}

/// Number of bytes of a task name that the kernel stores.
const LONGEST_NAME: usize = 15;

pub(super) const JOURNAL_THREAD: &[u8] = b"jbd2/";

/// Ids of the threads that write for the file system on a device, by their names. Source: the kernel's `fs/jbd2/journal.c`
/// (`jbd2/DEVICE-INODE`), `fs/f2fs/checkpoint.c` (`f2fs_ckpt-MAJOR:MINOR`) and `fs/f2fs/segment.c` (`f2fs_flush-MAJOR:MINOR`). The name of a journal thread contains the name of its device. If only the
/// number of the device is known, as in the kernel's text, the thread is returned only if the recording has a single one.
pub(super) fn writers_of(system: &str, number: u32, device: &str, tasks: &[(i32, &[u8])]) -> Vec<i32> {
    let named = |is_name: &dyn Fn(&[u8]) -> bool| -> Vec<i32> {
        let mut pids: Vec<_> = tasks.iter().filter(|(_, task)| is_name(task)).map(|(pid, _)| *pid).collect();
        pids.sort_unstable();
        pids
    };
    match system {
        "ext4" if device == dev_t_label(number) => {
            let journals = named(&|task| task.starts_with(JOURNAL_THREAD));
            if journals.len() == 1 { journals } else { Vec::new() }
        }
        "ext4" => {
            let begin = format!("jbd2/{device}-");
            named(&|task| task.starts_with(stored(&begin)))
        }
        "f2fs" => {
            let of_device = format!("{}:{}", number >> 20, number & 0xf_ffff);
            let names = [format!("f2fs_ckpt-{of_device}"), format!("f2fs_flush-{of_device}")];
            named(&|task| names.iter().any(|name| task == stored(name)))
        }
        _ => Vec::new(),
    }
}

/// The part of a task name that the kernel stores.
fn stored(name: &str) -> &[u8] {
    &name.as_bytes()[..name.len().min(LONGEST_NAME)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASKS: [(i32, &[u8]); 5] =
        [(1, b"jbd2/dm-5-8"), (2, b"jbd2/mmcblk0p30"), (3, b"f2fs_ckpt-254:5"), (4, b"f2fs_flush-254:"), (5, b"jbd2/dm-51-8")];

    #[test]
    fn threads_belong_to_a_device_by_their_names_also_where_the_kernel_cuts_them() {
        for (system, (major, minor), device, pids) in [
            ("ext4", (254, 5), "dm-5", &[1][..]),
            ("ext4", (179, 30), "mmcblk0p30", &[2]),
            ("ext4", (179, 3), "mmcblk0p3", &[]),
            ("ext4", (254, 6), "dm-6", &[]),
            ("ext4", (254, 5), "254,5", &[]),
            ("f2fs", (254, 5), "254,5", &[3, 4]),
            ("f2fs", (254, 6), "dm-6", &[4]),
            ("f2fs", (8, 0), "sda", &[]),
        ] {
            assert_eq!(writers_of(system, major << 20 | minor, device, &TASKS), pids, "{system} {device}");
        }
    }

    #[test]
    fn a_device_without_a_name_has_the_only_journal() {
        assert_eq!(writers_of("ext4", (254 << 20) + 5, "254,5", &TASKS[..1]), [1]);
    }
}
