//! Requests are returned in order of arrival, however the recorder wrote them, within the window.

use std::fmt::Write;

use crate::support::scratch;
use emmclab_trace::{BATCH_ROWS, ErrorClass, REORDER_WINDOW, ReadOptions, TraceReader};

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
