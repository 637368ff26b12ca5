//! Commands to the zones of a device. They carry no data and are not requests here.

/// A command to a zone, or to all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ZoneCommand {
    /// Moves the write pointer back to the start of the zone.
    Reset,
    /// Moves the write pointers of all zones back to their start.
    ResetAll,
    /// Makes the zone full.
    Finish,
    /// Opens the zone.
    Open,
    /// Closes the zone.
    Close,
}

impl ZoneCommand {
    /// The name of the command in the note of a trace.
    pub const fn name(self) -> &'static str {
        match self {
            ZoneCommand::Reset => "zone reset",
            ZoneCommand::ResetAll => "zone reset all",
            ZoneCommand::Finish => "zone finish",
            ZoneCommand::Open => "zone open",
            ZoneCommand::Close => "zone close",
        }
    }
}
