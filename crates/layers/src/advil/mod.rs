//! Advil (Kim & Kim, "Advil: A Pain Reliever for the Storage Performance of Mobile Devices"): small random writes are logged in a
//! reserved area and moved to their own addresses later, one clustered block at a time.
//!
//! Two features are not in the paper: log records from which the state is restored after a power cut (`recovery`), and a hot-data
//! policy that keeps only data that was overwritten in the log (`hot = "rewritten"`).

mod checkpoint;
mod counters;
mod filler;
mod heat;
mod journal;
mod mover;
mod record;
mod recovery;
mod router;
mod section;
mod settings;

use std::io;

use emmclab_base::{BlockNote, Op, Result};
use toml::Table;

use crate::in_flight::InFlightRequests;
use crate::interval_map::IntervalMap;
use crate::layer::{BackgroundDecision, DisksBelow, Layer, RecoveryReader, RequestDecision, ReservedArea};
use crate::layer_kind::{LayerKind, read_settings};
use crate::layer_setting::settings_of;
use crate::plan::CommandPlan;
use crate::request::HostRequest;

use checkpoint::AdvilCheckpointState;
use counters::LayerCounters;
use heat::PageHeat;
use journal::AdvilJournal;

use mover::MoverState;
use section::ReservedSection;
use settings::AdvilParameters;
pub use settings::{AdvilSettings, HotPolicy, InvalidationMeasure, MoverSchedule};

pub(crate) const KIND: LayerKind = LayerKind {
    name: "advil",
    about: "logs small random writes in a reserved area, keeps hot data there, moves the rest in padded blocks",
    build,
    settings: settings_of::<AdvilSettings>,
};

fn build(table: &Table, below: &DisksBelow) -> Result<Box<dyn Layer>> {
    Ok(Box::new(Advil::new(KIND.name, &read_settings(KIND.name, table)?, below)?))
}

/// The layer: router, mover and filler, which share one map.
pub struct Advil {
    name: &'static str,
    shape: AdvilParameters,
    map: IntervalMap,
    heat: PageHeat,
    sections: [ReservedSection; 2],
    /// The section that is being filled.
    current: usize,
    moving: MoverState,
    journal: AdvilJournal,
    checkpoints: AdvilCheckpointState,
    counters: LayerCounters,
    /// The counters at the time when they were cleared.
    cleared: LayerCounters,
    /// The end of the previous request.
    previous_end: u64,
    /// Whether a request was deferred for lack of room since the last move.
    pressed: bool,
}

impl Advil {
    /// Creates a layer called `name` on new disks.
    ///
    /// # Errors
    /// [`emmclab_base::ErrorClass::Config`] that lists every invalid setting.
    pub fn new(name: &'static str, settings: &AdvilSettings, below: &DisksBelow) -> Result<Self> {
        let shape = settings.shape(name, below)?;
        let heat = PageHeat::new(&shape);
        let mut sections =
            [0, 1].map(|i| ReservedSection::new(shape.before + i * shape.section, shape.section, shape.reach()));
        let hot = heat.first_region(shape.section);
        sections[0].open(1, shape.header, hot);
        Ok(Self {
            name,
            map: IntervalMap::new(shape.capacity),
            heat,
            sections,
            current: 0,
            moving: MoverState::default(),
            journal: AdvilJournal::default(),
            checkpoints: AdvilCheckpointState::default(),
            counters: LayerCounters::default(),
            cleared: LayerCounters::default(),
            previous_end: u64::MAX,
            pressed: false,
            shape,
        })
    }

    /// Peak memory of the map and the counts so far, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.map.most_bytes() + self.heat.bytes() + self.checkpoints.bytes()
    }

    /// The generation of the record or copy at a place.
    fn generation_at(&self, place: u32) -> u64 {
        self.sections[usize::from(!self.sections[0].holds(place))].generation
    }
}

impl Layer for Advil {
    fn name(&self) -> &'static str {
        self.name
    }

    fn capacity(&self) -> u64 {
        self.shape.capacity
    }

    fn areas(&self) -> Vec<ReservedArea> {
        vec![self.shape.reserved]
    }

    fn recover(&mut self, disks: &mut dyn RecoveryReader) -> io::Result<()> {
        if self.shape.header == 0 {
            return Err(io::Error::other("this layer was set up without recovery; the logged data is lost"));
        }
        self.read_back(disks)
    }

    fn start(&mut self, plan: &mut CommandPlan) {
        self.write_start(plan);
    }

    #[inline]
    fn request(&mut self, request: &HostRequest, _: &[BlockNote], plan: &mut CommandPlan) -> RequestDecision {
        plan.flag(request.modifiers);
        match request.op {
            Op::Read => self.route_read(request, plan),
            Op::Write => self.route_write(request, plan),
            Op::Discard | Op::SecureErase => self.route_discard(request, plan),
            Op::Flush => self.route_flush(request, plan),
        }
    }

    fn completed(&mut self, id: u64) {
        self.journal.completed(id);
    }

    fn background(&mut self, in_flight: &InFlightRequests, plan: &mut CommandPlan) -> BackgroundDecision {
        self.next_move(in_flight, plan)
    }

    fn background_done(&mut self) {
        self.pressed = false;
        if !self.checkpointed() {
            self.step_done();
        }
    }

    fn drain(&mut self) {
        self.moving.drain();
    }

    fn clear_counters(&mut self) {
        // The mover uses the counts for its decisions, so they continue; only their values at this moment are kept.
        self.cleared = self.counters.clone();
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.counters.since(&self.cleared);
        all.push(("map_entries", self.map.len()));
        all.push(("map_entries_most", self.map.most_runs()));
        all.push(("memory_bytes", self.memory_bytes()));
        all.push(("hot_region_pct", u64::from(self.heat.hot_pct)));
        all
    }
}
