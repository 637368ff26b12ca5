//! The states of a disk that a device may leave after a power cut without breaking its durability guarantees. Each atom (the unit of atomic
//! writes) contains the newest version that must be durable, or a later one.

use std::collections::BTreeMap;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use emmclab_base::{Error, ErrorClass, Nanos, Op, Result};
use emmclab_device::contract::{DurabilityPromises, Version};
use emmclab_device::{CommandFlags, DeviceCommand};
use emmclab_layers::DiskZones;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::disk_contents::{BLOCK, Block, DiskContents};
use crate::log::CommandPort;
use crate::log_index::{CrashLogIndex, LoggedCommand, SectorSource};
use crate::state_choice::{Levels, UnpromisedWrite};

/// Maximum length of a discard, in atoms (units of atomic writes), for which states with and without the discard are tried. A longer
/// discard counts as executed when it is complete; the contract allows this.
const MOST_DISCARDED: u64 = 256;

/// A range of sectors and the version of its data that is promised: first sector, end, version.
pub(crate) type Extent = (u64, u64, Version);

/// The data that the device has promised to keep so far in a run, and the writes that it has not yet promised.
pub(crate) struct LegalStates {
    promises: DurabilityPromises,
    port: CommandPort,
    /// Number of sectors in an atom, which is written completely or not at all.
    atom: u64,
    /// Whether a power cut may leave garbage in sectors of writes in flight.
    garbles: bool,
    /// For each atom, the writes that are not yet promised to be durable, in order of their versions.
    atoms: BTreeMap<u64, Vec<UnpromisedWrite>>,
    promised: Arc<DiskContents>,
    /// Number of commands that have arrived.
    arrived: usize,
    completed: u32,
    /// Version of the newest complete reliable write or FUA write. Every disk state contains its data, and all writes that the ordering
    /// rules require before it.
    newest_durable: Version,
    /// Writes in flight with a preflush, each with the number of commands that were complete when it arrived.
    preflushes: BTreeMap<Version, u32>,
    /// The zones of the device, which are written sequentially.
    zones: Option<DiskZones>,
    /// For each zone, the newest write that the device has promised to keep. A power cut may undo a later reset of the zone, but the zone
    /// keeps the data up to this write.
    promised_zones: BTreeMap<u32, Version>,
    /// Flushes of a zoned device. The value is the number of commands that were complete when the flush arrived.
    flushes: BTreeMap<Version, u32>,
}

impl LegalStates {
    pub fn new(run: &CrashLogIndex, port: CommandPort, tear: TearMode) -> Self {
        // With layers, host addresses differ from device addresses, so the initial contents of the device are not used.
        let promised = if port == CommandPort::Host { Arc::default() } else { run.base().clone() };
        Self {
            promises: DurabilityPromises::new(run.header().rules(port)),
            port,
            // A layer may write only some sectors of a block, so each host sector may survive a power cut without the others.
            atom: if port == CommandPort::Host { 1 } else { tear.atom() },
            garbles: tear == TearMode::Inside,
            atoms: BTreeMap::new(),
            promised,
            arrived: 0,
            completed: 0,
            newest_durable: 0,
            preflushes: BTreeMap::new(),
            zones: run.header().device.zones.filter(|_| port == CommandPort::Device),
            promised_zones: BTreeMap::new(),
            flushes: BTreeMap::new(),
        }
    }

    /// Whether a sector with the content digest `digest` violates a promise: it contains neither the promised data nor a later write.
    pub fn contradicts(&self, run: &CrashLogIndex, sector: u64, digest: u64) -> bool {
        let spool = run.spool();
        if spool.digest(self.promised.sector(sector)) == digest {
            return false;
        }
        let writes = self.atoms.get(&(sector / self.atom)).into_iter().flatten();
        let commands = run.commands(self.port);
        !writes
            .map(|write| (write, &commands[write.version as usize - 1]))
            .filter(|(_, logged)| part(logged, (sector, sector + 1)).count() == 1)
            .any(|(write, logged)| write.garbled || spool.digest(logged.source_of(sector)) == digest)
    }

    /// Number of commands that have arrived.
    pub fn arrived(&self) -> usize {
        self.arrived
    }

    pub fn promised(&self) -> &Arc<DiskContents> {
        &self.promised
    }

    /// The writes that are not yet promised, grouped by atom.
    pub fn unpromised(&self) -> Vec<&[UnpromisedWrite]> {
        self.atoms.values().map(Vec::as_slice).collect()
    }

    /// Returns the sector range (first, end) of each atomic unit with writes that are not promised to be durable.
    pub fn atoms(&self) -> impl Iterator<Item = (u64, u64)> {
        self.atoms.keys().map(|atom| (atom * self.atom, (atom + 1) * self.atom))
    }

    /// Called when the command with the index `place` arrives.
    pub fn arrives(&mut self, run: &CrashLogIndex, place: u32) {
        self.arrived = place as usize + 1;
        let logged = &run.commands(self.port)[place as usize];
        let first_of_pack = place == 0 || run.commands(self.port)[place as usize - 1].packed_after == 0;
        if logged.packed_after > 0 && first_of_pack {
            let end = place as usize + 1 + usize::from(logged.packed_after);
            let entries = run.commands(self.port).get(place as usize..end).unwrap_or_default();
            let entries: Vec<DeviceCommand> = entries.iter().map(|entry| entry.command).collect();
            self.promises.arrived_packed(&entries);
        } else if first_of_pack {
            self.promises.arrived(&logged.command);
        }
        let (first, end) = (logged.command.sector, logged.end());
        let wide = self.is_wide(logged);
        let changes = match logged.command.op {
            Op::Write => true,
            Op::Discard | Op::SecureErase => !wide,
            Op::Read | Op::Flush => false,
        };
        if logged.command.modifiers.contains(CommandFlags::PREFLUSH) {
            self.preflushes.insert(Version::from(place) + 1, self.completed);
        }
        if self.zones.is_some() && logged.command.op == Op::Flush {
            self.flushes.insert(Version::from(place) + 1, self.completed);
        }
        if changes {
            let version = Version::from(place) + 1;
            let discards = logged.command.op != Op::Write;
            let garbles = self.garbles && self.promises.leaves_undefined(version);
            for atom in first / self.atom..end.div_ceil(self.atom) {
                let writes = self.atoms.entry(atom).or_default();
                if garbles {
                    writes.push(UnpromisedWrite { version, complete: 0, garbled: true, discards });
                }
                writes.push(UnpromisedWrite { version, complete: 0, garbled: false, discards });
            }
        }
    }

    /// Called when the command with index `place` is complete. Calls `promised` with each extent that must survive every later power cut.
    pub fn completes(&mut self, run: &CrashLogIndex, place: u32, at: Nanos, mut promised: impl FnMut(Extent)) {
        let logged = &run.commands(self.port)[place as usize];
        let (first, end) = (logged.command.sector, logged.end());
        let version = Version::from(place) + 1;
        self.promises.completed(version, at);
        self.completed += 1;
        let flushed = self.preflushes.remove(&version).or_else(|| self.flushes.remove(&version));
        if let Some(before) = flushed {
            self.note_flushed(before);
        }
        let (own, whole) = ((first, end), (0, u64::MAX));
        let modifiers = logged.command.modifiers;
        match logged.command.op {
            Op::Write => {
                self.note_complete(own, version);
                if modifiers.durable() {
                    self.newest_durable = self.newest_durable.max(version);
                    note_promised(self.zones, &mut self.promised_zones, first, version);
                }
                if modifiers.contains(CommandFlags::PREFLUSH) {
                    self.fold_promised(run, whole, &mut promised);
                } else if modifiers.durable() || self.promises.promised(first) >= version {
                    self.fold_promised(run, own, &mut promised);
                }
            }
            Op::Flush => self.fold_promised(run, whole, &mut promised),
            Op::Discard if !self.is_wide(logged) => self.note_complete(own, version),
            // A secure erase removes the old data. A discard of a wide range is assumed to remove it too.
            Op::Discard | Op::SecureErase => {
                self.fold_nothing(run, own, version);
                if logged.command.op == Op::SecureErase {
                    promised((first, end, version));
                }
            }
            Op::Read => {}
        }
    }

    /// Records a flush, which promises all writes among the first `before` completed commands.
    fn note_flushed(&mut self, before: u32) {
        if self.zones.is_none() {
            return;
        }
        let is_promised = |write: &&UnpromisedWrite| (1..=before).contains(&write.complete) && !write.discards;
        for (atom, writes) in &self.atoms {
            if let Some(write) = writes.iter().rfind(is_promised) {
                note_promised(self.zones, &mut self.promised_zones, atom * self.atom, write.version);
            }
        }
    }

    fn is_wide(&self, logged: &LoggedCommand) -> bool {
        u64::from(logged.command.sectors) / self.atom > MOST_DISCARDED
    }

    fn note_complete(&mut self, (first, end): (u64, u64), version: Version) {
        let number = self.completed;
        for (_, writes) in self.atoms.range_mut(first / self.atom..end.div_ceil(self.atom)) {
            writes.retain(|write| !(write.garbled && write.version == version));
            writes.iter_mut().filter(|write| write.version == version).for_each(|write| write.complete = number);
        }
    }

    /// Removes writes that the device now promises to keep from the lists of uncertain writes, for all atoms (units that are written
    /// completely or not at all) in the range.
    fn fold_promised(&mut self, run: &CrashLogIndex, (first, end): (u64, u64), promised: &mut impl FnMut(Extent)) {
        let Self { promises, atoms, atom: size, promised: contents, port, zones, promised_zones, .. } = self;
        let commands = run.commands(*port);
        let contents = Arc::make_mut(contents);
        let end = if end == u64::MAX { end } else { end.div_ceil(*size) };
        let mut empty = Vec::new();
        for (atom, writes) in atoms.range_mut(first / *size..end) {
            let sectors = (atom * *size, (atom + 1) * *size);
            let is_promised = |write: &UnpromisedWrite| {
                let part = part(&commands[write.version as usize - 1], sectors);
                part.clone().next().is_some_and(|sector| promises.promised(sector) >= write.version)
            };
            let Some(last) = writes.iter().rposition(is_promised) else { continue };
            note_promised(*zones, promised_zones, sectors.0, writes[last].version);
            for write in writes.drain(..=last) {
                let logged = &commands[write.version as usize - 1];
                for sector in part(logged, sectors).filter(|_| !write.garbled) {
                    contents.set(run.spool(), sector, logged.source_of(sector));
                    if promises.promised(sector) == write.version {
                        promised((sector, sector + 1, write.version));
                    }
                }
            }
            if writes.is_empty() {
                empty.push(*atom);
            }
        }
        for atom in empty {
            atoms.remove(&atom);
        }
    }

    /// Marks sectors as empty. Later disk states then contain no earlier data of these sectors.
    fn fold_nothing(&mut self, run: &CrashLogIndex, (first, end): (u64, u64), version: Version) {
        Arc::make_mut(&mut self.promised).clear(run.spool(), first, end);
        let atoms = first.div_ceil(self.atom)..end / self.atom;
        if atoms.is_empty() {
            return;
        }
        for (_, writes) in self.atoms.range_mut(atoms) {
            writes.retain(|write| write.version > version);
        }
        self.atoms.retain(|_, writes| !writes.is_empty());
    }

    /// Decimal logarithm of an upper bound for the number of possible states. The bound also counts states that ordering rules forbid.
    pub fn count_log10(&self) -> f64 {
        self.atoms.values().map(|writes| (writes.len() as f64 + 1.0).log10()).sum()
    }

    /// Returns the extents that must be durable if the write with this version is durable.
    pub fn implied_by(&self, version: Version) -> Vec<Extent> {
        let orders = self.promises.orders_of(version);
        orders.flat_map(|order| self.promises.required_sectors(&order).collect::<Vec<_>>()).collect()
    }

    /// Returns the ordering rules. They add to a state the writes that must be present because other writes are.
    pub fn closure(&self) -> OrderingRules<'_> {
        let zoned = self.zones.as_ref().map(|zones| (zones, &self.promised_zones));
        OrderingRules::new(&self.promises, &self.atoms, self.atom, &self.preflushes, self.newest_durable, zoned)
    }

    /// Returns the blocks in which a disk state differs from the promised contents. `levels` describes the state: for each atom (a fixed
    /// range of sectors), the number of its unpromised writes that are on the disk.
    pub fn changes(&self, run: &CrashLogIndex, levels: &Levels, seed: u64) -> BTreeMap<u64, Block> {
        let commands = run.commands(self.port);
        let mut changes = BTreeMap::new();
        for ((atom, writes), level) in self.atoms.iter().zip(levels) {
            let sectors = (atom * self.atom, (atom + 1) * self.atom);
            for write in &writes[..usize::from(*level)] {
                let logged = &commands[write.version as usize - 1];
                for sector in part(logged, sectors) {
                    let block = changes.entry(sector / BLOCK).or_insert_with(|| self.promised.block(sector / BLOCK));
                    block[(sector % BLOCK) as usize] = if write.garbled {
                        SectorSource::garbage(xxh3_64_with_seed(&sector.to_le_bytes(), seed))
                    } else {
                        logged.source_of(sector)
                    };
                }
            }
        }
        changes
    }
}

/// Stores the newest version that must be durable in the zone of a sector. All earlier data in this zone must then be durable.
fn note_promised(zones: Option<DiskZones>, promised: &mut BTreeMap<u32, Version>, sector: u64, version: Version) {
    if let Some(zone) = zones.and_then(|zones| zones.zone_of(sector)) {
        let newest = promised.entry(zone).or_default();
        *newest = (*newest).max(version);
    }
}

/// The intersection of the sectors of a command with a range.
fn part(logged: &LoggedCommand, (first, end): (u64, u64)) -> std::ops::Range<u64> {
    logged.command.sector.max(first)..logged.end().min(end)
}

/// Versions of the later entries of a packed command, and what must be present if one of these entries is present: the minimum number of
/// writes of each atom.
type PackEntry = (Range<Version>, Vec<(usize, u16)>);

/// The writes to a zone that a power cut may undo, in the order in which they fill the zone.
struct ZoneOrder {
    /// For each write: its version, the index of its atom (unit of atomic writes), and the number of writes to this atom up to and
    /// including this write.
    writes: Vec<(Version, usize, u16)>,
    /// Number of writes up to and including the newest promised write.
    promised: usize,
}

impl ZoneOrder {
    /// Removes all writes of the zone from the index `end` on.
    fn end_at(&self, end: usize, levels: &mut Levels) {
        for (_, atom, level) in &self.writes[end..] {
            levels[*atom] = levels[*atom].min(*level - 1);
        }
    }
}

/// The zones of a device, and the version of the newest promised write in each zone.
type Zoned<'a> = (&'a DiskZones, &'a BTreeMap<u32, Version>);

/// The ordering rules between writes at a power cut. The work for a crash state is proportional to the number of writes that need not be
/// durable yet.
pub(crate) struct OrderingRules<'a> {
    atoms: Vec<&'a [UnpromisedWrite]>,
    /// For each write of each atom, the oldest version that can be on the disk only together with this write.
    required_since: Vec<Vec<Version>>,
    packs: Vec<PackEntry>,
    zones: Vec<ZoneOrder>,
    preflushes: &'a BTreeMap<Version, u32>,
    /// Version of the newest promised data, which is present in every state.
    promised: Version,
}

impl<'a> OrderingRules<'a> {
    /// Creates the rules. `size` is the number of sectors of an atom, which never spans two zones. `preflushes` contains the writes in
    /// flight that have a preflush. Its values are the numbers of commands that were complete when these writes arrived. `promised` is the
    /// newest version that must be durable.
    pub fn new(
        promises: &DurabilityPromises, atoms: &'a BTreeMap<u64, Vec<UnpromisedWrite>>, size: u64,
        preflushes: &'a BTreeMap<Version, u32>, promised: Version, zoned: Option<Zoned<'_>>,
    ) -> Self {
        let zones = zoned.map_or_else(Vec::new, |zoned| zone_orders(zoned, atoms, size));
        let numbers: Vec<u64> = atoms.keys().copied().collect();
        let places = |first: u64, end: u64| {
            numbers.partition_point(|atom| *atom < first / size)..numbers.partition_point(|atom| *atom < end.div_ceil(size))
        };
        let atoms: Vec<&[UnpromisedWrite]> = atoms.values().map(Vec::as_slice).collect();
        let mut with: Vec<Vec<Version>> = atoms.iter().map(|writes| vec![Version::MAX; writes.len()]).collect();
        for (first, end, version, needed_with) in promises.prerequisites() {
            for place in places(first, end) {
                // A required write may cover only a part of an atom (unit of atomic writes). The earlier writes to this atom are then
                // required as well.
                let newest = atoms[place].iter().rposition(|write| write.version <= version);
                if let Some(newest) = newest {
                    with[place][newest] = with[place][newest].min(needed_with);
                }
            }
        }
        let packs = promises.pack_orders().map(|order| {
            let needs = promises.required_sectors(&order).flat_map(|(first, end, version)| {
                let atoms = &atoms;
                places(first, end)
                    .map(move |place| (place, atoms[place].partition_point(|write| write.version <= version) as u16))
            });
            (order.after.clone(), needs.collect())
        });
        let packs = packs.collect();
        Self { atoms, required_since: with, packs, zones, preflushes, promised }
    }

    /// Adds to a state all writes that its present writes require.
    pub fn apply(&self, levels: &mut Levels) {
        while self.barriers(levels) | self.preflushes(levels) | self.packs(levels) | self.beginnings(levels) {}
    }

    /// Removes from each zone all writes after the first missing one. Otherwise, `apply` would add the missing writes, because a zone is
    /// written in order.
    pub fn drop_behind_gaps(&self, levels: &mut Levels) {
        for order in &self.zones {
            let gap = order.writes.iter().position(|(_, atom, level)| levels[*atom] < *level);
            order.end_at(gap.unwrap_or(order.writes.len()), levels);
        }
    }

    /// Cuts off each zone after a random write; all positions have equal probability.
    pub fn end_zones(&self, levels: &mut Levels, random: &mut Pcg64Mcg) {
        for order in &self.zones {
            let end = random.next_u64() % (order.writes.len() as u64 + 1);
            for (_, atom, level) in &order.writes[..end as usize] {
                levels[*atom] = levels[*atom].max(*level);
            }
            order.end_at(end as usize, levels);
        }
    }

    /// Whether a disk state contains a write with one of these versions.
    fn holds(&self, levels: &Levels, versions: &Range<Version>) -> bool {
        let mut all = self.atoms.iter().zip(levels);
        all.any(|(writes, level)| writes[..usize::from(*level)].iter().any(|write| versions.contains(&write.version)))
    }

    fn barriers(&self, levels: &mut Levels) -> bool {
        let there = self.atoms.iter().zip(&*levels);
        let there = there.filter_map(|(writes, level)| Some(writes[..usize::from(*level)].last()?.version));
        let newest = there.max().unwrap_or(0).max(self.promised);
        let mut changed = false;
        for (with, level) in self.required_since.iter().zip(levels) {
            let beyond = with[usize::from(*level)..].iter().rposition(|version| *version <= newest);
            if let Some(beyond) = beyond {
                *level += beyond as u16 + 1;
                changed = true;
            }
        }
        changed
    }

    /// Adds the writes that a write with a preflush requires: all that were complete when it arrived. Returns whether any were added.
    fn preflushes(&self, levels: &mut Levels) -> bool {
        let mut changed = false;
        for (version, complete) in self.preflushes {
            if !self.holds(levels, &(*version..*version + 1)) {
                continue;
            }
            for (writes, level) in self.atoms.iter().zip(levels.iter_mut()) {
                let before = |write: &UnpromisedWrite| (1..=*complete).contains(&write.complete);
                let needed = writes.iter().rposition(before).map_or(0, |place| place as u16 + 1);
                changed |= *level < needed;
                *level = needed.max(*level);
            }
        }
        changed
    }

    /// Adds the earlier entries of a packed command if a later entry is on the disk. Returns whether anything was added.
    fn packs(&self, levels: &mut Levels) -> bool {
        let mut changed = false;
        for (after, needs) in &self.packs {
            if !self.holds(levels, after) {
                continue;
            }
            for (place, needed) in needs {
                changed |= levels[*place] < *needed;
                levels[*place] = levels[*place].max(*needed);
            }
        }
        changed
    }

    /// Adds writes until each zone contains a prefix of its writes, as a sequentially written zone does after a power cut. Completes partly
    /// present resets. Returns whether anything was added.
    fn beginnings(&self, levels: &mut Levels) -> bool {
        let mut changed = false;
        for ZoneOrder { writes, promised } in &self.zones {
            let there = writes.iter().rposition(|(_, atom, level)| levels[*atom] >= *level);
            let mut end = there.map_or(0, |place| place + 1).max(*promised);
            if let Some((last, atom, level)) = end.checked_sub(1).map(|place| writes[place])
                && self.atoms[atom][usize::from(level) - 1].discards
            {
                end = writes.partition_point(|(version, ..)| *version <= last);
            }
            for (_, atom, level) in &writes[..end] {
                changed |= levels[*atom] < *level;
                levels[*atom] = levels[*atom].max(*level);
            }
        }
        changed
    }
}

fn zone_orders((zones, promised): Zoned<'_>, atoms: &BTreeMap<u64, Vec<UnpromisedWrite>>, size: u64) -> Vec<ZoneOrder> {
    let mut orders: BTreeMap<u32, Vec<(Version, usize, u16)>> = BTreeMap::new();
    for (place, (atom, writes)) in atoms.iter().enumerate() {
        let Some(zone) = zones.zone_of(atom * size) else { continue };
        let levels = writes.iter().zip(1..).map(|(write, level)| (write.version, place, level));
        orders.entry(zone).or_default().extend(levels);
    }
    let order = |(zone, mut writes): (u32, Vec<(Version, usize, u16)>)| {
        writes.sort_unstable();
        let newest = promised.get(&zone).copied().unwrap_or(0);
        let promised = writes.partition_point(|(version, ..)| *version <= newest);
        ZoneOrder { writes, promised }
    };
    orders.into_iter().map(order).collect()
}

/// How finely a power cut can split a write that it interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TearMode {
    /// Each block of 4 KiB has its old or its new contents completely.
    #[default]
    None,
    /// Each sector has its old or its new contents.
    Sector,
    /// Each sector has its old or its new contents. A sector of a write in flight may contain garbage instead, if the contract permits it
    /// and the write is not reliable.
    Inside,
}

impl TearMode {
    /// All tear modes with their names on the command line.
    pub const ALL: [(TearMode, &'static str); 3] =
        [(TearMode::None, "none"), (TearMode::Sector, "sector"), (TearMode::Inside, "inside")];

    /// Number of sectors in an atom, which is written completely or not at all.
    pub(crate) fn atom(self) -> u64 {
        if self == Self::None { BLOCK } else { 1 }
    }
}

impl FromStr for TearMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|(_, name)| *name == text).map(|(tear, _)| tear).ok_or_else(|| {
            Error::new(ErrorClass::Config, "unknown mode of torn writes")
                .of_field("tear", 0, text.as_bytes())
                .hint(Self::ALL.map(|(_, name)| name).join(", "))
        })
    }
}
