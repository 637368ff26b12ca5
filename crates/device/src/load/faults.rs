//! Errors in settings, collected so that all of them are reported at once.

/// Possible sizes of a page and of a map unit.
pub(super) const PAGE_SIZES_KB: [u32; 3] = [4, 8, 16];
/// Maximum number of pages in a block.
pub(super) const MOST_PAGES: u32 = 1 << 16;

/// The maximum of a setting that may have a fraction, by its key: 100 s for times, and the same number for powers and energies. A larger
/// value is probably in a wrong unit.
pub(super) fn most(key: &str) -> u32 {
    match key.rsplit('.').next().unwrap_or(key) {
        "up_to_pct" => 100,
        "over_provisioning_pct" => 1_000,
        leaf if leaf.contains("per_") => 100_000,
        _ => 100_000_000,
    }
}

/// The range of a whole number, by its key; empty if every non-negative number is possible.
pub(super) fn whole_numbers(key: &str) -> String {
    match key.rsplit('.').next().unwrap_or(key) {
        "page_kb" | "unit_kb" => PAGE_SIZES_KB.map(|kb| kb.to_string()).join(", "),
        "pages_per_block" => range(1, u64::from(MOST_PAGES)),
        "channels" | "chips_per_channel" | "dies_per_chip" | "planes_per_die" => "1 or more".to_owned(),
        _ => String::new(),
    }
}

/// A range as text: `0 to 4,294,967,295`.
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
pub(super) struct SettingFaults(Vec<String>);

impl SettingFaults {
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

    pub(super) fn amount(&mut self, key: &str, value: f64) {
        let most = most(key);
        if !value.is_finite() || value < 0.0 || value > f64::from(most) {
            self.add(format!("`{key}` is {value}; it must be {}", range(0, u64::from(most))));
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
