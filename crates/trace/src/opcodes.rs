//! Operation codes of commands that read, write, flush or discard: SCSI (SBC-4), NVM Express (NVM command set), MMC (JESD84-B51).

use crate::Op;

/// The SCSI command UNMAP, whose ranges are in its data.
pub(crate) const SCSI_UNMAP: u8 = 0x42;

/// The operation of a SCSI command; `None` if it does not access the data of the medium.
pub(crate) fn scsi(code: u8) -> Option<Op> {
    Some(match code {
        // READ (6), (10), (12), (16).
        0x08 | 0x28 | 0xa8 | 0x88 => Op::Read,
        // WRITE (6), (10), (12), (16), and WRITE AND VERIFY (10), (12), (16); WRITE ATOMIC (16).
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e | 0x9c => Op::Write,
        // SYNCHRONIZE CACHE (10), (16).
        0x35 | 0x91 => Op::Flush,
        // UNMAP, and WRITE SAME (10), (16), which Linux uses to write zeroes, and to discard on disks that prefer it.
        SCSI_UNMAP | 0x41 | 0x93 => Op::Discard,
        _ => return None,
    })
}

/// The operation of an NVM Express command; `None` for other commands.
pub(crate) fn nvme(code: u8) -> Option<Op> {
    Some(match code {
        0x00 => Op::Flush,
        0x01 => Op::Write,
        0x02 => Op::Read,
        // The NVMe command Dataset Management.
        0x09 => Op::Discard,
        _ => return None,
    })
}

/// The operation of the MMC command with this number; `None` for other commands.
pub(crate) fn mmc(command: u8) -> Option<Op> {
    Some(match command {
        // MMC commands for a single block, for multiple blocks, and for the execution of a queued task.
        17 | 18 | 46 => Op::Read,
        24 | 25 | 47 => Op::Write,
        38 => Op::Discard,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_and_verify_writes_and_write_same_discards() {
        for code in [0x2a, 0x2e, 0xae, 0x8e] {
            assert_eq!(scsi(code), Some(Op::Write), "{code:#x}");
        }
        for code in [SCSI_UNMAP, 0x41, 0x93] {
            assert_eq!(scsi(code), Some(Op::Discard), "{code:#x}");
        }
        assert_eq!((scsi(0x12), scsi(0x2f), mmc(13), mmc(46)), (None, None, None, Some(Op::Read)));
    }
}
