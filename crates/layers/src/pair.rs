//! Pair: requests are divided between the device and a second device (Implication 1 of IISWC 2015; RAID 0 of FAST 2012).
//!
//! The address or the length of a request determines the disk of each part. The disks work independently, and a request is complete when
//! all of its parts are complete. Addresses are packed, so that each disk has a contiguous range. Parts of a request that are adjacent on a
//! disk are sent as a single command; with Linux `md`, the block layer merges them. The layer has no state except its settings, so nothing
//! must be restored after a power cut.

use emmclab_base::{BlockNote, ByteSize, CommandFlags, Error, ErrorClass as ErrorKind, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Table;

use crate::layer::{DisksBelow, HostRequest, Layer, RequestDecision, ReservedArea};
use crate::plan::{CommandPlan, PlanMemory};
use crate::registry::{LayerKind, read_settings, settings_of};

pub(crate) const KIND: LayerKind = LayerKind {
    name: "pair",
    about: "divides requests between the device and a second one, by stripes (RAID 0), address or size",
    build,
    settings: settings_of::<PairSettings>,
};

/// The division of requests between the two disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum PairRouting {
    /// All requests go to the device.
    #[default]
    Internal,
    /// Stripes alternate between the disks (RAID 0). The capacity is twice that of the smaller disk.
    Striping,
    /// Addresses from a border on are on the second device.
    ByFile,
    /// Long requests go to the second device. Each disk spans all addresses, and the layer does not record which disk has the newest data.
    /// This routing is for measuring times; contents are not stored.
    BySize,
}

/// Settings of the pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct PairSettings {
    /// How requests are divided between the devices. `internal` uses only the first device. With `by_size`, no contents are stored.
    pub routing: PairRouting,
    /// Length of a stripe, a multiple of 4 KB.
    pub chunk: ByteSize,
    /// First address of the second device with `by_file`; by default, the end of the device.
    pub border: Option<ByteSize>,
    /// Maximum length of a request for the device with `by_size`; longer ones go to the second device.
    pub longest: ByteSize,
    /// Whether addresses beyond the end of a disk are wrapped into the disk, separately for each disk. This permits the replay of a trace
    /// of a larger device. Several addresses then share a location, and no contents are stored.
    pub wrap_addresses: bool,
}

impl Default for PairSettings {
    fn default() -> Self {
        Self {
            routing: PairRouting::Internal,
            chunk: ByteSize::kb(64),
            border: None,
            longest: ByteSize::kb(64),
            wrap_addresses: false,
        }
    }
}

/// Requests and bytes of one disk.
#[derive(Clone, Copy, Debug, Default)]
struct DiskShare {
    requests: u64,
    bytes: u64,
}

struct PairLayer {
    routing: PairRouting,
    stripes: DiskStripes,
    border: u64,
    longest: u32,
    wrap: bool,
    /// Sectors of each disk.
    disks: [u64; 2],
    shares: [DiskShare; 2],
}

#[derive(Clone, Copy)]
struct RequestPart {
    disk: u8,
    /// First sector on the disk.
    sector: u64,
    sectors: u32,
    /// Offset of the part in the data of the request, in sectors.
    offset: u32,
}

fn build(table: &Table, below: &DisksBelow) -> Result<Box<dyn Layer>> {
    let settings: PairSettings = read_settings(KIND.name, table)?;
    let refuse = |problem: String, hint: &str| Err(Error::new(ErrorKind::Config, problem).hint(hint));
    // A second device is not required if the user explicitly chooses the first one (`routing = internal`).
    let alone = settings.routing == PairRouting::Internal && table.contains_key("routing");
    if !alone && below.second.is_none() {
        return refuse(
            "layer `pair`: there is no second device".to_owned(),
            "add one, for example --device2 sdcard, or use only the device with --set pair.routing=internal",
        );
    }
    let chunk = settings.chunk;
    if chunk.0 == 0 || !chunk.0.is_multiple_of(4096) {
        return refuse(
            format!("layer `pair`: `chunk` is {chunk}; it must be a multiple of 4KB"),
            "set one, for example --set pair.chunk=64KB",
        );
    }
    let stripes = DiskStripes(chunk.sectors());
    let disks = [below.main, below.second.unwrap_or(0)];
    if settings.routing == PairRouting::Striping && !settings.wrap_addresses && stripes.capacity(disks) == 0 {
        let smaller = ByteSize(disks[0].min(disks[1]).saturating_mul(512));
        return refuse(format!("layer `pair`: `chunk` is {chunk}, the smaller disk has {smaller}"), "use a smaller chunk");
    }
    let border = settings.border.map_or(below.main, ByteSize::sectors);
    if settings.routing == PairRouting::ByFile && border > below.main && !settings.wrap_addresses {
        return refuse("layer `pair`: `border` is beyond the end of the device".to_owned(), "use a smaller one, or none");
    }
    Ok(Box::new(PairLayer {
        routing: settings.routing,
        stripes,
        border,
        longest: u32::try_from(settings.longest.sectors()).unwrap_or(u32::MAX),
        wrap: settings.wrap_addresses,
        disks,
        shares: [DiskShare::default(); 2],
    }))
}

impl PairLayer {
    /// Maps `sector` of a request of `all` sectors, of which `left` remain. Returns the disk, the sector on it, and the number of sectors
    /// that are consecutive there.
    fn place(&self, sector: u64, left: u32, all: u32) -> (u8, u64, u32) {
        match self.routing {
            PairRouting::Internal => (0, sector, left),
            PairRouting::Striping => {
                let (disk, at, sectors) = self.stripes.place(sector);
                (disk, at, u64::from(left).min(sectors) as u32)
            }
            PairRouting::ByFile if sector >= self.border => (1, sector - self.border, left),
            PairRouting::ByFile => (0, sector, u64::from(left).min(self.border - sector) as u32),
            PairRouting::BySize => (u8::from(all > self.longest), sector, left),
        }
    }

    /// The parts of a request in address order.
    fn parts(&self, request: &HostRequest) -> impl Iterator<Item = RequestPart> {
        let (first, all) = (request.sector, request.sectors);
        let mut offset = 0;
        std::iter::from_fn(move || {
            let left = all - offset;
            if left == 0 {
                return None;
            }
            let (disk, sector, sectors) = self.place(first.saturating_add(u64::from(offset)), left, all);
            let part = self.wrap_part(RequestPart { disk, sector, sectors, offset });
            offset += sectors;
            Some(part)
        })
    }

    /// Wraps the address of a part into its disk (modulo the size of the disk). Lowers the address if the part would extend beyond the end
    /// of the disk.
    fn wrap_part(&self, part: RequestPart) -> RequestPart {
        let capacity = self.disks[usize::from(part.disk)];
        if part.sector.saturating_add(u64::from(part.sectors)) <= capacity {
            return part;
        }
        let sectors = u64::from(part.sectors).min(capacity);
        let sector = (part.sector % capacity).min(capacity - sectors);
        RequestPart { sector, sectors: sectors as u32, ..part }
    }

    /// Adds the commands for the parts of a request on one disk. Returns the total number of sectors of these parts.
    fn add_commands(&self, disk: u8, request: &HostRequest, plan: &mut CommandPlan) -> u64 {
        let (mut end, mut sum) = (None, 0);
        for part in self.parts(request).filter(|part| part.disk == disk) {
            if end != Some(part.sector) {
                plan.begin(disk, request.op, part.sector);
            }
            if request.op.has_data() {
                plan.piece(PlanMemory::Payload, part.offset, part.sectors);
            } else {
                plan.lengthen(part.sectors);
            }
            end = Some(part.sector + u64::from(part.sectors));
            sum += u64::from(part.sectors);
        }
        sum
    }
}

impl Layer for PairLayer {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn capacity(&self) -> u64 {
        let [main, second] = self.disks;
        match self.routing {
            _ if self.wrap => u64::MAX,
            PairRouting::Internal => main,
            PairRouting::Striping => self.stripes.capacity(self.disks),
            PairRouting::ByFile => self.border + second,
            PairRouting::BySize => main.min(second),
        }
    }

    fn areas(&self) -> Vec<ReservedArea> {
        let sectors = match self.routing {
            PairRouting::Internal => return Vec::new(),
            PairRouting::Striping if !self.wrap => self.capacity() / 2,
            _ => self.disks[1],
        };
        vec![ReservedArea { disk: 1, sector: 0, sectors }]
    }

    fn accepts(&self) -> CommandFlags {
        // Each part of a split write can be durable by itself. The driver replaces the other flags, because a flush or an order of writes
        // concerns both disks.
        if self.routing == PairRouting::Internal { CommandFlags::all() } else { CommandFlags::DURABLE }
    }

    fn request(&mut self, request: &HostRequest, _: &[BlockNote], plan: &mut CommandPlan) -> RequestDecision {
        plan.flag(request.modifiers);
        if request.sectors == 0 {
            // A request without sectors is a flush, which must reach the caches of both devices.
            self.shares[0].requests += 1;
            plan.bare(0, request.op, 0, 0);
            if self.routing != PairRouting::Internal {
                plan.bare(1, request.op, 0, 0);
            }
            return RequestDecision::Run;
        }
        for disk in 0..2 {
            let sectors = self.add_commands(disk, request, plan);
            let share = &mut self.shares[usize::from(disk)];
            share.requests += u64::from(sectors > 0);
            share.bytes += sectors * 512;
        }
        RequestDecision::Run
    }

    fn clear_counters(&mut self) {
        self.shares = Default::default();
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let [internal, card] = self.shares;
        vec![
            ("internal_requests", internal.requests),
            ("card_requests", card.requests),
            ("internal_bytes", internal.bytes),
            ("card_bytes", card.bytes),
        ]
    }
}

/// Stripes of this many sectors, distributed over two disks. The first stripe is on disk 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskStripes(pub u64);

impl DiskStripes {
    /// Maps a sector. Returns the disk, the sector on it, and the number of consecutive sectors from there on.
    pub fn place(self, sector: u64) -> (u8, u64, u64) {
        let (stripe, offset) = (sector / self.0, sector % self.0);
        ((stripe % 2) as u8, stripe / 2 * self.0 + offset, self.0 - offset)
    }

    /// Capacity in sectors of two disks of these sizes: twice the whole stripes of the smaller disk.
    pub fn capacity(self, disks: [u64; 2]) -> u64 {
        disks[0].min(disks[1]) / self.0 * self.0 * 2
    }
}
