//! The filler: writes back a clustered block. Page padding fills the holes inside its clustered pages, block padding fills all
//! holes of the block.

use emmclab_base::Op;

use super::Advil;
use crate::interval_map::LoggedExtent;
use crate::plan::{CommandPlan, PlanMemory};

impl Advil {
    /// Plans to write back the data that the previous section holds of the clustered block from `first` to `end`.
    pub(super) fn fill(&mut self, first: u64, end: u64, plan: &mut CommandPlan) {
        let before = &self.sections[1 - self.current];
        let mut runs = std::mem::take(&mut self.moving.runs);
        runs.clear();
        runs.extend(self.map.between(first, end).filter(|run| before.holds(run.place)));
        let filled = self.shape.fill_over.is_some_and(|over| self.dirty_pages(&runs) > over);
        // Every run of sectors that is written with one command: first sector, end, and offset in the plan's buffer.
        let mut writes: Vec<(u64, u64, u32)> = Vec::new();
        let mut reads: Vec<(LoggedExtent, u32)> = Vec::with_capacity(runs.len());
        let page = u64::from(self.shape.page);
        let mut dirty = 0;
        for run in &runs {
            let (from, to) = if filled {
                (first, end)
            } else if self.shape.page_padding {
                (run.sector / page * page, (run.end().div_ceil(page) * page).min(end))
            } else {
                (run.sector, run.end())
            };
            match writes.last_mut() {
                // The previous run may already have added this clustered page.
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => writes.push((from, to, 0)),
            }
            dirty += u64::from(run.sectors);
        }
        let mut holes: Vec<(u64, u64)> = Vec::new();
        let mut next = runs.iter().peekable();
        for (from, to, offset) in &mut writes {
            *offset = plan.scratch((*to - *from) as u32);
            let mut at = *from;
            while let Some(run) = next.next_if(|run| run.sector < *to) {
                if at < run.sector {
                    holes.push((at, run.sector));
                }
                reads.push((*run, *offset + (run.sector - *from) as u32));
                at = run.end();
            }
            if at < *to {
                holes.push((at, *to));
            }
        }
        let mut padded = 0;
        let most = u64::from(self.shape.read_through);
        // Part of the plan's buffer for the data between two holes, which is not used.
        let mut unused = None;
        let mut last_end = None;
        for (from, to) in holes {
            let home = writes.iter().find(|(first, end, _)| (*first..*end).contains(&from));
            let Some((first, _, offset)) = home else { continue };
            match last_end.map(|end| from - end).filter(|between| *between <= most) {
                None => plan.begin(0, Op::Read, from),
                Some(between) => {
                    let unused = *unused.get_or_insert_with(|| plan.scratch(self.shape.read_through));
                    plan.piece(PlanMemory::Scratch, unused, between as u32);
                    self.counters.read_through_bytes += between * 512;
                }
            }
            last_end = Some(to);
            plan.piece(PlanMemory::Scratch, offset + (from - first) as u32, (to - from) as u32);
            padded += to - from;
        }
        self.read_runs(&mut reads, plan);
        plan.wait();
        for (from, to, offset) in &writes {
            plan.begin(0, Op::Write, *from);
            plan.piece(PlanMemory::Scratch, *offset, (to - from) as u32);
            self.count_write(*from, *to);
        }
        self.counters.moved_blocks += 1;
        self.counters.filled_blocks += u64::from(filled);
        self.counters.moved_bytes += dirty * 512;
        self.counters.move_writes += writes.len() as u64;
        self.counters.padded_bytes += padded * 512;
        self.moving.runs = runs;
    }

    /// Counts a write of the mover by its alignment: whole clustered blocks, whole clustered pages, or neither.
    fn count_write(&mut self, from: u64, to: u64) {
        let whole = |size: u32| from.is_multiple_of(u64::from(size)) && to.is_multiple_of(u64::from(size));
        let counts = &mut self.counters;
        let (writes, bytes) = if whole(self.shape.block) {
            (&mut counts.move_block_writes, &mut counts.move_block_bytes)
        } else if whole(self.shape.page) {
            (&mut counts.move_page_writes, &mut counts.move_page_bytes)
        } else {
            (&mut counts.move_other_writes, &mut counts.move_other_bytes)
        };
        *writes += 1;
        *bytes += (to - from) * 512;
    }

    /// Reads logged runs into the plan's buffer in the order of their places; runs that are adjacent in the log are read with one
    /// command.
    pub(super) fn read_runs(&self, reads: &mut [(LoggedExtent, u32)], plan: &mut CommandPlan) {
        reads.sort_unstable_by_key(|(run, _)| run.place);
        let area = self.shape.reserved;
        let mut next = None;
        for (run, offset) in reads {
            if next != Some(run.place) {
                plan.begin(area.disk, Op::Read, area.sector + u64::from(run.place));
            }
            plan.piece(PlanMemory::Scratch, *offset, run.sectors);
            next = Some(run.place + run.sectors);
        }
    }

    /// Number of clustered pages that the runs of one block touch.
    fn dirty_pages(&self, runs: &[LoggedExtent]) -> u32 {
        let page = u64::from(self.shape.page);
        let mut count = 0;
        let mut next = 0;
        for run in runs {
            let from = (run.sector / page).max(next);
            next = run.end().div_ceil(page).max(next);
            count += (next - from.min(next)) as u32;
        }
        count
    }
}
