//! The durable contents of a simulated device, checked against its promises.
//!
//! [`Persistence`] keeps both sides of the [contract](crate::contract): the promises, made from commands and completions alone, and
//! the facts, made from page programs alone. It is an observer: it costs nothing if it is not used.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use emmclab_base::{Nanos, Ranges};

use crate::command::Command;
use crate::contract::{Broken, Content, Promises, Rules, Version};
use crate::device::Device;
use crate::events::{Cause, Observer, PageProgrammed, RequestCompleted, Trimmed, UnitCached};
use crate::ids::Lpn;

/// The commands and answers between host and device.
#[derive(Debug)]
enum Message {
    Arrived(Command),
    ArrivedPacked(Box<[Command]>),
    Completed,
}

/// Messages in their order: time, version of the (first) command, and whether it is a completion.
type Moment = (Nanos, Version, bool);

/// The flash contents from a moment on, unless it has something newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    from: Nanos,
    content: Content,
}

impl Step {
    fn version(&self) -> Version {
        self.content.version()
    }
}

/// What each sector may hold after a power cut: the versions that the contract allows, and the one that the device has.
///
/// Call it with each command before the device gets the command, and register it as an observer of the device. It answers for
/// every moment since the last call of [`Persistence::retire`]. Where that is called regularly, memory is bounded by the commands
/// since then, the commands in flight, and the ranges written or discarded since the oldest write that no flush has made durable
/// (without a volatile cache: by the commands in flight).
#[derive(Debug)]
pub struct Persistence {
    unit_sectors: u32,
    /// Number that the device gives its next command, less the version of that.
    offset: u64,
    /// Version of the next command.
    next: Version,
    /// Promises at the last call of `retire`.
    promises: Promises,
    /// The versions after that.
    messages: BTreeMap<Moment, Message>,
    /// Commands that are not complete.
    commands: VecDeque<(Version, Command)>,
    /// Versions on the flash, each from the moment on at which its page counts.
    flash: Ranges<Vec<Step>>,
    /// Versions in the cache.
    cached: Ranges<Version>,
}

impl Persistence {
    /// For a device that holds nothing.
    pub fn of(device: &Device) -> Self {
        let promises = Promises::new(Rules::of(device));
        let next = promises.next_version();
        Self {
            unit_sectors: device.geometry().unit_sectors,
            offset: device.next_command().wrapping_sub(next),
            next,
            promises,
            messages: BTreeMap::new(),
            commands: VecDeque::new(),
            flash: Ranges::default(),
            cached: Ranges::default(),
        }
    }

    /// Notes the next command; returns its version, counted from 1 over all commands.
    pub fn expect(&mut self, command: &Command) -> Version {
        let version = self.next;
        self.messages.insert((command.arrival, version, false), Message::Arrived(*command));
        self.commands.push_back((version, *command));
        self.next += 1;
        version
    }

    /// Notes the entries of the next command, which is packed; returns their versions.
    pub fn expect_packed(&mut self, entries: &[Command]) -> Range<Version> {
        let first = self.next;
        if let Some(head) = entries.first() {
            self.messages.insert((head.arrival, first, false), Message::ArrivedPacked(entries.into()));
        }
        self.commands.extend((first..).zip(entries.iter().copied()));
        self.next += entries.len() as Version;
        first..self.next
    }

    /// The promises at a moment.
    pub fn promises(&self, at: Nanos) -> Promises {
        let mut promises = self.promises.clone();
        for (moment, message) in self.messages.range(..=(at, Version::MAX, true)) {
            pass_on(&mut promises, *moment, message);
        }
        promises
    }

    /// The oldest version that the sector may hold after power went at `at`; 0 = nothing is promised.
    pub fn promised(&self, sector: u64, at: Nanos) -> Version {
        self.promises(at).promised(sector)
    }

    /// The version whose data the flash holds when power goes at `at`; 0 = none.
    pub fn survives(&self, sector: u64, at: Nanos) -> Version {
        let steps = self.flash.get(sector).map_or(&[][..], Vec::as_slice);
        match newest(steps, at) {
            Some(Step { content: Content::Data(version), .. }) => version,
            _ => 0,
        }
    }

    /// The first broken promise when power goes at `at`.
    pub fn broken(&self, at: Nanos) -> Option<Broken> {
        self.promises(at).broken(&self.left(at))
    }

    /// The first promise that is broken once the power has gone off in good order, after which nothing complete is lost.
    pub fn broken_after_power_off(&self) -> Option<Broken> {
        let mut promises = self.promises(Nanos::MAX);
        promises.power_off();
        promises.broken(&self.left(Nanos::MAX))
    }

    /// The moments at which the flash holds something new.
    pub fn moments(&self) -> impl Iterator<Item = Nanos> {
        self.flash.iter().flat_map(|(.., steps)| steps).map(|step| step.from)
    }

    /// Number of ranges that are kept, which its memory follows.
    pub fn ranges(&self) -> usize {
        let promised = self.promises.extents().count() + self.promises.pending().count();
        promised + self.flash.len() + self.cached.len() + self.messages.len()
    }

    /// No question comes about a moment before `now`: forgets what was promised and programmed by then.
    pub fn retire(&mut self, now: Nanos) {
        let later = self.messages.split_off(&(now, Version::MAX, true));
        for (moment, message) in std::mem::replace(&mut self.messages, later) {
            pass_on(&mut self.promises, moment, &message);
        }
        let open = self.promises.oldest_open();
        let mut settled = Vec::new();
        let runs: Vec<_> = self.flash.iter().map(|(first, end, _)| (first, end)).collect();
        for (first, end) in runs {
            self.flash.update(first, end, |steps| {
                let mut steps = steps?;
                if let Some(held) = newest(&steps, now) {
                    steps.retain(|step| *step == held || step.version() > held.version());
                }
                Some(steps)
            });
        }
        for (first, end, steps) in self.flash.iter() {
            if let [step] = steps[..]
                && step.from <= now
                && step.version() < open
                && self.promises.is_kept(first, end, step.version())
            {
                settled.push((first, end));
            }
        }
        for (first, end) in settled {
            self.flash.remove(first, end);
            self.promises.forget(first, end);
        }
    }

    /// The flash contents when power goes at `at`.
    pub fn left(&self, at: Nanos) -> Ranges<Content> {
        let mut left = Ranges::default();
        for (first, end, steps) in self.flash.iter() {
            if let Some(step) = newest(steps, at) {
                left.set(first, end, step.content);
            }
        }
        left
    }

    /// The version of a command, by its number at the device.
    fn version_of(&self, command: u64) -> Version {
        command.wrapping_sub(self.offset)
    }

    /// The flash holds a version from a moment on.
    fn store(&mut self, first: u64, end: u64, step: Step) {
        self.flash.update(first, end, |steps| {
            let mut steps = steps.unwrap_or_default();
            steps.push(step);
            Some(steps)
        });
    }

    /// The runs of sectors of a unit that are covered.
    fn runs(&self, unit: Lpn, covered: u32) -> impl Iterator<Item = (u64, u64)> + use<> {
        let (first, mut left) = (u64::from(unit.0) * u64::from(self.unit_sectors), u64::from(covered));
        std::iter::from_fn(move || {
            let from = (left != 0).then(|| left.trailing_zeros())?;
            let sectors = (left >> from).trailing_ones();
            left &= !(((1 << sectors) - 1) << from);
            Some((first + u64::from(from), first + u64::from(from + sectors)))
        })
    }
}

fn pass_on(promises: &mut Promises, (time, version, _): Moment, message: &Message) {
    match message {
        Message::Arrived(command) => {
            promises.arrived(command);
        }
        Message::ArrivedPacked(entries) => {
            promises.arrived_packed(entries);
        }
        Message::Completed => promises.completed(version, time),
    }
}

/// The newest version that is there at a moment.
fn newest(steps: &[Step], at: Nanos) -> Option<Step> {
    steps.iter().filter(|step| step.from <= at).max_by_key(|step| step.version()).copied()
}

impl Observer for Persistence {
    fn request_completed(&mut self, event: &RequestCompleted) {
        if let Some((version, _)) = self.commands.pop_front() {
            self.messages.insert((event.complete, version, true), Message::Completed);
        }
    }

    fn unit_cached(&mut self, event: &UnitCached) {
        let version = self.version_of(event.command);
        for (first, end) in self.runs(event.lpn, event.covered) {
            self.cached.set(first, end, version);
        }
    }

    fn page_programmed(&mut self, event: &PageProgrammed<'_>) {
        if event.cause != Cause::Host {
            return;
        }
        let step = |version| Step { from: event.durable, content: Content::Data(version) };
        for unit in event.units {
            for (first, end) in self.runs(unit.lpn, unit.covered) {
                if let Some(command) = unit.command {
                    self.store(first, end, step(self.version_of(command)));
                } else {
                    let cached: Vec<_> =
                        self.cached.find(first, end).map(|(from, to, v)| (from, to, *v)).collect();
                    for (from, to, version) in cached {
                        self.store(from, to, step(version));
                    }
                }
                self.cached.remove(first, end);
            }
        }
    }

    fn trimmed(&mut self, event: &Trimmed) {
        let Some((version, command)) = self.commands.back().copied() else { return };
        let unit = u64::from(self.unit_sectors);
        let (first, end) = (u64::from(event.first.0), u64::from(event.first.0) + u64::from(event.count));
        let (first, end) = (first * unit, end * unit);
        self.cached.remove(first, end);
        self.store(first, end, Step { from: command.arrival, content: Content::Nothing(version) });
    }
}
