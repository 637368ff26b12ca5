//! d-choices: the block with the fewest valid units among `d` blocks drawn at random (Van Houdt, SIGMETRICS 2013). Close to greedy with ten
//! or more, without keeping any order.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;

use super::{VictimChoice, VictimPolicy, VictimPolicyEntry, VictimView};
use crate::ids::BlockId;
use emmclab_settings::{PolicyDescription, PolicySetting};

const CHOICES: PolicySetting =
    PolicySetting { key: "choices", about: "Blocks drawn for each decision.", default: 10, range: (1, 4096) };
const SEED: PolicySetting =
    PolicySetting { key: "seed", about: "Seed of the draws.", default: 1, range: (0, i64::MAX as u64) };

pub(super) const POLICY: VictimPolicyEntry = VictimPolicyEntry {
    kind: PolicyDescription {
        name: "d_choices",
        about: "the fewest valid units among `gc.choices` blocks drawn at random",
        settings: &[CHOICES, SEED],
    },
    make: |options| Box::new(DChoicesGc { choices: CHOICES.count(options), seed: SEED.of(options) }),
};

/// An odd number that spreads consecutive decisions over the whole state.
const SPREAD: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;

struct DChoicesGc {
    choices: u32,
    seed: u64,
}

impl VictimPolicy for DChoicesGc {
    fn choose(&self, view: &VictimView) -> VictimChoice {
        if view.count() == 0 {
            return VictimChoice::Nothing;
        }
        // One generator per decision: the result of a decision does not depend on earlier ones.
        let mut random =
            Pcg64Mcg::new((u128::from(self.seed) << 64) ^ (u128::from(view.decision()).wrapping_mul(SPREAD)));
        let mut best: Option<BlockId> = None;
        let mut drawn = 0;
        while drawn < self.choices {
            let index = (u64::from(random.next_u32()) * u64::from(view.span())) >> 32;
            // Blocks that are not full are drawn again: most are full whenever space is short.
            let Some(block) = view.at(index as u32) else { continue };
            drawn += 1;
            if best.is_none_or(|best| view.valid(block) < view.valid(best)) {
                best = Some(block);
            }
        }
        best.map_or(VictimChoice::Nothing, VictimChoice::Collect)
    }
}
