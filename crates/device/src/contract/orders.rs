//! Promises about order: what has to be there where something later is, and the judge of all promises.

use std::ops::Range;

use emmclab_base::{Nanos, Ranges};

use super::{Content, Promises, Version};

/// A barrier: versions that were complete at `came` stand before those from `from` on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Barrier {
    pub from: Version,
    pub came: Nanos,
}

/// The entries of a packed write: versions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pack {
    pub first: Version,
    pub end: Version,
}

/// If data of any version in `after` is there, so is all of `before`: a barrier, or an entry of a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Versions that come later.
    pub after: Range<Version>,
    /// Versions that come first ...
    pub before: Range<Version>,
    /// ... and were complete by then; `None` = complete or not.
    pub complete_by: Option<Nanos>,
}

/// A promise that a state breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Broken {
    /// First sector.
    pub first: u64,
    /// The sector after the last.
    pub end: u64,
    /// The version that is there; 0 = nothing ever came there, or nothing that is still kept
    /// ([`Persistence::retire`](crate::persistence::Persistence::retire)).
    pub found: Version,
    /// The oldest version that may be there.
    pub promised: Version,
}

fn of_barrier(barrier: &Barrier) -> Order {
    Order { after: barrier.from..Version::MAX, before: 0..barrier.from, complete_by: Some(barrier.came) }
}

impl Promises {
    /// The promises about order that say more than [`Promises::promised`]. Barriers come in their order, and of two the later one
    /// promises all that the earlier one does.
    pub fn orders(&self) -> impl Iterator<Item = Order> {
        self.barriers.iter().map(of_barrier).chain(self.pack_orders())
    }

    /// Those of packed writes: an entry and the ones before it.
    pub fn pack_orders(&self) -> impl Iterator<Item = Order> {
        self.packs.iter().flat_map(|pack| {
            (pack.first + 1..pack.end).map(|entry| Order {
                after: entry..pack.end,
                before: pack.first..entry,
                complete_by: None,
            })
        })
    }

    /// The orders that hold where data of this version is there: of barriers the last one, and those of its pack.
    pub fn orders_of(&self, version: Version) -> impl Iterator<Item = Order> {
        let barriers = self.barriers.partition_point(|barrier| barrier.from <= version);
        let last = barriers.checked_sub(1).map(|place| of_barrier(&self.barriers[place]));
        last.into_iter().chain(self.pack_orders().filter(move |order| order.after.contains(&version)))
    }

    /// The versions that stand before barriers, beyond what is promised anyway: first sector, end, version, and the
    /// oldest version with which it has to be there. Of a sector of several versions each is given.
    pub fn prerequisites(&self) -> impl Iterator<Item = (u64, u64, Version, Version)> {
        let last = self.barriers.last().map(of_barrier);
        let owed = last.into_iter().flat_map(|order| self.owed_by(&order).collect::<Vec<_>>());
        owed.filter_map(|(first, end, version)| {
            let complete = self.completion(version)?;
            let later = self.barriers.partition_point(|barrier| barrier.from <= version);
            let after = self.barriers.partition_point(|barrier| barrier.came < complete);
            self.barriers.get(later.max(after)).map(|barrier| (first, end, version, barrier.from))
        })
    }

    /// The sectors that an order requires, beyond what is promised anyway: first sector, end, oldest version.
    pub fn owed_by(&self, order: &Order) -> impl Iterator<Item = (u64, u64, Version)> {
        self.owed(order.before.clone(), order.complete_by)
    }

    /// The first promise that is broken if power goes now and leaves this.
    pub fn broken(&self, left: &Ranges<Content>) -> Option<Broken> {
        let data = left.iter().filter_map(|(.., content)| match content {
            Content::Data(version) => Some(*version),
            Content::Nothing(_) => None,
        });
        let mut there: Vec<Version> = data.collect();
        there.sort_unstable();
        let holds = |order: &Order| {
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
        let ordered = last_barrier.iter().chain(&of_packs).flat_map(|order| self.owed_by(order));
        let lacks = |(first, end, promised): (u64, u64, Version)| {
            let found = |(from, to, content): (u64, u64, Option<&Content>)| {
                let found = content.map_or(0, |content| content.version());
                (found < promised).then_some(Broken { first: from, end: to, found, promised })
            };
            left.parts(first, end).find_map(found)
        };
        self.extents().chain(ordered).filter_map(lacks).min()
    }
}
