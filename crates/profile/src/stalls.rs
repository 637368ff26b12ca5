//! Converts recorded waits for durability to the time line of the requests.

use emmclab_trace::{Activity, Header, Ledger, Nanos};

use crate::report::StallRow;

/// The recorded waits, in order of their starts, with times relative to the first arrival.
///
/// Empty if clock jumps were removed: the requests are shifted then, but the recorded waits are not.
pub(crate) fn stall_rows(header: &Header, ledger: &Ledger, origin: Nanos) -> Vec<StallRow> {
    if ledger.mended_jumps > 0 {
        return Vec::new();
    }
    let activity = header.activity.as_deref().and_then(Activity::from_json).unwrap_or_default();
    let row = |stall: &emmclab_trace::SyncStall| {
        let start_s = seconds(stall.start.0.saturating_sub(origin.0));
        StallRow {
            process: stall.process.clone(),
            file_system: stall.file_system.clone(),
            start_s,
            end_s: start_s + seconds(stall.time.0),
            wait_ms: seconds(stall.time.0) * 1e3,
        }
    };
    activity.stalls.iter().map(row).collect()
}

fn seconds(time: i64) -> f64 {
    time as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use emmclab_trace::SyncStall;

    use super::*;

    #[test]
    fn waits_stand_on_the_time_line_of_the_requests_unless_its_jumps_were_taken_out() {
        let stall = SyncStall {
            process: "dd".into(),
            file_system: "ext4".into(),
            start: Nanos(1_500_000_000),
            time: Nanos(250_000_000),
        };
        let early = SyncStall { start: Nanos(500_000_000), ..stall.clone() };
        let activity = Activity { stalls: vec![early, stall], ..Activity::default() };
        let header = Header { activity: serde_json::to_string(&activity).ok(), ..Header::default() };
        let rows = stall_rows(&header, &Ledger::default(), Nanos(1_000_000_000));
        let times: Vec<_> = rows.iter().map(|row| (row.start_s, row.end_s, row.wait_ms)).collect();
        assert_eq!(times, [(-0.5, -0.25, 250.0), (0.5, 0.75, 250.0)]);
        let mended = Ledger { mended_jumps: 1, ..Ledger::default() };
        assert_eq!(stall_rows(&header, &mended, Nanos::ZERO), []);
        for damaged in [None, Some("{".to_owned())] {
            let header = Header { activity: damaged, ..Header::default() };
            assert_eq!(stall_rows(&header, &Ledger::default(), Nanos::ZERO), []);
        }
    }
}
