//! Write-back: writes the data of the oldest records to the device in address order, together with adjacent data, and then releases the
//! records.
//!
//! The release of a record has these steps:
//!
//! - The data of the record is on the device, or newer data has replaced it.
//! - All earlier requests are complete, so that no request still writes the record or bypasses the buffer.
//! - Both disks are flushed.
//! - A header of the buffer that contains the release is durable.
//! - All requests before the release are complete, because they may read the record.
//!
//! Only then is the space of the record reused.

use emmclab_base::Op;

use super::NvmBuffer;
use super::ring::{NvmRecord, NvmRecordBody};
use crate::interval_map::LoggedExtent;
use crate::layer::{BackgroundDecision, InFlightRequests};
use crate::plan::{CommandPlan, PlanMemory};

/// Progress of the release of all records before a sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ReleasePhase {
    #[default]
    Idle,
    /// The oldest records are to be released. Their data is being written to the device.
    Clean,
    /// The data of the records is on the device. The records are released when all requests up to this number are complete.
    Settle(u64),
    /// The header of the buffer is being written.
    Release,
    /// The records are released. Requests up to this number may still read them; `None` if the number is not determined yet.
    Leave(Option<u64>),
}

#[derive(Clone, Debug, Default)]
pub(super) struct WriteBackState {
    phase: ReleasePhase,
    /// Records with lower sequence numbers are being released.
    until: u64,
    /// The address at which the search for the next run starts.
    cursor: u64,
    /// Runs that are being written back: (first sector, end).
    runs: Vec<(u64, u64)>,
    /// Locations, in the buffer, of the data that is being written back.
    copied: Vec<LoggedExtent>,
    /// Records with lower sequence numbers must be released, regardless of the fill level of the buffer.
    empty_before: u64,
    /// Whether a request waits for space in the buffer.
    pub pressed: bool,
    draining: bool,
}

impl WriteBackState {
    /// Whether data is being written back to a run of the device that overlaps `sector..end`.
    pub fn writes(&self, sector: u64, end: u64) -> bool {
        self.runs.iter().any(|(first, last)| *first < end && sector < *last)
    }

    /// Requests the release of the records before a sequence number as soon as possible.
    pub fn empty_before(&mut self, sequence: u64) {
        self.empty_before = sequence;
    }

    /// Requests to write back all data and to release all records.
    pub fn drain(&mut self) {
        self.draining = true;
    }
}

/// The next work of write-back.
enum WriteBackWork {
    Nothing,
    /// Work that runs only while no request is in flight.
    WhenIdle,
    /// Releases the records before a sequence number.
    Before(u64),
}

impl NvmBuffer {
    fn next_work(&mut self) -> WriteBackWork {
        let Self { ring, write_back, shape, .. } = self;
        write_back.draining &= !ring.is_empty();
        let used = ring.used();
        if write_back.draining {
            WriteBackWork::Before(ring.next)
        } else if write_back.empty_before > ring.oldest_sequence() {
            WriteBackWork::Before(write_back.empty_before)
        } else if write_back.pressed && used <= shape.low {
            WriteBackWork::Before(ring.next)
        } else if write_back.pressed || used > shape.high {
            WriteBackWork::Before(ring.down_to(shape.low))
        } else if used > shape.idle {
            WriteBackWork::WhenIdle
        } else {
            WriteBackWork::Nothing
        }
    }

    pub(super) fn next_step(&mut self, in_flight: &InFlightRequests, plan: &mut CommandPlan) -> BackgroundDecision {
        let is_over = |newest: u64| in_flight.oldest().is_none_or(|oldest| oldest > newest);
        loop {
            match self.write_back.phase {
                ReleasePhase::Idle => {
                    self.write_back.until = match self.next_work() {
                        WriteBackWork::Nothing => return BackgroundDecision::None,
                        WriteBackWork::WhenIdle if !in_flight.is_empty() => return BackgroundDecision::Later,
                        WriteBackWork::WhenIdle => self.ring.down_to(self.shape.low),
                        WriteBackWork::Before(sequence) => sequence,
                    };
                    self.write_back.phase = ReleasePhase::Clean;
                }
                ReleasePhase::Clean => {
                    let is_blocked = self.choose_runs(in_flight);
                    if !self.write_back.runs.is_empty() {
                        self.copy_runs(plan);
                        return BackgroundDecision::Run;
                    }
                    if is_blocked {
                        return BackgroundDecision::Later;
                    }
                    self.write_back.phase = ReleasePhase::Settle(in_flight.newest().unwrap_or(0));
                }
                ReleasePhase::Settle(newest) if !is_over(newest) => return BackgroundDecision::Later,
                ReleasePhase::Settle(_) => {
                    self.write_head(plan);
                    self.write_back.phase = ReleasePhase::Release;
                    return BackgroundDecision::Run;
                }
                ReleasePhase::Release => return BackgroundDecision::Later,
                ReleasePhase::Leave(None) => {
                    self.write_back.phase = ReleasePhase::Leave(Some(in_flight.newest().unwrap_or(0)));
                }
                ReleasePhase::Leave(Some(newest)) if !is_over(newest) => return BackgroundDecision::Later,
                ReleasePhase::Leave(Some(_)) => {
                    self.ring.release(self.write_back.until);
                    self.write_back.pressed = false;
                    self.write_back.phase = ReleasePhase::Idle;
                }
            }
        }
    }

    pub(super) fn step_done(&mut self) {
        let Self { write_back, dirty, logged, shape, ring, .. } = self;
        if write_back.phase == ReleasePhase::Release {
            let oldest = ring.before(write_back.until);
            logged.remove(0, shape.capacity, |run| oldest.contains(run.place));
            write_back.phase = ReleasePhase::Leave(None);
            return;
        }
        write_back.runs.clear();
        for copy in write_back.copied.drain(..) {
            // Data that was written again meanwhile has another place in the buffer, so it stays dirty.
            let offset = |extent: &LoggedExtent| i128::from(extent.place) - i128::from(extent.sector);
            dirty.remove(copy.sector, copy.end(), |run| offset(run) == offset(&copy));
        }
    }

    /// Chooses the next runs to write back. The search starts at the cursor and wraps around. Returns whether it skipped data that requests
    /// in flight change.
    fn choose_runs(&mut self, in_flight: &InFlightRequests) -> bool {
        let Self { write_back, dirty, shape, ring, .. } = self;
        let oldest = ring.before(write_back.until);
        let mut is_blocked = false;
        let start = write_back.cursor;
        for (from, to) in [(start, shape.capacity), (0, start)] {
            let mut at = from;
            while at < to && write_back.runs.len() < shape.depth {
                let Some(run) = dirty.between(at, to).find(|run| oldest.contains(run.place)) else { break };
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
                let before: Vec<LoggedExtent> = dirty.between(floor, first).collect();
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

    /// Plans to write the runs to the device.
    fn copy_runs(&mut self, plan: &mut CommandPlan) {
        let Self { write_back, dirty, shape, counters, .. } = self;
        let mut offsets = Vec::with_capacity(write_back.runs.len());
        for (first, end) in &write_back.runs {
            let offset = plan.scratch((end - first) as u32);
            offsets.push(offset);
            for extent in dirty.between(*first, *end) {
                plan.begin(shape.area.disk, Op::Read, shape.area.sector + u64::from(extent.place));
                plan.piece(PlanMemory::Scratch, offset + (extent.sector - first) as u32, extent.sectors);
                write_back.copied.push(extent);
            }
        }
        plan.wait();
        for ((first, end), offset) in write_back.runs.iter().zip(offsets) {
            plan.begin(0, Op::Write, *first);
            plan.piece(PlanMemory::Scratch, offset, (end - first) as u32);
            counters.write_back_runs += 1;
            counters.write_back_bytes += (end - first) * 512;
        }
    }

    /// Plans to write the header that releases records. The disks are flushed before. Then the data of the released records is durable at
    /// its own address, or newer data that replaced it is durable.
    fn write_head(&mut self, plan: &mut CommandPlan) {
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

    /// Plans to write the header of the buffer with the current sequence number.
    pub(super) fn plan_head(&self, oldest: u64, plan: &mut CommandPlan) {
        let area = self.shape.area;
        let place = place_of_head(self.head_number);
        let body = NvmRecordBody::Head { oldest, capacity: self.shape.capacity };
        let head = NvmRecord { sequence: self.head_number, place, sectors: area.sectors as u32, body };
        plan.begin(area.disk, Op::Write, area.sector + u64::from(place));
        plan.record(&head.bytes(), 0);
    }
}

/// First sector of a header of the buffer. Two locations are used alternately, so that a torn write leaves the other header intact.
pub(super) fn place_of_head(number: u64) -> u32 {
    (number % 2) as u32 * 8
}
