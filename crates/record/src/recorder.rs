//! A recording from start to end, and the machine that is recorded.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use emmclab_trace::{
    BATCH_ROWS, Batch, Error, ErrorClass, Ledger, NameTable, RecordedActivity, RecordedFeatures, Result, TraceHeader,
};

use crate::disks::{TargetDisk, TargetDisks, WatchedDevices};
use crate::kernel_format::{Files, KernelFormat};
use crate::pipeline::{CpuCounters, RecordPipeline};
use crate::registers;
use crate::statistics::{RecordMeter, RecordStatistics};
use crate::transports::{self, RecordSetup, RecordTransport};

/// Maximum number of batches that wait for the caller during the recording; four full batches have about 20 MB.
const WAITING_BATCHES: usize = 4;
/// Interval of checks whether the caller has taken a batch.
const LOOK_AFTER_CALLER: Duration = Duration::from_millis(1);
/// Time after which a partial batch is sent to the caller.
const PATIENCE: Duration = Duration::from_millis(250);

/// Interval of checks whether the recorded disks still exist.
const LOOK_AFTER_DISKS: Duration = Duration::from_secs(1);

/// Options of a recording: the machine, the disks and the buffers.
#[derive(Clone, Debug, Default)]
pub struct RecordOptions {
    /// The machine to record.
    pub target: RecordTarget,
    /// Disks, partitions, mapped devices, `MAJOR:MINOR` or mount points. If empty, the disk with Android's `/data` if there is
    /// one, otherwise every real disk.
    pub devices: Vec<String>,
    /// Size of the ring buffer of each CPU in KB; `None` for 8 MB on this host and 1 MB elsewhere.
    pub buffer_kb: Option<u32>,
    /// Pause between two rounds of reading all CPUs while the machine is idle; `None` for 20 ms on this host and 200 ms elsewhere.
    pub interval: Option<Duration>,
}

/// The result of a recording.
#[derive(Debug)]
pub struct RecordOutcome {
    /// Counts of events and requests: seen, kept, skipped, lost.
    pub ledger: Ledger,
    /// The header of the trace; its `activity` is the JSON of [`RecordOutcome::activity`], if there is any.
    pub header: TraceHeader,
    /// The recorded activity other than requests.
    pub activity: RecordedActivity,
    /// Counts by CPU.
    pub cpus: Vec<CpuCounters>,
    /// Irregularities, for users: lost events, disks that were added or removed.
    pub remarks: Vec<String>,
    /// Why the recording ended early; `None` if the caller ended it. The trace is complete up to that time.
    pub interrupted: Option<Error>,
}

/// The state that the recording thread and the caller share.
#[derive(Default)]
struct RecorderShared {
    stop: AtomicBool,
    /// Number of batches that wait for the caller.
    waiting: AtomicUsize,
    live: Mutex<LiveFigures>,
}

/// Statistics of a running recording, shared by the recording thread and the caller.
#[derive(Default)]
struct LiveFigures {
    meter: RecordMeter,
    processes: Arc<NameTable>,
    ledger: Ledger,
}

impl RecorderShared {
    fn live(&self) -> MutexGuard<'_, LiveFigures> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running recording. Dropping it without [`TracefsRecorder::stop`] also ends it and removes its tracefs instance.
pub struct TracefsRecorder {
    shared: Arc<RecorderShared>,
    batches: Option<Receiver<Batch>>,
    worker: Option<JoinHandle<RecordOutcome>>,
    /// The disks that are recorded.
    pub disks: Vec<TargetDisk>,
    /// Why these disks are recorded, for users; `None` if the caller named them.
    pub choice_reason: Option<String>,
    /// The header of the trace as known at the start, to be written at the beginning of a file.
    pub header: TraceHeader,
}

impl TracefsRecorder {
    /// Starts a recording; returns when the kernel records.
    /// Errors: if the machine cannot be reached, does not allow tracing, or has none of the devices.
    pub fn start(options: &RecordOptions) -> Result<Self> {
        let mut transport = transports::open(&options.target)?;
        let files = transport.files();
        let kernel = KernelFormat::from_files(files)?;
        let text = |name: &str| files.get(name).map_or("", String::as_str);
        let all = TargetDisks::parse(text("disks"), text("mounts"));
        let mut disks: Vec<TargetDisk> = Vec::new();
        for name in &options.devices {
            for disk in all.resolve(name)? {
                if !disks.contains(&disk) {
                    disks.push(disk);
                }
            }
        }
        if options.devices.is_empty() {
            disks = all.default_disks();
        }
        if disks.is_empty() {
            return Err(Error::new(ErrorClass::Config, "the machine has no disk to record")
                .hint("name a disk with --device, for example a loop device"));
        }
        let mut header = header(files, &disks);
        let local = options.target == RecordTarget::Local;
        let filter: Vec<_> = disks.iter().map(|disk| format!("dev == {}", disk.device)).collect();
        let setup = RecordSetup {
            events: kernel.events.clone(),
            filter: filter.join(" || "),
            buffer_kb: options.buffer_kb.unwrap_or(if local { 8192 } else { 1024 }),
            page_bytes: kernel.layout.page_bytes(),
            events_per_page: kernel.events_per_page(),
            interval: options.interval.unwrap_or(Duration::from_millis(if local { 20 } else { 200 })),
            registers: registers::script(&disks),
        };
        let devices = registers::devices(&transport.begin(&setup)?);
        if !devices.is_empty() {
            header.registers = serde_json::to_string(&devices).ok();
        }
        let names: BTreeMap<_, _> = disks.iter().map(|disk| (disk.device, disk.name.clone())).collect();
        let mut watched = WatchedDevices::new(names);
        watched.mounted_on(all.standing_on(&disks));
        let shared = Arc::new(RecorderShared::default());
        let (sender, batches) = channel();
        let worker = RecorderWorker {
            transport,
            pipeline: RecordPipeline::new(kernel, watched),
            shared: shared.clone(),
            sender: Some(sender),
            recorder_tasks: BTreeMap::new(),
            stopping: false,
            disks: disks.clone(),
            gaps: registers::remarks(&devices),
            // If the caller names no disk, the present disks are stored, so that disks that appear during the recording can be reported.
            before: options.devices.is_empty().then(|| all.default_disks()),
        };
        let ended = header.clone();
        let worker = std::thread::Builder::new()
            .name("emmclab-record".to_owned())
            .spawn(move || worker.run(ended))
            .map_err(|error| Error::new(ErrorClass::Io, format!("cannot start a thread: {error}")))?;
        let chosen = options.devices.is_empty().then(|| all.default_reason());
        Ok(Self { shared, batches: Some(batches), worker: Some(worker), disks, choice_reason: chosen, header })
    }

    /// The next batch in order of arrival; `None` if none is available within `timeout` or the recording has ended.
    pub fn next_batch(&self, timeout: Duration) -> Option<Batch> {
        let batch = self.batches.as_ref()?.recv_timeout(timeout).ok()?;
        self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(batch)
    }

    /// Whether the recording has ended early (connection lost, disk removed). Batches may still be waiting.
    pub fn has_ended(&self) -> bool {
        self.worker.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Returns the statistics since the last call. The recorder reads the CPUs in rounds with a pause between them, so the newest events
    /// may be missing.
    pub fn stats(&self) -> RecordStatistics {
        let LiveFigures { meter, processes, ledger } = &mut *self.shared.live();
        meter.take(processes, ledger)
    }

    /// Ends the recording, calls `batch` with each remaining batch, and removes the tracefs instance.
    /// Errors: the first error of `batch` (for example a full disk). The recording ends in any case.
    pub fn stop(mut self, mut batch: impl FnMut(Batch) -> Result<()>) -> Result<RecordOutcome> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let mut result = Ok(());
        for left in self.batches.iter().flat_map(Receiver::iter) {
            if result.is_ok() {
                result = batch(left);
            }
        }
        let outcome = self.worker.take().map(JoinHandle::join);
        result?;
        match outcome {
            Some(Ok(outcome)) => Ok(outcome),
            _ => Err(Error::new(ErrorClass::Io, "the recording thread failed")
                .hint("report this failure with the kernel version of the recorded machine")),
        }
    }
}

impl Drop for TracefsRecorder {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Dropping the receiver ends the worker immediately.
        self.batches = None;
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

/// The thread that reads from the transport and sends batches to the caller.
struct RecorderWorker {
    transport: Box<dyn RecordTransport>,
    pipeline: RecordPipeline,
    shared: Arc<RecorderShared>,
    /// Channel for batches to the caller; `None` after the receiver was dropped.
    sender: Option<Sender<Batch>>,
    /// Tasks seen so far, and whether they belong to the recorder.
    recorder_tasks: BTreeMap<i32, bool>,
    /// Whether recording has stopped, so that only the contents of the ring buffers remain to be read.
    stopping: bool,
    /// The disks that are recorded.
    disks: Vec<TargetDisk>,
    /// Registers that could not be read, as texts for users.
    gaps: Vec<String>,
    /// The disks that existed at the start, if the caller named none; otherwise `None`.
    before: Option<Vec<TargetDisk>>,
}

impl RecorderWorker {
    fn run(mut self, mut header: TraceHeader) -> RecordOutcome {
        let mut interrupted = None;
        let mut broken = false;
        let (mut last_batch, mut looked) = (Instant::now(), Instant::now());
        loop {
            if !self.stopping && looked.elapsed() >= LOOK_AFTER_DISKS {
                looked = Instant::now();
                interrupted = self.all_gone();
            }
            let over = self.shared.stop.load(Ordering::Relaxed) || self.sender.is_none();
            if !self.stopping && (over || interrupted.is_some()) {
                self.transport.stop();
                self.stopping = true;
            }
            let pipeline = &mut self.pipeline;
            match self.transport.round(&mut |cpu, page| pipeline.page(cpu, page)) {
                Ok(round) => {
                    self.pipeline.end_round(&round.behind);
                    if round.ended {
                        break;
                    }
                }
                Err(error) => {
                    interrupted = Some(error);
                    broken = true;
                    break;
                }
            }
            let late = last_batch.elapsed() >= PATIENCE;
            if self.give(if late { 1 } else { BATCH_ROWS }) || late {
                last_batch = Instant::now();
            }
        }
        self.stopping = true;
        if broken {
            self.pipeline.break_off();
        } else {
            self.pipeline.finish();
        }
        self.give(1);
        for (cpu, text) in self.transport.counters() {
            self.pipeline.count_lost(cpu, lost_by_counters(&text));
        }
        let cpus = self.pipeline.cpus();
        let mut remarks = self.remarks(&cpus);
        if self.pipeline.ledger.kept == 0 {
            remarks.push("no request was recorded".to_owned());
        }
        header.note = Some(note(header.note.as_deref(), &remarks, interrupted.as_ref()));
        let activity = self.pipeline.activity(&self.transport.saved_names());
        header.activity = activity.to_json();
        RecordOutcome { ledger: self.pipeline.ledger.clone(), header, activity, cpus, remarks, interrupted }
    }

    /// An error if all recorded disks were removed, otherwise `None`.
    fn all_gone(&self) -> Option<Error> {
        let now = self.transport.disks_now()?;
        if self.disks.iter().any(|disk| now.hold(disk)) {
            return None;
        }
        let names: Vec<_> = self.disks.iter().map(|disk| &*disk.name).collect();
        Some(
            Error::new(ErrorClass::Io, format!("no recorded disk exists any more: {}", names.join(", ")))
                .hint("use the recorded trace, which is complete until the last disk was removed"),
        )
    }

    /// Remarks on registers that could not be read, events lost by each CPU, and disks that were added or removed.
    fn remarks(&self, cpus: &[CpuCounters]) -> Vec<String> {
        let lossy = cpus.iter().filter(|counts| counts.lost > 0);
        let mut out = self.gaps.clone();
        out.extend(lossy.map(|counts| format!("CPU {} lost {} events", counts.cpu, counts.lost)));
        if let Some(now) = self.transport.disks_now() {
            let gone = self.disks.iter().filter(|disk| !now.hold(disk));
            out.extend(gone.map(|disk| format!("{} was removed during the recording", disk.name)));
            if let Some(before) = &self.before {
                let new = now.default_disks().into_iter().filter(|disk| !before.iter().any(|old| old.is_same(disk)));
                out.extend(new.map(|disk| format!("{} was added during the recording and is not in it", disk.name)));
            }
        }
        out
    }

    /// Whether a batch can be sent: the recording has ended, or few batches wait for the caller.
    fn has_room(&self) -> bool {
        self.stopping || self.shared.stop.load(Ordering::Relaxed) || self.shared.waiting.load(Ordering::Relaxed) < WAITING_BATCHES
    }

    /// Sends the available batches that have at least `at_least` requests. Returns whether any batch was sent.
    fn give(&mut self, at_least: usize) -> bool {
        let mut any = false;
        loop {
            // If earlier batches still wait for the caller, a partial batch is not sent, so it can grow. The worker must not wait for the
            // caller here, because it would miss the end of the recording.
            let at_least = if self.has_room() { at_least } else { BATCH_ROWS };
            let Self { pipeline, transport, recorder_tasks: own, shared, .. } = &mut *self;
            let mut live = shared.live();
            let is_own = |task| *own.entry(task).or_insert_with(|| transport.is_own(task));
            let batch = pipeline.take_batch(at_least, is_own, &mut live.meter);
            live.processes = pipeline.processes().clone();
            live.ledger = pipeline.ledger.clone();
            drop(live);
            let Some(batch) = batch else { return any };
            any = true;
            // Waits until the caller has taken a batch; meanwhile the ring buffers of the kernel fill.
            while !self.has_room() {
                std::thread::sleep(LOOK_AFTER_CALLER);
            }
            self.shared.waiting.fetch_add(1, Ordering::Relaxed);
            if self.sender.as_ref().is_some_and(|sender| sender.send(batch).is_err()) {
                self.sender = None;
            }
        }
    }
}

/// Returns the header of the trace at the start of the recording.
fn header(files: &Files, disks: &[TargetDisk]) -> TraceHeader {
    let text = |name: &str| files.get(name).map_or("", |text| text.trim());
    let monotonic = text("trace_clock").contains("[mono]");
    let about = |disk: &TargetDisk| match &disk.about {
        Some(about) => format!("{} ({about}, {} sectors)", disk.name, disk.sectors),
        None => format!("{} ({} sectors)", disk.name, disk.sectors),
    };
    TraceHeader {
        source: format!("recording of {}, Linux {}", text("host"), text("release")),
        format: "record".to_owned(),
        recorded: Some(RecordedFeatures::BLOCK_EVENTS),
        device: match disks {
            [disk] => Some(disk.name.clone()),
            _ => None,
        },
        clock: if monotonic { "monotonic" } else { "relative" }.to_owned(),
        note: Some(disks.iter().map(about).collect::<Vec<_>>().join(", ")),
        ..TraceHeader::default()
    }
}

/// The number of lost events in the `stats` text of a CPU: events that were overwritten before they were read, and dropped events.
pub(crate) fn lost_by_counters(text: &str) -> u64 {
    let count = |name: &str| -> u64 {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    };
    count("overrun") + count("commit overrun") + count("dropped events")
}

/// The note of the trace: the disks, the remarks, and the reason of an early end.
fn note(disks: Option<&str>, remarks: &[String], interrupted: Option<&Error>) -> String {
    let mut out = disks.unwrap_or_default().to_owned();
    for remark in remarks {
        let _ = write!(out, "; {remark}");
    }
    if let Some(error) = interrupted {
        let _ = write!(out, "; ended early: {error}");
    }
    out
}

/// The machine to record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RecordTarget {
    /// This host.
    #[default]
    Local,
    /// A machine that is reached over ssh.
    Ssh {
        /// `USER@HOST`, or the name of a host in the ssh configuration.
        destination: String,
        /// Additional options of the ssh client (`-p`, `2222`, ...).
        options: Vec<String>,
    },
    /// An Android phone that is connected by adb.
    Adb {
        /// The phone's serial number; `None` if only one phone is connected.
        serial: Option<String>,
        /// Port of the adb server on this host. `None`: the port in `$ANDROID_ADB_SERVER_PORT`, or 5037 if the variable is not set.
        port: Option<u16>,
    },
    /// Any other connection: a command that connects its standard input and output to the helper program on the recorded machine.
    /// [`crate::helper_command`] returns the command that runs the helper there.
    Command(Vec<String>),
}
