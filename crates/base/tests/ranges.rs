//! Compares a map of sector ranges with an array.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use emmclab_base::SectorRangeMap;
use proptest::prelude::*;

const SECTORS: usize = 40;

proptest! {
    #[test]
    fn ranges_are_an_array_whose_equal_neighbours_are_one_run(
        steps in prop::collection::vec((0u8..4, 0..=SECTORS, 0..=SECTORS, 0u8..3), 1..60),
    ) {
        let (mut ranges, mut model) = (SectorRangeMap::default(), [None::<u8>; SECTORS]);
        for (kind, a, b, value) in steps {
            let (first, end) = (a as u64, b as u64);
            let range = a..b.max(a);
            match kind {
                0 => {
                    ranges.set(first, end, value);
                    model[range].fill(Some(value));
                }
                1 => {
                    ranges.remove(first, end);
                    model[range].fill(None);
                }
                _ => {
                    let change = |old: Option<u8>| match old {
                        None => (value > 0).then_some(value),
                        Some(old) => (old + value != 3).then_some((old + value) % 3),
                    };
                    ranges.update(first, end, change);
                    model[range].iter_mut().for_each(|cell| *cell = change(*cell));
                }
            }
            for (sector, cell) in (0..).zip(&model) {
                prop_assert_eq!(ranges.get(sector), cell.as_ref());
            }
            let runs: Vec<_> = ranges.iter().collect();
            prop_assert_eq!(runs.len(), ranges.len());
            prop_assert_eq!(runs.is_empty(), ranges.is_empty());
            for pair in runs.windows(2) {
                prop_assert!(pair[0].1 < pair[1].0 || pair[0].1 == pair[1].0 && pair[0].2 != pair[1].2);
            }
            let mut at = first;
            for (from, to, part) in ranges.parts(first, end) {
                prop_assert!(from == at && from < to && to <= end);
                prop_assert!(model[from as usize..to as usize].iter().all(|cell| cell.as_ref() == part));
                at = to;
            }
            prop_assert_eq!(at, end.max(first));
            let overlapping: Vec<_> = ranges.find(first, end).collect();
            let parts = ranges.parts(first, end).filter_map(|(from, to, part)| Some((from, to, part?)));
            prop_assert_eq!(overlapping, parts.collect::<Vec<_>>());
        }
        ranges.clear();
        prop_assert!(ranges.is_empty());
    }
}

#[test]
fn a_gigabyte_is_one_run() {
    let mut ranges = SectorRangeMap::default();
    ranges.set(0, 1 << 21, 1);
    assert_eq!(ranges.iter().collect::<Vec<_>>(), [(0, 1 << 21, &1)]);
    ranges.set(8, 16, 2);
    ranges.set(8, 16, 1);
    assert_eq!(ranges.len(), 1);
}
