//! Packed commands: several reads or writes in one command, with one overhead and a header block of one sector that describes them
//! (JESD84-B45; `EXT_CSD` `MAX_PACKED_WRITES` [500], `MAX_PACKED_READS` [501]). The device receives the data of all entries and executes
//! them in their order; all are complete when the last is. A setting decides whether a page may hold data of several entries
//! (`ftl/packed.rs`).

use emmclab_base::{CommandFlags, Error, ErrorClass, Nanos, Op, Result};

use super::DeviceController;
use super::lower_layers::LowerLayers;
use crate::command::DeviceCommand;
use crate::counters::CountingObserver;
use crate::events::PackedCommandArrived;
use crate::ftl::request_state::RequestState;

/// Sectors of the header block.
const HEADER_SECTORS: u32 = 1;

impl DeviceController {
    /// Checks a packed command of two entries or more.
    pub fn accept_packed<L>(&self, entries: &[DeviceCommand], below: &LowerLayers<'_, L>) -> Result<()> {
        let Some(head) = entries.first() else { return Ok(()) };
        let alike = |entry: &DeviceCommand| entry.op == head.op && entry.arrival == head.arrival;
        let packs = self.queue.is_none() && self.link.is_none();
        if !head.op.has_data() || !packs || !entries.iter().all(alike) {
            return Err(Error::new(
                ErrorClass::Value,
                "a packed command contains only reads or only writes, all with the same arrival time",
            )
            .hint("packing needs an eMMC with one command at a time (controller.queue_depth = 1)"));
        }
        entries.iter().try_for_each(|entry| self.accept(entry, below.ftl.geometry()))
    }

    /// Executes a packed command that was checked. Returns the completion of all entries, or `None` if the device has stopped.
    pub fn submit_packed<L: CountingObserver>(
        &mut self,
        entries: &[DeviceCommand],
        below: &mut LowerLayers<'_, L>,
    ) -> Option<Nanos> {
        let head = entries.first()?;
        if below.stop().is_some() {
            return None;
        }
        let mut shared = self.begin(head, below);
        if below.stop().is_some() {
            return None;
        }
        let sectors = entries.iter().fold(0u32, |sum, entry| sum.saturating_add(entry.sectors));
        let write = head.op == Op::Write;
        shared.spend(if write {
            self.commands.before_write(sectors.saturating_add(HEADER_SECTORS))
        } else {
            self.commands.before_read() + self.commands.host(HEADER_SECTORS)
        });
        below.log.packed(&PackedCommandArrived { entries: entries.len() as u32 });
        let mut states = std::mem::take(&mut self.pack);
        states.clear();
        let plain = !entries.iter().any(|entry| entry.modifiers.intersects(CommandFlags::PROMISES));
        let in_order = write && self.write_buffer.is_none() && below.ftl.completes_when_programmed();
        if in_order {
            below.ftl.set_in_order(true);
        }
        let stream = write && self.share_packed_pages && plain;
        for entry in entries {
            if below.stop().is_some() {
                break;
            }
            let mut request = shared;
            request.event.id = self.clock.next_id + states.len() as u64;
            (request.event.sector, request.event.sectors) = (entry.sector, entry.sectors);
            request.event.modifiers = entry.modifiers;
            if stream {
                // All entries are written at once after this loop.
            } else if !write {
                self.read_data(&mut request, below);
            } else if self.is_plain_write(entry) {
                self.write_data(&mut request, below);
            } else {
                self.write_modified(&mut request, entry.modifiers, below);
            }
            states.push(request);
        }
        if stream {
            below.ftl.write_stream(below.nand, &mut states, below.log);
        }
        if in_order {
            below.ftl.set_in_order(false);
        }
        let complete = states.iter().map(RequestState::complete).max().unwrap_or(Nanos::MIN);
        let out = if write { Nanos::ZERO } else { self.commands.host(sectors) };
        let stopped = below.stop().is_some();
        if !stopped {
            self.clock.next_id += states.len() as u64;
            for request in &mut states {
                request.complete_by(complete);
                request.spend_after(out);
                self.commands.occupy(request.complete());
                self.complete(&request.event, below.log);
            }
        }
        self.pack = states;
        (!stopped).then_some(complete + out)
    }
}
