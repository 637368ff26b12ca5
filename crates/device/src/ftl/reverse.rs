//! The reverse map: which logical unit lies in each slot, and whether it is still valid there.
#![expect(clippy::inline_always, reason = "the hottest path; what is handed on stays in registers")]

use std::ops::Range;

/// Slots in a word of the bitmap.
const BITS: u32 = u64::BITS;

/// Units by slot, with a bit for each slot that tells whether it is valid. To overwrite data is to clear its bit: the bits of
/// a device are a 32nd of its map, and stay in the cache where that does not.
#[derive(Clone, Debug)]
pub(crate) struct ReverseMap {
    /// Logical unit in each slot; what an invalid slot says means nothing.
    units: Vec<u32>,
    valid: Vec<u64>,
}

#[inline(always)]
const fn word(slot: u32) -> usize {
    (slot / BITS) as usize
}

#[inline(always)]
const fn bit(slot: u32) -> u64 {
    1 << (slot % BITS)
}

/// The first slot of the word behind that of a slot, or the last number there is.
#[inline(always)]
const fn next_word(slot: u32) -> u32 {
    (slot - slot % BITS).saturating_add(BITS)
}

impl ReverseMap {
    /// Nothing is valid. Memory is taken as it is used.
    pub fn new(slots: usize) -> Self {
        Self { units: vec![0; slots], valid: vec![0; slots.div_ceil(BITS as usize)] }
    }

    /// How many slots there are.
    pub fn len(&self) -> usize {
        self.units.len()
    }

    /// The unit in a slot, where it is valid. Panics where there is no such slot.
    #[inline]
    pub fn get(&self, slot: u32) -> Option<u32> {
        (self.valid[word(slot)] & bit(slot) != 0).then(|| self.units[slot as usize])
    }

    /// A unit is valid in this slot now.
    #[inline(always)]
    pub fn set(&mut self, slot: u32, unit: u32) {
        self.units[slot as usize] = unit;
        self.valid[word(slot)] |= bit(slot);
    }

    /// Nothing is valid in this slot any more.
    #[inline(always)]
    pub fn clear(&mut self, slot: u32) {
        self.valid[word(slot)] &= !bit(slot);
    }

    /// The bits around a slot, to have them in the cache; 0 where there is no such slot.
    #[inline(always)]
    pub fn around(&self, slot: u32) -> u64 {
        self.valid.get(word(slot)).copied().unwrap_or(0)
    }

    /// The valid ones of these slots, in order, with their units.
    #[inline]
    pub fn valid(&self, slots: Range<u32>) -> impl Iterator<Item = (u32, u32)> + '_ {
        let (mut from, mut bits) = (slots.start, 0);
        let mut base = from;
        std::iter::from_fn(move || {
            while bits == 0 {
                if from >= slots.end {
                    return None;
                }
                (base, bits) = (from - from % BITS, self.bits(from, slots.end));
                from = next_word(from);
            }
            let slot = base + bits.trailing_zeros();
            bits &= bits - 1;
            Some((slot, self.units[slot as usize]))
        })
    }

    /// Moves at most `most` valid units of the slots `from`, in their order, into the free slots from `to` on, and enters
    /// them in `map` (slot + 1 of each unit). Returns the slot to go on from and how many units were moved.
    #[inline]
    pub fn relocate(&mut self, from: Range<u32>, to: u32, most: u32, map: &mut [u32]) -> (u32, u32) {
        let mut next = to;
        let (mut at, end) = (from.start, to + most);
        while at < from.end && next < end {
            let mut bits = self.bits(at, from.end);
            let (base, taken) = (at - at % BITS, bits);
            at = next_word(base);
            while bits != 0 && next < end {
                let slot = base + bits.trailing_zeros();
                bits &= bits - 1;
                let unit = self.units[slot as usize];
                self.units[next as usize] = unit;
                next += 1;
                map[unit as usize] = next;
                if next == end {
                    at = slot + 1;
                }
            }
            self.valid[word(base)] ^= taken ^ bits;
        }
        self.set_all(to..next);
        (at.min(from.end), next - to)
    }

    /// The bits of the word of `from`, of the slots from there on and before `end`.
    #[inline(always)]
    fn bits(&self, from: u32, end: u32) -> u64 {
        let below = if end - from + from % BITS >= BITS { u64::MAX } else { bit(end) - 1 };
        self.valid[word(from)] & below & (u64::MAX << (from % BITS))
    }

    fn set_all(&mut self, slots: Range<u32>) {
        let mut from = slots.start;
        while from < slots.end {
            let next = next_word(from).min(slots.end);
            let ones = u64::MAX >> (BITS - (next - from));
            self.valid[word(from)] |= ones << (from % BITS);
            from = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_what_a_plain_table_holds(
            steps in prop::collection::vec((0..4u32, 0..200u32, 0..200u32, 0..90u32), 0..60),
        ) {
            const SLOTS: u32 = 200;
            let mut reverse = ReverseMap::new(SLOTS as usize);
            let mut plain = [None::<u32>; SLOTS as usize];
            let (mut map, mut plain_map) = ([0; SLOTS as usize], [0; SLOTS as usize]);
            for (step, a, b, most) in steps {
                if step == 0 {
                    reverse.set(a, b);
                    plain[a as usize] = Some(b);
                } else if step == 1 {
                    reverse.clear(a);
                    plain[a as usize] = None;
                } else {
                    // From one side of the table to what is free on the other.
                    let from = a.min(b)..a.max(b);
                    let free = (from.end..SLOTS).take_while(|slot| plain[*slot as usize].is_none()).count();
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
                    prop_assert_eq!(reverse.relocate(from.clone(), from.end, most, &mut map), (next, moved));
                    prop_assert_eq!(map, plain_map);
                }
                let held: Vec<_> = (0..).zip(plain).filter_map(|(slot, unit)| Some((slot, unit?))).collect();
                prop_assert_eq!(reverse.valid(0..SLOTS).collect::<Vec<_>>(), held.clone());
                let part = a.min(b)..a.max(b);
                let inside: Vec<_> = held.iter().copied().filter(|(slot, _)| part.contains(slot)).collect();
                prop_assert_eq!(reverse.valid(part).collect::<Vec<_>>(), inside);
                for slot in 0..SLOTS {
                    prop_assert_eq!(reverse.get(slot), plain[slot as usize]);
                }
            }
        }
    }
}
