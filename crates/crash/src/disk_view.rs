//! The disk in the state that a cut leaves, read without a copy.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use emmclab_base::SECTOR_BYTES;
use emmclab_layers::DiskZones;

use crate::disk_contents::{BLOCK, Block, DiskContents};
use crate::log_index::CrashLogIndex;
use crate::spool::SectorSource;
use crate::zoned::write_pointers;

/// A state of a disk: contents of the run, and the blocks in which it differs from them.
#[derive(Clone)]
pub struct CrashDiskView {
    run: Arc<CrashLogIndex>,
    base: Arc<DiskContents>,
    changes: Arc<BTreeMap<u64, Block>>,
    sectors: u64,
}

impl CrashDiskView {
    pub(crate) fn new(
        run: &Arc<CrashLogIndex>,
        base: &Arc<DiskContents>,
        changes: &Arc<BTreeMap<u64, Block>>,
        sectors: u64,
    ) -> Self {
        Self { run: run.clone(), base: base.clone(), changes: changes.clone(), sectors }
    }

    /// Size in sectors.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    fn block(&self, block: u64) -> Block {
        self.changes.get(&block).copied().unwrap_or_else(|| self.base.block(block))
    }

    /// The source of a sector.
    pub(crate) fn source(&self, sector: u64) -> SectorSource {
        self.block(sector / BLOCK)[(sector % BLOCK) as usize]
    }

    /// Fills `buffer` with whole sectors from `sector` on.
    ///
    /// # Errors
    /// A range beyond the end of the disk; errors of the file with the data.
    pub fn read(&self, sector: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = sector.saturating_add(buffer.len() as u64 / SECTOR_BYTES);
        if end > self.sectors {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (mut at, mut rest) = (sector, buffer);
        while at < end {
            let stop = end.min((at / BLOCK + 1) * BLOCK);
            let sources = self.block(at / BLOCK);
            let part = &sources[(at % BLOCK) as usize..][..(stop - at) as usize];
            let (now, later) = rest.split_at_mut(part.len() * SECTOR_BYTES as usize);
            self.run.spool().read(part, now)?;
            (at, rest) = (stop, later);
        }
        Ok(())
    }

    /// A number that is equal for equal contents of a range of sectors within a block; with it, equal contents are judged only
    /// once.
    pub fn identity(&self, sector: u64, sectors: u64) -> u64 {
        let digest = |sector| self.run.spool().digest(self.source(sector));
        (sector..sector + sectors).fold(0xcbf2_9ce4_8422_2325, |sum: u64, sector| {
            (sum ^ digest(sector)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
        })
    }

    /// Whether a block of eight sectors holds only zeros, by the digests of its sectors.
    pub(crate) fn is_zero(&self, block: u64) -> bool {
        let zeros = self.run.spool().digest(SectorSource::ZEROS);
        self.block(block).iter().all(|source| self.run.spool().digest(*source) == zeros)
    }

    /// The write pointers of the disk's zones.
    pub(crate) fn write_pointers(&self, zones: &DiskZones) -> Vec<u64> {
        write_pointers(zones, &self.base, &self.changes)
    }

    /// Returns the blocks of eight sectors that may hold data, in order.
    pub fn written(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.base.blocks().map(|(block, _)| block).collect();
        all.extend(self.changes.keys());
        all.sort_unstable();
        all.dedup();
        all
    }
}
