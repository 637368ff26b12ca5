//! Requests that the device refused, counted by the violated rule.

use std::collections::BTreeMap;

use emmclab_base::Error;
use schemars::JsonSchema;
use serde::Serialize;

/// Requests that violated one rule, such as the order of writes in a zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RefusedRequests {
    /// Number of requests.
    pub requests: u64,
    /// Why the first of them was refused, in words.
    pub first: String,
}

/// All refused requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct RefusalsByRule(BTreeMap<String, RefusedRequests>);

impl RefusalsByRule {
    /// Counts a request at `sector` that was refused with this error. Errors that differ only in their numbers belong to the same rule.
    pub fn count(&mut self, error: &Error, sector: u64) {
        let rule: String = error.problem().chars().filter(|character| !character.is_ascii_digit()).collect();
        let first =
            || RefusedRequests { requests: 0, first: format!("{} (request at sector {sector})", error.problem()) };
        self.0.entry(rule).or_insert_with(first).requests += 1;
    }

    /// The refused requests of each rule, the most frequent rule first.
    pub fn by_rule(&self) -> Vec<RefusedRequests> {
        let mut all: Vec<RefusedRequests> = self.0.values().cloned().collect();
        all.sort_by_key(|refusal| std::cmp::Reverse(refusal.requests));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emmclab_base::ErrorClass;

    #[test]
    fn requests_are_counted_by_the_rule_that_they_break() {
        let mut refusals = RefusalsByRule::default();
        for (problem, sector) in [("zone 7 is full", 5), ("not in order: 8", 6), ("zone 12 is full", 7)] {
            refusals.count(&Error::new(ErrorClass::Value, problem), sector);
        }
        let found: Vec<_> = refusals.by_rule().into_iter().map(|one| (one.requests, one.first)).collect();
        let expected = [(2, "zone 7 is full (request at sector 5)"), (1, "not in order: 8 (request at sector 6)")];
        assert_eq!(found, expected.map(|(count, first)| (count, first.to_owned())));
    }
}
