//! The events of a live device, for those who write them down: every command with its data, and the time at which data becomes durable.

use std::collections::VecDeque;

use emmclab_device::{Command, RequestCompleted};
use emmclab_media::{Change, Media};
use emmclab_trace::{Nanos, Op, SECTOR_BYTES};

/// Hears what reaches a device, what it answers, and what its cells hold. Times are simulated; completions and programs are told
/// as soon as they are known, with their future times.
pub trait Tap: Send {
    /// A command comes; `packed_after` entries of the same packed command follow. `data` is what a write writes.
    fn command(&mut self, number: u64, command: &Command, packed_after: u16, data: &[u8]);
    /// A command is complete at `at`.
    fn completed(&mut self, number: u64, at: Nanos);
    /// Sectors that a command wrote are programmed from `end` on.
    fn programmed(&mut self, number: u64, sectors: (u64, u32), begin: Nanos, end: Nanos);
    /// Sectors hold nothing from `at` on, because of a command.
    fn discarded(&mut self, number: u64, sectors: (u64, u64), at: Nanos);
}

/// A tap at a disk.
pub(crate) struct Tapped {
    tap: Box<dyn Tap>,
    /// The data of the writes that come next, one after the other.
    data: Vec<u8>,
    /// Discards that are not complete: number, first sector, end.
    discards: VecDeque<(u64, u64, u64)>,
}

impl Tapped {
    pub fn new(tap: Box<dyn Tap>) -> Self {
        Self { tap, data: Vec::new(), discards: VecDeque::new() }
    }

    pub fn give(&mut self, data: &[u8]) {
        self.data.extend_from_slice(data);
    }

    /// The device takes commands, of which the first gets number `first`.
    pub fn commands(&mut self, first: u64, commands: &[Command]) {
        let mut from = 0;
        for (number, (i, command)) in (first..).zip(commands.iter().enumerate()) {
            if matches!(command.op, Op::Discard | Op::SecureErase) {
                let end = command.sector + u64::from(command.sectors);
                self.discards.push_back((number, command.sector, end));
            }
            let bytes =
                if command.op == Op::Write { command.sectors as usize * SECTOR_BYTES as usize } else { 0 };
            let data = self.data.get(from..from + bytes).unwrap_or_default();
            from += bytes;
            self.tap.command(number, command, (commands.len() - 1 - i) as u16, data);
        }
        self.data.drain(..from.min(self.data.len()));
    }

    /// Writes down the outcome of a command.
    pub fn after(&mut self, now: Nanos, media: &mut Media, completed: &[RequestCompleted]) {
        for change in media.take_changes() {
            match change {
                Change::Programmed { command, sector, sectors, begin, end } => {
                    self.tap.programmed(command, (sector, sectors), begin, end);
                }
                Change::Discarded { sector, sectors } => {
                    let of =
                        |(_, first, end): &&(u64, u64, u64)| *first <= sector && sector + sectors <= *end;
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
