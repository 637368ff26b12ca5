//! Fits a device preset to samples. A search finds the flash organisation and the timing, refits to resampled requests give the error bars,
//! and the held-out half of the requests gives the prediction error.

use emmclab_device::DeviceConfig;
use emmclab_trace::{Error, ErrorClass, Op, Result, interrupt};
use rand_pcg::Pcg64;
use schemars::JsonSchema;
use serde::Serialize;

use crate::base::BaseTimes;
use crate::durability::DurabilitySamples;
use crate::model::{DeviceShape, DeviceTiming, best_shape, refine};
use crate::power::{StageFit, StallSummary, stalls_of};
use crate::preset;
use crate::samples::{SampleGroup, ServiceSamples, median};

/// Number of refits to resampled requests, for the error bars.
const RESAMPLES: usize = 40;

/// The part of a device that does not change when its timing is refitted to resampled requests.
enum Organisation {
    /// A fitted shape, and the transfer time of 1 KB between host and device if it is assumed.
    Fitted(DeviceShape, Option<f64>),
    /// That of a base device.
    Base(BaseTimes),
}

impl Organisation {
    fn shape(&self) -> &DeviceShape {
        match self {
            Self::Fitted(shape, _) => shape,
            Self::Base(times) => times.shape(),
        }
    }

    /// Predicted time of a request from start to completion, in us.
    fn service_us(&self, timing: &DeviceTiming, op: Op, sectors: u32) -> f64 {
        match self {
            Self::Fitted(shape, _) => timing.service_us(shape, op, f64::from(sectors) / 2.0),
            Self::Base(times) => times.service_us(timing, op, sectors),
        }
    }

    /// Predicted time of a durable write without the time of its durability, in us.
    fn durable_us(&self, timing: &DeviceTiming, sectors: u32) -> f64 {
        match self {
            Self::Fitted(..) => self.service_us(timing, Op::Write, sectors),
            Self::Base(times) => times.durable_us(timing, sectors),
        }
    }

    fn refine(&self, from: &DeviceTiming, groups: &[SampleGroup], random: &mut Pcg64) -> DeviceTiming {
        match self {
            Self::Fitted(shape, link) => refine(shape, from, groups, *link, random),
            Self::Base(times) => times.timing(groups),
        }
    }
}

/// Fits a device preset to samples of service times.
/// Errors: [`ErrorClass::Value`] if there are no writes, or fewer than three sizes. With a base, one size is enough; errors if the base cannot
/// execute the requests.
pub fn calibrate(samples: &ServiceSamples, options: &CalibrateOptions) -> Result<Calibration> {
    let (all, half, rest) = (samples.groups(), samples.fitted_half(), samples.held_out());
    let writes = all.iter().filter(|group| group.op == Op::Write).count();
    if options.base.is_none() && (writes == 0 || all.len() < 3) {
        return Err(Error::new(ErrorClass::Value, format!("too few request sizes: {} in all, {writes} of writes", all.len()))
            .hint(
                "measure reads and writes of several request sizes, from 4 KB to 512 KB, or give a device as a base (--base)",
            ));
    }
    if !(1..=1024).contains(&options.capacity_gb) {
        return Err(Error::new(ErrorClass::Config, format!("a capacity of {} GB is impossible", options.capacity_gb))
            .hint("give a capacity of 1 to 1,024 GB"));
    }
    let mut random = Pcg64::new(u128::from(options.seed), 0x00CA_11B8);
    let tried = if half.len() < 3 { &all } else { &half };
    let mut warnings = samples.warnings().to_vec();
    let (organisation, half_timing) = if let Some(base) = &options.base {
        let kinds = all.iter().map(|group| (group.op, group.sectors));
        let times = BaseTimes::of(base, kinds, samples.durability().fua_sectors())?;
        warn_of_base(&all, samples, base.name(), &mut warnings);
        let timing = times.timing(tried);
        (Organisation::Base(times), timing)
    } else {
        let link = assumed_link(&all, &mut warnings);
        if samples.queue().depth > 1 {
            warn_of_sizes(&all, &mut warnings);
        }
        let (shape, timing) = best_shape(tried, link, &mut random)?;
        (Organisation::Fitted(shape, link), timing)
    };
    let link = matches!(organisation, Organisation::Fitted(_, None));
    let timing = organisation.refine(&half_timing, &all, &mut random);
    let (reads, writes) = (all.len() > writes, writes > 0);
    let fitted = |timing: DeviceTiming, durability: &DurabilitySamples, fetch_us, stages| {
        let plain_us = |sectors: u32| organisation.durable_us(&timing, sectors);
        let (flush_us, discard_us) = (durability.flush_us(timing.write_overhead), durability.discard_us(timing.write_overhead));
        let reliable_us = durability.reliable_us(plain_us, flush_us.unwrap_or(0.0));
        FittedModel { timing, reads, writes, link, fetch_us, reliable_us, flush_us, discard_us, stages }
    };
    let model = fitted(timing, samples.durability(), samples.fetch_us(), samples.stages().to_vec());
    let mut refits = Vec::new();
    let mut lot = Pcg64::new(u128::from(options.seed), 0x000F_1005);
    for _ in 0..RESAMPLES {
        interrupt::check()?;
        let resampled: Vec<SampleGroup> = all.iter().map(|group| group.resampled(&mut random)).collect();
        let refit = organisation.refine(&model.timing, &resampled, &mut random);
        let stages = samples.resampled_stages(&mut random);
        let durability = samples.durability().resampled(&mut lot);
        refits.push(fitted(refit, &durability, samples.resampled_fetch_us(&mut random), stages));
    }
    let shape = organisation.shape();
    let figures = figures(shape, &model, &refits);
    let stalls: Vec<StallSummary> = [Op::Read, Op::Write]
        .into_iter()
        .filter_map(|op| stalls_of(op, &all, |group| organisation.service_us(&model.timing, group.op, group.sectors)))
        .collect();
    let mut sizes = Vec::new();
    for group in &all {
        let held = rest.iter().find(|held| (held.op, held.sectors) == (group.op, group.sectors));
        let measured = held.map(|held| held.median_us);
        let predicted = held.map(|held| organisation.service_us(&half_timing, held.op, held.sectors));
        sizes.push(CalibrationSizeRow {
            op: group.op.name(),
            kb: group.kb(),
            requests: group.count,
            measured_us: group.median_us,
            predicted_us: organisation.service_us(&model.timing, group.op, group.sectors),
            held_out_requests: held.map_or(0, |held| held.count),
            held_out_measured_us: measured,
            held_out_predicted_us: predicted,
            held_out_error_pct: predicted.zip(measured).map(|(predicted, measured)| 100.0 * (predicted / measured - 1.0)),
        });
    }
    let judged = || {
        sizes
            .iter()
            .filter(|row| row.held_out_requests >= ENOUGH)
            .filter_map(|row| Some((row.held_out_requests, row.held_out_error_pct?.abs())))
    };
    let mut errors: Vec<f64> = judged().map(|(_, error)| error).collect();
    let within: usize = judged().filter(|(_, error)| *error <= 10.0).map(|(count, _)| count).sum();
    let held: usize = judged().map(|(count, _)| count).sum();
    let mut request_errors: Vec<f64> =
        rest.iter().flat_map(|held| held.errors_pct(organisation.service_us(&half_timing, held.op, held.sectors))).collect();
    let mut out = Calibration {
        toml: String::new(),
        page_kb: shape.page_kb.clone(),
        units: shape.units,
        held_out_request_error_pct: median(&mut request_errors),
        held_out_median_error_pct: median(&mut errors),
        held_out_within_10_pct: 100.0 * within as f64 / held.max(1) as f64,
        figures,
        sizes,
        requests: all.iter().map(|group| group.count).sum(),
        woken: samples.woken(),
        durability: samples.durability().rows(),
        stalls: stalls.iter().map(|summary| summary.row.clone()).collect(),
        stages: model.stages.iter().map(StageFit::row).collect(),
        queue_depth: options.base.as_ref().map_or(samples.queue().depth, |base| base.settings().controller.queue_depth as usize),
        overlapping: if options.base.is_some() { 0 } else { samples.queue().overlapping },
        warnings,
        packed: samples.skipped_packed(),
    };
    out.toml = preset::toml(&out, (shape, &model, &stalls), options)?;
    Ok(out)
}

/// Transfer time of 1 KB on an eMMC bus in mode HS200 (200 million bytes per second), in us.
const HS200_US_PER_KB: f64 = 5.12;

/// Returns the assumed transfer time of 1 KB between host and device, in us, if the samples cannot separate it from the flash times;
/// otherwise `None`. Separation needs enough reads and writes, because both have the same transfer time but different flash times.
fn assumed_link(groups: &[SampleGroup], warnings: &mut Vec<String>) -> Option<f64> {
    let count = |op| groups.iter().filter(|group| group.op == op).map(|group| group.count).sum::<usize>();
    let (reads, writes) = (count(Op::Read), count(Op::Write));
    if reads.min(writes) >= FEW {
        return None;
    }
    let least = groups.iter().map(|group| group.median_us / group.kb()).fold(f64::INFINITY, f64::min);
    let us = HS200_US_PER_KB.min(least / 2.0);
    warnings.push(format!(
        "{reads} reads and {writes} writes: at least {FEW} of each are needed to separate the transfer of a KB from its time in the flash. \
         host_us_per_kb = {us:.2} is assumed: bus mode HS200 ({HS200_US_PER_KB} us/KB), and at most half of the least time per KB of a size"
    ));
    warn_of_few(reads, writes, warnings);
    Some(us)
}

/// Adds that an operation has too few sizes. A wrong division of its time matters to requests that the device serves at once.
fn warn_of_sizes(groups: &[SampleGroup], warnings: &mut Vec<String>) {
    for (op, name) in [(Op::Read, "reads"), (Op::Write, "writes")] {
        let sizes = groups.iter().filter(|group| group.op == op && group.count >= ENOUGH).count();
        if (1..3).contains(&sizes) {
            warnings.push(format!(
                "fewer than three sizes of {name} have {ENOUGH} requests: they do not separate the fixed time of a command, which requests \
                 spend at once, from its time in the flash, for which they wait; a device of the same class does (--base)"
            ));
        }
    }
}

fn warn_of_few(reads: usize, writes: usize, warnings: &mut Vec<String>) {
    for (op, count) in [("reads", reads), ("writes", writes)] {
        if (1..FEW).contains(&count) {
            warnings.push(format!("the times of {op} are fitted to only {count} requests"));
        }
    }
}

/// Adds what the samples do not determine, so that it is that of the base `name`.
fn warn_of_base(groups: &[SampleGroup], samples: &ServiceSamples, name: &str, warnings: &mut Vec<String>) {
    let count = |op| groups.iter().filter(|group| group.op == op).map(|group| group.count).sum::<usize>();
    let (reads, writes) = (count(Op::Read), count(Op::Write));
    warn_of_few(reads, writes, warnings);
    let missing = [
        ("reads: their fixed time", reads == 0),
        ("writes: their fixed time", writes == 0),
        ("stages of sleep: they", samples.stages().is_empty()),
    ];
    for (what, _) in missing.iter().filter(|(_, is_missing)| *is_missing) {
        let verb = if what.ends_with("they") { "are those" } else { "is that" };
        warnings.push(format!("the recording shows no {what} {verb} of {name}"));
    }
}

/// All fitted parameters of the device model. A value is `None` if no samples determine it.
pub(crate) struct FittedModel {
    pub timing: DeviceTiming,
    /// Whether the samples contain reads.
    pub reads: bool,
    /// Whether the samples contain writes.
    pub writes: bool,
    /// Whether the transfer time between host and device is fitted. Otherwise it is assumed.
    pub link: bool,
    pub fetch_us: Option<f64>,
    pub reliable_us: Option<f64>,
    pub flush_us: Option<f64>,
    pub discard_us: Option<f64>,
    /// Stages of sleep; empty if the samples show none.
    pub stages: Vec<StageFit>,
}

impl FittedModel {
    /// Name, unit and value of each fitted parameter, always in the same order. `stages` is the number of the stages of sleep; the values of
    /// a fit with fewer have no place among them.
    fn named_values(&self, shape: &DeviceShape, stages: usize) -> Vec<(String, &'static str, Option<f64>)> {
        let mut out = self.timing.named_values(shape, self.reads, self.writes, self.link);
        let stage = |number: usize| self.stages.get(number).filter(|_| self.stages.len() >= stages);
        out.extend([
            ("reliable_write_us".to_owned(), "us", self.reliable_us),
            ("flush_us".to_owned(), "us", self.flush_us),
            ("discard_us".to_owned(), "us", self.discard_us),
            ("fetch_us".to_owned(), "us", self.fetch_us),
        ]);
        for number in 0..stages.max(1) {
            for (key, value) in [
                ("sleep_after_us", stage(number).map(|stage| stage.after_us)),
                ("wake_us", stage(number).map(|stage| stage.wake_us)),
            ] {
                out.push((stage_figure(key, number), "us", value));
            }
        }
        out
    }
}

/// Name of a figure of a stage of sleep, which is counted from 0.
pub(crate) fn stage_figure(key: &str, number: usize) -> String {
    if number == 0 { key.to_owned() } else { format!("{key} of stage {}", number + 1) }
}

fn figures(shape: &DeviceShape, model: &FittedModel, refits: &[FittedModel]) -> Vec<FittedParameter> {
    let stages = model.stages.len();
    let refits: Vec<_> = refits.iter().map(|refit| refit.named_values(shape, stages)).collect();
    let figure = |(i, (name, unit, value)): (usize, (String, &'static str, Option<f64>))| {
        let Some(value) = value else { return FittedParameter { name, unit, value, low: None, high: None } };
        let mut others: Vec<f64> = refits.iter().filter_map(|refit| refit[i].2).collect();
        others.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let index = (share * others.len().saturating_sub(1) as f64).round() as usize;
            others.get(index).copied().unwrap_or(value)
        };
        FittedParameter { name, unit, value: Some(value), low: Some(at(0.05).min(value)), high: Some(at(0.95).max(value)) }
    };
    model.named_values(shape, stages).into_iter().enumerate().map(figure).collect()
}

/// Minimum number of held-out requests of a size for including the size in the summary of errors.
pub const ENOUGH: usize = 5;

/// Minimum number of requests of an operation for fitting the times of the operation.
pub const FEW: usize = 50;

/// Options of a calibration.
#[derive(Clone, Debug)]
pub struct CalibrateOptions {
    /// Name of the fitted preset.
    pub name: String,
    /// Where the samples come from; written to the comments of the preset.
    pub source: String,
    /// Capacity of the device that the host sees, in GB; that of the base if there is one.
    pub capacity_gb: u32,
    /// Device whose settings the preset has where the samples do not determine them: interface, flash, policies.
    pub base: Option<DeviceConfig>,
    /// Seed of the search and of the resampling.
    pub seed: u64,
}

/// A fitted parameter with its error bar: the 5th and 95th percentile over refits to resampled requests. A value is `None` if no samples
/// determine it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub struct FittedParameter {
    pub name: String,
    pub unit: &'static str,
    pub value: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
}

/// Requests other than plain reads and writes, which are fitted separately.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DurabilityRow {
    /// `flush`, `preflush` (the flush before the data of a write), `fua` (a write that is durable on completion) or `discard`.
    pub kind: &'static str,
    /// Number of requests.
    pub requests: usize,
    /// Median time in us: of a flush or discard from start to completion, of a preflush from start to issue, of a FUA write from issue to
    /// completion.
    pub median_us: f64,
    /// The preset key that was fitted to these requests. `None` if there are fewer than [`ENOUGH`] requests. Also `None` for preflushes if
    /// the key was fitted to flushes.
    pub setting: Option<&'static str>,
}

/// Stalls: requests that took at least twice the usual time of their operation and size.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CalibrationStallRow {
    /// Operation of the requests.
    pub op: &'static str,
    /// Number of requests of the operation.
    pub requests: usize,
    /// Number of requests of the operation that were stalls.
    pub stalls: usize,
    /// Median time by which the stalls exceeded their predicted time, in us.
    pub median_us: f64,
}

/// A fitted stage of sleep.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CalibrationStageRow {
    /// Idle time after which the stage begins, in us.
    pub after_us: f64,
    /// The longest idle gap before the begin of the stage, in us.
    pub longest_before_us: f64,
    /// The shortest idle gap after the begin of the stage, in us.
    pub shortest_after_us: f64,
    /// Number of requests that left the stage.
    pub requests: usize,
    /// Median exit time, in us.
    pub median_us: f64,
}

/// Median service times of one operation and size, measured and predicted, in us.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CalibrationSizeRow {
    /// Operation of the requests.
    pub op: &'static str,
    /// Size of the requests in KB.
    pub kb: f64,
    /// Number of requests of this operation and size.
    pub requests: usize,
    /// Measured median time of all requests, in us.
    pub measured_us: f64,
    /// Median time that the preset predicts, in us.
    pub predicted_us: f64,
    /// Number of requests of this operation and size that are in the held-out half.
    pub held_out_requests: usize,
    /// Measured median time of the held-out requests, in us.
    pub held_out_measured_us: Option<f64>,
    /// Median time of the held-out requests in us, predicted by a fit to the other half.
    pub held_out_predicted_us: Option<f64>,
    /// Relative error of the held-out prediction, `held_out_predicted_us / held_out_measured_us - 1`, in percent.
    pub held_out_error_pct: Option<f64>,
}

/// The result of a calibration.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Calibration {
    /// The fitted preset as TOML with comments.
    pub toml: String,
    /// Flash page sizes of the fitted preset in KB, largest first.
    pub page_kb: Vec<u32>,
    /// Number of flash units that work in parallel.
    pub units: u32,
    /// Fitted parameters with their error bars.
    pub figures: Vec<FittedParameter>,
    /// Measured and predicted service times by operation and size.
    pub sizes: Vec<CalibrationSizeRow>,
    /// Median absolute prediction error of the held-out requests, in percent. The error of a request is relative to the prediction for its
    /// operation and size.
    pub held_out_request_error_pct: f64,
    /// Median absolute held-out error over the request sizes with at least [`ENOUGH`] held-out requests, in percent.
    pub held_out_median_error_pct: f64,
    /// Share of the held-out requests for which the median time of their operation and size is predicted within 10 %, in percent.
    pub held_out_within_10_pct: f64,
    /// Number of requests used for the fit.
    pub requests: usize,
    /// Number of requests excluded because they waited for the device to wake up after an idle gap.
    pub woken: usize,
    /// Times of flushes, writes with preflush or FUA, and discards.
    pub durability: Vec<DurabilityRow>,
    /// Stalls of each operation (read, write) that has enough requests and stalls.
    pub stalls: Vec<CalibrationStallRow>,
    /// Stages of sleep, in the order of their idle times.
    pub stages: Vec<CalibrationStageRow>,
    /// Number of requests that the device serves at a time.
    pub queue_depth: usize,
    /// Number of requests whose service began while other requests were in service, from which `queue_depth` is derived; 0 for a queue
    /// depth of 1.
    pub overlapping: usize,
    /// Sentences that state what the samples do not determine, and what was assumed instead.
    pub warnings: Vec<String>,
    /// Number of packed commands that were excluded; 0 unless `skip_packed` is set.
    pub packed: usize,
}
