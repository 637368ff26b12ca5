//! Moves of pages by garbage collection, one after another, into one block.

use emmclab_base::Nanos;

use super::plane::{BlockState, EraseBlock, FlashCommand, PlaneResources};
use super::timelines::FlashTimelines;
use crate::events::SuspendableOperation;
use crate::geometry::GroupGeometry;
use crate::ids::{BlockId, PlaneId};

/// Moves of pages into consecutive pages of one block.
pub(crate) struct PageCopies<'a> {
    pub(super) to: &'a mut EraseBlock,
    /// The page that the next move programs.
    pub(super) page: u32,
    pub(super) pages_per_block: u32,
    pub(super) path: CopyTiming<'a>,
}

pub(super) enum CopyTiming<'a> {
    /// Moves within a plane, without other operations between the read and the program of a move.
    InPlace(InPlaceCopies<'a>),
    /// Moves as individual flash operations.
    General(GeneralCopies<'a>),
}

impl PageCopies<'_> {
    /// Moves a page: reads `reads` (no page if the page register contains the data), the first with the retries of all of them, and
    /// programs one. Returns the start and the end of the move.
    #[inline(always)]
    pub fn page(&mut self, reads: SourcePages, retries: Nanos) -> (Nanos, Nanos) {
        let (begin, end) = match &mut self.path {
            CopyTiming::InPlace(path) => path.page(reads, retries, self.page),
            CopyTiming::General(path) => path.page(reads, retries, self.page),
        };
        self.page += 1;
        (begin, end)
    }

    /// Reads and programs `count` pages. Returns the start of the first move and the end of the last one. If the moves are not alike, does
    /// nothing and returns `None`.
    #[inline]
    pub fn pages(&mut self, count: u32) -> Option<(Nanos, Nanos)> {
        let CopyTiming::InPlace(path) = &mut self.path else { return None };
        if path.is_typed {
            return None;
        }
        let begin = path.end;
        path.pages(count);
        self.page += count;
        Some((begin, path.end))
    }

    /// Whether the moves stay within a plane and take the same times, so that [`PageCopies::pages`] can be used.
    #[inline]
    pub fn are_alike(&self) -> bool {
        matches!(&self.path, CopyTiming::InPlace(path) if !path.is_typed)
    }

    /// Ends the series of moves and updates the state of the block. Returns the time that the ways spent, summed over the moves.
    #[inline]
    pub fn finish(self) -> Nanos {
        self.to.written = self.page;
        if self.page == self.pages_per_block {
            self.to.state = BlockState::Full;
        }
        match self.path {
            CopyTiming::InPlace(path) => path.book(),
            CopyTiming::General(path) => path.took,
        }
    }
}

/// The pages that a move reads: their number, and two bits for the type of each (`GroupGeometry::type_of`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SourcePages {
    pub count: u32,
    types: u32,
}

impl SourcePages {
    /// Adds a page of a block of `group`. A move reads at most [`MAX_UNITS`](crate::geometry::MAX_UNITS) pages.
    #[inline(always)]
    pub fn add(&mut self, group: &GroupGeometry, page: u32) {
        self.types |= group.type_of(page) << (2 * self.count);
        self.count += 1;
    }

    /// The type of each page.
    #[inline(always)]
    fn types(self) -> impl Iterator<Item = u32> {
        (0..self.count).map(move |i| self.types >> (2 * i) & 3)
    }
}

pub(super) struct InPlaceCopies<'a> {
    resources: PlaneResources<'a>,
    groups: (&'a GroupGeometry, &'a GroupGeometry),
    /// Whether the times depend on the type of a page.
    is_typed: bool,
    /// Start of the first move.
    begin: Nanos,
    /// End of the last move so far. The way is busy from one move to the next.
    end: Nanos,
    /// Bus time of a command.
    command: Nanos,
    /// Bus time of the data of a read.
    out: Nanos,
    back: Nanos,
    read: Nanos,
    /// Time of the last program. If all types of pages take the same times, it is the time of every program.
    program: Nanos,
}

impl<'a> InPlaceCopies<'a> {
    pub fn new(
        timelines: &'a mut FlashTimelines, plane: PlaneId, groups: (&'a GroupGeometry, &'a GroupGeometry), ready: Nanos,
    ) -> Self {
        let (from, to) = groups;
        let interface = &timelines.interface;
        let (out, back) = copied_bytes(interface.copy_back, from, to);
        let (command, out, back) = (interface.command, interface.read_time(out), interface.write_time(back));
        let resources = timelines.resources(plane);
        let begin = ready.max(resources.way.free);
        let (read, program) = (from.page.read, to.page.program);
        let is_typed = !from.page_types.is_empty() || !to.page_types.is_empty();
        Self { groups, is_typed, begin, end: begin, command, out, back: command + back, read, program, resources }
    }

    #[inline(always)]
    fn page(&mut self, reads: SourcePages, mut retries: Nanos, page: u32) -> (Nanos, Nanos) {
        if self.is_typed {
            self.program = self.groups.1.times(page).program;
        }
        let (from, is_typed, read) = (self.groups.0, self.is_typed, self.read);
        let mut take = |at: Nanos, time: Nanos| {
            if time > Nanos::ZERO { self.resources.channel.reserve(at, time) + time } else { at }
        };
        let begin = self.end;
        let mut at = begin;
        for page_type in reads.types() {
            let array = if is_typed { from.times_of(page_type).read } else { read };
            let sensed = take(at, self.command) + array + std::mem::take(&mut retries);
            at = take(sensed, self.out);
        }
        self.end = take(at, self.back) + self.program;
        (begin, self.end)
    }

    /// Moves `count` pages. If a move does not need the bus, all moves take the same time.
    fn pages(&mut self, count: u32) {
        if self.command + self.out + self.back == Nanos::ZERO {
            self.end += Nanos(i64::from(count) * (self.read + self.program).0);
            return;
        }
        for _ in 0..count {
            self.page(SourcePages { count: 1, types: 0 }, Nanos::ZERO, 0);
        }
    }

    /// Adds all moves to the timelines at once. Returns their total time. Planes of a multi-plane group never use this path, so all moves
    /// can be entered as one program operation.
    #[inline]
    fn book(mut self) -> Nanos {
        let (begin, end) = (self.begin, self.end);
        if end > begin {
            self.resources.book(FlashCommand::Program, 0, (begin, end, end));
            self.resources.way.register = end - self.program;
            self.resources.way.note_gc(begin, end);
        }
        end - begin
    }
}

pub(super) struct GeneralCopies<'a> {
    pub timelines: &'a mut FlashTimelines,
    pub planes: (PlaneId, PlaneId),
    pub groups: (&'a GroupGeometry, &'a GroupGeometry),
    /// The block whose pages are read, and the one that is programmed.
    pub from: BlockId,
    pub to: BlockId,
    pub ready: Nanos,
    /// Total time of the moves so far.
    pub took: Nanos,
}

impl GeneralCopies<'_> {
    #[inline(never)]
    fn page(&mut self, reads: SourcePages, retries: Nanos, page: u32) -> (Nanos, Nanos) {
        let same = self.planes.0 == self.planes.1;
        let (begin, end) = if same { self.inside(reads, retries, page) } else { self.across(reads, retries, page) };
        if self.timelines.suspends() {
            let array = if same { begin } else { end - self.groups.1.times(page).program };
            // Before the move, the data is read from its old page in the same plane, unless that page is still to be programmed.
            let waits = !same || self.timelines.programs(self.planes.0, self.from);
            let page = Some((self.to, page)).filter(|_| waits);
            self.timelines.note(Some(SuspendableOperation::Move), (self.planes.1, page), self.ready, (array, end));
        }
        self.took += end - begin;
        (begin, end)
    }

    fn inside(&mut self, reads: SourcePages, mut retries: Nanos, page: u32) -> (Nanos, Nanos) {
        let (plane, (from, to)) = (self.planes.0, self.groups);
        let (out, back) = copied_bytes(self.timelines.interface.copy_back, from, to);
        let begin = self.timelines.plane_free(plane).max(self.ready);
        let mut at = self.ready;
        for page_type in reads.types() {
            let array = from.times_of(page_type).read + std::mem::take(&mut retries);
            at = self.timelines.read(plane, page, array, at, out).end;
        }
        let end = self.timelines.program(plane, page, to.times(page).program, at, back).end;
        self.timelines.note_gc(plane, begin, end);
        (begin, end)
    }

    /// Moves a page to another plane. Only the program, on the destination plane, counts as time spent on garbage collection.
    fn across(&mut self, reads: SourcePages, mut retries: Nanos, page: u32) -> (Nanos, Nanos) {
        let ((plane, to_plane), (from, to)) = (self.planes, self.groups);
        let mut at = self.ready;
        for page_type in reads.types() {
            let array = from.times_of(page_type).read + std::mem::take(&mut retries);
            at = self.timelines.read(plane, 0, array, at, from.page_bytes).end;
        }
        if self.timelines.suspends() {
            self.timelines.note(None, (plane, None), self.ready, (self.ready, at));
        }
        let op = self.timelines.program(to_plane, page, to.times(page).program, at, to.page_bytes);
        self.timelines.note_gc(to_plane, op.begin, op.end);
        (op.begin, op.end)
    }
}

impl<'a> PageCopies<'a> {
    /// Prepares moves from the plane `planes.0` to the block `to`. The first moved page is written to page `page` of this block.
    pub(super) fn new(
        timelines: &'a mut FlashTimelines, planes: (PlaneId, PlaneId), groups: (&'a GroupGeometry, &'a GroupGeometry),
        (entry, from, to, page): (&'a mut EraseBlock, BlockId, BlockId, u32), ready: Nanos,
    ) -> Self {
        let interface = &timelines.interface;
        let overlaps = interface.cache_read || interface.cache_program || timelines.suspends();
        let path = if planes.0 != planes.1 || !timelines.groups.is_empty() || overlaps {
            CopyTiming::General(GeneralCopies { timelines, planes, groups, from, to, ready, took: Nanos::ZERO })
        } else {
            CopyTiming::InPlace(InPlaceCopies::new(timelines, planes.0, groups, ready))
        };
        Self { to: entry, page, pages_per_block: groups.1.pages_per_block, path }
    }
}

/// Bytes that cross the bus when a page is moved within its plane: (out, in).
fn copied_bytes(copy_back: bool, from: &GroupGeometry, to: &GroupGeometry) -> (u32, u32) {
    if copy_back { (0, 0) } else { (from.page_bytes, to.page_bytes) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::DeviceConfig;
    use crate::geometry::Geometry;
    use crate::ids::BlockId;
    use crate::nand::Nand;
    use emmclab_base::Nanos;

    proptest! {
        #[test]
        fn many_pages_at_once_take_as_long_as_one_after_the_other(
            (command, bus, read, program) in (0..3u32, 0..3u32, 0..3u32, 0..3u32),
            // Each step programs or moves pages on one of two planes that share a bus.
            steps in prop::collection::vec((0..2u32, 0..3u32, 0..400_000i64, 1..120u32), 1..40),
        ) {
            let mut config = DeviceConfig::preset("small-1gb").unwrap();
            config.set_all(&[
                ("timing.command_ns", &(command * 100).to_string()),
                ("timing.bus_ns_per_byte", &bus.to_string()),
                ("geometry.block_groups.0.read_us", &(read * 3).to_string()),
                ("geometry.block_groups.0.program_us", &(program * 20).to_string()),
            ]).unwrap();
            let geometry = Geometry::new(config.settings());
            let bytes = geometry.groups[0].page_bytes;
            let mut nand = Nand::new(config.settings(), &geometry);
            let mut plain = nand.clone();
            for (plane, what, ready, pages) in steps {
                let (block, ready) = (BlockId(plane * geometry.blocks_per_plane), Nanos(ready));
                for (nand, at_once) in [(&mut nand, true), (&mut plain, false)] {
                    nand.open(block, ready);
                    if what == 0 {
                        nand.program(block, 0, ready, bytes);
                        continue;
                    }
                    let mut copies = nand.copies(block, (block, 0), ready);
                    if at_once {
                        prop_assert!(copies.pages(pages).is_some());
                    } else {
                        for _ in 0..pages {
                            copies.page(super::SourcePages { count: 1, types: 0 }, Nanos::ZERO);
                        }
                    }
                    copies.finish();
                }
                let plane = nand.block(block).plane;
                prop_assert_eq!(nand.timelines.plane_free(plane), plain.timelines.plane_free(plane));
                prop_assert_eq!(nand.timelines.load(), plain.timelines.load());
            }
        }
    }
}
