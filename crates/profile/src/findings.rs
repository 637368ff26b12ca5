//! The six characteristics (section III) and five implications (section IV) of the IISWC 2015 paper, as rules.
//!
//! A rule decides whether a trace has a property that the paper reports of its 18 traces. The limits are those of the paper if it specifies
//! them. A verdict is "unknown" if it changes when the ten longest gaps between requests are ignored: a few pauses, or a jump of the clock,
//! are not properties of the workload.

use crate::FEW_GAPS;
use crate::report::{Finding, FindingKind, FindingVerdict, ProfileReport};

/// Characteristic 2 of the IISWC 2015 paper: in 15 traces, at least this percentage of the requests has 4 KB.
const SMALL_PCT: f64 = 44.9;
/// Percentage of requests that did not wait, which 15 of the 18 traces reach (characteristic 3).
const NO_WAIT_PCT: f64 = 63.0;
/// If more than this percentage of requests did not wait, parallel queues are useless (implication 1 of the IISWC 2015 paper).
const NO_WAIT_HIGH_PCT: f64 = 80.0;
/// The largest spatial locality among the 18 traces (Table IV: `YouTube`), in percent.
const WEAK_SPATIAL_PCT: f64 = 47.61;
/// The largest temporal locality among the 18 traces (Table IV: Twitter), in percent.
const WEAK_TEMPORAL_PCT: f64 = 52.90;
/// Spatial locality below which implications 3 and 4 of IISWC 2015 can apply, in percent.
const LOW_SPATIAL_PCT: f64 = 30.0;
/// Temporal locality below which implications 3 and 4 of IISWC 2015 can apply, in percent.
const LOW_TEMPORAL_PCT: f64 = 40.0;
/// Mean time between arrivals in ms that 13 of the 18 traces of IISWC 2015 reach (characteristic 6).
const LONG_GAP_MS: f64 = 200.0;
/// Size of a typical write buffer in a device, KB.
pub(crate) const BUFFER_KB: u64 = 16 * 1_024;

const NO_TIMES: &str = "unknown: the trace has no completion times";
const NO_GAPS: &str = "unknown: the trace has no completion times, or too few idle gaps";
const NO_PAIRS: &str = "unknown: the trace has fewer than two reads and writes";
const NO_REQUESTS: &str = "unknown: the trace has too few reads and writes";

/// The outcome of a rule: the measured value, whether the rule holds, and the consequence.
type Verdict = Option<(f64, FindingVerdict, String)>;

/// Applies all rules to a finished report.
pub(crate) fn findings(report: &ProfileReport, values: FindingValues) -> Vec<Finding> {
    let context = FindingInputs { report, values };
    RULES.iter().map(|rule| rule.finding(&context)).collect()
}

/// Inputs of the rules that are in no table of the report.
pub(crate) struct FindingValues {
    pub small_pct: Option<f64>,
    pub mean_gap_ms: Option<f64>,
    /// Mean gap without the [`FEW_GAPS`] longest gaps, as in all fields that end in `without_few`; `None` if no gap remains.
    pub mean_gap_without_few_ms: Option<f64>,
    pub above_16_ms_pct: Option<f64>,
    pub buffer_hit_pct: Option<f64>,
    pub blocks_that_fit_without_few: u64,
    pub sleeps_without_few: bool,
}

struct FindingInputs<'a> {
    report: &'a ProfileReport,
    values: FindingValues,
}

struct FindingRule {
    kind: FindingKind,
    number: u32,
    title: &'static str,
    holds_if: &'static str,
    unit: &'static str,
    missing: &'static str,
    judge: fn(&FindingInputs) -> Verdict,
}

impl FindingRule {
    /// Returns why the verdict of this rule is unknown.
    fn reason(&self, context: &FindingInputs) -> String {
        match &context.report.header.coarse_clock {
            Some(step) if self.missing != NO_REQUESTS => {
                format!("unknown: the clock of the trace has steps of {step}, longer than a usual response")
            }
            _ => self.missing.to_owned(),
        }
    }

    fn finding(&self, context: &FindingInputs) -> Finding {
        let verdict = (self.judge)(context);
        let kind = match self.kind {
            FindingKind::Characteristic => "characteristic",
            FindingKind::Implication => "implication",
        };
        let (measured, shown, meaning) = match verdict {
            Some((measured, shown, meaning)) => (Some(measured), shown, meaning),
            None => (None, FindingVerdict::Unknown, self.reason(context)),
        };
        Finding {
            id: format!("{kind}-{}", self.number),
            kind: self.kind,
            number: self.number,
            title: self.title,
            rule: self.holds_if,
            measured,
            unit: self.unit,
            shown,
            meaning,
        }
    }
}

const RULES: [FindingRule; 11] = [
    FindingRule {
        kind: FindingKind::Characteristic,
        number: 1,
        title: "Writes dominate",
        holds_if: "more than half of the requests are writes",
        unit: "% of requests",
        missing: NO_REQUESTS,
        judge: write_dominant,
    },
    FindingRule {
        kind: FindingKind::Characteristic,
        number: 2,
        title: "Many requests are small",
        holds_if: "at least 44.9 % of the requests are of 4 KB or less",
        unit: "% of requests",
        missing: NO_REQUESTS,
        judge: small_requests,
    },
    FindingRule {
        kind: FindingKind::Characteristic,
        number: 3,
        title: "Most requests are served at once",
        holds_if: "at least 63 % of the requests arrive when nothing is unfinished",
        unit: "% of requests",
        missing: NO_TIMES,
        judge: served_at_once,
    },
    FindingRule {
        kind: FindingKind::Characteristic,
        number: 4,
        title: "The device falls asleep between requests",
        holds_if: "requests are delayed after idle gaps above a clear threshold",
        unit: "ms to wake up",
        missing: NO_GAPS,
        judge: power_saving,
    },
    FindingRule {
        kind: FindingKind::Characteristic,
        number: 5,
        title: "Localities are weak, especially the spatial one",
        holds_if: "spatial locality is at most 47.61 %, temporal locality at most 52.90 %, and spatial locality is lower",
        unit: "% sequential",
        missing: NO_REQUESTS,
        judge: weak_localities,
    },
    FindingRule {
        kind: FindingKind::Characteristic,
        number: 6,
        title: "Requests come far apart",
        holds_if: "the mean time between arrivals is at least 200 ms",
        unit: "ms",
        missing: NO_PAIRS,
        judge: far_apart,
    },
    FindingRule {
        kind: FindingKind::Implication,
        number: 1,
        title: "More parallelism does not help, shorter service does",
        holds_if: "more than 80 % of the requests arrive when nothing is unfinished",
        unit: "% of requests",
        missing: NO_TIMES,
        judge: parallelism,
    },
    FindingRule {
        kind: FindingKind::Implication,
        number: 2,
        title: "Garbage collection fits into idle time",
        holds_if: "as many block reclaims as the trace's writes need fit into the idle gaps, each within one gap",
        unit: "times the idle time that collection needs",
        missing: NO_TIMES,
        judge: idle_collection,
    },
    FindingRule {
        kind: FindingKind::Implication,
        number: 3,
        title: "A large buffer in the device gains little",
        holds_if: "spatial locality is below 30 % and temporal locality below 40 %",
        unit: "% of start addresses seen before",
        missing: NO_REQUESTS,
        judge: large_buffer,
    },
    FindingRule {
        kind: FindingKind::Implication,
        number: 4,
        title: "Simple wear levelling is enough",
        holds_if: "spatial locality is below 30 % and temporal locality below 40 %",
        unit: "% of start addresses seen before",
        missing: NO_REQUESTS,
        judge: wear_levelling,
    },
    FindingRule {
        kind: FindingKind::Implication,
        number: 5,
        title: "Small requests deserve fast (SLC-mode) pages",
        holds_if: "at least 44.9 % of the requests are of 4 KB or less",
        unit: "% of requests",
        missing: NO_REQUESTS,
        judge: fast_pages,
    },
];

/// The outcome of a rule; its text is `yes` if the rule holds, otherwise `no`.
fn either(measured: f64, holds: bool, yes: String, no: String) -> (f64, FindingVerdict, String) {
    if holds { (measured, FindingVerdict::Yes, yes) } else { (measured, FindingVerdict::No, no) }
}

/// The outcome "unknown" of a rule. Its verdict would change if the [`FEW_GAPS`] longest gaps were removed from the trace. `without`
/// describes the trace without these gaps.
fn depends_on_few(measured: f64, without: &str) -> (f64, FindingVerdict, String) {
    let reason = format!("unknown: the verdict depends on the {FEW_GAPS} longest gaps; without them, {without}");
    (measured, FindingVerdict::Unknown, reason)
}

fn write_dominant(context: &FindingInputs) -> Verdict {
    let measured = context.report.tables.write_requests_pct?;
    let bytes = context.report.tables.written_bytes_pct?;
    Some(either(
        measured,
        measured > 50.0,
        format!("most requests are writes, with {bytes:.1} % of the bytes; write latency and wear come first"),
        format!("most requests are reads, although {bytes:.1} % of the bytes are written; read latency comes first"),
    ))
}

fn small_requests(context: &FindingInputs) -> Verdict {
    let measured = context.values.small_pct?;
    Some(either(
        measured,
        measured >= SMALL_PCT,
        "the cost of one page decides response times; larger flash pages would be half empty".to_owned(),
        "requests mostly span several pages, so that planes and dies can share the work".to_owned(),
    ))
}

fn served_at_once(context: &FindingInputs) -> Verdict {
    let measured = context.report.tables.no_wait_pct?;
    let depth = context.report.queue?.mean_at_arrival;
    Some(either(
        measured,
        measured >= NO_WAIT_PCT,
        format!("response time is mostly service time: {depth:.2} other requests are unfinished at an arrival on average"),
        format!("requests wait for each other: {depth:.2} others are unfinished at an arrival on average; queueing matters"),
    ))
}

fn power_saving(context: &FindingInputs) -> Verdict {
    let power = context.report.power_saving;
    power.shown_by?;
    let measured = power.wake_up_ms.unwrap_or(0.0);
    if power.found != context.values.sleeps_without_few {
        let without = if power.found { "there is no clear threshold" } else { "there is a clear threshold" };
        return Some(depends_on_few(measured, without));
    }
    let edges = power.threshold_low_ms.zip(power.threshold_high_ms);
    let sleep = edges.map(|(low, high)| {
        let wakes = power.wake_ups;
        if low < high {
            format!("the device sleeps after {low} to {high} ms without a request; {wakes} requests waited about {measured:.1} ms each until it was awake")
        } else {
            format!("the device sleeps after about {low} ms without a request; {wakes} requests waited about {measured:.1} ms each until it was awake")
        }
    });
    Some(either(
        measured,
        power.found,
        sleep.unwrap_or_default(),
        "there is no clear threshold: the device does not sleep, wakes up at once, or the gaps are too few or short".to_owned(),
    ))
}

fn weak_localities(context: &FindingInputs) -> Verdict {
    let (spatial, temporal) = localities(context)?;
    let weak = spatial <= WEAK_SPATIAL_PCT && temporal <= WEAK_TEMPORAL_PCT;
    let jumps = format!("addresses are scattered ({temporal:.1} % of the requests return to a start address)");
    Some(either(
        spatial,
        weak && spatial < temporal,
        format!("{jumps}: expect random, not sequential I/O"),
        if weak {
            format!("{jumps}, but sequential requests are no rarer than returns")
        } else {
            format!(
                "sequences or returns are common ({temporal:.1} % of the requests return to a start address): read-ahead, merging or caching may help"
            )
        },
    ))
}

fn far_apart(context: &FindingInputs) -> Verdict {
    let measured = context.values.mean_gap_ms?;
    let above = context.values.above_16_ms_pct?;
    let holds = |mean_ms: f64| mean_ms >= LONG_GAP_MS;
    match context.values.mean_gap_without_few_ms {
        Some(rest) if holds(rest) == holds(measured) => {}
        Some(rest) => return Some(depends_on_few(measured, &format!("the mean is {rest:.2} ms"))),
        None => return Some(depends_on_few(measured, "no gap is left")),
    }
    Some(either(
        measured,
        holds(measured),
        format!(
            "mean gap {measured:.1} ms, above the paper's {LONG_GAP_MS:.0} ms; {above:.1} % exceed 16 ms: there is time for work in the background"
        ),
        format!(
            "mean gap {measured:.1} ms, below the paper's {LONG_GAP_MS:.0} ms; {above:.1} % exceed 16 ms (the paper: above 20 % in most traces)"
        ),
    ))
}

fn parallelism(context: &FindingInputs) -> Verdict {
    let measured = context.report.tables.no_wait_pct?;
    Some(either(
        measured,
        measured > NO_WAIT_HIGH_PCT,
        "parallel queues or a second device would mostly be idle; make each request faster instead".to_owned(),
        "enough requests overlap for parallel queues and channels to be worth a try".to_owned(),
    ))
}

fn idle_collection(context: &FindingInputs) -> Verdict {
    let gc = context.report.idle_gc?;
    if gc.blocks_needed == 0 {
        return Some((0.0, FindingVerdict::Yes, "nothing is written, so nothing is to be reclaimed".to_owned()));
    }
    let without_few = context.values.blocks_that_fit_without_few;
    if gc.blocks_that_fit >= gc.blocks_needed && without_few < gc.blocks_needed {
        let measured = gc.blocks_that_fit as f64 / gc.blocks_needed as f64;
        let without = format!("{without_few} of the {} reclaims needed fit into gaps", gc.blocks_needed);
        return Some(depends_on_few(measured, &without));
    }
    let measured = gc.blocks_that_fit as f64 / gc.blocks_needed as f64;
    let facts = format!(
        "{} reclaims of {:.0} ms (a block of the paper's 4PS device, assumed) fit into gaps, {} are needed ({} could fit if a \
         reclaim may pause)",
        gc.blocks_that_fit, gc.block_ms, gc.blocks_needed, gc.blocks_if_pausable
    );
    Some(either(
        measured,
        measured >= 1.0,
        format!("{facts}: collect early, in idle time"),
        format!("{facts}: requests will wait for some of it, unless it is cut into smaller steps"),
    ))
}

fn large_buffer(context: &FindingInputs) -> Verdict {
    let (temporal, holds) = low_localities(context)?;
    let hit = context.values.buffer_hit_pct.unwrap_or(0.0);
    let facts = format!("a {} MB buffer would hit {hit:.0} % of page touches (LRU)", BUFFER_KB / 1_024);
    Some(either(temporal, holds, facts.clone(), facts))
}

fn wear_levelling(context: &FindingInputs) -> Verdict {
    let (temporal, holds) = low_localities(context)?;
    let rows = &context.report.figures.hot_pages;
    let hot = rows.iter().find(|row| row.op == "write" && row.pages_pct == 20).map_or(0.0, |row| row.share_pct);
    Some(either(
        temporal,
        holds,
        format!("addresses are spread; the hottest 20 % of written pages take {hot:.1} % of the page writes"),
        format!(
            "some addresses are written again and again; the hottest 20 % of written pages take {hot:.1} % of the page writes: keep hot and cold data apart and watch the wear"
        ),
    ))
}

/// Spatial and temporal locality; `None` with fewer than two requests.
fn localities(context: &FindingInputs) -> Option<(f64, f64)> {
    let tables = &context.report.tables;
    let both = tables.spatial_locality_pct.zip(tables.temporal_locality_pct);
    both.filter(|_| tables.requests > 1)
}

fn low_localities(context: &FindingInputs) -> Option<(f64, bool)> {
    let (spatial, temporal) = localities(context)?;
    Some((temporal, spatial < LOW_SPATIAL_PCT && temporal < LOW_TEMPORAL_PCT))
}

fn fast_pages(context: &FindingInputs) -> Verdict {
    let measured = context.values.small_pct?;
    Some(either(
        measured,
        measured >= SMALL_PCT,
        "a part of the flash in SLC mode for small writes speeds up most requests, at half that part's capacity".to_owned(),
        "too few small requests for SLC-mode pages to be worth half their capacity".to_owned(),
    ))
}
