//! Requests are returned in order of arrival, however the recorder wrote them, within the window. Reading ahead changes only the time that
//! reading takes.

use std::fmt::Write as _;
use std::path::PathBuf;

use emmclab_trace::interrupt::interruptible;
use emmclab_trace::{
    BATCH_ROWS, Batch, ErrorClass, MendClock, REORDER_WINDOW, ReadOptions, Request, TraceCombiner, TraceInput, TraceReader,
};
use tempfile::TempDir;

use crate::support::scratch;

const LINES: usize = 3 * REORDER_WINDOW + 100;

/// SSDsim lines, of which one in a hundred arrives before the preceding one, and `last`.
fn trace(last: &str) -> (TempDir, PathBuf) {
    let mut text = String::new();
    for i in 0..LINES as u64 {
        let at = i * 1000 - if i % 100 == 99 { 1500 } else { 0 };
        writeln!(text, "{at} 0 {} 8 {}", i * 7919 % 1_000_000 * 8, i % 2).unwrap();
    }
    let (folder, path) = scratch("trace.ssdsim");
    std::fs::write(&path, text + last).unwrap();
    (folder, path)
}

fn requests(batch: Option<&Batch>) -> Vec<Request> {
    batch.map_or_else(Vec::new, |batch| batch.iter().collect())
}

#[test]
fn each_batch_comes_with_the_counts_of_its_own_time() {
    let (_folder, path) = trace("");
    let mut plain = TraceReader::open(&path, &ReadOptions::default()).unwrap();
    let mut ahead = TraceCombiner::open(vec![TraceInput { path, ..TraceInput::default() }], 1).unwrap();
    loop {
        assert_eq!(ahead.ledger(), plain.ledger());
        assert_eq!(ahead.header(), plain.header());
        assert_eq!(ahead.progress().done, plain.progress().done);
        let (batch, expected) = (ahead.next_batch().unwrap(), plain.next_batch().unwrap());
        assert_eq!(requests(batch.as_ref()), requests(expected.as_ref()));
        if batch.is_none() {
            break;
        }
    }
    assert_eq!((ahead.ledger().kept, ahead.ledger().reordered), (LINES as u64, LINES as u64 / 100));
    assert!(ahead.next_batch().unwrap().is_none());
}

#[test]
fn an_error_comes_in_its_place_and_once() {
    let (_folder, path) = trace("nonsense\n");
    let mut plain = TraceReader::open(&path, &ReadOptions::default()).unwrap();
    let mut ahead = TraceCombiner::open(vec![TraceInput { path, ..TraceInput::default() }], 1).unwrap();
    let error = loop {
        match (ahead.next_batch(), plain.next_batch()) {
            (Ok(batch), Ok(expected)) => {
                assert_eq!(batch.unwrap().len(), expected.unwrap().len());
            }
            (ahead, plain) => {
                assert_eq!(ahead.as_ref().err().unwrap().to_string(), plain.err().unwrap().to_string());
                break ahead.err().unwrap();
            }
        }
    };
    assert!(error.to_string().contains(&(LINES + 1).to_string()), "{error}");
    assert!(ahead.next_batch().unwrap().is_none());
}

#[test]
fn whoever_stops_early_waits_for_nobody() {
    let (_folder, path) = trace("");
    let mut ahead = TraceCombiner::open(vec![TraceInput { path, ..TraceInput::default() }], 1).unwrap();
    assert_eq!(ahead.next_batch().unwrap().unwrap().len(), BATCH_ROWS);
    assert_eq!(ahead.ledger().kept, BATCH_ROWS as u64);
}

#[test]
fn reading_and_the_search_for_jumps_can_be_interrupted() {
    let (_folder, path) = trace("");
    for mend_clock in [None, Some(MendClock::Jumps)] {
        let options = ReadOptions { mend_clock, ..ReadOptions::default() };
        let input = TraceInput { path: path.clone(), options, ..TraceInput::default() };
        let mut ahead = TraceCombiner::open(vec![input.clone()], 1).unwrap();
        let mut plain = TraceReader::open(&path, &input.options).unwrap();
        let [first, second] = interruptible(
            || true,
            || {
                // The poll function is called at most every 50 ms.
                let first = ahead.next_batch().err();
                std::thread::sleep(std::time::Duration::from_millis(60));
                [first, plain.next_batch().err()]
            },
        )
        .map(|error| error.map(|error| error.kind()));
        assert_eq!(second, Some(ErrorClass::Interrupted));
        assert!(first.is_none_or(|kind| kind == ErrorClass::Interrupted));
        let rest = ahead.next_batch().unwrap();
        assert!(rest.is_some(), "an interrupted wait loses no batch");
    }
}

/// Reads a file of SSDsim lines, one for each microsecond, in the order of `places`; the sector is the index in `places`.
fn read(places: &[usize], window: Option<usize>) -> emmclab_trace::Result<(Vec<(i64, u64)>, u64)> {
    let (_folder, path) = scratch("trace.ssdsim");
    let mut text = String::new();
    for place in places {
        writeln!(text, "{} 0 {place} 8 0", place / 3 * 1000).unwrap();
    }
    std::fs::write(&path, text).unwrap();
    let options = ReadOptions { reorder_window: window, ..ReadOptions::default() };
    let mut reader = TraceReader::open(&path, &options)?;
    let mut result = Vec::new();
    while let Some(batch) = reader.next_batch()? {
        assert!(batch.len() <= BATCH_ROWS && !batch.is_empty());
        result.extend(batch.iter().map(|request| (request.arrival.0, request.sector.0)));
    }
    Ok((result, reader.ledger().reordered))
}

/// The result of a stable sort of all lines.
fn sorted(places: &[usize]) -> Vec<(i64, u64)> {
    let mut all: Vec<_> = places.iter().map(|place| ((place / 3 * 1000) as i64, *place as u64)).collect();
    all.sort_by_key(|(arrival, _)| *arrival);
    all
}

#[test]
fn disorder_over_the_borders_of_batches_is_put_right() {
    let ordered: Vec<usize> = (0..3 * REORDER_WINDOW + 7).collect();
    assert_eq!(read(&ordered, None).unwrap(), (sorted(&ordered), 0));
    for far in [2, 100, BATCH_ROWS / 2, BATCH_ROWS, REORDER_WINDOW / 2] {
        let mut places = ordered.clone();
        for at in (0..places.len() - far).step_by(9_001) {
            places.swap(at, at + far);
        }
        let (found, reordered) = read(&places, None).unwrap();
        assert!(reordered > 0);
        assert!(found == sorted(&places), "{far} places");
    }
}

#[test]
fn a_request_further_out_of_place_than_the_window_is_refused() {
    let mut places: Vec<usize> = (0..3 * REORDER_WINDOW).collect();
    let late = places.remove(0);
    places.insert(5 * REORDER_WINDOW / 2, late);
    let error = read(&places, None).unwrap_err();
    assert!(error.kind() == ErrorClass::Order && error.hint_text().unwrap().contains("--reorder-window"));
    assert_eq!(read(&places, Some(3 * REORDER_WINDOW)).unwrap().0, sorted(&places));
}
