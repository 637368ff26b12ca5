//! The cost of link, queues and hibernation of a UFS.

use emmclab_device::{Device, DeviceSettings, LinkGear, OperationCause, SlcMode};
use emmclab_trace::{Nanos, SECTOR_BYTES};
use serde::Serialize;

/// Link, queues and hibernation of a UFS.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UfsUse {
    /// Lanes of the link in each direction.
    pub lanes: u32,
    /// Gear of each lane.
    pub gear: LinkGear,
    /// The capacity of the link in each direction, in MB/s of 1,000,000 bytes.
    pub link_mb_per_s: f64,
    /// Data of writes.
    pub to_device: LinkDirection,
    /// Data of reads.
    pub to_host: LinkDirection,
    /// Tags: commands that can be in the device at once.
    pub tags: u32,
    /// Most commands that were.
    pub most_in_flight: u32,
    /// Mean time that a command waited for a tag, in ms.
    pub tag_wait_ms: f64,
    /// Queues of the host controller; 0 = one list.
    pub queues: u32,
    /// Mean time that a command with a tag waited for its queue, in ms.
    pub queue_wait_ms: f64,
    /// `WriteBooster`, where the device has it.
    pub write_booster: Option<WriteBoosterUse>,
    /// Its zones, where it has some.
    pub zones: Option<ZoneUse>,
    /// Map entries that the host brought along with reads (HPB).
    pub map_hints: u64,
    /// Share of the simulated time in hibernation, in percent.
    pub hibernated_pct: f64,
    /// Times it left hibernation.
    pub hibernate_exits: u64,
    /// Mean time of leaving it, in ms.
    pub hibernate_exit_ms: f64,
}

/// One direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LinkDirection {
    /// Bytes carried.
    pub bytes: u64,
    /// Share of the simulated time in use, in percent.
    pub busy_pct: f64,
    /// Mean time that the data of a command waited for other data, in ms.
    pub wait_ms: f64,
}

/// `WriteBooster` of a UFS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WriteBoosterUse {
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// Flash bytes that host data took in it.
    pub bytes_written: u64,
    /// Flash bytes that host data took past it.
    pub bytes_past_it: u64,
    /// Blocks flushed into others.
    pub flushed_blocks: u64,
    /// Mean erases of its blocks, in percent of their erase limit; `None` if the settings give no limit.
    pub life_used_pct: Option<f64>,
    /// Its size at the end, in bytes.
    pub current_size_bytes: u64,
    /// Bytes that the host read from it.
    pub bytes_read: u64,
    /// Share of the bytes that the host read from the flash, in percent.
    pub read_hit_pct: f64,
    /// Bytes that a flush moved into other blocks.
    pub migrated_bytes: u64,
    /// Bytes written to its pinned part.
    pub pinned_bytes: u64,
    /// Number of times that the device reported to the host that little of it is free.
    pub flush_needed: u64,
    /// Number of times that the device reported that its pinned part is full.
    pub pinned_full: u64,
    /// Times that it grew upon a hint.
    pub grown: u64,
    /// Times that it shrank upon a hint.
    pub shrunk: u64,
}

/// Zones of a zoned UFS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ZoneUse {
    /// Zones that are written in order.
    pub count: u32,
    /// Size of each, in bytes.
    pub size_bytes: u64,
    /// Zones that were reset.
    pub resets: u64,
    /// Zones that a write or the host opened.
    pub opened: u64,
    /// Zones that were closed for another one, or by the host.
    pub closed: u64,
    /// Zones that became full.
    pub filled: u64,
    /// Most zones that were open at once.
    pub most_open: u32,
    /// Most zones that were open or closed at once.
    pub most_active: u32,
    /// Flash in SLC mode that was programmed, in bytes: pages that a flush cut short, and conventional zones.
    pub slc_bytes: u64,
    /// Times that a zone took the write buffer of another one.
    pub buffer_conflicts: u64,
    /// Of these, those in which data had to leave that buffer before.
    pub premature_flushes: u64,
    /// Bytes that left it then.
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
            slc_bytes: device.counters().group_programs[number]
                * u64::from(geometry.groups[number].page_bytes),
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
            bytes_past_it: counters.bytes_programmed[OperationCause::Host as usize]
                .saturating_sub(bytes_written),
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

/// Mean of a time in ns over a number of events, in ms; 0 without events.
fn mean_ms(ns: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { ns as f64 / of as f64 / 1e6 }
}

impl UfsUse {
    /// Of a run of this length; `None` for a device that is no UFS.
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
