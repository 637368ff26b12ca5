//! Commands to a device, and their flags.

use bitflags::bitflags;
use emmclab_base::{Flags, Nanos, Op, Request};

bitflags! {
    /// Command flags.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Modifiers: u8 {
        /// Forced programming: past the write buffer, durable on completion (CMD23 bit 24).
        const FORCED = 1;
        /// Reliable write: old or new, never torn, durable on completion (CMD23 bit 31). Linux asks for it with `REQ_FUA`.
        const RELIABLE = 1 << 1;
        /// The write buffer is flushed before it; the MMC driver sends a flush first (`REQ_PREFLUSH`).
        const PREFLUSH = 1 << 2;
        /// A flush that only sets an order (`EXT_CSD` `FLUSH_CACHE` [32] bit 1, eMMC 5.1).
        const BARRIER = 1 << 3;
    }
}

impl From<Flags> for Modifiers {
    #[inline]
    fn from(flags: Flags) -> Self {
        let mut modifiers = Self::empty();
        modifiers.set(Self::RELIABLE, flags.contains(Flags::FUA));
        modifiers.set(Self::PREFLUSH, flags.contains(Flags::PREFLUSH));
        modifiers
    }
}

/// A command to a device: the part of [`Request`] that matters to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// When it comes; never before the one before it.
    pub arrival: Nanos,
    /// Its operation.
    pub op: Op,
    /// First sector.
    pub sector: u64,
    /// Length in sectors; 0 only for a flush.
    pub sectors: u32,
    /// Its flags.
    pub modifiers: Modifiers,
}

impl Command {
    /// A command without flags.
    pub const fn new(arrival: Nanos, op: Op, sector: u64, sectors: u32) -> Self {
        Self { arrival, op, sector, sectors, modifiers: Modifiers::empty() }
    }
}

impl From<&Request> for Command {
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
