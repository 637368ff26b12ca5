//! Greedy: the block with the fewest valid units. Optimal for uniform traffic, but moves cold data repeatedly.

use super::{VictimChoice, VictimPolicy, VictimPolicyEntry, VictimView};
use emmclab_settings::PolicyDescription;

pub(super) const POLICY: VictimPolicyEntry = VictimPolicyEntry {
    kind: PolicyDescription { name: "greedy", about: "the block with the fewest valid units", settings: &[] },
    make: |_| Box::new(GreedyGc),
};

struct GreedyGc;

impl VictimPolicy for GreedyGc {
    fn choose(&self, view: &VictimView) -> VictimChoice {
        view.least_valid().map_or(VictimChoice::Nothing, VictimChoice::Collect)
    }
}
