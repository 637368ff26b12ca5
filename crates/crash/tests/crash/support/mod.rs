//! Logs of a toy device, which are written by hand.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use emmclab_base::{Nanos, Op};
use emmclab_crash::log::{CommandPort, CrashLogHeader, CrashLogRecord, CrashLogWriter, DeviceFacts};
use emmclab_crash::{CrashLogIndex, CrashState, ExploreOptions, Explorer, RunEvent, TearMode};
use emmclab_device::CommandFlags;

pub const SECTOR: usize = 512;

/// Sectors of a block that are all filled with the same byte.
pub fn filled(byte: u8, sectors: u32) -> Vec<u8> {
    vec![byte; sectors as usize * SECTOR]
}

pub fn header(sectors: u64) -> CrashLogHeader {
    let device =
        DeviceFacts { name: "toy".to_owned(), sectors, unit_sectors: 8, lies: "none".to_owned(), ..DeviceFacts::default() };
    CrashLogHeader { device, sectors, cells: true, writer: "a test".to_owned(), ..CrashLogHeader::default() }
}

/// All methods of choosing states but those that do not use the state of the device.
pub const CHOSEN_WAYS: &str = "boundary,omit1:99,only1:99,pairs:20,random:20";
pub const ALL_WAYS: &str = "device,boundary,omit1:99,only1:99,pairs:20,random:20";

/// An exploration of all cuts with these methods of choosing states.
pub fn explorer(run: &Arc<CrashLogIndex>, ways: &str, tear: TearMode) -> Explorer {
    Explorer::new(run, &ExploreOptions { ways: ways.parse().unwrap(), tear, ..ExploreOptions::default() }).unwrap()
}

/// The index of an event in the moments of a run.
pub fn position(run: &CrashLogIndex, wanted: RunEvent) -> Option<usize> {
    run.moments().iter().position(|moment| moment.event == wanted)
}

/// The first sectors of the disk in a state.
pub fn disk_in(explorer: &Explorer, state: &CrashState, sectors: u32) -> Vec<u8> {
    let mut disk = filled(0, sectors);
    explorer.view(state).read(0, &mut disk).unwrap();
    disk
}

/// The first sectors of the disk in each state that is left to explore.
pub fn disks(mut explorer: Explorer, sectors: u32) -> Vec<Vec<u8>> {
    let mut disks = Vec::new();
    while let Some(state) = explorer.next_state() {
        disks.push(disk_in(&explorer, &state, sectors));
    }
    disks
}

/// Writes the log of a device, by one call for each event.
pub struct Toy {
    pub log: CrashLogWriter,
    pub now: i64,
    pub next: u64,
    /// For each block in the cache, the command whose data it contains.
    pub cache: BTreeMap<u64, u64>,
    /// Commands that are not complete, the oldest first.
    pub open: VecDeque<u64>,
}

impl Toy {
    pub fn new(path: &Path, header: &CrashLogHeader) -> Self {
        Self {
            log: CrashLogWriter::create(path, header).unwrap(),
            now: 0,
            next: 0,
            cache: BTreeMap::new(),
            open: VecDeque::new(),
        }
    }

    pub fn at(&mut self) -> Nanos {
        self.now += 1000;
        Nanos(self.now)
    }

    /// Logs the arrival of a command; returns its number.
    pub fn comes(&mut self, op: Op, sector: u64, sectors: u32, flags: CommandFlags, data: &[u8]) -> u64 {
        let (number, at) = (self.next, self.at());
        self.next += 1;
        let flags = flags.bits();
        let port = CommandPort::Device;
        self.log.add(&CrashLogRecord::Command { port, number, at, op, sector, sectors, flags, packed_after: 0, data }).unwrap();
        number
    }

    pub fn write(&mut self, sector: u64, byte: u8, flags: CommandFlags) -> u64 {
        self.comes(Op::Write, sector, 8, flags, &filled(byte, 8))
    }

    pub fn write_and_complete(&mut self, sector: u64, byte: u8, flags: CommandFlags) {
        let number = self.write(sector, byte, flags);
        self.complete(number);
    }

    pub fn complete(&mut self, number: u64) {
        let at = self.at();
        self.log.add(&CrashLogRecord::Complete { port: CommandPort::Device, number, at }).unwrap();
    }

    pub fn programmed(&mut self, number: u64, sector: u64, sectors: u32) {
        let (begin, end) = (Nanos(self.now), self.at());
        self.log.add(&CrashLogRecord::Programmed { number, sector, sectors, begin, end }).unwrap();
    }

    /// Logs that a block is written from the cache to the cells.
    pub fn write_back(&mut self, block: u64) {
        if let Some(number) = self.cache.remove(&block) {
            self.programmed(number, block * 8, 8);
        }
    }

    pub fn write_back_all(&mut self) {
        while let Some((&block, _)) = self.cache.first_key_value() {
            self.write_back(block);
        }
    }

    /// Logs the completion of the oldest command.
    pub fn complete_next(&mut self) {
        if let Some(number) = self.open.pop_front() {
            self.complete(number);
        }
    }

    pub fn flush(&mut self) -> u64 {
        self.comes(Op::Flush, 0, 0, CommandFlags::empty(), &[])
    }

    /// Logs the arrival of a discard, and that the device discards the blocks in the cache and in the cells.
    pub fn discard(&mut self, block: u64, blocks: u64) {
        let number = self.comes(Op::Discard, block * 8, blocks as u32 * 8, CommandFlags::empty(), &[]);
        self.cache.retain(|cached, _| !(block..block + blocks).contains(cached));
        let (sector, sectors, at) = (block * 8, blocks * 8, Nanos(self.now));
        self.log.add(&CrashLogRecord::Discarded { number, sector, sectors, at }).unwrap();
        self.open.push_back(number);
    }

    pub fn acknowledge(&mut self, text: &str) {
        let at = self.at();
        self.log.add(&CrashLogRecord::Acknowledged { at, text }).unwrap();
    }

    pub fn run(mut self, path: &Path) -> Arc<CrashLogIndex> {
        self.log.finish().unwrap();
        Arc::new(CrashLogIndex::open(path).unwrap())
    }
}
