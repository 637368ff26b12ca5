//! Faults of settings, collected so that all of them are reported at once.

/// Longest time of a setting: 100 s; more is a slip of units.
pub(super) const MAX_US: f64 = 1e8;
/// Problems found so far.
#[derive(Default)]
pub(super) struct Faults(Vec<String>);

impl Faults {
    /// Whether nothing is wrong.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn into_list(self) -> Vec<String> {
        self.0
    }

    pub(super) fn add(&mut self, problem: impl Into<String>) {
        self.0.push(problem.into());
    }

    pub(super) fn at_least_one(&mut self, key: &str, value: u32) {
        if value == 0 {
            self.add(format!("`{key}` is 0; there must be at least one"));
        }
    }

    pub(super) fn amount(&mut self, key: &str, value: f64, most: f64) {
        if !value.is_finite() || value < 0.0 || value > most {
            self.add(format!("`{key}` is {value}; it must lie in 0..={most}"));
        }
    }
}
