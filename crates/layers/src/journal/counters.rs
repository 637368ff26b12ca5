//! Counters of the journal layer.

/// Counters of the journal layer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct JournalLayerCounters {
    /// Commits of the journal.
    pub commits: u64,
    /// Flushes from the host, preflushes included, and those of them that were not sent to the device.
    pub flushes: u64,
    pub flushes_saved: u64,
    /// Writes that were made durable although the request did not ask for it.
    pub forced: u64,
    /// Home writes that the next flush need not make durable.
    pub home_blocks_left: u64,
    /// Writes without block notes.
    pub unknown_writes: u64,
    /// Records in the layer's own log, their sectors, and the sectors of the journal that they replace.
    pub records: u64,
    pub record_sectors: u64,
    pub journal_sectors: u64,
    /// Transactions that were written to their place in the journal, for lack of room in the log.
    pub commits_in_place: u64,
    /// Blocks that were written to their place in the journal after a power cut.
    pub blocks_rebuilt: u64,
    /// Blocks of the journal that were not written to the device.
    pub blocks_dropped: u64,
}

impl JournalLayerCounters {
    /// The counts with their names.
    pub fn by_name(&self) -> Vec<(&'static str, u64)> {
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
