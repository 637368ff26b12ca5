//! Write-back: what the oldest records hold goes home in the order of addresses, with its neighbours; then the records are released.
//!
//! A record is released in this order: its data is at home or replaced; every request of then is complete, so that none writes at its place
//! or past the buffer any more; both disks are flushed; a head says so and is durable; every request of then, which may read at its place, is
//! complete. Only then is its room used again.

use emmclab_base::Op;

use super::NvmBuffer;
use super::record::{Body, Record};
use crate::in_flight::InFlight;
use crate::interval_map::Extent;
use crate::layer::Background;
use crate::plan::{Memory, Plan};

/// The treatment of records before a sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    /// Their data goes home.
    Clean,
    /// All is at home; requests up to this number have to be complete.
    Settle(u64),
    /// The head is in progress.
    Release,
    /// They are released; requests up to this number, once it is known, may still read them.
    Leave(Option<u64>),
}

/// State of the write-back.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteBack {
    phase: Phase,
    /// The records with lower sequence numbers.
    until: u64,
    /// Where the next run is looked for first.
    cursor: u64,
    /// The runs in progress: first sector and end; and where their data lies in the buffer.
    runs: Vec<(u64, u64)>,
    copied: Vec<Extent>,
    /// Records before this one are to be released, however full the buffer is.
    empty_before: u64,
    /// A request waits for room.
    pressed: bool,
    draining: bool,
}

impl WriteBack {
    /// Whether it is writing between two sectors of the device.
    pub fn writes(&self, sector: u64, end: u64) -> bool {
        self.runs.iter().any(|(first, last)| *first < end && sector < *last)
    }

    /// A request waits for room.
    pub fn press(&mut self) {
        self.pressed = true;
    }

    /// Records before a sequence number are released as soon as may be.
    pub fn empty_before(&mut self, sequence: u64) {
        self.empty_before = sequence;
    }

    /// Everything is written back until nothing is kept.
    pub fn drain(&mut self) {
        self.draining = true;
    }
}

/// The next work of the write-back.
enum Wanted {
    Nothing,
    /// Only while no request is in flight.
    WhenIdle,
    /// Release the records before a sequence number.
    Before(u64),
}

impl NvmBuffer {
    fn wanted(&mut self) -> Wanted {
        let Self { ring, write_back, shape, .. } = self;
        write_back.draining &= !ring.is_empty();
        let used = ring.used();
        if write_back.draining {
            Wanted::Before(ring.next_sequence())
        } else if write_back.empty_before > ring.oldest_sequence() {
            Wanted::Before(write_back.empty_before)
        } else if write_back.pressed && used <= shape.low {
            Wanted::Before(ring.next_sequence())
        } else if write_back.pressed || used > shape.high {
            Wanted::Before(ring.down_to(shape.low))
        } else if used > shape.idle {
            Wanted::WhenIdle
        } else {
            Wanted::Nothing
        }
    }

    /// Plans the next step.
    pub(super) fn next_step(&mut self, in_flight: &InFlight, plan: &mut Plan) -> Background {
        let is_over = |newest: u64| in_flight.oldest().is_none_or(|oldest| oldest > newest);
        loop {
            match self.write_back.phase {
                Phase::Idle => {
                    self.write_back.until = match self.wanted() {
                        Wanted::Nothing => return Background::None,
                        Wanted::WhenIdle if !in_flight.is_empty() => return Background::Later,
                        Wanted::WhenIdle => self.ring.down_to(self.shape.low),
                        Wanted::Before(sequence) => sequence,
                    };
                    self.write_back.phase = Phase::Clean;
                }
                Phase::Clean => {
                    let is_blocked = self.choose_runs(in_flight);
                    if !self.write_back.runs.is_empty() {
                        self.copy_runs(plan);
                        return Background::Run;
                    }
                    if is_blocked {
                        return Background::Later;
                    }
                    self.write_back.phase = Phase::Settle(in_flight.newest().unwrap_or(0));
                }
                Phase::Settle(newest) if !is_over(newest) => return Background::Later,
                Phase::Settle(_) => {
                    self.write_head(plan);
                    self.write_back.phase = Phase::Release;
                    return Background::Run;
                }
                Phase::Release => return Background::Later,
                Phase::Leave(None) => {
                    self.write_back.phase = Phase::Leave(Some(in_flight.newest().unwrap_or(0)));
                }
                Phase::Leave(Some(newest)) if !is_over(newest) => return Background::Later,
                Phase::Leave(Some(_)) => {
                    self.ring.release(self.write_back.until);
                    self.write_back.pressed = false;
                    self.write_back.phase = Phase::Idle;
                }
            }
        }
    }

    /// The step is done.
    pub(super) fn step_done(&mut self) {
        let Self { write_back, dirty, logged, shape, ring, .. } = self;
        if write_back.phase == Phase::Release {
            let oldest = ring.before(write_back.until);
            logged.remove(0, shape.capacity, |run| oldest.hold(run.place));
            write_back.phase = Phase::Leave(None);
            return;
        }
        write_back.runs.clear();
        for copy in write_back.copied.drain(..) {
            // What was written to the buffer meanwhile lies elsewhere in it.
            let offset = |extent: &Extent| i128::from(extent.place) - i128::from(extent.sector);
            dirty.remove(copy.sector, copy.end(), |run| offset(run) == offset(&copy));
        }
    }

    /// Chooses the next runs after the cursor, which goes round; whether data had to be passed over, since requests in flight change it.
    fn choose_runs(&mut self, in_flight: &InFlight) -> bool {
        let Self { write_back, dirty, shape, ring, .. } = self;
        let oldest = ring.before(write_back.until);
        let mut is_blocked = false;
        let start = write_back.cursor;
        for (from, to) in [(start, shape.capacity), (0, start)] {
            let mut at = from;
            while at < to && write_back.runs.len() < shape.depth {
                let Some(run) = dirty.between(at, to).find(|run| oldest.hold(run.place)) else { break };
                at = run.end();
                if in_flight.changes(run.sector, run.end()) {
                    is_blocked = true;
                    continue;
                }
                let (mut first, mut end) = (run.sector, run.end());
                for next in dirty.between(end, first + shape.run) {
                    if next.sector != end || in_flight.changes(next.sector, next.end()) {
                        break;
                    }
                    end = next.end();
                }
                let floor = (end.saturating_sub(shape.run)).max(from);
                let floor = write_back.runs.iter().map(|run| run.1).fold(floor, u64::max).min(first);
                let before: Vec<Extent> = dirty.between(floor, first).collect();
                for next in before.iter().rev() {
                    if next.end() != first || in_flight.changes(next.sector, next.end()) {
                        break;
                    }
                    first = next.sector;
                }
                write_back.runs.push((first, end));
                (at, write_back.cursor) = (end, end);
            }
        }
        is_blocked
    }

    /// Plans to write the runs home.
    fn copy_runs(&mut self, plan: &mut Plan) {
        let Self { write_back, dirty, shape, counters, .. } = self;
        let mut offsets = Vec::with_capacity(write_back.runs.len());
        for (first, end) in &write_back.runs {
            let offset = plan.scratch((end - first) as u32);
            offsets.push(offset);
            for extent in dirty.between(*first, *end) {
                plan.begin(shape.area.disk, Op::Read, shape.area.sector + u64::from(extent.place));
                plan.piece(Memory::Scratch, offset + (extent.sector - first) as u32, extent.sectors);
                write_back.copied.push(extent);
            }
        }
        plan.wait();
        for ((first, end), offset) in write_back.runs.iter().zip(offsets) {
            plan.begin(0, Op::Write, *first);
            plan.piece(Memory::Scratch, offset, (end - first) as u32);
            counters.write_back_runs += 1;
            counters.write_back_bytes += (end - first) * 512;
        }
    }

    /// Plans the head that releases records, once what was written home is durable, and so are the records that replace others.
    fn write_head(&mut self, plan: &mut Plan) {
        plan.bare(0, Op::Flush, 0, 0);
        if self.shape.area.disk != 0 {
            plan.bare(self.shape.area.disk, Op::Flush, 0, 0);
        }
        plan.wait();
        self.head_number += 1;
        self.plan_head(self.write_back.until, plan);
        plan.wait();
        plan.bare(self.shape.area.disk, Op::Flush, 0, 0);
        self.counters.releases += 1;
    }

    /// Plans the head with the present number.
    pub(super) fn plan_head(&self, oldest: u64, plan: &mut Plan) {
        let area = self.shape.area;
        let place = place_of_head(self.head_number);
        let body = Body::Head { oldest, capacity: self.shape.capacity };
        let head = Record { sequence: self.head_number, place, sectors: area.sectors as u32, body };
        plan.begin(area.disk, Op::Write, area.sector + u64::from(place));
        plan.record(&head.bytes(), 0);
    }
}

/// Heads take turns, so that one that is cut off leaves the one before whole.
pub(super) fn place_of_head(number: u64) -> u32 {
    (number % 2) as u32 * 8
}
