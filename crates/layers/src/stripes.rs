//! Stripes: divides addresses alternately between two disks.

/// Stripes of this many sectors, the first on disk 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskStripes(pub u64);

impl DiskStripes {
    /// Maps a sector: returns the disk, the sector on it, and how many sectors from there on are consecutive.
    pub fn place(self, sector: u64) -> (u8, u64, u64) {
        let (stripe, offset) = (sector / self.0, sector % self.0);
        ((stripe % 2) as u8, stripe / 2 * self.0 + offset, self.0 - offset)
    }

    /// Number of sectors that disks of these sizes offer together: twice the whole stripes of the smaller one.
    pub fn capacity(self, disks: [u64; 2]) -> u64 {
        disks[0].min(disks[1]) / self.0 * self.0 * 2
    }
}
