//! What each victim policy decides on full blocks that a test lays out.

use emmclab_base::Nanos;

use super::{Choice, POLICIES, Policy, View};
use crate::DeviceConfig;
use crate::ftl::core::Core;
use crate::ftl::pool::Stream;
use crate::geometry::Geometry;
use crate::ids::PoolId;
use crate::nand::Nand;

/// Units in a block of the test device: 4 pages of one unit each.
const UNITS: u32 = 4;

/// The block that `policy` with these options chooses, by its position in `blocks`, which have so many valid units and erases
/// and became full one after the other; `None` for nothing.
pub(super) fn choice(policy: &Policy, options: &[(&str, u64)], blocks: &[(u32, u32)]) -> Option<usize> {
    let text = format!(
        "[[geometry.block_groups]]\nblocks = {}\npages_per_block = {UNITS}\npage_kb = 4\n[capacity]\nover_provisioning_pct = 100",
        blocks.len() + 8
    );
    let mut config = DeviceConfig::from_toml(&text).unwrap();
    let given: Vec<_> = options.iter().map(|(key, value)| (format!("gc.{key}"), value.to_string())).collect();
    let named = [("gc.policy", policy.kind.name)];
    let given = given.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    config.set_all(&named.into_iter().chain(given).collect::<Vec<_>>()).unwrap();
    let settings = config.settings();
    let geometry = Geometry::new(settings);
    let mut nand = Nand::new(settings, &geometry);
    let mut core = Core::new(settings, &geometry, &nand, 0);
    let pool = PoolId(0);
    let laid_out: Vec<_> = blocks.iter().map(|_| core.tables.pool_mut(pool).take().unwrap()).collect();
    for (block, (valid, erases)) in laid_out.iter().zip(blocks) {
        for _ in 0..*erases {
            nand.erase(*block, Nanos::ZERO);
        }
        nand.open(*block);
        nand.program(*block, UNITS - 1, Nanos::ZERO, 0);
        core.tables.fill(*block, UNITS, *valid, Some(Stream::Host));
        let entry = core.tables.pool_mut(pool);
        entry.most_erases = entry.most_erases.max(*erases);
    }
    let view = View::new(pool, &core.tables, &nand, UNITS, 0);
    match core.collector.policy.unwrap().choose(&view) {
        Choice::Collect(block) => laid_out.iter().position(|other| *other == block),
        Choice::Nothing => None,
    }
}

/// Valid units and erases of blocks, the oldest first: a fully valid one, two that are even, a worn one with the fewest valid units.
const BLOCKS: [(u32, u32); 4] = [(4, 0), (2, 0), (2, 0), (1, 9)];

#[test]
fn each_policy_chooses_what_it_is_known_for() {
    let chosen = |name: &str, options: &[(&str, u64)]| choice(super::find(name).unwrap(), options, &BLOCKS);
    assert_eq!(chosen("greedy", &[]), Some(3));
    assert_eq!(chosen("fifo", &[]), Some(0));
    // (age + 1) x invalid / 2 valid: 0, 9 * 2 / 4, 5 * 2 / 4, 1 * 3 / 2.
    assert_eq!(chosen("cost_benefit", &[]), Some(1));
    // As that, by erases + 1.
    assert_eq!(chosen("cat", &[]), Some(1));
    assert_eq!(chosen("windowed_greedy", &[("window", 1)]), Some(0));
    assert_eq!(chosen("windowed_greedy", &[("window", 3)]), Some(1));
    // So many draws hit every block.
    assert_eq!(chosen("d_choices", &[("choices", 200)]), Some(3));
}

#[test]
fn greedy_takes_the_latest_of_equals() {
    let greedy = super::find("greedy").unwrap();
    assert_eq!(choice(greedy, &[], &[(2, 0), (1, 0), (1, 0), (3, 0)]), Some(2));
}

#[test]
fn cat_spares_a_worn_block_that_cost_benefit_takes() {
    let blocks = [(2, 9), (2, 0)];
    assert_eq!(choice(super::find("cost_benefit").unwrap(), &[], &blocks), Some(0));
    assert_eq!(choice(super::find("cat").unwrap(), &[], &blocks), Some(1));
}

#[test]
fn no_policy_finds_a_victim_where_no_block_is_full() {
    for policy in POLICIES {
        assert_eq!(choice(policy, &[], &[]), None, "{}", policy.kind.name);
    }
}
