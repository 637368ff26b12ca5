//! Checkpoints: the map as it was at one point of the log, so that recovery reads only the records after that point.
//!
//! Checkpoints are written to two places in turn. If a power cut tears one, the previous one is still whole. The map contains a
//! write as soon as that write is planned. A checkpoint is therefore a copy of the map at one moment, but it is written only after
//! every request planned before that moment is complete and durable. Requests may log at most two intervals beyond the newest
//! checkpoint, so recovery knows where the log ends.

use emmclab_base::Op;

use super::Advil;
use super::record::{AdvilRecord, AdvilRecordBody, LogPoint, SECTOR};
use crate::in_flight::InFlightRequests;
use crate::interval_map::LoggedExtent;
use crate::layer::BackgroundDecision;
use crate::plan::CommandPlan;

/// Bytes of a run in a checkpoint: sector (8), length (4), place (4).
const RUN_BYTES: usize = 16;

/// Identifies a checkpoint: its number, and the point of the log at which the map was copied.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CheckpointId {
    pub sequence: u64,
    pub generation: u64,
    pub log_next: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CheckpointPhase {
    #[default]
    Idle,
    /// The map has been copied; requests up to this number must complete before the checkpoint is written.
    Settle(Option<u64>),
    /// The checkpoint is being written.
    Write,
}

/// State of checkpointing.
#[derive(Clone, Debug, Default)]
pub(super) struct AdvilCheckpointState {
    /// The newest checkpoint on disk.
    newest: CheckpointId,
    /// The checkpoint in preparation: its mark, its header fields, and the runs of its map.
    next: CheckpointId,
    point: LogPoint,
    runs: Vec<u8>,
    phase: CheckpointPhase,
}

impl AdvilCheckpointState {
    /// The state in which `newest` is the newest checkpoint on disk.
    pub fn after(newest: CheckpointId) -> Self {
        Self { newest, ..Self::default() }
    }

    /// Bytes of memory of the buffer of runs.
    pub fn bytes(&self) -> u64 {
        self.runs.capacity() as u64
    }
}

/// Number of sectors that this many runs occupy.
pub(super) fn sectors(runs: u32) -> u64 {
    (u64::from(runs) * RUN_BYTES as u64).div_ceil(SECTOR as u64)
}

/// Parses the runs of a checkpoint.
pub(super) fn parse_runs(bytes: &[u8], runs: u32) -> impl Iterator<Item = LoggedExtent> {
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    bytes.chunks_exact(RUN_BYTES).take(runs as usize).map(move |run| LoggedExtent {
        sector: number(&run[..8]),
        sectors: number(&run[8..12]) as u32,
        place: number(&run[12..]) as u32,
    })
}

impl Advil {
    /// Whether a checkpoint must be made before anything else is moved.
    pub(super) fn checkpoint_due(&self) -> bool {
        let CheckpointId { generation, log_next, .. } = self.checkpoints.newest;
        let section = &self.sections[self.current];
        self.shape.slot > 0
            && (self.checkpoints.phase != CheckpointPhase::Idle
                || generation != section.generation
                || section.log_next.saturating_sub(log_next) >= self.shape.interval)
    }

    /// Copies the map for the next checkpoint if none is in preparation; plans its write once the requests before it are complete.
    pub(super) fn checkpoint(&mut self, in_flight: &InFlightRequests, plan: &mut CommandPlan) -> BackgroundDecision {
        if self.checkpoints.phase == CheckpointPhase::Idle {
            self.draw_up();
            self.checkpoints.phase = CheckpointPhase::Settle(in_flight.newest());
        }
        if let CheckpointPhase::Settle(Some(newest)) = self.checkpoints.phase
            && in_flight.oldest().is_some_and(|oldest| oldest <= newest)
        {
            return BackgroundDecision::Later;
        }
        let disk = self.shape.reserved.disk;
        plan.bare(0, Op::Flush, 0, 0);
        if disk != 0 {
            plan.bare(disk, Op::Flush, 0, 0);
        }
        plan.wait();
        let CheckpointId { sequence, generation, .. } = self.checkpoints.next;
        let place = self.slot(sequence);
        let sectors = self.checkpoints.runs.len().div_ceil(SECTOR) as u32;
        let body = AdvilRecordBody::Checkpoint(self.checkpoints.point);
        let record = AdvilRecord { epoch: self.journal.epoch, generation, place, sectors, body };
        plan.begin(disk, Op::Write, self.shape.reserved.sector + u64::from(place));
        plan.record(&record.bytes(), sectors);
        if sectors > 0 {
            plan.metadata(&self.checkpoints.runs);
        }
        plan.wait();
        plan.bare(disk, Op::Flush, 0, 0);
        self.counters.checkpoints += 1;
        self.counters.checkpoint_bytes += (1 + u64::from(sectors)) * SECTOR as u64;
        self.checkpoints.phase = CheckpointPhase::Write;
        BackgroundDecision::Run
    }

    /// Completes the checkpoint that was being written, so that requests may log further; false if none was being written.
    pub(super) fn checkpointed(&mut self) -> bool {
        if self.checkpoints.phase != CheckpointPhase::Write {
            return false;
        }
        let AdvilCheckpointState { next, point, .. } = self.checkpoints;
        self.checkpoints.phase = CheckpointPhase::Idle;
        self.checkpoints.newest = next;
        let section = &mut self.sections[self.current];
        if section.generation == next.generation {
            // A checkpoint without runs makes recovery scan the whole section.
            section.log_end = if point.runs.is_some() { section.seen_from(next.log_next) } else { section.end() };
        }
        true
    }

    /// The place of a checkpoint in the reserved area, given its number.
    pub(super) fn slot(&self, sequence: u64) -> u32 {
        self.shape.before - self.shape.slot * (2 - (sequence % 2) as u32)
    }

    fn draw_up(&mut self) {
        let section = &mut self.sections[self.current];
        let AdvilCheckpointState { newest, next, point, runs, .. } = &mut self.checkpoints;
        let sequence = newest.sequence + 1;
        *next = CheckpointId { sequence, generation: section.generation, log_next: section.log_next };
        let count = self.map.len() as u32;
        let fits = sectors(count) < u64::from(self.shape.slot);
        *point = LogPoint {
            sequence,
            released: section.generation - if self.moving.is_over() { 1 } else { 2 },
            hot_next: if self.moving.copies_hot() { section.hot_next } else { section.hot_end },
            log_next: section.log_next,
            runs: fits.then_some(count),
        };
        runs.clear();
        if fits {
            // From now on, this checkpoint may become durable and recovery may start from it.
            section.log_end = section.log_end.min(section.seen_from(section.log_next));
            for run in self.map.between(0, self.shape.capacity) {
                runs.extend_from_slice(&run.sector.to_le_bytes());
                runs.extend_from_slice(&run.sectors.to_le_bytes());
                runs.extend_from_slice(&run.place.to_le_bytes());
            }
        }
    }
}
