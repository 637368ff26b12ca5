//! Published figures to which a preset was fitted.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A measurement of the simulated device, to be compared with a published figure. `File` uses a file of 64 MB on a half-full device, and
/// `Full` a file of 1 GB on a full device. `Lasting` writes randomly to a file as in `Full` for an hour and measures the second half.
/// `Queued` keeps the queue of a half-full device always full. The others measure single commands to an idle device, those with `Command`
/// of 4 KB.
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
    /// How the figure is measured on the simulated device.
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
    /// Smallest measured value that agrees with the published value; by default 10 % below it.
    pub least: Option<f64>,
    /// Largest measured value that agrees with the published value; by default 10 % above it.
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
    /// Published figures to be compared with measurements of the preset.
    #[serde(default)]
    pub figures: Vec<PublishedFigure>,
}
