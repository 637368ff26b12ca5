//! The events of a live device, for recording: every command with its data, and the time at which data becomes durable.

use std::collections::VecDeque;

use emmclab_device::{DeviceCommand, RequestCompleted};
use emmclab_media::{ContentsChange, DeviceContents};
use emmclab_trace::{Nanos, Op, SECTOR_BYTES};

/// Receives the commands of a device, their completions, and the changes of the stored data. Times are simulated; completions and programs
/// are reported as soon as they are known, with times in the future.
pub trait DeviceEventSink: Send {
    /// Called when a command arrives; `packed_after` entries of the same packed command follow. `data` is the data of a write.
    fn command(&mut self, number: u64, command: &DeviceCommand, packed_after: u16, data: &[u8]);
    /// Called for a command that is complete at `at`.
    fn completed(&mut self, number: u64, at: Nanos);
    /// Called for sectors of a command that are programmed from `begin` to `end`.
    fn programmed(&mut self, number: u64, sectors: (u64, u32), begin: Nanos, end: Nanos);
    /// Called for sectors that a command discards at `at`.
    fn discarded(&mut self, number: u64, sectors: (u64, u64), at: Nanos);
}

/// A tap at a disk.
pub(crate) struct AttachedEventSink {
    tap: Box<dyn DeviceEventSink>,
    /// The data of the next writes, one after the other.
    data: Vec<u8>,
    /// Discards that are not complete: number, first sector, end sector.
    discards: VecDeque<(u64, u64, u64)>,
}

impl AttachedEventSink {
    pub fn new(tap: Box<dyn DeviceEventSink>) -> Self {
        Self { tap, data: Vec::new(), discards: VecDeque::new() }
    }

    pub fn push_data(&mut self, data: &[u8]) {
        self.data.extend_from_slice(data);
    }

    /// Reports commands that are submitted to the device; the first gets number `first`.
    pub fn report_commands(&mut self, first: u64, commands: &[DeviceCommand]) {
        let mut from = 0;
        for (number, (i, command)) in (first..).zip(commands.iter().enumerate()) {
            if matches!(command.op, Op::Discard | Op::SecureErase) {
                let end = command.sector + u64::from(command.sectors);
                self.discards.push_back((number, command.sector, end));
            }
            let bytes = if command.op == Op::Write { command.sectors as usize * SECTOR_BYTES as usize } else { 0 };
            let data = self.data.get(from..from + bytes).unwrap_or_default();
            from += bytes;
            self.tap.command(number, command, (commands.len() - 1 - i) as u16, data);
        }
        self.data.drain(..from.min(self.data.len()));
    }

    /// Reports the changes and completions that the last action caused.
    pub fn report_changes(&mut self, now: Nanos, media: &mut DeviceContents, completed: &[RequestCompleted]) {
        for change in media.take_changes() {
            match change {
                ContentsChange::Programmed { command, sector, sectors, begin, end } => {
                    self.tap.programmed(command, (sector, sectors), begin, end);
                }
                ContentsChange::Discarded { sector, sectors } => {
                    let of = |(_, first, end): &&(u64, u64, u64)| *first <= sector && sector + sectors <= *end;
                    if let Some((number, ..)) = self.discards.iter().find(of) {
                        self.tap.discarded(*number, (sector, sectors), now);
                    }
                }
            }
        }
        for event in completed {
            self.discards.retain(|(number, ..)| *number != event.id);
            self.tap.completed(event.id, event.complete);
        }
    }
}
