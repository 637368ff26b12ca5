//! Durable contents of a simulated device, checked against its promises.
//!
//! [`PersistenceTracker`] derives the promises of the [contract](crate::contract) only from commands and completions, and the actual
//! contents only from page programs. It is an observer, so a run without it has no additional cost.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use emmclab_base::{Nanos, SectorRangeMap};

use crate::contract::{BrokenPromise, ContractRules, DurabilityPromises, SectorContent, Version};
use crate::device::{Device, DeviceCommand};
use crate::events::{Observer, OperationCause, OperationsDelayed, PageProgrammed, RequestCompleted, UnitCached, UnitsTrimmed};
use crate::ids::{Lpn, PlaneId};
use crate::paired_pages::PairedPageTracker;

#[derive(Debug)]
enum CommandReport {
    Arrived(DeviceCommand),
    ArrivedPacked(Box<[DeviceCommand]>),
    Completed,
}

/// Sort key of commands and completions: (time, version of the command or of the first packed command, whether it is a completion).
type Moment = (Nanos, Version, bool);

/// A version of the data of a sector, and the time from which the flash contains this version. The newest version on the flash determines
/// the contents of the sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ContentsVersion {
    from: Nanos,
    content: SectorContent,
    /// The plane of the page; `None` for discarded data.
    plane: Option<PlaneId>,
}

impl ContentsVersion {
    fn version(&self) -> Version {
        self.content.version()
    }
}

/// Tracks the contents of each sector after a power cut: the versions that the contract permits, and the one on the device.
///
/// The caller passes each command to the tracker before the device receives the command, and attaches the tracker to the device as an
/// observer. The tracker can answer questions about every time since the last call of [`PersistenceTracker::retire`]. Memory grows with the
/// number of commands since that call, and with the number of ranges that were written or discarded since the oldest write that no flush
/// has made durable.
#[derive(Debug)]
pub struct PersistenceTracker {
    unit_sectors: u32,
    blocks_per_plane: u32,
    /// Difference between the number that the device gives a command and the version that this tracker gives it.
    offset: u64,
    next: Version,
    /// Durability promises at the last call of `retire`.
    promises: DurabilityPromises,
    /// Commands and completions since the last call of `retire`, in order of time.
    messages: BTreeMap<Moment, CommandReport>,
    /// Commands that are not complete.
    commands: VecDeque<(Version, DeviceCommand)>,
    /// Versions of the data on the flash, each with the time from which its page survives a power loss.
    flash: SectorRangeMap<Vec<ContentsVersion>>,
    /// Versions of the data in the volatile cache.
    cached: SectorRangeMap<Version>,
    /// The word lines of a device that does not protect paired pages.
    paired: Option<PairedPageTracker>,
}

impl PersistenceTracker {
    /// Creates a tracker for a device without data.
    pub fn of(device: &Device) -> Self {
        let promises = DurabilityPromises::new(ContractRules::of(device));
        let next = promises.next_version();
        Self {
            unit_sectors: device.geometry().unit_sectors,
            blocks_per_plane: device.geometry().blocks_per_plane,
            offset: device.next_command().wrapping_sub(next),
            next,
            promises,
            messages: BTreeMap::new(),
            commands: VecDeque::new(),
            flash: SectorRangeMap::default(),
            cached: SectorRangeMap::default(),
            paired: PairedPageTracker::of(device),
        }
    }

    /// Records the next command. Returns its version, which is its position among all commands, counted from 1.
    pub fn expect(&mut self, command: &DeviceCommand) -> Version {
        let version = self.next;
        self.messages.insert((command.arrival, version, false), CommandReport::Arrived(*command));
        self.commands.push_back((version, *command));
        self.next += 1;
        version
    }

    /// Records the entries of the next command, which is packed. Returns their versions.
    pub fn expect_packed(&mut self, entries: &[DeviceCommand]) -> Range<Version> {
        let first = self.next;
        if let Some(head) = entries.first() {
            self.messages.insert((head.arrival, first, false), CommandReport::ArrivedPacked(entries.into()));
        }
        self.commands.extend((first..).zip(entries.iter().copied()));
        self.next += entries.len() as Version;
        first..self.next
    }

    /// Returns the durability promises at time `at`.
    pub fn promises(&self, at: Nanos) -> DurabilityPromises {
        let mut promises = self.promises.clone();
        for (moment, message) in self.messages.range(..=(at, Version::MAX, true)) {
            pass_on(&mut promises, *moment, message);
        }
        promises
    }

    /// The oldest version that the sector may hold after power is lost at `at`; 0 = nothing is promised.
    pub fn promised(&self, sector: u64, at: Nanos) -> Version {
        self.promises(at).promised(sector)
    }

    /// The sectors that a power loss at `at` damages although no command in flight writes them, as (first sector, end), in any order: data
    /// in the same word line as a page program in progress.
    pub fn damaged(&self, at: Nanos) -> impl Iterator<Item = (u64, u64)> {
        let units = self.paired.iter().flat_map(move |paired| paired.damaged(at));
        units.map(|unit| (u64::from(unit.0) * u64::from(self.unit_sectors), u64::from(unit.0 + 1) * u64::from(self.unit_sectors)))
    }

    /// The version on the flash after a power loss at `at`; 0 = none.
    pub fn survives(&self, sector: u64, at: Nanos) -> Version {
        if self.damaged(at).any(|(first, end)| (first..end).contains(&sector)) {
            return 0;
        }
        let steps = self.flash.get(sector).map_or(&[][..], Vec::as_slice);
        match newest(steps, at) {
            Some(ContentsVersion { content: SectorContent::Data(version), .. }) => version,
            _ => 0,
        }
    }

    /// The first promise that is broken if power is lost at `at`.
    pub fn broken(&self, at: Nanos) -> Option<BrokenPromise> {
        self.promises(at).broken(&self.contents_after_cut(at))
    }

    /// The first promise that is broken after an orderly power-off, which must preserve everything that is complete.
    pub fn broken_after_power_off(&self) -> Option<BrokenPromise> {
        let mut promises = self.promises(Nanos::MAX);
        promises.power_off();
        promises.broken(&self.contents_after_cut(Nanos::MAX))
    }

    /// The times at which the flash contents change.
    pub fn moments(&self) -> impl Iterator<Item = Nanos> {
        self.flash.iter().flat_map(|(.., steps)| steps).map(|step| step.from)
    }

    /// Number of stored sector ranges. The memory use is proportional to it.
    pub fn ranges(&self) -> usize {
        let promised = self.promises.extents().count() + self.promises.pending().count();
        promised + self.flash.len() + self.cached.len() + self.messages.len()
    }

    /// Drops the history up to `now`. No later call may ask about an earlier time.
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
        if let Some(paired) = &mut self.paired {
            // Every sector may come into a word line that is still programmed, so its version is never forgotten.
            paired.retire(now);
            return;
        }
        for (first, end, steps) in self.flash.iter() {
            if let [step] = steps[..]
                && step.from <= now
                && step.version() < open
                && self.promises.bases.find(first, end).all(|(.., base)| *base <= step.version())
            {
                settled.push((first, end));
            }
        }
        for (first, end) in settled {
            self.flash.remove(first, end);
            self.promises.forget(first, end);
        }
    }

    /// The flash contents after a power loss at `at`; damaged sectors contain no version.
    pub fn contents_after_cut(&self, at: Nanos) -> SectorRangeMap<SectorContent> {
        let mut left = SectorRangeMap::default();
        for (first, end, steps) in self.flash.iter() {
            if let Some(step) = newest(steps, at) {
                left.set(first, end, step.content);
            }
        }
        for (first, end) in self.damaged(at) {
            left.update(first, end, |content| content.filter(|content| matches!(content, SectorContent::Nothing(_))));
        }
        left
    }

    fn version_of(&self, command: u64) -> Version {
        command.wrapping_sub(self.offset)
    }

    /// Records that from a certain time on, the flash contains a version of the sectors `first..end`. `step` contains the time and the
    /// version.
    fn store(&mut self, first: u64, end: u64, step: ContentsVersion) {
        self.flash.update(first, end, |steps| {
            let mut steps = steps.unwrap_or_default();
            steps.push(step);
            Some(steps)
        });
    }

    /// Returns the runs of sectors that are set in the bit mask `covered` of a map unit, as (first sector, end).
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

fn pass_on(promises: &mut DurabilityPromises, (time, version, _): Moment, message: &CommandReport) {
    match message {
        CommandReport::Arrived(command) => {
            promises.arrived(command);
        }
        CommandReport::ArrivedPacked(entries) => {
            promises.arrived_packed(entries);
        }
        CommandReport::Completed => promises.completed(version, time),
    }
}

/// The newest version on the flash at time `at`.
fn newest(steps: &[ContentsVersion], at: Nanos) -> Option<ContentsVersion> {
    steps.iter().filter(|step| step.from <= at).max_by_key(|step| step.version()).copied()
}

impl Observer for PersistenceTracker {
    fn request_completed(&mut self, event: &RequestCompleted) {
        if let Some((version, _)) = self.commands.pop_front() {
            self.messages.insert((event.complete, version, true), CommandReport::Completed);
        }
    }

    fn unit_cached(&mut self, event: &UnitCached) {
        let version = self.version_of(event.command);
        for (first, end) in self.runs(event.lpn, event.covered) {
            self.cached.set(first, end, version);
        }
    }

    fn page_programmed(&mut self, event: &PageProgrammed<'_>) {
        self.paired.page_programmed(event);
        if event.cause != OperationCause::Host {
            return;
        }
        let (from, plane) = (event.durable, Some(PlaneId(event.block.0 / self.blocks_per_plane)));
        let step = |version| ContentsVersion { from, content: SectorContent::Data(version), plane };
        for unit in event.units {
            for (first, end) in self.runs(unit.lpn, unit.covered) {
                if let Some(command) = unit.command {
                    self.store(first, end, step(self.version_of(command)));
                } else {
                    let cached: Vec<_> = self.cached.find(first, end).map(|(from, to, v)| (from, to, *v)).collect();
                    for (from, to, version) in cached {
                        self.store(from, to, step(version));
                    }
                }
                self.cached.remove(first, end);
            }
        }
    }

    fn trimmed(&mut self, event: &UnitsTrimmed) {
        self.paired.trimmed(event);
        let Some((version, command)) = self.commands.back().copied() else { return };
        let unit = u64::from(self.unit_sectors);
        let (first, end) = (u64::from(event.first.0), u64::from(event.first.0) + u64::from(event.count));
        let (first, end) = (first * unit, end * unit);
        self.cached.remove(first, end);
        self.store(first, end, ContentsVersion { from: command.arrival, content: SectorContent::Nothing(version), plane: None });
    }

    fn operations_delayed(&mut self, event: &OperationsDelayed) {
        for step in self.flash.values_mut().flatten() {
            if step.plane.is_some_and(|plane| event.affects(plane, step.from)) {
                step.from += event.delay;
            }
        }
    }
}
