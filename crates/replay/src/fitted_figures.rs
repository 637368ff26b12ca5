//! Compares presets of real devices with the published figures to which they were fitted (`fitted_to`). A small deviation is no evidence
//! for the model, because the preset was fitted. A large deviation shows a limit of the model, or a contradiction between the figures.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use emmclab_device::{DeviceConfig, FigureMeasure, PublishedFigure, presets};
use emmclab_trace::{Error, ErrorClass, Nanos, Op, Result};
use schemars::JsonSchema;
use serde::Serialize;

use crate::bandwidth::{CommandTimes, FILE_BYTES, SyncMethod, TransferPattern, UsedDevice};

/// A published figure, and the same figure measured with a preset.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FittedFigure {
    /// Name of the publication that contains the figure.
    pub source: String,
    /// Name of the figure.
    pub figure: String,
    /// Unit of both values.
    pub unit: String,
    /// Published value.
    pub published: f64,
    /// Value measured with the preset.
    pub here: f64,
    /// Deviation of `here` from `published` in percent.
    pub deviation_pct: f64,
    /// Lower bound of agreement, by default 10 % below the published value.
    pub least: f64,
    /// Upper bound of agreement, by default 10 % above the published value; null if the published value is a lower bound.
    pub most: Option<f64>,
}

impl FittedFigure {
    /// Whether the preset agrees with the published value.
    pub fn agrees(&self) -> bool {
        self.least <= self.here && self.most.is_none_or(|most| self.here <= most)
    }
}

/// Size of the file of `AndroBench` in bytes.
const SMALL_FILE_BYTES: u64 = 64 << 20;
/// Assumed duration of the sustained random writes to the cards of FAST 2012; the talk does not state it.
const LASTING: Nanos = Nanos::from_secs(3600);

/// Compares a preset with all published figures to which it was fitted.
/// Errors: [`ErrorClass::Config`] for a device without published figures; other errors if the device is full before its
/// end.
pub fn fitted_figures(config: &DeviceConfig) -> Result<Vec<FittedFigure>> {
    if config.published().is_empty() {
        let fitted = presets()
            .iter()
            .filter(|preset| !DeviceConfig::preset(preset.name).is_ok_and(|device| device.published().is_empty()));
        let names: Vec<_> = fitted.map(|preset| preset.name).collect();
        return Err(Error::new(ErrorClass::Config, format!("`{}` was not fitted to published figures", config.name()))
            .hint(format!("choose one of the devices with published figures: {}", names.join(", "))));
    }
    let mut measured = MeasuredDevices::default();
    config.published().iter().map(|published| measured.compare(config, published)).collect()
}

/// Simulated devices on which figures are measured, and measured values that several figures use. The key of a device is whether it is
/// filled, and its settings.
#[derive(Default)]
struct MeasuredDevices<'a> {
    devices: BTreeMap<(bool, &'a BTreeMap<String, String>), UsedDevice>,
    commands: Option<CommandTimes>,
    lasting_mb_s: Option<f64>,
}

impl<'a> MeasuredDevices<'a> {
    fn compare(&mut self, config: &DeviceConfig, figure: &'a PublishedFigure) -> Result<FittedFigure> {
        let PublishedFigure { unit, published, .. } = figure;
        let measured = self.measure(config, figure)?;
        let here = match unit.as_str() {
            "10^6 B/s" => 1.048_576 * measured,
            "1/s" => measured * 1024.0 / figure.kb as f64,
            "us" if figure.measure == FigureMeasure::SingleReads => figure.kb as f64 / 1024.0 / measured * 1e6,
            _ => measured,
        };
        Ok(FittedFigure {
            source: figure.source.clone(),
            figure: figure.figure.clone(),
            unit: unit.clone(),
            published: *published,
            here,
            deviation_pct: 100.0 * (here / published - 1.0),
            least: figure.least.unwrap_or(0.9 * published),
            most: Some(figure.most.unwrap_or(1.1 * published)).filter(|most| most.is_finite()),
        })
    }

    /// The value of a figure: MB/s of 1,048,576 bytes; of single commands, us.
    fn measure(&mut self, config: &DeviceConfig, figure: &'a PublishedFigure) -> Result<f64> {
        use FigureMeasure::{
            CommandFlush, CommandReliableWrite, CommandWrite, CommandWriteAndFlush, FileReads, FileWrites, FuaWrite, FullReads,
            FullWrites, LastingWrites, QueuedReads, QueuedWrites, SingleReads, WriteAndFlush,
        };

        let PublishedFigure { measure, kb: unit_kb, random, .. } = *figure;
        let full = matches!(measure, FullReads | FullWrites | LastingWrites);
        let device = match self.devices.entry((full, &figure.set)) {
            Entry::Occupied(device) => device.into_mut(),
            Entry::Vacant(place) => {
                let mut config = config.clone();
                config.set_all(&figure.set.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect::<Vec<_>>())?;
                place.insert(if full { UsedDevice::full(&config)? } else { UsedDevice::half_full(&config)? })
            }
        };
        let op = if matches!(measure, FileReads | FullReads | QueuedReads | SingleReads) { Op::Read } else { Op::Write };
        match measure {
            FileReads | FileWrites | FullReads | FullWrites | SingleReads => {
                let sync = if figure.fua { SyncMethod::Fua } else { SyncMethod::None };
                let bytes = if full { FILE_BYTES } else { SMALL_FILE_BYTES };
                device.rate(&TransferPattern { op, unit_kb, random, sync }, bytes)
            }
            LastingWrites => {
                // The rate is measured only once, because it may be published both in MB/s and in operations per second.
                let mb_s = match self.lasting_mb_s {
                    Some(mb_s) => mb_s,
                    None => device.lasting_random_writes_per_s(FILE_BYTES, LASTING)? / 256.0,
                };
                self.lasting_mb_s = Some(mb_s);
                Ok(mb_s)
            }
            QueuedReads | QueuedWrites => {
                device.queued_rate(op, unit_kb, random, if random { FILE_BYTES / 4 } else { FILE_BYTES })
            }
            FuaWrite => Ok(device.durable_times(unit_kb)?[0]),
            WriteAndFlush => Ok(device.durable_times(unit_kb)?[1]),
            CommandWrite | CommandFlush | CommandWriteAndFlush | CommandReliableWrite => {
                let times = match self.commands {
                    Some(times) => times,
                    None => device.command_times()?,
                };
                self.commands = Some(times);
                Ok(match measure {
                    CommandWrite => times.write_us,
                    CommandFlush => times.flush_us,
                    CommandReliableWrite => times.reliable_write_us,
                    _ => times.write_us + times.flush_us,
                })
            }
        }
    }
}
