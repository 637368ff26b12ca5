//! Alignment of reads and writes to flash pages of 4, 8 and 16 KB, and the space utilisation if they are padded to pages.

use emmclab_trace::{Op, Request};

use crate::bins::pct;
use crate::report::AlignmentRow;

/// Sectors of a flash page as powers of two, for 4, 8 and 16 KB.
const PAGE_SHIFTS: [u32; 3] = [3, 4, 5];
/// Number of alignment classes: 0 to 4 trailing zero bits, and 5 or more.
const CLASSES: usize = 6;

/// Requests by the alignment of start and size, for reads and writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct AlignmentCounters([DirectionAlignment; 2]);

#[derive(Clone, Debug, Default)]
struct DirectionAlignment {
    /// Requests by the alignment class of the start, then of the size.
    classes: [[u64; CLASSES]; CLASSES],
    sectors: u64,
    /// Pages that the requests occupy, by page size.
    pages: [u64; PAGE_SHIFTS.len()],
}

impl AlignmentCounters {
    /// Adds a read or write.
    #[inline]
    pub fn add(&mut self, request: &Request) {
        let way = &mut self.0[usize::from(request.op == Op::Write)];
        let sectors = u64::from(request.sectors);
        let class = |value: u64| (value.trailing_zeros() as usize).min(CLASSES - 1);
        way.classes[class(request.sector.0)][class(sectors)] += 1;
        way.sectors += sectors;
        for (pages, shift) in way.pages.iter_mut().zip(PAGE_SHIFTS) {
            *pages += (sectors + (1 << shift) - 1) >> shift;
        }
    }

    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            for (mine, theirs) in mine.classes.iter_mut().flatten().zip(theirs.classes.iter().flatten()) {
                *mine += theirs;
            }
            mine.sectors += theirs.sectors;
            for (mine, theirs) in mine.pages.iter_mut().zip(theirs.pages) {
                *mine += theirs;
            }
        }
    }

    pub fn rows(&self) -> Vec<AlignmentRow> {
        let mut rows = Vec::new();
        for (op, way) in [Op::Read, Op::Write].into_iter().zip(&self.0) {
            let count =
                |start: usize, size: usize| -> u64 { way.classes[start..].iter().flat_map(|row| &row[size..]).sum() };
            let requests = count(0, 0);
            for (shift, pages) in PAGE_SHIFTS.into_iter().zip(way.pages) {
                let least = shift as usize;
                let share = |part| pct(part, requests).unwrap_or(0.0);
                if requests > 0 {
                    rows.push(AlignmentRow {
                        op: op.name(),
                        page_kb: 1 << (shift - 1),
                        requests,
                        start_aligned_pct: share(count(least, 0)),
                        size_aligned_pct: share(count(0, least)),
                        aligned_pct: share(count(least, least)),
                        space_utilisation_pct: pct(way.sectors, pages << shift).unwrap_or(100.0),
                    });
                }
            }
        }
        rows
    }
}
