//! The requests of one copy of a job (`numjobs`), and their issue times: by rates, with think times, or `iodepth` at a time.

use std::sync::Arc;

use emmclab_trace::{NameId, Nanos, Op, Request, RequestFlags, Result, SECTOR_BYTES, Sector};

use super::job::{FioFileOrder, FioJob, FioOperations, FioRate, FioRates, FioSequencer, index};
use super::offsets::{OffsetSampler, unit};
use crate::distribute::SynthesisRng;

pub(super) struct FioFile {
    /// The file's first byte in the address space, including the offset of the job.
    begin: u64,
    device: Option<NameId>,
    draw: OffsetSampler,
    /// End of the last request of each operation, in bytes after `begin`.
    ends: [u64; 3],
    /// Start of the last request of each operation, in bytes after `begin`.
    starts: [u64; 3],
    /// Whether no requests for this file remain in this pass.
    is_done: bool,
}

/// The current phase of one copy of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunnerPhase {
    /// The job copy issues the requests of a pass over its files.
    Issue,
    /// The job copy issues the sync after the pass.
    Sync,
    /// The job copy reads back the data that the pass has written.
    Verify,
    Over,
}

/// A request without a time: operation, file, offset in the file, and bytes.
#[derive(Clone, Copy, Debug)]
struct UntimedRequest {
    op: Op,
    file: usize,
    offset: u64,
    bytes: u64,
}

/// One copy of a job, which issues its requests.
pub(super) struct FioRunner {
    pub job: Arc<FioJob>,
    process: NameId,
    files: Vec<FioFile>,
    /// The seed of the first pass, from which those of later passes are derived.
    seed: u64,
    dice: SynthesisRng,
    pace: FioPacing,
    phase: RunnerPhase,
    /// Index of the file of the next request, if requests alternate between the files.
    turn: usize,
    /// Number of sequential requests that still follow from the last random offset.
    run: u64,
    /// Number of bytes issued in this pass.
    bytes_issued: u64,
    /// Number of requests issued in this pass.
    issued: u64,
    loops: u64,
    /// Number of writes issued so far.
    writes: u64,
    /// Whether the last request was a sync.
    is_synced: bool,
    /// The write that follows the last trim (`rw=trimwrite`).
    owed: Option<UntimedRequest>,
    next: Option<Request>,
}

impl FioRunner {
    /// Creates a copy of a job. `places` has, for each file of the copy, its first byte in the address space, and the device if the file is
    /// a device.
    pub fn new(job: Arc<FioJob>, places: &[(u64, Option<NameId>)], seed: u64, process: NameId) -> Result<Self> {
        let mut dice = SynthesisRng::new(seed);
        let file = |&(begin, device): &(u64, Option<NameId>)| {
            let draw = OffsetSampler::new(&job.distribution, job.blocks(), job.coverage(), &mut dice)
                .map_err(|error| error.of_field("size", 0, job.file_length().to_string().as_bytes()).at_line(job.line))?;
            Ok(FioFile { begin, device, draw, ends: [0; 3], starts: [0; 3], is_done: false })
        };
        let files = places.iter().map(file).collect::<Result<Vec<_>>>()?;
        let mut runner = Self {
            process,
            files,
            seed,
            dice,
            pace: FioPacing::new(&job),
            phase: RunnerPhase::Issue,
            turn: 0,
            run: 0,
            bytes_issued: 0,
            issued: 0,
            loops: 0,
            writes: 0,
            is_synced: false,
            owed: None,
            next: None,
            job,
        };
        runner.begin_pass();
        Ok(runner)
    }

    /// Issues requests when earlier ones complete, instead of at times that do not depend on the device.
    pub fn in_closed_loop(mut self) -> Self {
        self.pace.is_closed = true;
        self
    }

    /// Returns the next request without removing it; it is planned at `now`, in ns after the start of the group, unless it was planned
    /// before.
    pub fn peek_at(&mut self, now: u64) -> Option<Request> {
        self.pace.now = self.pace.now.max(now);
        self.peek()
    }

    /// End of the last file of the copy in the address space, in sectors.
    pub fn end(&self) -> u64 {
        let begin = self.files.iter().map(|file| file.begin).max().unwrap_or(0);
        (begin + self.job.file_length()).div_ceil(SECTOR_BYTES)
    }

    /// Ends the copy.
    pub fn stop(&mut self) {
        (self.next, self.phase) = (None, RunnerPhase::Over);
    }

    /// Returns the next request without removing it.
    pub fn peek(&mut self) -> Option<Request> {
        if self.next.is_none() && self.phase != RunnerPhase::Over {
            self.next = self.make();
        }
        self.next
    }

    pub fn take(&mut self) -> Option<Request> {
        self.peek();
        self.next.take()
    }

    /// Begins a pass. Its seed depends only on the number of the pass, so that verification can repeat the same pass.
    fn begin_pass(&mut self) {
        self.dice = SynthesisRng::new(self.seed.wrapping_add(self.loops.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        for file in &mut self.files {
            (file.ends, file.starts, file.is_done) = ([0; 3], [0; 3], false);
            file.draw.begin_pass(&mut self.dice);
        }
        (self.turn, self.run, self.bytes_issued, self.issued, self.owed) = (0, 0, 0, 0, None);
    }

    fn make(&mut self) -> Option<Request> {
        loop {
            match self.phase {
                RunnerPhase::Issue => {
                    if self.is_sync_due() {
                        return Some(self.flush());
                    }
                    let planned = if self.is_late() { None } else { self.plan() };
                    if let Some(planned) = planned {
                        return Some(self.issue(planned));
                    }
                    self.phase = RunnerPhase::Sync;
                }
                RunnerPhase::Sync => {
                    self.phase = RunnerPhase::Verify;
                    let count = self.issued;
                    self.begin_pass();
                    self.issued = count;
                    if self.job.end_fsync && self.job.writes() {
                        return Some(self.flush());
                    }
                }
                RunnerPhase::Verify => {
                    if let Some(request) = self.verify() {
                        return Some(request);
                    }
                    self.loops += 1;
                    let goes_on = self.loops < self.job.loops && !self.is_late();
                    self.phase = if goes_on { RunnerPhase::Issue } else { RunnerPhase::Over };
                    self.begin_pass();
                }
                RunnerPhase::Over => return None,
            }
        }
    }

    /// Whether the next request is a sync. As in fio, a sync follows each request while the number of writes is a multiple of `fsync`. In a
    /// mixed job, a sync therefore also follows each read until the next write.
    fn is_sync_due(&self) -> bool {
        let every = self.job.fsync;
        every > 0 && self.writes > 0 && self.writes.is_multiple_of(every) && !self.is_synced
    }

    /// Whether the job's runtime has ended. Outside a closed loop always false without rates, because the number of requests then depends
    /// on the device.
    fn is_late(&self) -> bool {
        let Some(runtime) = self.job.runtime_ns else { return false };
        let limit = runtime.saturating_add(self.job.ramp_ns);
        let is_over = self.pace.is_closed && self.pace.now.saturating_sub(self.pace.start) >= limit;
        is_over || self.job.is_paced() && self.pace.next() >= limit
    }

    /// The next request of the pass over the files; `None` at the end of the pass.
    fn plan(&mut self) -> Option<UntimedRequest> {
        if let Some(owed) = self.owed.take() {
            return Some(owed);
        }
        let limit = self.job.total();
        if self.bytes_issued >= limit && !self.job.time_based || self.job.number_ios == Some(self.issued) {
            return None;
        }
        let planned = self.place()?;
        self.bytes_issued += planned.bytes;
        self.issued += 1;
        if self.job.pattern.ops == FioOperations::TrimWrite {
            self.owed = Some(UntimedRequest { op: Op::Write, ..planned });
        }
        Some(planned)
    }

    /// Chooses operation, file and offset of a request; `None` if no requests remain for any file.
    fn place(&mut self) -> Option<UntimedRequest> {
        let op = self.operation();
        // With `io_size` or `time_based`, a pass may cover the files more than once.
        let repeats = self.job.io_size.is_some() || self.job.time_based;
        let mut begun_anew = false;
        loop {
            let Some(file) = self.file() else {
                if !repeats || begun_anew {
                    return None;
                }
                begun_anew = true;
                for file in &mut self.files {
                    (file.ends, file.is_done) = ([0; 3], false);
                    file.draw.begin_pass(&mut self.dice);
                }
                continue;
            };
            if let Some((offset, bytes)) = self.offset(file, op) {
                let at = &mut self.files[file];
                (at.starts[index(op)], at.ends[index(op)]) = (offset, offset + bytes);
                if self.job.file_order != FioFileOrder::Sequential {
                    self.turn = (file + 1) % self.files.len();
                }
                return Some(UntimedRequest { op, file, offset, bytes });
            }
            self.files[file].is_done = true;
        }
    }

    fn operation(&mut self) -> Op {
        match self.job.pattern.ops {
            FioOperations::Only(op) => op,
            FioOperations::TrimWrite => Op::Discard,
            FioOperations::Mixed => {
                let drawn = if self.dice.below(100) < self.job.read_pct { Op::Read } else { Op::Write };
                if self.phase == RunnerPhase::Issue { self.pace.due(&self.job, drawn) } else { drawn }
            }
        }
    }

    /// The index of the next file for which requests remain.
    fn file(&mut self) -> Option<usize> {
        let count = self.files.len();
        let first = match self.job.file_order {
            FioFileOrder::Random if count > 1 => self.dice.below(count as u64) as usize,
            _ => self.turn,
        };
        (0..count).map(|step| (first + step) % count).find(|file| !self.files[*file].is_done)
    }

    /// Offset and bytes of the next request in a file; `None` if no requests remain for the file.
    fn offset(&mut self, file: usize, op: Op) -> Option<(u64, u64)> {
        let job = self.job.clone();
        let at = &mut self.files[file];
        if !job.pattern.random {
            let offset = sequential(&job, at.ends[index(op)])?;
            return Some((offset, sized(&job, op, offset, &mut self.dice)?));
        }
        if self.run > 0 {
            self.run -= 1;
            let offset = match job.sequencer {
                FioSequencer::Identical => Some(at.starts[index(op)]),
                FioSequencer::Sequential => sequential(&job, at.ends[index(op)]),
            };
            if let Some((offset, bytes)) = offset.and_then(|offset| Some((offset, sized(&job, op, offset, &mut self.dice)?))) {
                return Some((offset, bytes));
            }
        }
        self.run = job.pattern.run - 1;
        if job.random_pct < 100
            && self.dice.below(100) >= job.random_pct
            && let Some(offset) = sequential(&job, at.ends[index(op)])
            && let Some(bytes) = sized(&job, op, offset, &mut self.dice)
        {
            return Some((offset, bytes));
        }
        let block = at.draw.next(&mut self.dice)?;
        let align = job.align_of(op);
        let offset = block * job.unit() / align * align;
        let bytes = sized(&job, op, offset, &mut self.dice)?;
        let blocks = at.draw.take(block, bytes.div_ceil(job.unit()));
        Some((offset, bytes.min(blocks * job.unit())))
    }

    /// The next read that verifies the data written in the pass.
    fn verify(&mut self) -> Option<Request> {
        if !self.job.verifies() {
            return None;
        }
        // The runtime may have ended the pass early, so only as many requests are verified as the pass issued.
        while self.issued > 0 {
            let planned = self.place()?;
            self.issued -= 1;
            if planned.op != Op::Read {
                let at = self.pace.unpaced();
                return Some(self.request(UntimedRequest { op: Op::Read, ..planned }, at));
            }
        }
        None
    }

    fn issue(&mut self, planned: UntimedRequest) -> Request {
        self.writes += u64::from(planned.op == Op::Write);
        self.is_synced = false;
        let at = self.pace.at(&self.job, planned.op, planned.bytes, &mut self.dice);
        self.request(planned, at)
    }

    fn request(&self, planned: UntimedRequest, at: u64) -> Request {
        let file = &self.files[planned.file];
        let begin = file.begin + planned.offset;
        let first = begin / SECTOR_BYTES;
        let sectors = ((begin + planned.bytes) / SECTOR_BYTES - first).max(1);
        let is_sync = planned.op == Op::Read || self.job.direct || self.job.sync;
        let mut flags = RequestFlags::default();
        if is_sync && planned.op != Op::Discard {
            flags = flags.union(RequestFlags::SYNC);
        }
        if self.job.sync && planned.op == Op::Write {
            flags = flags.union(RequestFlags::FUA);
        }
        Request {
            flags,
            process: Some(self.process),
            device: file.device,
            ..Request::new(nanos(at), planned.op, Sector(first), u32::try_from(sectors).unwrap_or(u32::MAX))
        }
    }

    fn flush(&mut self) -> Request {
        self.is_synced = true;
        let at = self.pace.unpaced();
        let device = self.files.first().and_then(|file| file.device);
        Request {
            flags: RequestFlags::SYNC,
            process: Some(self.process),
            device,
            ..Request::new(nanos(at), Op::Flush, Sector(0), 0)
        }
    }
}

pub(super) fn nanos(at: u64) -> Nanos {
    Nanos(at.min(i64::MAX as u64).cast_signed())
}

/// The offset of a sequential request after a request that ended at `end`; `None` at the end of the file.
fn sequential(job: &FioJob, end: u64) -> Option<u64> {
    let length = job.file_length();
    let hole = job.pattern.hole;
    // The request follows without a gap within a run of a random pattern, and at the beginning of the file.
    if end >= length || hole == 0 || end == 0 {
        return (end < length).then_some(end);
    }
    match end.checked_add_signed(hole).filter(|offset| *offset < length) {
        Some(offset) => Some(offset),
        None if hole > 0 => Some(0),
        None => length.checked_add_signed(hole),
    }
}

/// The bytes of a request at an offset; `None` if it would exceed the end of the file. If there are several sizes, one that fits is drawn.
fn sized(job: &FioJob, op: Op, offset: u64, dice: &mut SynthesisRng) -> Option<u64> {
    let sizes = &job.sizes[index(op)];
    let room = job.file_length().checked_sub(offset)?;
    if let [(bytes, _)] = sizes[..] {
        return (bytes <= room).then_some(bytes);
    }
    let fitting = || sizes.iter().filter(move |(bytes, _)| *bytes <= room);
    let all: u64 = fitting().map(|(_, weight)| weight).sum();
    let mut drawn = dice.below(all);
    for (bytes, weight) in fitting() {
        if drawn < *weight {
            return Some(*bytes);
        }
        drawn -= weight;
    }
    None
}

/// Time between two requests if no option limits their rate, ns. Such requests are meant to be replayed back to back.
const STEP_NS: u64 = 1_000;
const SECOND_NS: f64 = 1e9;

/// The clock of one copy of a fio job (`numjobs`). It determines when the requests of the copy are issued.
pub(super) struct FioPacing {
    start: u64,
    now: u64,
    /// Whether completions determine the issue times, and think times begin at completions.
    is_closed: bool,
    issued: u64,
    /// Times at which the next read, write and trim are due, in ns after the start of the job.
    next: [u64; 3],
    /// Number of bytes of the reads, writes and trims so far.
    bytes: [u64; 3],
    requests: [u64; 3],
}

impl FioPacing {
    pub fn new(job: &FioJob) -> Self {
        let start = job.start_ns;
        Self { start, now: start, is_closed: false, issued: 0, next: [start; 3], bytes: [0; 3], requests: [0; 3] }
    }

    /// Time between requests that no rate limits, in ns.
    fn step(&self) -> u64 {
        if self.is_closed { 0 } else { STEP_NS }
    }

    /// Earliest issue time of the next request of a job with rates, in ns after the start of the job.
    pub fn next(&self) -> u64 {
        self.next.iter().copied().filter(|next| *next > self.start).min().map_or(0, |next| next - self.start)
    }

    /// The next operation of a job that mixes reads and writes. It is `drawn`, unless a rate limit delays `drawn` and the opposite
    /// operation is due earlier.
    pub fn due(&self, job: &FioJob, drawn: Op) -> Op {
        let other = if drawn == Op::Read { Op::Write } else { Op::Read };
        let due = |op: Op| if job.rate_of(op).is_some() { self.next[index(op)] } else { 0 };
        let never = match other {
            Op::Read => job.read_pct == 0,
            _ => job.read_pct == 100,
        };
        if due(drawn) <= self.now || never {
            return drawn;
        }
        if due(other) <= self.now || due(other) < due(drawn) { other } else { drawn }
    }

    /// Returns the issue time of the next request, and advances the clock.
    pub fn at(&mut self, job: &FioJob, op: Op, bytes: u64, dice: &mut SynthesisRng) -> u64 {
        let at = match (job.rates, job.rate_of(op)) {
            (FioRates::All(rate), _) => {
                let at = self.next[0].max(self.now);
                self.requests[0] += 1;
                let next = if job.poisson {
                    poisson(self.next[0], rate, dice)
                } else {
                    self.start.saturating_add(times(self.requests[0], rate))
                };
                self.next = [next; 3];
                at
            }
            (_, Some(rate)) => {
                let of = index(op);
                let at = self.next[of].max(self.now);
                self.bytes[of] = self.bytes[of].saturating_add(bytes);
                self.requests[of] += 1;
                self.next[of] = self.due_after(job, rate, of, dice);
                at
            }
            _ if self.issued.is_multiple_of(job.queue_depth()) => self.now + self.step(),
            _ => self.now,
        };
        self.now = at;
        self.issued += 1;
        if job.think_ns > 0 && !self.is_closed && self.issued.is_multiple_of(job.think_requests) {
            self.now = at.saturating_add(job.think_ns);
        }
        at
    }

    /// The time at which an operation is due next, computed from the bytes or requests issued so far.
    fn due_after(&self, job: &FioJob, rate: FioRate, of: usize, dice: &mut SynthesisRng) -> u64 {
        let smallest = job.sizes[of].iter().map(|(bytes, _)| *bytes).min().unwrap_or(1);
        let (by_bytes, per_second) = match rate {
            FioRate::BytesPerSecond(rate) => (true, rate),
            // If a job has a range of sizes, fio converts its rate in requests per second to bytes per second, with the smallest size.
            FioRate::RequestsPerSecond(rate) if job.is_range => (true, rate.saturating_mul(smallest)),
            FioRate::RequestsPerSecond(rate) => (false, rate),
        };
        if job.poisson {
            let requests = if by_bytes { per_second as f64 / smallest as f64 } else { per_second as f64 };
            return poisson(self.next[of], requests, dice);
        }
        let done = if by_bytes { self.bytes[of] } else { self.requests[of] };
        let since = u128::from(done) * 1_000_000_000 / u128::from(per_second.max(1));
        self.start.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }

    /// Returns the issue time of a request that no rate limits: a sync, or a read for verification.
    pub fn unpaced(&mut self) -> u64 {
        self.now = self.now.saturating_add(self.step());
        self.now
    }
}

/// The time that `requests` requests take at a rate per second, in ns.
fn times(requests: u64, rate: f64) -> u64 {
    (requests as f64 * SECOND_NS / rate) as u64
}

/// Draws the time of the next arrival of a Poisson process.
fn poisson(from: u64, rate: f64, dice: &mut SynthesisRng) -> u64 {
    from.saturating_add((-(1.0 - unit(dice)).ln() * SECOND_NS / rate) as u64)
}
