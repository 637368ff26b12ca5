//! A block device of layers whose data is on one or two disks of this machine.
//!
//! The first MB of each disk contains a label with the layers and their settings; the disks below the layers begin behind it. Requests are
//! executed one at a time, by [`ImmediateStack`]. After an error of a disk, the state of a layer in memory may differ from that on the disk:
//! all later requests fail, and the layers recover when the disk is served again.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use emmclab_device::CommandFlags;
use emmclab_device::{LatencyBreakdown, Observer, RequestCompleted};
use emmclab_layers::{DisksBelow, ImmediateStack, LayerConfig, PassThrough, SectorDisk, build_stack, recoverable};
use emmclab_replay::{LayerResult, ResponseTimeSummary, RunMeasurement};
use emmclab_serve::{
    AllocationExtent, BlockAction, BlockDevice, BlockDeviceLimits, CompletionReceiver, RequestFailure, ServedCompletion,
    ServedRequest,
};
use emmclab_trace::{ByteCount, Error, ErrorClass, Nanos, Op, Result, SECTOR_BYTES, interrupt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::disk_file::{AlignedBuffer, DiskAccess, DiskFacts, DiskFile};

/// Length of the label in bytes, and of the space that it reserves, which keeps the alignment of the data.
const LABEL_BYTES: usize = 4096;
const RESERVED_BYTES: u64 = 1 << 20;
/// The first bytes of a label. The length of the JSON in four bytes follows, then the JSON, then its CRC-32C in four bytes.
const MARK: &[u8; 12] = b"EMMCLABDISK1";
/// Length of the pieces in which a new disk is erased.
const ERASED_AT_ONCE: u64 = 256 << 20;
/// Length of the pieces in which zeros are written, in bytes.
const ZEROS_AT_ONCE: usize = 1 << 20;
/// Interval at which idle layers do background work.
const IDLE: Duration = Duration::from_millis(200);

/// What a disk states about the layers above it.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct DiskLabel {
    layers: Vec<LayerConfig>,
    /// 0 for the main disk, 1 for the second disk.
    disk: usize,
    /// Size of each disk without its label, in sectors.
    sectors: Vec<u64>,
}

impl DiskLabel {
    fn to_bytes(&self) -> io::Result<AlignedBuffer> {
        let json = serde_json::to_vec(self)?;
        let mut buffer = AlignedBuffer::new(LABEL_BYTES);
        let text = [&MARK[..], &(json.len() as u32).to_le_bytes(), &json, &crc32c::crc32c(&json).to_le_bytes()].concat();
        let place = buffer.bytes_mut().get_mut(..text.len());
        place.ok_or_else(|| io::Error::other("the settings of the layers are too long for the label"))?.copy_from_slice(&text);
        Ok(buffer)
    }

    /// The label in the first bytes of a disk; `None` if there is none.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (length, rest) = bytes.strip_prefix(&MARK[..])?.split_first_chunk()?;
        let (json, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let checksum = u32::from_le_bytes(*rest.first_chunk()?);
        (crc32c::crc32c(json) == checksum).then(|| serde_json::from_slice(json).ok()).flatten()
    }
}

/// The data of a disk behind its label, for layers.
struct LabelledDisk {
    disk: DiskFile,
    buffer: AlignedBuffer,
}

impl LabelledDisk {
    fn at(sector: u64) -> u64 {
        RESERVED_BYTES + sector * SECTOR_BYTES
    }

    fn sectors(&self) -> u64 {
        self.disk.facts().bytes.saturating_sub(RESERVED_BYTES) / RESERVED_BYTES * (RESERVED_BYTES / SECTOR_BYTES)
    }

    fn label(&mut self) -> io::Result<Option<DiskLabel>> {
        self.buffer.resize(LABEL_BYTES);
        self.disk.read(0, self.buffer.bytes_mut())?;
        Ok(DiskLabel::from_bytes(self.buffer.bytes()))
    }

    /// Makes the whole disk read as zeros, so that layers do not find the logs of an earlier use.
    fn erase(&self) -> Result<()> {
        let facts = self.disk.facts();
        let end = RESERVED_BYTES + self.sectors() * SECTOR_BYTES;
        let mut at = 0;
        while at < end {
            interrupt::check()?;
            let bytes = (end - at).min(ERASED_AT_ONCE);
            self.disk.zero(at, bytes).map_err(|error| Error::io(Path::new(&facts.path), error))?;
            at += bytes;
        }
        Ok(())
    }
}

impl SectorDisk for LabelledDisk {
    fn read(&mut self, sector: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.buffer.resize(buffer.len());
        self.disk.read(Self::at(sector), self.buffer.bytes_mut())?;
        buffer.copy_from_slice(self.buffer.bytes());
        Ok(())
    }

    fn write(&mut self, sector: u64, data: &[u8], modifiers: CommandFlags) -> io::Result<()> {
        if modifiers.contains(CommandFlags::PREFLUSH) {
            self.disk.flush()?;
        }
        self.buffer.resize(data.len());
        self.buffer.bytes_mut().copy_from_slice(data);
        self.disk.write(Self::at(sector), self.buffer.bytes(), modifiers.durable())
    }

    fn discard(&mut self, sector: u64, sectors: u32, _secure: bool) -> io::Result<()> {
        self.disk.zero(Self::at(sector), u64::from(sectors) * SECTOR_BYTES)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.disk.flush()
    }
}

/// The result of serving layers above disks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct LayeredDiskResult {
    /// The disks: the main disk, then the second disk if there is one.
    pub disks: Vec<DiskFacts>,
    /// Capacity above the layers in bytes.
    pub capacity_bytes: u64,
    /// Whether the disks were erased for new layers; false if the layers found their data.
    pub is_new: bool,
    /// Number of completed requests.
    pub requests: u64,
    /// Number of failed requests.
    pub failed: u64,
    /// Bytes that clients read.
    pub bytes_read: u64,
    /// Bytes that clients wrote.
    pub bytes_written: u64,
    /// Response times of reads and writes: the time that layers and disks took for a request.
    pub response: ResponseTimeSummary,
    /// The layers from top to bottom, with their counters.
    pub layers: Vec<LayerResult>,
    /// The error of a disk that ended the service; null if there was none.
    pub stopped: Option<String>,
}

struct LayeredDiskCore {
    stack: ImmediateStack<LabelledDisk>,
    levels: usize,
    started: Instant,
    measure: RunMeasurement,
    result: LayeredDiskResult,
}

impl LayeredDiskCore {
    /// Executes a request; a failure of a disk ends the service.
    fn execute(&mut self, request: ServedRequest, capacity: u64) -> ServedCompletion {
        let ServedRequest { tag, sector, sectors, modifiers, .. } = request;
        let is_flush = request.action == BlockAction::Flush;
        let is_wrong = request.end() > capacity || (sectors == 0) != is_flush;
        let arrival = Nanos(self.started.elapsed().as_nanos() as i64);
        let op = match &request.action {
            BlockAction::Read => Op::Read,
            BlockAction::Write(_) | BlockAction::WriteZeroes { .. } => Op::Write,
            BlockAction::Discard { .. } => Op::Discard,
            BlockAction::Flush => Op::Flush,
        };
        let outcome = if self.result.stopped.is_some() {
            Err(RequestFailure::Io)
        } else if is_wrong
            || matches!(&request.action, BlockAction::Write(data) if data.len() as u64 != u64::from(sectors) * SECTOR_BYTES)
        {
            Err(RequestFailure::Invalid)
        } else {
            self.perform(request).map_err(|error| {
                self.result.stopped = Some(error.to_string());
                if error.kind() == io::ErrorKind::StorageFull { RequestFailure::NoSpace } else { RequestFailure::Io }
            })
        };
        if outcome.is_err() {
            self.result.failed += 1;
        } else {
            let bytes = u64::from(sectors) * SECTOR_BYTES;
            self.result.bytes_read += if op == Op::Read { bytes } else { 0 };
            self.result.bytes_written += if op == Op::Write { bytes } else { 0 };
            let complete = Nanos(self.started.elapsed().as_nanos() as i64);
            self.measure.request_completed(&RequestCompleted {
                id: self.measure.requests(),
                op,
                modifiers,
                sector,
                sectors,
                arrival,
                start: arrival,
                complete,
                subrequests: 1,
                waits: LatencyBreakdown::default(),
            });
        }
        ServedCompletion { tag, outcome }
    }

    fn perform(&mut self, request: ServedRequest) -> io::Result<Vec<u8>> {
        let ServedRequest { action, sector, sectors, modifiers, .. } = request;
        let bytes = sectors as usize * SECTOR_BYTES as usize;
        let mut data = Vec::new();
        match action {
            BlockAction::Read => {
                data.resize(bytes, 0);
                self.stack.submit(Op::Read, sector, &mut data)?;
            }
            BlockAction::Write(mut written) => self.stack.write_noted(sector, modifiers.of(Op::Write), &[], &mut written)?,
            BlockAction::WriteZeroes { .. } => {
                let mut zeros = vec![0; bytes.min(ZEROS_AT_ONCE)];
                for at in (0..bytes).step_by(ZEROS_AT_ONCE) {
                    let part = (bytes - at).min(ZEROS_AT_ONCE);
                    let sector = sector + at as u64 / SECTOR_BYTES;
                    self.stack.write_noted(sector, modifiers.of(Op::Write), &[], &mut zeros[..part])?;
                }
            }
            BlockAction::Discard { secure } => {
                self.stack.submit_bare(if secure { Op::SecureErase } else { Op::Discard }, sector, sectors)?;
                if modifiers.durable() {
                    self.stack.submit_bare(Op::Flush, 0, 0)?;
                }
            }
            BlockAction::Flush => self.stack.submit_bare(Op::Flush, 0, 0)?,
        }
        Ok(data)
    }

    /// Executes a stage of the background work of one layer. Returns whether there was work.
    fn background(&mut self) -> bool {
        if self.result.stopped.is_some() {
            return false;
        }
        for level in 0..self.levels {
            match self.stack.background(level) {
                Ok(false) => {}
                Ok(true) => return true,
                Err(error) => self.result.stopped = Some(error.to_string()),
            }
        }
        false
    }
}

/// The state that exports and the thread for background work share.
struct LayeredDiskState {
    core: Mutex<LayeredDiskCore>,
    wake: Condvar,
    ending: AtomicBool,
    limits: BlockDeviceLimits,
}

impl LayeredDiskState {
    fn core(&self) -> MutexGuard<'_, LayeredDiskCore> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work_in_background(&self) {
        while !self.ending.load(Ordering::Relaxed) {
            let mut core = self.core();
            if core.background() {
                // Requests may be executed between two stages.
                drop(core);
                std::thread::yield_now();
            } else {
                drop(self.wake.wait_timeout(core, IDLE));
            }
        }
    }
}

/// A block device of layers above one or two disks. Any thread may submit requests.
pub struct LayeredDisk {
    shared: Arc<LayeredDiskState>,
    background: Mutex<Option<JoinHandle<()>>>,
}

impl LayeredDisk {
    /// Opens the disks (the main disk, then the second one if the layers use it) and recovers the layers from them. Disks without a label of
    /// layers are erased if `erase` is set, and refused otherwise.
    /// Errors: a disk that is in use, too small or has blocks of more than 512 bytes; other layers on the disks than these; layers whose
    /// settings are impossible, that lose data when the power is cut, or that cannot recover.
    pub fn open(disks: &[&Path], layers: &[LayerConfig], erase: bool) -> Result<Self> {
        let layers = recoverable(layers)?;
        let open = |path: &&Path| {
            Ok(LabelledDisk { disk: DiskFile::open(path, DiskAccess::Exclusive)?, buffer: AlignedBuffer::default() })
        };
        let mut opened = disks.iter().map(open).collect::<Result<Vec<_>>>()?;
        let sectors: Vec<u64> = opened.iter().map(LabelledDisk::sectors).collect();
        for disk in &opened {
            check_size(disk.disk.facts(), disk.sectors())?;
        }
        let below = DisksBelow::new(sectors[0], sectors.get(1).copied());
        let mut all = build_stack(&layers, &below)?;
        if all.is_empty() {
            all.push(Box::new(PassThrough::new(below.main)));
        }
        let label = |disk: usize| DiskLabel { layers: layers.clone(), disk, sectors: sectors.clone() };
        let labels =
            opened.iter_mut().map(|disk| disk.label().map_err(|error| Error::io(Path::new(&disk.disk.facts().path), error)));
        let labels = labels.collect::<Result<Vec<_>>>()?;
        let is_new = labels.iter().all(Option::is_none);
        for (number, (disk, found)) in opened.iter().zip(&labels).enumerate().filter(|_| !is_new) {
            if found.as_ref() != Some(&label(number)) {
                let names = |layers: &[LayerConfig]| layers.iter().map(|layer| layer.name.clone()).collect::<Vec<_>>().join(", ");
                let problem = match found {
                    Some(label) => format!("the disk contains the data of other layers or settings ({})", names(&label.layers)),
                    None => "the disk contains no data of these layers, but the other disk does".to_owned(),
                };
                return Err(Error::new(ErrorClass::Config, problem)
                    .in_file(Path::new(&disk.disk.facts().path))
                    .hint("serve it with the layers, settings and disks with which it was created; to start anew, erase its first 4 KB, for example with `dd if=/dev/zero bs=4k count=1`"));
            }
        }
        let facts: Vec<_> = opened.iter().map(|disk| disk.disk.facts().clone()).collect();
        if is_new {
            if !erase {
                let all = facts.iter().map(DiskFacts::describe).collect::<Vec<_>>().join(" and ");
                return Err(Error::new(ErrorClass::Config, format!("new layers would erase all data on {all}"))
                    .in_field("--yes")
                    .hint("give --yes if this data is not needed"));
            }
            opened.iter().try_for_each(LabelledDisk::erase)?;
        }
        let failed = |error: io::Error| {
            Error::new(ErrorClass::Config, format!("the layers cannot start on the disk: {error}"))
                .in_file(disks[0])
                .hint("serve it with the layers and settings with which it was created")
        };
        let levels = all.len();
        let capacity = all[0].capacity();
        let mut stack = ImmediateStack::start(all, opened, !is_new).map_err(failed)?;
        if is_new {
            // The labels are written last, so that an interrupted start leaves no disk that seems to contain the data of layers.
            stack.submit_bare(Op::Flush, 0, 0).map_err(failed)?;
            for (number, disk) in stack.disks().iter().enumerate() {
                let bytes = label(number).to_bytes().map_err(failed)?;
                disk.disk.write(0, bytes.bytes(), true).map_err(failed)?;
            }
        }
        let limits = BlockDeviceLimits {
            sectors: capacity,
            preferred_sectors: 8,
            max_sectors: 1 << 16,
            discard_sectors: 8,
            write_cache: true,
        };
        let result =
            LayeredDiskResult { disks: facts, capacity_bytes: capacity * SECTOR_BYTES, is_new, ..LayeredDiskResult::default() };
        let core = LayeredDiskCore { stack, levels, started: Instant::now(), measure: RunMeasurement::default(), result };
        let shared =
            Arc::new(LayeredDiskState { core: Mutex::new(core), wake: Condvar::new(), ending: AtomicBool::new(false), limits });
        let thread = {
            let shared = shared.clone();
            std::thread::Builder::new().name("emmclab-layers".to_owned()).spawn(move || shared.work_in_background())
        };
        let thread = thread.map_err(|error| Error::new(ErrorClass::Io, format!("a thread cannot be started: {error}")))?;
        Ok(Self { shared, background: Mutex::new(Some(thread)) })
    }

    /// The result so far.
    pub fn result(&self) -> LayeredDiskResult {
        let core = self.shared.core();
        let layer = |level: usize| {
            let layer = core.stack.layer(level);
            LayerResult {
                name: layer.name().to_owned(),
                counters: layer.counters().into_iter().collect(),
                ..LayerResult::default()
            }
        };
        LayeredDiskResult {
            requests: core.measure.requests(),
            response: ResponseTimeSummary::new(&core.measure),
            layers: (0..core.levels).map(layer).collect(),
            ..core.result.clone()
        }
    }

    /// Ends the background work, makes all data durable and closes the disks. Later requests fail.
    /// Errors: if a disk fails.
    pub fn stop(&self) -> Result<LayeredDiskResult> {
        self.end_background();
        let result = self.result();
        let mut core = self.shared.core();
        if core.result.stopped.is_none() {
            let path = Path::new(&result.disks[0].path);
            core.stack.submit_bare(Op::Flush, 0, 0).map_err(|error| Error::io(path, error))?;
        }
        core.result.stopped.get_or_insert("the device was stopped".to_owned());
        // The disks are closed.
        (core.stack, core.levels) = (ImmediateStack::stopped(Vec::new(), Vec::new()), 0);
        Ok(result)
    }
}

impl LayeredDisk {
    fn end_background(&self) {
        self.shared.ending.store(true, Ordering::Relaxed);
        self.shared.wake.notify_all();
        let thread = self.background.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of the thread is ignored: the data is recovered from the disk.
            let _ = thread.join();
        }
    }
}

/// Without [`LayeredDisk::stop`], the disks are closed as they are, as after a kill of the process.
impl Drop for LayeredDisk {
    fn drop(&mut self) {
        self.end_background();
    }
}

fn check_size(facts: &DiskFacts, sectors: u64) -> Result<()> {
    let problem = if u64::from(facts.block_bytes) != SECTOR_BYTES {
        format!("the disk has blocks of {} bytes, but layers write sectors of {SECTOR_BYTES} bytes", facts.block_bytes)
    } else if sectors == 0 {
        format!("the disk has {}, and {} are needed for the label", ByteCount(facts.bytes), ByteCount(RESERVED_BYTES))
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorClass::Config, problem)
        .in_file(Path::new(&facts.path))
        .hint("use a larger disk with blocks of 512 bytes"))
}

impl BlockDevice for LayeredDisk {
    fn limits(&self) -> BlockDeviceLimits {
        self.shared.limits
    }

    fn submit(&self, requests: &mut Vec<ServedRequest>, completions: &Arc<dyn CompletionReceiver>) {
        let capacity = self.shared.limits.sectors;
        let mut core = self.shared.core();
        let mut completed: Vec<_> = requests.drain(..).map(|request| core.execute(request, capacity)).collect();
        drop(core);
        self.shared.wake.notify_all();
        completions.complete(&mut completed);
    }

    fn extents(&self, sector: u64, sectors: u64, _most: usize, extents: &mut Vec<AllocationExtent>) {
        // A layer may store a sector anywhere, so the whole range is reported as allocated.
        let end = sector.saturating_add(sectors).min(self.shared.limits.sectors);
        extents.push(AllocationExtent { sectors: end.saturating_sub(sector), allocated: true });
    }
}
