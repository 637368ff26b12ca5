//! Counts what requests do not show: zone commands, writes of zeroes, pass-through commands of programs, and errors.

use std::collections::BTreeMap;

use crate::{BlockEventKind, Ledger, Request};

/// Counts of commands by kind, for each step that was recorded.
#[derive(Clone, Debug)]
pub(crate) struct CommandStepCounts<K> {
    issued: BTreeMap<K, u64>,
    completed: BTreeMap<K, u64>,
    queued: BTreeMap<K, u64>,
}

impl<K> Default for CommandStepCounts<K> {
    fn default() -> Self {
        Self { issued: BTreeMap::new(), completed: BTreeMap::new(), queued: BTreeMap::new() }
    }
}

impl<K: Ord> CommandStepCounts<K> {
    pub fn see(&mut self, kind: K, step: BlockEventKind) {
        let counts = match step {
            BlockEventKind::Issue => &mut self.issued,
            BlockEventKind::Complete => &mut self.completed,
            BlockEventKind::Queue => &mut self.queued,
            _ => return,
        };
        *counts.entry(kind).or_default() += 1;
    }

    /// The counts of issues if any are recorded, otherwise of completions, otherwise of queue events.
    fn counts(&self) -> &BTreeMap<K, u64> {
        [&self.issued, &self.completed].into_iter().find(|counts| !counts.is_empty()).unwrap_or(&self.queued)
    }

    /// The count and name of each kind, separated by commas; `None` if there are none.
    fn list(&self, name: impl Fn(&K) -> String) -> Option<String> {
        let named: Vec<_> = self.counts().iter().map(|(kind, count)| format!("{count} x {}", name(kind))).collect();
        (!named.is_empty()).then(|| named.join(", "))
    }
}

/// The counts of a recording.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpecialCommandCounts {
    pub zones: CommandStepCounts<ZoneCommand>,
    pub zeroes: CommandStepCounts<()>,
    /// Pass-through commands by operation code; `None` if the code is not recorded.
    pub packets: CommandStepCounts<Option<u8>>,
    /// Failed completions by negative errno.
    errors: BTreeMap<i32, u64>,
}

impl SpecialCommandCounts {
    #[cold]
    pub fn error(&mut self, error: i32) {
        *self.errors.entry(error).or_default() += 1;
    }

    /// The note for the trace; `None` if there were no zone commands, writes of zeroes or errors.
    pub fn note(&self) -> Option<String> {
        let zones = self.zones.list(|command| command.name().to_owned());
        let zones = zones.map(|list| format!("commands to zones, which are not requests: {list}"));
        let zeroes = self.zeroes.list(|()| "write zeroes".to_owned());
        let zeroes = zeroes.map(|list| format!("{list} are recorded as writes"));
        let errors: Vec<_> = self.errors.iter().map(|(error, count)| format!("{count} x {}", named(*error))).collect();
        let errors = (!errors.is_empty()).then(|| format!("errors of the requests that failed: {}", errors.join(", ")));
        let notes: Vec<_> = [zones, zeroes, errors].into_iter().flatten().collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    /// The pass-through commands of programs as text, such as `2 packets of programs (2 x SCSI 0x12)`; `None` if there are none.
    pub fn packets_text(&self) -> Option<String> {
        let count: u64 = self.packets.counts().values().sum();
        let list = self.packets.list(|code| match code {
            Some(code) => format!("SCSI {code:#04x}"),
            None => "without data".to_owned(),
        })?;
        Some(format!("{count} packet{} of programs ({list})", if count == 1 { "" } else { "s" }))
    }
}

/// An errno with its name in Linux, for errors of block devices.
fn named(error: i32) -> String {
    const NAMES: [(i32, &str); 13] = [
        (-5, "EIO"),
        (-11, "EAGAIN"),
        (-12, "ENOMEM"),
        (-16, "EBUSY"),
        (-19, "ENODEV"),
        (-28, "ENOSPC"),
        (-52, "EBADE"),
        (-61, "ENODATA"),
        (-62, "ETIME"),
        (-67, "ENOLINK"),
        (-84, "EILSEQ"),
        (-95, "EOPNOTSUPP"),
        (-110, "ETIMEDOUT"),
    ];
    match NAMES.iter().find(|(number, _)| *number == error) {
        Some((number, name)) => format!("{number} ({name})"),
        None => error.to_string(),
    }
}

/// Events of the block layer, classified by their use. When no request is open, `seen` is the sum of the other counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Number of all events.
    pub seen: u64,
    /// Events of requests that were kept.
    pub kept: u64,
    /// Events that are redundant, because an earlier step of the same I/O is recorded.
    pub repeated: u64,
    /// Events of flushes that the kernel issued for other requests. Only these other requests were kept.
    pub flushes: u64,
    /// Events of commands without data, except flushes.
    pub without_data: u64,
    /// Events of requests whose beginning or end is missing.
    pub unpaired: u64,
    /// Events of I/O that a mapped device passed on.
    pub passed_on: u64,
    /// Merges, splits and requeues of an unknown request.
    pub unmatched: u64,
}

impl EventCounts {
    /// Sum of all counts except `seen`: the events that are classified.
    pub fn classified_events(&self) -> u64 {
        self.kept + self.repeated + self.flushes + self.without_data + self.unpaired + self.passed_on + self.unmatched
    }
}

/// The outputs of combining events into requests: the ledger, the counts and the requests.
pub(super) struct PairingOutput<'a> {
    pub(super) ledger: &'a mut Ledger,
    pub(super) counts: &'a mut EventCounts,
    pub(super) out: &'a mut Vec<Request>,
}

/// A command for one zone or for all zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ZoneCommand {
    /// Resets the write pointer to the start of the zone.
    Reset,
    /// Resets the write pointers of all zones to their starts.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_counted_by_their_issues_or_by_what_is_recorded() {
        let mut special = SpecialCommandCounts::default();
        assert_eq!(special.note(), None);
        special.zones.see(ZoneCommand::Reset, BlockEventKind::Complete);
        special.zones.see(ZoneCommand::Reset, BlockEventKind::Complete);
        assert!(special.note().unwrap().ends_with(": 2 x zone reset"));
        special.zones.see(ZoneCommand::ResetAll, BlockEventKind::Issue);
        assert!(special.note().unwrap().ends_with(": 1 x zone reset all"));
    }

    #[test]
    fn errors_are_counted_by_number_and_packets_by_operation_code() {
        let mut special = SpecialCommandCounts::default();
        for error in [-5, -5, -110, -42] {
            special.error(error);
        }
        assert!(special.note().unwrap().ends_with(": 1 x -110 (ETIMEDOUT), 1 x -42, 2 x -5 (EIO)"));
        special.packets.see(Some(0x12), BlockEventKind::Issue);
        special.packets.see(Some(0x12), BlockEventKind::Complete);
        assert_eq!(special.packets_text().unwrap(), "1 packet of programs (1 x SCSI 0x12)");
        special.packets.see(None, BlockEventKind::Issue);
        assert!(special.packets_text().unwrap().starts_with("2 packets of programs (1 x without data, 1 x SCSI"));
    }
}
