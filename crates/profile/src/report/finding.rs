//! Findings: judgements on a trace, as numbers and as text.

use schemars::JsonSchema;
use serde::Serialize;

/// One characteristic (section III) or implication (section IV) of the paper, judged on one trace.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Finding {
    /// Stable name: `characteristic-1` ... `implication-5`.
    pub id: String,
    /// Whether it is a characteristic or an implication.
    pub kind: FindingKind,
    /// Its number among the characteristics or implications.
    pub number: u32,
    /// Its subject.
    pub title: &'static str,
    /// The rule: when a trace shows the finding.
    pub rule: &'static str,
    /// The value to which the rule is applied.
    pub measured: Option<f64>,
    /// The unit of that value.
    pub unit: &'static str,
    /// Whether this trace shows the finding.
    pub shown: FindingVerdict,
    /// The consequence for the device, or why the result is unknown.
    pub meaning: String,
}

/// The two kinds of findings in the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// A property of the workload.
    Characteristic,
    /// A consequence for the device.
    Implication,
}

/// Whether a trace shows a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FindingVerdict {
    /// The rule holds.
    Yes,
    /// The rule does not hold.
    No,
    /// The trace does not have the data that the rule needs.
    Unknown,
}
