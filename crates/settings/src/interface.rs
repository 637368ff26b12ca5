//! The interface between host and device (eMMC, SD card or UFS), its optional capabilities, and the driver above it.

use emmclab_base::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The interface between host and device. All settings except `kind` apply to UFS (JESD220; UFSHCI, JESD223); the bus of an eMMC or SD card
/// is set in `controller`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct InterfaceSettings {
    /// The kind of interface: eMMC, SD or UFS. Settings that only another kind has are refused.
    pub kind: InterfaceKind,
    /// UFS: lanes of the link in each direction, 1 or 2. Both directions carry data at once.
    pub lanes: u32,
    /// UFS: gear of every lane.
    pub gear: LinkGear,
    /// UFS: queues of the host controller, up to 32 (UFSHCI 4), which share the tags of `controller.queue_depth` in rotation. 0 = the
    /// single list of up to 32 commands of UFSHCI 2 and 3.
    pub queues: u32,
    /// UFS: time between two commands that a queue sends to the device.
    pub command_us: f64,
    /// UFS: time of a FUA write in addition to the program operation that it waits for.
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

/// Kind of the interface of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InterfaceKind {
    /// An eMMC: one bus for commands and data of both directions.
    #[default]
    Emmc,
    /// An SD card: a bus of four bits that carries one transfer at a time, and a line for commands. A card of application class A2 has a
    /// command queue (SD Physical Layer 6.00), others execute one command at a time: see `controller.queue_depth`.
    Sd,
    /// A UFS: a link that transfers data in both directions at once, tagged commands that complete in any order, and FUA and SYNCHRONIZE
    /// CACHE instead of reliable writes and barriers.
    Ufs,
}

impl InterfaceKind {
    /// A device of this kind, for messages.
    pub const fn device(self) -> &'static str {
        match self {
            Self::Emmc => "an eMMC",
            Self::Sd => "an SD card",
            Self::Ufs => "a UFS",
        }
    }
}

/// Gear of a lane in high-speed rate series B (M-PHY). The rates are bytes a second after 8b10b decoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LinkGear {
    /// No link, as for an eMMC.
    #[default]
    None,
    /// 146 million bytes a second.
    HsG1,
    /// 292 million bytes a second.
    HsG2,
    /// 583 million bytes a second: the gear of most UFS 2 devices.
    HsG3,
    /// 1,166 million bytes a second: the gear of most UFS 3 devices.
    HsG4,
    /// 2,332 million bytes a second: the gear of most UFS 4 devices.
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

/// Optional functions of an eMMC, as its `EXT_CSD` register reports them (JESD84-B51, 7.4). The table `cache` sets the cache and its write
/// order, the table `controller` sets the command queue. If a function is missing, the device executes a flush for a command that requires
/// it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FeatureSettings {
    /// Reliable writes of any length (`EXT_CSD` `WR_REL_PARAM` [166] bit 2, `EN_REL_WR`). Without them, a reliable write is a plain write
    /// and a flush.
    pub reliable_write: bool,
    /// Cache barriers (`EXT_CSD` `BARRIER_SUPPORT` [486], eMMC 5.1), if there is a cache. Without them, a barrier is a flush.
    pub barrier: bool,
    /// Maximum number of entries of a packed write (`EXT_CSD` `MAX_PACKED_WRITES` [500], eMMC 4.5); 0 = not supported.
    pub packed_writes: u32,
    /// Maximum number of entries of a packed read (`EXT_CSD` `MAX_PACKED_READS` [501], eMMC 4.5); 0 = not supported.
    pub packed_reads: u32,
}

/// Maximum number of entries in the header block of a packed command.
pub const MOST_PACKED: u32 = 63;

impl Default for FeatureSettings {
    fn default() -> Self {
        Self { reliable_write: true, barrier: true, packed_writes: MOST_PACKED, packed_reads: MOST_PACKED }
    }
}

/// The host's block layer and MMC driver, which process requests before the device receives them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HostSettings {
    /// The kernel whose block layer and MMC driver translate the flags of a request to commands.
    pub kernel: KernelEra,
    /// Block size of the host's file system, such as 16 KB on Android 15. Reads and writes of a trace are extended to whole blocks, because
    /// the page cache reads and writes whole blocks. 4, 8, 16, 32 or 64; 0 = requests are not changed.
    pub block_kb: u32,
    /// Maximum size of a request that is merged from adjacent requests in the queue of the block layer; 0 = no merging. Linux allows 512
    /// KB.
    pub merge_max_kb: u32,
    /// Maximum number of write requests in a packed command (at most `features.packed_writes`); 0 = no packing. Exception: if `kernel`
    /// packs writes and the device executes one command at a time, 0 means the maximum that the device supports.
    pub packed_writes: u32,
    /// Maximum number of read requests in a packed command (at most `features.packed_reads`); 0 = no packing. Linux never packed reads.
    pub packed_reads: u32,
    /// Maximum amount of data in a packed command, without its header block.
    pub packed_max_kb: u32,
    /// Time from the arrival of a request until the driver has fetched it. It may overlap with an earlier command, and counts neither as
    /// queueing nor as service time.
    pub fetch_us: f64,
    /// Time from the end of a command until the driver has issued the next one that waits for its slot in the command queue: the interrupt and
    /// the context switch to the thread of the driver. A software queue (HSQ, Linux 5.8) issues commands from the interrupt; for such a
    /// driver, leave it 0.
    pub issue_us: f64,
}

impl HostSettings {
    /// The value of `fetch_us` in nanoseconds.
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
            issue_us: 0.0,
        }
    }
}

/// Kernel versions, which differ in how they translate the flags of a request to commands. No Linux driver uses forced programming.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum KernelEra {
    /// No specific kernel: a request is one command with its own flags.
    #[default]
    #[serde(rename = "given")]
    Given,
    /// Linux 3.9 to 4.3: writes are packed (commit ce39f9d17c14), and metadata (`REQ_META`) and FUA are written by reliable writes.
    #[serde(rename = "linux_3.10")]
    Linux310,
    /// Linux 4.4 to 4.9: writes are packed, and only FUA is a reliable write (commit d3df0465db00).
    #[serde(rename = "linux_4.9")]
    Linux49,
    /// Linux 4.10 and later: there are no packed commands (commit 03d640ae1f9b), and FUA is a reliable write.
    #[serde(rename = "linux_5.10")]
    Linux510,
    /// As `linux_5.10`, but FUA is a write and a flush, as with `MMC_QUIRK_AVOID_REL_WRITE` (6.4) and on hosts without CMD23.
    #[serde(rename = "linux_no_fua")]
    LinuxNoFua,
    /// Kernels of phone makers, from 3.10 to 4.4: as `linux_4.9`, but a write with preflush and FUA (the commit of a journal) is preceded
    /// by a cache barrier instead of a flush, or by nothing if the cache keeps the order of writes.
    #[serde(rename = "vendor_barrier")]
    VendorBarrier,
}

/// The rules of a kernel's block layer and driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a rule by itself")]
pub struct KernelRules {
    /// Whether waiting writes are sent as packed commands.
    pub packs: bool,
    /// Whether metadata is written by reliable writes.
    pub reliable_metadata: bool,
    /// Whether a FUA write is sent as a reliable write if the device supports reliable writes. Otherwise, the write is followed by a flush.
    pub fua: bool,
    /// Whether the commit of a journal is preceded by a cache barrier instead of a flush.
    pub barriers: bool,
    /// Whether the kernel supports the command queue of eMMC 5.1 (Linux 4.16).
    pub queues: bool,
}

impl KernelEra {
    /// Rules of the kernel; `None` for [`KernelEra::Given`].
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
