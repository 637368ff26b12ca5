//! Flags of an eMMC command.

use bitflags::bitflags;

use crate::{Op, RequestFlags};

bitflags! {
    /// A set of flags of an eMMC command.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CommandFlags: u8 {
        /// Forced programming: the write bypasses the write buffer of the device and is durable on completion (CMD23 bit 24).
        const FORCED = 1;
        /// Reliable write: durable on completion; after a power cut each sector has its old or its new data (CMD23 bit 31). Linux
        /// requests it with `REQ_FUA`.
        const RELIABLE = 1 << 1;
        /// The device flushes its write buffer before the write; the MMC driver sends a flush first (`REQ_PREFLUSH`).
        const PREFLUSH = 1 << 2;
        /// A flush that only guarantees an order (`EXT_CSD` `FLUSH_CACHE` [32] bit 1, eMMC 5.1).
        const BARRIER = 1 << 3;
        /// File-system metadata, which the MMC driver may send as a tag request (CMD23 bit 29; `REQ_META`). The flag is a hint and
        /// guarantees nothing.
        const META = 1 << 4;
    }
}

impl CommandFlags {
    /// Flags that guarantee durability or an order. The other flags are hints.
    pub const PROMISES: Self = Self::FORCED.union(Self::RELIABLE).union(Self::PREFLUSH).union(Self::BARRIER);
    /// Flags of a write that is durable on completion.
    pub const DURABLE: Self = Self::FORCED.union(Self::RELIABLE);

    /// The subset of the flags that are valid for an operation.
    #[inline]
    #[must_use]
    pub const fn of(self, op: Op) -> Self {
        match op {
            Op::Flush => self.intersection(Self::BARRIER),
            Op::Write => self.difference(Self::BARRIER),
            Op::Read => self.intersection(Self::META),
            Op::Discard | Op::SecureErase => Self::empty(),
        }
    }

    /// Whether the command is durable on completion.
    #[inline]
    pub const fn durable(self) -> bool {
        self.intersects(Self::DURABLE)
    }
}

impl From<CommandFlags> for RequestFlags {
    /// Returns the request flags that correspond to these command flags. Forced programming becomes FUA, which gives the same guarantee.
    #[inline]
    fn from(modifiers: CommandFlags) -> Self {
        let mut flags = Self::empty();
        flags.set(Self::FUA, modifiers.durable());
        flags.set(Self::PREFLUSH, modifiers.contains(CommandFlags::PREFLUSH));
        flags.set(Self::META, modifiers.contains(CommandFlags::META));
        flags
    }
}

impl From<RequestFlags> for CommandFlags {
    #[inline]
    fn from(flags: RequestFlags) -> Self {
        let mut modifiers = Self::empty();
        modifiers.set(Self::RELIABLE, flags.contains(RequestFlags::FUA));
        modifiers.set(Self::PREFLUSH, flags.contains(RequestFlags::PREFLUSH));
        modifiers.set(Self::META, flags.contains(RequestFlags::META));
        modifiers
    }
}
