//! Structure of the flash and address arithmetic, computed once from the settings.

use std::ops::Range;

use emmclab_base::{ByteCount, Nanos, SECTOR_BYTES};

use crate::ids::{BlockId, Lpn, PlaneId, PoolId, Ppn};
use emmclab_settings::{
    BlockGroup, DeviceSettings, GeometrySettings, PageType, PlaneClustering, RetryPoint, SlcMode, StripeOrder,
};

/// Maximum number of map units in a page: clustered pages of 64 KB with 4 KB units.
pub(crate) const MAX_UNITS: usize = 16;

/// A block group: blocks with one page size, which every plane contains.
#[derive(Clone, Debug)]
pub struct GroupGeometry {
    /// First block of the group, counted from the start of its plane.
    pub first_block: u32,
    /// Number of blocks of the group per plane, including spares.
    pub blocks: u32,
    /// Number of spare blocks per plane, which replace bad blocks.
    pub spare_blocks: u32,
    /// Number of pages in a block.
    pub pages_per_block: u32,
    /// Number of pages of a word line: the bits of a cell.
    pub word_line_pages: u32,
    /// Size of a page in bytes.
    pub page_bytes: u32,
    /// Base-2 logarithm of the number of map units in a page.
    pub page_shift: u32,
    /// Array times of a page, if all pages take the same times.
    pub page: PageTimes,
    /// Array times of the pages of a word line, in the order of programming; empty if all pages take the same times.
    pub page_types: Vec<PageTimes>,
    /// Time of a block erase.
    pub erase: Nanos,
    /// Erases after which a block goes bad; 0 = never.
    pub erase_limit: u32,
    /// Time of a read retry.
    pub retry: Nanos,
    /// Mean number of read retries by wear and age; empty if no read is retried.
    pub retries: Vec<RetryPoint>,
    /// Reads of a block after which its data is refreshed; 0 = never.
    pub read_disturb_limit: u32,
    /// Age of data at which it is refreshed; 0 = never.
    pub refresh_after: Nanos,
}

/// Array times of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageTimes {
    /// Time of a read.
    pub read: Nanos,
    /// Time of a program.
    pub program: Nanos,
}

impl GroupGeometry {
    /// The pages in the word line of a page. They follow each other in program order, as where 3D flash programs a word line in one pass; in
    /// planar MLC flash they are some pages apart (6 in the table of a Micron L95B in the emulator FEMU, `hw/femu/nand`).
    pub fn word_line(&self, page: u32) -> Range<u32> {
        let first = page - page % self.word_line_pages;
        first..(first + self.word_line_pages).min(self.pages_per_block)
    }

    /// Map units in a page.
    #[inline]
    pub const fn units_per_page(&self) -> u32 {
        1 << self.page_shift
    }

    /// Map units in a block.
    #[inline]
    pub const fn units_per_block(&self) -> u32 {
        self.pages_per_block << self.page_shift
    }

    /// The type of a page: its position in its word line; 0 if all pages take the same times.
    #[inline(always)]
    pub fn type_of(&self, page: u32) -> u32 {
        if self.page_types.is_empty() { 0 } else { page % self.word_line_pages }
    }

    /// Array times of the pages of a type.
    #[inline(always)]
    pub fn times_of(&self, page_type: u32) -> PageTimes {
        if self.page_types.is_empty() { self.page } else { self.page_types[page_type as usize] }
    }

    /// Array times of a page.
    #[inline(always)]
    pub fn times(&self, page: u32) -> PageTimes {
        self.times_of(self.type_of(page))
    }
}

/// Zones that are written sequentially. They have the same size, and follow the conventional zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneLayout {
    /// First map unit of the first sequential zone.
    pub first_unit: u32,
    /// Number of map units of a zone.
    pub units: u32,
    /// Number of sequential zones.
    pub count: u32,
    /// Blocks of each plane in a zone.
    pub blocks: u32,
}

impl ZoneLayout {
    /// Returns the zones of a device, if it has any. `usable` is the number of units for user data outside of SLC mode.
    fn new(settings: &DeviceSettings, group: &GroupGeometry, planes: u32, usable: u64) -> Option<Self> {
        let zones = &settings.zones;
        let units = u64::from(zones.blocks) * u64::from(group.units_per_block()) * u64::from(planes);
        let count = usable.checked_div(units)?;
        let first_unit = u64::from(zones.conventional).saturating_mul(units).min(u64::from(u32::MAX));
        Some(Self { first_unit: first_unit as u32, units: units as u32, count: count as u32, blocks: zones.blocks })
    }

    /// The sequential zone of a map unit; `None` for units before the first zone.
    #[inline]
    pub const fn zone_of(&self, unit: u32) -> Option<u32> {
        if unit < self.first_unit { None } else { Some((unit - self.first_unit) / self.units) }
    }

    /// First map unit of a zone.
    #[inline]
    pub const fn start(&self, zone: u32) -> u32 {
        self.first_unit + zone * self.units
    }

    /// The map unit after the last zone.
    #[inline]
    pub const fn end(&self) -> u32 {
        self.start(self.count)
    }
}

/// The structure of the device, and the layout of physical addresses.
///
/// Physical page numbers count map units, page by page. The numbers of each block start at a multiple of a power of two. A [`Ppn`] thus has
/// separate bits for the block and for the page in the block.
///
/// Clustered planes count as one plane, whose pages and blocks are larger by the factor [`Geometry::clustered_planes`].
#[derive(Clone, Debug)]
pub struct Geometry {
    /// Number of channels.
    pub channels: u32,
    /// Total number of chips.
    pub chips: u32,
    /// Total number of dies.
    pub dies: u32,
    /// Total number of planes. The number of a plane is ((channel * chips + chip) * dies + die) * planes + plane.
    pub planes: u32,
    /// Number of physical planes that form a clustered plane; 1 without clustering.
    pub clustered_planes: u32,
    /// Number of channels of a clustered page; 1 without clustering.
    pub clustered_channels: u32,
    /// Planes of a channel.
    pub planes_per_channel: u32,
    /// Planes in a chip.
    pub planes_per_chip: u32,
    /// Planes in a die.
    pub planes_per_die: u32,
    /// Blocks in a plane.
    pub blocks_per_plane: u32,
    /// The block groups in the order of the settings.
    pub groups: Vec<GroupGeometry>,
    /// Indices of the block groups that are not in SLC mode, largest page first.
    pub by_size: Vec<u8>,
    /// Bytes of a map unit.
    pub unit_bytes: u32,
    /// Sectors of a map unit.
    pub unit_sectors: u32,
    /// Base-2 logarithm of the number of physical page numbers per block.
    pub stride_shift: u32,
    /// Base-2 logarithm of the number of sectors in a map unit.
    pub unit_shift: u32,
    /// Number of map units that the host sees.
    pub logical_units: u32,
    /// Number of logical units, from the first on, that are permanently in blocks in SLC mode.
    pub slc_units: u32,
    /// The sequential zones, if the device has zones.
    pub zones: Option<ZoneLayout>,
    /// Planes in striping order: consecutive pages are written to consecutive planes of this list.
    pub stripe: Vec<PlaneId>,
}

/// Converts a setting in microseconds to integer nanoseconds.
pub(crate) fn nanos(us: f64) -> Nanos {
    Nanos((us * 1000.0).round() as i64)
}

impl Geometry {
    /// Computes the geometry from checked settings, such as those of a [`crate::DeviceConfig`].
    pub fn new(settings: &DeviceSettings) -> Self {
        let (flash, clustered) = clustered(settings);
        let unit_kb = settings.mapping.unit_kb;
        let mut first_block = 0;
        let groups: Vec<GroupGeometry> = settings
            .block_groups()
            .iter()
            .map(|group| {
                let out = Self::group(group, first_block, unit_kb, clustered);
                first_block += group.blocks;
                out
            })
            .collect();
        // The group in SLC mode is the last one, and receives only data that is directed to it.
        let ordinary = groups.len() - usize::from(settings.slc.mode != SlcMode::Off);
        let mut by_size: Vec<u8> = (0..ordinary as u8).collect();
        by_size.sort_by_key(|i| std::cmp::Reverse(groups[usize::from(*i)].page_bytes));
        let chips = flash.channels * flash.chips_per_channel;
        let planes_per_chip = flash.dies_per_chip * flash.planes_per_die;
        let planes = chips * planes_per_chip;
        let usable = |groups: &[GroupGeometry]| {
            let units = |group: &GroupGeometry| u64::from(group.blocks - group.spare_blocks) * u64::from(group.units_per_block());
            groups.iter().map(units).sum::<u64>() * u64::from(planes)
        };
        let counted = if settings.slc.mode == SlcMode::Cache { ordinary } else { groups.len() };
        let share = 1.0 + settings.capacity.over_provisioning_pct / 100.0;
        // If `preserve_user_space` is set, the capacity is that of the flash without SLC mode.
        let mut taken = 0;
        if settings.slc.preserve_user_space {
            let from = groups.get(settings.slc.group as usize).map_or(0, GroupGeometry::units_per_block);
            taken = u64::from(settings.slc.blocks) * u64::from(from) * u64::from(planes);
        }
        let largest = groups.iter().map(GroupGeometry::units_per_block).max().unwrap_or(1);
        let for_zones = (usable(&groups[..ordinary]) as f64 / share).floor() as u64;
        let zones = groups.first().and_then(|group| ZoneLayout::new(settings, group, planes, for_zones));
        Self {
            channels: flash.channels,
            chips,
            dies: chips * flash.dies_per_chip,
            planes,
            clustered_planes: clustered,
            clustered_channels: settings.geometry.channels / flash.channels,
            planes_per_channel: flash.chips_per_channel * planes_per_chip,
            planes_per_chip,
            planes_per_die: flash.planes_per_die,
            blocks_per_plane: first_block,
            by_size,
            unit_bytes: unit_kb * 1024,
            unit_sectors: unit_kb * 1024 / SECTOR_BYTES as u32,
            unit_shift: (unit_kb * 1024 / SECTOR_BYTES as u32).trailing_zeros(),
            stride_shift: largest.next_power_of_two().trailing_zeros(),
            logical_units: zones
                .map_or_else(|| ((usable(&groups[..counted]) + taken) as f64 / share).floor() as u32, |zones| zones.end()),
            slc_units: zones
                .map_or_else(|| (usable(&groups[ordinary..counted]) as f64 / share).floor() as u32, |zones| zones.first_unit),
            zones,
            stripe: stripe(&flash, settings.allocation.order),
            groups,
        }
    }

    fn group(group: &BlockGroup, first_block: u32, unit_kb: u32, clustered: u32) -> GroupGeometry {
        let page_times = |times: &PageType| PageTimes { read: nanos(times.read_us), program: nanos(times.program_us) };
        GroupGeometry {
            first_block,
            blocks: group.blocks,
            spare_blocks: group.spare_blocks,
            pages_per_block: group.pages_per_block,
            word_line_pages: group.cell_mode.bits(),
            page_bytes: group.page_kb * clustered * 1024,
            page_shift: (group.page_kb * clustered / unit_kb).trailing_zeros(),
            page: PageTimes { read: nanos(group.read_us), program: nanos(group.program_us) },
            page_types: group.page_types.iter().map(page_times).collect(),
            erase: nanos(group.erase_us),
            erase_limit: group.erase_limit,
            retry: nanos(group.retry_us),
            retries: group.retries.clone(),
            read_disturb_limit: group.read_disturb_limit,
            refresh_after: nanos(group.refresh_days * 86_400e6),
        }
    }

    /// The capacity that the host sees.
    pub fn capacity(&self) -> ByteCount {
        ByteCount(u64::from(self.logical_units) * u64::from(self.unit_bytes))
    }

    /// The capacity that the host sees, in sectors.
    #[inline]
    pub fn sectors(&self) -> u64 {
        u64::from(self.logical_units) << self.unit_shift
    }

    /// Number of sectors that are programmed if each plane programs one page of the largest page size.
    pub fn program_sectors(&self) -> u32 {
        let page = self.groups.iter().map(|group| group.page_bytes).max().unwrap_or(0);
        self.planes * page / SECTOR_BYTES as u32
    }

    /// Number of sectors that are erased if each plane erases one block of the largest block size.
    pub fn erase_sectors(&self) -> u32 {
        let block = self.groups.iter().map(|group| u64::from(group.pages_per_block) * u64::from(group.page_bytes)).max();
        (u64::from(self.planes) * block.unwrap_or(0) / SECTOR_BYTES) as u32
    }

    /// Raw capacity of the flash: all blocks, including spare blocks.
    pub fn raw(&self) -> ByteCount {
        let per_plane: u64 = self
            .groups
            .iter()
            .map(|group| u64::from(group.blocks) * u64::from(group.pages_per_block) * u64::from(group.page_bytes))
            .sum();
        ByteCount(per_plane * u64::from(self.planes))
    }

    /// Blocks in the device.
    pub fn blocks(&self) -> u32 {
        self.planes * self.blocks_per_plane
    }

    /// Number of physical page numbers of the device, including unused ones.
    pub fn ppns(&self) -> usize {
        (self.blocks() as usize) << self.stride_shift
    }

    /// Block of a physical page number.
    #[inline]
    pub const fn block_of(&self, ppn: Ppn) -> BlockId {
        BlockId(ppn.0 >> self.stride_shift)
    }

    /// Offset of a physical page number in its block.
    #[inline]
    pub const fn offset_of(&self, ppn: Ppn) -> u32 {
        ppn.0 & ((1 << self.stride_shift) - 1)
    }

    /// First physical page number of a block.
    #[inline]
    pub const fn first_ppn(&self, block: BlockId) -> Ppn {
        Ppn(block.0 << self.stride_shift)
    }

    /// Pool of a plane and a block group.
    #[inline]
    pub fn pool(&self, plane: PlaneId, group: u8) -> PoolId {
        PoolId(plane.0 * self.groups.len() as u32 + u32::from(group))
    }

    /// Plane and block group of a pool.
    #[inline]
    pub fn of_pool(&self, pool: PoolId) -> (PlaneId, u8) {
        let groups = self.groups.len() as u32;
        (PlaneId(pool.0 / groups), (pool.0 % groups) as u8)
    }

    /// Returns the plane that stores a logical page if the pages of block group `group` are striped over all planes.
    #[inline]
    pub fn home_plane(&self, lpn: Lpn, group: u8) -> PlaneId {
        self.striped(lpn.0 >> self.groups[usize::from(group)].page_shift)
    }

    /// Returns the page of its block in which striping places a logical page; 0 if all pages of the group take the same times.
    pub fn home_page(&self, lpn: Lpn, group: u8) -> u32 {
        let kind = &self.groups[usize::from(group)];
        if kind.page_types.is_empty() { 0 } else { (lpn.0 >> kind.page_shift) / self.planes % kind.pages_per_block }
    }

    /// Returns the plane at a position of the striping order. The order starts again after its last plane.
    #[inline]
    pub fn striped(&self, position: u32) -> PlaneId {
        self.stripe[(position % self.planes) as usize]
    }
}

/// Returns the geometry in which each cluster of planes counts as one plane, and the number of planes in a cluster.
fn clustered(settings: &DeviceSettings) -> (GeometrySettings, u32) {
    let mut flash = settings.geometry.clone();
    let level = settings.mapping.clustering;
    let mut planes = 1;
    for (from, count) in [
        (PlaneClustering::Planes, &mut flash.planes_per_die),
        (PlaneClustering::Dies, &mut flash.dies_per_chip),
        (PlaneClustering::Chips, &mut flash.chips_per_channel),
        (PlaneClustering::Channels, &mut flash.channels),
    ] {
        if level >= from {
            planes *= *count;
            *count = 1;
        }
    }
    (flash, planes)
}

/// The planes in striping order. The coordinate that `order` names changes fastest, followed by the others in the order channel, chip, die,
/// plane.
fn stripe(flash: &GeometrySettings, order: StripeOrder) -> Vec<PlaneId> {
    let counts = [flash.channels, flash.chips_per_channel, flash.dies_per_chip, flash.planes_per_die];
    let first = match order {
        StripeOrder::ChannelFirst => 0,
        StripeOrder::ChipFirst => 1,
        StripeOrder::DieFirst => 2,
        StripeOrder::PlaneFirst => 3,
    };
    let order: Vec<usize> = std::iter::once(first).chain((0..4).filter(|axis| *axis != first)).collect();
    let total = counts.iter().product::<u32>();
    (0..total)
        .map(|mut index| {
            let mut at = [0; 4];
            for axis in &order {
                at[*axis] = index % counts[*axis];
                index /= counts[*axis];
            }
            PlaneId(((at[0] * counts[1] + at[1]) * counts[2] + at[2]) * counts[3] + at[3])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceConfig;

    #[test]
    fn the_chosen_coordinate_runs_first() {
        let stripe = |order: &str| {
            let mut config = DeviceConfig::preset("iiswc15-4ps").unwrap();
            config.set("allocation.order", order).unwrap();
            Geometry::new(config.settings()).stripe.iter().map(|plane| plane.0).collect::<Vec<_>>()
        };
        // 2 channels with 1 chip of 2 dies with 2 planes: plane number = 4 x channel + 2 x die + plane of the die.
        assert_eq!(stripe("channel_first"), [0, 4, 2, 6, 1, 5, 3, 7]);
        assert_eq!(stripe("die_first"), [0, 2, 4, 6, 1, 3, 5, 7]);
        assert_eq!(stripe("plane_first"), [0, 1, 4, 5, 2, 3, 6, 7]);
        assert_eq!(stripe("chip_first"), stripe("channel_first"));
    }

    #[test]
    fn capacity_is_raw_over_one_plus_the_share() {
        let geometry = |preset| Geometry::new(DeviceConfig::preset(preset).unwrap().settings());
        for preset in ["iiswc15-4ps", "iiswc15-8ps", "iiswc15-hps", "ssdsim"] {
            let geometry = geometry(preset);
            assert_eq!((geometry.capacity().0, geometry.raw().0), (32 << 30, 32 << 30), "{preset}");
        }
        let small = geometry("small-1gb");
        assert_eq!(small.capacity().0, (small.raw().0 as f64 / 1.07 / 4096.0) as u64 * 4096);
    }
}
