//! Pair: the device and a second one beside it share the requests (Implication 1 of IISWC 2015).
//!
//! The address of a request, or its length, decides which disk each part goes to. The two work independently, and a request
//! is complete when all its parts are. Addresses are packed, so that each disk sees a range without holes.

use emmclab_base::{BlockNote, Error, Kind as ErrorKind, Modifiers, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Table;

use crate::kind::{Kind, read_settings};
use crate::layer::{Area, Below, Decision, Layer};
use crate::plan::Plan;
use crate::request::HostRequest;
use crate::setting::settings_of;
use crate::size::Size;
use crate::stripes::Stripes;

pub(crate) const KIND: Kind = Kind {
    name: "pair",
    about: "shares requests between the device and a second one, by stripes, address or size",
    build,
    settings: settings_of::<PairSettings>,
};

/// The division of requests between the two disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// Everything goes to the device.
    #[default]
    Internal,
    /// Stripes take turns (RAID 0).
    Striping,
    /// Addresses from a border on lie on the second device.
    ByFile,
    /// Long requests go to the second device. Each disk spans all addresses and the place of the newest data is not kept, so
    /// this shows times and keeps no contents.
    BySize,
}

/// Settings of the pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PairSettings {
    /// How requests are shared; `internal` leaves the second device alone, and `by_size` keeps no contents.
    pub routing: Routing,
    /// Length of a stripe, a multiple of 4 KB.
    pub chunk: Size,
    /// Where the second device's part of the addresses begins with `by_file`; by default, at the end of the device.
    pub border: Option<Size>,
    /// Longest request for the device with `by_size`; longer ones go to the second device.
    pub longest: Size,
    /// Wrap the addresses beyond a disk into it, each disk for itself, as a replay of a trace of a larger device needs.
    /// Then several addresses share a place and no contents are kept.
    pub wrap_addresses: bool,
}

impl Default for PairSettings {
    fn default() -> Self {
        Self {
            routing: Routing::Internal,
            chunk: Size::kb(64),
            border: None,
            longest: Size::kb(64),
            wrap_addresses: false,
        }
    }
}

/// Requests and bytes of one disk.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    requests: u64,
    bytes: u64,
}

struct Pair {
    routing: Routing,
    stripes: Stripes,
    border: u64,
    longest: u32,
    wrap: bool,
    /// Sectors of each disk.
    disks: [u64; 2],
    shares: [Share; 2],
}

/// A part of a request: disk, first sector there, sectors.
type Part = (u8, u64, u32);

fn build(table: &Table, below: &Below) -> Result<Box<dyn Layer>> {
    let given: PairSettings = read_settings(KIND.name, table)?;
    let refuse = |problem: String, hint: &str| Err(Error::new(ErrorKind::Config, problem).hint(hint));
    let alone = given.routing == Routing::Internal;
    if !alone && below.second.is_none() {
        return refuse("layer `pair`: there is no second device".to_owned(), "name one, as --device2 sdcard");
    }
    if given.chunk.0 == 0 || !given.chunk.0.is_multiple_of(4096) {
        return refuse(
            format!("stripes of {} KB are impossible", given.chunk.0 as f64 / 1024.0),
            "give a multiple of 4 KB, as 64KB",
        );
    }
    let border = given.border.map_or(below.main, Size::sectors);
    if given.routing == Routing::ByFile && border > below.main && !given.wrap_addresses {
        return refuse(
            "layer `pair`: `border` lies beyond the end of the device".to_owned(),
            "give a smaller one, or none",
        );
    }
    Ok(Box::new(Pair {
        routing: given.routing,
        stripes: Stripes(given.chunk.sectors()),
        border,
        longest: u32::try_from(given.longest.sectors()).unwrap_or(u32::MAX),
        wrap: given.wrap_addresses,
        disks: [below.main, below.second.unwrap_or(0)],
        shares: [Share::default(); 2],
    }))
}

impl Pair {
    /// The first part of `left` sectors from `sector` on, of a request of `all`.
    fn part(&self, sector: u64, left: u32, all: u32) -> Part {
        match self.routing {
            Routing::Internal => (0, sector, left),
            Routing::Striping => {
                let (disk, at, sectors) = self.stripes.place(sector);
                (disk, at, u64::from(left).min(sectors) as u32)
            }
            Routing::ByFile if sector >= self.border => (1, sector - self.border, left),
            Routing::ByFile => (0, sector, u64::from(left).min(self.border - sector) as u32),
            Routing::BySize => (u8::from(all > self.longest), sector, left),
        }
    }

    /// The part on its disk: its address modulo the disk's size, moved down where its end would lie beyond.
    fn wrapped(&self, (disk, sector, sectors): Part) -> Part {
        let capacity = self.disks[usize::from(disk)];
        if sector.saturating_add(u64::from(sectors)) <= capacity {
            return (disk, sector, sectors);
        }
        let sectors = u64::from(sectors).min(capacity);
        (disk, (sector % capacity).min(capacity - sectors), sectors as u32)
    }
}

impl Layer for Pair {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn capacity(&self) -> u64 {
        let [main, second] = self.disks;
        match self.routing {
            _ if self.wrap => u64::MAX,
            Routing::Internal => main,
            Routing::Striping => self.stripes.capacity(self.disks),
            Routing::ByFile => self.border + second,
            Routing::BySize => main.min(second),
        }
    }

    fn areas(&self) -> Vec<Area> {
        let second = Area { disk: 1, sector: 0, sectors: self.disks[1] };
        if self.routing == Routing::Internal { Vec::new() } else { vec![second] }
    }

    fn accepts(&self) -> Modifiers {
        // Each part of a write is durable by itself; a flush or an order over two disks is the driver's.
        if self.routing == Routing::Internal { Modifiers::all() } else { Modifiers::DURABLE }
    }

    fn request(&mut self, request: &HostRequest, _: &[BlockNote], plan: &mut Plan) -> Decision {
        plan.flag(request.modifiers);
        if request.sectors == 0 {
            // Both caches have to be empty.
            self.shares[0].requests += 1;
            plan.bare(0, request.op, 0, 0);
            if self.routing != Routing::Internal {
                plan.bare(1, request.op, 0, 0);
            }
            return Decision::Run;
        }
        let (mut sector, mut left) = (request.sector, request.sectors);
        let mut has_part = [false; 2];
        while left > 0 {
            let part @ (.., length) = self.part(sector, left, request.sectors);
            let (disk, to, sectors) = self.wrapped(part);
            if request.op.has_data() {
                plan.payload(disk, request.op, to, request.sectors - left, sectors);
            } else {
                plan.bare(disk, request.op, to, sectors);
            }
            has_part[usize::from(disk)] = true;
            self.shares[usize::from(disk)].bytes += u64::from(sectors) * 512;
            sector = sector.saturating_add(u64::from(length));
            left -= length;
        }
        for (share, has_part) in self.shares.iter_mut().zip(has_part) {
            share.requests += u64::from(has_part);
        }
        Decision::Run
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
