//! The log of a run: all commands at the ports of a device with their data, what the device programmed and when, and the data that the
//! workload acknowledged as safe. All times are of one clock.
//!
//! # Format
//!
//! The file begins with `EMMCRASH` and a little-endian `u32` of the version; blocks follow. The head of a block has four `u32`: number of
//! stored bytes, number of bytes when decompressed, CRC-32C of the stored bytes, and a CRC-32C of these three numbers that continues that
//! of the previous head, so that a lost, moved or foreign block is detected. A zstd frame follows the head. The first block contains
//! [`CrashLogHeader`] as JSON, each later block whole [`CrashLogRecord`]s in the encoding of postcard 1. The last head ends the log: it has
//! no stored bytes, and the number of blocks in place of their checksum. A log without it was truncated, and can be read up to its last
//! whole block.

pub mod dm_log_writes;

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use emmclab_base::{Error, ErrorClass, InputFile, Nanos, Op, Result};
use emmclab_device::contract::ContractRules;
use emmclab_device::{CommandFlags, DeviceCommand, InterfaceKind};
use emmclab_layers::{DiskZones, DisksBelow, LayerConfig};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::disk_contents::BLOCK;

const MARK: &[u8; 8] = b"EMMCRASH";
const VERSION: u32 = 1;
/// Maximum size of a block in bytes, and thereby of a record.
const MOST_BLOCK: u32 = 1 << 27;
/// Size of the head of a block in bytes.
const HEAD: usize = 16;

struct LogBlockHeads {
    /// Number of blocks written or read so far.
    blocks: u32,
    /// The checksum of the last block head. Before the first head, it is the checksum of the magic number and the version.
    sum: u32,
}

impl LogBlockHeads {
    fn new() -> Self {
        Self { blocks: 0, sum: crc32c::crc32c_append(crc32c::crc32c(MARK), &VERSION.to_le_bytes()) }
    }

    /// Returns the checksum of the next block head, computed from its other numbers and, through `sum`, all previous heads.
    fn sum_with(&self, numbers: [u32; 3]) -> u32 {
        numbers.iter().fold(self.sum, |sum, number| crc32c::crc32c_append(sum, &number.to_le_bytes()))
    }

    /// Adds the head of a block with these numbers (stored size, raw size, CRC) to the chain of checksums; returns its bytes.
    fn add(&mut self, numbers: [u32; 3]) -> [u8; HEAD] {
        self.sum = self.sum_with(numbers);
        self.blocks += 1;
        let [stored, raw, crc] = numbers;
        let mut bytes = [0; HEAD];
        for (place, number) in bytes.chunks_exact_mut(4).zip([stored, raw, crc, self.sum]) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }
}

/// Maximum number of zones of a device in a log. No real device reaches it; each zone costs memory in every disk state.
const MOST_ZONES: u32 = 1 << 20;

/// The settings of a device that determine which disk states a power cut may leave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// Name of the device.
    pub name: String,
    /// Size in sectors.
    pub sectors: u64,
    /// Whether completion of a plain write promises that the write is durable.
    pub write_through: bool,
    /// Whether the cache promises to write back data in the order in which the host wrote it.
    pub fifo: bool,
    /// The interface of the device, which determines what FUA and a flush of a range promise.
    #[serde(default, skip_serializing_if = "is_emmc")]
    pub interface: InterfaceKind,
    /// Number of sectors in a unit of the mapping table of the FTL.
    pub unit_sectors: u32,
    /// Number of sectors that the device erases at a time, to which layers may align data; 0 if unknown.
    #[serde(default, skip_serializing_if = "is_none")]
    pub erase_sectors: u32,
    /// The zones of the device, if it has any. In each zone, a power cut leaves a prefix of the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zones: Option<DiskZones>,
    /// The promise that the device violates on purpose; `none` if it violates none.
    pub lies: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_emmc(interface: &InterfaceKind) -> bool {
    *interface == InterfaceKind::Emmc
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_none(sectors: &u32) -> bool {
    *sectors == 0
}

/// The header of a log, which describes the recorded run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CrashLogHeader {
    /// The device.
    pub device: DeviceFacts,
    /// Layers above the device, from top to bottom, with the settings for their recovery after a power cut.
    pub layers: Vec<LayerConfig>,
    /// Number of sectors of the disk that the layers present to the host.
    pub sectors: u64,
    /// Number of sectors of a second device, which has no cache; 0 if there is none. In the log its sectors follow those of the first
    /// device, and its writes are recorded as forced writes.
    #[serde(default)]
    pub second_sectors: u64,
    /// Whether the log contains flash program events, from which the contents of the device's cells are known.
    #[serde(default)]
    pub cells: bool,
    /// Name and version of the tool that wrote the log.
    pub writer: String,
}

impl CrashLogHeader {
    /// Returns an error for impossible zones: they must consist of blocks of 4 KiB and be inside the device.
    fn check(&self) -> Result<()> {
        let Some(DiskZones { first, sectors, count, .. }) = self.device.zones else { return Ok(()) };
        let end = sectors.checked_mul(count.into()).and_then(|length| first.checked_add(length));
        let are_blocks = sectors > 0 && sectors.is_multiple_of(BLOCK) && first.is_multiple_of(BLOCK);
        if are_blocks && count <= MOST_ZONES && end.is_some_and(|end| end <= self.device.sectors) {
            return Ok(());
        }
        let value = format!("{count} of {sectors} sectors from {first} on");
        let problem = format!("a device of {} sectors cannot have these zones", self.device.sectors);
        Err(Error::new(ErrorClass::Value, problem)
            .of_field("device.zones", 0, value.as_bytes())
            .hint("copy the crash log again, or run the workload again"))
    }

    /// Total number of sectors of all devices.
    pub fn all_sectors(&self) -> u64 {
        self.device.sectors.saturating_add(self.second_sectors)
    }

    /// The disks on which the lowest layer operates.
    pub fn below(&self) -> DisksBelow {
        DisksBelow {
            erase_sectors: self.device.erase_sectors,
            zones: self.device.zones,
            ..DisksBelow::new(self.device.sectors, Some(self.second_sectors).filter(|sectors| *sectors > 0))
        }
    }

    /// Returns the rules of the durability contract at a port, even if the device violates them. At the host's port, layers promise no more
    /// than a device with a cache.
    pub fn rules(&self, port: CommandPort) -> ContractRules {
        let DeviceFacts { write_through, fifo, interface, unit_sectors, .. } = self.device;
        match port {
            CommandPort::Device => ContractRules { write_through, fifo, interface, unit_sectors },
            CommandPort::Host => ContractRules { write_through: false, fifo: false, interface, unit_sectors: 1 },
        }
    }
}

/// The point in the storage stack where a command was observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CommandPort {
    /// Above all layers. A log of a device without layers contains no commands of this port.
    Host,
    /// The port at the device, below all layers.
    Device,
}

/// A record of a log, in the order in which the event became known. Times are simulated; the end of a flash program may be in the future.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are named for what they hold")]
pub enum CrashLogRecord<'a> {
    /// Contents of the device before the first command, as whole sectors.
    Base {
        sector: u64,
        #[serde(borrow)]
        data: &'a [u8],
    },
    /// A command arrived. `number` ascends at each port; `flags` are encoded as [`CommandFlags`]; `data` is the data that it writes.
    Command {
        port: CommandPort,
        number: u64,
        at: Nanos,
        op: Op,
        sector: u64,
        sectors: u32,
        flags: u8,
        /// Number of later entries in the same packed command; 0 for a command that is not packed.
        packed_after: u16,
        #[serde(borrow)]
        data: &'a [u8],
    },
    /// A command is complete, and its sender was notified.
    Complete { port: CommandPort, number: u64, at: Nanos },
    /// Sectors of the write with this number are programmed: the operation starts at `begin`, and the cells contain the data at `end`.
    Programmed { number: u64, sector: u64, sectors: u32, begin: Nanos, end: Nanos },
    /// The command with number `number` discarded sectors, which took effect at `at`.
    Discarded { number: u64, sector: u64, sectors: u64, at: Nanos },
    /// The workload printed a line that acknowledges data as safe. The line was read at `at`, after all completions that the device had
    /// sent before.
    Acknowledged {
        at: Nanos,
        #[serde(borrow)]
        text: &'a str,
    },
    /// A named position in the log.
    Mark {
        at: Nanos,
        #[serde(borrow)]
        text: &'a str,
    },
    /// A power cut from `begin` on and before `end` damages these sectors, unless a newer version of their map unit is durable before.
    Endangered { sector: u64, sectors: u64, begin: Nanos, end: Nanos },
}

impl<'a> CrashLogRecord<'a> {
    /// Creates the record of a command. `data` is the data that the command writes.
    pub fn of(port: CommandPort, number: u64, command: &DeviceCommand, packed_after: u16, data: &'a [u8]) -> Self {
        Self::Command {
            port,
            number,
            at: command.arrival,
            op: command.op,
            sector: command.sector,
            sectors: command.sectors,
            flags: command.modifiers.bits(),
            packed_after,
            data,
        }
    }

    /// Returns the command of a record; `None` for other kinds of records.
    pub fn command(&self) -> Option<DeviceCommand> {
        let Self::Command { at, op, sector, sectors, flags, .. } = *self else { return None };
        let modifiers = CommandFlags::from_bits_retain(flags);
        Some(DeviceCommand { modifiers, ..DeviceCommand::new(at, op, sector, sectors) })
    }
}

/// A reader of a crash log.
pub struct CrashLogReader {
    input: Box<dyn Read>,
    path: PathBuf,
    header: CrashLogHeader,
    offset: u64,
    block: Vec<u8>,
    stored: Vec<u8>,
    hash: Xxh3,
    heads: LogBlockHeads,
    ended: bool,
}

/// The records of a block in a crash log.
pub struct CrashLogRecords<'a> {
    rest: &'a [u8],
    path: &'a Path,
    offset: u64,
}

impl CrashLogReader {
    /// Whether the bytes are the beginning of a crash log.
    pub fn recognizes(first: &[u8]) -> bool {
        first.starts_with(MARK)
    }

    /// Opens a log and reads its header.
    /// Errors: if the file cannot be read, is not a log, or was written by another version.
    pub fn open(path: &Path) -> Result<Self> {
        let file = InputFile::open(path).map_err(|error| Error::io(path, error))?;
        Self::new(Box::new(BufReader::with_capacity(1 << 20, file)), path)
    }

    /// Reads a log from bytes; `path` is used in error messages.
    /// Errors: as [`CrashLogReader::open`].
    pub fn new(mut input: Box<dyn Read>, path: &Path) -> Result<Self> {
        let mut start = [0; 12];
        let fail = |problem: &str| Error::new(ErrorClass::UnknownFormat, problem).in_file(path);
        let no_log = || fail("this is not a crash log").hint("`emmclab crash` writes crash logs; it also reads dm-log-writes");
        match input.read_exact(&mut start) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Err(no_log()),
            Err(error) => return Err(Error::io(path, error)),
        }
        if !Self::recognizes(&start) {
            return Err(no_log());
        }
        if start[8..] != VERSION.to_le_bytes() {
            return Err(fail("the crash log has an unsupported version")
                .at_offset(8)
                .of_field("version", 0, u32::from_le_bytes([start[8], start[9], start[10], start[11]]).to_string().as_bytes())
                .hint("explore the crash log with the version of emmclab that wrote it, or run the workload again"));
        }
        let mut reader = Self {
            input,
            path: path.to_owned(),
            header: CrashLogHeader::default(),
            offset: 12,
            block: Vec::new(),
            stored: Vec::new(),
            hash: Xxh3::new(),
            heads: LogBlockHeads::new(),
            ended: false,
        };
        if !reader.read_block()? {
            return Err(Error::new(ErrorClass::Truncated, "the crash log is cut short in its header")
                .in_file(path)
                .hint("copy the crash log again, or run the workload again"));
        }
        reader.header = serde_json::from_slice(&reader.block).map_err(|error| {
            Error::new(ErrorClass::Syntax, format!("the header of the crash log is damaged: {error}"))
                .in_file(path)
                .at_offset(12 + HEAD as u64)
                .hint("copy the crash log again, or run the workload again")
        })?;
        reader.header.check().map_err(|error| error.in_file(path))?;
        Ok(reader)
    }

    /// The header of the log.
    pub fn header(&self) -> &CrashLogHeader {
        &self.header
    }

    /// Whether the log lacks its end record, because it was truncated or the process that wrote it was killed. Valid after the last call of
    /// [`CrashLogReader::next_block`].
    pub fn truncated(&self) -> bool {
        !self.ended
    }

    /// The path of the log file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A hash of everything read so far, which identifies the log.
    pub fn identity(&self) -> u64 {
        self.hash.digest()
    }

    /// Returns the records of the next block; `None` at the end.
    /// Errors: if the file cannot be read, or a block is damaged. A truncated log is not an error.
    pub fn next_block(&mut self) -> Result<Option<CrashLogRecords<'_>>> {
        let offset = self.offset;
        if !self.read_block()? {
            return Ok(None);
        }
        Ok(Some(CrashLogRecords { rest: &self.block, path: &self.path, offset }))
    }

    /// Reads the next block. Returns false at the end of the log or of the file.
    fn read_block(&mut self) -> Result<bool> {
        if self.ended || !self.read(HEAD)? {
            return Ok(false);
        }
        let mut words = self.stored.chunks_exact(4).map(|word| word.try_into().map_or(0, u32::from_le_bytes));
        let mut word = || words.next().unwrap_or_default();
        let (numbers, sum) = ([word(), word(), word()], word());
        if self.heads.sum_with(numbers) != sum {
            return Err(self.damaged("a block has a wrong checksum of its head"));
        }
        let [stored, raw, crc] = numbers;
        if stored == 0 {
            return self.end(crc).map(|()| false);
        }
        if stored > MOST_BLOCK || raw > MOST_BLOCK {
            return Err(self.damaged("a block has an impossible length"));
        }
        if !self.read(stored as usize)? {
            return Ok(false);
        }
        if crc32c::crc32c(&self.stored) != crc {
            return Err(self.damaged("a block has a wrong checksum"));
        }
        self.block =
            zstd::bulk::decompress(&self.stored, raw as usize).map_err(|_| self.damaged("a block cannot be decompressed"))?;
        if self.block.len() != raw as usize {
            return Err(self.damaged("the length of a block differs from the length in its head"));
        }
        self.heads.add(numbers);
        self.hash.update(&crc.to_le_bytes());
        self.offset += HEAD as u64 + u64::from(stored);
        Ok(true)
    }

    /// Checks the end of the log, which contains its number of blocks.
    fn end(&mut self, blocks: u32) -> Result<()> {
        if blocks != self.heads.blocks {
            return Err(self.damaged("the number of blocks differs from the number at the end of the log"));
        }
        self.ended = true;
        self.offset += HEAD as u64;
        if self.read(1)? {
            return Err(self.damaged("there are bytes after the end"));
        }
        Ok(())
    }

    /// Reads `bytes` bytes into `stored`. Returns false if the file ends before.
    fn read(&mut self, bytes: usize) -> Result<bool> {
        self.stored.clear();
        let read = (&mut self.input).take(bytes as u64).read_to_end(&mut self.stored);
        Ok(read.map_err(|error| Error::io(&self.path, error))? == bytes)
    }

    fn damaged(&self, what: &str) -> Error {
        let (offset, path) = (self.offset, self.path.display());
        let hint = if self.heads.blocks == 0 {
            "copy the crash log again, or run the workload again".to_owned()
        } else {
            format!(
                "copy the log again; or `truncate -s {offset} {path}` leaves the part before, a log that is \
                 cut short"
            )
        };
        Error::new(ErrorClass::Syntax, format!("the crash log was damaged after it was written: {what}"))
            .in_file(&self.path)
            .at_offset(offset)
            .hint(hint)
    }
}

impl<'a> Iterator for CrashLogRecords<'a> {
    type Item = Result<CrashLogRecord<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match postcard::take_from_bytes::<CrashLogRecord<'a>>(self.rest) {
            Ok((record, rest)) => {
                self.rest = rest;
                Some(Ok(record))
            }
            Err(error) => {
                self.rest = &[];
                let problem = format!("a record of the crash log cannot be read: {error}");
                Some(Err(Error::new(ErrorClass::Syntax, problem).in_file(self.path).at_offset(self.offset)))
            }
        }
    }
}

/// Size before compression at which a block is written, in bytes. A block is larger only if it consists of one long record.
const BLOCK_BYTES: usize = 1 << 18;
/// Maximum time for which a record stays in memory before its block is written to the file.
const WAIT: Duration = Duration::from_millis(100);
/// Compression level of the blocks. It is low, because writing the log must not slow down the device.
const LEVEL: i32 = 1;

/// A writer of a crash log. If the process is killed, the file lacks at most the records that were added within 0.1 s before the last call
/// of [`CrashLogWriter::add`].
pub struct CrashLogWriter {
    file: File,
    path: PathBuf,
    block: Vec<u8>,
    since: Instant,
    heads: LogBlockHeads,
    compressor: zstd::bulk::Compressor<'static>,
}

impl CrashLogWriter {
    /// Creates a log; existing contents of the file are lost.
    pub fn create(path: &Path, header: &CrashLogHeader) -> Result<Self> {
        let fail = |error| Error::io(path, error);
        let json = serde_json::to_vec(header).map_err(|error| Error::new(ErrorClass::Value, error.to_string()))?;
        let compressor = zstd::bulk::Compressor::new(LEVEL).map_err(fail)?;
        let mut file = File::create(path).map_err(fail)?;
        file.write_all(MARK).and_then(|()| file.write_all(&VERSION.to_le_bytes())).map_err(fail)?;
        let (path, since, heads) = (path.to_owned(), Instant::now(), LogBlockHeads::new());
        let mut writer = Self { file, path, block: json, since, heads, compressor };
        writer.end_block()?;
        Ok(writer)
    }

    /// Adds a record.
    pub fn add(&mut self, record: &CrashLogRecord<'_>) -> Result<()> {
        if self.block.is_empty() {
            self.since = Instant::now();
        }
        let block = std::mem::take(&mut self.block);
        self.block = postcard::to_extend(record, block)
            .map_err(|error| Error::new(ErrorClass::Value, error.to_string()).in_file(&self.path))?;
        if self.block.len() >= BLOCK_BYTES || self.since.elapsed() >= WAIT { self.end_block() } else { Ok(()) }
    }

    /// Writes all added records to the file.
    pub fn end_block(&mut self) -> Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        self.write().map_err(|error| Error::io(&self.path, error))?;
        self.block.clear();
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        let stored = self.compressor.compress(&self.block)?;
        let mut whole = Vec::with_capacity(HEAD + stored.len());
        let numbers = [stored.len() as u32, self.block.len() as u32, crc32c::crc32c(&stored)];
        whole.extend(self.heads.add(numbers));
        whole.extend(stored);
        self.file.write_all(&whole)
    }

    /// Writes all records and the end of the log, and syncs the file. Nothing may be added afterwards.
    pub fn finish(&mut self) -> Result<()> {
        self.end_block()?;
        let end = self.heads.add([0, 0, self.heads.blocks]);
        self.file.write_all(&end).and_then(|()| self.file.sync_data()).map_err(|error| Error::io(&self.path, error))
    }
}
