//! Greedy: the block with the fewest valid units. Optimal for uniform traffic, but moves cold data repeatedly.

use super::{Choice, Policy, VictimPolicy, View};
use emmclab_settings::PolicyKind;

pub(super) const POLICY: Policy = Policy {
    kind: PolicyKind { name: "greedy", about: "the block with the fewest valid units", settings: &[] },
    make: |_| Box::new(Greedy),
};

struct Greedy;

impl VictimPolicy for Greedy {
    fn choose(&self, view: &View) -> Choice {
        view.least_valid().map_or(Choice::Nothing, Choice::Collect)
    }
}
