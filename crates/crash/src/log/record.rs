//! One entry of a log.

use emmclab_base::{Nanos, Op};
use emmclab_device::{Command, Modifiers};
use serde::{Deserialize, Serialize};

/// Where a command was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Port {
    /// Above the layers; absent in the log of a device without layers.
    Host,
    /// At the device.
    Device,
}

/// An entry of a log. Entries stand in the order in which they became known; times are simulated, and a program event gives
/// its future end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record<'a> {
    /// The device's contents before the first command.
    Base {
        /// First sector.
        sector: u64,
        /// Whole sectors.
        #[serde(borrow)]
        data: &'a [u8],
    },
    /// A command came.
    Command {
        /// Where.
        port: Port,
        /// Its number there, counted up.
        number: u64,
        /// Time of its arrival.
        at: Nanos,
        /// Its operation.
        op: Op,
        /// First sector.
        sector: u64,
        /// Length in sectors.
        sectors: u32,
        /// Its flags, as [`Modifiers`] has them.
        flags: u8,
        /// Entries of the same packed command that follow.
        packed_after: u16,
        /// The data that it writes.
        #[serde(borrow)]
        data: &'a [u8],
    },
    /// A command is complete, and its sender was told.
    Complete {
        /// Where.
        port: Port,
        /// Its number there.
        number: u64,
        /// Time of its completion.
        at: Nanos,
    },
    /// Sectors that a command wrote are in programmed pages from a time on.
    Programmed {
        /// The command.
        number: u64,
        /// First sector.
        sector: u64,
        /// Length in sectors.
        sectors: u32,
        /// When the program begins.
        begin: Nanos,
        /// When the cells are written.
        end: Nanos,
    },
    /// Sectors hold nothing any more.
    Discarded {
        /// The command.
        number: u64,
        /// First sector.
        sector: u64,
        /// Length in sectors.
        sectors: u64,
        /// Time of the program.
        at: Nanos,
    },
    /// The workload says what it was told is safe.
    Acknowledged {
        /// When its line was read, after the last completion that was sent until then.
        at: Nanos,
        /// The line.
        #[serde(borrow)]
        text: &'a str,
    },
    /// A place in the log with a name.
    Mark {
        /// Time of the mark.
        at: Nanos,
        /// The name.
        #[serde(borrow)]
        text: &'a str,
    },
}

impl<'a> Record<'a> {
    /// The entry of a command; `data` is what it writes.
    pub fn of(port: Port, number: u64, command: &Command, packed_after: u16, data: &'a [u8]) -> Self {
        Self::Command {
            port,
            number,
            at: command.arrival,
            op: command.op,
            sector: command.sector,
            sectors: command.sectors,
            flags: command.modifiers.bits(),
            packed_after,
            data,
        }
    }

    /// The command of such an entry.
    pub fn command(&self) -> Option<Command> {
        let Self::Command { at, op, sector, sectors, flags, .. } = *self else { return None };
        let modifiers = Modifiers::from_bits_retain(flags);
        Some(Command { modifiers, ..Command::new(at, op, sector, sectors) })
    }
}
