//! Zones of a device, as it reports them to its host.

/// State of a zone, as in ZBC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneState {
    /// No data since the last reset.
    Empty,
    /// Opened by a write.
    ImplicitlyOpen,
    /// Opened by a command of the host.
    ExplicitlyOpen,
    /// Contains data and is not open.
    Closed,
    /// Must be reset before it can be written.
    Full,
}

impl ZoneState {
    /// Whether the zone counts as open.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::ImplicitlyOpen | Self::ExplicitlyOpen)
    }

    /// Whether the zone counts as active.
    pub const fn is_active(self) -> bool {
        self.is_open() || matches!(self, Self::Closed)
    }
}

/// Commands for a zone that are not writes. A zone is reset by a discard of all its sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneAction {
    /// Open the zone, so that no write to another zone closes it.
    Open,
    /// Close the zone.
    Close,
    /// Make the zone full, regardless of its contents.
    Finish,
}

/// A zone that is written sequentially.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneDescriptor {
    /// State of the zone.
    pub state: ZoneState,
    /// First sector.
    pub start: u64,
    /// Length in sectors.
    pub sectors: u64,
    /// The next sector to write; for a full zone, the sector after its last one.
    pub write_pointer: u64,
}
