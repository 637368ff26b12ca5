//! A crash log with its events in order of simulated time, from which disk states are explored.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use emmclab_base::{Error, ErrorClass, Nanos, Op, Result, SECTOR_BYTES, open_seekable};
use emmclab_device::DeviceCommand;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use rustc_hash::FxHashSet;
use xxhash_rust::xxh3::xxh3_64;

use crate::disk_contents::DiskContents;
use crate::log::{CommandPort, CrashLogHeader, CrashLogReader, CrashLogRecord, dm_log_writes};

/// A command in a crash log.
#[derive(Clone, Copy, Debug)]
pub struct LoggedCommand {
    /// The command.
    pub command: DeviceCommand,
    /// Number of the command at its port.
    pub number: u64,
    /// Number of later entries in the same packed command; 0 for a command that is not packed.
    pub packed_after: u16,
    /// Where the data of the command's first sector is stored; [`SectorSource::ZEROS`] if the command has no data.
    pub source: SectorSource,
}

impl LoggedCommand {
    /// Returns where the data of a sector of the command is stored.
    pub fn source_of(&self, sector: u64) -> SectorSource {
        if self.command.op == Op::Write { self.source.plus(sector - self.command.sector) } else { SectorSource::ZEROS }
    }

    /// The first sector after the command.
    pub fn end(&self) -> u64 {
        self.command.sector + u64::from(self.command.sectors)
    }
}

/// An event of a logged run. Commands are identified by their index in [`CrashLogIndex::commands`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named for what they hold")]
pub enum RunEvent {
    /// A command arrives.
    Arrives(CommandPort, u32),
    /// A command is complete.
    Completes(CommandPort, u32),
    /// Sectors of a command have been programmed.
    Programmed { command: u32, sector: u64, sectors: u32 },
    /// The flash program of sectors starts; it ends in a later event.
    Begins { command: u32, sector: u64, sectors: u32 },
    /// Sectors were discarded.
    Discarded { command: u32, sector: u64, sectors: u64 },
    /// From now on, a power cut damages sectors.
    Endangered { sector: u64, sectors: u64 },
    /// A power cut no longer damages sectors.
    Safe { sector: u64, sectors: u64 },
    /// The workload acknowledged data as safe; the value is the index of its output line.
    Acknowledged(u32),
    /// A named mark in the log; the value is the index of the mark.
    Mark(u32),
}

impl RunEvent {
    /// Whether the event is an effect of the end of a page program.
    pub(crate) fn is_end_of_program(self) -> bool {
        matches!(self, Self::Programmed { .. } | Self::Safe { .. })
    }
}

/// An event with its time.
#[derive(Clone, Copy, Debug)]
pub struct RunMoment {
    /// Time of the event.
    pub at: Nanos,
    /// The event.
    pub event: RunEvent,
}

/// An indexed log. It needs about 60 bytes of memory for each command and 12 for each sector of data. The data itself is in memory up to
/// 128 MiB, otherwise in a temporary file.
pub struct CrashLogIndex {
    header: CrashLogHeader,
    path: PathBuf,
    identity: u64,
    truncated: bool,
    spool: Spool,
    base: Arc<DiskContents>,
    commands: [Vec<LoggedCommand>; 2],
    moments: Vec<RunMoment>,
    acknowledgements: Vec<Box<str>>,
    marks: Vec<Box<str>>,
    /// The result of [`crate::annotate::metadata_blocks`], computed once.
    metadata_blocks: OnceLock<Arc<FxHashSet<u64>>>,
}

/// Builds the index of a crash log.
pub(crate) struct CrashLogIndexBuilder {
    spool: SpoolWriter,
    base: Vec<(u64, u64, SectorSource)>,
    commands: [Vec<LoggedCommand>; 2],
    moments: Vec<RunMoment>,
    acknowledgements: Vec<Box<str>>,
    marks: Vec<Box<str>>,
    limits: [u64; 2],
    /// Whether starts of flash programs are recorded. They are needed for a device that leaves interrupted writes half done.
    tears: bool,
}

impl CrashLogIndex {
    /// Reads a log of a live device.
    /// Errors: if it cannot be read, is damaged, or is inconsistent.
    pub fn open(path: &Path) -> Result<Self> {
        let mut reader = CrashLogReader::open(path)?;
        Self::read(&mut reader).map_err(|error| error.in_file(path))
    }

    /// Reads a log of `dm-log-writes` for a device of `sectors` sectors, whose contents at the start of the log are in the file `base`.
    /// Errors: as [`CrashLogIndex::open`].
    pub fn open_dm(path: &Path, sectors: u64, base: Option<&Path>) -> Result<Self> {
        dm_log_writes::read(path, sectors, base)
    }

    /// Whether the file is a log of `dm-log-writes`.
    /// Errors: if it cannot be read.
    pub fn is_dm(path: &Path) -> Result<bool> {
        let mut first = [0; 8];
        let mut file = open_seekable(path).map_err(|error| Error::io(path, error))?;
        Ok(file.read_exact(&mut first).is_ok() && dm_log_writes::recognizes(&first))
    }

    pub(crate) fn read(reader: &mut CrashLogReader) -> Result<Self> {
        let header = reader.header().clone();
        let mut builder = CrashLogIndexBuilder::new(&header);
        while let Some(records) = reader.next_block()? {
            for record in records {
                builder.add(&record?)?;
            }
        }
        builder.finish(header, reader.path(), reader.identity(), reader.truncated())
    }

    /// The header of the log.
    pub fn header(&self) -> &CrashLogHeader {
        &self.header
    }

    /// The path of the log file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A number that identifies the log.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// Whether the log was truncated.
    pub fn truncated(&self) -> bool {
        self.truncated
    }

    /// The data of all commands in the log.
    pub fn spool(&self) -> &Spool {
        &self.spool
    }

    pub(crate) fn metadata_blocks(&self) -> &OnceLock<Arc<FxHashSet<u64>>> {
        &self.metadata_blocks
    }

    pub(crate) fn base(&self) -> &Arc<DiskContents> {
        &self.base
    }

    /// The commands that were observed at one point of the storage stack, in order of arrival. Without layers, only the point at the device
    /// has commands.
    pub fn commands(&self, port: CommandPort) -> &[LoggedCommand] {
        &self.commands[port as usize]
    }

    /// All events, in order of time.
    pub fn moments(&self) -> &[RunMoment] {
        &self.moments
    }

    /// The output lines by which the workload acknowledged data as safe.
    pub fn acknowledgements(&self) -> &[Box<str>] {
        &self.acknowledgements
    }

    /// The names of marks.
    pub fn marks(&self) -> &[Box<str>] {
        &self.marks
    }

    /// Returns the index of the first moment after a mark; 0 if the log has no such mark.
    pub fn after_mark(&self, name: &str) -> usize {
        let is = |moment: &RunMoment| matches!(moment.event, RunEvent::Mark(mark) if &*self.marks[mark as usize] == name);
        self.moments.iter().position(is).map_or(0, |place| place + 1)
    }
}

impl CrashLogIndexBuilder {
    pub fn new(header: &CrashLogHeader) -> Self {
        Self {
            spool: SpoolWriter::new(),
            base: Vec::new(),
            commands: [Vec::new(), Vec::new()],
            moments: Vec::new(),
            acknowledgements: Vec::new(),
            marks: Vec::new(),
            limits: [header.sectors, header.all_sectors()],
            tears: header.device.lies == "tear",
        }
    }

    pub fn add(&mut self, record: &CrashLogRecord<'_>) -> Result<()> {
        match *record {
            CrashLogRecord::Base { sector, data } => {
                self.check_range(CommandPort::Device, sector, data.len() as u64 / SECTOR_BYTES)?;
                let source = self.spool.add(data)?;
                self.base.push((sector, data.len() as u64 / SECTOR_BYTES, source));
            }
            CrashLogRecord::Command { port, number, at, op, sector, sectors, packed_after, data, .. } => {
                self.check_range(port, sector, u64::from(sectors))?;
                let source = if op == Op::Write {
                    if data.len() as u64 != u64::from(sectors) * SECTOR_BYTES {
                        let problem = format!("a write of {sectors} sectors has {} bytes of data", data.len());
                        return Err(Error::new(ErrorClass::Value, problem).in_field("data"));
                    }
                    self.spool.add(data)?
                } else {
                    SectorSource::ZEROS
                };
                let Some(command) = record.command() else { return Ok(()) };
                let all = &self.commands[port as usize];
                if all.last().is_some_and(|last| last.number >= number || last.command.arrival > at) {
                    return Err(Error::new(
                        ErrorClass::Order,
                        "the commands in the crash log must be in the order of their numbers and times",
                    )
                    .of_field("number", 0, number.to_string().as_bytes()));
                }
                let place = all.len() as u32;
                self.commands[port as usize].push(LoggedCommand { command, number, packed_after, source });
                self.add_moment(at, RunEvent::Arrives(port, place));
            }
            CrashLogRecord::Complete { port, number, at } => {
                let Some(command) = self.find(port, number)? else { return Ok(()) };
                self.add_moment(at, RunEvent::Completes(port, command));
            }
            CrashLogRecord::Programmed { number, sector, sectors, begin, end } => {
                let Some(command) = self.find(CommandPort::Device, number)? else { return Ok(()) };
                let logged = &self.commands[CommandPort::Device as usize][command as usize];
                if logged.command.op != Op::Write
                    || sector < logged.command.sector
                    || sector.saturating_add(u64::from(sectors)) > logged.end()
                    || begin > end
                {
                    return Err(Error::new(ErrorClass::Value, "a page program has sectors outside of its write command")
                        .of_field("number", 0, number.to_string().as_bytes()));
                }
                if self.tears {
                    self.add_moment(begin, RunEvent::Begins { command, sector, sectors });
                }
                self.add_moment(end, RunEvent::Programmed { command, sector, sectors });
            }
            CrashLogRecord::Discarded { number, sector, sectors, at } => {
                self.check_range(CommandPort::Device, sector, sectors)?;
                let Some(command) = self.find(CommandPort::Device, number)? else { return Ok(()) };
                self.add_moment(at, RunEvent::Discarded { command, sector, sectors });
            }
            CrashLogRecord::Endangered { sector, sectors, begin, end } => {
                self.check_range(CommandPort::Device, sector, sectors)?;
                self.add_moment(begin, RunEvent::Endangered { sector, sectors });
                self.add_moment(end, RunEvent::Safe { sector, sectors });
            }
            CrashLogRecord::Acknowledged { at, text } => {
                let place = self.acknowledgements.len() as u32;
                self.acknowledgements.push(text.into());
                self.add_moment(at, RunEvent::Acknowledged(place));
            }
            CrashLogRecord::Mark { at, text } => {
                let place = self.marks.len() as u32;
                self.marks.push(text.into());
                self.add_moment(at, RunEvent::Mark(place));
            }
        }
        Ok(())
    }

    pub fn finish(self, header: CrashLogHeader, path: &Path, identity: u64, truncated: bool) -> Result<CrashLogIndex> {
        let Self { spool, base, commands, mut moments, acknowledgements, marks, .. } = self;
        // At equal times, completed page programs come before all other events.
        let rank = |what: &RunEvent| !what.is_end_of_program();
        moments.sort_by_key(|moment| (moment.at, rank(&moment.event)));
        let spool = spool.finish()?;
        let mut contents = DiskContents::default();
        for (first, sectors, source) in base {
            for i in 0..sectors {
                contents.set(&spool, first + i, source.plus(i));
            }
        }
        Ok(CrashLogIndex {
            header,
            path: path.to_owned(),
            identity,
            truncated,
            spool,
            base: Arc::new(contents),
            commands,
            moments,
            acknowledgements,
            marks,
            metadata_blocks: OnceLock::new(),
        })
    }

    fn add_moment(&mut self, at: Nanos, what: RunEvent) {
        self.moments.push(RunMoment { at, event: what });
    }

    fn check_range(&self, port: CommandPort, sector: u64, sectors: u64) -> Result<()> {
        if sector.checked_add(sectors).is_some_and(|end| end <= self.limits[port as usize]) {
            return Ok(());
        }
        Err(Error::new(ErrorClass::Value, "a record of the crash log extends beyond the end of the device").of_field(
            "sector",
            0,
            sector.to_string().as_bytes(),
        ))
    }

    /// Returns the index of the command with this number at a port; `None` if the command arrived before the log began.
    fn find(&self, port: CommandPort, number: u64) -> Result<Option<u32>> {
        let all = &self.commands[port as usize];
        match all.binary_search_by_key(&number, |logged| logged.number) {
            Ok(place) => Ok(Some(place as u32)),
            Err(0) => Ok(None),
            Err(_) => {
                Err(Error::new(ErrorClass::Value, "a record of the crash log refers to a command that the log does not contain")
                    .of_field("number", 0, number.to_string().as_bytes()))
            }
        }
    }
}

const SECTOR: usize = SECTOR_BYTES as usize;
static ZEROS: [u8; SECTOR] = [0; SECTOR];

/// The source of a sector's contents: a sector in the [`Spool`], zeros, or garbage that is generated when it is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SectorSource(u32);

impl SectorSource {
    /// The source of a sector of zeros.
    pub const ZEROS: Self = Self(0);
    /// Sources from this number on stand for garbage; each of them has different contents.
    const GARBAGE: u32 = 1 << 31;

    /// Returns a source of garbage whose contents depend only on the seed.
    pub(crate) fn garbage(seed: u64) -> Self {
        Self(Self::GARBAGE | seed as u32)
    }

    fn is_garbage(self) -> bool {
        self.0 >= Self::GARBAGE
    }

    /// Returns the source of the sector that is `ahead` sectors after this one in the same data.
    #[must_use]
    pub fn plus(self, ahead: u64) -> Self {
        Self(self.0 + ahead as u32)
    }
}

/// Maximum number of bytes of logged data kept in memory, where reads need no system call. If there is more, all data is in a file.
const MOST_MEMORY: usize = 1 << 27;

/// Collects the data of the commands in a log.
pub(crate) struct SpoolWriter {
    memory: Vec<u8>,
    /// The temporary file that contains all data, if there is more than `MOST_MEMORY`.
    file: Option<BufWriter<File>>,
    digests: Vec<u64>,
}

/// The data of the commands in a log, with a digest of each sector. It is in memory up to a limit, otherwise in an unnamed file.
pub struct Spool {
    store: SpoolStore,
    /// Digest of the contents of each stored sector.
    digests: Vec<u64>,
}

enum SpoolStore {
    Memory(Vec<u8>),
    File(File),
}

fn garbage(source: SectorSource) -> [u8; SECTOR] {
    let mut random = Pcg64Mcg::seed_from_u64(source.0.into());
    let mut sector = [0; SECTOR];
    sector.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.next_u64().to_le_bytes()));
    sector
}

fn fail(error: std::io::Error) -> Error {
    Error::io(&std::env::temp_dir(), error).hint("set TMPDIR to a folder with enough space for the data of the crash log")
}

impl SpoolWriter {
    pub fn new() -> Self {
        Self { memory: Vec::new(), file: None, digests: vec![xxh3_64(&ZEROS)] }
    }

    /// Adds whole sectors, and returns the source of the first one.
    pub fn add(&mut self, data: &[u8]) -> Result<SectorSource> {
        let first = self.digests.len();
        if first + data.len() / SECTOR > SectorSource::GARBAGE as usize {
            return Err(Error::new(ErrorClass::Unsupported, "the crash log contains more than 1 TiB of data"));
        }
        self.digests.extend(data.chunks_exact(SECTOR).map(xxh3_64));
        if self.file.is_none() && self.memory.len() + data.len() > MOST_MEMORY {
            let mut file = BufWriter::with_capacity(1 << 20, tempfile::tempfile().map_err(fail)?);
            file.write_all(&std::mem::take(&mut self.memory)).map_err(fail)?;
            self.file = Some(file);
        }
        match &mut self.file {
            Some(file) => file.write_all(data).map_err(fail)?,
            None => self.memory.extend_from_slice(data),
        }
        Ok(SectorSource(first as u32))
    }

    pub fn finish(self) -> Result<Spool> {
        let Self { memory, file, digests } = self;
        let store = match file {
            Some(file) => SpoolStore::File(file.into_inner().map_err(|error| fail(error.into_error()))?),
            None => SpoolStore::Memory(memory),
        };
        Ok(Spool { store, digests })
    }
}

impl Spool {
    /// The digest of a sector's contents.
    #[inline]
    pub fn digest(&self, source: SectorSource) -> u64 {
        match self.digests.get(source.0 as usize) {
            Some(digest) => *digest,
            None => xxh3_64(&garbage(source)),
        }
    }

    /// Fills `buffer` with the contents of `sources`, each of which is one sector.
    pub fn read(&self, sources: &[SectorSource], buffer: &mut [u8]) -> std::io::Result<()> {
        let mut at = 0;
        while at < sources.len() {
            let first = sources[at];
            let follows = |(i, source): &(usize, &SectorSource)| {
                if first == SectorSource::ZEROS || first.is_garbage() {
                    **source == first
                } else {
                    **source == first.plus(*i as u64)
                }
            };
            let run = sources[at..].iter().enumerate().take_while(follows).count();
            let part = &mut buffer[at * SECTOR..(at + run) * SECTOR];
            match &self.store {
                _ if first == SectorSource::ZEROS => part.fill(0),
                _ if first.is_garbage() => {
                    part.chunks_exact_mut(SECTOR).for_each(|sector| sector.copy_from_slice(&garbage(first)));
                }
                SpoolStore::Memory(memory) => {
                    let from = (first.0 as usize - 1) * SECTOR;
                    part.copy_from_slice(&memory[from..from + part.len()]);
                }
                SpoolStore::File(file) => file.read_exact_at(part, u64::from(first.0 - 1) * SECTOR_BYTES)?,
            }
            at += run;
        }
        Ok(())
    }
}
