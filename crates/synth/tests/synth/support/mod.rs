//! Helpers of the synthesis tests, with an independent implementation of the figures of a trace.

use std::collections::HashSet;
use std::path::Path;

use emmclab_profile::{Profile, ProfileOptions, ProfileReport};
use emmclab_synth::{SynthOptions, Synthesizer, WorkloadModel};
use emmclab_trace::{Batch, Ledger, Op, ReadOptions, Request, TraceHeader, TraceReader};

/// Options with this seed.
pub fn options(seed: u64) -> SynthOptions {
    SynthOptions { seed, ..SynthOptions::default() }
}

/// All requests of a synthetic trace.
pub fn synthesize(model: &WorkloadModel, options: &SynthOptions) -> Vec<Request> {
    let batches: Vec<Batch> = Synthesizer::new(model, options).unwrap().collect();
    requests(&batches)
}

/// Checks that a synthetic trace has as many requests of each operation and size as its model states.
pub fn check_sizes(model: &WorkloadModel, trace: &[Request]) {
    for (op, of) in [(Op::Read, &model.reads), (Op::Write, &model.writes)] {
        for (kb, count) in &of.sizes_kb {
            let of_size = |request: &&Request| request.op == op && f64::from(request.sectors).total_cmp(&(kb * 2.0)).is_eq();
            assert_eq!(trace.iter().filter(of_size).count() as u64, *count, "{}: {op:?} of {kb} KB", model.name);
        }
    }
}

/// The profile of a trace.
pub fn profile(batches: impl IntoIterator<Item = Batch>) -> ProfileReport {
    let mut profile = Profile::new(ProfileOptions::default());
    for batch in batches {
        profile.update(&batch);
    }
    profile.finish(&Ledger::default(), &TraceHeader::default())
}

/// The batches of a trace.
pub fn read(path: &Path) -> Vec<Batch> {
    let mut reader = TraceReader::open(path, &ReadOptions::default()).unwrap();
    std::iter::from_fn(|| reader.next_batch().unwrap()).collect()
}

pub fn requests(batches: &[Batch]) -> Vec<Request> {
    batches.iter().flat_map(|batch| batch.iter().collect::<Vec<_>>()).collect()
}

/// The figures of Tables III and IV, computed from their definitions without the crate that profiles traces.
#[derive(Debug, Default)]
pub struct Measured {
    pub requests: u64,
    pub data_kb: f64,
    pub max_kb: f64,
    pub mean_kb: f64,
    pub mean_read_kb: f64,
    pub mean_write_kb: f64,
    pub write_requests_pct: f64,
    pub written_bytes_pct: f64,
    pub duration_s: f64,
    pub arrival_rate: f64,
    pub access_rate: f64,
    pub no_wait_pct: f64,
    pub mean_service_ms: f64,
    pub mean_response_ms: f64,
    pub spatial_pct: f64,
    pub temporal_pct: f64,
}

pub fn measure(requests: &[Request]) -> Measured {
    let n = requests.len() as f64;
    let kb = |op: Option<Op>| {
        let of = requests.iter().filter(|request| op.is_none_or(|op| request.op == op));
        let (count, sectors) = of.fold((0, 0), |(count, sum), r| (count + 1, sum + u64::from(r.sectors)));
        (f64::from(count), sectors as f64 / 2.0)
    };
    let ((_, all_kb), (reads, read_kb), (writes, write_kb)) = (kb(None), kb(Some(Op::Read)), kb(Some(Op::Write)));
    let (mut seen, mut spatial, mut temporal, mut no_wait) = (HashSet::new(), 0, 0, 0);
    let (mut service, mut response, mut finished, mut end) = (0_i64, 0_i64, i64::MIN, None);
    for request in requests {
        spatial += u32::from(end == Some(request.sector));
        temporal += u32::from(!seen.insert(request.sector));
        no_wait += u32::from(request.arrival.0 >= finished);
        end = Some(request.end());
        service += request.service().map_or(0, |time| time.0);
        response += request.response().map_or(0, |time| time.0);
        finished = finished.max(request.complete.unwrap_or(request.arrival).0);
    }
    let duration_s = (finished - requests[0].arrival.0) as f64 / 1e9;
    Measured {
        requests: requests.len() as u64,
        data_kb: all_kb,
        max_kb: requests.iter().map(|request| f64::from(request.sectors) / 2.0).fold(0.0, f64::max),
        mean_kb: all_kb / n,
        mean_read_kb: read_kb / reads,
        mean_write_kb: write_kb / writes,
        write_requests_pct: 100.0 * writes / n,
        written_bytes_pct: 100.0 * write_kb / all_kb,
        duration_s,
        arrival_rate: n / duration_s,
        access_rate: all_kb / duration_s,
        no_wait_pct: 100.0 * f64::from(no_wait) / n,
        mean_service_ms: service as f64 / n / 1e6,
        mean_response_ms: response as f64 / n / 1e6,
        spatial_pct: 100.0 * f64::from(spatial) / n,
        temporal_pct: 100.0 * f64::from(temporal) / n,
    }
}

/// Percentage of the gaps between arrivals for which `rule` holds; `rule` is called with the gap in milliseconds.
pub fn gaps_pct(requests: &[Request], rule: impl Fn(f64) -> bool) -> f64 {
    let count = requests.windows(2).filter(|pair| rule((pair[1].arrival - pair[0].arrival).as_millis_f64())).count();
    100.0 * count as f64 / (requests.len() - 1) as f64
}

/// Percentage of the requests for which `rule` holds.
pub fn share_pct(requests: &[Request], rule: impl Fn(&Request) -> bool) -> f64 {
    100.0 * requests.iter().filter(|request| rule(request)).count() as f64 / requests.len() as f64
}

/// A response time in milliseconds.
pub fn response_ms(request: &Request) -> f64 {
    request.response().unwrap().as_millis_f64()
}

/// The workloads of IISWC 2015, derived from the published figures.
pub fn published() -> impl Iterator<Item = &'static str> {
    emmclab_synth::presets::groups().filter(|(group, _)| *group != "phones").flat_map(|(_, names)| names)
}
