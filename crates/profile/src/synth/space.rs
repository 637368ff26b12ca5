//! Where requests go: new places, places seen before, and right behind the predecessor.

use emmclab_trace::{Op, Sector};
use roaring::RoaringBitmap;

use super::deal::{Dice, quantile};
use super::layout::Role;
use super::model::WorkloadModel;

/// Sectors in 4 KB; new requests start on such a page.
const PAGE: u64 = 8;
/// Places in which an operation is writing or reading files at the same time.
const EXTENTS: usize = 32;
/// Sectors that such a place holds before the next one is begun.
const EXTENT_SECTORS: u64 = 64 << 11;
/// Starts of one operation that can be returned to.
const HISTORY: usize = 1 << 20;
/// Tries before a rule gives way, which happens only where the address space is full.
const TRIES: u32 = 64;

/// Requests still to be placed; what keeps counts exact.
pub(super) struct Outstanding {
    /// Returns to a start seen before.
    reaccess: u64,
    /// Requests that may become such returns: neither sequential nor in the journal.
    free: u64,
    /// Sequential requests that found no place of their own and are made up for later.
    sequential: u64,
}

impl Outstanding {
    pub(super) fn new(reaccess: u64, free: u64) -> Self {
        Self { reaccess, free, sequential: 0 }
    }
}

/// A stretch of the address space that fills from its start.
#[derive(Clone, Copy, Default)]
struct Extent {
    next: u64,
    end: u64,
}

/// The starts of one operation, the latest last.
#[derive(Default)]
struct History {
    starts: Vec<u32>,
    count: usize,
}

impl History {
    fn push(&mut self, start: u32) {
        if self.starts.len() < HISTORY {
            self.starts.push(start);
        } else {
            self.starts[self.count % HISTORY] = start;
        }
        self.count += 1;
    }

    /// The start of `ago` requests before, or of any where there were not as many.
    fn back(&self, ago: u64, dice: &mut Dice) -> Option<u64> {
        let known = self.starts.len() as u64;
        let ago = if ago <= known { ago } else { 1 + dice.below(known) };
        let index = self.count.checked_sub(ago.max(1) as usize)?;
        self.starts.get(index % HISTORY).map(|start| u64::from(*start))
    }
}

/// The address space of a device and what has been touched of it.
pub(super) struct Space {
    sectors: u64,
    seen: RoaringBitmap,
    history: [History; 2],
    reuse: [Vec<u64>; 2],
    /// For reads, for writes, and last the journal.
    extents: Vec<Extent>,
    /// Where the last request went on, if in an extent.
    current: Option<usize>,
    /// Behind the last request; no request starts at `u64::MAX`.
    end: u64,
}

impl Space {
    pub(super) fn new(model: &WorkloadModel, gigabytes: u64) -> Self {
        Self {
            sectors: gigabytes << 21,
            seen: RoaringBitmap::new(),
            history: [History::default(), History::default()],
            reuse: [model.reads.reuse_requests.clone(), model.writes.reuse_requests.clone()],
            extents: vec![Extent::default(); 2 * EXTENTS + 1],
            current: None,
            end: u64::MAX,
        }
    }

    /// Finds the place of the next request and takes it off what is outstanding.
    pub(super) fn place(
        &mut self,
        op: Op,
        role: Role,
        sequential: bool,
        sectors: u64,
        left: &mut Outstanding,
        dice: &mut Dice,
    ) -> Sector {
        let start = self.choose(op, role, sequential, sectors, left, dice);
        self.seen.insert(start as u32);
        self.history[op as usize].push(start as u32);
        self.end = start + sectors;
        Sector(start)
    }

    fn choose(
        &mut self,
        op: Op,
        role: Role,
        sequential: bool,
        sectors: u64,
        left: &mut Outstanding,
        dice: &mut Dice,
    ) -> u64 {
        let fits = self.end.checked_add(sectors).is_some_and(|end| end <= self.sectors);
        let returns = fits && self.seen.contains(self.end as u32);
        // A sequential request that runs into a place seen before is one of the returns, while any are left.
        let owed = !sequential && left.sequential > 0 && fits && !returns && role == Role::Data;
        if (sequential || owed) && fits && !(returns && left.reaccess == 0) {
            left.reaccess -= u64::from(returns);
            if owed {
                left.sequential -= 1;
                left.free = left.free.saturating_sub(1);
            }
            if let Some(extent) = self.current {
                self.extents[extent].next = self.end + sectors;
            }
            return self.end;
        }
        if sequential {
            left.sequential += 1;
            return self.fresh(op, role, sectors, dice);
        }
        let wanted = if role == Role::Data {
            let free = left.free;
            left.free = free.saturating_sub(1);
            dice.chance(left.reaccess, free)
        } else {
            left.reaccess > left.free
        };
        if wanted && let Some(start) = self.seen_before(op, sectors, dice) {
            left.reaccess -= 1;
            self.current = None;
            return start;
        }
        self.fresh(op, role, sectors, dice)
    }

    fn seen_before(&self, op: Op, sectors: u64, dice: &mut Dice) -> Option<u64> {
        let reuse = &self.reuse[op as usize];
        let own = &self.history[op as usize];
        let history = if own.starts.is_empty() { &self.history[1 - op as usize] } else { own };
        (0..TRIES).find_map(|attempt| {
            // Past half of the tries, any place will do.
            let ago = if attempt < TRIES / 2 { quantile(reuse, dice.below(1 << 20), 1 << 20) } else { u64::MAX };
            history.back(ago, dice).filter(|start| *start != self.end && start + sectors <= self.sectors)
        })
    }

    fn fresh(&mut self, op: Op, role: Role, sectors: u64, dice: &mut Dice) -> u64 {
        let index = match role {
            Role::Data => op as usize * EXTENTS + dice.below(EXTENTS as u64) as usize,
            Role::Journal | Role::Commit => 2 * EXTENTS,
        };
        let mut start = 0;
        for _ in 0..TRIES {
            let extent = &mut self.extents[index];
            start = extent.next.next_multiple_of(PAGE);
            if start + sectors > extent.end {
                let room = sectors.max(EXTENT_SECTORS).min(self.sectors);
                start = dice.below((self.sectors - room) / PAGE + 1) * PAGE;
                extent.end = start + room;
            }
            if start == self.end || self.seen.contains(start as u32) {
                extent.next = start + PAGE;
            } else {
                extent.next = start + sectors;
                break;
            }
        }
        self.current = Some(index);
        start
    }
}
