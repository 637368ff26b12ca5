//! Numbers that name something, as types: a number never travels without saying what it names.

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
    /// Logical page number: a map unit as the host addresses it, counted from the first sector. Units of a map that lies on the
    /// flash follow those of the host.
    Lpn,
    /// Physical page number: the place of one map unit in the flash (a sub-page where a page holds several). The numbers of a
    /// block start at a multiple of a power of two.
    Ppn,
    /// Erase block, counted over the device, plane by plane.
    BlockId,
    /// Plane, counted over the device: ((channel * chips + chip) * dies + die) * planes + plane.
    PlaneId,
    /// Way: what does one thing at a time, a chip, die or plane by `timing.parallelism`.
    WayId,
    /// Pool: the blocks of one block group in one plane.
    PoolId,
}

impl Lpn {
    /// The unit that is `count` units after this one.
    #[inline]
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0 + count)
    }
}

impl Ppn {
    /// The physical page number that is `count` after this one.
    #[inline]
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0 + count)
    }
}

impl BlockId {
    /// No block.
    pub(crate) const NONE: Self = Self(u32::MAX);
}
