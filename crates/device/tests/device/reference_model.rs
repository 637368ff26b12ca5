//! Random devices and random requests against the reference model, which is verified after every request.

use proptest::prelude::*;

use crate::common::model::{Step, devices, drive};

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(500), ..ProptestConfig::default() })]

    #[test]
    fn every_sector_reads_back_what_was_last_written(
        config in devices(2, false),
        steps in prop::collection::vec(any::<Step>(), 1..400),
    ) {
        drive(&config, &steps)?;
    }

    /// One plane, so that garbage collection and wear levelling occur often.
    #[test]
    fn so_it_does_after_much_collection(
        config in devices(1, false),
        steps in prop::collection::vec(any::<Step>(), 1000..2000),
    ) {
        drive(&config, &steps)?;
    }

    /// Most writes have one page, and only some of them can use the fast paths.
    #[test]
    fn so_it_does_where_the_short_way_is_usual(
        config in devices(2, true),
        steps in prop::collection::vec(
            any::<Step>().prop_map(|(gap, op, place, length)| {
                (gap, op, place, if length % 8 == 0 { length } else { length % 5 * 128 + 8 * (length % 2) })
            }),
            1..400,
        ),
    ) {
        drive(&config, &steps)?;
    }
}
