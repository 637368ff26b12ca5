//! Promises about order: which data must survive if later data does. Also checks all promises.

use std::ops::Range;

use emmclab_base::{Nanos, SectorRangeMap};

use super::{DurabilityPromises, SectorContent, Version};

/// A barrier: if data of a version from `from` on survives, so do the versions before it that were complete at `came`.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteBarrier {
    pub from: Version,
    pub arrival: Nanos,
}

/// The versions of the entries of a packed write.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackedVersions {
    pub first: Version,
    pub end: Version,
}

/// If data of any version in `after` survives, all of `before` does: a barrier, or an entry of a packed write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurabilityOrder {
    /// The later versions.
    pub after: Range<Version>,
    /// The earlier versions ...
    pub before: Range<Version>,
    /// ... as far as they were complete at this time; `None` = complete or not.
    pub complete_by: Option<Nanos>,
}

/// A broken promise about a range of sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BrokenPromise {
    /// First sector.
    pub first: u64,
    /// The sector after the last.
    pub end: u64,
    /// The version in these sectors; 0 = none was ever written, or none that is still kept
    /// ([`Persistence::retire`](crate::persistence::PersistenceTracker::retire)).
    pub actual: Version,
    /// The oldest version that is allowed.
    pub promised: Version,
}

fn of_barrier(barrier: &WriteBarrier) -> DurabilityOrder {
    DurabilityOrder { after: barrier.from..Version::MAX, before: 0..barrier.from, complete_by: Some(barrier.arrival) }
}

impl DurabilityPromises {
    /// The promises about order, which are not contained in [`DurabilityPromises::promised`]. Barriers are in their order; a later barrier promises
    /// everything that an earlier one does.
    pub fn orders(&self) -> impl Iterator<Item = DurabilityOrder> {
        self.barriers.iter().map(of_barrier).chain(self.pack_orders())
    }

    /// The orders of packed writes: each entry after those before it.
    pub fn pack_orders(&self) -> impl Iterator<Item = DurabilityOrder> {
        self.packs.iter().flat_map(|pack| {
            (pack.first + 1..pack.end).map(|entry| DurabilityOrder {
                after: entry..pack.end,
                before: pack.first..entry,
                complete_by: None,
            })
        })
    }

    /// The orders that apply if data of this version survives: that of the last barrier before it, and those of its packed write.
    pub fn orders_of(&self, version: Version) -> impl Iterator<Item = DurabilityOrder> {
        let barriers = self.barriers.partition_point(|barrier| barrier.from <= version);
        let last = barriers.checked_sub(1).map(|place| of_barrier(&self.barriers[place]));
        last.into_iter().chain(self.pack_orders().filter(move |order| order.after.contains(&version)))
    }

    /// The versions that a barrier orders, unless they are promised anyway: first sector, end, version, and the oldest version with which
    /// it must survive. A sector with several such versions is returned with each.
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

    /// The sectors that an order requires, unless they are promised anyway: first sector, end, oldest version allowed.
    pub fn required_sectors(&self, order: &DurabilityOrder) -> impl Iterator<Item = (u64, u64, Version)> {
        self.unpromised_writes(order.before.clone(), order.complete_by)
    }

    /// The first promise that is broken if power is lost now and leaves these contents.
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
            let found = |(from, to, content): (u64, u64, Option<&SectorContent>)| {
                let found = content.map_or(0, |content| content.version());
                (found < promised).then_some(BrokenPromise { first: from, end: to, actual: found, promised })
            };
            left.parts(first, end).find_map(found)
        };
        self.extents().chain(ordered).filter_map(lacks).min()
    }
}
