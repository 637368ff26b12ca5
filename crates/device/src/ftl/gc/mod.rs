//! Victim policies of garbage collection. A policy is one file here and one entry in [`POLICIES`]; its settings are declared in its file.

mod cat;
mod cost_benefit;
mod d_choices;
mod fifo;
mod greedy;
#[cfg(test)]
mod tests;
mod windowed_greedy;

use super::pool::BlockPool;
use super::tables::FtlTables;
use crate::ids::{BlockId, PoolId};
use crate::nand::{BlockState, Nand};
use emmclab_settings::{PolicyDescription, PolicyOptions};

pub use super::pool::FullBlockOrder;

/// The name that disables collection.
pub const NONE: &str = "none";

/// The read-only view of a victim policy: the full blocks of one group in one plane.
pub struct VictimView<'a> {
    pool: &'a BlockPool,
    tables: &'a FtlTables,
    nand: &'a Nand,
    units_per_block: u32,
    decision: u64,
}

impl<'a> VictimView<'a> {
    pub(super) fn new(
        pool: PoolId,
        tables: &'a FtlTables,
        nand: &'a Nand,
        units_per_block: u32,
        decision: u64,
    ) -> Self {
        Self { pool: tables.pool(pool), tables, nand, units_per_block, decision }
    }

    /// Valid units in a block.
    pub fn valid(&self, block: BlockId) -> u32 {
        self.tables.valid(block)
    }

    /// Units in a block.
    pub fn units_per_block(&self) -> u32 {
        self.units_per_block
    }

    /// Page programs of the whole device since the block became full.
    pub fn age(&self, block: BlockId) -> u64 {
        self.tables.programs() - self.tables.closed(block)
    }

    /// Number of erases of a block.
    pub fn erases(&self, block: BlockId) -> u32 {
        self.nand.block(block).erases
    }

    /// Largest number of erases of a block in this plane and group.
    pub fn most_erases(&self) -> u32 {
        self.pool.most_erases
    }

    /// Number of this decision in the run, from which random samples can be derived.
    pub fn decision(&self) -> u64 {
        self.decision
    }

    /// Number of full blocks.
    pub fn count(&self) -> u32 {
        self.pool.full
    }

    /// All full blocks, in order of their numbers. Takes time in proportion to the size of the plane.
    pub fn full_blocks(&self) -> impl Iterator<Item = BlockId> {
        self.pool.full_blocks(self.nand)
    }

    /// The block at position `index` of the plane and group if it is full, otherwise `None`; `index` is in `0..span()`.
    pub fn at(&self, index: u32) -> Option<BlockId> {
        let block = self.pool.block_at(index);
        (self.nand.state(block) == BlockState::Full).then_some(block)
    }

    /// The number of positions for [`VictimView::at`].
    pub fn span(&self) -> u32 {
        self.pool.used()
    }

    /// A full block with the fewest valid units, found without a search among the blocks. Needs [`FullBlockOrder::Valid`].
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

/// Chooses the block to collect. It only decides; the collector executes.
pub trait VictimPolicy: Send + Sync {
    /// The order of the full blocks that the policy needs.
    fn order(&self) -> FullBlockOrder {
        FullBlockOrder::Valid
    }

    /// Chooses the victim.
    fn choose(&self, view: &VictimView) -> VictimChoice;
}

/// A victim policy in the registry.
pub struct VictimPolicyEntry {
    /// Name, meaning and settings.
    pub kind: PolicyDescription,
    /// Creates the policy from its settings.
    pub make: fn(&PolicyOptions) -> Box<dyn VictimPolicy>,
}

/// All policies.
pub static POLICIES: &[VictimPolicyEntry] =
    &[greedy::POLICY, cost_benefit::POLICY, cat::POLICY, fifo::POLICY, d_choices::POLICY, windowed_greedy::POLICY];

/// The policy of this name; `None` if there is none.
pub fn find(name: &str) -> Option<&'static VictimPolicyEntry> {
    POLICIES.iter().find(|policy| policy.kind.name == name)
}
