//! Faults of settings, collected so that all of them are reported at once.

/// Longest time of a setting: 100 s; more is a slip of units.
pub(super) const MAX_US: f64 = 1e8;

/// A range for people: `0 to 4,294,967,295`.
pub(super) fn range(least: u64, most: u64) -> String {
    format!("{} to {}", grouped(least), grouped(most))
}

/// A number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

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
            self.add(format!("`{key}` is {value}; it must be {}", range(0, most as u64)));
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_range_is_written_for_people() {
        assert_eq!(super::range(0, u64::from(u32::MAX)), "0 to 4,294,967,295");
        assert_eq!(super::range(2, 100), "2 to 100");
    }
}
