//! Every setting of a device, with its default. The comments are the reference: `explain` and the schema print them.

mod emmc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use emmc::{
    BusMode, CachePolicy, CacheSettings, HostSettings, SlcMode, SlcSettings, WakeQuantile, WriteBack,
};

/// A simulated eMMC device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Short name, printed with every result.
    pub name: String,
    /// One sentence on what the device stands for.
    pub about: String,
    /// How the flash is built.
    pub geometry: GeometrySettings,
    /// How much of the flash the host sees.
    pub capacity: CapacitySettings,
    /// What runs beside what, and how long the bus takes.
    pub timing: TimingSettings,
    /// Between the host and the flash.
    pub controller: ControllerSettings,
    /// Where logical data is found.
    pub mapping: MappingSettings,
    /// Where new data goes.
    pub allocation: AllocationSettings,
    /// How space is won back.
    pub gc: GcSettings,
    /// How wear is spread and when blocks fail.
    pub wear: WearSettings,
    /// Sleep and waking.
    pub power: PowerSettings,
    /// The driver above the device.
    pub host: HostSettings,
    /// The device's RAM for data.
    pub cache: CacheSettings,
    /// Blocks in SLC mode.
    pub slc: SlcSettings,
}

impl Settings {
    /// The block groups as they are used: as given, those in SLC mode taken out of theirs and put at the end.
    pub fn block_groups(&self) -> Vec<BlockGroup> {
        let mut groups = self.geometry.block_groups.clone();
        let slc = &self.slc;
        if slc.mode == SlcMode::Off {
            return groups;
        }
        if let Some(from) = groups.get_mut(slc.group as usize) {
            from.blocks -= slc.blocks;
            let group = BlockGroup {
                blocks: slc.blocks,
                pages_per_block: from.pages_per_block / 2,
                cell_mode: CellMode::Slc,
                read_us: slc.read_us,
                program_us: slc.program_us,
                erase_us: slc.erase_us,
                erase_limit: slc.erase_limit,
                spare_blocks: 0,
                ..from.clone()
            };
            groups.push(group);
        }
        groups
    }
}

/// Counts of channels, chips, dies, planes and blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GeometrySettings {
    /// Channels (buses) of the device.
    pub channels: u32,
    /// Flash chips on a channel.
    pub chips_per_channel: u32,
    /// Dies in a chip.
    pub dies_per_chip: u32,
    /// Planes in a die.
    pub planes_per_die: u32,
    /// Kinds of blocks in every plane; more than one makes a hybrid-page-size device.
    pub block_groups: Vec<BlockGroup>,
}

impl Default for GeometrySettings {
    fn default() -> Self {
        Self {
            channels: 1,
            chips_per_channel: 1,
            dies_per_chip: 1,
            planes_per_die: 1,
            block_groups: Vec::new(),
        }
    }
}

/// Blocks of one page size in every plane, with the times of their cells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BlockGroup {
    /// Page size in KB: 4, 8 or 16.
    pub page_kb: u32,
    /// Blocks of this group in a plane.
    pub blocks: u32,
    /// Pages in a block.
    pub pages_per_block: u32,
    /// Bits in a cell; only named in results, the times below say what it means.
    pub cell_mode: CellMode,
    /// Array time of a page read.
    pub read_us: f64,
    /// Array time of a page program.
    pub program_us: f64,
    /// Time of a block erase.
    pub erase_us: f64,
    /// Energy of a page read.
    pub read_uj: f64,
    /// Energy of a page program.
    pub program_uj: f64,
    /// Energy of a block erase.
    pub erase_uj: f64,
    /// Erases that a block stands before it goes bad; 0 = never goes bad.
    pub erase_limit: u32,
    /// Blocks of a plane kept back until others go bad.
    pub spare_blocks: u32,
}

impl Default for BlockGroup {
    fn default() -> Self {
        Self {
            page_kb: 4,
            blocks: 0,
            pages_per_block: 0,
            cell_mode: CellMode::Mlc,
            read_us: 0.0,
            program_us: 0.0,
            erase_us: 0.0,
            read_uj: 0.0,
            program_uj: 0.0,
            erase_uj: 0.0,
            erase_limit: 0,
            spare_blocks: 0,
        }
    }
}

/// Bits stored in a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CellMode {
    /// One.
    Slc,
    /// Two.
    #[default]
    Mlc,
    /// Three.
    Tlc,
    /// Four.
    Qlc,
}

/// The logical capacity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CapacitySettings {
    /// Spare flash as a share of the logical capacity: logical = raw / (1 + share). 0 only without collection.
    pub over_provisioning_pct: f64,
}

impl Default for CapacitySettings {
    fn default() -> Self {
        Self { over_provisioning_pct: 7.0 }
    }
}

/// Parallelism, bus and completion.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "one for each optional flash command")]
pub struct TimingSettings {
    /// Which part of the flash does one thing at a time.
    pub parallelism: Parallelism,
    /// With multi-plane commands: planes work together only on pages of the same offset in their blocks.
    pub same_offset: bool,
    /// Collection copies pages inside a plane without the bus.
    pub copy_back: bool,
    /// The next page is sensed while the bus still carries the last one.
    pub cache_read: bool,
    /// The bus carries the next page while the last one is programmed.
    pub cache_program: bool,
    /// Bus time of a command and its address.
    pub command_ns: f64,
    /// Bus time of a byte of data.
    pub bus_ns_per_byte: f64,
    /// Further time of a byte on its way to the flash, where the interface is slower for writes.
    pub bus_write_extra_ns_per_byte: f64,
    /// Energy of a KB on the bus.
    pub bus_uj_per_kb: f64,
    /// When a write counts as complete.
    pub write_complete: WriteComplete,
}

/// The unit that does one thing at a time (the advanced commands of SSDsim, Hu et al., ICS 2011).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Parallelism {
    /// A chip does one thing at a time.
    #[default]
    None,
    /// The dies of a chip work beside each other.
    Interleave,
    /// A chip works on one die at a time, whose planes work beside each other.
    MultiPlane,
    /// Every plane works for itself.
    Both,
}

/// When a write is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WriteComplete {
    /// The cells are written: what a device without a cache promises.
    #[default]
    Programmed,
    /// The data has crossed the bus: SSDsim's view; the program time is felt by whoever comes next.
    Transferred,
}

/// The command path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ControllerSettings {
    /// Which page operation goes first.
    pub scheduling: Scheduling,
    /// Requests inside the device at once; 1 is an eMMC without a command queue, up to 32 one with it (`EXT_CSD` `CMDQ_DEPTH`,
    /// eMMC 5.1), 0 is no limit.
    pub queue_depth: u32,
    /// Fixed time of a read command before the flash is asked.
    pub read_overhead_us: f64,
    /// Fixed time of a write command before the flash is asked.
    pub write_overhead_us: f64,
    /// Time of a KB between host and device, before a write or after a read of the flash.
    pub host_us_per_kb: f64,
    /// Bus mode, which gives the time between host and device instead.
    pub bus_mode: BusMode,
    /// Time that a reliable write takes on top, for keeping the old data until the new is whole.
    pub reliable_write_us: f64,
    /// The data of a packed write is programmed as one stream, so that a page may hold units of several entries; otherwise
    /// each entry fills pages of its own. The standard (eMMC 5.1, 6.6.29) says how a pack is transferred, not how it lies.
    pub share_packed_pages: bool,
}

/// Order of page operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scheduling {
    /// In the order of arrival.
    #[default]
    Fifo,
    /// Reads before writes that have not begun (SSDsim).
    ReadFirst,
}

/// The map from logical to physical.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MappingSettings {
    /// Mapping scheme.
    pub scheme: Scheme,
    /// Planes that work as one: their pages make a clustered page, their blocks a clustered block (Kang et al., J. Systems
    /// Architecture 2007).
    pub clustering: Clustering,
    /// Size of a map entry in KB: 4, 8 or 16. Below the page size, a page holds any units of a request, in its order;
    /// at the page size, data is aligned to pages and a smaller overwrite reads the old page first (SSDsim).
    pub unit_kb: u32,
    /// What reading something never written costs.
    pub unwritten_read: UnwrittenRead,
    /// `bast`, `fast`, `superblock`: log blocks of a plane (`fast`: the sequential one among them); `block`: blocks of a plane
    /// that can be replaced at once.
    pub log_blocks: u32,
    /// `superblock`: logical blocks in a superblock.
    pub superblock_blocks: u32,
    /// `superblock`: most log blocks of one superblock.
    pub superblock_log_blocks: u32,
    /// `bast`, `fast`, `superblock`: logical blocks (superblocks) of a plane whose page map is in memory at once; that of another
    /// is read from the flash first. 0 = all.
    pub cached_maps: u32,
    /// `dftl`: map entries in memory.
    pub cached_entries: u32,
}

impl Default for MappingSettings {
    fn default() -> Self {
        Self {
            scheme: Scheme::Page,
            clustering: Clustering::None,
            unit_kb: 4,
            unwritten_read: UnwrittenRead::Flash,
            log_blocks: 8,
            superblock_blocks: 4,
            superblock_log_blocks: 4,
            cached_maps: 0,
            cached_entries: 4096,
        }
    }
}

/// Mapping schemes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scheme {
    /// Every unit may lie anywhere; the whole map is in memory.
    #[default]
    Page,
    /// A logical block is one block, its pages in their places; an overwrite goes to a replacement that is completed later.
    Block,
    /// Hybrid: a log block for each data block that is overwritten (Kim et al., IEEE Trans. Consumer Electronics 2002).
    Bast,
    /// Hybrid: log blocks shared by all data blocks, one of them sequential (Lee et al., ACM TECS 2007).
    Fast,
    /// Hybrid: neighbouring logical blocks share data and log blocks with a page map among them (Kang et al., EMSOFT 2006).
    Superblock,
    /// As `page`, but the map is on the flash and the entries in use are in memory (Gupta et al., ASPLOS 2009).
    Dftl,
}

impl Scheme {
    /// Whether a logical block has blocks of its own, which are merged instead of collected.
    pub const fn maps_blocks(self) -> bool {
        !matches!(self, Scheme::Page | Scheme::Dftl)
    }
}

/// Planes that work as one, from the smallest gang to the largest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Clustering {
    /// Every plane works for itself.
    #[default]
    None,
    /// The planes of a die.
    Planes,
    /// The planes of all dies of a chip.
    Dies,
    /// The planes of all chips on a channel.
    Chips,
    /// All planes of the device.
    Channels,
}

/// Reads of what was never written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnwrittenRead {
    /// As if the data had been there before the trace, striped over the planes.
    #[default]
    Flash,
    /// Nothing: the map says that there is no data.
    Free,
}

/// Placement of new data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AllocationSettings {
    /// How a plane is chosen.
    pub policy: AllocationPolicy,
    /// Order in which consecutive pages (static), or pages when all is idle (dynamic), go round.
    pub order: StripeOrder,
    /// Write requests up to this size go to blocks of their own (hot data); 0 = off.
    pub hot_max_kb: u32,
}

impl Default for AllocationSettings {
    fn default() -> Self {
        Self { policy: AllocationPolicy::Dynamic, order: StripeOrder::ChannelFirst, hot_max_kb: 0 }
    }
}

/// How a plane is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AllocationPolicy {
    /// The unit that is free first.
    #[default]
    Dynamic,
    /// By the logical address.
    Static,
}

/// Which coordinate changes first from page to page; the others follow in the order channel, chip, die, plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StripeOrder {
    /// Channels.
    #[default]
    ChannelFirst,
    /// Chips.
    ChipFirst,
    /// Dies.
    DieFirst,
    /// Planes.
    PlaneFirst,
}

/// Garbage collection, per plane and block group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GcSettings {
    /// Victim policy: `none`, or one of the policies in `ftl/gc`.
    pub policy: String,
    /// How a collection is spread over time.
    pub mode: GcMode,
    /// Free blocks at or below which incremental and idle collection work.
    pub soft_free_blocks: u32,
    /// Free blocks at or below which a write waits for collection; at least 1.
    pub hard_free_blocks: u32,
    /// Incremental: pages copied for each page the host writes.
    pub pages_per_step: u32,
    /// `d_choices`: blocks sampled.
    pub choices: u32,
    /// `windowed_greedy`: oldest blocks looked at.
    pub window: u32,
    /// Idle time after which collection works in the background; 0 = never (BKOPS, JESD84-B51, 6.6.25).
    pub idle_after_us: f64,
    /// Free blocks at or below which idle collection works; 0 = as `soft_free_blocks`.
    pub idle_free_blocks: u32,
    /// A request interrupts idle collection after the page under way (HPI); otherwise it waits for the block.
    pub hpi: bool,
    /// Time that the interruption takes.
    pub hpi_us: f64,
    /// Free blocks at or below which collection begins without idle time and is not interrupted (`BKOPS_STATUS` 3); 0 = never.
    pub urgent_free_blocks: u32,
    /// Seed of sampling policies.
    pub seed: u64,
}

impl Default for GcSettings {
    fn default() -> Self {
        Self {
            policy: "greedy".into(),
            mode: GcMode::Blocking,
            soft_free_blocks: 4,
            hard_free_blocks: 1,
            pages_per_step: 4,
            choices: 10,
            window: 64,
            idle_after_us: 0.0,
            idle_free_blocks: 0,
            hpi: true,
            hpi_us: 0.0,
            urgent_free_blocks: 0,
            seed: 1,
        }
    }
}

/// How a collection is spread over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GcMode {
    /// Whole blocks, while the write that needs the space waits.
    #[default]
    Blocking,
    /// A few pages with every host write below the soft threshold; whole blocks at the hard one.
    Incremental,
}

/// Wear levelling and the end of life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WearSettings {
    /// Which blocks are evened out.
    pub levelling: Levelling,
    /// `static`: difference in erases between a plane's most and least worn block above which cold data is moved.
    pub threshold: u32,
}

impl Default for WearSettings {
    fn default() -> Self {
        Self { levelling: Levelling::None, threshold: 100 }
    }
}

/// Wear levelling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Levelling {
    /// Free blocks are used in the order in which they became free.
    #[default]
    None,
    /// The least worn free block is used next.
    Dynamic,
    /// As dynamic, and cold data is moved off the least worn blocks.
    Static,
}

/// Sleep, waking, and power by state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PowerSettings {
    /// Idle time after which the device sleeps; 0 = never.
    pub sleep_after_us: f64,
    /// Time to wake up, paid by the request that comes.
    pub wake_us: f64,
    /// Distribution of the time to wake up instead of `wake_us`: points in rising order, the last at 100 %, straight lines
    /// between them.
    pub wake_quantiles: Vec<WakeQuantile>,
    /// Seed of the wake-up times.
    pub seed: u64,
    /// Power while working, on top of what the flash takes.
    pub active_mw: f64,
    /// Power while idle and awake.
    pub idle_mw: f64,
    /// Power asleep.
    pub sleep_mw: f64,
    /// Power while waking up.
    pub waking_mw: f64,
}
