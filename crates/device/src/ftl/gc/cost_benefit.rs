//! Cost-benefit: the largest (freed space x age) / cost = age * (1 - u) / 2u (Kawaguchi et al., USENIX 1995). Hot blocks lose more units
//! before they are collected. Examines every full block of the plane.

use super::{FullBlockOrder, VictimChoice, VictimPolicy, VictimPolicyEntry, VictimView};
use crate::ids::BlockId;
use emmclab_settings::PolicyDescription;

pub(super) const POLICY: VictimPolicyEntry = VictimPolicyEntry {
    kind: PolicyDescription {
        name: "cost_benefit",
        about: "the greatest age x invalid units / valid units",
        settings: &[],
    },
    make: |_| Box::new(CostBenefitGc),
};

struct CostBenefitGc;

/// Benefit and cost of a block, separate so that blocks are compared in integers.
fn score(view: &VictimView, block: BlockId) -> (u128, u128) {
    let valid = u128::from(view.valid(block));
    let invalid = u128::from(view.units_per_block()) - valid;
    (u128::from(view.age(block) + 1) * invalid, 2 * valid)
}

impl VictimPolicy for CostBenefitGc {
    fn order(&self) -> FullBlockOrder {
        FullBlockOrder::Age
    }

    fn choose(&self, view: &VictimView) -> VictimChoice {
        let mut best: Option<(BlockId, (u128, u128))> = None;
        for block in view.full_blocks() {
            let (benefit, cost) = score(view, block);
            // A block without valid units has no cost and is the best; of equal blocks the one with the lowest number is chosen.
            let better = best.is_none_or(|(_, (best_benefit, best_cost))| {
                benefit * best_cost > best_benefit * cost || (cost == 0 && best_cost > 0)
            });
            if better {
                best = Some((block, (benefit, cost)));
            }
        }
        best.map_or(VictimChoice::Nothing, |(block, _)| VictimChoice::Collect(block))
    }
}
