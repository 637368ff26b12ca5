//! The export: its names, size and capabilities.

use std::sync::Arc;

use emmclab_base::{Error, ErrorClass, Result, SECTOR_BYTES};

use super::wire::{MAX_PAYLOAD, MAX_STRING, transmission};
use crate::device::{BlockDevice, BlockDeviceLimits};

/// Name, description and access mode of an export.
#[derive(Clone, Debug, Default)]
pub struct NbdExportOptions {
    /// A name in addition to the default export, whose name is empty; at most 4096 bytes.
    pub name: String,
    /// A description for users, which `nbdinfo --list` prints; at most 4096 bytes.
    pub description: String,
    /// Whether commands that change data are refused.
    pub read_only: bool,
}

/// A device, with the properties that negotiation and checks need.
pub(super) struct NbdExport {
    options: NbdExportOptions,
    device: Arc<dyn BlockDevice>,
    limits: BlockDeviceLimits,
    /// Size in bytes.
    size: u64,
}

impl NbdExport {
    /// # Errors
    /// [`ErrorClass::Config`] if a string is too long or the device larger than 2^63 bytes.
    pub fn new(device: Arc<dyn BlockDevice>, options: NbdExportOptions) -> Result<Self> {
        for (field, text) in [("name", &options.name), ("description", &options.description)] {
            if text.len() > MAX_STRING {
                let problem = format!("the export's {field} has {} bytes", text.len());
                return Err(Error::new(ErrorClass::Config, problem).hint("use at most 4096 bytes"));
            }
        }
        let limits = device.limits();
        let size = limits.sectors.checked_mul(SECTOR_BYTES).filter(|size| i64::try_from(*size).is_ok());
        let size = size.ok_or_else(|| {
            let problem = format!("a device of {} sectors is too large to be exported", limits.sectors);
            Error::new(ErrorClass::Config, problem).hint("use less than 2^54 sectors")
        })?;
        Ok(Self { options, device, limits, size })
    }

    pub fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn read_only(&self) -> bool {
        self.options.read_only
    }

    pub fn description(&self) -> &str {
        &self.options.description
    }

    /// The names that clients can use.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let name = self.options.name.as_str();
        std::iter::once("").chain((!name.is_empty()).then_some(name))
    }

    /// The export name that equals `name`; `None` if there is none.
    pub fn named(&self, name: &[u8]) -> Option<&str> {
        self.names().find(|known| known.as_bytes() == name)
    }

    /// Maximum length of a request to the device, in sectors.
    pub fn part_sectors(&self) -> u32 {
        self.limits.max_sectors.max(1)
    }

    /// Granularity of discards, in bytes.
    pub fn discard_bytes(&self) -> u64 {
        u64::from(self.limits.discard_sectors.max(1)) * SECTOR_BYTES
    }

    /// Preferred block size in bytes: a power of two from 512 to the largest payload.
    pub fn preferred_bytes(&self) -> u32 {
        let bytes = u64::from(self.limits.preferred_sectors.max(1)) * SECTOR_BYTES;
        bytes.next_power_of_two().min(u64::from(MAX_PAYLOAD)) as u32
    }

    /// Transmission flags. Without a write cache, flush and FUA are not advertised: every write is durable.
    pub fn flags(&self, structured: bool) -> u16 {
        use transmission as flag;
        let mut flags = flag::HAS_FLAGS | flag::CAN_MULTI_CONN;
        if self.limits.write_cache {
            flags |= flag::SEND_FLUSH | flag::SEND_FUA;
        }
        if structured {
            flags |= flag::SEND_DF;
        }
        let changes = flag::SEND_TRIM | flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO;
        flags | if self.options.read_only { flag::READ_ONLY } else { changes }
    }
}
