//! Victim policies of garbage collection. A policy is one file here and one entry in [`POLICIES`].

mod cost_benefit;
mod d_choices;
mod fifo;
mod greedy;
mod windowed_greedy;

use crate::config::GcSettings;
use crate::nand::{Block, Pool};

pub use crate::nand::Order;

/// The word for no collection at all.
pub const NONE: &str = "none";

/// What a policy sees: the full blocks of one group in one plane. Nothing in it can be changed.
pub struct View<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) blocks: &'a [Block],
    /// Page programs of the device so far: the clock of ages.
    pub(crate) now: u64,
    pub(crate) slots_per_block: u32,
    /// Number of this decision, to draw samples from.
    pub(crate) turn: u64,
}

impl View<'_> {
    /// Valid units in a block.
    pub fn valid(&self, block: u32) -> u32 {
        self.blocks[block as usize].valid
    }

    /// Units in a block.
    pub fn slots_per_block(&self) -> u32 {
        self.slots_per_block
    }

    /// Page programs of the whole device since the block became full.
    pub fn age(&self, block: u32) -> u64 {
        self.now - self.blocks[block as usize].closed
    }

    /// Number of this decision in the run.
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// Full blocks.
    pub fn count(&self) -> u32 {
        self.pool.full
    }

    /// Every full block, in order of number. Takes time in proportion to the plane.
    pub fn full_blocks(&self) -> impl Iterator<Item = u32> {
        self.pool.full_blocks(self.blocks)
    }

    /// The `index`-th block of the plane and group if it is full, else `None`; `index` in `0..span()`.
    pub fn at(&self, index: u32) -> Option<u32> {
        let block = self.pool.first_block + index;
        (self.blocks[block as usize].state == crate::nand::BlockState::Full).then_some(block)
    }

    /// Blocks that [`View::at`] can be asked for.
    pub fn span(&self) -> u32 {
        self.pool.used()
    }

    /// A full block with the fewest valid units, at once. Needs [`Order::Valid`].
    pub fn least_valid(&self) -> Option<u32> {
        self.pool.least_valid()
    }

    /// The full blocks from the oldest on. Needs [`Order::Age`].
    pub fn by_age(&self) -> impl Iterator<Item = u32> {
        std::iter::successors(self.pool.oldest(), |block| self.pool.younger(*block))
    }
}

/// What a policy decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Collect this full block.
    Collect(u32),
    /// There is nothing worth collecting.
    Nothing,
}

/// Chooses the block to collect: a pure decision, the collector acts.
pub trait VictimPolicy: Send + Sync {
    /// The order in which the policy needs the full blocks kept.
    fn order(&self) -> Order {
        Order::Valid
    }
    /// The victim.
    fn choose(&self, view: &View) -> Choice;
}

/// A victim policy by name.
pub struct Policy {
    /// The value of `gc.policy`.
    pub name: &'static str,
    /// One sentence on what it does.
    pub about: &'static str,
    /// Makes it from its settings.
    pub make: fn(&GcSettings) -> Box<dyn VictimPolicy>,
}

/// Every policy.
pub static POLICIES: &[Policy] =
    &[greedy::POLICY, cost_benefit::POLICY, fifo::POLICY, d_choices::POLICY, windowed_greedy::POLICY];

/// The policy of this name.
pub fn find(name: &str) -> Option<&'static Policy> {
    POLICIES.iter().find(|policy| policy.name == name)
}
