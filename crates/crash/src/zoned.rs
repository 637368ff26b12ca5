//! Zones after a cut. They are written in order, so a prefix of each is left, and its write pointer is at the end of this prefix.

use std::collections::BTreeMap;

use emmclab_layers::DiskZones;

use crate::disk_contents::{BLOCK, Block, DiskContents};
use crate::spool::SectorSource;

/// Returns the write pointers of a disk: for each zone, the sector after the last one that holds data. The work is proportional to
/// the number of blocks that were ever written.
pub(crate) fn write_pointers(zones: &DiskZones, base: &DiskContents, changes: &BTreeMap<u64, Block>) -> Vec<u64> {
    let mut pointers: Vec<u64> = (0..zones.count).map(|zone| zones.start(zone)).collect();
    let unchanged = base.blocks().filter(|(block, _)| !changes.contains_key(block));
    for (block, sources) in unchanged.chain(changes.iter().map(|(block, sources)| (*block, sources))) {
        let Some(zone) = zones.zone_of(block * BLOCK) else { continue };
        if let Some(last) = sources.iter().rposition(|source| *source != SectorSource::ZEROS) {
            let pointer = &mut pointers[zone as usize];
            *pointer = (*pointer).max(block * BLOCK + last as u64 + 1);
        }
    }
    pointers
}

/// Removes the data after a gap in a zone: programs of several planes end in any order, and the device only finds the data before the gap.
pub(crate) fn keep_beginnings(zones: &DiskZones, base: &DiskContents, changes: &mut BTreeMap<u64, Block>) {
    let mut blocks: Vec<u64> = base.blocks().map(|(block, _)| block).chain(changes.keys().copied()).collect();
    blocks.retain(|block| zones.zone_of(block * BLOCK).is_some());
    blocks.sort_unstable();
    blocks.dedup();
    // The end of the prefix of the current zone.
    let (mut present, mut end) = (None, 0);
    for block in blocks {
        let zone = zones.zone_of(block * BLOCK);
        if zone != present {
            (present, end) = (zone, zone.map_or(0, |zone| zones.start(zone)));
        }
        let mut sources = changes.get(&block).copied().unwrap_or_else(|| base.block(block));
        let before = sources;
        for (sector, source) in (block * BLOCK..).zip(&mut sources) {
            if sector == end && *source != SectorSource::ZEROS {
                end += 1;
            } else {
                *source = SectorSource::ZEROS;
            }
        }
        if sources != before {
            changes.insert(block, sources);
        }
    }
}
