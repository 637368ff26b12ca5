//! Link, queues and hibernation of a UFS.

use emmclab_device::{Device, DeviceSettings, LinkGear, OperationCause, SlcMode};
use emmclab_trace::{Nanos, SECTOR_BYTES};
use schemars::JsonSchema;
use serde::Serialize;

/// Link, queues and hibernation of a UFS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct UfsUse {
    /// Number of lanes of the link in each direction.
    pub lanes: u32,
    /// Gear of each lane.
    pub gear: LinkGear,
    /// Capacity of the link in each direction, in MB of 1,000,000 bytes per second.
    pub link_mb_per_s: f64,
    /// Transfers of written data to the device.
    #[schemars(extend("of" = "to the device"))]
    pub to_device: LinkDirection,
    /// Transfers of read data to the host.
    #[schemars(extend("of" = "to the host"))]
    pub to_host: LinkDirection,
    /// Maximum number of commands that the device can hold at the same time.
    pub tags: u32,
    /// Largest number of commands that the device held at the same time during the run.
    #[schemars(extend("label" = "Most commands in flight"))]
    pub most_in_flight: u32,
    /// Mean time for which a command waited for a tag.
    #[schemars(extend("label" = "Mean wait for a tag", "digits" = 4, "better" = "lower"))]
    pub tag_wait_ms: f64,
    /// Number of queues of the host controller; 0 if it has a single command list.
    pub queues: u32,
    /// Mean time for which a command with a tag waited for its queue.
    #[schemars(extend("label" = "Mean wait for a queue", "digits" = 4, "better" = "lower"))]
    pub queue_wait_ms: f64,
    /// Use of `WriteBooster`; null if the device has none.
    pub write_booster: Option<WriteBoosterUse>,
    /// Use of zones; null if the device has none.
    pub zones: Option<ZoneUse>,
    /// Number of map entries that the host sent with reads (HPB).
    pub map_hints: u64,
    /// Share of the simulated time in hibernation.
    #[schemars(extend("label" = "In hibernation", "digits" = 1))]
    pub hibernated_pct: f64,
    /// Number of times the device left hibernation.
    #[schemars(extend("label" = "Exits from hibernation"))]
    pub hibernate_exits: u64,
    /// Mean time to leave hibernation.
    #[schemars(extend("label" = "Mean time of an exit from hibernation", "digits" = 3, "better" = "lower"))]
    pub hibernate_exit_ms: f64,
}

/// One direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct LinkDirection {
    /// Bytes of data.
    pub bytes: u64,
    /// Share of the simulated time in which the link carried data.
    #[schemars(extend("label" = "Link {of} in use", "digits" = 2))]
    pub busy_pct: f64,
    /// Mean time for which data waited for other data in the same direction.
    #[schemars(extend("label" = "Mean wait for the link {of}", "digits" = 4, "better" = "lower"))]
    pub wait_ms: f64,
}

/// `WriteBooster` of a UFS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct WriteBoosterUse {
    /// Size of WriteBooster; null without it.
    #[schemars(extend("label" = "WriteBooster, size", "digits" = 1))]
    pub size_bytes: u64,
    /// Size of the flash pages in WriteBooster that were programmed with host data.
    #[schemars(extend("label" = "Written to WriteBooster", "digits" = 1))]
    pub bytes_written: u64,
    /// Size of the flash pages outside WriteBooster that were programmed with host data.
    #[schemars(extend("label" = "Written past WriteBooster", "digits" = 1))]
    pub bytes_past_it: u64,
    /// Blocks of WriteBooster whose data was flushed into other blocks.
    #[schemars(extend("label" = "Blocks of WriteBooster flushed"))]
    pub flushed_blocks: u64,
    /// Mean erases of the blocks of WriteBooster / erase limit; null without a limit.
    #[schemars(extend("label" = "Life of WriteBooster used", "digits" = 4, "better" = "lower"))]
    pub life_used_pct: Option<f64>,
    /// Size of WriteBooster at the end of the run.
    #[schemars(extend("label" = "WriteBooster, size at the end", "digits" = 1))]
    pub current_size_bytes: u64,
    /// Data that the host read from WriteBooster.
    #[schemars(extend("label" = "Read from WriteBooster", "digits" = 1))]
    pub bytes_read: u64,
    /// Share of the bytes read from the flash for the host that were in WriteBooster.
    #[schemars(extend("label" = "Reads found in WriteBooster", "digits" = 2))]
    pub read_hit_pct: f64,
    /// Data that flushes moved into other blocks.
    #[schemars(extend("label" = "Migrated by flushes of WriteBooster", "digits" = 1, "better" = "lower"))]
    pub migrated_bytes: u64,
    /// Data written to the pinned part of WriteBooster.
    #[schemars(extend("label" = "Pinned to WriteBooster", "digits" = 1))]
    pub pinned_bytes: u64,
    /// Number of times that the device told the host that little free space is left in WriteBooster.
    #[schemars(extend("label" = "WRITEBOOSTER_FLUSH_NEEDED"))]
    pub flush_needed: u64,
    /// Number of notices to the host that the pinned part of WriteBooster is full.
    #[schemars(extend("label" = "PINNED_WRITEBOOSTER_BUFFER_FULL"))]
    pub pinned_full: u64,
    /// Number of times WriteBooster grew after a hint.
    #[schemars(extend("label" = "Times WriteBooster grew"))]
    pub grown: u64,
    /// Number of times WriteBooster shrank after a hint.
    #[schemars(extend("label" = "Times WriteBooster shrank"))]
    pub shrunk: u64,
}

/// Zones of a zoned UFS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ZoneUse {
    /// Number of sequential zones; null without zones.
    #[schemars(extend("label" = "Zones"))]
    pub count: u32,
    /// Size of each zone.
    #[schemars(extend("label" = "Size of a zone", "digits" = 1))]
    pub size_bytes: u64,
    /// Zones that were reset.
    #[schemars(extend("label" = "Zones reset"))]
    pub resets: u64,
    /// Zones that a write or the host opened.
    #[schemars(extend("label" = "Zones opened"))]
    pub opened: u64,
    /// Zones that were closed by the host, or to open another zone.
    #[schemars(extend("label" = "Zones closed"))]
    pub closed: u64,
    /// Zones that became full.
    #[schemars(extend("label" = "Zones filled"))]
    pub filled: u64,
    /// Maximum number of zones that were open at once.
    #[schemars(extend("label" = "Most zones open at once"))]
    pub most_open: u32,
    /// Maximum number of zones that were open or closed at once.
    pub most_active: u32,
    /// Size of the flash pages that were programmed in SLC mode, by premature flushes and in conventional zones.
    #[schemars(extend("label" = "Flash in SLC mode programmed", "digits" = 1))]
    pub slc_bytes: u64,
    /// Number of times that a zone took the write buffer of another zone.
    #[schemars(extend("label" = "Write buffers taken from other zones", "better" = "lower"))]
    pub buffer_conflicts: u64,
    /// Number of `ufs.zones.buffer_conflicts` with data in the buffer, so that the data was written to the flash early.
    #[schemars(extend("label" = "Premature flushes of zones", "better" = "lower"))]
    pub premature_flushes: u64,
    /// Data that premature flushes wrote to the flash.
    #[schemars(extend("label" = "Flushed prematurely", "digits" = 1, "better" = "lower"))]
    pub premature_bytes: u64,
}

impl ZoneUse {
    fn of(device: &Device) -> Option<Self> {
        let first = device.zones().next()?;
        let (counts, geometry) = (device.counters().zones, device.geometry());
        let number = geometry.groups.len() - 1;
        Some(Self {
            count: device.zones().count() as u32,
            size_bytes: first.sectors * SECTOR_BYTES,
            resets: counts.resets,
            opened: counts.opened,
            closed: counts.closed,
            filled: counts.filled,
            most_open: counts.most_open,
            most_active: counts.most_active,
            slc_bytes: device.counters().group_programs[number] * u64::from(geometry.groups[number].page_bytes),
            buffer_conflicts: counts.buffer_conflicts,
            premature_flushes: counts.premature_flushes,
            premature_bytes: counts.premature_units * u64::from(geometry.unit_bytes),
        })
    }
}

impl WriteBoosterUse {
    fn of(settings: &DeviceSettings, device: &Device) -> Option<Self> {
        if settings.slc.mode != SlcMode::Cache {
            return None;
        }
        let (counters, geometry) = (device.counters(), device.geometry());
        let number = geometry.groups.len() - 1;
        let group = geometry.groups.get(number)?;
        let bytes_written = counters.group_programs[number] * u64::from(group.page_bytes);
        let blocks = u64::from(geometry.planes) * u64::from(group.blocks);
        let page_bytes = u64::from(group.pages_per_block) * u64::from(group.page_bytes);
        let own = device.blocks().filter(|block| usize::from(block.group) == number);
        let erases: u64 = own.map(|block| u64::from(block.erases)).sum();
        let limit = u64::from(group.erase_limit) * blocks;
        let (booster, unit_bytes) = (counters.booster, u64::from(geometry.unit_bytes));
        let bytes_read = counters.group_bytes_read[number];
        let all_read: u64 = counters.group_bytes_read.iter().sum();
        Some(Self {
            size_bytes: blocks * page_bytes,
            bytes_written,
            bytes_past_it: counters.bytes_programmed[OperationCause::Host as usize].saturating_sub(bytes_written),
            flushed_blocks: counters.folds,
            life_used_pct: (limit > 0).then(|| 100.0 * erases as f64 / limit as f64),
            current_size_bytes: u64::from(geometry.planes) * u64::from(device.booster_blocks()) * page_bytes,
            bytes_read,
            read_hit_pct: 100.0 * bytes_read as f64 / (all_read as f64).max(1.0),
            migrated_bytes: booster.folded_units * unit_bytes,
            pinned_bytes: booster.pinned_units * unit_bytes,
            flush_needed: booster.flush_needed,
            pinned_full: booster.pinned_full,
            grown: booster.grown,
            shrunk: booster.shrunk,
        })
    }
}

/// Returns the mean of `of` durations whose sum is `ns`, in ms; 0 without durations.
fn mean_ms(ns: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { ns as f64 / of as f64 / 1e6 }
}

impl UfsUse {
    /// Summarises the UFS figures of a run of length `elapsed`; `None` for an eMMC.
    pub(super) fn of(settings: &DeviceSettings, device: &Device, elapsed: Nanos) -> Option<Self> {
        let (interface, counters) = (&settings.interface, device.counters());
        let share = |ns: u64| (100.0 * ns as f64 / elapsed.0.max(1) as f64).min(100.0);
        let [to_device, to_host] = counters.link.map(|load| LinkDirection {
            bytes: load.bytes,
            busy_pct: share(load.busy_ns),
            wait_ms: mean_ms(load.wait_ns, load.transfers),
        });
        let commands = counters.commands;
        interface.is_ufs().then(|| Self {
            lanes: interface.lanes,
            gear: interface.gear,
            link_mb_per_s: interface.link_bytes_per_s() as f64 / 1e6,
            to_device,
            to_host,
            tags: settings.controller.queue_depth,
            most_in_flight: commands.most_in_flight,
            tag_wait_ms: mean_ms(commands.tag_wait_ns, commands.fetched),
            queues: interface.queues,
            queue_wait_ms: mean_ms(commands.queue_wait_ns, commands.fetched),
            write_booster: WriteBoosterUse::of(settings, device),
            zones: ZoneUse::of(device),
            map_hints: counters.map_hints,
            hibernated_pct: share(counters.asleep_ns),
            hibernate_exits: counters.wake_ups,
            hibernate_exit_ms: mean_ms(counters.waking_ns, counters.wake_ups),
        })
    }
}
