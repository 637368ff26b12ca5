//! Classes of times: 32 in each power of two, so that a time differs from another of its class by at most 1 / 32.

/// Base-2 logarithm of the classes in each power of two.
const BITS: u32 = 5;

/// The class of a time: its leading six bits and how many follow.
#[inline]
pub(crate) const fn class(ns: u64) -> usize {
    let shift = (ns | 1 << BITS).ilog2() - BITS;
    (((shift as u64) << BITS) + (ns >> shift)) as usize
}

/// The longest time of a class.
pub(crate) fn longest(class: usize) -> u64 {
    let shift = (class >> BITS).saturating_sub(1);
    let least = ((class - (shift << BITS)) as u64) << shift;
    least + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_time_lies_within_its_class_of_one_32nd(shift in 0..64_u32, value in any::<u64>()) {
            let ns = value >> shift;
            let of = class(ns);
            prop_assert!(longest(of) >= ns && (longest(of) - ns) <= ns / 32);
            prop_assert!(of == 0 || longest(of - 1) < ns);
        }
    }
}
