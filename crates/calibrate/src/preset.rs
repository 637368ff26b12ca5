//! Writes the preset as a TOML file with comments.

use std::fmt::Write;

use emmclab_device::DeviceConfig;
use emmclab_trace::{Op, Result};

use crate::fit::{CalibrateOptions, Calibration, ENOUGH, FittedModel, FittedParameter, stage_figure};
use crate::model::DeviceShape;
use crate::power::{StageFit, StallSummary};

const PAGES_PER_BLOCK: u32 = 256;
const OVER_PROVISIONING_PCT: u32 = 7;

/// Appends a line to a string; this never fails.
macro_rules! line {
    ($out:expr, $($part:tt)*) => { let _ = writeln!($out, $($part)*); };
}

pub(crate) fn toml(
    calibration: &Calibration, (shape, fitted, stalls): (&DeviceShape, &FittedModel, &[StallSummary]), options: &CalibrateOptions,
) -> Result<String> {
    let mut out = String::new();
    let timing = &fitted.timing;
    let bar = |name: &str| {
        calibration
            .figures
            .iter()
            .find(|figure| figure.name == name)
            .and_then(|FittedParameter { low, high, .. }| Some(format!("{:.1} to {:.1}", (*low)?, (*high)?)))
            .unwrap_or_default()
    };
    line!(
        out,
        "# Written by `emmclab calibrate` (version {}) from {}, seed {}.",
        env!("CARGO_PKG_VERSION"),
        options.source,
        options.seed
    );
    line!(out, "#");
    let (requests, woken) = (calibration.requests, calibration.woken);
    line!(out, "# Fitted to the median service times of {requests} requests by operation and size; {woken} that woke the device");
    line!(out, "# after an idle gap are left out. Errors of a fit to one half of them for the other half:");
    let (each, size) = (calibration.held_out_request_error_pct, calibration.held_out_median_error_pct);
    line!(
        out,
        "# median of the requests {each:.1} %, median of the sizes {size:.1} %; {:.1} % of the requests have a size that is",
        calibration.held_out_within_10_pct
    );
    line!(out, "# predicted within 10 %. The range after each figure contains 90 % of the refits to resampled requests.");
    for row in &calibration.durability {
        let price = row.setting.map_or_else(|| "not fitted".to_owned(), |setting| format!("see {setting}"));
        line!(out, "# {}: {} requests, {:.0} us in the median; {price}.", row.kind, row.requests, row.median_us);
    }
    for row in &calibration.stages {
        line!(
            out,
            "# stage of sleep: {} requests left it, {:.0} us in the median; it begins between idle gaps of {:.0} and {:.0} us.",
            row.requests,
            row.median_us,
            row.longest_before_us,
            row.shortest_after_us
        );
    }
    if !fitted.reads && options.base.is_none() {
        line!(out, "# No reads were recorded: read_us and read_overhead_us are not measured, and reads take no time");
        line!(out, "# but that of their transfer until these are set by hand.");
    }
    for warning in &calibration.warnings {
        line!(out, "# warning: {warning}.");
    }
    if calibration.packed > 0 {
        line!(out, "# {} packed commands are left out.", calibration.packed);
    }
    if let Some(base) = &options.base {
        line!(out, "# All settings that are not listed here are those of {}.", base.name());
    } else {
        line!(out, "# Pages, units and capacity are assumptions: measurements do not show the chips of the device.");
    }
    line!(out, "#");
    line!(out, "# us: operation, KB, requests, measured, this preset; held-out half: measured, predicted without it");
    for row in calibration.sizes.iter().filter(|row| row.requests >= ENOUGH) {
        let held = match (row.held_out_measured_us, row.held_out_predicted_us, row.held_out_error_pct) {
            (Some(measured), Some(predicted), Some(error)) if row.held_out_requests >= ENOUGH => {
                format!("{measured:>8.0} {predicted:>8.0} {error:>+5.0} %")
            }
            _ => format!("{:>8}", "-"),
        };
        line!(out, "# {:<5} {:>5} {:>7} {:>8.0} {:>8.0} {held}", row.op, row.kb, row.requests, row.measured_us, row.predicted_us);
    }
    if let Some(base) = &options.base {
        return on_base(out, calibration, (fitted, stalls), base, options);
    }
    line!(out, "name = {:?}", options.name);
    line!(out, "about = {:?}", format!("Calibrated from {}", options.source));
    line!(out, "fitted_to = {:?}", [&options.source]);
    line!(out, "\n[geometry]\nchannels = 1\nchips_per_channel = 1\ndies_per_chip = {}\nplanes_per_die = 1", shape.units);
    let raw_kb = u64::from(options.capacity_gb) * (1 << 20) * u64::from(100 + OVER_PROVISIONING_PCT) / 100;
    let smaller = shape.page_kb.len() as u64 - 1;
    for (i, kb) in shape.page_kb.iter().enumerate().rev() {
        // Each smaller page size gets an eighth of the raw flash, and the largest page size gets the rest.
        let share = if i == 0 { raw_kb - smaller * (raw_kb / 8) } else { raw_kb / 8 };
        let block_kb = u64::from(kb * PAGES_PER_BLOCK * shape.units);
        line!(out, "\n[[geometry.block_groups]]\npage_kb = {kb}");
        line!(out, "blocks = {}\npages_per_block = {PAGES_PER_BLOCK}", share.div_ceil(block_kb).max(8));
        if fitted.reads {
            line!(out, "read_us = {:.1} # {}", timing.read[i], bar(&format!("read_us of {kb} KB pages")));
        } else {
            line!(out, "# read_us is not measured");
        }
        line!(out, "program_us = {:.1} # {}", timing.program[i], bar(&format!("program_us of {kb} KB pages")));
        line!(out, "erase_us = 3800 # not measurable; IISWC 2015, Table V");
        line!(out, "erase_limit = 3000 # not measurable; usual for MLC");
    }
    line!(out, "\n[capacity]\nover_provisioning_pct = {OVER_PROVISIONING_PCT}");
    let parallelism = if shape.units == 1 { "none" } else { "interleave" };
    line!(out, "\n[timing]\nparallelism = {parallelism:?} # {} unit(s) at once fit best of 1, 2, 4", shape.units);
    line!(out, "\n[controller]\nqueue_depth = {}{}", calibration.queue_depth, queue_note(calibration));
    if fitted.reads {
        line!(out, "read_overhead_us = {:.1} # {}", timing.read_overhead, bar("read_overhead_us"));
    } else {
        line!(out, "# read_overhead_us is not measured");
    }
    line!(out, "write_overhead_us = {:.1} # {}", timing.write_overhead, bar("write_overhead_us"));
    let link = if fitted.link { bar("host_us_per_kb") } else { "assumed, see above".to_owned() };
    line!(out, "host_us_per_kb = {:.2} # {link}", timing.host_per_kb);
    if let Some(us) = fitted.reliable_us {
        line!(out, "reliable_write_us = {us:.1} # {}", bar("reliable_write_us"));
    }
    if let Some(us) = fitted.discard_us {
        line!(out, "discard_us = {us:.1} # {}; of {}", bar("discard_us"), requests_of(calibration, &["discard"]));
    }
    for stall in stalls {
        write_stalls(&mut out, stall);
    }
    if let Some(us) = fitted.flush_us {
        let of = requests_of(calibration, &["flush", "preflush"]);
        line!(out, "\n[cache]\nflush_us = {us:.1} # {}; of {of}", bar("flush_us"));
    }
    if let Some(us) = fitted.fetch_us {
        line!(out, "\n[host]\nfetch_us = {us:.1} # {}; mean of requests that found the device idle", bar("fetch_us"));
    }
    line!(out, "\n[gc]\npolicy = \"greedy\"\nlow_watermark = 2");
    if !fitted.stages.is_empty() {
        line!(out, "\n[power]");
    }
    for (number, stage) in fitted.stages.iter().enumerate() {
        let (table, key) = if fitted.stages.len() > 1 { ("[[power.stages]]\n", "after_us") } else { ("", "sleep_after_us") };
        line!(out, "{table}{key} = {:.0} # {}", stage.after_us, bar(&stage_figure("sleep_after_us", number)));
        write_exit(&mut out, stage, &bar(&stage_figure("wake_us", number)));
    }
    Ok(out)
}

/// Appends the settings of the base, with the fitted values, to the head of the file.
fn on_base(
    mut out: String, calibration: &Calibration, (fitted, stalls): (&FittedModel, &[StallSummary]), base: &DeviceConfig,
    options: &CalibrateOptions,
) -> Result<String> {
    line!(out, "#");
    for figure in &calibration.figures {
        if let FittedParameter { name, unit, value: Some(value), low: Some(low), high: Some(high) } = figure {
            line!(out, "# {name}: {value:.1} {unit} ({low:.1} to {high:.1})");
        }
    }
    let settings = base.settings();
    let timing = &fitted.timing;
    let durable = if settings.interface.is_ufs() { "interface.fua_us" } else { "controller.reliable_write_us" };
    let mut changes: Vec<(&str, String)> = vec![
        ("name", format!("{:?}", options.name)),
        ("about", format!("{:?}", format!("{}, calibrated from {}", base.name(), options.source))),
        ("fitted_to", format!("{:?}", [&options.source])),
    ];
    let values = [
        ("controller.read_overhead_us", fitted.reads.then_some(timing.read_overhead)),
        ("controller.write_overhead_us", fitted.writes.then_some(timing.write_overhead)),
        (durable, fitted.reliable_us),
        ("cache.flush_us", fitted.flush_us),
        ("controller.discard_us", fitted.discard_us),
        ("host.fetch_us", fitted.fetch_us),
    ];
    changes.extend(values.into_iter().filter_map(|(key, value)| Some((key, format!("{:.1}", value?)))));
    for StallSummary { op, points, .. } in stalls {
        let key = if *op == Op::Read { "controller.read_stalls" } else { "controller.write_stalls" };
        changes.push((key, inline(points)));
    }
    if !fitted.stages.is_empty() {
        let stage =
            |stage: &StageFit| format!("{{after_us={:.0}, wake_quantiles={}}}", stage.after_us, inline(&stage.wake_quantiles));
        let stages: Vec<String> = fitted.stages.iter().map(stage).collect();
        changes.push(("power.stages", format!("[{}]", stages.join(", "))));
        changes.extend(["power.sleep_after_us", "power.wake_us"].map(|key| (key, "0".to_owned())));
        changes.push(("power.wake_quantiles", "[]".to_owned()));
    }
    let mut device = base.clone();
    device.set_all(&changes.iter().map(|(key, value)| (*key, value.as_str())).collect::<Vec<_>>())?;
    out.push_str(&device.to_toml()?);
    Ok(out)
}

/// A distribution of times as a TOML value.
fn inline(points: &[(f64, f64)]) -> String {
    let points: Vec<String> = points.iter().map(|(share, us)| format!("{{up_to_pct={share:.4}, us={us:.0}}}")).collect();
    format!("[{}]", points.join(", "))
}

/// Writes the distribution of the exit time of a stage of sleep.
fn write_exit(out: &mut String, stage: &StageFit, bar: &str) {
    line!(out, "# {:.0} us in the median ({bar}); drawn from this distribution:", stage.wake_us);
    line!(out, "wake_quantiles = [");
    for (share, us) in &stage.wake_quantiles {
        line!(out, "    {{ up_to_pct = {share:.2}, us = {us:.0} }},");
    }
    line!(out, "]");
}

/// Writes the distribution of the times that stalls add to requests.
fn write_stalls(out: &mut String, StallSummary { op, row, points }: &StallSummary) {
    let name = op.name();
    line!(
        out,
        "# {} of {} {name}s took at least twice the time of their size, {:.0} us more in the median; drawn from this:",
        row.stalls,
        row.requests,
        row.median_us
    );
    line!(out, "{name}_stalls = [");
    for (share, us) in points {
        line!(out, "    {{ up_to_pct = {share:.4}, us = {us:.0} }},");
    }
    line!(out, "]");
}

/// Returns a TOML comment with the number of overlapping requests from which the queue depth was derived; empty without such requests.
fn queue_note(calibration: &Calibration) -> String {
    match calibration.overlapping {
        0 => String::new(),
        count => format!(" # {count} requests began while others were served"),
    }
}

/// Returns, as text, the number of requests from which a setting of the preset was fitted. `kinds` are the kinds of requests that may
/// determine the setting; the first kind from which a setting was fitted is used.
fn requests_of(calibration: &Calibration, kinds: &[&str]) -> String {
    let fitted = |kind: &&str| calibration.durability.iter().find(|row| row.kind == *kind && row.setting.is_some());
    kinds.iter().find_map(fitted).map_or_else(String::new, |row| format!("{} requests", row.requests))
}
