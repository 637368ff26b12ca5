//! Counts of requests by time and address: a picture of at most 64 x 64 cells.

use emmclab_timeline::{BinContent, CoarseningBins};
use emmclab_trace::{Nanos, Op, Request};

use crate::report::AddressTimeRow;

const TIMES: usize = 64;
const ADDRESSES: usize = 64;
/// Binary logarithm of the sectors in a MB, which is the initial height of a cell.
const SECTOR_TO_MB: u32 = 11;

/// Counts by time and start address. The width or height of the cells doubles when a trace exceeds the picture. The addresses of all
/// devices of a trace are overlaid.
#[derive(Clone, Debug)]
pub(crate) struct AddressHeatmap {
    rows: CoarseningBins<HeatmapRow>,
    /// The height of a cell is `2^shift` MB.
    shift: u32,
}

/// Reads and writes by address.
#[derive(Clone, Debug)]
struct HeatmapRow([[u64; 2]; ADDRESSES]);

impl Default for HeatmapRow {
    fn default() -> Self {
        Self([[0; 2]; ADDRESSES])
    }
}

impl BinContent for HeatmapRow {
    fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            mine[0] += theirs[0];
            mine[1] += theirs[1];
        }
    }
}

impl Default for AddressHeatmap {
    fn default() -> Self {
        Self { rows: CoarseningBins::new(TIMES), shift: 0 }
    }
}

impl AddressHeatmap {
    /// Adds a read or write.
    #[inline]
    pub fn add(&mut self, request: &Request) {
        let mb = request.sector.0 >> SECTOR_TO_MB;
        while mb >> self.shift >= ADDRESSES as u64 {
            self.coarsen();
        }
        let cell = (mb >> self.shift) as usize;
        self.rows.at(request.arrival).0[cell][usize::from(request.op == Op::Write)] += 1;
    }

    /// Doubles the height of the cells.
    fn coarsen(&mut self) {
        self.shift += 1;
        self.rows.for_each_mut(|row| {
            for cell in 0..ADDRESSES {
                let pair = [2 * cell, 2 * cell + 1];
                let both = pair.map(|from| row.0.get(from).copied().unwrap_or_default());
                row.0[cell] = [both[0][0] + both[1][0], both[0][1] + both[1][1]];
            }
        });
    }

    /// Adds another picture; with `aligned`, both begin at the same time.
    pub fn merge(&mut self, mut other: Self, aligned: bool) {
        while self.shift < other.shift {
            self.coarsen();
        }
        while other.shift < self.shift {
            other.coarsen();
        }
        self.rows.merge(other.rows, aligned);
    }

    pub fn rows(&self, origin: Nanos) -> Vec<AddressTimeRow> {
        let mut rows = Vec::new();
        for (time_s, width_s, row) in self.rows.iter(origin) {
            for (cell, &[reads, writes]) in (0_u64..).zip(&row.0) {
                if reads + writes > 0 {
                    let (low_mb, high_mb) = (cell << self.shift, (cell + 1) << self.shift);
                    rows.push(AddressTimeRow { time_s, width_s, low_mb, high_mb, reads, writes });
                }
            }
        }
        rows
    }
}
