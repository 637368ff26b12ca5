//! The kernel events that are read in addition to those of the block layer.

use crate::{EventField, EventFieldValues};

/// An event of the MMC or UFS driver, or of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelEvent {
    /// `mmc_request_start` (since kernel 4.8).
    MmcStart,
    /// `mmc_request_done`.
    MmcDone,
    /// `mmc_blk_rw_start` and `_end`, `mmc_blk_erase_start` and `_end` of Android's kernels 3.4 to 4.9.
    MmcBlock {
        /// Whether the command is an erase.
        erase: bool,
        /// Whether it is the start of the command.
        begins: bool,
    },
    /// `ufshcd_command`.
    Ufs,
    /// `ufshcd_uic_command`: a command of the link.
    UfsLink,
    /// `scsi_dispatch_cmd_start`.
    ScsiStart,
    /// `scsi_dispatch_cmd_error`: the host could not accept the command, which will be repeated.
    ScsiRefused,
    /// `scsi_dispatch_cmd_done`.
    ScsiDone,
    /// `scsi_dispatch_cmd_timeout`.
    ScsiTimeout,
    /// `ext4_sync_file_enter`, or the same event of this file system.
    SyncBegin(&'static str),
    /// `ext4_sync_file_exit`, or the same event of this file system.
    SyncEnd(&'static str),
    /// `jbd2_start_commit`.
    CommitBegin,
    /// `jbd2_end_commit`.
    CommitEnd,
    /// `jbd2_run_stats`: the counts of a commit.
    Commit,
}

impl KernelEvent {
    /// All events, by their paths below `events/`.
    pub const ALL: [(&str, KernelEvent); 19] = [
        ("mmc/mmc_request_start", KernelEvent::MmcStart),
        ("mmc/mmc_request_done", KernelEvent::MmcDone),
        ("mmc/mmc_blk_rw_start", KernelEvent::MmcBlock { erase: false, begins: true }),
        ("mmc/mmc_blk_rw_end", KernelEvent::MmcBlock { erase: false, begins: false }),
        ("mmc/mmc_blk_erase_start", KernelEvent::MmcBlock { erase: true, begins: true }),
        ("mmc/mmc_blk_erase_end", KernelEvent::MmcBlock { erase: true, begins: false }),
        ("ufs/ufshcd_command", KernelEvent::Ufs),
        ("ufs/ufshcd_uic_command", KernelEvent::UfsLink),
        ("scsi/scsi_dispatch_cmd_start", KernelEvent::ScsiStart),
        ("scsi/scsi_dispatch_cmd_error", KernelEvent::ScsiRefused),
        ("scsi/scsi_dispatch_cmd_done", KernelEvent::ScsiDone),
        ("scsi/scsi_dispatch_cmd_timeout", KernelEvent::ScsiTimeout),
        ("ext4/ext4_sync_file_enter", KernelEvent::SyncBegin("ext4")),
        ("ext4/ext4_sync_file_exit", KernelEvent::SyncEnd("ext4")),
        ("f2fs/f2fs_sync_file_enter", KernelEvent::SyncBegin("f2fs")),
        ("f2fs/f2fs_sync_file_exit", KernelEvent::SyncEnd("f2fs")),
        ("jbd2/jbd2_start_commit", KernelEvent::CommitBegin),
        ("jbd2/jbd2_end_commit", KernelEvent::CommitEnd),
        ("jbd2/jbd2_run_stats", KernelEvent::Commit),
    ];

    /// The event of this name, without its folder; `None` if there is none.
    pub fn by_name(name: &[u8]) -> Option<KernelEvent> {
        let has_name = |path: &str| path.as_bytes().strip_suffix(name).is_some_and(|rest| rest.ends_with(b"/"));
        KernelEvent::ALL.into_iter().find(|(path, _)| has_name(path)).map(|(_, event)| event)
    }

    /// Whether it is an event of SCSI commands, which add nothing to block events.
    pub fn is_scsi(self) -> bool {
        use KernelEvent::{ScsiDone, ScsiRefused, ScsiStart, ScsiTimeout};
        matches!(self, ScsiStart | ScsiRefused | ScsiDone | ScsiTimeout)
    }

    /// Whether the event has every field that decoding needs. Vendors' kernels have events of these names with other fields.
    pub fn is_complete_in(self, values: &EventFieldValues) -> bool {
        let has = |slots: &[EventField]| slots.iter().all(|slot| values.has(*slot));
        match self {
            KernelEvent::MmcStart => {
                use EventField::{Argument, BlockBytes, Blocks, DataFlags, Opcode};
                has(&[EventField::Host, Opcode, Argument, Blocks, BlockBytes, DataFlags])
            }
            KernelEvent::MmcDone => has(&[EventField::Host]),
            KernelEvent::MmcBlock { .. } => has(&[EventField::Opcode, EventField::Address, EventField::Blocks]),
            KernelEvent::Ufs => {
                has(&[EventField::Tag, EventField::Opcode]) && (has(&[EventField::Step]) || has(&[EventField::Word]))
            }
            KernelEvent::UfsLink => {
                has(&[EventField::Host, EventField::Opcode]) && (has(&[EventField::Step]) || has(&[EventField::Word]))
            }
            KernelEvent::ScsiStart | KernelEvent::ScsiRefused | KernelEvent::ScsiTimeout => {
                has(&[EventField::HostNumber, EventField::Unit, EventField::Opcode])
            }
            KernelEvent::ScsiDone => {
                has(&[EventField::HostNumber, EventField::Unit, EventField::Opcode, EventField::Status])
            }
            KernelEvent::SyncBegin(_) | KernelEvent::CommitBegin | KernelEvent::CommitEnd => has(&[EventField::Device]),
            KernelEvent::SyncEnd(_) => has(&[EventField::Device, EventField::Result]),
            KernelEvent::Commit => has(&[EventField::Device, EventField::Handles, EventField::JournalBlocks]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_known_by_the_kernels_names() {
        assert_eq!(KernelEvent::by_name(b"mmc_request_start"), Some(KernelEvent::MmcStart));
        assert_eq!(KernelEvent::by_name(b"f2fs_sync_file_exit"), Some(KernelEvent::SyncEnd("f2fs")));
        for name in ["request_start", "", "/mmc_request_start", "ext4_sync_file_enter2"] {
            assert_eq!(KernelEvent::by_name(name.as_bytes()), None, "{name}");
        }
    }
}
