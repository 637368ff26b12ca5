//! The kernel events that are read in addition to those of the block layer.
//!
//! Events of file systems: waits of tasks for durability of a file, and commits of a journal. Source: the kernel's
//! `include/trace/events/ext4.h`, `f2fs.h` and `jbd2.h`.

use crate::CommandEvent;

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
        /// Whether the event is the start of the command.
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
    /// `ext4_sync_file_enter`, or the corresponding event of this file system.
    SyncBegin(&'static str),
    /// `ext4_sync_file_exit`, or the corresponding event of this file system.
    SyncEnd(&'static str),
    /// `jbd2_start_commit`.
    CommitBegin,
    /// `jbd2_end_commit`.
    CommitEnd,
    /// `jbd2_run_stats`: the counts of a commit.
    Commit,
}

impl KernelEvent {
    /// All events, each with its directory in tracefs, relative to `events/`.
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

    /// The event with this name, which does not include its folder; `None` if there is none.
    pub fn by_name(name: &[u8]) -> Option<KernelEvent> {
        let has_name = |path: &str| path.as_bytes().strip_suffix(name).is_some_and(|rest| rest.ends_with(b"/"));
        KernelEvent::ALL.into_iter().find(|(path, _)| has_name(path)).map(|(_, event)| event)
    }

    /// Whether the event belongs to SCSI commands, which are redundant if block events were recorded.
    pub fn is_scsi(self) -> bool {
        use KernelEvent::{ScsiDone, ScsiRefused, ScsiStart, ScsiTimeout};
        matches!(self, ScsiStart | ScsiRefused | ScsiDone | ScsiTimeout)
    }

    /// Whether the event has all fields that are needed to decode it. Kernels of vendors have events of the same name with other fields.
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
            KernelEvent::ScsiDone => has(&[EventField::HostNumber, EventField::Unit, EventField::Opcode, EventField::Status]),
            KernelEvent::SyncBegin(_) | KernelEvent::CommitBegin | KernelEvent::CommitEnd => has(&[EventField::Device]),
            KernelEvent::SyncEnd(_) => has(&[EventField::Device, EventField::Result]),
            KernelEvent::Commit => has(&[EventField::Device, EventField::Handles, EventField::JournalBlocks]),
        }
    }
}

macro_rules! slots {
    ($($(#[$doc:meta])* $slot:ident: $($name:literal)|+,)*) => {
        /// The fields of events whose values are used.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum EventField {
            $($(#[$doc])* $slot,)*
        }

        impl EventField {
            const COUNT: usize = [$(EventField::$slot),*].len();

            /// The field that the kernel gives this name; `None` for fields that are not used.
            pub fn by_name(name: &[u8]) -> Option<EventField> {
                $($(if name == $name.as_bytes() { return Some(EventField::$slot); })+)*
                None
            }
        }
    };
}

slots! {
    /// Operation and flags as letters, such as `WFS` (the kernel's `rwbs`); a text.
    Letters: "rwbs",
    /// Name of the task; a text.
    Task: "comm",
    /// Name of the host controller; a text.
    Host: "name" | "dev_name",
    /// Start or end of a UFS command, as a word; a text.
    Word: "str",
    /// The bytes of a SCSI command; a text.
    Cdb: "cmnd",
    /// Device number in the kernel's form (major << 20 | minor).
    Device: "dev",
    /// First sector.
    Sector: "sector",
    /// Length in sectors.
    Sectors: "nr_sector",
    /// First sector of the second part of a split.
    SecondSector: "new_sector",
    /// Opcode of the MMC or SCSI command.
    Opcode: "cmd_opcode" | "opcode" | "cmd",
    /// Argument of the MMC command.
    Argument: "cmd_arg",
    /// Argument of the `CMD23` that precedes the command.
    CountArgument: "sbc_arg",
    /// First sector of the command; missing before kernel 4.16.
    Address: "blk_addr" | "addr",
    /// Number of blocks of data.
    Blocks: "blocks" | "size",
    /// Size of a block in bytes.
    BlockBytes: "blksz",
    /// Direction of the data.
    DataFlags: "data_flags",
    /// Pointer that identifies the request.
    Request: "mrq",
    /// Number of times that the command may still be repeated after failures.
    Retries: "cmd_retries",
    /// Error of the command.
    CommandError: "cmd_err",
    /// Error of the command that ends the transfer.
    StopError: "stop_err",
    /// Error of the command that sets the number of blocks (`CMD23`).
    CountError: "sbc_err",
    /// Error of the data transfer of the command.
    DataError: "data_err",
    /// Slot in the controller's queue.
    Tag: "tag" | "driver_tag",
    /// First logical block of a SCSI command.
    Lba: "lba",
    /// Group number of a UFS command. Like addresses in logical blocks, it exists since kernel 5.15.
    Group: "group_id",
    /// Number of a SCSI host.
    HostNumber: "host_no",
    /// Channel of a SCSI disk.
    Channel: "channel",
    /// Number of a SCSI target.
    Target: "id",
    /// Logical unit of a SCSI target.
    Unit: "lun",
    /// Result of a SCSI command: its status in the low byte, the status of the host above it.
    Status: "result",
    /// Length of the data of a UFS command in bytes.
    Bytes: "transfer_len" | "affected_bytes",
    /// Start or end of a UFS command, as a number (since kernel 5.12).
    Step: "str_t",
    /// The result of a system call.
    Result: "ret",
    /// Number of metadata changes in a transaction.
    Handles: "handle_count",
    /// Number of blocks that a transaction wrote to the journal.
    JournalBlocks: "blocks_logged",
}

impl EventField {
    /// Whether the value of the field is a text, not a number.
    #[inline]
    pub fn is_text(self) -> bool {
        (self as usize) < TEXTS
    }
}

/// Number of fields whose values are texts; they are the first ones.
const TEXTS: usize = EventField::Cdb as usize + 1;

/// The values of the fields of an event.
#[derive(Clone, Copy, Debug)]
pub struct EventFieldValues<'a> {
    numbers: [i64; EventField::COUNT],
    texts: [&'a [u8]; TEXTS],
    present_fields: u64,
}

impl Default for EventFieldValues<'_> {
    #[inline]
    fn default() -> Self {
        Self { numbers: [0; EventField::COUNT], texts: [&[]; TEXTS], present_fields: 0 }
    }
}

impl<'a> EventFieldValues<'a> {
    /// Stores the value of a numeric field.
    #[inline]
    pub fn set(&mut self, slot: EventField, number: i64) {
        self.numbers[slot as usize] = number;
        self.present_fields |= 1 << slot as u64;
    }

    /// Stores the value of a text field; does nothing for a numeric field.
    #[inline]
    pub fn set_text(&mut self, slot: EventField, text: &'a [u8]) {
        if let Some(place) = self.texts.get_mut(slot as usize) {
            *place = text;
            self.present_fields |= 1 << slot as u64;
        }
    }

    /// Whether the event has this field.
    #[inline]
    pub fn has(&self, slot: EventField) -> bool {
        self.present_fields & 1 << slot as u64 != 0
    }

    /// The value of a numeric field; 0 if the event does not have it.
    #[inline]
    pub fn number(&self, slot: EventField) -> i64 {
        self.numbers[slot as usize]
    }

    /// The value of a text field; empty if the event does not have it.
    #[inline]
    pub fn text(&self, slot: EventField) -> &'a [u8] {
        self.texts.get(slot as usize).copied().unwrap_or_default()
    }
}

/// The journal of ext4.
const JBD2: &str = "jbd2";

/// The step that an event of a file system marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsStep {
    /// `fsync` or `fdatasync` begins.
    SyncBegin,
    /// `fsync` or `fdatasync` ends.
    SyncEnd {
        /// Whether the call returned an error.
        failed: bool,
    },
    /// The thread of a journal begins to commit a transaction.
    CommitBegin,
    /// The thread has committed the transaction.
    CommitEnd,
    /// The counts of a transaction that is committed.
    Commit {
        /// Number of metadata changes (handles) in the transaction.
        handles: u64,
        /// Number of blocks written to the journal, including descriptors and the commit block.
        blocks: u64,
    },
}

/// An event of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsEvent {
    /// `ext4`, `f2fs` or `jbd2`.
    pub system: &'static str,
    /// The mounted device (a partition or a mapped device), as the kernel's device number.
    pub device: u32,
    /// Id of the task that was running.
    pub pid: i32,
    /// The kind of event.
    pub step: FsStep,
}

impl FsEvent {
    /// The meaning of an event with these fields; `None` if it is not an event of a file system.
    pub(super) fn read(event: KernelEvent, pid: i32, values: &EventFieldValues) -> Option<Self> {
        let (system, step) = match event {
            KernelEvent::SyncBegin(system) => (system, FsStep::SyncBegin),
            KernelEvent::SyncEnd(system) => (system, FsStep::SyncEnd { failed: values.number(EventField::Result) < 0 }),
            KernelEvent::CommitBegin => (JBD2, FsStep::CommitBegin),
            KernelEvent::CommitEnd => (JBD2, FsStep::CommitEnd),
            KernelEvent::Commit => {
                let (handles, blocks) = (values.number(EventField::Handles), values.number(EventField::JournalBlocks));
                (JBD2, FsStep::Commit { handles: handles as u64, blocks: blocks as u64 })
            }
            _ => return None,
        };
        Some(Self { system, device: values.number(EventField::Device) as u32, pid, step })
    }
}

/// An event of a driver below the block layer, or of a file system above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodedEvent {
    /// An event of the driver.
    Command(CommandEvent),
    /// An event of a file system.
    File(FsEvent),
}

impl DecodedEvent {
    /// Decodes the fields of an event that the task `pid` caused; `None` if fields are missing.
    pub fn read(event: KernelEvent, pid: i32, values: &EventFieldValues) -> Option<Self> {
        if !event.is_complete_in(values) {
            return None;
        }
        CommandEvent::read(event, values).map(Self::Command).or_else(|| FsEvent::read(event, pid, values).map(Self::File))
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

    #[test]
    fn fields_are_known_by_the_kernels_names() {
        assert_eq!(EventField::by_name(b"affected_bytes"), Some(EventField::Bytes));
        assert_eq!(EventField::by_name(b"cmd_flags"), None);
        const { assert!(EventField::COUNT <= u64::BITS as usize) };
    }
}
