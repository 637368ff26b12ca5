//! Commands to a device.

use emmclab_base::{CommandFlags, Nanos, Op, Request};

/// A command to a device: the part of [`Request`] that matters to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceCommand {
    /// Arrival time; never before that of the previous command.
    pub arrival: Nanos,
    /// Its operation.
    pub op: Op,
    /// First sector.
    pub sector: u64,
    /// Length in sectors; 0 only for a flush.
    pub sectors: u32,
    /// Its flags.
    pub modifiers: CommandFlags,
}

impl DeviceCommand {
    /// A command without flags.
    pub const fn new(arrival: Nanos, op: Op, sector: u64, sectors: u32) -> Self {
        Self { arrival, op, sector, sectors, modifiers: CommandFlags::empty() }
    }
}

impl From<&Request> for DeviceCommand {
    #[inline]
    fn from(request: &Request) -> Self {
        Self {
            arrival: request.arrival,
            op: request.op,
            sector: request.sector.0,
            sectors: request.sectors,
            modifiers: request.flags.into(),
        }
    }
}
