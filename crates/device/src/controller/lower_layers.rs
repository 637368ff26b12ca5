//! The layers below the controller: the FTL, the flash, and the observer.

use emmclab_base::Nanos;

use crate::events::{DataMoved, LatencyBreakdown, Observer};
use crate::ftl::request_sectors::RequestSectors;
use crate::ftl::request_state::RequestState;
use crate::ftl::{Ftl, PageWrite, StopReason};
use crate::ids::Lpn;
use crate::nand::{Nand, PageOperationTimes};

/// The layers below the controller, borrowed for one call.
pub(crate) struct LowerLayers<'a, L> {
    pub ftl: &'a mut Ftl,
    pub nand: &'a mut Nand,
    pub log: &'a mut L,
}

/// The sectors of a request.
#[inline]
pub(super) fn span_of(request: &RequestState) -> RequestSectors {
    RequestSectors::new(request.event.sector, request.event.sectors)
}

impl<L: Observer> LowerLayers<'_, L> {
    /// The reason why the device refuses writes; `None` if it does not.
    #[inline]
    pub fn stop(&self) -> Option<StopReason> {
        self.ftl.stop()
    }

    /// The units that a request touches: the first one and their number.
    #[inline]
    pub fn units_of(&self, request: &RequestState) -> (Lpn, u32) {
        span_of(request).units(self.ftl.geometry().unit_shift)
    }

    /// Reports the transfer of the data of a request.
    #[inline]
    pub fn data_moved(&mut self, request: &RequestState) {
        self.log.data_moved(&DataMoved { op: request.event.op, sectors: request.event.sectors });
    }

    /// Writes the data of a request, which has been transferred.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "nothing but a call")]
    pub fn write(&mut self, request: &mut RequestState) {
        self.ftl.write(self.nand, request, span_of(request), self.log);
    }

    /// Reads the units `first..end` of a request.
    #[inline]
    pub fn read(&mut self, request: &mut RequestState, (first, end): (Lpn, Lpn)) {
        self.ftl.read(self.nand, request, span_of(request), (first, end), self.log);
    }

    /// Looks up the locations of units before they are read.
    #[inline]
    pub fn look_up(&mut self, request: &mut RequestState, units: (Lpn, u32)) {
        self.ftl.look_up(self.nand, request, units, self.log);
    }

    /// Programs one page of a page-mapped device.
    #[inline]
    pub fn write_page(&mut self, ready: Nanos, page: PageWrite) -> Option<(PageOperationTimes, u32)> {
        self.ftl.write_page(self.nand, ready, page, self.log)
    }

    /// Reads the rest of the units that a write covers only in part.
    pub fn read_rest(
        &mut self,
        span: RequestSectors,
        units: (Lpn, u32),
        ready: Nanos,
        waits_to_be_written: impl Fn(Lpn) -> bool,
    ) -> (Nanos, LatencyBreakdown) {
        self.ftl.read_rest(self.nand, span, units, ready, waits_to_be_written, self.log)
    }
}
