//! Settings of the buffer, and their values on the disks below.

use emmclab_base::{ByteSize, Error, ErrorClass, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ring::FIRST;
use crate::layer::{DisksBelow, ReservedArea};

/// Settings of the NVM buffer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NvmBufferSettings {
    /// Size of the buffer, a multiple of 4 KB; by default the whole second device, or 16 MB of the device itself.
    pub size: Option<ByteSize>,
    /// Whether the buffer is on the second device; else it is at the end of the device itself.
    pub second_device: bool,
    /// Longest write that goes to the buffer; longer ones bypass it.
    pub longest: ByteSize,
    /// Share of the buffer above which data is written back while requests are served.
    pub high_pct: u32,
    /// Share of the buffer at which write-back ends. It begins above `high_pct`, and above halfway between both while no request is in
    /// flight.
    pub low_pct: u32,
    /// Longest run of consecutive sectors that is written back with one command.
    pub run: ByteSize,
    /// Runs that are written back concurrently.
    #[schemars(extend("unit" = "runs"))]
    pub depth: u32,
}

impl Default for NvmBufferSettings {
    fn default() -> Self {
        Self {
            size: None,
            second_device: true,
            longest: ByteSize::kb(64),
            high_pct: 75,
            low_pct: 25,
            run: ByteSize::kb(512),
            depth: 1,
        }
    }
}

/// The settings in sectors, after the checks.
#[derive(Clone, Debug)]
pub(super) struct NvmBufferParameters {
    /// Number of sectors that the layer offers.
    pub capacity: u64,
    pub area: ReservedArea,
    pub longest: u32,
    /// Sectors in use above which data is written back, and down to which it is written back.
    pub high: u32,
    pub low: u32,
    /// Like `high`, while no request is in flight. It is well above `low` so that one step releases many records, because each
    /// release needs flushes.
    pub idle: u32,
    pub run: u64,
    pub depth: usize,
}

const ALIGN: u64 = 4096;

impl NvmBufferSettings {
    /// Checks all settings against the disks below.
    pub(super) fn shape(&self, layer: &str, below: &DisksBelow) -> Result<NvmBufferParameters> {
        let mut faults = Vec::new();
        let mut need = |good: bool, fault: String| {
            if !good {
                faults.push(fault);
            }
        };
        let Self { second_device, longest, high_pct, low_pct, run, depth, .. } = *self;
        need(
            !second_device || below.second.is_some(),
            "there is no second device; name one (--device2 pcm-16mb), or set `second_device` to false".to_owned(),
        );
        let disk = if second_device { below.second.unwrap_or(u64::MAX) } else { below.main };
        let whole = ByteSize(disk.saturating_mul(512) / ALIGN * ALIGN);
        let size = self.size.unwrap_or(if second_device { whole } else { ByteSize::mb(16) });
        // If the second device is missing, the size of the whole device is unknown and cannot be checked.
        let is_known = self.size.is_some() || !second_device || below.second.is_some();
        need(
            !is_known || size.0.is_multiple_of(ALIGN) && size.0 < 1 << 40,
            format!("`size` is {size}; it must be a multiple of 4KB, and less than 1024GB"),
        );
        need(size <= whole, format!("`size` is {size}; its disk has {whole}"));
        need(
            longest.0 > 0 && longest.0.is_multiple_of(512),
            format!("`longest` is {longest}; it must be a multiple of 512 bytes"),
        );
        // Room for two of the longest records, whatever is lost at the end of the ring, and for the headers.
        let least = ByteSize(longest.0.saturating_add(512).saturating_mul(4).saturating_add(4 * ALIGN));
        need(size >= least, format!("`size` is {size}; with writes of {longest} it must be {} B or more", least.0));
        need(
            run >= longest && run.0.is_multiple_of(512) && run <= ByteSize::mb(64),
            format!("`run` is {run}; it must be a multiple of 512 bytes from `longest`, {longest}, to 64MB"),
        );
        need(
            low_pct < high_pct && high_pct <= 100,
            format!(
                "`low_pct` is {low_pct} and `high_pct` {high_pct}; the first must be less than the second, the second at most 100"
            ),
        );
        need((1..=1024).contains(&depth), format!("`depth` is {depth}; it must be 1 to 1024"));
        let capacity = if second_device { below.main } else { below.main.saturating_sub(size.sectors()) };
        need(capacity > 0, "the buffer leaves no space on the device".to_owned());
        if let Some((first, more)) = faults.split_first() {
            let problem = if more.is_empty() {
                format!("layer `{layer}`: {first}")
            } else {
                format!("layer `{layer}`: there are {} faults:\n  - {}", faults.len(), faults.join("\n  - "))
            };
            return Err(Error::new(ErrorClass::Config, problem)
                .hint(format!("give a setting of this layer as --set {layer}.NAME=VALUE")));
        }
        let ring = size.sectors() - u64::from(FIRST);
        let share = |pct: u32| (ring * u64::from(pct) / 100) as u32;
        Ok(NvmBufferParameters {
            capacity,
            area: ReservedArea {
                disk: u8::from(second_device),
                sector: if second_device { 0 } else { capacity },
                sectors: size.sectors(),
            },
            longest: longest.sectors() as u32,
            high: share(high_pct),
            low: share(low_pct),
            idle: share(low_pct.midpoint(high_pct)),
            run: run.sectors(),
            depth: depth as usize,
        })
    }
}
