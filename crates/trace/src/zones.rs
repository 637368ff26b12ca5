//! Commands to the zones of a device. They carry no data and are not requests here, so they are counted by name.

use crate::pairing::EventKind;

/// A command to a zone, or to all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// All commands, in the order of their counts.
    pub const ALL: [ZoneCommand; 5] = [
        ZoneCommand::Reset,
        ZoneCommand::ResetAll,
        ZoneCommand::Finish,
        ZoneCommand::Open,
        ZoneCommand::Close,
    ];

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

/// Counts the commands by name and by step.
#[derive(Clone, Debug, Default)]
pub(crate) struct ZoneCommands {
    issued: [u64; ZoneCommand::ALL.len()],
    completed: [u64; ZoneCommand::ALL.len()],
    queued: [u64; ZoneCommand::ALL.len()],
}

impl ZoneCommands {
    /// Counts a step of a command.
    pub(crate) fn see(&mut self, command: ZoneCommand, step: EventKind) {
        let counts = match step {
            EventKind::Issue => &mut self.issued,
            EventKind::Complete => &mut self.completed,
            EventKind::Queue => &mut self.queued,
            _ => return,
        };
        counts[command as usize] += 1;
    }

    /// A text with the number of each command; `None` if there are none. Counts issues if any are recorded, else completions,
    /// else queue events.
    pub(crate) fn note(&self) -> Option<String> {
        let steps = [&self.issued, &self.completed, &self.queued];
        let counts = steps.into_iter().find(|counts| counts.iter().any(|count| *count > 0))?;
        let named = counts.iter().zip(ZoneCommand::ALL).filter(|(count, _)| **count > 0);
        let named: Vec<_> = named.map(|(count, command)| format!("{count} x {}", command.name())).collect();
        Some(format!("commands to zones, which are no requests here: {}", named.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_counted_by_their_issues_or_by_what_is_recorded() {
        let mut zones = ZoneCommands::default();
        assert_eq!(zones.note(), None);
        zones.see(ZoneCommand::Reset, EventKind::Complete);
        zones.see(ZoneCommand::Reset, EventKind::Complete);
        assert!(zones.note().unwrap().ends_with(": 2 x zone reset"));
        zones.see(ZoneCommand::ResetAll, EventKind::Issue);
        assert!(zones.note().unwrap().ends_with(": 1 x zone reset all"));
    }
}
