//! Profiles of combined traces.

use emmclab_profile::{Profile, ProfileOptions};
use emmclab_trace::{TraceCombiner, TraceInput};

#[test]
fn a_trace_combined_with_itself_doubles_the_data_and_halves_no_time() {
    let Some(path) = crate::common::real_trace("nexus5/log106_Messaging.txt") else { return };
    let input = TraceInput { path, ..TraceInput::default() };
    let mut combined = TraceCombiner::open(vec![input.clone(), input], 1).unwrap();
    let mut profile = Profile::new(ProfileOptions::default());
    while let Some(batch) = combined.next_batch().unwrap() {
        profile.update(&batch);
    }
    let report = profile.finish(&combined.ledger(), &combined.header());
    assert_eq!((report.tables.requests, report.tables.data_size_kb), (2 * 5_702, 2.0 * 63_668.0));
    assert!((report.tables.duration_s - 589.131_035).abs() < 1e-9);
    // Each request has a twin that arrives with it.
    assert!(report.tables.no_wait_pct.unwrap() < 50.0);
    assert_eq!(report.ledger.headers_stripped, 2 * 1_155);
}
