//! Types for the numbers of units, blocks, planes and so on, which prevent mixing them up.

use std::fmt;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The number as an index.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )+};
}

ids! {
    /// Logical page number: the number of a map unit in the address space of the host. Units of a mapping table on the flash have higher
    /// numbers.
    Lpn,
    /// Physical page number: the location of one map unit in the flash. A flash page may contain several map units. The first number of
    /// each block is a multiple of a power of two.
    Ppn,
    /// Number of an erase block in the device, plane by plane.
    BlockId,
    /// Number of a plane in the device: ((channel * chips + chip) * dies + die) * planes + plane.
    PlaneId,
    /// Way: a chip, die or plane (`timing.parallelism`), which executes one operation at a time.
    WayId,
    /// Pool: the blocks of one block group in one plane.
    PoolId,
}

impl Lpn {
    /// Returns the logical page number that is `count` units after this one.
    #[inline]
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0 + count)
    }
}

impl Ppn {
    /// Returns the physical page number that is `count` units after this one.
    #[inline]
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0 + count)
    }
}

impl BlockId {
    /// Represents the absence of a block.
    pub(crate) const NONE: Self = Self(u32::MAX);
}
