//! The fit of a preset to samples: shape and timing by search, error bars by refits, errors by the held-out half.

use emmclab_trace::{Error, Kind, Op, Result, interrupt};
use rand_pcg::Pcg64;

use crate::calibration::{CalibrateOptions, Calibration, ENOUGH, Figure, SizeRow};
use crate::model::{Shape, Timing};
use crate::power::PowerFit;
use crate::samples::{Group, Samples};
use crate::statistics::median;
use crate::{preset, search};

/// Number of refits to resampled requests, for the error bars.
const RESAMPLES: usize = 40;

/// Fits a preset.
///
/// # Errors
/// [`Kind::Value`] where there are no writes, or fewer than three sizes.
pub fn calibrate(samples: &Samples, options: &CalibrateOptions) -> Result<Calibration> {
    let (all, half, rest) = (samples.groups(), samples.fitted_half(), samples.held_out());
    let writes = all.iter().filter(|group| group.op == Op::Write).count();
    if writes == 0 || all.len() < 3 {
        return Err(Error::new(
            Kind::Value,
            format!("{} sizes, {writes} of them written, are too few", all.len()),
        )
        .hint("measure reads and writes of several sizes, 4 KB to 512 KB"));
    }
    if !(1..=1024).contains(&options.capacity_gb) {
        return Err(Error::new(
            Kind::Config,
            format!("a capacity of {} GB is impossible here", options.capacity_gb),
        )
        .hint("give 1 to 1024"));
    }
    let mut random = Pcg64::new(u128::from(options.seed), 0x00CA_11B8);
    let tried = if half.len() < 3 { &all } else { &half };
    let (shape, half_timing) = search::best_shape(tried, &mut random)?;
    let timing = search::refine(&shape, &half_timing, &all, &mut random);
    let power = samples.power();
    let mut refits: Vec<(Timing, Option<PowerFit>)> = Vec::new();
    for _ in 0..RESAMPLES {
        interrupt::check()?;
        let resampled: Vec<Group> = all.iter().map(|group| group.resampled(&mut random)).collect();
        let refit = search::refine(&shape, &timing, &resampled, &mut random);
        refits.push((refit, samples.resampled_power(&mut random)));
    }
    let figures = figures(&shape, &timing, power, &refits);
    let mut sizes = Vec::new();
    for group in &all {
        let held = rest.iter().find(|held| (held.op, held.sectors) == (group.op, group.sectors));
        let measured = held.map(|held| held.median_us);
        let predicted = held.map(|held| half_timing.service_us(&shape, held.op, held.kb()));
        sizes.push(SizeRow {
            op: group.op.name(),
            kb: group.kb(),
            requests: group.count,
            measured_us: group.median_us,
            predicted_us: timing.service_us(&shape, group.op, group.kb()),
            held_out_requests: held.map_or(0, |held| held.count),
            held_out_measured_us: measured,
            held_out_predicted_us: predicted,
            held_out_error_pct: predicted.zip(measured).map(|(found, wanted)| 100.0 * (found / wanted - 1.0)),
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
    let mut request_errors: Vec<f64> = rest
        .iter()
        .flat_map(|held| held.errors_pct(half_timing.service_us(&shape, held.op, held.kb())))
        .collect();
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
        packed: samples.left_packed(),
    };
    out.toml = preset::toml(&out, &shape, &timing, power, options);
    Ok(out)
}

fn figures(
    shape: &Shape,
    timing: &Timing,
    power: Option<PowerFit>,
    refits: &[(Timing, Option<PowerFit>)],
) -> Vec<Figure> {
    let figure = |name: String, unit, value: f64, mut others: Vec<f64>| {
        others.sort_by(f64::total_cmp);
        let at = |share: f64| {
            others
                .get((share * others.len().saturating_sub(1) as f64).round() as usize)
                .copied()
                .unwrap_or(value)
        };
        Figure { name, unit, value, low: at(0.05).min(value), high: at(0.95).max(value) }
    };
    let mut out: Vec<Figure> = timing
        .named(shape)
        .into_iter()
        .enumerate()
        .map(|(i, (name, unit, value))| {
            figure(name, unit, value, refits.iter().map(|(refit, _)| refit.named(shape)[i].2).collect())
        })
        .collect();
    if let Some(power) = power {
        let others =
            |get: fn(&PowerFit) -> f64| refits.iter().filter_map(|refit| refit.1.as_ref().map(get)).collect();
        out.push(figure(
            "sleep_after_us".into(),
            "us",
            power.sleep_after_us,
            others(|fit| fit.sleep_after_us),
        ));
        out.push(figure("wake_us".into(), "us", power.wake_us, others(|fit| fit.wake_us)));
    }
    out
}
