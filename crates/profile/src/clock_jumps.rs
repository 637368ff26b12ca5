//! The clock jumps in a report, and the key figures with and without them.

use emmclab_trace::{ArrivalGaps, ClockJump, JumpDirection, TraceHeader};

use crate::arrivals::ArrivalCounters;
use crate::queue::QueueStatistics;
use crate::report::{ClockJumpRow, KeyFigures, PaperTables};

/// The clock jumps of a trace. Some are detected in the gaps between requests, others by the reader of the trace.
pub(crate) struct ProfileClockJumps<'a> {
    gaps: &'a ArrivalGaps,
    /// All jumps, in the order of the requests.
    jumps: Vec<ClockJump>,
    /// Time between the first and the last arrival without the clock jumps, in ns. It is set only if the clock jumped backward and the
    /// reader has sorted the later requests among the earlier ones. The gaps between requests do not show such a jump.
    without_ns: Option<i64>,
}

impl<'a> ProfileClockJumps<'a> {
    pub fn new(gaps: &'a ArrivalGaps, header: &TraceHeader) -> Self {
        let detected = header.clock_jumps().unwrap_or_default();
        let without_ns = detected.interleaved().then_some(detected.without_ns);
        let mut all = detected.jumps;
        if without_ns.is_none() {
            // Only the clock jumps that were corrected are used here. The other jumps are still present as gaps between arrivals.
            all.retain(|jump| jump.mended);
            all.extend(gaps.jumps().iter().map(|(length_ns, place)| ClockJump::forward(*length_ns, *place)));
        }
        all.sort_by_key(|jump| (jump.request, jump.at_ns));
        Self { gaps, jumps: all, without_ns }
    }

    pub fn rows(&self) -> Vec<ClockJumpRow> {
        let row = |jump: &ClockJump| ClockJumpRow {
            direction: match jump.direction {
                JumpDirection::Forward => "forward",
                JumpDirection::Backward => "backward",
            },
            time_s: jump.at_ns as f64 / 1e9,
            request: jump.request,
            length_s: jump.length_ns as f64 / 1e9,
            mended: jump.mended,
        };
        self.jumps.iter().map(row).collect()
    }

    /// Returns the key figures without clock jumps; `None` if the trace has no clock jumps.
    pub fn figures_without(
        &self, tables: &PaperTables, arrivals: &ArrivalCounters, queue: &QueueStatistics,
    ) -> Option<KeyFigures> {
        if let Some(without_ns) = self.without_ns {
            if without_ns == 0 {
                // 0 means unknown: if only a part of the trace was read, its duration without clock jumps is not known.
                return None;
            }
            let added_ns = i128::from(without_ns) - i128::from(self.gaps.span_ns());
            let forward = self.jumps.iter().filter(|jump| jump.direction == JumpDirection::Forward).count() as u64;
            let duration_s = tables.duration_s + added_ns as f64 / 1e9;
            let mean_ms = arrivals.mean_gap_stretched_ms(added_ns, forward);
            return Some(key_figures(tables, duration_s, mean_ms, None));
        }
        let (shortest_ns, _) = *self.gaps.jumps().last()?;
        let jumped_ns: u128 = self.gaps.jumps().iter().map(|(length_ns, _)| u128::from(*length_ns)).sum();
        let duration_s = tables.duration_s - jumped_ns as f64 / 1e9;
        // A jump is at least ten times as long as any other gap. Half of the shortest jump therefore separates jumps from other gaps.
        let mean_ms = arrivals.mean_gap_up_to_ms(shortest_ns / 2);
        Some(key_figures(tables, duration_s, mean_ms, queue.busy_and_idle_s(shortest_ns / 2)))
    }
}

/// Computes the key figures of a trace that lasts `duration_s`. `busy_and_idle_s` are the busy and the idle time of the device.
pub(crate) fn key_figures(
    tables: &PaperTables, duration_s: f64, mean_inter_arrival_ms: Option<f64>, busy_and_idle_s: Option<(f64, f64)>,
) -> KeyFigures {
    let lasted = duration_s > 0.0;
    let per_s = |amount: f64| lasted.then(|| amount / duration_s);
    let pct = |seconds: f64| lasted.then(|| 100.0 * seconds / duration_s);
    KeyFigures {
        duration_s: duration_s.max(0.0),
        arrival_rate_per_s: per_s(tables.requests as f64),
        access_rate_kb_per_s: per_s(tables.data_size_kb),
        mean_inter_arrival_ms,
        busy_pct: busy_and_idle_s.and_then(|(busy_s, _)| pct(busy_s)),
        idle_pct: busy_and_idle_s.and_then(|(_, idle_s)| pct(idle_s)),
    }
}
