//! Records of the MMC core: when a request was handed to the eMMC. Source: the kernel's `include/trace/events/mmc.h`.

use std::collections::BTreeMap;

use emmclab_trace::{EventKind, Result, SECTOR_BYTES};

use crate::block_event::{BlockEvent, fixed};
use crate::byte_order::ByteOrder;
use crate::disks::Disks;
use crate::event_format::{EventFormat, Field};

/// The event that is recorded.
pub(crate) const EVENT: &str = "mmc/mmc_request_start";

/// `MMC_DATA_WRITE` in `data_flags`.
const DATA_WRITE: i64 = 1 << 8;

/// Decodes `mmc_request_start`.
#[derive(Clone, Debug)]
pub(crate) struct MmcDecoder {
    pid: Field,
    name: Field,
    address: Field,
    blocks: Field,
    block_bytes: Field,
    data_flags: Field,
    /// `dev_t` of the disk of each host (`mmc0`).
    disks: BTreeMap<Vec<u8>, u32>,
}

impl MmcDecoder {
    /// Finds the fields in this kernel's format. The event names the host; disk `mmcblkN` is that of host `mmcN`.
    pub(crate) fn new(format: &EventFormat, disks: &Disks) -> Result<Self> {
        let required = |name| format.required(name).cloned();
        let hosts = disks.iter().filter_map(|disk| {
            let number = disk.name.strip_prefix("mmcblk")?;
            let whole = number.bytes().all(|byte| byte.is_ascii_digit());
            whole.then(|| (format!("mmc{number}").into_bytes(), disk.device))
        });
        Ok(Self {
            pid: required("common_pid")?,
            name: required("name")?,
            address: required("blk_addr")?,
            blocks: required("blocks")?,
            block_bytes: required("blksz")?,
            data_flags: required("data_flags")?,
            disks: hosts.collect(),
        })
    }

    /// The event, of device 0 where the command carries no data or its host has no disk; `None` where the record is too
    /// short for its format.
    #[inline]
    pub(crate) fn decode(&self, order: ByteOrder, record: &[u8]) -> Option<BlockEvent> {
        let number = |field: &Field| field.number(order, record);
        let bytes = (number(&self.blocks)? as u64).saturating_mul(number(&self.block_bytes)? as u64);
        let host = self.name.text(order, record)?;
        let device = if bytes == 0 { None } else { self.disks.get(host) };
        let write = number(&self.data_flags)? & DATA_WRITE != 0;
        Some(BlockEvent {
            kind: EventKind::Submit,
            device: device.copied().unwrap_or(0),
            sector: number(&self.address)? as u64,
            sectors: (bytes / SECTOR_BYTES) as u32,
            rwbs: fixed(if write { b"W" } else { b"R" }),
            pid: number(&self.pid)? as i32,
            comm: [0; 16],
        })
    }
}
