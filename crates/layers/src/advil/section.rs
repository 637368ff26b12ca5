//! A reserved section: a hot region and a log region, each filled from its start.

/// One half of the reserved area. Places are sectors from the start of that area.
#[derive(Clone, Debug, Default)]
pub(super) struct ReservedSection {
    /// First place of the section.
    pub first: u32,
    pub sectors: u32,
    /// Number of the round in which the section was last opened; 0 if never.
    pub generation: u64,
    /// The place of the next hot data.
    pub hot_next: u32,
    /// End of the hot region, where the log region starts.
    pub hot_end: u32,
    /// The place of the next record.
    pub log_next: u32,
    /// Current limit for records: the end of the range that recovery would read, or the end of the section.
    pub log_end: u32,
    /// Sectors of log that recovery reads after a checkpoint.
    reach: u32,
}

impl ReservedSection {
    pub fn new(first: u32, sectors: u32, reach: u32) -> Self {
        Self { first, sectors, reach, ..Self::default() }
    }

    pub fn end(&self) -> u32 {
        self.first + self.sectors
    }

    pub fn holds(&self, place: u32) -> bool {
        (self.first..self.end()).contains(&place)
    }

    /// Opens the section again, with a header of `header` sectors and a hot region of `hot` sectors.
    pub fn open(&mut self, generation: u64, header: u32, hot: u32) {
        self.generation = generation;
        self.hot_next = self.first + header;
        self.hot_end = self.hot_next + hot;
        self.log_next = self.hot_end;
        self.log_end = self.seen_from(self.hot_end);
    }

    /// The end of the range that recovery reads from a place in the log on.
    pub fn seen_from(&self, place: u32) -> u32 {
        place.saturating_add(self.reach).min(self.end())
    }

    /// Sectors left for records, without the `kept` sectors at the end, which requests must not use.
    pub fn log_room(&self, kept: u32) -> u32 {
        self.log_end.saturating_sub(self.log_next).saturating_sub(kept)
    }
}
