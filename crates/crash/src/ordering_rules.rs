//! Ordering rules among the writes of a cut: a state with one write must contain those that the contract orders before it.

use std::collections::BTreeMap;
use std::ops::Range;

use emmclab_device::contract::{DurabilityPromises, Version};
use emmclab_layers::DiskZones;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;

use crate::state_choice::{Levels, UnpromisedWrite};

/// The versions of the later entries of a pack, and the atoms that these require, each with its lowest level.
type PackEntry = (Range<Version>, Vec<(usize, u16)>);

/// The writes to a zone that are not promised, in the order in which they fill it.
struct ZoneOrder {
    /// For each write of an atom: its version, the atom, and the lowest level that includes it.
    writes: Vec<(Version, usize, u16)>,
    /// Number of writes, from the start, up to the newest promised one.
    promised: usize,
}

impl ZoneOrder {
    /// Removes all writes from the index `end` on.
    fn end_at(&self, end: usize, levels: &mut Levels) {
        for (_, atom, level) in &self.writes[end..] {
            levels[*atom] = levels[*atom].min(*level - 1);
        }
    }
}

/// The zones of a device, and the newest promised version of each.
type Zoned<'a> = (&'a DiskZones, &'a BTreeMap<u32, Version>);

/// The ordering rules of a cut, by atom. The work for a state is proportional to the number of writes that are not promised.
pub(crate) struct OrderingRules<'a> {
    atoms: Vec<&'a [UnpromisedWrite]>,
    /// By atom and write: the oldest version whose presence requires the write.
    required_since: Vec<Vec<Version>>,
    packs: Vec<PackEntry>,
    zones: Vec<ZoneOrder>,
    preflushes: &'a BTreeMap<Version, u32>,
    /// The newest promised data, which is in every state.
    promised: Version,
}

impl<'a> OrderingRules<'a> {
    /// `size` is the number of sectors of an atom, which never spans two zones. `preflushes` are the writes in flight with a
    /// preflush, each with the number of commands that were complete when it arrived. `promised` is the version of the newest
    /// promised data.
    pub fn new(
        promises: &DurabilityPromises,
        atoms: &'a BTreeMap<u64, Vec<UnpromisedWrite>>,
        size: u64,
        preflushes: &'a BTreeMap<Version, u32>,
        promised: Version,
        zoned: Option<Zoned<'_>>,
    ) -> Self {
        let zones = zoned.map_or_else(Vec::new, |zoned| zone_orders(zoned, atoms, size));
        let numbers: Vec<u64> = atoms.keys().copied().collect();
        let places = |first: u64, end: u64| {
            numbers.partition_point(|atom| *atom < first / size)
                ..numbers.partition_point(|atom| *atom < end.div_ceil(size))
        };
        let atoms: Vec<&[UnpromisedWrite]> = atoms.values().map(Vec::as_slice).collect();
        let mut with: Vec<Vec<Version>> = atoms.iter().map(|writes| vec![Version::MAX; writes.len()]).collect();
        for (first, end, version, needed_with) in promises.prerequisites() {
            for place in places(first, end) {
                // In an atom that the write covers only in part, all writes up to it are required.
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

    /// Adds to a state all writes that its other writes require.
    pub fn apply(&self, levels: &mut Levels) {
        while self.barriers(levels) | self.preflushes(levels) | self.packs(levels) | self.beginnings(levels) {}
    }

    /// Removes from each zone all writes after the first missing one, so that a write that was left out stays out.
    pub fn drop_behind_gaps(&self, levels: &mut Levels) {
        for order in &self.zones {
            let gap = order.writes.iter().position(|(_, atom, level)| levels[*atom] < *level);
            order.end_at(gap.unwrap_or(order.writes.len()), levels);
        }
    }

    /// Ends each zone at a random write, with equal probability.
    pub fn end_zones(&self, levels: &mut Levels, random: &mut Pcg64Mcg) {
        for order in &self.zones {
            let end = random.next_u64() % (order.writes.len() as u64 + 1);
            for (_, atom, level) in &order.writes[..end as usize] {
                levels[*atom] = levels[*atom].max(*level);
            }
            order.end_at(end as usize, levels);
        }
    }

    /// Whether a state contains a write with one of these versions.
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

    /// Adds what a write with PREFLUSH requires: everything that was complete when it arrived. Returns whether anything was added.
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

    /// Adds what an entry of a pack requires: the entries before it. Returns whether anything was added.
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

    /// Completes zones, of which a cut leaves a prefix: adds the writes before each one that is there, and the rest of a reset.
    /// Returns whether anything was added.
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
