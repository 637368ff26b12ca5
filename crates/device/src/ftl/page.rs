//! The page map: every unit may lie anywhere, and the whole map is in memory.

use super::place::{PageWrite, Span};
use crate::controller::{Progress, Waiting};
use crate::device::Device;
use crate::event::{Cause, Observer, Waits};

impl Device {
    /// Writes the span page by page, largest pages first; pages that reads may pass wait in the controller.
    #[inline]
    pub(super) fn write_pages<O: Observer>(&mut self, progress: &mut Progress, span: Span, observer: &mut O) {
        let sectors = progress.event.sectors;
        let hot = sectors <= self.hot_sectors;
        let whole = self.whole(span);
        let (mut first, mut left) = self.units_of(span.first, sectors);
        while left > 0 {
            let (group, mut units) = self.page_for(first, left, sectors);
            let mut before = None;
            let mut ready = progress.ready;
            if !whole && self.partial(span, first, units) {
                let (read, waits) = self.merge(span, first, units, ready, observer);
                (ready, before) = (read, Some(waits));
            }
            if self.read_first {
                let request = progress.event.id;
                let waits = before.unwrap_or_default();
                self.pending.push_page(Waiting { request, first, units, group, ready, waits });
                progress.outstanding += 1;
            } else {
                let page = PageWrite { first, units, group, span, hot };
                let Some((op, taken)) = self.program_host(ready, page, observer) else {
                    return;
                };
                units = taken;
                let complete = self.completion(&op);
                let own = Waits::of(&op, ready, complete);
                progress.absorb(before.map_or(own, |waits| waits.then(own)), op.begin, complete);
            }
            first += units;
            left -= units;
        }
    }

    /// Reads what a write leaves of the units that it covers in part. Returns when that is there, and the waits for it.
    #[cold]
    pub(super) fn merge<O: Observer>(
        &mut self,
        span: Span,
        first: u32,
        units: u32,
        ready: i64,
        observer: &mut O,
    ) -> (i64, Waits) {
        let mut done = (ready, Waits::default());
        let whole = Span { first: 0, end: u64::MAX }.covered(0, self.geometry.unit_sectors);
        for unit in first..first + units {
            let covered = span.covered(unit, self.geometry.unit_sectors);
            // What still waits to be written is in the controller and need not be read.
            let waiting = self.read_first && self.pending.holds(unit, 1);
            if covered == whole || waiting {
                continue;
            }
            if let Some(slot) = self.lookup(unit) {
                self.counters.merges += 1;
                let bytes = (whole & !covered).count_ones() * 512;
                let op = self.read_page(slot, ready, bytes, Cause::Merge, observer);
                if op.end > done.0 {
                    done = (op.end, Waits::of(&op, ready, op.end));
                }
            }
        }
        done
    }
}
