//! Logs of a toy device, which are written by hand.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use emmclab_base::{Nanos, Op};
use emmclab_crash::CrashLogIndex;
use emmclab_crash::log::{CommandPort, CrashLogHeader, CrashLogRecord, CrashLogWriter, DeviceFacts};
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

    pub fn acknowledge(&mut self, text: &str) {
        let at = self.at();
        self.log.add(&CrashLogRecord::Acknowledged { at, text }).unwrap();
    }

    pub fn run(mut self, path: &Path) -> Arc<CrashLogIndex> {
        self.log.finish().unwrap();
        Arc::new(CrashLogIndex::open(path).unwrap())
    }
}
