//! A request as a layer sees it.

use emmclab_base::Op;

/// A request from above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRequest {
    /// Its number; later requests have higher ones. A deferred request keeps its number.
    pub id: u64,
    /// What it does.
    pub op: Op,
    /// First sector.
    pub sector: u64,
    /// Length in sectors; 0 for a flush.
    pub sectors: u32,
}

impl HostRequest {
    /// The sector behind the last one.
    #[inline]
    pub fn end(&self) -> u64 {
        self.sector + u64::from(self.sectors)
    }
}
