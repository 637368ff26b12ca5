//! The current durability promises of a device, and newer writes that may survive a power cut.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use emmclab_base::{CommandFlags, Nanos, Op, SectorRangeMap};
use emmclab_settings::InterfaceKind;

use super::{ContractRules, SectorContent, Version};
use crate::device::DeviceCommand;

/// Sector range of a flush of the whole cache, as first sector and end.
const EVERYTHING: (u64, u64) = (0, u64::MAX);

/// Sectors with a version of their data that may or may not survive a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolatileExtent {
    /// First sector of the extent.
    pub first: u64,
    /// The sector after the last sector of the extent.
    pub end: u64,
    /// The version of the data that may survive.
    pub version: Version,
    /// Operation of the command: a write, or one that removes data (discard, secure erase).
    pub op: Op,
    /// Time at which the command was complete; `None` if it is still in flight.
    pub complete: Option<Nanos>,
}

/// A write whose version is not yet promised to be durable.
#[derive(Clone, Copy, Debug)]
struct VolatileWrite {
    first: u64,
    end: u64,
    complete: Option<Nanos>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RevokingCommand {
    version: Version,
    op: Op,
    complete: Option<Nanos>,
}

/// The current durability promises of a device, by ranges of sectors.
///
/// The caller reports the arrival and the completion of each command in order of time, or, for a simulated device, each completion right
/// after the arrival. Memory and time depend on the writes that are not promised yet and on the number of ranges with equal versions, not
/// on the size of commands.
#[derive(Clone, Debug)]
pub struct DurabilityPromises {
    rules: ContractRules,
    next: Version,
    in_flight: BTreeMap<Version, DeviceCommand>,
    writes: BTreeMap<Version, VolatileWrite>,
    /// Newest version of the data that was ever promised, for each range of sectors.
    pub bases: SectorRangeMap<Version>,
    /// For each range of sectors: the newest discard or secure erase that ended the guarantee for its data, if no newer data is guaranteed.
    takers: SectorRangeMap<RevokingCommand>,
    pub(super) barriers: Vec<WriteBarrier>,
    pub(super) packs: Vec<PackedVersions>,
    /// Complete writes that are not yet followed by a barrier or flush.
    unordered: BTreeSet<(Nanos, Version)>,
    /// Number of writes without a durability promise at which the next call of `prune` removes the writes that can no longer survive.
    prune_at: usize,
}

impl DurabilityPromises {
    /// Creates the promises of a device that contains no data.
    pub fn new(rules: ContractRules) -> Self {
        Self {
            rules,
            next: 1,
            in_flight: BTreeMap::new(),
            writes: BTreeMap::new(),
            bases: SectorRangeMap::default(),
            takers: SectorRangeMap::default(),
            barriers: Vec::new(),
            packs: Vec::new(),
            unordered: BTreeSet::new(),
            prune_at: 64,
        }
    }

    /// Records the arrival of a command. Returns its version number, counted from 1 over all commands.
    pub fn arrived(&mut self, command: &DeviceCommand) -> Version {
        let version = self.next;
        self.next += 1;
        let (first, end) = self.range_of(command);
        match command.op {
            Op::Write => {
                if self.rules.fifo {
                    self.barrier(version, command.arrival);
                }
                self.writes.insert(version, VolatileWrite { first, end, complete: None });
            }
            Op::Flush if command.modifiers.contains(CommandFlags::BARRIER) => {
                self.barrier(version + 1, command.arrival);
            }
            op @ (Op::Discard | Op::SecureErase) => {
                self.takers.set(first, end, RevokingCommand { version, op, complete: None });
            }
            Op::Read | Op::Flush => {}
        }
        self.in_flight.insert(version, *command);
        version
    }

    /// Records the arrival of the entries of a packed command. Returns their version numbers.
    pub fn arrived_packed(&mut self, entries: &[DeviceCommand]) -> Range<Version> {
        let first = self.next;
        for entry in entries {
            self.arrived(entry);
        }
        let writes = entries.iter().all(|entry| entry.op == Op::Write);
        if self.rules.write_through && writes && entries.len() > 1 {
            self.packs.push(PackedVersions { first, end: self.next });
        }
        first..self.next
    }

    /// Records the completion of a command. The caller calls it once for each command.
    pub fn completed(&mut self, version: Version, complete: Nanos) {
        let Some(command) = self.in_flight.remove(&version) else { return };
        let (first, end) = self.range_of(&command);
        match command.op {
            Op::Write => {
                if command.modifiers.contains(CommandFlags::PREFLUSH) {
                    self.flushed(version, command.arrival, EVERYTHING);
                }
                if self.rules.write_through || command.modifiers.durable() {
                    self.writes.remove(&version);
                    self.promise(first, end, version);
                    // A packed write whose entries are all promised to be durable no longer restricts the order of writes.
                    let writes = &self.writes;
                    self.packs.retain(|pack| writes.range(pack.first..pack.end).next().is_some());
                } else if let Some(write) = self.writes.get_mut(&version) {
                    write.complete = Some(complete);
                    self.unordered.insert((complete, version));
                }
                self.prune();
            }
            Op::Flush if !command.modifiers.contains(CommandFlags::BARRIER) => {
                let ranged = self.rules.interface == InterfaceKind::Ufs && command.sectors > 0;
                let range = (command.sector, command.sector.saturating_add(u64::from(command.sectors)));
                self.flushed(version, command.arrival, if ranged { range } else { EVERYTHING });
            }
            Op::SecureErase => self.promise(first, end, version),
            Op::Discard => self.takers.update(first, end, |taker| {
                let taker = taker?;
                let complete = if taker.version == version { Some(complete) } else { taker.complete };
                Some(RevokingCommand { complete, ..taker })
            }),
            Op::Read | Op::Flush => {}
        }
    }

    /// Records an orderly power-off after all commands are complete.
    pub fn power_off(&mut self) {
        self.flushed(Version::MAX, Nanos::MAX, EVERYTHING);
    }

    /// Oldest version that the sector may hold if power is lost now; 0 = nothing is promised.
    pub fn promised(&self, sector: u64) -> Version {
        if self.takers.get(sector).is_some() { 0 } else { self.base(sector) }
    }

    /// Newest version of the sector that the device has ever promised to keep; 0 = none. It stays the same if a discard revokes the
    /// promise.
    pub fn base(&self, sector: u64) -> Version {
        self.bases.get(sector).copied().unwrap_or(0)
    }

    /// Whether a power cut now may leave undefined data in the sectors of a command (C10 of the contract). This is possible for every
    /// write in flight, except reliable writes of an eMMC.
    pub fn leaves_undefined(&self, version: Version) -> bool {
        let atomic = self.rules.interface == InterfaceKind::Emmc;
        self.in_flight
            .get(&version)
            .is_some_and(|command| command.op == Op::Write && !(atomic && command.modifiers.contains(CommandFlags::RELIABLE)))
    }

    /// The sectors that must survive a power cut, in order, as (first sector, end, oldest version that is permitted afterwards).
    pub fn extents(&self) -> impl Iterator<Item = (u64, u64, Version)> {
        self.bases.iter().flat_map(|(first, end, version)| {
            let parts = self.takers.parts(first, end).filter(|(.., taker)| taker.is_none());
            parts.map(move |(from, to, _)| (from, to, *version))
        })
    }

    /// The data versions that may or may not survive, because they are newer than the guaranteed versions. They are sorted by version, then
    /// by sector.
    pub fn pending(&self) -> impl Iterator<Item = VolatileExtent> {
        let mut takers: Vec<_> = self.takers.iter().collect();
        takers.sort_by_key(|(first, _, taker)| (taker.version, *first));
        let mut takers = takers
            .into_iter()
            .map(|(first, end, taker)| {
                let RevokingCommand { version, op, complete } = *taker;
                VolatileExtent { first, end, version, op, complete }
            })
            .peekable();
        let mut writes = self
            .writes
            .iter()
            .flat_map(|(version, write)| {
                let (version, complete) = (*version, write.complete);
                let parts = self.parts_beyond(write, version);
                parts.map(move |(first, end)| VolatileExtent { first, end, version, op: Op::Write, complete })
            })
            .peekable();
        std::iter::from_fn(move || {
            let version_of = |extent: &VolatileExtent| extent.version;
            match (takers.peek().map(version_of), writes.peek().map(version_of)) {
                (Some(taker), Some(write)) if taker < write => takers.next(),
                (Some(_), None) => takers.next(),
                _ => writes.next(),
            }
        })
    }

    /// Version that the next command will get.
    pub fn next_version(&self) -> Version {
        self.next
    }

    /// Oldest version of a command in flight or of a write that the device may still lose. All older versions must survive a power cut, or
    /// were replaced or revoked.
    pub(crate) fn oldest_open(&self) -> Version {
        let versions = [self.in_flight.keys().next(), self.writes.keys().next()];
        versions.into_iter().flatten().min().copied().unwrap_or(self.next)
    }

    /// Removes the recorded promises for sectors whose writes are all settled: no write is in flight or not yet promised.
    pub(crate) fn forget(&mut self, first: u64, end: u64) {
        self.bases.remove(first, end);
        self.takers.remove(first, end);
    }

    /// Returns the parts of writes that are neither promised nor revoked by a later command, as (first sector, end, version). Only writes
    /// with these versions are returned; `complete_by` restricts them to writes that were complete at this time.
    pub(super) fn unpromised_writes(
        &self, versions: Range<Version>, complete_by: Option<Nanos>,
    ) -> impl Iterator<Item = (u64, u64, Version)> {
        let counts = move |write: &VolatileWrite| complete_by.is_none_or(|by| write.complete.is_some_and(|at| at <= by));
        let writes = self.writes.range(versions).filter(move |(_, write)| counts(write));
        writes.flat_map(move |(version, write)| {
            let version = *version;
            self.parts_beyond(write, version).flat_map(move |(first, end)| {
                let parts = self.takers.parts(first, end);
                let parts = parts.filter(move |(.., taker)| taker.is_none_or(|taker| taker.version < version));
                parts.map(move |(from, to, _)| (from, to, version))
            })
        })
    }

    /// Completion time of a write that the device has not promised to keep; `None` if the write is not complete.
    pub(super) fn completion(&self, version: Version) -> Option<Nanos> {
        self.writes.get(&version).and_then(|write| write.complete)
    }

    /// The sectors of a write for which neither `version` nor a newer version is promised.
    fn parts_beyond(&self, write: &VolatileWrite, version: Version) -> impl Iterator<Item = (u64, u64)> {
        let parts = self.bases.parts(write.first, write.end);
        parts.filter(move |(.., base)| base.is_none_or(|base| *base < version)).map(|(from, to, _)| (from, to))
    }

    /// The sectors that a command changes: the sectors of a write, or the whole map units in the range of any other command.
    fn range_of(&self, command: &DeviceCommand) -> (u64, u64) {
        let (first, end) = (command.sector, command.sector.saturating_add(u64::from(command.sectors)));
        if command.op == Op::Write {
            return (first, end);
        }
        let unit = u64::from(self.rules.unit_sectors.max(1));
        (first.div_ceil(unit) * unit, end / unit * unit)
    }

    fn promise(&mut self, first: u64, end: u64, version: Version) {
        self.bases.update(first, end, |base| Some(base.unwrap_or(0).max(version)));
        self.takers.update(first, end, |taker| taker.filter(|taker| taker.version > version));
    }

    /// Records the completion of a flush of the sectors `from..to`. `flush` is its version, `came` the time of its arrival.
    fn flushed(&mut self, flush: Version, came: Nanos, (from, to): (u64, u64)) {
        let covered = |write: &VolatileWrite| write.complete.is_some_and(|complete| complete <= came);
        let before = self.writes.range(..flush).filter(|(_, write)| covered(write));
        let durable: Vec<_> = before.map(|(version, write)| (*version, *write)).collect();
        for (version, write) in durable {
            let (first, end) = (write.first.max(from), write.end.min(to));
            if (first, end) == (write.first, write.end) {
                self.writes.remove(&version);
            }
            if first < end {
                self.promise(first, end, version);
            }
        }
        if (from, to) != EVERYTHING {
            return;
        }
        self.barriers.retain(|barrier| barrier.from > flush || barrier.arrival > came);
        self.remove_ordered(flush, came);
    }

    /// Adds a barrier. If data of version `from` or of a later version survives a power cut, all data that was complete at the time `came`
    /// survives as well.
    fn barrier(&mut self, from: Version, came: Nanos) {
        if self.remove_ordered(from, came) {
            self.barriers.push(WriteBarrier { from, arrival: came });
        }
    }

    /// Removes unordered writes that were complete at the time `came` and are older than `end`. A barrier or a durability promise now
    /// orders them. Returns whether there were any.
    fn remove_ordered(&mut self, end: Version, came: Nanos) -> bool {
        let (mut more, mut later) = (false, Vec::new());
        while let Some((complete, version)) = self.unordered.first().copied().filter(|first| first.0 <= came) {
            self.unordered.pop_first();
            if version < end {
                more = true;
            } else {
                later.push((complete, version));
            }
        }
        self.unordered.extend(later);
        more
    }

    /// Removes complete writes that can no longer survive, because newer data of all their sectors is durable. Does nothing while few
    /// writes are stored.
    fn prune(&mut self) {
        if self.writes.len() < self.prune_at {
            return;
        }
        let hidden = |(version, write): (&Version, &VolatileWrite)| {
            let gone = write.complete.is_some() && self.parts_beyond(write, *version).next().is_none();
            gone.then_some(*version)
        };
        let hidden: Vec<Version> = self.writes.iter().filter_map(hidden).collect();
        for version in hidden {
            self.writes.remove(&version);
        }
        self.prune_at = (self.writes.len() * 2).max(64);
    }

    /// The ordering promises of barriers, which [`DurabilityPromises::promised`] does not contain. Barriers are in order; a later barrier
    /// includes the promises of earlier ones.
    pub fn orders(&self) -> impl Iterator<Item = DurabilityOrder> {
        self.barriers.iter().map(of_barrier).chain(self.pack_orders())
    }

    /// The ordering promises of packed writes: each entry survives only with all entries before it.
    pub fn pack_orders(&self) -> impl Iterator<Item = DurabilityOrder> {
        self.packs.iter().flat_map(|pack| {
            (pack.first + 1..pack.end).map(|entry| DurabilityOrder {
                after: entry..pack.end,
                before: pack.first..entry,
                complete_by: None,
            })
        })
    }

    /// The ordering promises that apply if data of this version survives: the promise of the last barrier before the version, and the
    /// promise of the packed write that contains the version.
    pub fn orders_of(&self, version: Version) -> impl Iterator<Item = DurabilityOrder> {
        let barriers = self.barriers.partition_point(|barrier| barrier.from <= version);
        let last = barriers.checked_sub(1).map(|place| of_barrier(&self.barriers[place]));
        last.into_iter().chain(self.pack_orders().filter(move |order| order.after.contains(&version)))
    }

    /// The writes that are not promised yet, but must survive a power cut if a write after a barrier survives. Each item is (first sector,
    /// end, version, oldest version that requires it). A sector is returned once for each of its versions.
    pub fn prerequisites(&self) -> impl Iterator<Item = (u64, u64, Version, Version)> {
        let last = self.barriers.last().map(of_barrier);
        let owed = last.into_iter().flat_map(|order| self.required_sectors(&order).collect::<Vec<_>>());
        owed.filter_map(|(first, end, version)| {
            let complete = self.completion(version)?;
            let later = self.barriers.partition_point(|barrier| barrier.from <= version);
            let after = self.barriers.partition_point(|barrier| barrier.arrival < complete);
            self.barriers.get(later.max(after)).map(|barrier| (first, end, version, barrier.from))
        })
    }

    /// Returns the sectors that must survive only because of an ordering promise: (first sector, end, oldest permitted version).
    pub fn required_sectors(&self, order: &DurabilityOrder) -> impl Iterator<Item = (u64, u64, Version)> {
        self.unpromised_writes(order.before.clone(), order.complete_by)
    }

    /// Returns the first durability promise that the device breaks if power is lost now and its sectors then contain `left`; `None` if it
    /// breaks no promise.
    pub fn broken(&self, left: &SectorRangeMap<SectorContent>) -> Option<BrokenPromise> {
        let data = left.iter().filter_map(|(.., content)| match content {
            SectorContent::Data(version) => Some(*version),
            SectorContent::Nothing(_) => None,
        });
        let mut there: Vec<Version> = data.collect();
        there.sort_unstable();
        let holds = |order: &DurabilityOrder| {
            let next = there.partition_point(|version| *version < order.after.start);
            there.get(next).is_some_and(|version| *version < order.after.end)
        };
        let (mut last_barrier, mut of_packs) = (None, Vec::new());
        for order in self.orders().filter(holds) {
            if order.complete_by.is_some() {
                last_barrier = Some(order);
            } else {
                of_packs.push(order);
            }
        }
        let ordered = last_barrier.iter().chain(&of_packs).flat_map(|order| self.required_sectors(order));
        let lacks = |(first, end, promised): (u64, u64, Version)| {
            let broken = |(from, to, content): (u64, u64, Option<&SectorContent>)| {
                let actual = content.map_or(0, |content| content.version());
                (actual < promised).then_some(BrokenPromise { first: from, end: to, actual, promised })
            };
            left.parts(first, end).find_map(broken)
        };
        self.extents().chain(ordered).filter_map(lacks).min()
    }
}

/// A barrier: if data of version `from` or a later one survives, so do the older versions that were complete at the time `came`.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteBarrier {
    pub from: Version,
    pub arrival: Nanos,
}

/// The range of version numbers of the entries of a packed write.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackedVersions {
    pub first: Version,
    pub end: Version,
}

/// An ordering promise of a barrier or a packed write: if data of any version in `after` survives a power cut, all versions in `before`
/// survive as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurabilityOrder {
    /// The later versions, whose survival has a condition.
    pub after: Range<Version>,
    /// The earlier versions, which must survive with the later ones.
    pub before: Range<Version>,
    /// If set, the order applies only to earlier versions that were complete at this time.
    pub complete_by: Option<Nanos>,
}

/// A broken promise about a range of sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BrokenPromise {
    /// First sector of the range.
    pub first: u64,
    /// The sector after the last sector of the range.
    pub end: u64,
    /// The version that the sectors of the range contain; 0 = never written, or no longer recorded
    /// ([`Persistence::retire`](crate::persistence::PersistenceTracker::retire)).
    pub actual: Version,
    /// The oldest version that the sectors of the range may contain according to the durability promises.
    pub promised: Version,
}

fn of_barrier(barrier: &WriteBarrier) -> DurabilityOrder {
    DurabilityOrder { after: barrier.from..Version::MAX, before: 0..barrier.from, complete_by: Some(barrier.arrival) }
}
