//! Errors that would stop a run half-way are reported before it begins.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{in_mode, preset};
use emmclab_device::DeviceConfig;
use emmclab_replay::{ModeChoice, ReplayMode, ReplayOptions, preflight};
use emmclab_trace::{ReadOptions, Result, TraceInput, TraceReader, TraceWriter, WriteOptions};

/// Whether these traces can be replayed in closed loop on a device.
fn in_closed_loop(config: &DeviceConfig, paths: &[&PathBuf]) -> Result<ModeChoice> {
    preflight(config, &in_mode(ReplayMode::Closed), &inputs(paths))
}

fn inputs(paths: &[&PathBuf]) -> Vec<TraceInput> {
    paths.iter().map(|path| TraceInput { path: (*path).clone(), ..TraceInput::default() }).collect()
}

fn small() -> DeviceConfig {
    preset("small-1gb", &[])
}

fn written(folder: &Path, name: &str, lines: &[&str]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, lines.join("\n")).unwrap();
    path
}

const FAR: &[&str] = &["0 0 8 8 0", "1000 0 99999992 8 0", "2000 0 16 8 1", "3000 0 88888888 8 0"];
const COMPLETE: &[&str] =
    &["8\t\t8\t\t4096\t\t5\t\t1.0\t\t1.1\t\t1.2\t\t1.3", "99999992\t\t8\t\t4096\t\t5\t\t2.0\t\t2.1\t\t2.2\t\t2.3"];

#[test]
fn every_fault_of_every_trace_is_told_at_once_with_its_cure() {
    let folder = tempfile::tempdir().unwrap();
    let far = written(folder.path(), "far.ssdsim", FAR);
    let complete = written(folder.path(), "complete.txt", COMPLETE);
    let error = in_closed_loop(&small(), &[&far, &complete]).unwrap_err();
    let words = error.to_string();
    for part in [
        "3 faults",
        "far.ssdsim: 2 of 4 requests end after",
        "furthest at 47.68 GB",
        "3 of 4 requests have no recorded completion",
        "complete.txt: 1 of 2",
    ] {
        assert!(words.contains(part), "{words}");
    }
    let hint = error.hint_text().unwrap();
    assert!(hint.contains("--wrap-addresses") && hint.contains("--mode open"), "{hint}");
}

#[test]
fn wrapped_addresses_and_the_open_loop_ask_for_nothing_and_read_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let far = written(folder.path(), "far.ssdsim", FAR);
    let bad = written(folder.path(), "bad.ssdsim", &["0 0 8 8 0", "nonsense"]);
    let open = in_mode(ReplayMode::Open);
    preflight(&small(), &ReplayOptions { wrap_addresses: true, ..open.clone() }, &inputs(&[&far, &bad])).unwrap();
    assert!(preflight(&small(), &open, &inputs(&[&bad])).is_err());
}

#[test]
fn the_last_request_may_lack_its_completion() {
    let folder = tempfile::tempdir().unwrap();
    let heading = "arrival_ns,op,sector,sectors,complete_ns";
    for (name, rows, right) in [
        ("last.csv", ["0,write,0,8,500000", "1000000,write,8,8,"], true),
        ("first.csv", ["0,write,0,8,", "1000000,write,8,8,1500000"], false),
    ] {
        let path = written(folder.path(), name, &[heading, rows[0], rows[1]]);
        assert_eq!(in_closed_loop(&small(), &[&path]).is_ok(), right, "{name}");
    }
}

#[test]
fn the_footer_of_a_parquet_file_answers_without_its_pages() {
    let folder = tempfile::tempdir().unwrap();
    let text = written(folder.path(), "complete.txt", COMPLETE);
    let mut reader = TraceReader::open(&text, &ReadOptions::default()).unwrap();
    let path = folder.path().join("trace.parquet");
    let mut writer = TraceWriter::create(&path, &reader.header(), &WriteOptions::default()).unwrap();
    while let Some(batch) = reader.next_batch().unwrap() {
        writer.write(&batch).unwrap();
    }
    writer.finish(&reader.ledger(), &reader.header()).unwrap();
    let extent = TraceReader::open(&path, &ReadOptions::default()).unwrap().extent().unwrap();
    assert_eq!((extent.end.0, extent.without_completion), (100_000_000, 0));
    let mut bytes = fs::read(&path).unwrap();
    // The pages are between the magic number and the footer, and are overwritten so that they cannot be read.
    bytes[4..64].fill(0xff);
    fs::write(&path, bytes).unwrap();
    // 51 GB do not fit into 32 GB either, so the footer is not sufficient, and the pages are damaged.
    assert!(in_closed_loop(&small(), &[&path]).is_err());
    assert!(in_closed_loop(&preset("iiswc15-4ps", &[]), &[&path]).is_err());
    in_closed_loop(&preset("iiswc15-4ps", &[("geometry.block_groups.0.blocks", "2048")]), &[&path]).unwrap();
}
