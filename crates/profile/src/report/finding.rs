//! A judgement on a trace, in numbers and in words.

use serde::Serialize;

/// One characteristic (section III) or implication (section IV) of the paper, judged on one trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Stable name: `characteristic-1` ... `implication-5`.
    pub id: String,
    /// Which list it belongs to.
    pub kind: FindingKind,
    /// Its number in that list.
    pub number: u32,
    /// Its subject.
    pub title: &'static str,
    /// When a trace shows it.
    pub rule: &'static str,
    /// The value that the rule looks at.
    pub measured: Option<f64>,
    /// The unit of that value.
    pub unit: &'static str,
    /// Whether this trace shows it.
    pub shown: Shown,
    /// Its consequence for the device, or the reason why it is unknown.
    pub meaning: String,
}

/// A list of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// The character of the workload.
    Characteristic,
    /// The consequence for the device.
    Implication,
}

/// Whether a trace shows a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shown {
    /// The rule holds.
    Yes,
    /// The rule does not hold.
    No,
    /// The trace lacks what the rule needs.
    Unknown,
}
