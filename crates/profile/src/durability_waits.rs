//! Converts recorded waits for durability to the time line of the requests.

use std::cmp::Reverse;

use emmclab_trace::{Ledger, Nanos, RecordedActivity, SyncWait, TraceHeader};

use crate::report::FsyncStallRow;

/// Maximum number of waits.
const MOST: usize = 256;

/// The longest recorded waits, in order of their starts, with times relative to the first arrival.
///
/// Empty if clock jumps were removed: the requests are shifted then, but the recorded waits are not.
pub(crate) fn stall_rows(header: &TraceHeader, ledger: &Ledger, origin: Nanos) -> Vec<FsyncStallRow> {
    if ledger.mended_jumps > 0 {
        return Vec::new();
    }
    let activity = header.activity.as_deref().and_then(RecordedActivity::from_json).unwrap_or_default();
    let mut waits = activity.waits;
    if waits.len() > MOST {
        waits.sort_by_key(|wait| Reverse((wait.time, wait.start)));
        waits.truncate(MOST);
        waits.sort();
    }
    let row = |wait: &SyncWait| {
        let start_s = seconds(wait.start.0.saturating_sub(origin.0));
        FsyncStallRow {
            process: wait.process.clone(),
            file_system: wait.file_system.clone(),
            start_s,
            end_s: start_s + seconds(wait.time.0),
            wait_ms: seconds(wait.time.0) * 1e3,
        }
    };
    waits.iter().map(row).collect()
}

fn seconds(time: i64) -> f64 {
    time as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_stand_on_the_time_line_of_the_requests_unless_its_jumps_were_taken_out() {
        let wait = SyncWait {
            process: "dd".into(),
            pid: 7,
            file_system: "ext4".into(),
            device: "sda1".into(),
            start: Nanos(1_500_000_000),
            time: Nanos(250_000_000),
        };
        let early = SyncWait { start: Nanos(500_000_000), ..wait.clone() };
        let activity = RecordedActivity { waits: vec![early, wait.clone()], ..RecordedActivity::default() };
        let header = TraceHeader { activity: serde_json::to_string(&activity).ok(), ..TraceHeader::default() };
        let rows = stall_rows(&header, &Ledger::default(), Nanos(1_000_000_000));
        let times: Vec<_> = rows.iter().map(|row| (row.start_s, row.end_s, row.wait_ms)).collect();
        assert_eq!(times, [(-0.5, -0.25, 250.0), (0.5, 0.75, 250.0)]);
        let mended = Ledger { mended_jumps: 1, ..Ledger::default() };
        assert_eq!(stall_rows(&header, &mended, Nanos::ZERO), []);
        let shorter = |time| SyncWait { time: Nanos(time), ..wait.clone() };
        let waits = (0..2 * MOST as i64).map(shorter).collect();
        let many = TraceHeader {
            activity: RecordedActivity { waits, ..RecordedActivity::default() }.to_json(),
            ..TraceHeader::default()
        };
        let rows = stall_rows(&many, &Ledger::default(), Nanos::ZERO);
        assert!(rows.len() == MOST && rows.iter().all(|row| row.wait_ms >= MOST as f64 / 1e6));
        for damaged in [None, Some("{".to_owned())] {
            let header = TraceHeader { activity: damaged, ..TraceHeader::default() };
            assert_eq!(stall_rows(&header, &Ledger::default(), Nanos::ZERO), []);
        }
    }
}
