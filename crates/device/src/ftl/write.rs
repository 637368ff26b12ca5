//! Writes host data page by page: the largest pages first, each to an open block in the plane that the allocation policy chooses.

use emmclab_base::{CommandFlags, Nanos};
use emmclab_settings::PartialFlush;

use super::allocation::PageRequest;
use super::commit::{PageUnits, ProgrammedPages, UnitList, UnitRun};
use super::core::FtlCore;
use super::pool::WriteStream;
use super::request_state::RequestState;
use crate::events::{DataMoved, LatencyBreakdown, Observer, OperationCause, PartOverwritten, UnitWritten, UnitsPinned};
use crate::geometry::{Geometry, MAX_UNITS};
use crate::ids::{BlockId, Lpn, PoolId};
use crate::nand::{Nand, PageOperationTimes};

/// A page of host data: `units` map units from `first` on, which fit into a page of the block group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageWrite {
    pub first: Lpn,
    pub units: u32,
    pub group: u8,
    pub span: RequestSectors,
    /// Whether the request begins and ends at unit boundaries.
    pub whole_units: bool,
    pub hot: bool,
    /// Number of the command that wrote the data; `None` if it comes from the write buffer.
    pub command: Option<u64>,
}

impl FtlCore {
    /// Writes the data of a request page by page.
    #[inline]
    pub fn write_pages<L: Observer>(&mut self, nand: &mut Nand, request: &mut RequestState, span: RequestSectors, log: &mut L) {
        let (sectors, command) = (request.event.sectors, request.command());
        let hot = self.is_hot(sectors);
        let whole = span.is_whole(self.geometry.unit_sectors);
        let (mut first, mut left) = span.units(self.geometry.unit_shift);
        while left > 0 {
            let (group, units) = self.page_for(first, left, sectors);
            let (mut ready, mut before) = (request.ready, None);
            if !whole && span.is_partial(first, units, self.geometry.unit_shift) {
                let (read, waits) = self.read_rest(nand, span, (first, units), ready, |_| false, log);
                (ready, before) = (read, Some(waits));
            }
            let page = PageWrite { first, units, group, span, whole_units: whole, hot, command };
            let Some((op, taken)) = self.program_host(nand, ready, page, log) else { return };
            let complete = self.completion(&op, request.event.modifiers);
            let own = LatencyBreakdown::of(&op, ready, complete);
            request.absorb(before.map_or(own, |waits| waits.then(own)), op.begin, complete);
            first = first.plus(taken);
            left -= taken;
        }
    }

    /// Programs a page of host data, in its block group if possible, otherwise in another group. Returns the number of units in the page;
    /// `None` if the device is full.
    #[inline(always)]
    pub fn program_host<L: Observer>(
        &mut self, nand: &mut Nand, ready: Nanos, write: PageWrite, log: &mut L,
    ) -> Option<(PageOperationTimes, u32)> {
        let PageWrite { first, units, group, span, whole_units: whole, hot, command } = write;
        let mut stream = if hot { WriteStream::Hot } else { WriteStream::Host };
        if self.booster.is_some() && self.slc.folds(group) {
            stream = self.booster_stream(first, stream, log);
        }
        let Some(place) = self.allocate(nand, PageRequest { ready, first, group }, stream, log) else {
            self.stop_full();
            return None;
        };
        let ProgramTarget { pool, group, block } = place;
        let mut units = units;
        if group != write.group {
            units = units.min(self.geometry.groups[usize::from(group)].units_per_page());
        }
        let unit_sectors = self.geometry.unit_sectors;
        let mut bytes = units * self.geometry.unit_bytes;
        if !whole && span.is_partial(first, units, self.geometry.unit_shift) {
            bytes = self.bytes_to_move(span, first, units);
        }
        let next = nand.program_next(block, ready, bytes);
        let at = ProgrammedPages::next(block, group, &next, bytes, OperationCause::Host, stream);
        self.commit_page(at, &UnitRun { first, units, span, unit_sectors, command }, log);
        if let Some(booster) = &mut self.booster {
            booster.note_use(block);
            if stream == WriteStream::PINNED {
                log.units_pinned(&UnitsPinned { units });
            }
        }
        if self.collector.is_incremental() {
            self.collect_after(nand, pool, ready, log);
        }
        Some((next.op, units))
    }

    /// Reads the rest of the units that a write covers only in part. Skips units that wait in the controller to be written. Returns the
    /// time at which the last read ends, with the parts of its latency.
    #[cold]
    pub fn read_rest<L: Observer>(
        &mut self, nand: &mut Nand, span: RequestSectors, (first, units): (Lpn, u32), ready: Nanos,
        waits_to_be_written: impl Fn(Lpn) -> bool, log: &mut L,
    ) -> (Nanos, LatencyBreakdown) {
        let mut done = (ready, LatencyBreakdown::default());
        let unit_sectors = self.geometry.unit_sectors;
        let whole = all_sectors(unit_sectors);
        for lpn in (first.0..first.0 + units).map(Lpn) {
            let covered = span.covered(lpn, unit_sectors);
            if covered == whole || waits_to_be_written(lpn) {
                continue;
            }
            if let Some(ppn) = self.tables.lookup(lpn) {
                log.part_overwritten(&PartOverwritten { lpn });
                let bytes = (whole & !covered).count_ones() * 512;
                let op = self.read_page(nand, ppn, ready, bytes, OperationCause::ReadModifyWrite, log);
                if op.end > done.0 {
                    done = (op.end, LatencyBreakdown::of(&op, ready, op.end));
                }
            }
        }
        done
    }

    /// Returns a plane, a block group and an open block with a free page for a page of host data. If the chosen plane has none, other
    /// planes and groups are tried; `None` if the device is full.
    #[inline(always)]
    pub fn allocate<L: Observer>(
        &mut self, nand: &mut Nand, page: PageRequest, stream: WriteStream, log: &mut L,
    ) -> Option<ProgramTarget> {
        let plane = self.allocator.next_plane(&self.geometry, nand, page);
        let pool = self.geometry.pool(plane, page.group);
        let (group, entry) = (page.group, self.tables.pool(pool));
        if entry.valid < entry.valid_limit {
            if let Some(block) = entry.open(stream) {
                return Some(ProgramTarget { pool, group, block });
            }
            if let Some(block) = self.new_open_block(nand, pool, stream, page.ready, log) {
                return Some(ProgramTarget { pool, group, block });
            }
        }
        self.allocate_anywhere(nand, page, stream, log)
    }

    /// Tries all planes of the block group, then all planes of other groups. Planes that contain more than their share of the valid data
    /// are tried last.
    #[cold]
    fn allocate_anywhere<L: Observer>(
        &mut self, nand: &mut Nand, page: PageRequest, stream: WriteStream, log: &mut L,
    ) -> Option<ProgramTarget> {
        for crowded in [false, true] {
            for turn in 0..=self.geometry.by_size.len() {
                let group = match turn {
                    0 => page.group,
                    turn => self.geometry.by_size[turn - 1],
                };
                // On a zoned device, the blocks of other groups belong to zones.
                if turn > 0 && (group == page.group || self.geometry.zones.is_some()) {
                    continue;
                }
                for i in 0..self.geometry.planes {
                    if self.stop.is_some() {
                        return None;
                    }
                    let plane = self.geometry.striped(self.allocator.cursor + i);
                    let pool = self.geometry.pool(plane, group);
                    let below = self.tables.pool(pool).valid < self.tables.pool(pool).valid_limit;
                    if below != crowded
                        && let Some(block) = self.open_block(nand, pool, stream, page.ready, log)
                    {
                        return Some(ProgramTarget { pool, group, block });
                    }
                }
            }
        }
        None
    }

    /// Returns the open block of a write stream. If there is none, opens a new block; if too few blocks are free, collects garbage first.
    #[inline]
    pub fn open_block<L: Observer>(
        &mut self, nand: &mut Nand, pool: PoolId, stream: WriteStream, ready: Nanos, log: &mut L,
    ) -> Option<BlockId> {
        if let Some(open) = self.tables.pool(pool).open(stream) {
            return Some(open);
        }
        self.new_open_block(nand, pool, stream, ready, log)
    }

    #[inline(never)]
    fn new_open_block<L: Observer>(
        &mut self, nand: &mut Nand, pool: PoolId, stream: WriteStream, ready: Nanos, log: &mut L,
    ) -> Option<BlockId> {
        let collects = stream != WriteStream::Gc && self.collector.policy.is_some();
        if collects && !self.reclaim(nand, pool, ready, log) {
            return None;
        }
        if self.is_slc_cache(pool) {
            if self.booster.as_ref().is_some_and(|booster| !booster.may_open(self.tables.pool(pool), stream)) {
                return None;
            }
            // If the host no longer pins data, the block that was open for pinned data receives other data.
            if stream == WriteStream::Host
                && self.booster.as_ref().is_none_or(|booster| booster.partial != PartialFlush::Pinned)
                && let Some(block) = self.tables.pool_mut(pool).hand_over(WriteStream::PINNED, stream)
            {
                return Some(block);
            }
        }
        let block = self.tables.pool_mut(pool).take_for(stream)?;
        nand.open(block, ready);
        self.opened_in_booster(pool, stream, block);
        Some(block)
    }

    /// Programs the entries of a packed write after its data transfer. A page may contain units of several entries, and each of these
    /// entries waits for the page. The page counts as a subrequest of the first of them.
    pub fn write_stream<L: Observer>(&mut self, nand: &mut Nand, entries: &mut [RequestState], log: &mut L) {
        for entry in entries.iter() {
            log.data_moved(&DataMoved { op: entry.event.op, sectors: entry.event.sectors });
        }
        let mut cursor = PackedCursor { entry: 0, offset: 0 };
        let mut pieces = [PackedUnit::default(); MAX_UNITS];
        loop {
            let count = self.pieces(entries, &cursor, &mut pieces);
            if count == 0 {
                return;
            }
            let (group, units) = next_page(&self.geometry, count as u32);
            let Some(taken) = self.program_pieces(nand, entries, &pieces[..units as usize], group, log) else {
                return;
            };
            let PackedUnit { unit, entry } = pieces[taken - 1];
            let (first, _) = span_of(&entries[entry]).units(self.geometry.unit_shift);
            cursor = PackedCursor { entry, offset: unit.0 - first.0 + 1 };
        }
    }

    /// Collects the next units of the packed write in `pieces`, until they fill the largest page or a unit occurs a second time. Returns
    /// the number of units.
    fn pieces(&self, entries: &[RequestState], cursor: &PackedCursor, pieces: &mut [PackedUnit; MAX_UNITS]) -> usize {
        let mut count = 0;
        for (entry, state) in entries.iter().enumerate().skip(cursor.entry) {
            let (first, units) = span_of(state).units(self.geometry.unit_shift);
            let from = if entry == cursor.entry { cursor.offset } else { 0 };
            for unit in (first.0 + from..first.0 + units).map(Lpn) {
                if count == MAX_UNITS || pieces[..count].iter().any(|piece| piece.unit == unit) {
                    return count;
                }
                pieces[count] = PackedUnit { unit, entry };
                count += 1;
            }
        }
        count
    }

    /// Programs one page of a packed write. Returns the number of units in it; `None` if the device is full.
    fn program_pieces<L: Observer>(
        &mut self, nand: &mut Nand, entries: &mut [RequestState], pieces: &[PackedUnit], group: u8, log: &mut L,
    ) -> Option<usize> {
        let (unit_sectors, unit_shift) = (self.geometry.unit_sectors, self.geometry.unit_shift);
        let head = entries[pieces[0].entry];
        let stream = if self.is_hot(head.event.sectors) { WriteStream::Hot } else { WriteStream::Host };
        let (mut ready, mut waits) = (head.ready, LatencyBreakdown::default());
        for piece in pieces {
            let span = span_of(&entries[piece.entry]);
            if span.is_partial(piece.unit, 1, unit_shift) {
                let rest = self.read_rest(nand, span, (piece.unit, 1), head.ready, |_| false, log);
                if rest.0 > ready {
                    (ready, waits) = rest;
                }
            }
        }
        let request = PageRequest { ready, first: pieces[0].unit, group };
        let Some(ProgramTarget { pool, group, block }) = self.allocate(nand, request, stream, log) else {
            self.stop_full();
            return None;
        };
        let pieces = &pieces[..pieces.len().min(self.geometry.groups[usize::from(group)].units_per_page() as usize)];
        let (mut written, mut bytes) = (PageUnits::new(), 0);
        for piece in pieces {
            let span = span_of(&entries[piece.entry]);
            bytes += self.bytes_to_move(span, piece.unit, 1);
            let covered = span.covered(piece.unit, unit_sectors);
            let (from, command) = (self.tables.lookup(piece.unit), entries[piece.entry].command());
            written.push(UnitWritten { lpn: piece.unit, from, covered, command });
        }
        let next = nand.program_next(block, ready, bytes);
        let op = next.op;
        let at = ProgrammedPages::next(block, group, &next, bytes, OperationCause::Host, stream);
        self.commit_page(at, &UnitList(&written), log);
        if self.collector.is_incremental() {
            self.collect_after(nand, pool, ready, log);
        }
        // Entries of a packed write that must be durable on completion never share pages. The data here therefore has no durability flag.
        let complete = self.completion(&op, CommandFlags::empty());
        let waits = waits.then(LatencyBreakdown::of(&op, ready, complete));
        for (i, piece) in pieces.iter().enumerate() {
            if i == 0 || pieces[i - 1].entry != piece.entry {
                let entry = &mut entries[piece.entry];
                entry.absorb(waits, op.begin, complete);
                entry.event.subrequests -= u32::from(i > 0);
            }
        }
        Some(pieces.len())
    }
}

/// Selects the next page for `units` remaining units: its block group and the number of units in it. A page larger than the remaining data
/// is used only if there is no smaller one. IISWC 2015, section V: 20 KB becomes 8 + 8 + 4 KB on the hybrid device.
#[inline]
pub(crate) fn next_page(geometry: &Geometry, units: u32) -> (u8, u32) {
    // If all pages have the same size, there is no choice.
    if let [only] = geometry.by_size[..] {
        return (only, units.min(geometry.groups[usize::from(only)].units_per_page()));
    }
    let mut smallest = 0;
    for index in &geometry.by_size {
        let capacity = geometry.groups[usize::from(*index)].units_per_page();
        if capacity <= units {
            return (*index, capacity);
        }
        smallest = *index;
    }
    (smallest, units)
}

/// The sector range `first..end` of a host request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestSectors {
    pub first: u64,
    pub end: u64,
}

impl RequestSectors {
    #[inline]
    pub fn new(first: u64, sectors: u32) -> Self {
        Self { first, end: first + u64::from(sectors) }
    }

    /// The sectors of `unit` that the request covers, one bit each.
    #[inline]
    pub fn covered(self, unit: Lpn, unit_sectors: u32) -> u32 {
        let base = u64::from(unit.0) * u64::from(unit_sectors);
        if self.first <= base && self.end >= base + u64::from(unit_sectors) {
            return all_sectors(unit_sectors);
        }
        let from = self.first.saturating_sub(base).min(u64::from(unit_sectors)) as u32;
        let to = self.end.saturating_sub(base).min(u64::from(unit_sectors)) as u32;
        below(to) & !below(from)
    }

    /// The map units that the request overlaps: the first unit and the number of units.
    #[inline]
    pub fn units(self, unit_shift: u32) -> (Lpn, u32) {
        let first = self.first >> unit_shift;
        let end = (self.end + (1 << unit_shift) - 1) >> unit_shift;
        (Lpn(first as u32), (end - first) as u32)
    }

    /// Whether the request begins and ends at unit boundaries.
    #[inline]
    pub fn is_whole(self, unit_sectors: u32) -> bool {
        (self.first | self.end) & u64::from(unit_sectors - 1) == 0
    }

    /// Whether the request covers the first or the last of these units only in part.
    #[inline]
    pub fn is_partial(self, first: Lpn, units: u32, unit_shift: u32) -> bool {
        self.first > u64::from(first.0) << unit_shift || self.end < u64::from(first.0 + units) << unit_shift
    }

    /// Number of bytes of the request in the units `from..to`, which it overlaps.
    #[inline]
    pub fn bytes_between(self, from: Lpn, to: Lpn, unit_shift: u32) -> u32 {
        let begin = self.first.max(u64::from(from.0) << unit_shift);
        let end = self.end.min(u64::from(to.0) << unit_shift);
        (end - begin) as u32 * 512
    }
}

/// Bit mask of all sectors of a unit.
#[inline]
pub(crate) fn all_sectors(unit_sectors: u32) -> u32 {
    below(unit_sectors)
}

#[inline]
fn below(n: u32) -> u32 {
    if n >= 32 { u32::MAX } else { (1 << n) - 1 }
}

/// The location to which the next page is programmed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramTarget {
    pub pool: PoolId,
    pub group: u8,
    pub block: BlockId,
}

// Writes the data of a packed write as one stream, so that a page may contain data of several entries.
// Entries are programmed in order, and a unit that occurs twice begins a new page. Data of two entries must not be merged before it is
// programmed, because a later entry could then survive a power cut without an earlier one.

/// A map unit of a packed write, and the entry to which it belongs.
#[derive(Clone, Copy, Debug, Default)]
struct PackedUnit {
    unit: Lpn,
    entry: usize,
}

/// Position in a packed write: the next entry, and the next unit in it.
struct PackedCursor {
    entry: usize,
    offset: u32,
}

fn span_of(entry: &RequestState) -> RequestSectors {
    RequestSectors::new(entry.event.sector, entry.event.sectors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceConfig;

    fn pages_kb(preset: &str, kb: u32) -> Vec<u32> {
        let config = DeviceConfig::preset(preset).unwrap();
        let geometry = Geometry::new(config.settings());
        let mut left = kb / 4;
        let mut out = Vec::new();
        while left > 0 {
            let (group, units) = next_page(&geometry, left);
            out.push(geometry.groups[usize::from(group)].page_bytes / 1024);
            left -= units;
        }
        out
    }

    #[test]
    fn twenty_kb_are_8_8_4_on_hps_and_three_pages_on_8ps() {
        assert_eq!(pages_kb("iiswc15-hps", 20), [8, 8, 4]);
        assert_eq!(pages_kb("iiswc15-8ps", 20), [8, 8, 8]);
        assert_eq!(pages_kb("iiswc15-4ps", 20), [4; 5]);
        assert_eq!(pages_kb("iiswc15-hps", 4), [4]);
    }
}
