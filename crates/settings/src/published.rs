//! Published figures to which a preset was fitted.

use std::collections::BTreeMap;

use serde::Deserialize;

/// What is measured of a device, to be compared with a published figure: `File` is a file of 64 MB on a half-full device, `Full` a file
/// of 1 GB on a full device, `Lasting` random writes to such a file in the second half of an hour of them, `Queued` transfers to a half-full
/// device whose queue is always full. The others are single commands to an idle device, those with `Command` of 4 KB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum FigureMeasure {
    FileReads,
    FileWrites,
    FullReads,
    FullWrites,
    LastingWrites,
    QueuedReads,
    QueuedWrites,
    FuaWrite,
    WriteAndFlush,
    CommandWrite,
    CommandFlush,
    CommandWriteAndFlush,
    CommandReliableWrite,
}

/// A published figure, and how the same figure is measured with the preset.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedFigure {
    /// Name of the publication.
    #[serde(skip)]
    pub source: String,
    /// What was measured, in words.
    pub figure: String,
    /// `MB/s` or `MiB/s` of 1,048,576 bytes, `10^6 B/s`, `1/s` (transfers), or `us`.
    pub unit: String,
    /// The published value.
    pub published: f64,
    /// The measurement.
    pub measure: FigureMeasure,
    /// Length of a transfer in KB.
    #[serde(default = "page_kb")]
    pub kb: u64,
    /// Whether transfers go to random addresses, and not to sequential ones.
    #[serde(default)]
    pub random: bool,
    /// Whether writes have FUA.
    #[serde(default)]
    pub fua: bool,
    /// Settings of the measured device that differ from the preset.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// Lower bound of agreement, if it is not 10 % below the published value.
    pub least: Option<f64>,
    /// Upper bound of agreement, if it is not 10 % above the published value.
    pub most: Option<f64>,
}

fn page_kb() -> u64 {
    4
}

/// An entry of `fitted_to`: the name of a source, or a table that also has the figures to compare.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedSource {
    /// Name of the publication or recording.
    pub source: String,
    /// Its figures.
    #[serde(default)]
    pub figures: Vec<PublishedFigure>,
}
