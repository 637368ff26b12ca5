//! RAID 0: stripes of two disks take turns (a pilot solution of FAST 2012).
//!
//! The sectors of a disk that a request covers lie there in one run, so they go there as one command, as `md` with
//! merging below it does. A request within a stripe is served by one disk alone. Nothing is kept but the addresses: after a cut of power there is nothing to restore.

use emmclab_base::{BlockNote, Error, Kind as ErrorKind, Modifiers, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Table;

use crate::counters::counters;
use crate::kind::{Kind, read_settings};
use crate::layer::{Area, Below, Decision, Layer};
use crate::plan::{Memory, Plan};
use crate::request::HostRequest;
use crate::setting::settings_of;
use crate::size::Size;
use crate::stripes::Stripes;

pub(crate) const KIND: Kind = Kind {
    name: "raid0",
    about: "stripes over the device and a second one; of disks of different size, twice the smaller one",
    build,
    settings: settings_of::<Raid0Settings>,
};

/// Settings of RAID 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Raid0Settings {
    /// Length of a stripe, a multiple of 4 KB.
    pub stripe: Size,
}

impl Default for Raid0Settings {
    fn default() -> Self {
        Self { stripe: Size::kb(64) }
    }
}

counters! {
    /// Requests that went to the device, and to the second one; a request over both counts at each.
    first_requests,
    second_requests,
    /// Bytes of them.
    first_bytes,
    second_bytes,
    /// Requests over both.
    split_requests,
}

struct Raid0 {
    stripes: Stripes,
    capacity: u64,
    counters: Counters,
}

fn build(table: &Table, below: &Below) -> Result<Box<dyn Layer>> {
    let Raid0Settings { stripe } = read_settings(KIND.name, table)?;
    let refuse = |problem: String, hint: &str| Err(Error::new(ErrorKind::Config, problem).hint(hint));
    let Some(second) = below.second else {
        return refuse(
            "layer `raid0`: there is no second device".to_owned(),
            "name one, as --device2 nexus5",
        );
    };
    if stripe.0 == 0 || !stripe.0.is_multiple_of(4096) {
        return refuse(
            format!("layer `raid0`: `stripe` is {stripe}; it must be a multiple of 4KB"),
            "give one, as --set raid0.stripe=64KB",
        );
    }
    let stripes = Stripes(stripe.sectors());
    let capacity = stripes.capacity([below.main, second]);
    if capacity == 0 {
        let smaller = Size(below.main.min(second).saturating_mul(512));
        return refuse(
            format!("layer `raid0`: `stripe` is {stripe}, the smaller disk has {smaller}"),
            "give a smaller stripe",
        );
    }
    Ok(Box::new(Raid0 { stripes, capacity, counters: Counters::default() }))
}

impl Raid0 {
    /// The parts of a request: disk, sector on it, sectors, in order of their addresses.
    fn parts(&self, request: &HostRequest) -> impl Iterator<Item = (u8, u64, u32)> {
        let (stripes, mut at, end) = (self.stripes, request.sector, request.end());
        std::iter::from_fn(move || {
            let (disk, place, run) = stripes.place(at);
            let sectors = run.min(end - at);
            at += sectors;
            (sectors > 0).then_some((disk, place, sectors as u32))
        })
    }
}

impl Layer for Raid0 {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn areas(&self) -> Vec<Area> {
        vec![Area { disk: 1, sector: 0, sectors: self.capacity / 2 }]
    }

    fn accepts(&self) -> Modifiers {
        // Each part of a write is durable by itself; a flush or an order over two disks is the driver's.
        Modifiers::DURABLE
    }

    fn request(&mut self, request: &HostRequest, _: &[BlockNote], plan: &mut Plan) -> Decision {
        plan.flag(request.modifiers);
        if request.sectors == 0 {
            plan.bare(0, request.op, 0, 0);
            plan.bare(1, request.op, 0, 0);
            return Decision::Run;
        }
        let mut bytes = [0; 2];
        for disk in 0..2 {
            let (mut offset, mut first, mut sectors) = (0, None, 0);
            for (on, place, length) in self.parts(request) {
                if on == disk {
                    if first.is_none() && request.op.has_data() {
                        plan.begin(disk, request.op, place);
                    }
                    first = first.or(Some(place));
                    sectors += length;
                    if request.op.has_data() {
                        plan.piece(Memory::Payload, offset, length);
                    }
                }
                offset += length;
            }
            if let Some(first) = first.filter(|_| !request.op.has_data()) {
                plan.bare(disk, request.op, first, sectors);
            }
            bytes[usize::from(disk)] = u64::from(sectors) * 512;
        }
        let [first, second] = bytes;
        self.counters.first_requests += u64::from(first > 0);
        self.counters.second_requests += u64::from(second > 0);
        self.counters.first_bytes += first;
        self.counters.second_bytes += second;
        self.counters.split_requests += u64::from(first > 0 && second > 0);
        Decision::Run
    }

    fn clear_counters(&mut self) {
        self.counters = Counters::default();
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.counters.since(&Counters::default())
    }
}
