//! Commands that a host controller gives its device, as the MMC and UFS drivers report them.

use serde::{Deserialize, Serialize};

/// What a command is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandKind {
    /// Data from the device.
    Read,
    /// Data to the device.
    Write,
    /// The cache is written back: eMMC `CMD6` to `FLUSH_CACHE`, SCSI `SYNCHRONIZE CACHE`.
    Flush,
    /// Discard, trim or erase: eMMC `CMD35`, `CMD36` and `CMD38`, SD `CMD32`, `CMD33` and `CMD38`, SCSI `UNMAP`.
    Discard,
    /// The device is asked for its status (`CMD13`), which is how its busy time is polled.
    Status,
    /// Any other setting (`CMD6`): power class, background operations, partition, ...
    Switch,
    /// Sleep and awake: `CMD5`, SCSI `START STOP UNIT`.
    Sleep,
    /// Anything else.
    Other,
}

impl CommandKind {
    /// All kinds, in the order of their codes.
    pub const ALL: [CommandKind; 8] = [
        CommandKind::Read,
        CommandKind::Write,
        CommandKind::Flush,
        CommandKind::Discard,
        CommandKind::Status,
        CommandKind::Switch,
        CommandKind::Sleep,
        CommandKind::Other,
    ];
}

/// The beginning or the end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandStep {
    /// It was given to the device.
    Start {
        /// What it is for.
        kind: CommandKind,
        /// Its data.
        bytes: u64,
        /// Where its data begins, of a read or write whose driver tells that in sectors.
        sector: Option<u64>,
        /// Whether it is an eMMC packed command: several writes in one.
        packed: bool,
        /// Whether it is an eMMC reliable write.
        reliable: bool,
    },
    /// The device has finished it.
    Done {
        /// Whether the command, its data, or the commands around it failed.
        failed: bool,
        /// Whether the driver gives it once more after this failure.
        again: bool,
    },
}

/// A decoded record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandEvent {
    /// Name of the host controller (`mmc0`, `1d84000.ufshc`), cut or filled with zeros.
    pub host: [u8; 16],
    /// The disk behind it, as the kernel's `dev_t`; 0 where the event does not tell.
    pub device: u32,
    /// The same from start to end, and of no two commands at a time.
    pub id: u64,
    /// What happened.
    pub step: CommandStep,
}
