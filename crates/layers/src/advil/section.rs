//! A reserved section: a hot region and a log region, each filled from its start.

/// One half of the reserved area. Places are sectors from the start of that area.
#[derive(Clone, Debug, Default)]
pub(super) struct Section {
    /// First place of the section.
    pub first: u32,
    pub sectors: u32,
    /// Number of the round in which it was last filled; 0 = never.
    pub generation: u64,
    /// Where the next hot data goes.
    pub hot_next: u32,
    /// End of the hot region, where the log region begins.
    pub hot_end: u32,
    /// Where the next record goes.
    pub log_next: u32,
    /// Where records end for now: as far as recovery would look, or the end of the section.
    pub log_end: u32,
    /// Sectors of log after a checkpoint that recovery looks at.
    reach: u32,
}

impl Section {
    pub fn new(first: u32, sectors: u32, reach: u32) -> Self {
        Self { first, sectors, reach, ..Self::default() }
    }

    pub fn end(&self) -> u32 {
        self.first + self.sectors
    }

    pub fn holds(&self, place: u32) -> bool {
        (self.first..self.end()).contains(&place)
    }

    /// Starts the section anew, with a hot region of `hot` sectors after `header` ones.
    pub fn open(&mut self, generation: u64, header: u32, hot: u32) {
        self.generation = generation;
        self.hot_next = self.first + header;
        self.hot_end = self.hot_next + hot;
        self.log_next = self.hot_end;
        self.log_end = self.seen_from(self.hot_end);
    }

    /// How far recovery looks from a place in the log on.
    pub fn seen_from(&self, place: u32) -> u32 {
        place.saturating_add(self.reach).min(self.end())
    }

    /// Room left for records, of which `kept` sectors at the end are not for requests.
    pub fn log_room(&self, kept: u32) -> u32 {
        self.log_end.saturating_sub(self.log_next).saturating_sub(kept)
    }
}
