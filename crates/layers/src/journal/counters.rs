//! Counts of what the layer did.

/// Counts of what the layer did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    /// Commits of the journal.
    pub commits: u64,
    /// Flushes that came, those before a write included, and those that the device did not see.
    pub flushes: u64,
    pub flushes_saved: u64,
    /// Writes that were made durable without a request for it.
    pub forced: u64,
    /// Writes to homes that a flush need not make durable.
    pub home_blocks_left: u64,
    /// Writes without block notes.
    pub unknown_writes: u64,
    /// Records in the layer's own log, and their sectors; sectors of the journal that they stand for.
    pub records: u64,
    pub record_sectors: u64,
    pub journal_sectors: u64,
    /// Transactions that went to their place in the journal, for want of room.
    pub commits_in_place: u64,
    /// Blocks put to their place in the journal after a cut of power.
    pub blocks_rebuilt: u64,
    /// Blocks of the journal that were not written at all.
    pub blocks_dropped: u64,
}

impl Counters {
    /// By name.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("commits", self.commits),
            ("flushes", self.flushes),
            ("flushes_saved", self.flushes_saved),
            ("forced_writes", self.forced),
            ("home_blocks_left", self.home_blocks_left),
            ("unknown_writes", self.unknown_writes),
            ("log_records", self.records),
            ("log_sectors", self.record_sectors),
            ("journal_sectors_logged", self.journal_sectors),
            ("commits_in_place", self.commits_in_place),
            ("blocks_rebuilt", self.blocks_rebuilt),
            ("blocks_dropped", self.blocks_dropped),
        ]
    }
}
