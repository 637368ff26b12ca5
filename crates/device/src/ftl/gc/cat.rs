//! CAT (cost, age, times): the smallest valid units / invalid units / age, multiplied by the erases of the block, so that worn blocks are
//! spared (Chiang and Chang, "Cleaning policies in mobile computers using flash memory", J. Systems and Software 1999). Examines every full
//! block of the plane.

use super::{FullBlockOrder, VictimChoice, VictimPolicy, VictimPolicyEntry, VictimView};
use crate::ids::BlockId;
use emmclab_settings::PolicyDescription;

pub(super) const POLICY: VictimPolicyEntry = VictimPolicyEntry {
    kind: PolicyDescription {
        name: "cat",
        about: "the least valid units x erases / (invalid units x age): spares worn blocks",
        settings: &[],
    },
    make: |_| Box::new(CatGc),
};

struct CatGc;

/// Cost and benefit of a block, separate so that blocks are compared in integers. The products fit: counts of units have 20 bits, erases
/// 32, ages 64.
fn score(view: &VictimView, block: BlockId) -> (u128, u128) {
    let valid = u128::from(view.valid(block));
    let invalid = u128::from(view.units_per_block()) - valid;
    (valid * u128::from(view.erases(block) + 1), invalid * u128::from(view.age(block) + 1))
}

impl VictimPolicy for CatGc {
    fn order(&self) -> FullBlockOrder {
        FullBlockOrder::Age
    }

    fn choose(&self, view: &VictimView) -> VictimChoice {
        let mut best: Option<(BlockId, (u128, u128))> = None;
        for block in view.full_blocks() {
            let (cost, benefit) = score(view, block);
            // A fully valid block has no benefit; of equal blocks the one with the lowest number is chosen.
            let better = best.is_none_or(|(_, (least, most))| cost * most < least * benefit);
            if benefit > 0 && better {
                best = Some((block, (cost, benefit)));
            }
        }
        best.map_or(VictimChoice::Nothing, |(block, _)| VictimChoice::Collect(block))
    }
}
