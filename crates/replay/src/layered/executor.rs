//! The executor of the stack: its state, and requests that come from the workload.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use emmclab_device::{Command, Observer, RequestCompleted};
use emmclab_layers::{Below, LayerConfig, build_stack};
use emmclab_trace::{Error, Kind, Nanos, Result, interrupt};

use crate::disks::Disks;
use crate::numbered::Numbered;
use crate::result::LayerResult;

use super::level::{Arrived, Level};
use super::task::{Source, Tasks};

/// The layers and all that is under way.
pub(crate) struct Layered {
    pub(super) levels: Vec<Level>,
    /// The task of each command, by disk and number of the command there.
    pub(super) owners: [Numbered<u32>; 2],
    /// What a disk reported last, kept to reuse its memory.
    pub(super) known: Vec<RequestCompleted>,
    pub(super) tasks: Tasks,
    pub(super) events: BinaryHeap<Reverse<(Nanos, u64, u32)>>,
    pub(super) event_count: u64,
    /// Time of the last event.
    pub(super) now: Nanos,
    pub(super) next_id: u64,
    /// Requests of the workload that are not complete.
    pub(super) open: u64,
    /// Requests that were.
    pub(super) complete: u64,
    pub(super) last_complete: Nanos,
    /// When background work was complete last.
    pub(super) background_done: Nanos,
    pub(super) started: bool,
    /// The first writes to disk 0, and how many are kept.
    pub(super) first_writes: Vec<(u64, u32)>,
    pub(super) first_wanted: u32,
}

/// Time that the layers have to start before the first request.
const START: Nanos = Nanos::from_secs(1);

impl Layered {
    /// Layers, the first on top, for the disks at the bottom; keeps the first `first_wanted` writes to disk 0.
    ///
    /// # Errors
    /// As [`build_stack`], and where there is a second disk that no layer uses.
    pub fn new(configs: &[LayerConfig], below: &Below, first_wanted: u32) -> Result<Self> {
        let levels: Vec<_> = build_stack(configs, below)?.into_iter().map(Level::new).collect();
        let uses_second = |level: &Level| level.layer.areas().iter().any(|area| area.disk == 1);
        if below.second.is_some() && !levels.iter().any(uses_second) {
            return Err(Error::new(Kind::Config, "there is a second device, but no layer uses it")
                .hint("say which one does, as --set advil.second_device=true"));
        }
        Ok(Self {
            levels,
            owners: [Numbered::default(), Numbered::default()],
            known: Vec::new(),
            tasks: Tasks::default(),
            events: BinaryHeap::new(),
            event_count: 0,
            now: Nanos::MIN,
            next_id: 1,
            open: 0,
            complete: 0,
            last_complete: Nanos::ZERO,
            background_done: Nanos::ZERO,
            started: false,
            first_writes: Vec::new(),
            first_wanted,
        })
    }

    /// Sectors offered to the workload.
    pub fn capacity(&self) -> u64 {
        self.levels[0].layer.capacity()
    }

    /// When the latest completion of a request was known.
    pub fn last_known(&self) -> Nanos {
        self.last_complete.max(self.now)
    }

    /// Takes a request of the workload, after everything that happens before it.
    pub fn submit<O: Observer>(&mut self, command: &Command, disks: &mut Disks<'_, O>) -> Result<()> {
        let at = command.arrival;
        if !self.started {
            self.start(at - START, disks)?;
        }
        while self.step(at, disks)? {}
        self.now = self.now.max(at);
        self.open += 1;
        self.enter(0, command, None, disks)
    }

    /// Goes on until every request is complete, or as far as a disk that has stopped lets it; background work may go on
    /// beyond.
    pub fn settle<O: Observer>(&mut self, disks: &mut Disks<'_, O>) -> Result<()> {
        while self.open > 0 && self.step_or_stop(disks)? {}
        Ok(())
    }

    /// Has the layers move all data that they keep aside to its place, from the top down, once every request is complete.
    /// Returns the time from the last completion of a request to the end of that work; 0 where there is none.
    pub fn drain<O: Observer>(&mut self, disks: &mut Disks<'_, O>) -> Result<Nanos> {
        for level in 0..self.levels.len() {
            self.levels[level].layer.drain();
            self.poke(level, self.now, disks)?;
            while self.levels[level].busy && self.step_or_stop(disks)? {
                interrupt::check()?;
            }
        }
        Ok((self.background_done - self.last_complete).max(Nanos::ZERO))
    }

    /// Handles what comes next, where something must; false where a disk has stopped.
    fn step_or_stop<O: Observer>(&mut self, disks: &mut Disks<'_, O>) -> Result<bool> {
        if self.step(Nanos::MAX, disks)? {
            return Ok(true);
        }
        if disks.stopped() {
            return Ok(false);
        }
        Err(Error::new(Kind::Config, "a layer holds requests and has nothing to do")
            .hint("this is a defect of the layer"))
    }

    /// The first writes to disk 0.
    pub fn first_writes(&self) -> &[(u64, u32)] {
        &self.first_writes
    }

    /// What the layers did, the first on top.
    pub fn results(&self) -> Vec<LayerResult> {
        self.levels.iter().map(Level::result).collect()
    }

    fn start<O: Observer>(&mut self, at: Nanos, disks: &mut Disks<'_, O>) -> Result<()> {
        self.started = true;
        self.now = at;
        for level in (0..self.levels.len()).rev() {
            let mut plan = self.tasks.plan();
            self.levels[level].layer.start(&mut plan);
            let task = self.tasks.add(level, Source::Start, Arrived::own(at), plan);
            self.run(task, at, disks)?;
        }
        Ok(())
    }
}
