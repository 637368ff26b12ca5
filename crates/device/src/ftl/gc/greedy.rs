//! Greedy: the block with the fewest valid units. Optimal for uniform traffic; moves cold data again and again.

use super::{Choice, Policy, VictimPolicy, View};

pub(super) const POLICY: Policy =
    Policy { name: "greedy", about: "the block with the fewest valid units", make: |_| Box::new(Greedy) };

struct Greedy;

impl VictimPolicy for Greedy {
    fn choose(&self, view: &View) -> Choice {
        view.least_valid().map_or(Choice::Nothing, Choice::Collect)
    }
}
