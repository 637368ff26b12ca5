//! The short way of the most usual request: a write of one page, for which a device without options has nothing else to do.

use emmclab_base::Op;

use super::Commands;
use crate::command::Command;
use crate::config::{AllocationPolicy, GcMode, Scheduling, Scheme, Settings, SlcMode};
use crate::device::Device;
use crate::event::{Cause, Observer, RequestCompleted, Waits};
use crate::ftl::place::Span;
use crate::ftl::split::next_page;
use crate::geometry::Geometry;
use crate::nand::{NONE, Stream};

/// The writes that may go the short way: those of the smallest page, by their length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Short {
    /// 0 where there are none.
    sectors: u32,
    units: u32,
    group: u8,
    stream: Stream,
    /// Time in the controller, ns.
    before: i64,
}

impl Short {
    const NONE: Self = Self { sectors: 0, units: 0, group: 0, stream: Stream::Host, before: 0 };

    /// [`Short::NONE`] where an option asks for more than this way does.
    pub fn new(settings: &Settings, geometry: &Geometry, commands: &Commands, background: bool) -> Self {
        let plain = settings.mapping.scheme == Scheme::Page
            && settings.allocation.policy == AllocationPolicy::Dynamic
            && settings.controller.scheduling == Scheduling::Fifo
            && settings.controller.queue_depth == 0
            && settings.power.sleep_after_us == 0.0
            && settings.gc.mode == GcMode::Blocking
            && settings.slc.mode == SlcMode::Off
            && !background;
        let Some(smallest) = geometry.by_size.last().filter(|_| plain) else { return Self::NONE };
        let slots = geometry.groups[usize::from(*smallest)].slots_per_page();
        let (group, units) = next_page(geometry, slots);
        let sectors = units * geometry.unit_sectors;
        let hot = sectors <= settings.allocation.hot_max_kb.saturating_mul(2);
        let stream = if hot { Stream::Hot } else { Stream::Host };
        Self { sectors, units, group, stream, before: commands.before_write(sectors) }
    }
}

impl Device {
    /// Writes one page as [`Device::submit`] does; `None` where the command has to go the long way, with nothing changed.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "the hottest path; what nobody asks of the completion is never made"
    )]
    pub(crate) fn write_one_page<O: Observer>(&mut self, command: &Command) -> Option<RequestCompleted> {
        let Command { arrival, op, sector, sectors, modifiers } = *command;
        let Short { sectors: short, units, group, stream, before } = self.short;
        // So long a request ends with a unit where it begins with one.
        let whole = self.whole(Span { first: sector, end: sector });
        if sectors != short
            || O::UNITS
            || op != Op::Write
            || !modifiers.is_empty()
            || !whole
            || self.stop.is_some()
        {
            return None;
        }
        let ready = arrival.0 + before;
        let turn = self.next_turn(ready);
        let index = self.pool_index(turn.plane, group);
        let pool = &self.pools[index];
        let block = pool.open[stream as usize];
        if block == NONE || pool.valid >= pool.valid_limit {
            return None;
        }
        let (page, kind) = (self.blocks[block as usize].written, &pool.kind);
        let (page_shift, page_bytes) = (kind.page_shift, kind.page_bytes);
        let op = self.flash.program(turn.plane, kind, page, ready, page_bytes);
        self.take_turn(turn);
        self.counters.host_bytes_written += u64::from(page_bytes);
        self.counters.bus_bytes += u64::from(page_bytes);
        self.counters.programmed(Cause::Host, group, page_bytes, 1);
        self.last_program = self.last_program.max(op.end);
        let mut books = self.books();
        let slot = books.geometry.first_slot(block) + (page << page_shift);
        books.remap((sector >> books.geometry.unit_shift) as u32, units, slot);
        books.fill(index, block, 1, units, stream);
        let complete = self.completion(&op);
        self.last_arrival = arrival.0;
        self.next_id += 1;
        Some(RequestCompleted {
            id: self.next_id - 1,
            op: Op::Write,
            sector,
            sectors,
            arrival: arrival.0,
            start: op.begin,
            complete,
            subrequests: 1,
            waits: Waits { controller_ns: before, ..Waits::of(&op, ready, complete) },
        })
    }
}
