//! Chooses the start address of each request: a new one, an earlier one, or the end of the previous request.

use std::collections::VecDeque;

use emmclab_trace::{Op, Sector};
use rustc_hash::FxHashSet;

use crate::distribute::{SynthesisRng, WeightedSampler, percent_of};
use crate::model::WorkloadModel;
use crate::request_order::JournalRole;

/// Sectors in a 4 KB page; a new start address is a multiple of it.
const PAGE: u64 = 8;
/// Number of extents that reads fill at the same time, and that writes fill at the same time.
const EXTENTS: usize = 32;
/// Maximum length of an extent, sectors.
const EXTENT_SECTORS: u64 = 64 << 11;
/// Minimum number of extents in a device; small devices have shorter extents. Each extent is used once before any is used again.
const LEAST_EXTENTS: u64 = 1_024;
/// Maximum number of earlier requests of an operation (read or write) whose start addresses are stored for reuse.
const HISTORY: usize = 1 << 18;
/// Number of searches for a start address that was used with the same size. After these searches, an address with another size is accepted.
const LOOKS: u32 = 8;
/// Number of tries to find an unused start address. All of them fail only if the address space is full.
const TRIES: u32 = 64;
const MILLION: u64 = 1_000_000;

/// A request that needs a start address.
#[derive(Clone, Copy)]
pub(crate) struct AddressRequest {
    pub op: Op,
    pub role: JournalRole,
    pub sectors: u64,
    /// Whether the request should start where the previous request ended.
    pub sequential: bool,
    /// Whether the request should start where an earlier request started.
    pub returns: bool,
}

/// A part of the address space that is filled from its start.
#[derive(Clone, Copy, Default)]
struct FillExtent {
    next: u64,
    end: u64,
}

/// A cycle through all numbers below `count`, in which consecutive numbers are far apart.
struct ScatteredCycle {
    count: u64,
    step: u64,
    next: u64,
}

impl ScatteredCycle {
    fn new(count: u64, dice: &mut SynthesisRng) -> Self {
        let mut step = dice.below(count) + count / 2;
        while gcd(step, count) != 1 {
            step += 1;
        }
        Self { count, step, next: dice.below(count) }
    }

    fn draw(&mut self) -> u64 {
        self.next = (self.next + self.step) % self.count;
        self.next
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A use of a start address to which later requests can return.
#[derive(Clone, Copy)]
struct AddressUse {
    /// Index of the request among the requests of its operation (reads or writes).
    number: u64,
    start: u32,
    sectors: u32,
}

/// The start addresses of one operation.
struct OperationAddresses {
    number: u64,
    uses: VecDeque<AddressUse>,
    /// The latest new start address, which is reused if there is no other address to return to.
    latest: Option<AddressUse>,
    /// Reuse distances: how many requests ago a start address was used.
    reuse: WeightedSampler,
    /// Share of the new start addresses to which later requests can return, in parts per million.
    returnable: u64,
    /// Number of returns to earlier addresses that are still to be made.
    planned: i64,
    /// Number of planned returns to earlier addresses that were not possible, and that later requests must make up for. It is negative if
    /// requests returned by chance more often than planned.
    owed: i64,
    /// Number of sequential requests that could not be placed sequentially. Later requests make up for them.
    sequential: u64,
}

/// The address space of a device, and the start addresses used so far.
pub(crate) struct AddressSpace {
    sectors: u64,
    used_starts: FxHashSet<u32>,
    by_op: [OperationAddresses; 2],
    /// Extents of reads, then those of writes, and one extent of the journal.
    extents: Vec<FillExtent>,
    extent_sectors: u64,
    unused: ScatteredCycle,
    /// The extent in which the last request lies; `None` if the last request reused an earlier address.
    current: Option<usize>,
    /// Sector at which the last request ended; `u64::MAX` before the first request, because no request starts there.
    end: u64,
}

impl AddressSpace {
    pub(crate) fn new(model: &WorkloadModel, dice: &mut SynthesisRng) -> Self {
        let places = [Op::Read, Op::Write].map(|op| OperationAddresses {
            number: 0,
            uses: VecDeque::new(),
            latest: None,
            reuse: WeightedSampler::new(&model.of(op).reuse_requests),
            returnable: percent_of(MILLION, model.of(op).reused_starts_pct),
            planned: 0,
            owed: 0,
            sequential: 0,
        });
        let sectors = model.address_space_gb << 21;
        let extent_sectors = EXTENT_SECTORS.min(sectors / LEAST_EXTENTS);
        Self {
            sectors,
            extent_sectors,
            unused: ScatteredCycle::new(sectors / extent_sectors, dice),
            used_starts: FxHashSet::default(),
            by_op: places,
            extents: vec![FillExtent::default(); 2 * EXTENTS + 1],
            current: None,
            end: u64::MAX,
        }
    }

    /// Adds to the number of planned returns to earlier addresses, for one operation.
    pub(crate) fn plan(&mut self, op: Op, returns: u64) {
        self.by_op[op as usize].planned += returns as i64;
    }

    /// Chooses the address of the next request. If a request cannot continue the previous one, or return to an earlier address, as planned,
    /// a later request does so instead.
    pub(crate) fn place(&mut self, visit: &AddressRequest, dice: &mut SynthesisRng) -> Sector {
        self.by_op[visit.op as usize].number += 1;
        let start = self.choose(visit, dice);
        let known = !self.used_starts.insert(start as u32);
        self.end = start + visit.sectors;
        let own = &mut self.by_op[visit.op as usize];
        let used = AddressUse { number: own.number, start: start as u32, sectors: visit.sectors as u32 };
        if known || (visit.role == JournalRole::Data && dice.chance(own.returnable, MILLION)) {
            if own.uses.len() == HISTORY {
                own.uses.pop_front();
            }
            own.uses.push_back(used);
        } else if visit.role == JournalRole::Data {
            own.latest = Some(used);
        }
        Sector(start)
    }

    fn choose(&mut self, visit: &AddressRequest, dice: &mut SynthesisRng) -> u64 {
        let fits = self.end.checked_add(visit.sectors).is_some_and(|end| end <= self.sectors);
        let known = fits && self.used_starts.contains(&(self.end as u32));
        let own = &mut self.by_op[visit.op as usize];
        own.planned -= i64::from(visit.returns);
        // A sequential request to a start address that was used before counts as a re-access. It is allowed only while more re-accesses are
        // planned.
        let possible = fits && !(known && own.planned + own.owed + i64::from(visit.returns) <= 0);
        let made_up = !visit.sequential && own.sequential > 0 && visit.role == JournalRole::Data;
        if possible && (visit.sequential || made_up) {
            own.owed += i64::from(visit.returns) - i64::from(known);
            own.sequential -= u64::from(made_up);
            if let Some(extent) = self.current {
                self.extents[extent].next = self.end + visit.sectors;
            }
            return self.end;
        }
        if visit.sequential {
            own.sequential += 1;
            own.owed += i64::from(visit.returns);
            return self.unused_start(visit, dice);
        }
        own.owed += i64::from(visit.returns);
        // A planned return to an earlier address is skipped if enough returns have occurred by chance. If returns are still missing
        // (`owed`), any data request may return to an earlier address.
        let wanted = own.owed > 0 && (visit.returns || visit.role == JournalRole::Data);
        if wanted && let Some(start) = self.reused_start(visit, dice) {
            self.by_op[visit.op as usize].owed -= 1;
            self.current = None;
            return start;
        }
        self.unused_start(visit, dice)
    }

    fn reused_start(&self, visit: &AddressRequest, dice: &mut SynthesisRng) -> Option<u64> {
        let own = &self.by_op[visit.op as usize];
        let other = &self.by_op[1 - visit.op as usize];
        let allowed =
            |used: &AddressUse| u64::from(used.start) != self.end && u64::from(used.start) + visit.sectors <= self.sectors;
        let mut second_best = None;
        for look in 0..2 * LOOKS {
            // After `LOOKS` failed searches, any earlier address is accepted, regardless of the time of its use and of the request size.
            let ago = if look < LOOKS { own.reuse.draw(dice) } else { u64::MAX };
            let Some(used) = own.earlier_use(ago, dice).filter(allowed) else { continue };
            if u64::from(used.sectors) == visit.sectors {
                return Some(used.start.into());
            }
            second_best = second_best.or(Some(used));
            if look >= LOOKS {
                break;
            }
        }
        let last_resort = || own.latest.or(other.latest).filter(allowed);
        second_best.or_else(last_resort).map(|used| used.start.into())
    }

    fn unused_start(&mut self, visit: &AddressRequest, dice: &mut SynthesisRng) -> u64 {
        let index = match visit.role {
            JournalRole::Data => visit.op as usize * EXTENTS + dice.below(EXTENTS as u64) as usize,
            JournalRole::Journal | JournalRole::Commit => 2 * EXTENTS,
        };
        let mut start = 0;
        for _ in 0..TRIES {
            let extent = &mut self.extents[index];
            start = extent.next.next_multiple_of(PAGE);
            if start + visit.sectors > extent.end {
                let room = visit.sectors.max(self.extent_sectors);
                start = if room == self.extent_sectors {
                    self.unused.draw() * room
                } else {
                    dice.below((self.sectors - room) / PAGE + 1) * PAGE
                };
                extent.end = start + room;
            }
            if start == self.end || self.used_starts.contains(&(start as u32)) {
                extent.next = start + PAGE;
            } else {
                extent.next = start + visit.sectors;
                break;
            }
        }
        self.current = Some(index);
        start
    }
}

impl OperationAddresses {
    /// Returns the stored use of a start address whose age is closest to `ago` requests. If no use is that old, returns a random one;
    /// `None` if no use is stored.
    fn earlier_use(&self, ago: u64, dice: &mut SynthesisRng) -> Option<AddressUse> {
        let index = self.number.checked_sub(ago).and_then(|number| {
            // Most searches are for recent uses, so the last uses are checked first.
            let recent = self.uses.iter().rev().take(8).position(|used| used.number <= number);
            let before = match recent {
                Some(from_end) => self.uses.len() - 1 - from_end,
                None => self.uses.partition_point(|used| used.number <= number).checked_sub(1)?,
            };
            let after = self.uses.get(before + 1).filter(|after| after.number < self.number);
            let closer = after.is_some_and(|after| after.number - number < number - self.uses[before].number);
            Some(before + usize::from(closer))
        });
        let index = index.unwrap_or_else(|| dice.below(self.uses.len() as u64) as usize);
        self.uses.get(index).copied()
    }
}
