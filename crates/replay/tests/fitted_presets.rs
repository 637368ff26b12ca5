//! Presets beside the published figures that they were fitted to. A regression test, no validation: it fails where a change of the model
//! moves the fit, and lists what is further off than 10 % and is said to be so in the preset.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use emmclab_device::DeviceConfig;
use emmclab_replay::fitted_figures;

/// Prints every figure; those that lie more than 10 % off.
fn off(preset: &str) -> Vec<String> {
    let figures = fitted_figures(&DeviceConfig::preset(preset).unwrap()).unwrap();
    for row in &figures {
        println!(
            "{preset} {:44} {:9.2} {}, published {:9.2}: {:+.1} %",
            row.figure, row.here, row.unit, row.published, row.deviation_pct
        );
    }
    let far = figures.into_iter().filter(|row| row.deviation_pct.abs() > 10.0);
    far.map(|row| row.figure).collect()
}

#[test]
fn the_emmc_of_advil_stays_within_ten_percent_in_all_figures() {
    assert_eq!(off("galaxys2"), [""; 0]);
}

#[test]
fn the_card_of_advil_stays_within_ten_percent_in_all_figures() {
    assert_eq!(off("microsd-class10"), [""; 0]);
}

#[test]
fn the_cached_emmc_51_meets_the_four_write_rates_and_the_flush() {
    let off_by_reads = [
        "reads in order, FUA on",
        "random reads, 4 KB, FUA on",
        "reads in order, FUA off",
        "random reads, 4 KB, FUA off",
    ];
    // The commands of another device of the class than the rates.
    let of_the_other = ["a write, 4 KB", "both, 4 KB", "a reliable write, 4 KB"];
    assert_eq!(off("emmc51-cache"), [&off_by_reads[..], &of_the_other].concat());
}

#[test]
fn the_emmc_50_meets_its_commands_with_the_cache_off() {
    let moved = ["a write, 4 KB, cache on", "a flush behind it, 4 KB, cache on"];
    let slower = ["reads in order", "random writes, 4 KB"];
    assert_eq!(off("emmc50-cache"), [moved, slower].concat());
}

#[test]
fn a_device_without_published_figures_is_told_so() {
    let error = fitted_figures(&DeviceConfig::preset("small-1gb").unwrap()).unwrap_err();
    assert!(error.to_string().contains("small-1gb"), "{error}");
}
