//! What a device is asked: a command and what it asks beside its operation.

use emmclab_base::{Flags, Nanos, Op, Request};

/// What a command asks beside its operation, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modifiers(u8);

impl Modifiers {
    /// Nothing.
    pub const NONE: Modifiers = Modifiers(0);
    /// Reliable write: old or new, never torn, durable on completion (CMD23 bit 31). Linux asks for it with `REQ_FUA`.
    pub const RELIABLE: Modifiers = Modifiers(1 << 1);
    /// Forced programming: past the cache, durable on completion (CMD23 bit 24).
    pub const FORCED: Modifiers = Modifiers(1);
    /// The cache is flushed before it; the MMC driver sends a flush first (`REQ_PREFLUSH`).
    pub const PREFLUSH: Modifiers = Modifiers(1 << 2);
    /// A flush that only sets an order (`EXT_CSD` `FLUSH_CACHE` [32] bit 1, eMMC 5.1).
    pub const BARRIER: Modifiers = Modifiers(1 << 3);

    /// True where every bit of `other` is set.
    #[inline]
    pub const fn contains(self, other: Modifiers) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets together.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Modifiers) -> Modifiers {
        Modifiers(self.0 | other.0)
    }

    /// True where nothing is asked for.
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl From<Flags> for Modifiers {
    #[inline]
    fn from(flags: Flags) -> Self {
        let pick = |flag, modifier: Modifiers| if flags.contains(flag) { modifier } else { Modifiers::NONE };
        pick(Flags::FUA, Self::RELIABLE).with(pick(Flags::PREFLUSH, Self::PREFLUSH))
    }
}

/// What a request asks of a device: the part of [`Request`] that matters to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// When it comes; never before the one before it.
    pub arrival: Nanos,
    /// What it does.
    pub op: Op,
    /// First sector.
    pub sector: u64,
    /// Length in sectors; 0 only for a flush.
    pub sectors: u32,
    /// What it asks beside that.
    pub modifiers: Modifiers,
}

impl Command {
    /// A command that asks for nothing more.
    pub const fn new(arrival: Nanos, op: Op, sector: u64, sectors: u32) -> Self {
        Self { arrival, op, sector, sectors, modifiers: Modifiers::NONE }
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
