//! Numbers for the locations of the flash, in the order in which striped writes fill them. Data that is written sequentially therefore has
//! consecutive numbers. A map that describes runs of locations uses these numbers.

use crate::ftl::core::FtlCore;
use crate::geometry::Geometry;
use crate::ids::{Lpn, PlaneId, Ppn};

/// The number of a unit that is not mapped.
pub(super) const NOWHERE: u32 = u32::MAX;

/// The numbering of a device.
#[derive(Clone, Debug)]
pub(super) struct LocationNumbering {
    /// Position of each plane in the striping order, and the plane at each position.
    positions: Vec<u32>,
    planes: Vec<PlaneId>,
    blocks_per_plane: u32,
    stride_shift: u32,
    /// First block of each group in a plane, and the base-2 logarithm of the units in its pages.
    groups: Vec<(u32, u32)>,
    /// Mask of the address bits inside the smallest page.
    within: u32,
}

impl LocationNumbering {
    pub fn new(geometry: &Geometry) -> Self {
        let mut positions = vec![0; geometry.planes as usize];
        for (position, plane) in (0..).zip(&geometry.stripe) {
            positions[plane.index()] = position;
        }
        Self {
            positions,
            planes: geometry.stripe.clone(),
            blocks_per_plane: geometry.blocks_per_plane,
            stride_shift: geometry.stride_shift,
            within: (1 << geometry.groups.iter().map(|group| group.page_shift).min().unwrap_or(0)) - 1,
            groups: geometry.groups.iter().map(|group| (group.first_block, group.page_shift)).collect(),
        }
    }

    /// Number of a location; [`NOWHERE`] for `None`.
    #[inline]
    pub fn number(&self, ppn: Option<Ppn>) -> u32 {
        let Some(Ppn(ppn)) = ppn else { return NOWHERE };
        let (block, offset) = (ppn >> self.stride_shift, ppn & ((1 << self.stride_shift) - 1));
        let (plane, index) = (block / self.blocks_per_plane, block % self.blocks_per_plane);
        let shift = self.page_shift(index);
        let row = (index << (self.stride_shift - shift)) | (offset >> shift);
        let page = row * self.planes.len() as u32 + self.positions[plane as usize];
        (page << shift) | (offset & ((1 << shift) - 1))
    }

    /// The number of a unit's location, and how many units from it on, up to `end`, have consecutive numbers; or, if it is not mapped, are
    /// not mapped either.
    pub fn run(&self, core: &FtlCore, unit: u32, end: u32) -> (u32, u32) {
        let Some(first) = core.lookup(Lpn(unit)) else {
            let empty = (unit..end).take_while(|unit| core.lookup(Lpn(*unit)).is_none());
            return (NOWHERE, empty.count() as u32);
        };
        let number = self.number(Some(first));
        let (mut at, mut ppn) = (unit, first);
        loop {
            let most = (self.within + 1 - (ppn.0 & self.within)).min(end - at);
            let count = core.tables.consecutive(Lpn(at), most);
            at += count;
            if count < most || at == end {
                break;
            }
            match core.lookup(Lpn(at)) {
                Some(next) if self.number(Some(next)) == number + (at - unit) => ppn = next,
                _ => break,
            }
        }
        (number, at - unit)
    }

    /// Number of a location. If it follows the location `before` in the same page, the number is one more; otherwise it is computed. Sets
    /// `before` to this location.
    #[inline]
    pub fn next_number(&self, before: &mut Option<(Ppn, u32)>, ppn: Option<Ppn>) -> u32 {
        let Some(at) = ppn else { return NOWHERE };
        // Every page begins at a multiple of the units in the smallest page.
        let number = match *before {
            Some((last, number)) if at.0 & self.within != 0 && last.0 + 1 == at.0 => number + 1,
            _ => self.number(ppn),
        };
        *before = Some((at, number));
        number
    }

    /// Number of a location. If it precedes the location `behind` in the same page, the number is one less; otherwise it is computed. Sets
    /// `behind` to this location.
    #[inline]
    pub fn previous_number(&self, behind: &mut (Ppn, u32), ppn: Ppn) -> u32 {
        let number = match *behind {
            (next, number) if next.0 & self.within != 0 && ppn.0 + 1 == next.0 => number - 1,
            _ => self.number(Some(ppn)),
        };
        *behind = (ppn, number);
        number
    }

    /// Number of the page with the location `number`, for pages of the same block group as that of `ppn`.
    #[inline]
    pub fn page(&self, number: u32, ppn: Ppn) -> u32 {
        let index = (ppn.0 >> self.stride_shift) % self.blocks_per_plane;
        number >> self.page_shift(index)
    }

    /// Plane of a page with this number.
    pub fn plane(&self, page: u32) -> PlaneId {
        self.planes[page as usize % self.planes.len()]
    }

    #[inline]
    fn page_shift(&self, index: u32) -> u32 {
        if let [(_, shift)] = self.groups[..] {
            return shift;
        }
        self.groups.iter().rfind(|(first, _)| *first <= index).map_or(0, |(_, shift)| *shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceConfig;

    #[test]
    fn pages_that_are_written_in_turn_have_consecutive_numbers_and_none_is_given_twice() {
        let config = DeviceConfig::preset("iiswc15-8ps").unwrap();
        let geometry = Geometry::new(config.settings());
        let places = LocationNumbering::new(&geometry);
        let ppn = |position: u32, page: u32, unit: u32| {
            let block = geometry.striped(position).0 * geometry.blocks_per_plane;
            Some(Ppn((block << geometry.stride_shift) + (page << geometry.groups[0].page_shift) + unit))
        };
        let units = geometry.groups[0].units_per_page();
        let first: Vec<u32> = (0..2)
            .flat_map(|page| (0..geometry.planes).flat_map(move |at| (0..units).map(move |unit| (at, page, unit))))
            .map(|(at, page, unit)| places.number(ppn(at, page, unit)))
            .collect();
        assert_eq!(first, (0..first.len() as u32).collect::<Vec<_>>());
        // Incremental or not, the numbers are the same.
        let mut before = None;
        let all = (0..2)
            .flat_map(|page| (0..geometry.planes).flat_map(move |at| (0..units).map(move |unit| (at, page, unit))));
        let counted: Vec<u32> =
            all.map(|(at, page, unit)| places.next_number(&mut before, ppn(at, page, unit))).collect();
        assert_eq!(counted, first);
        assert_eq!(places.next_number(&mut before, ppn(0, 0, 1)), places.number(ppn(0, 0, 1)));
        // Units at these locations, with units 5 and 6 exchanged.
        let mut core = crate::ftl::tests::core_of(&config);
        let mut lpns: Vec<u32> = (0..counted.len() as u32).collect();
        lpns.swap(5, 6);
        for (lpn, at) in lpns.iter().zip(
            (0..2)
                .flat_map(|page| (0..geometry.planes).flat_map(move |at| (0..units).map(move |unit| (at, page, unit)))),
        ) {
            assert!(core.tables.restore_entry(Lpn(*lpn), ppn(at.0, at.1, at.2).unwrap()));
        }
        let end = counted.len() as u32;
        assert_eq!(places.run(&core, 0, end), (0, 5));
        assert_eq!(places.run(&core, 5, end), (6, 1));
        assert_eq!(places.run(&core, 7, end), (7, end - 7));
        assert_eq!(places.run(&core, 7, 9), (7, 2));
        assert_eq!(places.run(&core, end, end + 3), (NOWHERE, 3));
        let last = ppn(3, 1, 0).unwrap();
        let page = places.page(places.number(Some(last)), last);
        assert_eq!((page, places.plane(page)), (geometry.planes + 3, geometry.striped(3)));
        assert_eq!(places.number(None), NOWHERE);
    }
}
