//! A request as a layer sees it.

use emmclab_base::{CommandFlags, Op};

use crate::plan::CommandPlan;

/// A request from above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRequest {
    /// Its number; later requests have higher ones. A deferred request keeps its number.
    pub id: u64,
    /// Its operation.
    pub op: Op,
    /// First sector.
    pub sector: u64,
    /// Length in sectors; 0 for a flush.
    pub sectors: u32,
    /// Its flags.
    pub modifiers: CommandFlags,
}

impl HostRequest {
    /// The sector after the last one.
    #[inline]
    pub fn end(&self) -> u64 {
        self.sector + u64::from(self.sectors)
    }

    /// Plans the request as several commands with only the flags in `accepted`; they guarantee at least as much. A preflush becomes
    /// a flush before it, a durable write gets a flush after it, and a barrier becomes a flush. False if the request can be sent as
    /// it is.
    pub fn expand(&self, accepted: CommandFlags, plan: &mut CommandPlan) -> bool {
        let refused = self.modifiers.of(self.op).difference(accepted.union(CommandFlags::META));
        if refused.is_empty() {
            return false;
        }
        if refused.contains(CommandFlags::PREFLUSH) {
            plan.bare(0, Op::Flush, 0, 0);
            plan.wait();
        }
        plan.flag(self.modifiers.difference(refused));
        plan.forward(self);
        if refused.durable() {
            plan.wait();
            plan.bare(0, Op::Flush, 0, 0);
        }
        true
    }
}
