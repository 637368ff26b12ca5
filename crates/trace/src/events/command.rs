//! Commands of a host controller to its device, as the MMC and UFS drivers report them. Source: the kernel's `include/trace/events/mmc.h` and
//! `ufs.h`, `drivers/mmc/core/core.c`, `drivers/ufs/core/ufshcd.c`; opcodes and arguments: JEDEC JESD84-B51, 6.10.4, and SBC-4.
//!
//! Commands of SCSI disks. Source: the kernel's `include/trace/events/scsi.h`; layout of commands: SBC-4.
//!
//! Also derives the address of a command on its disk, in sectors of 512 bytes.
//!
//! Events of UFS and SCSI contain the first block. UFS drivers of kernels up to 5.14 count in sectors, later ones in logical
//! blocks of 4 KiB. SCSI commands count in logical blocks of the disk, which have 512 bytes or 4 KiB. No event contains the unit;
//! it is derived from the addresses, see [`AddressUnitEvidence`].

use std::cmp::Ordering;
use std::io::Write;

use memchr::memmem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::opcodes::{self, SCSI_UNMAP};
use crate::{EventField, EventFieldValues, KernelEvent, Op, SECTOR_BYTES, fixed};

/// The purpose of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CommandKind {
    /// Reads data from the device.
    Read,
    /// Writes data to the device.
    Write,
    /// A flush of the cache: eMMC `CMD6` to `FLUSH_CACHE`, SCSI `SYNCHRONIZE CACHE`.
    Flush,
    /// Discard, trim or erase: eMMC `CMD35`, `CMD36` and `CMD38`, SD `CMD32`, `CMD33` and `CMD38`, SCSI `UNMAP`. Also `WRITE SAME`, because
    /// Linux discards with it on disks that prefer it, and writes zeroes.
    Discard,
    /// A status request (`CMD13`), with which the driver polls for the end of busy time.
    Status,
    /// Any other setting (`CMD6`): power class, background operations, partition, ...
    Switch,
    /// Sleep and awake: `CMD5`, SCSI `START STOP UNIT`.
    Sleep,
    /// Hibernation of a UFS link: `DME_HIBERNATE_ENTER`.
    Hibernate,
    /// Wake-up of a UFS link: `DME_HIBERNATE_EXIT`; the next command waits until it has ended.
    WakeUp,
    /// Anything else.
    #[default]
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
    /// The driver sent the command to the device.
    Start {
        /// Purpose of the command.
        kind: CommandKind,
        /// Number of bytes of the command's data.
        bytes: u64,
        /// The sectors that the command accesses.
        target: CommandTarget,
        /// Whether the command is an eMMC packed command, which contains several writes.
        packed: bool,
        /// Whether the command is an eMMC reliable write.
        reliable: bool,
    },
    /// The device has finished the command.
    Done {
        /// Whether the command, its data transfer, or one of its accompanying commands (such as `CMD12` or `CMD23`) failed.
        failed: bool,
        /// Whether the driver repeats the failed command.
        will_be_repeated: bool,
    },
}

/// The sectors that a command accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandTarget {
    /// The command accesses no sectors of the disk, or the event does not contain its address.
    Nowhere,
    /// Sectors of 512 bytes.
    Sectors {
        /// First sector.
        first: u64,
        /// Number of sectors; 0 if the event does not contain it.
        count: u64,
    },
    /// Sectors or logical blocks of the disk, depending on the kernel's version.
    Blocks {
        /// First sector or block.
        first: u64,
        /// Number of blocks; `None` if the event contains bytes instead.
        count: Option<u32>,
        /// Whether the event has the fields of newer kernels, in which addresses are in logical blocks.
        is_recent: bool,
    },
    /// Sets the first sector of an erase (`CMD35`).
    EraseFrom(u64),
    /// Sets the last sector of an erase (`CMD36`).
    EraseTo(u64),
    /// Erases the sectors that the previous commands set (`CMD38`).
    Erase(EraseKind),
    /// An erase with its sectors in one event.
    Erased {
        /// First sector.
        first: u64,
        /// Number of sectors.
        count: u64,
        /// Kind of the erase.
        erase: EraseKind,
    },
}

/// The kind of an erase, by the argument of `CMD38`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EraseKind {
    /// Whether copies of the data are erased too.
    pub secure: bool,
    /// Whether this is the second step of a secure trim. The first step has selected the sectors.
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
    /// Identifies the command from start to end; commands in progress have different ids.
    pub id: u64,
    /// The kind of event.
    pub step: CommandStep,
}

/// `MMC_DATA_WRITE` in `data_flags`.
const DATA_WRITE: i64 = 1 << 8;
/// Argument bit of `CMD23` (`SET_BLOCK_COUNT`): the next write is reliable.
const SBC_RELIABLE: i64 = 1 << 31;
/// Argument bit of `CMD23` (`SET_BLOCK_COUNT`): the next command is packed.
const SBC_PACKED: i64 = 1 << 30;
/// Position of the `EXT_CSD` index in the argument of `CMD6`, in bits.
const SWITCH_INDEX_SHIFT: u32 = 16;
/// `EXT_CSD` index of `FLUSH_CACHE`.
const FLUSH_CACHE: i64 = 32;
/// Argument bit of each secure erase (`MMC_SECURE_ERASE_ARG`, `MMC_SECURE_TRIM1_ARG`, `MMC_SECURE_TRIM2_ARG`).
const SECURE: i64 = 1 << 31;
/// Argument bit of the second step of a secure trim (`MMC_SECURE_TRIM2_ARG`).
const SECOND_STEP: i64 = 1 << 15;
/// `UFS_CMD_SEND` of `enum ufs_trace_str_t`; the other values are ends of commands.
const UFS_SEND: i64 = 0;
/// Id of the link command in progress; there is at most one. The id is larger than every tag of the queue.
const UIC_ID: u64 = 1 << 32;
/// Opcode in `enum uic_cmd_dme` of `ufshci.h`.
const UIC_HIBERNATE_ENTER: i64 = 0x17;
const UIC_HIBERNATE_EXIT: i64 = 0x18;

impl CommandEvent {
    /// The meaning of an event with these fields; `None` if it is not an event of a command.
    pub(super) fn read(event: KernelEvent, values: &EventFieldValues) -> Option<Self> {
        let host = fixed(values.text(EventField::Host));
        Some(match event {
            KernelEvent::MmcStart => Self { host, id: values.number(EventField::Request) as u64, step: mmc_start(values) },
            KernelEvent::MmcDone => {
                use EventField::{CommandError, CountError, DataError, StopError};
                let errors = [CommandError, StopError, CountError, DataError];
                let failed = errors.into_iter().any(|error| values.number(error) != 0);
                let step = CommandStep::Done { failed, will_be_repeated: failed && values.number(EventField::Retries) > 0 };
                Self { host, id: values.number(EventField::Request) as u64, step }
            }
            // These events contain neither the host controller nor a request id, so the address identifies the request.
            KernelEvent::MmcBlock { erase, begins } => Self {
                host: fixed(b"mmc"),
                id: values.number(EventField::Address) as u64 & 0xffff_ffff | u64::from(erase) << 32,
                step: if begins { mmc_block(erase, values) } else { DONE },
            },
            KernelEvent::Ufs => {
                let step = if ufs_begins(values) { ufs_start(values) } else { DONE };
                Self { host: fixed(ufs_host(values.text(EventField::Host))), id: values.number(EventField::Tag) as u64, step }
            }
            KernelEvent::UfsLink => {
                let step = if ufs_begins(values) { link_start(values) } else { DONE };
                Self { host: fixed(values.text(EventField::Host)), id: UIC_ID, step }
            }
            KernelEvent::ScsiStart => Self { host: scsi_host(values), id: scsi_id(values), step: scsi_start(values) },
            KernelEvent::ScsiRefused | KernelEvent::ScsiDone | KernelEvent::ScsiTimeout => {
                let will_be_repeated = event == KernelEvent::ScsiRefused;
                let failed = event != KernelEvent::ScsiDone || values.number(EventField::Status) != 0;
                let step = CommandStep::Done { failed, will_be_repeated };
                Self { host: scsi_host(values), id: scsi_id(values), step }
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
        // The event contains a word for the step: `send` or `send_req` at the start of the command, and `complete`, `complete_rsp` or
        // `dev_complete` at its end.
        memmem::find(values.text(EventField::Word), b"compl").is_none()
    }
}

const DONE: CommandStep = CommandStep::Done { failed: false, will_be_repeated: false };

fn mmc_start(values: &EventFieldValues) -> CommandStep {
    let number = |slot| values.number(slot);
    let bytes = (number(EventField::Blocks) as u64).saturating_mul(number(EventField::BlockBytes) as u64);
    let kind = match mmc_kind(number(EventField::Opcode), number(EventField::Argument), bytes) {
        // A request to the command queue engine has no opcode, so the data flags determine its kind.
        CommandKind::Other if number(EventField::Opcode) == 0 && bytes >= SECTOR_BYTES => {
            if number(EventField::DataFlags) & DATA_WRITE == 0 { CommandKind::Read } else { CommandKind::Write }
        }
        kind => kind,
    };
    let has_data = matches!(kind, CommandKind::Read | CommandKind::Write);
    let before = if has_data { number(EventField::CountArgument) } else { 0 };
    // Cards larger than 2 GB are addressed by sector, so the argument is a sector.
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
    // In an erase event, the opcode field contains the argument of the erase.
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
        // Commands that set the first and the last address of an erase.
        32 | 33 | 35 | 36 => CommandKind::Discard,
        _ => CommandKind::Other,
    }
}

/// The start of a UFS command. Its address is in sectors of 512 bytes in kernels up to 5.14, in logical blocks in later ones.
fn ufs_start(values: &EventFieldValues) -> CommandStep {
    let kind = scsi_kind(values.number(EventField::Opcode));
    // A command without data has the length -1. The field may be signed or unsigned.
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

pub(super) fn scsi_kind(opcode: i64) -> CommandKind {
    const START_STOP: u8 = 0x1b;
    let opcode = (opcode & 0xff) as u8;
    match opcodes::scsi(opcode) {
        Some(op) => kind_of(op),
        None if opcode == START_STOP => CommandKind::Sleep,
        None => CommandKind::Other,
    }
}

/// Reads the start of a link command. The opcode is in the low byte of the register. When a command ends, the register may contain any
/// opcode or none.
fn link_start(values: &EventFieldValues) -> CommandStep {
    let kind = match values.number(EventField::Opcode) & 0xff {
        UIC_HIBERNATE_ENTER => CommandKind::Hibernate,
        UIC_HIBERNATE_EXIT => CommandKind::WakeUp,
        _ => CommandKind::Other,
    };
    CommandStep::Start { kind, bytes: 0, target: CommandTarget::Nowhere, packed: false, reliable: false }
}

/// The name of a UFS host controller. Returns `ufs` if the event contains no name (kernel 6.12), or the name of a disk instead (`0:0:0:1`,
/// kernel 6.15 and later).
fn ufs_host(name: &[u8]) -> &[u8] {
    let is_disk = name.iter().all(|byte| byte.is_ascii_digit() || *byte == b':');
    if is_disk { b"ufs" } else { name }
}

/// Beginning of the host name in an event of a SCSI command; `SCSI_HOST:CHANNEL:TARGET:UNIT` follows.
pub(super) const SCSI_HOST: &[u8] = b"scsi ";
/// Bit that is set in command ids that are tags, to distinguish them from ids that are derived from the blocks of a command.
const TAG: u64 = 1 << 63;

/// The name of the disk of a command, truncated or padded with zeros.
pub(super) fn scsi_host(values: &EventFieldValues) -> [u8; 16] {
    let number = |slot| values.number(slot);
    let mut name = [0; 16];
    let [host, unit] = [number(EventField::HostNumber), number(EventField::Unit)];
    let [channel, target] = [number(EventField::Channel), number(EventField::Target)];
    // A name that is too long is truncated.
    let _ = write!(&mut name[..], "scsi {host}:{channel}:{target}:{unit}");
    name
}

/// The id of a command in progress: its tag, or before kernel 5.14 a number derived from its opcode and blocks.
pub(super) fn scsi_id(values: &EventFieldValues) -> u64 {
    let tag = values.number(EventField::Tag);
    if values.has(EventField::Tag) && tag >= 0 {
        return TAG | tag as u64;
    }
    let ScsiCommand { opcode, first, count } = ScsiCommand::of(values);
    (first << 24 ^ u64::from(count) << 8 ^ u64::from(opcode)) & !TAG
}

pub(super) fn scsi_start(values: &EventFieldValues) -> CommandStep {
    let ScsiCommand { opcode, first, count } = ScsiCommand::of(values);
    let kind = scsi_kind(i64::from(opcode));
    let target = match kind {
        CommandKind::Discard if opcode == SCSI_UNMAP => CommandTarget::Nowhere,
        CommandKind::Read | CommandKind::Write | CommandKind::Discard => {
            CommandTarget::Blocks { first, count: Some(count), is_recent: false }
        }
        _ => CommandTarget::Nowhere,
    };
    CommandStep::Start { kind, bytes: 0, target, packed: false, reliable: false }
}

/// Opcode, first block and number of blocks.
struct ScsiCommand {
    opcode: u8,
    first: u64,
    count: u32,
}

impl ScsiCommand {
    /// Decodes the command descriptor block if the event contains it; otherwise takes the fields of the event.
    fn of(values: &EventFieldValues) -> Self {
        let bytes = values.text(EventField::Cdb);
        let number = |from: usize, to: usize| {
            bytes.get(from..to).unwrap_or_default().iter().fold(0, |all, byte| all << 8 | u64::from(*byte))
        };
        let opcode = (values.number(EventField::Opcode) & 0xff) as u8;
        let (first, count) = match opcode {
            _ if bytes.is_empty() => (values.number(EventField::Lba) as u64, values.number(EventField::Blocks) as u64),
            // Opcodes are grouped by command length: 6, 10, 16 and 12 bytes. In commands of 6 bytes, a length of 0 means 256 blocks.
            0x00..=0x1f => (number(1, 4) & 0x1f_ffff, (number(4, 5) + 255) % 256 + 1),
            0x20..=0x5f => (number(2, 6), number(7, 9)),
            0x80..=0x9f => (number(2, 10), number(10, 14)),
            0xa0..=0xbf => (number(2, 6), number(6, 10)),
            _ => (0, 0),
        };
        Self { opcode, first, count: u32::try_from(count).unwrap_or(0) }
    }
}

/// Size in bytes of the logical blocks of UFS, and of SCSI disks whose blocks are not 512 bytes long.
const LONG_BLOCK: u64 = 4096;
const SECTORS_OF_LONG: u64 = LONG_BLOCK / SECTOR_BYTES;

/// The blocks of a command, as reported by its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CommandBlocks {
    pub(super) first: u64,
    /// Number of blocks; `None` if the event states its size in bytes instead.
    pub(super) count: Option<u32>,
    /// Number of bytes, if the event contains it.
    pub(super) bytes: u64,
    /// Whether the event has the fields of newer kernels, in which addresses are in logical blocks.
    pub(super) is_recent: bool,
}

/// Evidence for the unit of addresses, from the commands of a host.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AddressUnitEvidence {
    commands: u64,
    /// Number of commands whose address, and number of blocks if it is known, are multiples of eight.
    in_eights: u64,
    /// Number of commands that begin at the end of the previous command, if addresses are taken as sectors.
    follow_as_sectors: u64,
    /// Number of commands that begin at the end of the previous command, if addresses are taken as blocks of 4 KiB.
    follow_as_blocks: u64,
    /// End of the last command, if addresses are taken as sectors.
    end_in_sectors: u64,
    /// End of the last command, under the assumption that addresses count blocks of 4 KiB.
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
        let eights = first.is_multiple_of(SECTORS_OF_LONG) && count.is_none_or(|count| u64::from(count) % SECTORS_OF_LONG == 0);
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
    /// UFS events contain the length in bytes, and the disk has blocks of 4 KiB. Addresses in sectors are then multiples of eight, so any
    /// other address shows that the unit is 8. Without such an address, the unit is the one with which more commands continue the previous
    /// command. If both units are equal, the form of the event decides.
    ///
    /// SCSI events contain the length in blocks. Most requests of a file system are multiples of 4 KiB. The unit is 8 if at most half of
    /// the addresses are multiples of eight.
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

    #[test]
    fn commands_of_every_length_tell_first_block_and_number() {
        let blocks = |bytes: &[u8]| {
            let mut values = EventFieldValues::default();
            values.set(EventField::Opcode, i64::from(bytes[0]));
            values.set_text(EventField::Cdb, bytes);
            match scsi_start(&values) {
                CommandStep::Start { kind, target: CommandTarget::Blocks { first, count, .. }, .. } => {
                    Some((kind, first, count?))
                }
                _ => None,
            }
        };
        assert_eq!(blocks(&[0x08, 0x1f, 0, 2, 0, 0]), Some((CommandKind::Read, 0x1f_0002, 256)));
        assert_eq!(blocks(&[0x2a, 0, 0, 0, 8, 0, 0, 0, 8, 0]), Some((CommandKind::Write, 2048, 8)));
        assert_eq!(blocks(&[0xa8, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0]), Some((CommandKind::Read, 2048, 256)));
        let long = [0x8a, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0];
        assert_eq!(blocks(&long), Some((CommandKind::Write, 1 << 32, 8)));
        assert_eq!((blocks(&[0x42, 0]), blocks(&[0x35, 0])), (None, None));
        assert_eq!(blocks(&[0x2a, 0]), Some((CommandKind::Write, 0, 0)));
    }

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
        // The commands have 512 KiB each, so the next address is 128 higher in blocks of 4 KiB, or 1,024 higher in sectors.
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
