//! Background work: resets, checkpoints, and cleaning, one step at a time.

use emmclab_base::{CommandFlags, Op};

use super::LfsLayer;
use super::settings::{BLOCK, FOR_CLEANING};
use crate::layer::{BackgroundDecision, InFlightRequests};
use crate::plan::{CommandPlan, PlanMemory};

/// Maximum number of segments that are reset in one step.
const RESETS: usize = 8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LfsBackgroundStep {
    #[default]
    None,
    Reset,
    Checkpoint,
    Move,
}

/// A block being moved: (block, old location in the log, new location).
type Move = (u32, u32, u32);

#[derive(Clone, Debug, Default)]
pub(super) struct LfsBackgroundState {
    step: LfsBackgroundStep,
    resets: Vec<u32>,
    /// Requests up to this number may still read segments that are being released; `None` if no segment is being released.
    leave_after: Option<u64>,
    /// The segment that is cleaned, its next block, and whether it is cleaned in idle time.
    victim: Option<(u32, u32, bool)>,
    moves: Vec<Move>,
    destination_places: Vec<(u32, u32)>,
    /// Write number of the moved blocks.
    write: u64,
    /// Number of clean segments that a waiting request needs.
    pub requested_segments: u32,
}

impl LfsBackgroundState {
    /// Records that a waiting request needs `segments` clean segments.
    pub fn request_segments(&mut self, segments: u32) {
        self.requested_segments = self.requested_segments.max(segments);
    }
}

impl LfsLayer {
    pub(super) fn next_work(&mut self, in_flight: &InFlightRequests, plan: &mut CommandPlan) -> BackgroundDecision {
        let waits = self.leave_segments(in_flight);
        let wanted = FOR_CLEANING + 2 + self.shape.logs as u32 + self.work.requested_segments;
        self.work.resets.clear();
        self.segments.take_dirty(wanted, RESETS, &mut self.work.resets);
        if !self.work.resets.is_empty() {
            for segment in self.work.resets.iter().copied() {
                let sector = self.shape.sector(segment * self.shape.segment);
                plan.bare(0, Op::Discard, sector, self.shape.segment * BLOCK as u32);
            }
            self.counters.resets += self.work.resets.len() as u64;
            self.work.step = LfsBackgroundStep::Reset;
            return BackgroundDecision::Run;
        }
        let waits_for_records = if self.wants_checkpoint() {
            if self.begin_checkpoint(plan) {
                self.work.step = LfsBackgroundStep::Checkpoint;
                return BackgroundDecision::Run;
            }
            true
        } else {
            false
        };
        if self.clean(in_flight, plan) {
            self.work.step = LfsBackgroundStep::Move;
            return BackgroundDecision::Run;
        }
        if waits || waits_for_records { BackgroundDecision::Later } else { BackgroundDecision::None }
    }

    /// Releases segments that no request reads any more. Returns whether some segments still wait for requests.
    fn leave_segments(&mut self, in_flight: &InFlightRequests) -> bool {
        if self.segments.awaiting_readers.is_empty() {
            return false;
        }
        let newest = *self.work.leave_after.get_or_insert_with(|| in_flight.newest().unwrap_or(0));
        if in_flight.oldest().is_some_and(|oldest| oldest <= newest) {
            return true;
        }
        self.work.leave_after = None;
        self.segments.resettable.append(&mut self.segments.awaiting_readers);
        false
    }

    /// Plans to move live blocks of the segment that is being cleaned. Returns false if no block can be moved now.
    fn clean(&mut self, in_flight: &InFlightRequests, plan: &mut CommandPlan) -> bool {
        loop {
            if self.work.victim.is_none() && !self.choose_victim(in_flight) {
                return false;
            }
            let Some((victim, ..)) = self.work.victim else { return false };
            // The blocks that one step moves must fit into the open segment and one clean segment.
            let room = self.segments.room(self.logs[0]) + self.segments.clean().min(1) * self.shape.segment;
            let most = self.shape.step.min(room / self.shape.align * self.shape.align);
            if most == 0 {
                return false;
            }
            if self.plan_moves(most, in_flight, plan) {
                return true;
            }
            // Requests in flight are changing all remaining blocks of this segment.
            if self.segments.is_live(victim) {
                return false;
            }
        }
    }

    /// Chooses a segment to clean. Returns false if cleaning is unnecessary or would free nothing.
    fn choose_victim(&mut self, in_flight: &InFlightRequests) -> bool {
        let ready = self.segments.free() + self.segments.empty();
        let pressed = ready < self.shape.low + self.work.requested_segments;
        if !pressed && (!in_flight.is_empty() || ready >= self.shape.idle_low) {
            return false;
        }
        // A cleaning step may add up to `align` - 1 blocks of padding, so a victim must free at least `align` blocks. In idle time, it must
        // free at least an eighth of a segment.
        let (policy, least) = if pressed {
            (self.shape.pressed, self.shape.align)
        } else {
            (self.shape.idle, self.shape.align.max(self.shape.segment / 8))
        };
        let Some(segment) = self.segments.victim(policy, least, self.write) else { return false };
        self.work.victim = Some((segment, 0, !pressed));
        let count = if pressed {
            &mut self.counters.segments_cleaned_in_foreground
        } else {
            &mut self.counters.segments_cleaned_in_background
        };
        *count += 1;
        true
    }

    /// Plans to move the next blocks of the segment that is being cleaned. Returns false at the end of the segment.
    fn plan_moves(&mut self, most: u32, in_flight: &InFlightRequests, plan: &mut CommandPlan) -> bool {
        let Some((segment, mut next, idle)) = self.work.victim.take() else { return false };
        self.work.moves.clear();
        let mut behind = None;
        while next < self.shape.segment && (self.work.moves.len() as u32) < most {
            let place = segment * self.shape.segment + next;
            next += 1;
            let block = self.segments.owner(place);
            let sector = u64::from(block) * BLOCK;
            // A block that a request is changing is skipped. It becomes invalid or is moved later.
            if self.table.place(block) != Some(place) || in_flight.changes(sector, sector + BLOCK) {
                continue;
            }
            if behind != Some(place) {
                plan.begin(0, Op::Read, self.shape.sector(place));
            }
            behind = Some(place + 1);
            let scratch = plan.scratch(BLOCK as u32);
            plan.piece(PlanMemory::Scratch, scratch, BLOCK as u32);
            self.work.moves.push((block, place, 0));
        }
        if next < self.shape.segment {
            self.work.victim = Some((segment, next, idle));
        }
        if self.work.moves.is_empty() {
            return false;
        }
        plan.wait();
        self.plan_writes(plan);
        true
    }

    /// Plans to write the moved blocks to the cold log, which receives the blocks that cleaning moves.
    fn plan_writes(&mut self, plan: &mut CommandPlan) {
        let mut moves = std::mem::take(&mut self.work.moves);
        self.write += 1;
        self.work.write = self.write;
        self.work.destination_places.clear();
        let mut head = self.logs[0];
        let mut done = 0;
        while done < moves.len() {
            if self.segments.room(head) == 0 {
                let Some(opened) = self.segments.open() else { break };
                head = opened;
            }
            let left = ((moves.len() - done) as u32).next_multiple_of(self.shape.align);
            let taken = left.min(self.segments.room(head));
            let data = taken.min((moves.len() - done) as u32);
            let place = self.segments.take(&mut head, taken, self.write);
            self.work.destination_places.push((place, taken));
            self.counters.log_blocks += u64::from(taken);
            self.checkpoints.add_logged(taken);
            plan.flag(CommandFlags::empty());
            plan.begin(0, Op::Write, self.shape.sector(place));
            plan.piece(PlanMemory::Scratch, done as u32 * BLOCK as u32, data * BLOCK as u32);
            self.pad(taken - data, plan);
            for (entry, place) in moves[done..done + data as usize].iter_mut().zip(place..) {
                entry.2 = place;
                self.segments.set_owner(place, entry.0);
            }
            done += data as usize;
        }
        // This removes nothing, because `clean` checked that all blocks fit.
        moves.truncate(done);
        self.logs[0] = head;
        self.counters.cleaned_blocks += moves.len() as u64;
        self.counters.cleaning_reads += moves.len() as u64;
        self.work.moves = moves;
    }

    /// Called when a step is complete.
    pub(super) fn work_done(&mut self) {
        match std::mem::take(&mut self.work.step) {
            LfsBackgroundStep::None => {}
            LfsBackgroundStep::Reset => {
                self.segments.was_reset(&self.work.resets);
                let resets = self.work.resets.len() as u32;
                self.work.requested_segments = self.work.requested_segments.saturating_sub(resets);
            }
            LfsBackgroundStep::Checkpoint => self.checkpoint_done(),
            LfsBackgroundStep::Move => {
                let moves = std::mem::take(&mut self.work.moves);
                for (block, from, to) in moves.iter().copied() {
                    // If the block was written or discarded during the move, the map contains another location for it.
                    if self.table.place(block) == Some(from) {
                        self.map(block, Some(to), true);
                        self.pending.change(block, Some(to), self.work.write);
                    }
                }
                self.work.moves = moves;
                for (place, blocks) in self.work.destination_places.iter().copied() {
                    self.segments.written(place, blocks);
                }
            }
        }
    }
}
