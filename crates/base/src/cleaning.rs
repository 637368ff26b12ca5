//! Chooses which segment is cleaned next, in the layer `lfs` and in log-structured file systems.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A segment that may be cleaned: it is full, and not all of its blocks are live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleaningCandidate {
    /// Number of the candidate segment.
    pub segment: u32,
    /// Number of live blocks in the segment.
    pub live: u32,
    /// Number of writes since the segment became full, used as its age.
    pub age: u64,
}

/// The policy that chooses the segment to clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CleaningPolicy {
    /// The segment with the fewest live blocks is chosen.
    Greedy,
    /// The segment with the greatest ratio of benefit to cost: free space times age, divided by the cost of reading the segment and writing
    /// its live data. For a share u of live data, it is (1 - u) age / (1 + u) (Rosenblum and Ousterhout, SOSP 1991, section 3.6).
    CostBenefit,
}

impl CleaningPolicy {
    /// Returns the number of the segment to clean; of equally good candidates, the first one. `None` if no candidate has a dead block.
    /// `blocks` is the number of blocks in a segment.
    pub fn choose(self, candidates: impl Iterator<Item = CleaningCandidate>, blocks: u32) -> Option<u32> {
        let gains = candidates.filter(|candidate| candidate.live < blocks);
        let better = |candidate: &CleaningCandidate, other: &CleaningCandidate| match self {
            Self::Greedy => candidate.live < other.live,
            Self::CostBenefit => {
                let benefit = |of: &CleaningCandidate| u128::from(of.age + 1) * u128::from(blocks - of.live);
                let cost = |of: &CleaningCandidate| u128::from(blocks + of.live);
                benefit(candidate) * cost(other) > benefit(other) * cost(candidate)
            }
        };
        gains.reduce(|best, next| if better(&next, &best) { next } else { best }).map(|best| best.segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(segment: u32, live: u32, age: u64) -> CleaningCandidate {
        CleaningCandidate { segment, live, age }
    }

    #[test]
    fn greedy_takes_the_emptiest_and_of_equal_ones_the_first() {
        let all = [of(3, 40, 9), of(4, 10, 0), of(5, 10, 99)];
        assert_eq!(CleaningPolicy::Greedy.choose(all.into_iter(), 64), Some(4));
    }

    #[test]
    fn cost_benefit_prefers_an_old_segment_to_a_young_one_with_less_alive() {
        let all = [of(1, 10, 5), of(2, 32, 500)];
        assert_eq!(CleaningPolicy::CostBenefit.choose(all.into_iter(), 64), Some(2));
        let young = [of(1, 10, 500), of(2, 32, 500)];
        assert_eq!(CleaningPolicy::CostBenefit.choose(young.into_iter(), 64), Some(1));
    }

    #[test]
    fn a_segment_that_is_all_alive_is_never_chosen() {
        for policy in [CleaningPolicy::Greedy, CleaningPolicy::CostBenefit] {
            assert_eq!(policy.choose([of(1, 64, 1 << 60)].into_iter(), 64), None);
            assert_eq!(policy.choose([of(1, 64, 1 << 60), of(2, 63, 0)].into_iter(), 64), Some(2));
        }
    }
}
