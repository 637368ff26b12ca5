//! Settings that are declared to have no influence on what preconditioning leaves have none.

use std::path::Path;

use emmclab_device::{DeviceConfig, SettingExplanation, decides_contents, presets};
use emmclab_replay::{Precondition, ReplayOptions, Simulation, age_by_traces};
use emmclab_trace::{ReadOptions, TraceInput, formats};
use proptest::prelude::*;
use proptest::sample::Index;

/// Another value of a setting: a number times a factor, the other of two truths, another name; none where there is no other.
fn another(row: &SettingExplanation, factor: f64) -> Option<String> {
    if let Ok(truth) = row.value.parse::<bool>() {
        return Some((!truth).to_string());
    }
    if let Ok(count) = row.value.parse::<i64>() {
        return Some(((count + 1) as f64 * factor).round().to_string());
    }
    if let Ok(number) = row.value.parse::<f64>() {
        return Some(format!("{:?}", (number + 1.0) * factor));
    }
    (row.key == "name" || row.key == "about").then(|| "\"another\"".to_owned())
}

/// What a device holds that was made as asked, or the error.
fn contents(config: &DeviceConfig, options: &ReplayOptions, trace: Option<&Path>) -> Result<Vec<u8>, String> {
    let made = match trace {
        None => Simulation::new(config, options, None).map(Simulation::into_device),
        Some(path) => {
            let options = ReadOptions { further: formats::FORMATS, ..ReadOptions::default() };
            age_by_traces(config, vec![TraceInput { path: path.to_owned(), options, ..TraceInput::default() }], None)
        }
    };
    made.map(|device| device.to_image()).map_err(|error| error.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: emmclab_testing::cases(120), ..ProptestConfig::default() })]

    #[test]
    fn a_setting_of_no_influence_changes_no_preset_however_it_is_preconditioned(
        preset in any::<Index>(),
        setting in any::<Index>(),
        factor in 0.0..4.0_f64,
        way in 0..5_usize,
        seed in 0..3_u64,
    ) {
        let preset = preset.get(presets());
        let Ok(config) = DeviceConfig::preset(preset.name).and_then(|one| one.with_capacity(256 << 20, "256MB")) else {
            return Ok(());
        };
        let daily = "7d,daily=6MB,filled=60".parse().unwrap();
        let precondition = match way {
            0 => Precondition::Sequential(90.0),
            1 => Precondition::Random(60.0),
            2 => Precondition::SteadyState { most_capacities: 0.5 },
            3 => Precondition::Used(daily),
            _ => Precondition::None,
        };
        let pauses = way == 3 || config.settings().interface.is_ufs();
        let rows: Vec<_> = config.explain().into_iter().filter(|row| !decides_contents(&row.key, pauses)).collect();
        let row = setting.get(&rows);
        let Some(value) = another(row, factor) else { return Ok(()) };
        let mut other = config.clone();
        if other.set(&row.key, &value).is_err() {
            return Ok(());
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("aging.csv");
        let lines = (0..400_u64).map(|at| {
            let op = ["write", "read", "write", "flush"][(at % 4) as usize];
            let (sector, sectors) = if op == "flush" { (0, 0) } else { (at * 7919 % 100_000 * 8, 8 + at % 5 * 32) };
            format!("{},{op},{sector},{sectors}\n", at * 100_000)
        });
        std::fs::write(&path, format!("arrival_ns,op,sector,sectors\n{}", lines.collect::<String>())).unwrap();
        let options = ReplayOptions { precondition, seed, ..Default::default() };
        let trace = (way == 4).then_some(path.as_path());
        let (made, with) = (contents(&config, &options, trace), contents(&other, &options, trace));
        prop_assume!(made.is_ok());
        prop_assert!(made == with, "{} {} = {value}, way {way}", config.name(), row.key);
    }
}
