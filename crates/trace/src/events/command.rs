//! Commands that a host controller sends to its device, as the MMC and UFS drivers report them. Source: the kernel's
//! `include/trace/events/mmc.h` and `ufs.h`, `drivers/mmc/core/core.c`, `drivers/ufs/core/ufshcd.c`; opcodes and arguments:
//! JEDEC JESD84-B51, 6.10.4, and SBC-4.

use memchr::memmem;
use serde::{Deserialize, Serialize};

use super::scsi;
use crate::opcodes;
use crate::{EventField, EventFieldValues, KernelEvent, Op, SECTOR_BYTES, fixed};

/// The purpose of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandKind {
    /// Data from the device.
    Read,
    /// Data to the device.
    Write,
    /// A flush of the cache: eMMC `CMD6` to `FLUSH_CACHE`, SCSI `SYNCHRONIZE CACHE`.
    Flush,
    /// Discard, trim or erase: eMMC `CMD35`, `CMD36` and `CMD38`, SD `CMD32`, `CMD33` and `CMD38`, SCSI `UNMAP`, and `WRITE
    /// SAME`, which Linux uses to write zeroes, and to discard on disks that prefer it.
    Discard,
    /// A status request (`CMD13`), with which the driver polls for the end of busy time.
    Status,
    /// Any other setting (`CMD6`): power class, background operations, partition, ...
    Switch,
    /// Sleep and awake: `CMD5`, SCSI `START STOP UNIT`.
    Sleep,
    /// Hibernation of a UFS link: `DME_HIBERNATE_ENTER`.
    Hibernate,
    /// Wake-up of a UFS link: `DME_HIBERNATE_EXIT`; the next command waits for its end.
    WakeUp,
    /// Anything else.
    Other,
}

impl CommandKind {
    /// All kinds, in the order of their codes.
    pub const ALL: [CommandKind; 10] = [
        CommandKind::Read,
        CommandKind::Write,
        CommandKind::Flush,
        CommandKind::Discard,
        CommandKind::Status,
        CommandKind::Switch,
        CommandKind::Sleep,
        CommandKind::Hibernate,
        CommandKind::WakeUp,
        CommandKind::Other,
    ];

    /// The name in JSON and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            CommandKind::Read => "read",
            CommandKind::Write => "write",
            CommandKind::Flush => "flush",
            CommandKind::Discard => "discard",
            CommandKind::Status => "status",
            CommandKind::Switch => "switch",
            CommandKind::Sleep => "sleep",
            CommandKind::Hibernate => "hibernate",
            CommandKind::WakeUp => "wake_up",
            CommandKind::Other => "other",
        }
    }
}

/// The start or end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandStep {
    /// The command was given to the device.
    Start {
        /// Purpose of the command.
        kind: CommandKind,
        /// Bytes of its data.
        bytes: u64,
        /// The sectors of its data.
        target: CommandTarget,
        /// Whether it is an eMMC packed command: several writes in one.
        packed: bool,
        /// Whether it is an eMMC reliable write.
        reliable: bool,
    },
    /// The device has finished the command.
    Done {
        /// Whether the command, its data, or one of the commands around it failed.
        failed: bool,
        /// Whether the driver repeats it after this failure.
        will_be_repeated: bool,
    },
}

/// The sectors that a command is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandTarget {
    /// None: it has no data of the disk, or its event does not state it.
    Nowhere,
    /// Sectors of 512 bytes.
    Sectors {
        /// The first.
        first: u64,
        /// Their number; 0 if the event does not state it.
        count: u64,
    },
    /// Sectors or logical blocks of the disk, depending on the kernel's version.
    Blocks {
        /// The first.
        first: u64,
        /// Their number, if the event states blocks and not bytes.
        count: Option<u32>,
        /// Whether the event has fields of kernels that use logical blocks.
        is_recent: bool,
    },
    /// The first sector of the erase that the next commands complete (`CMD35`).
    EraseFrom(u64),
    /// The last sector of this erase (`CMD36`).
    EraseTo(u64),
    /// The erase of the sectors that the previous commands stated (`CMD38`).
    Erase(EraseKind),
    /// An erase of sectors in one event.
    Erased {
        /// The first.
        first: u64,
        /// Their number.
        count: u64,
        /// Its kind.
        erase: EraseKind,
    },
}

/// The kind of an erase, by the argument of `CMD38`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EraseKind {
    /// Whether copies of the data are erased too.
    pub secure: bool,
    /// Whether it is the second step of a secure trim, whose first step stated the sectors.
    pub second_step: bool,
}

impl EraseKind {
    fn of_argument(argument: i64) -> Self {
        Self { secure: argument & SECURE != 0, second_step: argument & SECOND_STEP != 0 }
    }
}

impl CommandTarget {
    /// The first sector, if the event reports sectors; otherwise `None`.
    pub fn sector(self) -> Option<u64> {
        if let CommandTarget::Sectors { first, .. } = self { Some(first) } else { None }
    }
}

/// The start or end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandEvent {
    /// Name of the host controller (`mmc0`, `1d84000.ufshc`), truncated or padded with zeros.
    pub host: [u8; 16],
    /// Identifies the command from start to end; no two commands in progress have the same.
    pub id: u64,
    /// The kind of event.
    pub step: CommandStep,
}

/// `MMC_DATA_WRITE` in `data_flags`.
const DATA_WRITE: i64 = 1 << 8;
/// Argument of `CMD23` (`SET_BLOCK_COUNT`), which is sent before a read or write.
const SBC_RELIABLE: i64 = 1 << 31;
const SBC_PACKED: i64 = 1 << 30;
/// Position of the `EXT_CSD` index in the argument of `CMD6`, and the index of `FLUSH_CACHE`.
const SWITCH_INDEX_SHIFT: u32 = 16;
const FLUSH_CACHE: i64 = 32;
/// Arguments of an erase (`MMC_SECURE_ERASE_ARG`, `MMC_SECURE_TRIM1_ARG`, `MMC_SECURE_TRIM2_ARG`).
const SECURE: i64 = 1 << 31;
const SECOND_STEP: i64 = 1 << 15;
/// `UFS_CMD_SEND` of `enum ufs_trace_str_t`; the other values are ends of commands.
const UFS_SEND: i64 = 0;
/// Identifies the command of the link, of which there is one at a time; larger than any tag of the queue. Opcodes: `enum
/// uic_cmd_dme` of `ufshci.h`.
const UIC_ID: u64 = 1 << 32;
const UIC_HIBERNATE_ENTER: i64 = 0x17;
const UIC_HIBERNATE_EXIT: i64 = 0x18;

impl CommandEvent {
    /// The meaning of an event with these fields; `None` if it does not concern a command.
    pub(super) fn read(event: KernelEvent, values: &EventFieldValues) -> Option<Self> {
        let host = fixed(values.text(EventField::Host));
        Some(match event {
            KernelEvent::MmcStart => {
                Self { host, id: values.number(EventField::Request) as u64, step: mmc_start(values) }
            }
            KernelEvent::MmcDone => {
                use EventField::{CommandError, CountError, DataError, StopError};
                let errors = [CommandError, StopError, CountError, DataError];
                let failed = errors.into_iter().any(|error| values.number(error) != 0);
                let step =
                    CommandStep::Done { failed, will_be_repeated: failed && values.number(EventField::Retries) > 0 };
                Self { host, id: values.number(EventField::Request) as u64, step }
            }
            // These events name neither the host nor the request.
            KernelEvent::MmcBlock { erase, begins } => Self {
                host: fixed(b"mmc"),
                id: values.number(EventField::Address) as u64 & 0xffff_ffff | u64::from(erase) << 32,
                step: if begins { mmc_block(erase, values) } else { DONE },
            },
            KernelEvent::Ufs => {
                let step = if ufs_begins(values) { ufs_start(values) } else { DONE };
                Self {
                    host: fixed(ufs_host(values.text(EventField::Host))),
                    id: values.number(EventField::Tag) as u64,
                    step,
                }
            }
            KernelEvent::UfsLink => {
                let step = if ufs_begins(values) { link_start(values) } else { DONE };
                Self { host: fixed(values.text(EventField::Host)), id: UIC_ID, step }
            }
            KernelEvent::ScsiStart => {
                Self { host: scsi::host(values), id: scsi::id(values), step: scsi::start(values) }
            }
            KernelEvent::ScsiRefused | KernelEvent::ScsiDone | KernelEvent::ScsiTimeout => {
                let again = event == KernelEvent::ScsiRefused;
                let failed = event != KernelEvent::ScsiDone || values.number(EventField::Status) != 0;
                let step = CommandStep::Done { failed, will_be_repeated: again };
                Self { host: scsi::host(values), id: scsi::id(values), step }
            }
            KernelEvent::SyncBegin(_)
            | KernelEvent::SyncEnd(_)
            | KernelEvent::CommitBegin
            | KernelEvent::CommitEnd
            | KernelEvent::Commit => return None,
        })
    }
}

fn ufs_begins(values: &EventFieldValues) -> bool {
    if values.has(EventField::Step) {
        values.number(EventField::Step) == UFS_SEND
    } else {
        // The word is `send` or `send_req` at the start, and `complete`, `complete_rsp` or `dev_complete` at the end.
        memmem::find(values.text(EventField::Word), b"compl").is_none()
    }
}

/// The end of a command whose event has no field for errors.
const DONE: CommandStep = CommandStep::Done { failed: false, will_be_repeated: false };

fn mmc_start(values: &EventFieldValues) -> CommandStep {
    let number = |slot| values.number(slot);
    let bytes = (number(EventField::Blocks) as u64).saturating_mul(number(EventField::BlockBytes) as u64);
    let kind = match mmc_kind(number(EventField::Opcode), number(EventField::Argument), bytes) {
        // A request to the command queue engine has no opcode.
        CommandKind::Other if number(EventField::Opcode) == 0 && bytes >= SECTOR_BYTES => {
            if number(EventField::DataFlags) & DATA_WRITE == 0 { CommandKind::Read } else { CommandKind::Write }
        }
        kind => kind,
    };
    let has_data = matches!(kind, CommandKind::Read | CommandKind::Write);
    let before = if has_data { number(EventField::CountArgument) } else { 0 };
    // Cards of more than 2 GB are addressed by sector, and so is the argument.
    let argument = number(EventField::Argument) as u64 & 0xffff_ffff;
    let target = match number(EventField::Opcode) {
        32 | 35 => CommandTarget::EraseFrom(argument),
        33 | 36 => CommandTarget::EraseTo(argument),
        38 => CommandTarget::Erase(EraseKind::of_argument(number(EventField::Argument))),
        _ if has_data => {
            let first = if values.has(EventField::Address) { number(EventField::Address) as u64 } else { argument };
            CommandTarget::Sectors { first, count: bytes / SECTOR_BYTES }
        }
        _ => CommandTarget::Nowhere,
    };
    let (packed, reliable) = (before & SBC_PACKED != 0, before & SBC_RELIABLE != 0);
    CommandStep::Start { kind, bytes, target, packed, reliable }
}

fn mmc_block(erase: bool, values: &EventFieldValues) -> CommandStep {
    let (first, count) = (values.number(EventField::Address) as u64, values.number(EventField::Blocks) as u64);
    let bytes = count.saturating_mul(SECTOR_BYTES);
    let kind = if erase { CommandKind::Discard } else { mmc_kind(values.number(EventField::Opcode), 0, bytes) };
    let has_data = matches!(kind, CommandKind::Read | CommandKind::Write);
    // In an erase, the argument of the erase is in the place of the opcode.
    let target = match values.number(EventField::Opcode) {
        argument if erase => CommandTarget::Erased { first, count, erase: EraseKind::of_argument(argument) },
        _ if has_data => CommandTarget::Sectors { first, count },
        _ => CommandTarget::Nowhere,
    };
    let bytes = if has_data { bytes } else { 0 };
    CommandStep::Start { kind, bytes, target, packed: false, reliable: false }
}

/// The kind of a command that reads, writes, flushes or discards.
fn kind_of(op: Op) -> CommandKind {
    match op {
        Op::Read => CommandKind::Read,
        Op::Write => CommandKind::Write,
        Op::Flush => CommandKind::Flush,
        Op::Discard | Op::SecureErase => CommandKind::Discard,
    }
}

fn mmc_kind(opcode: i64, argument: i64, bytes: u64) -> CommandKind {
    if let Some(op) = u8::try_from(opcode).ok().and_then(opcodes::mmc) {
        return kind_of(op);
    }
    match opcode {
        6 if bytes == 0 && argument >> SWITCH_INDEX_SHIFT & 0xff == FLUSH_CACHE => CommandKind::Flush,
        6 => CommandKind::Switch,
        5 => CommandKind::Sleep,
        13 if bytes == 0 => CommandKind::Status,
        // The first and the last block of an erase.
        32 | 33 | 35 | 36 => CommandKind::Discard,
        _ => CommandKind::Other,
    }
}

/// The start of a UFS command. Its address counts sectors of 512 bytes in kernels up to 5.14, and logical blocks in later ones.
fn ufs_start(values: &EventFieldValues) -> CommandStep {
    let kind = scsi_kind(values.number(EventField::Opcode));
    // -1 if the command has no data, in a signed or unsigned field.
    let bytes = u32::try_from(values.number(EventField::Bytes)).ok().filter(|bytes| *bytes != u32::MAX).unwrap_or(0);
    let has_place = matches!(kind, CommandKind::Read | CommandKind::Write | CommandKind::Discard);
    let target = if has_place && values.has(EventField::Lba) {
        let is_recent = values.has(EventField::Group);
        CommandTarget::Blocks { first: values.number(EventField::Lba) as u64, count: None, is_recent }
    } else {
        CommandTarget::Nowhere
    };
    CommandStep::Start { kind, bytes: u64::from(bytes), target, packed: false, reliable: false }
}

/// The kind of a command, from its SCSI opcode.
pub(super) fn scsi_kind(opcode: i64) -> CommandKind {
    /// START STOP UNIT.
    const START_STOP: u8 = 0x1b;
    let opcode = (opcode & 0xff) as u8;
    match opcodes::scsi(opcode) {
        Some(op) => kind_of(op),
        None if opcode == START_STOP => CommandKind::Sleep,
        None => CommandKind::Other,
    }
}

/// The start of a command of the link. The opcode is in the low byte of the register. An end states the register at that time,
/// with any opcode or none.
fn link_start(values: &EventFieldValues) -> CommandStep {
    let kind = match values.number(EventField::Opcode) & 0xff {
        UIC_HIBERNATE_ENTER => CommandKind::Hibernate,
        UIC_HIBERNATE_EXIT => CommandKind::WakeUp,
        _ => CommandKind::Other,
    };
    CommandStep::Start { kind, bytes: 0, target: CommandTarget::Nowhere, packed: false, reliable: false }
}

/// The name of a UFS host; `ufs` if the event does not name it. Kernels from 6.15 on name the disk (`0:0:0:1`), 6.12 nothing;
/// tags are those of the controller.
fn ufs_host(name: &[u8]) -> &[u8] {
    let is_disk = name.iter().all(|byte| byte.is_ascii_digit() || *byte == b':');
    if is_disk { b"ufs" } else { name }
}
