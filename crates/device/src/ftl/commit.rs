//! Records programmed pages in the mapping tables. All page programs use these functions, whatever their cause.

use std::ops::Range;

use arrayvec::ArrayVec;
use emmclab_base::Nanos;

use super::core::FtlCore;
use super::pool::WriteStream;
use super::tables::FtlTables;
use super::write::RequestSectors;
use crate::events::{Observer, OperationCause, PageProgrammed, UnitWritten};
use crate::geometry::MAX_UNITS;
use crate::ids::{BlockId, Lpn, Ppn};
use crate::nand::PageProgramResult;

/// Consecutive pages of a block that were programmed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgrammedPages {
    pub block: BlockId,
    pub group: u8,
    /// First of the programmed pages.
    pub page: u32,
    pub pages: u32,
    /// Number of bytes transferred over the flash bus, for all pages together.
    pub bus_bytes: u64,
    pub cause: OperationCause,
    /// Write stream for which the block was open. `None` if the programmed pages did not fill the block.
    pub filled: Option<WriteStream>,
    pub begin: Nanos,
    pub end: Nanos,
}

/// The map units of a programmed page, as reported in events.
pub(crate) type PageUnits = ArrayVec<UnitWritten, MAX_UNITS>;

/// The map units of programmed pages. They are a run of host data, a list of units, or units that garbage collection moves.
pub(crate) trait ProgrammedUnits {
    /// The map units of the page, for observers that need them.
    fn report(&self, tables: &FtlTables) -> PageUnits;
    /// Maps the units to the locations from `to` on. Returns the number of units.
    fn enter(&self, tables: &mut FtlTables, to: Ppn) -> u32;
}

/// Consecutive map units, in which the host wrote the sectors in `span`.
pub(crate) struct UnitRun {
    pub first: Lpn,
    pub units: u32,
    pub span: RequestSectors,
    pub unit_sectors: u32,
    /// Number of the host command that wrote the data; `None` if the data does not come from a command.
    pub command: Option<u64>,
}

impl ProgrammedUnits for UnitRun {
    fn report(&self, tables: &FtlTables) -> PageUnits {
        let units = (self.first.0..self.first.0 + self.units).map(Lpn);
        units
            .map(|lpn| {
                let covered = self.span.covered(lpn, self.unit_sectors);
                UnitWritten { lpn, from: tables.lookup(lpn), covered, command: self.command }
            })
            .collect()
    }

    #[inline(always)]
    fn enter(&self, tables: &mut FtlTables, to: Ppn) -> u32 {
        for i in 0..self.units {
            tables.remap(self.first.plus(i), to.plus(i));
        }
        self.units
    }
}

pub(crate) struct UnitList<'a>(pub &'a [UnitWritten]);

impl ProgrammedUnits for UnitList<'_> {
    fn report(&self, _: &FtlTables) -> PageUnits {
        self.0.iter().copied().collect()
    }

    #[inline]
    fn enter(&self, tables: &mut FtlTables, to: Ppn) -> u32 {
        for (i, unit) in (0..).zip(self.0) {
            tables.remap(unit.lpn, to.plus(i));
        }
        self.0.len() as u32
    }
}

/// The range of units of a logical page that is copied to another location. Only units that are mapped are copied.
pub(crate) struct MappedUnits(pub Range<u32>);

impl ProgrammedUnits for MappedUnits {
    fn report(&self, tables: &FtlTables) -> PageUnits {
        let unit = |lpn| UnitWritten { lpn, from: tables.lookup(lpn), covered: 0, command: None };
        self.0.clone().map(|lpn| unit(Lpn(lpn))).filter(|unit| unit.from.is_some()).collect()
    }

    #[inline]
    fn enter(&self, tables: &mut FtlTables, to: Ppn) -> u32 {
        let mut entered = 0;
        for lpn in self.0.clone().map(Lpn) {
            if tables.lookup(lpn).is_some() {
                tables.remap(lpn, to.plus(entered));
                entered += 1;
            }
        }
        entered
    }
}

/// Map units of one page that garbage collection moves out of `block`, with their old locations.
pub(crate) struct MovedUnits<'a> {
    pub block: BlockId,
    pub units: &'a [(Ppn, Lpn)],
}

impl ProgrammedUnits for MovedUnits<'_> {
    fn report(&self, _: &FtlTables) -> PageUnits {
        let unit = |(from, lpn): &(Ppn, Lpn)| UnitWritten { lpn: *lpn, from: Some(*from), covered: 0, command: None };
        self.units.iter().map(unit).collect()
    }

    #[inline]
    fn enter(&self, tables: &mut FtlTables, to: Ppn) -> u32 {
        for (i, (from, lpn)) in (0..).zip(self.units) {
            tables.move_unit(*lpn, *from, to.plus(i));
        }
        tables.leaves(self.block, self.units.len() as u32);
        self.units.len() as u32
    }
}

/// Valid units that are moved as whole pages: the first `units` valid units in a range of a block. Used if the observer does not need the
/// list of units.
pub(crate) struct MoveRun {
    pub from: Range<Ppn>,
    pub units: u32,
}

impl ProgrammedUnits for MoveRun {
    fn report(&self, _: &FtlTables) -> PageUnits {
        PageUnits::new()
    }

    #[inline]
    fn enter(&self, tables: &mut FtlTables, to: Ppn) -> u32 {
        tables.relocate(self.from.clone(), to, self.units);
        self.units
    }
}

impl ProgrammedPages {
    /// The page of a block that was programmed last for a write stream. `bytes` is the number of bytes transferred over the flash bus.
    #[inline(always)]
    pub fn next(
        block: BlockId, group: u8, next: &PageProgramResult, bytes: u32, cause: OperationCause, stream: WriteStream,
    ) -> Self {
        let PageProgramResult { page, full, op } = *next;
        Self {
            block,
            group,
            page,
            pages: 1,
            bus_bytes: u64::from(bytes),
            cause,
            filled: full.then_some(stream),
            begin: op.begin,
            end: op.end,
        }
    }
}

impl FtlCore {
    /// Records programmed pages: reports them, updates the mapping table and the valid counts, and closes the block if it is full.
    #[inline(always)]
    pub fn commit_page<L: Observer>(&mut self, at: ProgrammedPages, units: &impl ProgrammedUnits, log: &mut L) {
        let ProgrammedPages { block, group, page, pages, bus_bytes, cause, filled, begin, end } = at;
        let kind = &self.geometry.groups[usize::from(group)];
        let bytes = u64::from(pages) * u64::from(kind.page_bytes);
        let durable = match &mut self.in_order {
            Some(latest) if cause == OperationCause::Host => {
                *latest = end.max(*latest);
                *latest
            }
            _ => end,
        };
        let durable = if cause == OperationCause::Host { durable + self.counts_after } else { durable };
        let event = PageProgrammed { block, page, pages, group, bytes, bus_bytes, cause, units: &[], begin, end, durable };
        if L::UNITS {
            let units = units.report(&self.tables);
            log.page_programmed(&PageProgrammed { units: &units, ..event });
        } else {
            log.page_programmed(&event);
        }
        let to = self.geometry.first_ppn(block).plus(page << kind.page_shift);
        let entered = units.enter(&mut self.tables, to);
        self.tables.fill(block, pages, entered, filled);
        self.last_program = self.last_program.max(end);
    }
}
