//! One entry of a log.

use emmclab_base::{Nanos, Op};
use emmclab_device::{CommandFlags, DeviceCommand};
use serde::{Deserialize, Serialize};

/// The place where a command was observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CommandPort {
    /// Above the layers; unused in the log of a device without layers.
    Host,
    /// At the device.
    Device,
}

/// An entry of a log. Entries are in the order in which they became known. Times are simulated, and a program event contains its
/// end in the future.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CrashLogRecord<'a> {
    /// The device's contents before the first command.
    Base {
        /// First sector.
        sector: u64,
        /// Whole sectors.
        #[serde(borrow)]
        data: &'a [u8],
    },
    /// A command arrived.
    Command {
        /// The port.
        port: CommandPort,
        /// Its number at the port, in ascending order.
        number: u64,
        /// Time of its arrival.
        at: Nanos,
        /// Its operation.
        op: Op,
        /// First sector.
        sector: u64,
        /// Length in sectors.
        sectors: u32,
        /// Its flags, encoded as [`CommandFlags`].
        flags: u8,
        /// Number of later entries of the same packed command.
        packed_after: u16,
        /// The data that it writes.
        #[serde(borrow)]
        data: &'a [u8],
    },
    /// A command is complete, and the sender was notified.
    Complete {
        /// The port.
        port: CommandPort,
        /// Its number at the port.
        number: u64,
        /// Time of its completion.
        at: Nanos,
    },
    /// Sectors of a write are in programmed pages from `end` on.
    Programmed {
        /// The command.
        number: u64,
        /// First sector.
        sector: u64,
        /// Length in sectors.
        sectors: u32,
        /// Start of the program operation.
        begin: Nanos,
        /// Time at which the cells are written.
        end: Nanos,
    },
    /// Sectors were discarded.
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
    /// The workload reports data that was acknowledged as safe.
    Acknowledged {
        /// Time at which its line was read, after all completions sent before.
        at: Nanos,
        /// The line.
        #[serde(borrow)]
        text: &'a str,
    },
    /// A named position in the log.
    Mark {
        /// Time of the mark.
        at: Nanos,
        /// The name.
        #[serde(borrow)]
        text: &'a str,
    },
}

impl<'a> CrashLogRecord<'a> {
    /// The entry of a command; `data` is the data that it writes.
    pub fn of(port: CommandPort, number: u64, command: &DeviceCommand, packed_after: u16, data: &'a [u8]) -> Self {
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

    /// The command of an entry; `None` for other kinds of entries.
    pub fn command(&self) -> Option<DeviceCommand> {
        let Self::Command { at, op, sector, sectors, flags, .. } = *self else { return None };
        let modifiers = CommandFlags::from_bits_retain(flags);
        Some(DeviceCommand { modifiers, ..DeviceCommand::new(at, op, sector, sectors) })
    }
}
