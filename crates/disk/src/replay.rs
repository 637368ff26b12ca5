//! Sends a trace to a disk and measures the response times.
//!
//! The trace is read before the first request is sent, so that reading does not delay requests. A request that overlaps an unfinished one is
//! held until that one is complete if one of the two changes data: the contents of the disk after a run are therefore determined.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use emmclab_base::ByteSize;
use emmclab_device::{CommandFlags, LatencyBreakdown, Observer, RequestCompleted};
use emmclab_replay::{
    ArrivalPacer, CommandBuilder, PeriodicFlushes, ReplayMode, ReplayOptions, ResponsePercentileRow, ResponseTimeSummary,
    RunMeasurement, TimeSummary, preflight_on,
};
use emmclab_trace::{
    BATCH_ROWS, BatchBuilder, ByteCount, Error, ErrorClass, Ledger, Nanos, Op, RecordedFeatures, Request, RequestFlags, Result,
    SECTOR_BYTES, Sector, TraceCombiner, TraceHeader, TraceWriter, WriteOptions, interrupt,
};
use rustix::io::Errno;
use rustix::thread::set_current_timer_slack;
use serde::Deserialize;

use crate::disk_file::{DiskAccess, DiskFacts, DiskFile};
use crate::replay_result::{
    DiskReplayResult, DiskReplayRun, DiskRequestCounts, FailedDiskRequests, LeftOutRequests, SendingDelay,
};
use crate::request_ring::{CompletedDiskRequest, DiskRequest, RequestRing, bytes_of};
use crate::written_data::fill_sectors;

/// Limits of the requests in progress: their number at planned times, and the sum of their data in bytes. Further requests are late.
const MOST_OPEN: usize = 256;
const MOST_OPEN_BYTES: u64 = 256 << 20;
/// Length of the longest read or write in bytes.
const LONGEST: u64 = 64 << 20;
/// Time before a planned time from which the sender does not sleep, because it might wake up too late.
const SPIN: Duration = Duration::from_micros(50);
/// Longest wait between two checks of whether the run must end.
const LOOK: Duration = Duration::from_millis(50);
/// How long an ended run waits for the requests in progress.
const GRACE: Duration = Duration::from_millis(500);
/// Delay after which a request counts as late.
const LATE: Nanos = Nanos(1_000_000);

/// Options of a replay on a disk.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiskReplayOptions {
    /// Of these options, mode, rate, `wrap_addresses`, `flush_every`, percentiles and seed (of the written data) have an effect.
    pub replay: ReplayOptions,
    /// Number of requests that are kept unfinished, without pauses; `None` to send requests at planned times.
    pub depth: Option<u32>,
    /// The part of the disk to use, as `START..END` in bytes or with units; `None` for the whole disk, as for missing limits.
    pub range: Option<String>,
    /// Whether only reads are sent.
    pub reads_only: bool,
}

/// A request to send.
#[derive(Clone, Copy, Debug)]
struct PlannedDiskRequest {
    arrival: Nanos,
    recorded: Option<Nanos>,
    /// First sector in the used range.
    sector: u64,
    sectors: u32,
    op: Op,
    flags: RequestFlags,
}

impl PlannedDiskRequest {
    fn end(&self) -> u64 {
        self.sector + u64::from(self.sectors)
    }

    /// Bytes of data in memory.
    fn data_bytes(&self) -> u64 {
        if self.op.has_data() { bytes_of(self.sectors) } else { 0 }
    }

    fn conflicts(&self, other: &Self) -> bool {
        let changes = |request: &Self| !matches!(request.op, Op::Read | Op::Flush);
        self.sector < other.end() && other.sector < self.end() && (changes(self) || changes(other))
    }

    fn request(&self) -> Request {
        let request = Request::new(self.arrival, self.op, Sector(self.sector), self.sectors);
        Request { complete: self.recorded, flags: self.flags, ..request }
    }
}

/// Times of a request that was sent or is held, from the start of the run.
#[derive(Clone, Copy, Debug)]
struct SentRequest {
    planned: Nanos,
    /// `None` while the request is held.
    sent: Option<Nanos>,
    /// `None` while the request is in progress.
    complete: Option<Nanos>,
    error: Option<Errno>,
    /// Whether the request waited for a request to the same sectors.
    is_held: bool,
    slot: usize,
}

/// The progress of a run, which other threads read, and by which they end it.
#[derive(Debug, Default)]
pub struct DiskReplayProgress {
    completed: AtomicU64,
    stop: AtomicBool,
}

impl DiskReplayProgress {
    /// Number of completed requests.
    pub fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    /// Ends the run: no further request is sent, and the result contains the requests so far.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// A trace that is ready to be sent to a disk.
pub struct DiskReplay {
    facts: DiskFacts,
    options: DiskReplayOptions,
    range: (u64, u64),
    plan: Vec<PlannedDiskRequest>,
    left_out: BTreeMap<String, u64>,
    wrapped: u64,
    source: String,
    ledger: Ledger,
}

impl DiskReplay {
    /// Reads a trace, of which nothing was read yet, and plans its requests for a disk, which is opened only for reading.
    /// Errors: a disk that cannot be read, an impossible range or depth, requests beyond the range unless addresses are wrapped, and those of
    /// the readers.
    pub fn prepare(disk: &Path, traces: &mut TraceCombiner, options: &DiskReplayOptions) -> Result<Self> {
        let facts = DiskFile::open(disk, DiskAccess::Read)?.facts().clone();
        let range = used_range(&facts, options.range.as_deref().unwrap_or(".."))?;
        let mut options = options.clone();
        if options.replay.mode == ReplayMode::BackToBack {
            options.depth.get_or_insert(1);
        }
        if options.depth.is_some() {
            options.replay.mode = ReplayMode::BackToBack;
        }
        let capacity = ByteCount(range.1 - range.0);
        options.replay = preflight_on(&format!("{capacity} range of the disk"), capacity, &options.replay, traces.inputs())?
            .apply(&options.replay);
        let mut plan = Vec::new();
        let mut left_out = BTreeMap::new();
        let mut flushes = PeriodicFlushes::new(options.replay.flush_every);
        let mut commands = CommandBuilder::new(capacity.0 / SECTOR_BYTES, options.replay.wrap_addresses);
        while let Some(batch) = traces.next_batch()? {
            interrupt::check()?;
            for request in flushes.insert(&batch).iter() {
                let placed = commands.command(&request, request.arrival).map_err(|error| error.at_request(commands.count))?;
                let planned = PlannedDiskRequest {
                    arrival: request.arrival,
                    recorded: request.complete,
                    sector: placed.sector,
                    sectors: placed.sectors,
                    op: request.op,
                    flags: request.flags.intersection(RequestFlags::FUA | RequestFlags::PREFLUSH),
                };
                match exclusion(&planned, &facts, options.reads_only) {
                    Some(reason) => *left_out.entry(reason).or_default() += 1,
                    None => plan.push(planned),
                }
            }
        }
        if options.replay.mode == ReplayMode::Auto {
            // The trace came from a pipe, which could not be checked before.
            let missing = plan.iter().rev().skip(1).any(|request| request.recorded.is_none());
            options.replay.mode = if missing || plan.is_empty() { ReplayMode::Open } else { ReplayMode::Closed };
        }
        let (source, mut ledger) = (traces.header().source, traces.ledger());
        ledger.folded += commands.wrapped;
        Ok(Self { facts, options, range, plan, left_out, wrapped: commands.wrapped, source, ledger })
    }

    /// What is known about the disk.
    pub fn facts(&self) -> &DiskFacts {
        &self.facts
    }

    /// Number of requests to send.
    pub fn planned(&self) -> u64 {
        self.plan.len() as u64
    }

    /// Describes the data that the run would destroy; `None` if it only reads.
    pub fn destroys(&self) -> Option<String> {
        let of = |op: Op| self.plan.iter().filter(move |request| request.op == op);
        let (writes, discards) = (of(Op::Write).count(), of(Op::Discard).chain(of(Op::SecureErase)).count());
        if writes + discards == 0 {
            return None;
        }
        let bytes = ByteCount(of(Op::Write).map(PlannedDiskRequest::data_bytes).sum());
        let first = self.plan.iter().filter(|request| request.op != Op::Read && request.op != Op::Flush);
        let (from, to) = first.fold((u64::MAX, 0), |(from, to), request| (from.min(request.sector), to.max(request.end())));
        let at = |sector: u64| self.range.0 + sector * SECTOR_BYTES;
        let discards = if discards > 0 { format!(" and {discards} discards") } else { String::new() };
        Some(format!(
            "{writes} writes ({bytes}){discards} would overwrite data between the bytes {} and {} of {}",
            at(from),
            at(to),
            self.facts.describe()
        ))
    }

    /// Sends the requests. If `output` is given, writes the completed requests there as a trace.
    /// Errors: a disk that cannot be opened or is in use, a machine without `io_uring`, and a trace that cannot be written. Errors of single
    /// requests are counted in the result.
    pub fn run(&self, output: Option<&Path>, progress: &DiskReplayProgress) -> Result<DiskReplayResult> {
        let access = if self.destroys().is_some() { DiskAccess::Exclusive } else { DiskAccess::Read };
        let writer = output.map(|path| TraceWriter::create(path, &self.header(), &WriteOptions::default())).transpose()?;
        let path = Path::new(&self.facts.path);
        let disk = Arc::new(DiskFile::open(path, access)?);
        if disk.facts() != &self.facts {
            return Err(Error::new(ErrorClass::Config, "the disk has changed since the trace was read")
                .in_file(path)
                .hint("repeat the command"));
        }
        let depth = self.options.depth.map_or(MOST_OPEN, |depth| depth as usize);
        let mut sender = DiskRequestSender {
            replay: self,
            ring: RequestRing::new(disk, depth)?,
            start: Instant::now(),
            sent: Vec::with_capacity(self.plan.len()),
            open: Vec::new(),
            waiting: Vec::new(),
            open_bytes: 0,
            most_open: 0,
            last_complete: Nanos::ZERO,
            progress,
            completed: Vec::new(),
        };
        // With a timer slack of 1 ns, the thread wakes up within microseconds of the planned times. Otherwise requests are later.
        let _ = set_current_timer_slack(std::num::NonZeroU64::new(1));
        sender.send_all().map_err(|error| Error::io(path, error))?;
        let result = sender.result();
        if let Some(writer) = writer {
            sender.write_trace(writer, &result)?;
        }
        Ok(result)
    }

    fn header(&self) -> TraceHeader {
        let model = self.facts.model.as_deref().unwrap_or("a disk");
        TraceHeader {
            source: self.source.clone(),
            recorded: Some(RecordedFeatures::SERVED),
            clock: "relative".to_owned(),
            note: Some(format!("replayed on {model} at {} by emmclab, with the measured times", self.facts.path)),
            ..TraceHeader::default()
        }
    }
}

/// The first byte of the used range, and the byte after its end.
fn used_range(facts: &DiskFacts, text: &str) -> Result<(u64, u64)> {
    let block = u64::from(facts.block_bytes);
    let whole = facts.bytes / block * block;
    let limit = |text: &str, default: u64| match text.trim() {
        "" => Some(default),
        text => text.parse::<ByteSize>().ok().map(|size| size.0),
    };
    let limits = text.split_once("..").and_then(|(start, end)| Some((limit(start, 0)?, limit(end, whole)?)));
    let problem = match limits {
        _ if whole == 0 => "the disk is empty".to_owned(),
        None => format!("`{text}` is not a range"),
        Some((start, end)) if start >= end => format!("the range {text} is empty"),
        Some((_, end)) if end > whole => format!("the range {text} ends beyond the {whole} bytes of the disk"),
        Some((start, end)) if !start.is_multiple_of(block) || !end.is_multiple_of(block) => {
            format!("the range {text} is not aligned to the {block}-byte blocks of the disk")
        }
        Some(range) => return Ok(range),
    };
    let hint = format!("write it as START..END, in bytes or as 1GB..2GB; the whole disk is 0..{whole}");
    Err(Error::new(ErrorClass::Config, problem).in_file(Path::new(&facts.path)).in_field("range").hint(hint))
}

/// The reason for which a request is not sent; `None` if it is sent.
fn exclusion(request: &PlannedDiskRequest, facts: &DiskFacts, reads_only: bool) -> Option<String> {
    let PlannedDiskRequest { op, sector, sectors, .. } = *request;
    let block = u64::from(facts.block_bytes) / SECTOR_BYTES;
    if reads_only && op != Op::Read {
        return Some("only reads are sent (--reads-only)".to_owned());
    }
    if op == Op::Flush {
        return None;
    }
    if matches!(op, Op::Discard | Op::SecureErase) && (!facts.discards || op == Op::SecureErase && !facts.block_device) {
        return Some(unsupported(op));
    }
    if sectors == 0 {
        return Some(format!("a {} without sectors", op.name()));
    }
    if !sector.is_multiple_of(block) || !u64::from(sectors).is_multiple_of(block) {
        return Some(format!("not aligned to the {}-byte blocks of the disk", facts.block_bytes));
    }
    (request.data_bytes() > LONGEST).then(|| format!("longer than {}", ByteCount(LONGEST)))
}

fn unsupported(op: Op) -> String {
    format!("the disk does not support {}", if op == Op::Discard { "discards" } else { "secure erases" })
}

/// Sends the requests of a replay.
struct DiskRequestSender<'a> {
    replay: &'a DiskReplay,
    ring: RequestRing,
    start: Instant,
    /// Sent requests, in the order of the plan.
    sent: Vec<SentRequest>,
    /// Numbers of the requests in progress.
    open: Vec<usize>,
    /// Numbers of the requests whose time has come, and which wait for requests to the same sectors.
    waiting: Vec<usize>,
    open_bytes: u64,
    most_open: usize,
    last_complete: Nanos,
    progress: &'a DiskReplayProgress,
    completed: Vec<CompletedDiskRequest>,
}

impl DiskRequestSender<'_> {
    fn since(&self, at: Instant) -> Nanos {
        Nanos(at.saturating_duration_since(self.start).as_nanos() as i64)
    }

    fn send_all(&mut self) -> io::Result<()> {
        let mut pacer = ArrivalPacer::new(&ReplayOptions { start_offset: Nanos::ZERO, ..self.replay.options.replay.clone() });
        for number in 0..self.replay.plan.len() {
            if !self.send(number, &mut pacer)? {
                break;
            }
        }
        let until = || Instant::now() + GRACE;
        let mut grace = None;
        while self.ring.open() > 0 || !self.waiting.is_empty() && !self.progress.stop.load(Ordering::Relaxed) {
            if self.progress.stop.load(Ordering::Relaxed) && Instant::now() > *grace.get_or_insert_with(until) {
                break;
            }
            self.wait(Instant::now() + LOOK)?;
        }
        Ok(())
    }

    /// Sends a request at its time, or lets it wait for a request to the same sectors. Returns false if the run must end before.
    fn send(&mut self, number: usize, pacer: &mut ArrivalPacer) -> io::Result<bool> {
        let replay = self.replay;
        let request = &replay.plan[number];
        let at_depth = replay.options.depth.is_some();
        let (mut slot, mut planned) = (None, None);
        loop {
            if self.progress.stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            // The data is created before the planned time.
            if slot.is_none() && self.open_bytes + request.data_bytes() <= MOST_OPEN_BYTES {
                slot = self.ring.take_slot(request.data_bytes());
                if let Some(slot) = slot.filter(|_| request.op == Op::Write) {
                    fill_sectors(self.ring.data(slot), replay.options.replay.seed, number as u64, request.sector);
                }
            }
            let is_idle = self.ring.open() == 0 && self.waiting.is_empty();
            if planned.is_none() && !at_depth && (is_idle || !pacer.needs_completion(&request.request())) {
                // The pacer fails only for a trace without completions, which was refused before.
                planned = Some(pacer.arrival(&request.request(), self.last_complete).unwrap_or(self.last_complete));
            }
            let Some(slot) = slot.filter(|_| at_depth || planned.is_some()) else {
                self.wait(Instant::now() + LOOK)?;
                continue;
            };
            let now = Instant::now();
            let due = planned.map_or(now, |planned| self.start + Duration::from_nanos(planned.0.max(0) as u64));
            if now < due {
                self.wait(now + (due - now).saturating_sub(SPIN).min(LOOK))?;
                continue;
            }
            let planned = planned.unwrap_or_else(|| self.since(now));
            let is_held = self.conflicts(number, self.waiting.len());
            self.sent.push(SentRequest { planned, sent: None, complete: None, error: None, is_held, slot });
            self.open_bytes += request.data_bytes();
            if is_held {
                self.waiting.push(number);
            } else {
                self.submit(number)?;
            }
            return Ok(true);
        }
    }

    /// Whether a request must wait for one in progress, or for one of the first `waiting` waiting ones.
    fn conflicts(&self, number: usize, waiting: usize) -> bool {
        let plan = &self.replay.plan;
        self.open.iter().chain(&self.waiting[..waiting]).any(|other| plan[number].conflicts(&plan[*other]))
    }

    fn submit(&mut self, number: usize) -> io::Result<()> {
        let request = &self.replay.plan[number];
        let disk_request = DiskRequest {
            op: request.op,
            start: self.replay.range.0 + request.sector * SECTOR_BYTES,
            bytes: bytes_of(request.sectors),
            durable: request.flags.contains(RequestFlags::FUA),
            flush_before: request.flags.contains(RequestFlags::PREFLUSH),
        };
        self.open.push(number);
        self.most_open = self.most_open.max(self.open.len());
        let now = self.since(Instant::now());
        let sent = &mut self.sent[number];
        sent.sent = Some(now);
        self.ring.send(sent.slot, &disk_request)
    }

    fn wait(&mut self, until: Instant) -> io::Result<()> {
        let mut completed = std::mem::take(&mut self.completed);
        self.ring.wait(until, &mut completed)?;
        for CompletedDiskRequest { slot, sent, at, outcome } in completed.drain(..) {
            let complete = self.since(at);
            let Some(place) = self.open.iter().position(|number| self.sent[*number].slot == slot) else { continue };
            let number = self.open.swap_remove(place);
            self.open_bytes -= self.replay.plan[number].data_bytes();
            let sent = sent.map(|sent| self.since(sent));
            let request = &mut self.sent[number];
            request.sent = sent.or(request.sent);
            (request.complete, request.error) = (Some(complete), outcome.err());
            self.last_complete = self.last_complete.max(complete);
            self.progress.completed.fetch_add(1, Ordering::Relaxed);
        }
        self.completed = completed;
        let mut place = 0;
        while place < self.waiting.len() && !self.progress.stop.load(Ordering::Relaxed) {
            if self.conflicts(self.waiting[place], place) {
                place += 1;
            } else {
                let number = self.waiting.remove(place);
                self.submit(number)?;
            }
        }
        Ok(())
    }

    /// The requests that are complete: their plan, their error, and their times from sending to completion.
    fn completed(&self) -> impl Iterator<Item = (&PlannedDiskRequest, Option<Errno>, [Nanos; 2])> {
        let sent = self.replay.plan.iter().zip(&self.sent);
        sent.filter_map(|(planned, request)| Some((planned, request.error, [request.sent?, request.complete?])))
    }

    fn result(&self) -> DiskReplayResult {
        let DiskReplay { facts, options, range, plan, left_out, wrapped, ledger, .. } = self.replay;
        let mut left_out = left_out.clone();
        let mut counts = DiskRequestCounts { planned: plan.len() as u64, wrapped: *wrapped, ..Default::default() };
        counts.held = self.sent.iter().filter(|request| request.is_held).count() as u64;
        let mut failed: BTreeMap<(Op, i32), FailedDiskRequests> = BTreeMap::new();
        let mut measure = RunMeasurement::default();
        let (mut recorded, mut timed) = (Some(0), 0);
        for (id, (planned, error, [sent, complete])) in (0..).zip(self.completed()) {
            let at = range.0 + planned.sector * SECTOR_BYTES;
            match error {
                Some(Errno::OPNOTSUPP | Errno::NOTTY) if matches!(planned.op, Op::Discard | Op::SecureErase) => {
                    *left_out.entry(unsupported(planned.op)).or_default() += 1;
                    counts.planned -= 1;
                    continue;
                }
                Some(error) => {
                    counts.failed += 1;
                    let group = failed.entry((planned.op, error.raw_os_error())).or_insert_with(|| FailedDiskRequests {
                        op: planned.op.name(),
                        errno: error.raw_os_error(),
                        error: io::Error::from(error).to_string(),
                        requests: 0,
                        first_at: at,
                    });
                    group.requests += 1;
                    continue;
                }
                None => {}
            }
            counts.completed += 1;
            let (count, bytes) = match planned.op {
                Op::Read => (&mut counts.read, Some(&mut counts.bytes_read)),
                Op::Write => (&mut counts.write, Some(&mut counts.bytes_written)),
                Op::Flush => (&mut counts.flush, None),
                Op::Discard | Op::SecureErase => (&mut counts.discard, None),
            };
            *count += 1;
            if let Some(bytes) = bytes {
                *bytes += planned.data_bytes();
                let response = planned.recorded.map(|end| i128::from((end - planned.arrival).0));
                (recorded, timed) = (recorded.zip(response).map(|(sum, response)| sum + response), timed + 1);
            }
            let event = RequestCompleted {
                id,
                op: planned.op,
                modifiers: CommandFlags::from(planned.flags).of(planned.op),
                sector: planned.sector,
                sectors: planned.sectors,
                arrival: sent,
                start: sent,
                complete,
                subrequests: 1,
                waits: LatencyBreakdown::default(),
            };
            measure.request_completed(&event);
        }
        counts.unfinished = self.open.len() as u64;
        counts.unsent = (plan.len() - self.sent.len() + self.waiting.len()) as u64;
        counts.left_out = left_out.values().sum();
        let elapsed_s = self.last_complete.as_secs_f64();
        let moved = (counts.bytes_read + counts.bytes_written) as f64 / 1_048_576.0;
        let stopped = (counts.unsent + counts.unfinished > 0).then(|| "the run was interrupted".to_owned());
        let of_ops = |ops: &[Op]| {
            let all = self.completed().filter(|(planned, error, _)| error.is_none() && ops.contains(&planned.op));
            let mut times = all.map(|(.., [sent, complete])| complete - sent).peekable();
            times.peek().is_some().then(|| TimeSummary::of(times))
        };
        let delays = || {
            self.sent
                .iter()
                .filter(|request| !request.is_held)
                .filter_map(|request| Some((request.sent? - request.planned).max(Nanos::ZERO)))
        };
        DiskReplayResult {
            disk: facts.clone(),
            run: DiskReplayRun {
                mode: options.replay.mode,
                mode_reason: options.replay.mode_reason.clone(),
                depth: options.depth,
                rate: options.replay.rate.into(),
                seed: options.replay.seed,
                range_start: range.0,
                range_end: range.1,
                elapsed_s,
                throughput_mb_per_s: if elapsed_s > 0.0 { moved / elapsed_s } else { 0.0 },
                most_in_progress: self.most_open as u64,
                stopped,
            },
            requests: counts,
            response: ResponseTimeSummary::new(&measure),
            percentiles: ResponsePercentileRow::all(&measure, &options.replay.percentiles),
            flush: of_ops(&[Op::Flush]),
            discard: of_ops(&[Op::Discard, Op::SecureErase]),
            durable: measure.durable(),
            recorded_response_ms: recorded.filter(|_| timed > 0).map(|sum: i128| sum as f64 / f64::from(timed) / 1e6),
            sending_delay: options.depth.is_none().then(|| SendingDelay {
                late_requests: delays().filter(|delay| *delay > LATE).count() as u64,
                times: TimeSummary::of(delays()),
            }),
            failed: failed.into_values().collect(),
            left_out: left_out.into_iter().map(|(reason, requests)| LeftOutRequests { reason, requests }).collect(),
            ledger: ledger.clone(),
        }
    }

    /// Writes the completed requests in the order in which they were sent.
    fn write_trace(&self, mut writer: TraceWriter, result: &DiskReplayResult) -> Result<()> {
        let mut rows: Vec<_> = self.completed().collect();
        rows.sort_by_key(|(.., [sent, _])| *sent);
        let mut batch = BatchBuilder::default();
        let last = rows.len();
        for (row, (planned, error, [sent, complete])) in rows.into_iter().enumerate() {
            let mut request = Request { arrival: sent, complete: Some(complete), ..planned.request() };
            (request.start, request.issue) = (Some(sent), Some(sent));
            request.flags.set(RequestFlags::FAILED, error.is_some());
            batch.push(&request);
            if batch.len() == BATCH_ROWS || row + 1 == last {
                writer.write(&batch.finish(&Arc::default(), &Arc::default()))?;
            }
        }
        let lost = result.requests.unfinished + result.requests.unsent;
        let ledger = Ledger { seen: self.replay.planned(), kept: last as u64, lost, ..Ledger::default() };
        writer.finish(&ledger, &self.replay.header())
    }
}
