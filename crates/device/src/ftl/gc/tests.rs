//! Tests of the choices that all policies make among the same blocks.

use super::{POLICIES, VictimChoice, VictimView, find};
use crate::ftl::pool::{BlockPool, FullBlockOrder, STREAMS};
use crate::ftl::tables::FtlTables;
use crate::geometry::Geometry;
use crate::ids::{BlockId, Lpn, PoolId};
use crate::load::DeviceConfig;
use crate::nand::{BlockState, Nand};
use emmclab_settings::PolicyOptions;

/// A full block: (valid units of 16, erases, page programs of the device before the block became full).
pub(super) type Full = (u32, u32, u64);

/// Returns the choice of a policy among full blocks after 1,000 page programs; `blocks` is in the order in which they became full.
pub(super) fn choose(policy: &str, options: &[(&str, u64)], blocks: &[Full]) -> Option<usize> {
    let mut config = DeviceConfig::preset("small-1gb").unwrap();
    let shape = [
        ("geometry.block_groups.0.blocks", "12"),
        ("geometry.block_groups.0.pages_per_block", "16"),
        ("geometry.planes_per_die", "1"),
    ];
    config.set_all(&shape).unwrap();
    let options: PolicyOptions = options.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect();
    let policy = (find(policy).unwrap().make)(&options);
    let geometry = Geometry::new(config.settings());
    let mut nand = Nand::new(config.settings(), &geometry);
    let pools = (0..geometry.planes)
        .map(|plane| BlockPool::new(plane, geometry.blocks_per_plane, &geometry.groups[0], policy.order(), false))
        .collect();
    let mut tables = FtlTables::new(&geometry, geometry.logical_units as usize, pools);
    let used = blocks.len() as u32;
    tables.pool_mut(PoolId(0)).restore(used, 12, [BlockId::NONE; STREAMS]);
    let mut unit = 0;
    for (number, (valid, erases, closed)) in (0..).map(BlockId).zip(blocks) {
        nand.restore(number, 16, *erases, BlockState::Full);
        tables.restore_block(number, *valid, *closed);
        for offset in 0..*valid {
            assert!(tables.restore_entry(Lpn(unit), geometry.first_ppn(number).plus(offset)));
            unit += 1;
        }
        tables.restore_listed(number);
    }
    tables.pool_mut(PoolId(0)).most_erases = blocks.iter().map(|(_, erases, _)| *erases).max().unwrap_or(0);
    tables.restore_programs(1_000);
    match policy.choose(&VictimView::new(PoolId(0), &tables, &nand, 16, 0)) {
        VictimChoice::Collect(block) => Some(block.index()),
        VictimChoice::Nothing => None,
    }
}

/// Test blocks: the oldest; the one with the fewest valid units; a young one with nearly as few; a worn one; one without erases.
const BLOCKS: [Full; 5] = [(12, 5, 100), (3, 9, 400), (4, 1, 900), (8, 40, 500), (10, 0, 600)];

#[test]
fn each_policy_is_held_to_its_rule() {
    assert_eq!(choose("greedy", &[], &BLOCKS), Some(1));
    assert_eq!(choose("fifo", &[], &BLOCKS), Some(0));
    assert_eq!(choose("windowed_greedy", &[("window", 1)], &BLOCKS), Some(0));
    assert_eq!(choose("windowed_greedy", &[("window", 2)], &BLOCKS), Some(1));
    // Twice the scores age x (1 - u) / 2u of the blocks: 300, 2,600, 300, 500, 240; u is the share of valid units. The highest is chosen.
    assert_eq!(choose("cost_benefit", &[], &BLOCKS), Some(1));
    // Scores u / (1 - u) x erases / age, where u is the share of valid units: 0.02, 0.004, 0.007, 0.08, 0.004. The lowest is chosen. If the
    // emptiest block is worn (`worn`), the block without erases is preferred.
    assert_eq!(choose("cat", &[], &BLOCKS), Some(1));
    let worn = [(12, 5, 100), (3, 90, 400), (4, 1, 900), (8, 40, 500), (10, 0, 600)];
    assert_eq!(choose("cat", &[], &worn), Some(4));
}

#[test]
fn a_draw_of_every_block_is_greedy_and_the_same_seed_draws_the_same() {
    assert_eq!(choose("d_choices", &[("choices", 400)], &BLOCKS), Some(1));
    let drawn = |seed| choose("d_choices", &[("choices", 1), ("seed", seed)], &BLOCKS);
    assert!((0..20).all(|seed| drawn(seed) == drawn(seed)));
    assert!((0..20).any(|seed| drawn(seed) != drawn(0)));
}

#[test]
fn without_full_blocks_there_is_nothing_to_choose() {
    for policy in POLICIES {
        assert_eq!(choose(policy.kind.name, &[], &[]), None, "{}", policy.kind.name);
    }
}

#[test]
fn greedy_takes_the_latest_of_equals() {
    assert_eq!(choose("greedy", &[], &[(2, 0, 1), (1, 0, 2), (1, 0, 3), (3, 0, 4)]), Some(2));
}

#[test]
fn orders_are_those_that_the_policies_read() {
    let order = |name: &str| (find(name).unwrap().make)(&PolicyOptions::new()).order();
    assert!(["greedy", "d_choices"].iter().all(|name| order(name) == FullBlockOrder::Valid));
    assert!(["fifo", "windowed_greedy", "cost_benefit", "cat"].iter().all(|name| order(name) == FullBlockOrder::Age));
}
