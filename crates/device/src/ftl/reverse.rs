//! The reverse map: which logical unit each flash location contains, and whether it is valid there.

use std::ops::Range;

use crate::ids::{Lpn, Ppn};

/// Number of flash locations per word of the bitmap.
const BITS: u32 = u64::BITS;

/// Logical units by flash location, and a bitmap of the valid locations. Overwriting data clears the bit of its old location. The bitmap is
/// 32 times smaller than the map, so it stays in the CPU cache even if the map does not.
#[derive(Clone, Debug)]
pub(crate) struct ReverseMap {
    /// The map unit whose data is at each flash location. The entry of an invalid location is outdated.
    pub units: Vec<u32>,
    valid: Vec<u64>,
}

#[inline(always)]
const fn word(place: u32) -> usize {
    (place / BITS) as usize
}

#[inline(always)]
const fn bit(place: u32) -> u64 {
    1 << (place % BITS)
}

/// The first location of the next bitmap word; the largest number if there is none.
#[inline(always)]
const fn next_word(place: u32) -> u32 {
    (place - place % BITS).saturating_add(BITS)
}

impl ReverseMap {
    /// A map without valid locations. Memory is allocated at its first use.
    pub fn new(places: usize) -> Self {
        Self { units: vec![0; places], valid: vec![0; places.div_ceil(BITS as usize)] }
    }

    /// The unit at a location, or `None` if the location is invalid. Panics if the location does not exist.
    #[inline]
    pub fn get(&self, Ppn(place): Ppn) -> Option<Lpn> {
        (self.valid[word(place)] & bit(place) != 0).then(|| Lpn(self.units[place as usize]))
    }

    /// Marks a location as valid and records the unit that it contains.
    #[inline(always)]
    pub fn set(&mut self, Ppn(place): Ppn, Lpn(unit): Lpn) {
        self.units[place as usize] = unit;
        self.valid[word(place)] |= bit(place);
    }

    /// Marks a location as invalid.
    #[inline(always)]
    pub fn clear(&mut self, Ppn(place): Ppn) {
        self.valid[word(place)] &= !bit(place);
    }

    /// Returns the bitmap word that contains a location; 0 if the location does not exist. Reading the word loads it into the CPU cache.
    #[inline(always)]
    pub fn around(&self, Ppn(place): Ppn) -> u64 {
        self.valid.get(word(place)).copied().unwrap_or(0)
    }

    /// The valid locations of a range, in order.
    #[inline]
    pub fn places(&self, places: Range<Ppn>) -> impl Iterator<Item = Ppn> + '_ {
        let (mut from, end, mut bits) = (places.start.0, places.end.0, 0);
        let mut base = from;
        std::iter::from_fn(move || {
            while bits == 0 {
                if from >= end {
                    return None;
                }
                (base, bits) = (from - from % BITS, self.bits(from, end));
                from = next_word(from);
            }
            let place = base + bits.trailing_zeros();
            bits &= bits - 1;
            Some(Ppn(place))
        })
    }

    /// The valid locations of a range, in order, with their units.
    #[inline]
    pub fn valid(&self, places: Range<Ppn>) -> impl Iterator<Item = (Ppn, Lpn)> + '_ {
        self.places(places).map(|place| (place, Lpn(self.units[place.index()])))
    }

    /// Returns the number of valid locations in a range, at most `most`. Also returns the location after the last counted one, or the end
    /// of the range if there are fewer than `most`.
    #[inline]
    pub fn count(&self, places: Range<Ppn>, most: u32) -> (u32, Ppn) {
        let (mut at, end) = (places.start.0, places.end.0);
        let mut valid = 0;
        while at < end && valid < most {
            let mut bits = self.bits(at, end);
            let ones = bits.count_ones();
            if valid + ones >= most {
                for _ in 1..most - valid {
                    bits &= bits - 1;
                }
                return (most, Ppn(at - at % BITS + bits.trailing_zeros() + 1));
            }
            valid += ones;
            at = next_word(at);
        }
        (valid, if valid < most { places.end } else { places.start })
    }

    /// Number of pages with at least one valid location, in a range of whole pages. A page has `1 << page_shift` locations, at most 64.
    #[inline]
    pub fn count_pages(&self, places: Range<Ppn>, page_shift: u32) -> u32 {
        // A mask with one bit set for the first location of each page.
        let firsts = u64::MAX / (u64::MAX >> (BITS - (1 << page_shift)));
        let (mut at, end) = (places.start.0, places.end.0);
        let mut pages = 0;
        while at < end {
            let mut bits = self.bits(at, end);
            for shift in 0..page_shift {
                bits |= bits >> (1 << shift);
            }
            pages += (bits & firsts).count_ones();
            at = next_word(at);
        }
        pages
    }

    /// Moves the first `count` valid units of `from`, in order, to the free locations from `to` on. Updates their entries in `map`, which
    /// contains location + 1 for each unit.
    #[inline]
    pub fn relocate(&mut self, from: Range<Ppn>, Ppn(to): Ppn, count: u32, map: &mut [u32]) {
        let mut next = to;
        let (mut at, from_end, end) = (from.start.0, from.end.0, to + count);
        while at < from_end && next < end {
            let mut bits = self.bits(at, from_end);
            let (base, taken) = (at - at % BITS, bits);
            at = next_word(base);
            while bits != 0 && next < end {
                let place = base + bits.trailing_zeros();
                bits &= bits - 1;
                let unit = self.units[place as usize];
                self.units[next as usize] = unit;
                next += 1;
                map[unit as usize] = next;
            }
            self.valid[word(base)] ^= taken ^ bits;
        }
        self.set_all(to..next);
    }

    /// Bit mask of the locations from `from` to before `end` in the bitmap word that contains `from`.
    #[inline(always)]
    fn bits(&self, from: u32, end: u32) -> u64 {
        let below = if end - from + from % BITS >= BITS { u64::MAX } else { bit(end) - 1 };
        self.valid[word(from)] & below & (u64::MAX << (from % BITS))
    }

    fn set_all(&mut self, places: Range<u32>) {
        let mut from = places.start;
        while from < places.end {
            let next = next_word(from).min(places.end);
            let ones = u64::MAX >> (BITS - (next - from));
            self.valid[word(from)] |= ones << (from % BITS);
            from = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_what_a_plain_table_holds(
            steps in prop::collection::vec((0..4u32, 0..200u32, 0..200u32, 0..90u32), 0..60),
        ) {
            const PLACES: u32 = 200;
            let mut reverse = ReverseMap::new(PLACES as usize);
            let mut plain = [None::<u32>; PLACES as usize];
            let (mut map, mut plain_map) = ([0; PLACES as usize], [0; PLACES as usize]);
            for (step, a, b, most) in steps {
                if step == 0 {
                    reverse.set(Ppn(a), Lpn(b));
                    plain[a as usize] = Some(b);
                } else if step == 1 {
                    reverse.clear(Ppn(a));
                    plain[a as usize] = None;
                } else {
                    // The units at locations between `a` and `b` move to the free locations after them.
                    let from = a.min(b)..a.max(b);
                    let free = (from.end..PLACES).take_while(|place| plain[*place as usize].is_none()).count();
                    let most = most.min(free as u32);
                    let (mut next, mut to) = (from.start, from.end);
                    while next < from.end && to - from.end < most {
                        if let Some(unit) = plain[next as usize].take() {
                            plain[to as usize] = Some(unit);
                            to += 1;
                            plain_map[unit as usize] = to;
                        }
                        next += 1;
                    }
                    let moved = to - from.end;
                    let places = Ppn(from.start)..Ppn(from.end);
                    prop_assert_eq!(reverse.count(places.clone(), most), (moved, Ppn(next)));
                    reverse.relocate(places, Ppn(from.end), moved, &mut map);
                    prop_assert_eq!(map, plain_map);
                }
                let held: Vec<_> =
                    (0..).zip(plain).filter_map(|(place, unit)| Some((Ppn(place), Lpn(unit?)))).collect();
                prop_assert_eq!(reverse.valid(Ppn(0)..Ppn(PLACES)).collect::<Vec<_>>(), held.clone());
                let part = Ppn(a.min(b))..Ppn(a.max(b));
                let inside: Vec<_> = held.iter().copied().filter(|(place, _)| part.contains(place)).collect();
                prop_assert_eq!(reverse.valid(part).collect::<Vec<_>>(), inside);
                for page_shift in 0..=3 {
                    let aligned = |place: u32| place >> 3 << 3;
                    let part = Ppn(aligned(a.min(b)))..Ppn(aligned(a.max(b)));
                    let pages: HashSet<_> =
                        reverse.places(part.clone()).map(|place| place.0 >> page_shift).collect();
                    prop_assert_eq!(reverse.count_pages(part, page_shift), pages.len() as u32);
                }
                for place in 0..PLACES {
                    prop_assert_eq!(reverse.get(Ppn(place)), plain[place as usize].map(Lpn));
                }
            }
        }
    }
}
