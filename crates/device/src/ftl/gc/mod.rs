//! Victim policies of garbage collection. A policy consists of its settings, its decision, and an entry in [`POLICIES`].

#[cfg(test)]
mod tests;

use emmclab_settings::{PolicyDescription, PolicyOptions, PolicySetting};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;

use super::pool::BlockPool;
use super::tables::FtlTables;
use crate::ids::{BlockId, PoolId};
use crate::nand::{BlockState, Nand};

pub use super::pool::FullBlockOrder;

/// The policy name that disables garbage collection.
pub const NONE: &str = "none";

/// The information from which a victim policy decides: the full blocks of one block group in one plane.
pub struct VictimView<'a> {
    pool: &'a BlockPool,
    tables: &'a FtlTables,
    nand: &'a Nand,
    units_per_block: u32,
    decision: u64,
}

impl<'a> VictimView<'a> {
    pub(super) fn new(pool: PoolId, tables: &'a FtlTables, nand: &'a Nand, units_per_block: u32, decision: u64) -> Self {
        Self { pool: tables.pool(pool), tables, nand, units_per_block, decision }
    }

    /// Number of valid map units in a block.
    pub fn valid(&self, block: BlockId) -> u32 {
        self.tables.valid(block)
    }

    /// Total number of map units in a block.
    pub fn units_per_block(&self) -> u32 {
        self.units_per_block
    }

    /// Age of a full block: the number of page programs of the whole device since the block became full.
    pub fn age(&self, block: BlockId) -> u64 {
        self.tables.programs - self.tables.closed(block)
    }

    /// Number of erases of a block.
    pub fn erases(&self, block: BlockId) -> u32 {
        self.nand.block(block).erases
    }

    /// Largest erase count of a block in this plane and block group.
    pub fn most_erases(&self) -> u32 {
        self.pool.most_erases
    }

    /// Sequence number of this choice of a victim in the run. A policy can use it as a seed for random samples.
    pub fn decision(&self) -> u64 {
        self.decision
    }

    /// Number of full blocks in this plane and block group.
    pub fn count(&self) -> u32 {
        self.pool.full
    }

    /// All full blocks, in order of their numbers. Iterating takes time proportional to the size of the plane.
    pub fn full_blocks(&self) -> impl Iterator<Item = BlockId> {
        self.pool.full_blocks(self.nand)
    }

    /// The full block at position `index` of the plane and block group; `None` if that block is not full. `index` is in `0..span()`.
    pub fn at(&self, index: u32) -> Option<BlockId> {
        let block = self.pool.block_at(index);
        (self.nand.state(block) == BlockState::Full).then_some(block)
    }

    /// Number of positions for [`VictimView::at`].
    pub fn span(&self) -> u32 {
        self.pool.used
    }

    /// A full block with the fewest valid units, without a search. Needs [`FullBlockOrder::Valid`].
    pub fn least_valid(&self) -> Option<BlockId> {
        self.pool.least_valid()
    }

    /// The full blocks, the oldest first. Needs [`FullBlockOrder::Age`].
    pub fn by_age(&self) -> impl Iterator<Item = BlockId> {
        std::iter::successors(self.pool.oldest(), |block| self.pool.younger(*block))
    }
}

/// The decision of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VictimChoice {
    /// Collect this full block.
    Collect(BlockId),
    /// No block is worth collecting.
    Nothing,
}

/// Chooses the block to collect; the collector executes the choice.
pub trait VictimPolicy: Send + Sync {
    /// The order in which the policy needs the full blocks.
    fn order(&self) -> FullBlockOrder {
        FullBlockOrder::Valid
    }

    /// Chooses the victim among the full blocks.
    fn choose(&self, view: &VictimView) -> VictimChoice;
}

/// A victim policy in the list of available policies.
pub struct VictimPolicyEntry {
    /// Name, meaning and settings of the policy.
    pub kind: PolicyDescription,
    /// Creates the policy from its settings.
    pub make: fn(&PolicyOptions) -> Box<dyn VictimPolicy>,
}

/// All victim policies.
pub static POLICIES: &[VictimPolicyEntry] = &[GREEDY, COST_BENEFIT, CAT, FIFO, D_CHOICES, WINDOWED_GREEDY];

/// The policy with this name; `None` if there is none.
pub fn find(name: &str) -> Option<&'static VictimPolicyEntry> {
    POLICIES.iter().find(|policy| policy.kind.name == name)
}

const GREEDY: VictimPolicyEntry = VictimPolicyEntry {
    kind: PolicyDescription { name: "greedy", about: "the block with the fewest valid units", settings: &[] },
    make: |_| Box::new(GreedyGc),
};

/// Greedy: the block with the fewest valid units. The policy is optimal for uniform traffic, but moves cold data repeatedly.
struct GreedyGc;

impl VictimPolicy for GreedyGc {
    fn choose(&self, view: &VictimView) -> VictimChoice {
        view.least_valid().map_or(VictimChoice::Nothing, VictimChoice::Collect)
    }
}

const FIFO: VictimPolicyEntry = VictimPolicyEntry {
    kind: PolicyDescription { name: "fifo", about: "the block that has been full for longest", settings: &[] },
    make: |_| Box::new(FifoGc),
};

/// FIFO (LRU cleaning): the block that has been full for the longest time, regardless of its contents. The policy is cheap and wears
/// evenly, but moves fully valid blocks.
struct FifoGc;

impl VictimPolicy for FifoGc {
    fn order(&self) -> FullBlockOrder {
        FullBlockOrder::Age
    }

    fn choose(&self, view: &VictimView) -> VictimChoice {
        view.by_age().next().map_or(VictimChoice::Nothing, VictimChoice::Collect)
    }
}

const WINDOW: PolicySetting = PolicySetting {
    key: "window",
    about: "Oldest blocks looked at for each decision.",
    default: 64,
    range: (1, u32::MAX as u64),
};

const WINDOWED_GREEDY: VictimPolicyEntry = VictimPolicyEntry {
    kind: PolicyDescription {
        name: "windowed_greedy",
        about: "the fewest valid units among the `gc.window` oldest blocks",
        settings: &[WINDOW],
    },
    make: |options| Box::new(WindowedGreedyGc { window: WINDOW.count(options) as usize }),
};

/// Windowed greedy: the block with the fewest valid units among the oldest blocks (Hu et al., SYSTOR 2009). Window 1 is FIFO.
struct WindowedGreedyGc {
    window: usize,
}

impl VictimPolicy for WindowedGreedyGc {
    fn order(&self) -> FullBlockOrder {
        FullBlockOrder::Age
    }

    fn choose(&self, view: &VictimView) -> VictimChoice {
        let best = view.by_age().take(self.window).min_by_key(|block| view.valid(*block));
        best.map_or(VictimChoice::Nothing, VictimChoice::Collect)
    }
}

const COST_BENEFIT: VictimPolicyEntry = VictimPolicyEntry {
    kind: PolicyDescription { name: "cost_benefit", about: "the greatest age x invalid units / valid units", settings: &[] },
    make: |_| Box::new(CostBenefitGc),
};

/// Cost-benefit: the block with the largest ratio (freed space x age) / cost = age * (1 - u) / 2u (Kawaguchi et al., USENIX 1995). Hot
/// blocks lose more units before they are collected. The policy examines every full block of the plane.
struct CostBenefitGc;

impl VictimPolicy for CostBenefitGc {
    fn order(&self) -> FullBlockOrder {
        FullBlockOrder::Age
    }

    fn choose(&self, view: &VictimView) -> VictimChoice {
        greatest_ratio(view, |block, valid, invalid| Some((u128::from(view.age(block) + 1) * invalid, 2 * valid)))
    }
}

/// Chooses the full block with the greatest ratio of benefit to cost; of equally good blocks, the one with the lowest number. `ratio`
/// returns (benefit, cost) for a block and its numbers of valid and invalid units, or `None` if the block must not be chosen. A cost of 0
/// is better than any other cost. Ratios are compared by integer products. These do not overflow, because unit counts have 20 bits, erase
/// counts 32, and ages 64.
fn greatest_ratio(view: &VictimView, ratio: impl Fn(BlockId, u128, u128) -> Option<(u128, u128)>) -> VictimChoice {
    let mut best: Option<(BlockId, (u128, u128))> = None;
    for block in view.full_blocks() {
        let valid = u128::from(view.valid(block));
        let Some((benefit, cost)) = ratio(block, valid, u128::from(view.units_per_block()) - valid) else { continue };
        if best.is_none_or(|(_, (best_benefit, best_cost))| benefit * best_cost > best_benefit * cost) {
            best = Some((block, (benefit, cost)));
        }
    }
    best.map_or(VictimChoice::Nothing, |(block, _)| VictimChoice::Collect(block))
}

const CAT: VictimPolicyEntry = VictimPolicyEntry {
    kind: PolicyDescription {
        name: "cat",
        about: "the least valid units x erases / (invalid units x age): spares worn blocks",
        settings: &[],
    },
    make: |_| Box::new(CatGc),
};

/// CAT (cost, age, times): the block with the smallest value of valid units / invalid units / age, multiplied by the erases of the block to
/// spare worn blocks (Chiang and Chang, "Cleaning policies in mobile computers using flash memory", J. Systems and Software 1999). The
/// policy examines every full block of the plane.
struct CatGc;

impl VictimPolicy for CatGc {
    fn order(&self) -> FullBlockOrder {
        FullBlockOrder::Age
    }

    fn choose(&self, view: &VictimView) -> VictimChoice {
        greatest_ratio(view, |block, valid, invalid| {
            let cost = valid * u128::from(view.erases(block) + 1);
            let benefit = invalid * u128::from(view.age(block) + 1);
            // Collecting a fully valid block frees no space.
            (benefit > 0).then_some((benefit, cost))
        })
    }
}

const CHOICES: PolicySetting =
    PolicySetting { key: "choices", about: "Blocks drawn for each decision.", default: 10, range: (1, 4096) };
const SEED: PolicySetting = PolicySetting { key: "seed", about: "Seed of the draws.", default: 1, range: (0, i64::MAX as u64) };

const D_CHOICES: VictimPolicyEntry = VictimPolicyEntry {
    kind: PolicyDescription {
        name: "d_choices",
        about: "the fewest valid units among `gc.choices` blocks drawn at random",
        settings: &[CHOICES, SEED],
    },
    make: |options| Box::new(DChoicesGc { choices: CHOICES.count(options), seed: SEED.of(options) }),
};

/// An odd number that spreads consecutive decision numbers over the whole state of the random generator.
const SPREAD: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;

/// d-choices: the block with the fewest valid units among `d` blocks drawn at random (Van Houdt, SIGMETRICS 2013). With `d` of ten or more,
/// the choice is close to greedy.
struct DChoicesGc {
    choices: u32,
    seed: u64,
}

impl VictimPolicy for DChoicesGc {
    fn choose(&self, view: &VictimView) -> VictimChoice {
        if view.count() == 0 {
            return VictimChoice::Nothing;
        }
        // Each decision has its own random generator, so that its draws do not depend on earlier decisions.
        let mut random = Pcg64Mcg::new((u128::from(self.seed) << 64) ^ (u128::from(view.decision()).wrapping_mul(SPREAD)));
        let mut best: Option<BlockId> = None;
        let mut drawn = 0;
        while drawn < self.choices {
            let index = (u64::from(random.next_u32()) * u64::from(view.span())) >> 32;
            // If the drawn block is not full, draws again. Most blocks are full when space is short.
            let Some(block) = view.at(index as u32) else { continue };
            drawn += 1;
            if best.is_none_or(|best| view.valid(block) < view.valid(best)) {
                best = Some(block);
            }
        }
        best.map_or(VictimChoice::Nothing, VictimChoice::Collect)
    }
}
