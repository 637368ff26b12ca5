//! What a replay leaves on a disk and reports, compared with an independent calculation.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use emmclab_disk::{DiskReplay, DiskReplayOptions, DiskReplayProgress, DiskReplayResult, fill_sectors};
use emmclab_replay::ReplayMode;
use emmclab_trace::{
    BatchBuilder, Ledger, Nanos, Op, ReadOptions, Request, RequestFlags, Sector, TraceCombiner, TraceHeader, TraceInput,
    TraceReader, TraceWriter, WriteOptions,
};
use proptest::prelude::*;

const SECTOR: usize = 512;
/// Sectors of the disk, and the range of it that is used.
const DISK: usize = 600;
const RANGE: (usize, usize) = (100, 500);

/// The bytes of an unwritten sector.
fn before(sector: usize) -> [u8; SECTOR] {
    [(sector % 251) as u8 + 1; SECTOR]
}

fn request() -> impl Strategy<Value = Request> {
    let op = prop_oneof![4 => Just(Op::Write), 2 => Just(Op::Read), 1 => Just(Op::Discard), 1 => Just(Op::Flush), 1 => Just(Op::SecureErase)];
    (op, 0_u64..400, 1_u32..64, 0_i64..300_000, any::<bool>(), any::<bool>(), 0_i64..400_000).prop_map(
        |(op, sector, sectors, gap, fua, preflush, took)| {
            let (sector, sectors) = if op == Op::Flush { (0, 0) } else { (sector.min(399), sectors.min(400 - sector as u32)) };
            let mut request = Request::new(Nanos(gap), op, Sector(sector), sectors);
            request.flags.set(RequestFlags::FUA, fua && op == Op::Write);
            request.flags.set(RequestFlags::PREFLUSH, preflush && op == Op::Write);
            Request { complete: Some(Nanos(took)), ..request }
        },
    )
}

/// The requests with gaps turned into arrivals, and response times into completions.
fn timed(mut requests: Vec<Request>) -> Vec<Request> {
    let mut at = Nanos::ZERO;
    for request in &mut requests {
        at += request.arrival;
        (request.arrival, request.complete) = (at, request.complete.map(|took| at + took));
    }
    requests
}

fn write_trace(path: &Path, requests: &[Request]) {
    let header = TraceHeader { clock: "relative".to_owned(), ..TraceHeader::default() };
    let mut writer = TraceWriter::create(path, &header, &WriteOptions::default()).unwrap();
    let mut batch = BatchBuilder::default();
    for request in requests {
        batch.push(request);
    }
    writer.write(&batch.finish(&Arc::default(), &Arc::default())).unwrap();
    let kept = requests.len() as u64;
    writer.finish(&Ledger { seen: kept, kept, ..Ledger::default() }, &header).unwrap();
}

struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let contents: Vec<u8> = (0..DISK).flat_map(before).collect();
        fs::write(folder.path().join("disk"), contents).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn replay(&self, requests: &[Request], options: &DiskReplayOptions) -> DiskReplayResult {
        let trace = self.path("trace.parquet");
        write_trace(&trace, requests);
        let mut traces = TraceCombiner::open(vec![TraceInput { path: trace, ..TraceInput::default() }], 1).unwrap();
        let replay = DiskReplay::prepare(&self.path("disk"), &mut traces, options).unwrap();
        replay.run(Some(&self.path("out.parquet")), &DiskReplayProgress::default()).unwrap()
    }
}

fn options(depth: Option<u32>, mode: ReplayMode, seed: u64) -> DiskReplayOptions {
    let range = Some(format!("{}..{}B", RANGE.0 * SECTOR, RANGE.1 * SECTOR));
    let mut options = DiskReplayOptions { depth, range, ..DiskReplayOptions::default() };
    (options.replay.mode, options.replay.seed) = (mode, seed);
    options
}

/// `SplitMix64` as its authors publish it.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[test]
fn written_data_is_that_of_the_published_generator_and_cannot_be_compressed() {
    // The first outputs for the seed 1234567, from the reference implementation.
    let mut published = SplitMix64(1_234_567);
    let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
    assert_eq!(expected.map(|_| published.next()), expected);
    let mut data = vec![0; 64 * SECTOR];
    fill_sectors(&mut data, 7, 3, 40);
    // The output function alone: the state after a step is its argument.
    let mix = |state: u64| SplitMix64(state.wrapping_sub(0x9e37_79b9_7f4a_7c15)).next();
    let request = mix(7 ^ 3_u64.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for (sector, bytes) in (40_u64..).zip(data.chunks(SECTOR)) {
        let mut generator = SplitMix64(mix(request ^ sector));
        let words: Vec<u8> = (0..64).flat_map(|_| generator.next().to_le_bytes()).collect();
        assert_eq!(bytes, words, "sector {sector}");
    }
    let mut counts = [0_u32; 256];
    for byte in &data {
        counts[usize::from(*byte)] += 1;
    }
    let entropy: f64 = counts.iter().map(|count| f64::from(*count) / data.len() as f64).map(|share| -share * share.log2()).sum();
    assert!(entropy > 7.98, "{entropy} bits for each byte");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(emmclab_testing::cases(48)))]
    #[test]
    fn contents_after_a_replay_are_those_of_the_requests_in_order_and_nothing_outside_the_range_changes(
        requests in prop::collection::vec(request(), 1..60), depth in prop::option::of(1_u32..20), seed in 0_u64..1000,
        closed in any::<bool>(), reads_only in prop::bool::weighted(0.1),
    ) {
        let requests = timed(requests);
        let fixture = Fixture::new();
        let mode = if closed { ReplayMode::Closed } else { ReplayMode::Open };
        let options = DiskReplayOptions { reads_only, ..options(depth, mode, seed) };
        let result = fixture.replay(&requests, &options);
        // A file supports no secure erase.
        let sent: Vec<_> = requests.iter().filter(|r| r.op != Op::SecureErase && (!reads_only || r.op == Op::Read)).collect();
        let mut expected: Vec<u8> = (0..DISK).flat_map(before).collect();
        for (number, request) in sent.iter().enumerate() {
            let start = (RANGE.0 + request.sector.0 as usize) * SECTOR;
            let place = &mut expected[start..start + request.sectors as usize * SECTOR];
            match request.op {
                Op::Write => fill_sectors(place, seed, number as u64, request.sector.0),
                Op::Discard => place.fill(0),
                _ => {}
            }
        }
        prop_assert!(fs::read(fixture.path("disk")).unwrap() == expected, "the contents differ");
        let count = |op: Op| sent.iter().filter(|request| request.op == op).count() as u64;
        let counts = result.requests;
        prop_assert_eq!([counts.read, counts.write, counts.flush, counts.discard], [Op::Read, Op::Write, Op::Flush, Op::Discard].map(count));
        prop_assert_eq!((counts.completed, counts.failed, counts.unsent + counts.unfinished), (sent.len() as u64, 0, 0));
        prop_assert_eq!(counts.left_out, (requests.len() - sent.len()) as u64);
        prop_assert!(depth.is_none_or(|depth| result.run.most_in_progress <= depth.into()));
        let promised = |r: &&&Request| r.op == Op::Flush || r.flags.intersects(RequestFlags::FUA | RequestFlags::PREFLUSH);
        prop_assert_eq!(result.durable.map_or(0, |durable| durable.requests), sent.iter().filter(promised).count() as u64);
        if sent.is_empty() {
            return Ok(());
        }
        // The written trace has the same requests; a planned time is never undercut.
        let mut reader = TraceReader::open(&fixture.path("out.parquet"), &ReadOptions::default()).unwrap();
        let mut out = Vec::new();
        while let Some(batch) = reader.next_batch().unwrap() {
            out.extend(batch.iter());
        }
        let key = |r: &Request| (r.op, r.sector, r.sectors, r.flags);
        let (mut found, mut wanted): (Vec<_>, Vec<_>) = (out.iter().map(key).collect(), sent.iter().map(|r| key(r)).collect());
        found.sort_by_key(|row| (row.0, row.1, row.2, row.3.0));
        wanted.sort_by_key(|row| (row.0, row.1, row.2, row.3.0));
        prop_assert_eq!(found, wanted);
        prop_assert!(out.iter().all(|r| r.complete.is_some_and(|end| end >= r.arrival)));
        if depth.is_none() && !closed {
            let span = sent[sent.len() - 1].arrival - sent[0].arrival;
            prop_assert!(result.run.elapsed_s >= span.as_secs_f64());
        }
    }
}

#[test]
fn requests_that_the_disk_cannot_execute_are_left_out_and_counted() {
    let fixture = Fixture::new();
    let of = |op, sector, sectors| Request::new(Nanos::ZERO, op, Sector(sector), sectors);
    let result = fixture
        .replay(&[of(Op::SecureErase, 0, 8), of(Op::Write, 0, 8), of(Op::Discard, 0, 8)], &options(Some(2), ReplayMode::Open, 1));
    let reasons: Vec<_> = result.left_out.iter().map(|row| (row.reason.as_str(), row.requests)).collect();
    assert_eq!(reasons, [("the disk does not support secure erases", 1)]);
    assert_eq!((result.requests.planned, result.requests.completed, result.requests.held), (2, 2, 1));
}

#[test]
fn a_stopped_run_returns_the_requests_so_far() {
    let fixture = Fixture::new();
    let requests: Vec<_> =
        (0..50).map(|i| Request::new(Nanos::from_millis(i * 200), Op::Write, Sector(i as u64 * 8), 8)).collect();
    let trace = fixture.path("trace.parquet");
    write_trace(&trace, &requests);
    let mut traces = TraceCombiner::open(vec![TraceInput { path: trace, ..TraceInput::default() }], 1).unwrap();
    let replay = DiskReplay::prepare(&fixture.path("disk"), &mut traces, &options(None, ReplayMode::Open, 1)).unwrap();
    let progress = DiskReplayProgress::default();
    let result = std::thread::scope(|scope| {
        let run = scope.spawn(|| replay.run(None, &progress).unwrap());
        emmclab_testing::wait_until("three requests are complete", || progress.completed() >= 3);
        progress.stop();
        run.join().unwrap()
    });
    let counts = result.requests;
    assert!(counts.completed >= 3 && counts.completed + counts.unsent + counts.unfinished == 50, "{counts:?}");
    assert!(counts.unsent > 0 && result.run.stopped.is_some());
}
