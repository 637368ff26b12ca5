//! Published figures to which a preset was fitted.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A measurement of the simulated device, to be compared with a published figure. `File` uses a file of 64 MB on a half-full device, and
/// `Full` a file of 1 GB on a full device. `Lasting` writes randomly to a file of 1 GB on a full device for an hour, and only the second
/// half hour is measured. `Queued` keeps the queue of a half-full device always full. `SingleReads` are the reads of `File`, for sources that
/// state that one read was executed at a time. All others measure single commands on an idle device; those with `Command` in their name use
/// 4 KB.
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
    SingleReads,
    FuaWrite,
    WriteAndFlush,
    CommandWrite,
    CommandFlush,
    CommandWriteAndFlush,
    CommandReliableWrite,
}

impl FigureMeasure {
    /// Whether the measured program waited for each read before it sent the next one.
    pub fn has_single_reads(self) -> bool {
        matches!(self, Self::SingleReads | Self::FullReads)
    }
}

/// A published figure of a device, and how to measure this figure with a simulation of the device.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedFigure {
    /// Name of the publication.
    #[serde(skip)]
    pub source: String,
    /// What was measured, in words.
    pub figure: String,
    /// Unit of the figure: `MB/s` and `MiB/s` (both 2^20 bytes per second), `10^6 B/s`, `1/s` (transfers per second), or `us`
    /// (mean time of a transfer).
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
    /// Largest measured value that agrees with the published value; by default 10 % above it. `inf` if the published value includes the
    /// time of the host, and is only a lower bound for the rate of the device.
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
