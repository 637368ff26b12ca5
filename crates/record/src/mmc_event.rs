//! Records of the MMC core: a command goes to the card, and is done. Source: the kernel's
//! `include/trace/events/mmc.h` and `drivers/mmc/core/core.c`; opcodes and arguments: JEDEC JESD84-B51, 6.10.4.

use std::collections::BTreeMap;

use emmclab_trace::{Result, SECTOR_BYTES};

use crate::block_event::fixed;
use crate::byte_order::ByteOrder;
use crate::command_event::{CommandEvent, CommandKind, CommandStep};
use crate::disks::Disks;
use crate::event_format::{EventFormat, Field};

/// The events that are recorded.
pub(crate) const EVENTS: [&str; 2] = ["mmc/mmc_request_start", "mmc/mmc_request_done"];

/// `MMC_DATA_WRITE` in `data_flags`.
const DATA_WRITE: i64 = 1 << 8;
/// Argument of `CMD23` (`SET_BLOCK_COUNT`), which goes before a read or write.
const SBC_RELIABLE: i64 = 1 << 31;
const SBC_PACKED: i64 = 1 << 30;
/// The byte of the extended register that `CMD6` writes, and its flush.
const SWITCH_INDEX_SHIFT: u32 = 16;
const FLUSH_CACHE: i64 = 32;

/// Decodes `mmc_request_start` and `mmc_request_done`.
#[derive(Clone, Debug)]
pub(crate) struct MmcDecoder {
    name: Field,
    request: Field,
    step: Step,
    /// `dev_t` of the disk of each host (`mmc0`).
    disks: BTreeMap<Vec<u8>, u32>,
}

#[derive(Clone, Debug)]
enum Step {
    Start(Box<Start>),
    Done { errors: Vec<Field>, retries: Option<Field> },
}

#[derive(Clone, Debug)]
struct Start {
    opcode: Field,
    argument: Field,
    /// Kernels before 4.16 have none.
    address: Option<Field>,
    count_argument: Option<Field>,
    blocks: Field,
    block_bytes: Field,
    data_flags: Field,
}

impl MmcDecoder {
    /// Finds the fields in this kernel's format. The event names the host; disk `mmcblkN` is that of host `mmcN`.
    pub(crate) fn new(format: &EventFormat, disks: &Disks) -> Result<Self> {
        let required = |name| format.required(name).cloned();
        let optional = |name| format.field(name).cloned();
        let hosts = disks.iter().filter_map(|disk| {
            let number = disk.name.strip_prefix("mmcblk")?;
            let whole = number.bytes().all(|byte| byte.is_ascii_digit());
            whole.then(|| (format!("mmc{number}").into_bytes(), disk.device))
        });
        let step = if format.name == "mmc_request_done" {
            let errors = ["cmd_err", "stop_err", "sbc_err", "data_err"];
            Step::Done {
                errors: errors.into_iter().filter_map(optional).collect(),
                retries: optional("cmd_retries"),
            }
        } else {
            Step::Start(Box::new(Start {
                opcode: required("cmd_opcode")?,
                argument: required("cmd_arg")?,
                address: optional("blk_addr"),
                count_argument: optional("sbc_arg"),
                blocks: required("blocks")?,
                block_bytes: required("blksz")?,
                data_flags: required("data_flags")?,
            }))
        };
        Ok(Self { name: required("name")?, request: required("mrq")?, step, disks: hosts.collect() })
    }

    /// The event; `None` where the record is too short for its format.
    #[inline]
    pub(crate) fn decode(&self, order: ByteOrder, record: &[u8]) -> Option<CommandEvent> {
        let number = |field: &Field| field.number(order, record);
        let host = self.name.text(order, record)?;
        let step = match &self.step {
            Step::Start(start) => start.decode(order, record)?,
            Step::Done { errors, retries } => {
                let mut failed = false;
                for error in errors {
                    failed |= number(error)? != 0;
                }
                let again = failed && retries.as_ref().is_some_and(|retries| number(retries) > Some(0));
                CommandStep::Done { failed, again }
            }
        };
        Some(CommandEvent {
            host: fixed(host),
            device: self.disks.get(host).copied().unwrap_or(0),
            id: number(&self.request)? as u64,
            step,
        })
    }
}

impl Start {
    #[inline]
    fn decode(&self, order: ByteOrder, record: &[u8]) -> Option<CommandStep> {
        let number = |field: &Field| field.number(order, record);
        let (opcode, argument) = (number(&self.opcode)?, number(&self.argument)?);
        let bytes = (number(&self.blocks)? as u64).saturating_mul(number(&self.block_bytes)? as u64);
        let write = number(&self.data_flags)? & DATA_WRITE != 0;
        let kind = match opcode {
            17 | 18 | 46 => CommandKind::Read,
            24 | 25 | 47 => CommandKind::Write,
            // A request to the command queue engine has no command of its own.
            0 if bytes >= SECTOR_BYTES && write => CommandKind::Write,
            0 if bytes >= SECTOR_BYTES => CommandKind::Read,
            6 if bytes == 0 && argument >> SWITCH_INDEX_SHIFT & 0xff == FLUSH_CACHE => CommandKind::Flush,
            6 => CommandKind::Switch,
            5 => CommandKind::Sleep,
            13 if bytes == 0 => CommandKind::Status,
            32 | 33 | 35 | 36 | 38 => CommandKind::Discard,
            _ => CommandKind::Other,
        };
        let before = match (&self.count_argument, kind) {
            (Some(count), CommandKind::Read | CommandKind::Write) => number(count)?,
            _ => 0,
        };
        // Cards of more than 2 GB are addressed by sector, in the argument too.
        let address = self.address.as_ref().unwrap_or(&self.argument);
        let sector = match kind {
            CommandKind::Read | CommandKind::Write => Some(number(address)? as u64),
            _ => None,
        };
        let (packed, reliable) = (before & SBC_PACKED != 0, before & SBC_RELIABLE != 0);
        Some(CommandStep::Start { kind, bytes, sector, packed, reliable })
    }
}
