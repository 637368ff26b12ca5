//! The address of a driver's command on its disk, in sectors of 512 bytes.
//!
//! The events of UFS and SCSI state a first block. UFS drivers of kernels up to 5.14 count in sectors, later ones in logical
//! blocks of 4 KiB. SCSI commands count in the logical blocks of the disk, which have 512 bytes or 4 KiB. No event states the
//! unit, but the addresses show it: see [`AddressUnitEvidence`].

use std::cmp::Ordering;

use crate::SECTOR_BYTES;

/// Size of a logical block in bytes, of UFS and of SCSI disks whose blocks do not have 512 bytes.
const LONG_BLOCK: u64 = 4096;
const SECTORS_OF_LONG: u64 = LONG_BLOCK / SECTOR_BYTES;

/// The blocks of a command, as its event states them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CommandBlocks {
    /// The first.
    pub(super) first: u64,
    /// Their number, if the event states no bytes.
    pub(super) count: Option<u32>,
    /// Number of bytes, if the event states it.
    pub(super) bytes: u64,
    /// Whether the event has fields of kernels that use logical blocks.
    pub(super) is_recent: bool,
}

/// Evidence from a host's commands for the unit of its addresses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AddressUnitEvidence {
    commands: u64,
    /// Number of commands whose address, and number of blocks if it is stated, are multiples of eight.
    in_eights: u64,
    /// Number of commands that begin at the end of the previous one if addresses are sectors; then the same if they are long
    /// blocks.
    follow_as_sectors: u64,
    follow_as_blocks: u64,
    /// The end of the last command, if addresses are sectors; then if they are long blocks.
    end_in_sectors: u64,
    end_in_blocks: u64,
    is_recent: bool,
    tells_bytes: bool,
}

impl AddressUnitEvidence {
    /// Adds a command.
    pub(super) fn see(&mut self, blocks: &CommandBlocks) {
        let CommandBlocks { first, count, bytes, is_recent } = *blocks;
        self.commands += 1;
        self.is_recent |= is_recent;
        let eights =
            first.is_multiple_of(SECTORS_OF_LONG) && count.is_none_or(|count| u64::from(count) % SECTORS_OF_LONG == 0);
        self.in_eights += u64::from(eights);
        if count.is_some() {
            return;
        }
        self.tells_bytes = true;
        self.follow_as_sectors += u64::from(first != 0 && first == self.end_in_sectors);
        self.follow_as_blocks += u64::from(first != 0 && first == self.end_in_blocks);
        self.end_in_sectors = first.saturating_add(bytes / SECTOR_BYTES);
        self.end_in_blocks = first.saturating_add(bytes / LONG_BLOCK);
    }

    /// The unit of the addresses in sectors: 1 or 8.
    ///
    /// If the events state bytes (UFS), the disk has long blocks, and addresses in sectors are all multiples of eight. An
    /// address that is not shows that the unit is 8. Otherwise the unit is the one in which more commands follow the previous
    /// one, and if both are equal, the form of the event decides. If the events state blocks (SCSI), most requests of a file
    /// system are multiples of 4 KiB, so that on a disk with short blocks more than half are multiples of eight.
    pub(super) fn sectors_of_unit(&self) -> u64 {
        let is_long = if !self.tells_bytes {
            self.commands > 0 && 2 * self.in_eights <= self.commands
        } else if self.in_eights < self.commands {
            true
        } else {
            match self.follow_as_blocks.cmp(&self.follow_as_sectors) {
                Ordering::Equal => self.is_recent,
                order => order == Ordering::Greater,
            }
        };
        if is_long { SECTORS_OF_LONG } else { 1 }
    }
}

impl CommandBlocks {
    /// The first sector and number of sectors, given the unit of the addresses in sectors.
    pub(super) fn sectors(&self, sectors_of_unit: u64) -> (u64, u64) {
        let count = match self.count {
            Some(count) => u64::from(count).saturating_mul(sectors_of_unit),
            None => self.bytes.div_ceil(SECTOR_BYTES),
        };
        (self.first.saturating_mul(sectors_of_unit), count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(commands: &[(u64, u64)], is_recent: bool) -> u64 {
        let mut evidence = AddressUnitEvidence::default();
        for (first, bytes) in commands {
            evidence.see(&CommandBlocks { first: *first, count: None, bytes: *bytes, is_recent });
        }
        evidence.sectors_of_unit()
    }

    #[test]
    fn an_address_that_is_no_multiple_of_eight_counts_blocks_of_4_kib() {
        assert_eq!(unit(&[(8, 4096), (16, 4096), (3, 4096)], false), 8);
        assert_eq!(unit(&[(8, 4096), (160, 4096)], false), 1);
    }

    #[test]
    fn commands_in_a_row_show_the_unit() {
        // 512 KiB each: 128 blocks, or 1,024 sectors.
        assert_eq!(unit(&[(1024, 1 << 19), (1152, 1 << 19), (1280, 1 << 19)], false), 8);
        assert_eq!(unit(&[(1024, 1 << 19), (2048, 1 << 19)], true), 1);
    }

    #[test]
    fn without_other_evidence_the_kernel_decides() {
        assert_eq!(unit(&[(8, 4096)], true), 8);
        assert_eq!(unit(&[(8, 4096)], false), 1);
    }

    #[test]
    fn of_scsi_disks_with_short_blocks_most_commands_are_multiples_of_eight() {
        let unit = |commands: &[(u64, u32)]| {
            let mut evidence = AddressUnitEvidence::default();
            for (first, count) in commands {
                evidence.see(&CommandBlocks { first: *first, count: Some(*count), bytes: 0, is_recent: false });
            }
            evidence.sectors_of_unit()
        };
        assert_eq!(unit(&[(2048, 8), (4096, 64), (63, 1)]), 1);
        assert_eq!(unit(&[(256, 1), (8, 2), (19, 1)]), 8);
        let blocks = CommandBlocks { first: 3, count: Some(2), bytes: 0, is_recent: false };
        assert_eq!(blocks.sectors(8), (24, 16));
    }
}
