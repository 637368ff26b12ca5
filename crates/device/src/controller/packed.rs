//! Packed commands: several reads or writes in one command, with one overhead and a header block of one sector that says
//! what they are (JESD84-B45; `EXT_CSD` `MAX_PACKED_WRITES` [500], `MAX_PACKED_READS` [501]). The device takes the data of all
//! entries, works on them in their order, and all are complete when the last is. Whether pages are filled across entries is
//! a setting (`ftl/stream.rs`).

use emmclab_trace::{Error, Kind, Nanos, Op, Result};

use crate::command::Command;
use crate::device::Device;
use crate::event::Observer;

/// Sectors of the header block.
const HEADER_SECTORS: u32 = 1;

impl Device {
    /// Takes a packed command: requests of one operation, read or write, that all come at the same time. A single one is
    /// taken as a command of its own. Returns the completion of all, or `None` where the device has stopped.
    ///
    /// # Errors
    /// As [`Device::submit`]; [`Kind::Value`] also for entries that cannot be packed.
    pub fn submit_packed<O: Observer>(
        &mut self,
        entries: &[Command],
        observer: &mut O,
    ) -> Result<Option<Nanos>> {
        let [head, rest @ ..] = entries else { return Ok(None) };
        if rest.is_empty() {
            return self.submit(head, observer);
        }
        let alike = |entry: &Command| entry.op == head.op && entry.arrival == head.arrival;
        if !head.op.has_data() || self.read_first || !rest.iter().all(alike) {
            return Err(Error::new(Kind::Value, "a packed command holds reads or writes that come together")
                .hint("packing needs one command at a time (controller.queue_depth = 1)"));
        }
        for entry in entries {
            self.accept(entry)?;
        }
        if self.stop.is_some() {
            return Ok(None);
        }
        let mut shared = self.begin(head, observer);
        let sectors = entries.iter().fold(0u32, |sum, entry| sum.saturating_add(entry.sectors));
        let write = head.op == Op::Write;
        shared.spend(match head.op {
            Op::Write => self.commands.before_write(sectors.saturating_add(HEADER_SECTORS)),
            _ => self.commands.before_read() + self.commands.host(HEADER_SECTORS),
        });
        self.counters.packs += 1;
        let mut told = std::mem::take(&mut self.pack);
        told.clear();
        let plain = entries.iter().all(|entry| entry.modifiers.is_none());
        let stream = write && self.share_packed_pages && plain;
        for entry in entries {
            let mut progress = shared;
            (progress.event.sector, progress.event.sectors) = (entry.sector, entry.sectors);
            if stream {
                // All of them at once, below.
            } else if !write {
                self.read_data(&mut progress, observer);
            } else if self.cache.is_some() || !entry.modifiers.is_none() {
                self.write_modified(&mut progress, entry.modifiers, observer);
            } else {
                self.write_data(&mut progress, observer);
            }
            told.push(progress);
        }
        if stream {
            self.write_stream(&mut told, observer);
        }
        let complete = told.iter().map(|progress| progress.event.complete).max().unwrap_or(i64::MIN);
        let out = if write { 0 } else { self.commands.host(sectors) };
        if self.stop.is_none() {
            for progress in &mut told {
                progress.complete_by(complete);
                progress.event.id = self.next_id;
                self.next_id += 1;
                progress.event.waits.controller_ns += out;
                progress.event.complete += out;
                self.complete(&progress.event, observer);
            }
        }
        self.pack = told;
        Ok(self.stop.is_none().then_some(Nanos(complete + out)))
    }
}
