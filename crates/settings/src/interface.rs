//! The interface between host and device (eMMC or UFS), its optional capabilities, and the driver above it.

use emmclab_base::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The interface between host and device. All but `kind` belongs to UFS (JESD220; UFSHCI, JESD223): an eMMC has its bus in `controller`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct InterfaceSettings {
    /// The kind of interface: eMMC or UFS. Settings of the other kind are refused.
    pub kind: InterfaceKind,
    /// UFS: lanes of the link in each direction, 1 or 2. Both directions carry data at once.
    pub lanes: u32,
    /// UFS: gear of every lane.
    pub gear: LinkGear,
    /// UFS: queues of the host controller, up to 32 (UFSHCI 4), which share the tags of `controller.queue_depth`; commands take them
    /// in turn. 0 = the single list of up to 32 commands of UFSHCI 2 and 3.
    pub queues: u32,
    /// UFS: time that a queue needs to hand a command over to the device before it can hand over its next one.
    pub command_us: f64,
    /// UFS: time of FUA in addition to the program that it waits for.
    pub fua_us: f64,
}

impl InterfaceSettings {
    /// Bytes a second that the link carries in each direction; 0 if there is no link.
    pub fn link_bytes_per_s(&self) -> u64 {
        self.gear.bytes_per_s() * u64::from(self.lanes)
    }

    /// Whether the device is a UFS.
    pub fn is_ufs(&self) -> bool {
        self.kind == InterfaceKind::Ufs
    }
}

/// The kind of a device's interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InterfaceKind {
    /// An eMMC: one bus for commands and data of both directions.
    #[default]
    Emmc,
    /// A UFS: a link that carries data in both directions at once, commands with tags that complete in any order, FUA and SYNCHRONIZE
    /// CACHE in place of reliable writes and barriers.
    Ufs,
}

/// Gear of a lane in high-speed rate series B (M-PHY): bytes a second after its 8b10b code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LinkGear {
    /// There is no link.
    #[default]
    None,
    /// 146 million bytes a second.
    HsG1,
    /// 292 million bytes a second.
    HsG2,
    /// 583 million bytes a second: most of UFS 2.
    HsG3,
    /// 1,166 million bytes a second: most of UFS 3.
    HsG4,
    /// 2,332 million bytes a second: most of UFS 4.
    HsG5,
}

impl LinkGear {
    /// Bytes a second of a lane.
    pub const fn bytes_per_s(self) -> u64 {
        match self {
            Self::None => 0,
            Self::HsG1 => 145_760_000,
            Self::HsG2 => 291_520_000,
            Self::HsG3 => 583_040_000,
            Self::HsG4 => 1_166_080_000,
            Self::HsG5 => 2_332_160_000,
        }
    }
}

/// Optional functions, as the `EXT_CSD` register states them (JESD84-B51, 7.4). The cache and its order are settings of `cache`,
/// the command queue is one of `controller`. If a function is missing, the device uses a flush to serve a command that requests it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FeatureSettings {
    /// Reliable writes of any length (`EXT_CSD` `WR_REL_PARAM` [166] bit 2, `EN_REL_WR`). Without them, such a write is a plain
    /// one and a flush.
    pub reliable_write: bool,
    /// Cache barriers (`EXT_CSD` `BARRIER_SUPPORT` [486], eMMC 5.1), if there is a cache. Without them, a barrier is a flush.
    pub barrier: bool,
    /// Maximum number of entries of a packed write (`EXT_CSD` `MAX_PACKED_WRITES` [500], eMMC 4.5); 0 = not supported.
    pub packed_writes: u32,
    /// Maximum number of entries of a packed read (`EXT_CSD` `MAX_PACKED_READS` [501], eMMC 4.5); 0 = not supported.
    pub packed_reads: u32,
}

/// Entries that the header block of a packed command has room for.
pub const MOST_PACKED: u32 = 63;

impl Default for FeatureSettings {
    fn default() -> Self {
        Self { reliable_write: true, barrier: true, packed_writes: MOST_PACKED, packed_reads: MOST_PACKED }
    }
}

/// The host's block layer and MMC driver: the treatment of requests before the device sees them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HostSettings {
    /// The kernel whose block layer and MMC driver determine to which commands the flags of a request are translated.
    pub kernel: KernelEra,
    /// Block size of the host's file system, such as 16 KB on Android 15: reads and writes of a trace are extended to whole blocks, because
    /// the page cache has the rest of each block. 4, 8, 16, 32 or 64; 0 = requests are as they are.
    pub block_kb: u32,
    /// Maximum size of a request that is merged from neighbours in the block layer's queue; 0 = no merging. Linux allows 512 KB.
    pub merge_max_kb: u32,
    /// Maximum number of write requests in one packed command (at most `features.packed_writes`); 0 = no packing, or as many
    /// as the device supports if `kernel` packs and the device has one command at a time.
    pub packed_writes: u32,
    /// Maximum number of read requests in one packed command (at most `features.packed_reads`); 0 = no packing. Linux never packed reads.
    pub packed_reads: u32,
    /// Maximum amount of data in a packed command, without its header block.
    pub packed_max_kb: u32,
    /// Time from the arrival of a request until the driver has fetched it. It may overlap with an earlier command, and is part
    /// of neither the queueing nor the service time.
    pub fetch_us: f64,
}

impl HostSettings {
    /// The time of fetching.
    pub fn fetch(&self) -> Nanos {
        Nanos((self.fetch_us * 1e3).round() as i64)
    }
}

impl Default for HostSettings {
    fn default() -> Self {
        Self {
            kernel: KernelEra::Given,
            block_kb: 0,
            merge_max_kb: 0,
            packed_writes: 0,
            packed_reads: 0,
            packed_max_kb: 16384,
            fetch_us: 0.0,
        }
    }
}

/// Kernels that differ in the commands that they make of the flags of a request. No Linux driver uses forced programming.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum KernelEra {
    /// No kernel in particular: a request is one command with the flags that it has.
    #[default]
    #[serde(rename = "given")]
    Given,
    /// 3.9 to 4.3: writes are packed (commit ce39f9d17c14), and metadata (`REQ_META`) is written by reliable writes, as FUA is.
    #[serde(rename = "linux_3.10")]
    Linux310,
    /// 4.4 to 4.9: writes are packed, and only FUA is a reliable write (commit d3df0465db00).
    #[serde(rename = "linux_4.9")]
    Linux49,
    /// 4.10 and later: nothing is packed (commit 03d640ae1f9b), and FUA is a reliable write.
    #[serde(rename = "linux_5.10")]
    Linux510,
    /// As `linux_5.10`, but without FUA: a write with FUA is a write and a flush, as with `MMC_QUIRK_AVOID_REL_WRITE` (6.4)
    /// and on hosts without CMD23.
    #[serde(rename = "linux_no_fua")]
    LinuxNoFua,
    /// Kernels of phone makers, from 3.10 to 4.4: as `linux_4.9`, but a write with preflush and FUA, the commit of a journal, has a
    /// cache barrier before it instead of a flush; nothing, if the cache keeps the order of writes.
    #[serde(rename = "vendor_barrier")]
    VendorBarrier,
}

/// The rules of a kernel's block layer and driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a rule by itself")]
pub struct KernelRules {
    /// Whether waiting writes are sent as packed commands.
    pub packs: bool,
    /// Whether metadata is written by reliable write.
    pub reliable_metadata: bool,
    /// Whether FUA is a reliable write, if the device supports that; otherwise it is a flush after the write.
    pub fua: bool,
    /// Whether a commit has a cache barrier before it instead of a flush.
    pub barriers: bool,
    /// Whether the kernel supports the command queue of eMMC 5.1 (Linux 4.16).
    pub queues: bool,
}

impl KernelEra {
    /// Its rules; `None` for [`KernelEra::Given`].
    pub const fn rules(self) -> Option<KernelRules> {
        let linux = KernelRules { packs: false, reliable_metadata: false, fua: true, barriers: false, queues: true };
        Some(match self {
            Self::Given => return None,
            Self::Linux310 => KernelRules { packs: true, reliable_metadata: true, queues: false, ..linux },
            Self::Linux49 => KernelRules { packs: true, queues: false, ..linux },
            Self::Linux510 => linux,
            Self::LinuxNoFua => KernelRules { fua: false, ..linux },
            Self::VendorBarrier => KernelRules { packs: true, barriers: true, ..linux },
        })
    }
}
