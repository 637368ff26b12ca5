//! Zones of a device, as it reports them to its host.

/// State of a zone, with the names of ZBC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneState {
    /// Nothing was written since it was reset.
    Empty,
    /// A write has opened it.
    ImplicitlyOpen,
    /// The host has opened it by command.
    ExplicitlyOpen,
    /// It holds data and is not open.
    Closed,
    /// Nothing can be written until it is reset.
    Full,
}

impl ZoneState {
    /// Whether it counts among the open zones.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::ImplicitlyOpen | Self::ExplicitlyOpen)
    }

    /// Whether it counts among the active zones.
    pub const fn is_active(self) -> bool {
        self.is_open() || matches!(self, Self::Closed)
    }
}

/// Commands for a zone other than writes. A reset is a discard of all its sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneAction {
    /// Opens it, so that no write to another zone closes it.
    Open,
    /// Closes it.
    Close,
    /// Makes it full, whatever it holds.
    Finish,
}

/// A zone that is written sequentially.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneDescriptor {
    /// Its state.
    pub state: ZoneState,
    /// First sector.
    pub start: u64,
    /// Its length in sectors.
    pub sectors: u64,
    /// The next sector to write; for a full zone, the sector after its last.
    pub write_pointer: u64,
}
