//! Executes host commands by calls of the FTL.

use emmclab_base::{CommandFlags, Nanos};

use super::DeviceController;
use super::lower_layers::LowerLayers;
use crate::counters::CountingObserver;
use crate::ftl::request_state::RequestState;
use crate::ids::Lpn;
use emmclab_settings::CacheLie;

impl DeviceController {
    /// The part of a write after the transfer of its data.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "nothing but two calls and a choice")]
    pub(super) fn write_data<L: CountingObserver>(
        &mut self,
        request: &mut RequestState,
        below: &mut LowerLayers<'_, L>,
    ) {
        below.data_moved(request);
        if self.queue.is_some() {
            self.enqueue_pages(request, below);
        } else {
            below.write(request);
        }
    }

    /// Transfers the data of a write from the host.
    #[inline]
    pub(super) fn take_data<L: CountingObserver>(
        &mut self,
        request: &mut RequestState,
        below: &mut LowerLayers<'_, L>,
    ) {
        let sectors = request.event.sectors;
        request.spend(self.commands.before_write(sectors) + self.commands.write_stall());
        if let Some(link) = &mut self.link {
            link.receive(request, sectors, below.log);
        }
    }

    #[inline]
    pub(super) fn read<L: CountingObserver>(&mut self, request: &mut RequestState, below: &mut LowerLayers<'_, L>) {
        request.spend(self.commands.before_read() + self.commands.read_stall());
        self.read_data(request, below);
        let sectors = request.event.sectors;
        request.spend_after(self.commands.host(sectors));
        if let Some(link) = &mut self.link {
            link.send(request, sectors, below.log);
        }
    }

    /// The part of a read before the transfer of its data to the host.
    #[inline]
    pub(super) fn read_data<L: CountingObserver>(
        &mut self,
        request: &mut RequestState,
        below: &mut LowerLayers<'_, L>,
    ) {
        below.data_moved(request);
        let (first, units) = below.units_of(request);
        below.look_up(request, (first, units));
        // Units that still wait to be programmed are programmed before they are read.
        self.dispatch_units((first, units), below);
        let range = (first, first.plus(units));
        if self.write_buffer.is_some() || self.read_cache.is_some() {
            self.read_through(request, range, below);
        } else {
            below.read(request, range);
        }
        if request.event.subrequests == 0 {
            request.without_flash(request.ready);
        }
    }

    /// Discards the units that are entirely inside the range.
    pub(super) fn discard<L: CountingObserver>(&mut self, request: &mut RequestState, below: &mut LowerLayers<'_, L>) {
        let (sector, sectors) = (request.event.sector, request.event.sectors);
        request.spend(self.commands.before_write(0) + self.commands.discard);
        let unit = u64::from(below.ftl.geometry().unit_sectors);
        let first = sector.div_ceil(unit) as u32;
        let end = ((sector + u64::from(sectors)) / unit) as u32;
        let units = (Lpn(first), end.saturating_sub(first));
        self.dispatch_units(units, below);
        if units.1 > 0 && self.lies != CacheLie::Trim {
            self.uncache(units.0, units.1);
            below.ftl.discard(below.nand, units, request.ready, below.log);
        }
        request.without_flash(request.ready);
    }

    pub(super) fn flush<L: CountingObserver>(
        &mut self,
        request: &mut RequestState,
        modifiers: CommandFlags,
        below: &mut LowerLayers<'_, L>,
    ) {
        self.dispatch_until(Nanos::MAX, below);
        request.spend(self.commands.before_write(0));
        let end: Nanos = if modifiers.contains(CommandFlags::BARRIER) && self.barriers {
            self.barrier(request.ready, below);
            request.ready
        } else if self.link.is_some() && request.event.sectors > 0 {
            self.flush_range(request, below)
        } else {
            self.flush_command(request.ready, below)
        };
        request.without_flash(end);
    }
}
