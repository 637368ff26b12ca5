//! The 24 bandwidths of Table II of the paper on Advil (Kim and Kim), from the presets of its two devices. A regression test,
//! no validation: the presets were fitted to these figures. It fails where a change of the model moves the fit.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use emmclab_device::DeviceConfig;
use emmclab_replay::bandwidth;

/// Unit in KB; sequential read and write, random read and write in MB/s.
type Row = (u64, [f64; 4]);

const EMMC: [Row; 3] =
    [(4, [7.22, 0.80, 3.52, 0.36]), (32, [24.25, 6.17, 19.78, 3.58]), (4096, [44.48, 10.56, 42.25, 10.63])];
const MICROSD: [Row; 3] =
    [(4, [4.36, 1.07, 3.97, 0.56]), (16, [9.11, 3.31, 8.60, 1.59]), (2048, [16.83, 7.71, 16.82, 7.71])];
const COLUMNS: [&str; 4] = ["sequential read", "sequential write", "random read", "random write"];

/// Prints the table; the figures that lie more than 10 % off, with their deviation in percent.
fn off(preset: &str, published: &[Row]) -> Vec<(u64, &'static str, f64)> {
    let units: Vec<u64> = published.iter().map(|(unit, _)| *unit).collect();
    let rows = bandwidth(&DeviceConfig::preset(preset).unwrap(), &units).unwrap();
    let mut out = Vec::new();
    for (row, (unit, published)) in rows.iter().zip(published) {
        let ours = [row.seq_read_mb_s, row.seq_write_mb_s, row.random_read_mb_s, row.random_write_mb_s];
        for ((column, ours), published) in COLUMNS.iter().zip(ours).zip(published) {
            let deviation = 100.0 * (ours / published - 1.0);
            println!(
                "{preset} {unit:4} KB {column:16} {ours:6.2} MB/s, published {published:5.2}: {deviation:+.1} %"
            );
            if deviation.abs() > 10.0 {
                out.push((*unit, *column, deviation));
            }
        }
    }
    out
}

#[test]
fn the_fit_of_the_emmc_stays_within_ten_percent_in_all_figures() {
    assert_eq!(off("galaxys2", &EMMC), []);
}

#[test]
fn the_fit_of_the_card_stays_within_ten_percent_in_all_figures() {
    assert_eq!(off("microsd-class10", &MICROSD), []);
}
