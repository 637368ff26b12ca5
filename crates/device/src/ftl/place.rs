//! Where new data goes: a plane, a block and a page, and the map afterwards.
#![expect(clippy::inline_always, reason = "the hottest path; what is handed on stays in registers")]

use crate::config::AllocationPolicy;
use crate::device::{Device, Stop};
use crate::event::{BlockErased, Cause, Observer, PageProgrammed, UnitWritten};
use crate::nand::{BlockState, NONE, Operation, Stream};

/// Most map units in a page: clustered pages of 64 KB with 4 KB units.
pub(crate) const MAX_SLOTS: usize = 16;

/// Sectors of the host's request, to tell which part of a unit it covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub first: u64,
    pub end: u64,
}

impl Span {
    /// Sectors of `unit` that the span covers, one bit each.
    #[inline]
    pub fn covered(self, unit: u32, unit_sectors: u32) -> u32 {
        let base = u64::from(unit) * u64::from(unit_sectors);
        let from = self.first.saturating_sub(base).min(u64::from(unit_sectors)) as u32;
        let to = self.end.saturating_sub(base).min(u64::from(unit_sectors)) as u32;
        let below = |n: u32| if n >= 32 { u32::MAX } else { (1 << n) - 1 };
        below(to) & !below(from)
    }
}

/// A page that the host's data goes to: as many of the `units` from `first` on as it holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageWrite {
    pub first: u32,
    pub units: u32,
    pub group: u8,
    pub span: Span,
    pub hot: bool,
}

/// Whose turn it is to take a page: the place of the unit in the striping order, its number, and its plane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    place: u32,
    unit: u32,
    pub plane: u32,
}

/// Where a page is programmed next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub plane: u32,
    pub group: u8,
    pub pool: usize,
    pub block: u32,
}

impl Device {
    /// Programs a page of the host's, preferably in its group; other groups follow where that one is full. Returns how
    /// many units it took, or `None` where the device is full.
    #[inline(always)]
    pub(crate) fn program_host<O: Observer>(
        &mut self,
        ready: i64,
        write: PageWrite,
        observer: &mut O,
    ) -> Option<(Operation, u32)> {
        let PageWrite { first, units, group, span, hot } = write;
        let stream = if hot { Stream::Hot } else { Stream::Host };
        let Some(Place { plane, group, pool, block }) = self.place(ready, first, group, stream, observer)
        else {
            self.stop.get_or_insert(Stop::Full);
            return None;
        };
        let kind = &self.pools[pool].kind;
        let units = units.min(kind.slots_per_page());
        let page = self.blocks[block as usize].written;
        let slot = self.geometry.first_slot(block) + (page << kind.page_shift);
        let mut bytes = units * self.geometry.unit_bytes;
        if !self.whole(span) && self.partial(span, first, units) {
            bytes = self.bytes_to_move(span, first, units);
        }
        let op = self.flash.program(plane, kind, page, ready, bytes);
        self.counters.bus_bytes += u64::from(bytes);
        self.counters.programmed(Cause::Host, group, kind.page_bytes, 1);
        if O::UNITS {
            let mut written = [UnitWritten::default(); MAX_SLOTS];
            for i in 0..units {
                let logical = first + i;
                written[i as usize] = UnitWritten {
                    logical,
                    from: self.lookup(logical),
                    covered: span.covered(logical, self.geometry.unit_sectors),
                };
            }
            observer.page_programmed(&PageProgrammed {
                block,
                page,
                cause: Cause::Host,
                units: &written[..units as usize],
                begin: op.begin,
                end: op.end,
            });
        }
        self.last_program = self.last_program.max(op.end);
        let mut books = self.books();
        books.remap(first, units, slot);
        books.fill(pool, block, 1, units, stream);
        if self.incremental && self.pools[pool].free() <= self.soft {
            self.collect_some(pool, ready, observer);
        }
        Some((op, units))
    }

    /// When a page program counts as complete.
    #[inline]
    pub(crate) fn completion(&self, op: &Operation) -> i64 {
        if self.transferred { op.transferred } else { op.end }
    }

    /// Whether the host's span begins and ends with a unit.
    #[inline]
    pub(crate) fn whole(&self, span: Span) -> bool {
        (span.first | span.end) & u64::from(self.geometry.unit_sectors - 1) == 0
    }

    /// Whether the host's span leaves part of the first or last of these units uncovered.
    #[inline]
    pub(crate) fn partial(&self, span: Span, first: u32, units: u32) -> bool {
        let shift = self.geometry.unit_shift;
        span.first > u64::from(first) << shift || span.end < u64::from(first + units) << shift
    }

    /// Bytes that cross the bus for a page of which the host covers a part: what it covers, and what is kept of the old.
    pub(super) fn bytes_to_move(&self, span: Span, first: u32, units: u32) -> u32 {
        (first..first + units)
            .map(|unit| match self.lookup(unit) {
                Some(_) => self.geometry.unit_bytes,
                None => span.covered(unit, self.geometry.unit_sectors).count_ones() * 512,
            })
            .sum()
    }

    /// A plane, a group and an open block with room.
    #[inline(always)]
    pub(super) fn place<O: Observer>(
        &mut self,
        ready: i64,
        unit: u32,
        group: u8,
        stream: Stream,
        observer: &mut O,
    ) -> Option<Place> {
        let plane = match self.allocation {
            AllocationPolicy::Dynamic => {
                let turn = self.next_turn(ready);
                self.take_turn(turn);
                turn.plane
            }
            AllocationPolicy::Static => self.home_plane(unit, group),
        };
        let pool = self.pool_index(plane, group);
        if self.pools[pool].valid < self.pools[pool].valid_limit
            && let Some(block) = self.open_block(pool, plane, group, stream, ready, observer)
        {
            return Some(Place { plane, group, pool, block });
        }
        self.place_anywhere(ready, group, stream, observer)
    }

    /// The slow way: every plane of the group, then every plane of the others; planes above their share last.
    #[cold]
    fn place_anywhere<O: Observer>(
        &mut self,
        ready: i64,
        group: u8,
        stream: Stream,
        observer: &mut O,
    ) -> Option<Place> {
        for crowded in [false, true] {
            for turn in 0..=self.geometry.by_size.len() {
                let other = match turn {
                    0 => group,
                    turn => self.geometry.by_size[turn - 1],
                };
                if turn > 0 && other == group {
                    continue;
                }
                for i in 0..self.geometry.planes {
                    if self.stop.is_some() {
                        return None;
                    }
                    let plane = self.geometry.stripe[((self.cursor + i) % self.geometry.planes) as usize];
                    let pool = self.pool_index(plane, other);
                    let below = self.pools[pool].valid < self.pools[pool].valid_limit;
                    if below != crowded
                        && let Some(block) = self.open_block(pool, plane, other, stream, ready, observer)
                    {
                        return Some(Place { plane, group: other, pool, block });
                    }
                }
            }
        }
        None
    }

    /// The plane that may begin first; the units take turns where several may, and so do the planes of a unit.
    #[inline(always)]
    pub(crate) fn next_turn(&self, ready: i64) -> Turn {
        let place = self.flash.first_unit(self.cursor as usize, ready);
        let (unit, planes) = (self.flash.unit_at(place), self.flash.planes_per_unit());
        let mut plane = unit;
        if planes > 1 {
            let last = self.plane_turn[unit as usize];
            plane = unit * planes + if last + 1 >= planes { 0 } else { last + 1 };
        }
        Turn { place: place as u32, unit, plane }
    }

    /// That plane takes the page.
    #[inline(always)]
    pub(crate) fn take_turn(&mut self, turn: Turn) {
        let next = turn.place + 1;
        self.cursor = if next == self.flash.unit_count() { 0 } else { next };
        let planes = self.flash.planes_per_unit();
        if planes > 1 {
            self.plane_turn[turn.unit as usize] = turn.plane - turn.unit * planes;
        }
    }

    /// The plane that a logical address belongs to in static placement.
    #[inline]
    pub(crate) fn home_plane(&self, unit: u32, group: u8) -> u32 {
        let page = unit >> self.geometry.groups[usize::from(group)].page_shift;
        self.geometry.stripe[(page % self.geometry.planes) as usize]
    }

    #[inline]
    pub(crate) fn pool_index(&self, plane: u32, group: u8) -> usize {
        plane as usize * self.geometry.groups.len() + usize::from(group)
    }

    /// The open block of a stream, a new one where there is none, collecting first where free blocks are few.
    #[inline(always)]
    pub(crate) fn open_block<O: Observer>(
        &mut self,
        pool: usize,
        plane: u32,
        group: u8,
        stream: Stream,
        ready: i64,
        observer: &mut O,
    ) -> Option<u32> {
        let open = self.pools[pool].open[stream as usize];
        if open != NONE {
            return Some(open);
        }
        self.new_open_block(pool, plane, group, stream, ready, observer)
    }

    #[inline(never)]
    fn new_open_block<O: Observer>(
        &mut self,
        pool: usize,
        plane: u32,
        group: u8,
        stream: Stream,
        ready: i64,
        observer: &mut O,
    ) -> Option<u32> {
        if stream != Stream::Gc && self.policy.is_some() && !self.reclaim(pool, ready, observer) {
            return None;
        }
        // Collection itself may just have filled the need of the stream.
        self.take_block(pool, plane, group, stream)
    }

    fn take_block(&mut self, pool: usize, plane: u32, group: u8, stream: Stream) -> Option<u32> {
        let block = self.pools[pool].take()?;
        let entry = &mut self.blocks[block as usize];
        entry.plane = plane as u16;
        entry.group = group;
        entry.state = BlockState::Open;
        entry.written = 0;
        self.pools[pool].open[stream as usize] = block;
        Some(block)
    }

    /// Erases a block without valid data and puts it among the free ones, or retires it.
    pub(crate) fn erase<O: Observer>(&mut self, block: u32, ready: i64, observer: &mut O) -> Operation {
        let entry = &mut self.blocks[block as usize];
        let (plane, group) = (u32::from(entry.plane), entry.group);
        entry.erases += 1;
        entry.written = 0;
        let erases = entry.erases;
        let kind = &self.geometry.groups[usize::from(group)];
        let limit = kind.erase_limit;
        let op = self.flash.erase(plane, kind, ready);
        self.counters.group_erases[usize::from(group)] += 1;
        observer.block_erased(&BlockErased { block, erases, begin: op.begin, end: op.end });
        let pool = self.pool_index(plane, group);
        self.pools[pool].most_erases = self.pools[pool].most_erases.max(erases);
        if limit > 0 && erases >= limit {
            self.blocks[block as usize].state = BlockState::Bad;
            self.counters.bad_blocks += 1;
            observer.block_retired(&crate::BlockRetired { block });
            if !self.pools[pool].retire() {
                self.stop = Some(Stop::WornOut);
            }
        } else {
            self.blocks[block as usize].state = BlockState::Free;
            self.pools[pool].give_back(block, erases);
        }
        op
    }
}
