//! Layers between the workload and the devices, in simulated time.
//!
//! Plans run stage by stage: the commands of a stage go out together, and an event at the end of the last one starts the
//! next stage. Events come in order of time, so devices see arrivals in order. There is no data, so requests that overlap
//! are not kept apart as under a live device; only their times count here.
//!
//! Layers stand above the host's queue, as device mapper does in Linux: what they send is merged and packed. Layers have no
//! flags; as Linux does above a disk without FUA, a preflush is a flush before the request and FUA is one after it.

mod task;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use emmclab_device::{Command, Device, DeviceConfig, Modifiers, Observer, Quiet, RequestCompleted};
use emmclab_layers::{Answer, Below, Flight, Hold, HostRequest, Layer, LayerConfig, Step, Work, build_stack};
use emmclab_trace::{Error, Kind, Nanos, Op, Result};

use crate::host::{HostCounts, HostQueue};
use crate::port::Port;
use crate::result::{LayerResult, SecondDevice};

use task::{Source, Task, Tasks};

struct Held {
    request: HostRequest,
    arrival: i64,
    parent: Option<u32>,
}

struct Level {
    layer: Box<dyn Layer>,
    flight: Flight,
    held: VecDeque<Held>,
    /// Whether background work is under way.
    busy: bool,
    held_full: u64,
    held_overlap: u64,
    held_ns: i64,
}

/// The layers, the second device, and all that is under way.
pub(crate) struct Layered {
    levels: Vec<Level>,
    /// The host's queue above the device, and which task each request in it belongs to.
    host: Option<HostQueue>,
    owners: HashMap<u64, u32>,
    /// What the queue told last, kept to reuse the room.
    known: Vec<RequestCompleted>,
    second: Option<(String, Device)>,
    tasks: Tasks,
    events: BinaryHeap<Reverse<(i64, u64, u32)>>,
    event_count: u64,
    next_id: u64,
    /// Requests of the workload that are not complete.
    open: u64,
    /// Requests that were.
    complete: u64,
    last_complete: i64,
    started: bool,
    /// The first writes to the device, and how many are kept.
    first_writes: Vec<(u64, u32)>,
    first_wanted: u32,
}

/// The level of a request before it comes to the first layer.
const ABOVE: usize = usize::MAX;

/// Time that the layers have to start before the first request.
const START_NS: i64 = 1_000_000_000;

impl Layered {
    pub fn new(
        configs: &[LayerConfig],
        main: &Device,
        host: Option<HostQueue>,
        second: Option<(&DeviceConfig, Device)>,
        first_wanted: u32,
    ) -> Result<Self> {
        let sectors = |device: &Device| device.geometry().sectors();
        let below = Below { main: sectors(main), second: second.as_ref().map(|(_, device)| sectors(device)) };
        let level = |layer| Level {
            layer,
            flight: Flight::default(),
            held: VecDeque::new(),
            busy: false,
            held_full: 0,
            held_overlap: 0,
            held_ns: 0,
        };
        let levels: Vec<_> = build_stack(configs, &below)?.into_iter().map(level).collect();
        let uses_second = |level: &Level| level.layer.areas().iter().any(|area| area.disk == 1);
        if second.is_some() && !levels.iter().any(uses_second) {
            return Err(Error::new(Kind::Config, "there is a second device, but no layer uses it")
                .hint("say which one does, as --set advil.second_device=true"));
        }
        Ok(Self {
            levels,
            host,
            owners: HashMap::new(),
            known: Vec::new(),
            second: second.map(|(config, mut device)| {
                device.rewind();
                (config.name().to_owned(), device)
            }),
            tasks: Tasks::default(),
            events: BinaryHeap::new(),
            event_count: 0,
            next_id: 1,
            open: 0,
            complete: 0,
            last_complete: 0,
            started: false,
            first_writes: Vec::new(),
            first_wanted,
        })
    }

    /// Sectors offered to the workload.
    pub fn capacity(&self) -> u64 {
        self.levels[0].layer.capacity()
    }

    /// When the request that completed last did.
    pub fn last_complete(&self) -> i64 {
        self.last_complete
    }

    /// Whether the second device takes no more.
    pub fn stopped(&self) -> bool {
        self.second.as_ref().is_some_and(|(_, device)| device.stop().is_some())
    }

    /// Takes a request of the workload, after everything that happens before it.
    pub fn submit<O: Observer>(&mut self, command: &Command, port: &mut Port<'_, O>) -> Result<()> {
        let &Command { arrival, op, sector, sectors, modifiers } = command;
        let at = arrival.0;
        if !self.started {
            self.start(at - START_NS, port)?;
        }
        while self.step(at, port)? {}
        self.open += 1;
        if modifiers == Modifiers::NONE {
            return self.enter(0, op, sector, sectors, at, None, port);
        }
        let mut plan = self.tasks.plan();
        if modifiers.contains(Modifiers::PREFLUSH) && op != Op::Flush {
            plan.bare(0, Op::Flush, 0, 0);
            plan.wait();
        }
        if op.has_data() {
            plan.payload(0, op, sector, 0, sectors);
        } else {
            plan.bare(0, op, sector, sectors);
        }
        if modifiers.contains(Modifiers::RELIABLE) && op == Op::Write {
            plan.wait();
            plan.bare(0, Op::Flush, 0, 0);
        }
        let request = HostRequest { id: self.next_id, op, sector, sectors };
        self.next_id += 1;
        let task = self.tasks.add(ABOVE, Source::Flagged, request, at, None, plan);
        self.run(task, at, port)
    }

    /// Goes on until every request is complete; background work may go on beyond.
    pub fn settle<O: Observer>(&mut self, port: &mut Port<'_, O>) -> Result<()> {
        while self.open > 0 && !port.stopped() && !self.stopped() {
            if !self.step(i64::MAX, port)? {
                return Err(Error::new(Kind::Config, "a layer holds requests and has nothing to do")
                    .hint("this is a defect of the layer"));
            }
        }
        Ok(())
    }

    /// The first writes to the device.
    pub fn first_writes(&self) -> &[(u64, u32)] {
        &self.first_writes
    }

    /// What the host's queue did, where there is one.
    pub fn host_counts(&self) -> Option<HostCounts> {
        self.host.as_ref().map(|host| host.counts.clone())
    }

    /// What the layers and the second device did.
    pub fn results(&self) -> (Vec<LayerResult>, Option<SecondDevice>) {
        let layer = |level: &Level| LayerResult {
            name: level.layer.name().to_owned(),
            held_full: level.held_full,
            held_overlap: level.held_overlap,
            held_ms: level.held_ns as f64 / 1e6,
            counters: level.layer.counters().into_iter().collect(),
        };
        let second = self.second.as_ref().map(|(name, device)| SecondDevice {
            device: name.clone(),
            host_bytes_read: device.counters().host_bytes_read,
            host_bytes_written: device.counters().host_bytes_written,
            page_programs: device.counters().all_page_programs(),
            block_erases: device.counters().block_erases(),
            waf: device.counters().waf(),
        });
        (self.levels.iter().map(layer).collect(), second)
    }

    fn start<O: Observer>(&mut self, at: i64, port: &mut Port<'_, O>) -> Result<()> {
        self.started = true;
        for level in (0..self.levels.len()).rev() {
            let mut plan = self.tasks.plan();
            self.levels[level].layer.start(&mut plan);
            let request = HostRequest { id: 0, op: Op::Flush, sector: 0, sectors: 0 };
            let task = self.tasks.add(level, Source::Start, request, at, None, plan);
            self.run(task, at, port)?;
        }
        Ok(())
    }

    /// Handles what comes next up to `until`, the host's driver after all else of the same time; false where there is
    /// nothing.
    fn step<O: Observer>(&mut self, until: i64, port: &mut Port<'_, O>) -> Result<bool> {
        let fetch = self.host.as_ref().and_then(HostQueue::ready_at).filter(|_| !port.stopped());
        let event = self.events.peek().map(|Reverse((at, ..))| *at);
        if let Some(at) = fetch.filter(|at| *at < until && event.is_none_or(|event| *at < event)) {
            self.fetch(at, port)?;
            return Ok(true);
        }
        if event.is_none_or(|at| at > until) {
            return Ok(false);
        }
        let Some(Reverse((at, _, task))) = self.events.pop() else { return Ok(false) };
        if self.tasks[task].is_over() {
            self.finish(task, at, port)?;
        } else {
            self.run(task, at, port)?;
        }
        Ok(true)
    }

    /// The host's driver fetches its next command.
    fn fetch<O: Observer>(&mut self, at: i64, port: &mut Port<'_, O>) -> Result<()> {
        let Some(host) = &mut self.host else { return Ok(()) };
        let mut known = std::mem::take(&mut self.known);
        host.send(at, port, |event| known.push(*event))?;
        while host.pop_complete().is_some() {}
        for event in known.drain(..) {
            if let Some(task) = self.owners.remove(&event.id) {
                self.child_done(task, &event);
            }
        }
        self.known = known;
        Ok(())
    }

    /// A command of a task, which went to a queue or a layer, is or will be complete.
    fn child_done(&mut self, task: u32, event: &RequestCompleted) {
        let above = &mut self.tasks[task];
        above.note(event);
        above.waiting -= 1;
        if above.waiting == 0 {
            self.later(task);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a command, when it comes, and for whom")]
    fn enter<O: Observer>(
        &mut self,
        level: usize,
        op: Op,
        sector: u64,
        sectors: u32,
        at: i64,
        parent: Option<u32>,
        port: &mut Port<'_, O>,
    ) -> Result<()> {
        let request = HostRequest { id: self.next_id, op, sector, sectors };
        self.next_id += 1;
        let held = Held { request, arrival: at, parent };
        if let Err((held, hold)) = self.ask(level, held, at, port)? {
            let below = &mut self.levels[level];
            match hold {
                Hold::Full => below.held_full += 1,
                Hold::Overlap => below.held_overlap += 1,
            }
            below.held.push_back(held);
        }
        self.poke(level, at, port)
    }

    /// Asks a layer; gives the request back where it is held.
    fn ask<O: Observer>(
        &mut self,
        level: usize,
        held: Held,
        at: i64,
        port: &mut Port<'_, O>,
    ) -> Result<std::result::Result<(), (Held, Hold)>> {
        let mut plan = self.tasks.plan();
        let Level { layer, flight, held_ns, .. } = &mut self.levels[level];
        match layer.request(&held.request, &mut plan) {
            Answer::Hold(hold) => {
                self.tasks.give_back(plan);
                Ok(Err((held, hold)))
            }
            Answer::Run => {
                flight.insert(&held.request);
                *held_ns += at - held.arrival;
                let Held { request, arrival, parent } = held;
                let task = self.tasks.add(level, Source::Request, request, arrival, parent, plan);
                self.run(task, at, port)?;
                Ok(Ok(()))
            }
        }
    }

    /// Has a layer go on in the background, and asks again for what it holds.
    fn poke<O: Observer>(&mut self, level: usize, at: i64, port: &mut Port<'_, O>) -> Result<()> {
        loop {
            if !self.levels[level].busy {
                let mut plan = self.tasks.plan();
                let Level { layer, flight, busy, .. } = &mut self.levels[level];
                if layer.work(flight, &mut plan) == Work::Run {
                    *busy = true;
                    let request = HostRequest { id: 0, op: Op::Flush, sector: 0, sectors: 0 };
                    let task = self.tasks.add(level, Source::Work, request, at, None, plan);
                    self.run(task, at, port)?;
                } else {
                    self.tasks.give_back(plan);
                }
            }
            let mut went_on = false;
            for _ in 0..self.levels[level].held.len() {
                let Some(held) = self.levels[level].held.pop_front() else { break };
                match self.ask(level, held, at, port)? {
                    Ok(()) => went_on = true,
                    Err((held, _)) => self.levels[level].held.push_back(held),
                }
            }
            if !went_on || self.levels[level].busy {
                return Ok(());
            }
        }
    }

    /// Sends the commands of a plan up to the next wait.
    fn run<O: Observer>(&mut self, task: u32, at: i64, port: &mut Port<'_, O>) -> Result<()> {
        self.tasks[task].end = at;
        while let Some(step) = self.tasks[task].next_step() {
            let Step::Command(command) = step else { break };
            let below = self.tasks[task].level.wrapping_add(1);
            if command.disk == 0 && below < self.levels.len() {
                self.tasks[task].waiting += 1;
                self.enter(below, command.op, command.sector, command.sectors, at, Some(task), port)?;
                continue;
            }
            let sent = Command::new(Nanos(at), command.op, command.sector, command.sectors);
            let event = match &mut self.second {
                Some((_, device)) if command.disk > 0 => {
                    Port { device, checker: None, observer: &mut Quiet }.submit(&sent)?
                }
                _ => {
                    if sent.op == Op::Write && self.first_writes.len() < self.first_wanted as usize {
                        self.first_writes.push((sent.sector, sent.sectors));
                    }
                    if let Some(host) = &mut self.host {
                        self.owners.insert(host.push(&sent), task);
                        self.tasks[task].waiting += 1;
                        continue;
                    }
                    port.submit(&sent)?
                }
            };
            let Some(event) = event else { return Ok(()) };
            self.tasks[task].note(&event);
        }
        if self.tasks[task].waiting == 0 {
            self.later(task);
        }
        Ok(())
    }

    fn later(&mut self, task: u32) {
        self.event_count += 1;
        self.events.push(Reverse((self.tasks[task].end, self.event_count, task)));
    }

    fn finish<O: Observer>(&mut self, task: u32, at: i64, port: &mut Port<'_, O>) -> Result<()> {
        let Task { level, source, request, parent, .. } = self.tasks[task];
        match source {
            Source::Start | Source::Flagged => {}
            Source::Work => {
                self.levels[level].busy = false;
                self.levels[level].layer.worked();
            }
            Source::Request => {
                self.levels[level].flight.remove(request.id);
                self.levels[level].layer.completed(request.id);
            }
        }
        if matches!(source, Source::Request | Source::Flagged) {
            let event = self.tasks[task].completed(at);
            if let Some(parent) = parent {
                self.child_done(parent, &event);
            } else {
                self.open -= 1;
                self.last_complete = self.last_complete.max(at);
                port.observer.request_completed(&RequestCompleted { id: self.complete, ..event });
                self.complete += 1;
            }
        }
        self.tasks.remove(task);
        if level == ABOVE { Ok(()) } else { self.poke(level, at, port) }
    }
}
