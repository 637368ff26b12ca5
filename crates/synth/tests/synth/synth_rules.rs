//! Rules that all synthetic traces fulfil, for any model.

use std::collections::BTreeMap;

use crate::support::{check_sizes, measure, options, published, synthesize};
use emmclab_synth::{BurstModel, LoadModel, OperationModel, ServiceModel, SynthOptions, Synthesizer, WorkloadModel, presets};
use emmclab_trace::{Batch, ErrorClass, Nanos, Op, Request};
use proptest::prelude::*;

fn messaging() -> WorkloadModel {
    presets::model("Messaging").unwrap()
}

/// FNV-1a hash of all fields, which detects changes of the generator.
fn fingerprint(requests: &[Request]) -> u64 {
    let fields = requests.iter().flat_map(|request| {
        [
            request.arrival.0 as u64,
            request.complete.map_or(0, |at| at.0 as u64),
            request.sector.0,
            u64::from(request.sectors),
            request.op as u64,
        ]
    });
    fields.fold(0xcbf2_9ce4_8422_2325, |hash, field| (hash ^ field).wrapping_mul(0x100_0000_01b3))
}

/// The fingerprint of Messaging with seed 1. Update it only after an intended change of the generator or of the preset.
const MESSAGING_SEED_1: u64 = 14_837_355_650_390_654_750;

#[test]
fn a_seed_gives_one_trace_on_every_machine_and_another_seed_another() {
    let trace = |seed| synthesize(&messaging(), &options(seed));
    assert_eq!(fingerprint(&trace(1)), MESSAGING_SEED_1);
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}

#[test]
fn times_and_order_are_possible() {
    for name in published() {
        let trace = synthesize(&presets::model(name).unwrap(), &options(3));
        assert!(trace.is_sorted_by_key(|request| request.arrival), "{name}");
        for pair in trace.windows(2) {
            assert!(pair[0].complete <= pair[1].start, "{name}: one at a time, first come first served");
        }
        for request in &trace {
            let (start, issue) = (request.start.unwrap(), request.issue.unwrap());
            assert!(request.arrival <= start && start <= issue && issue <= request.complete.unwrap(), "{name}");
        }
    }
}

#[test]
fn rates_and_means_stay_at_any_length_and_over_many_batches() {
    let model = messaging();
    let own = measure(&synthesize(&model, &options(1)));
    for requests in [570, 5_702, 57_020, 300_000] {
        let options = SynthOptions { requests: Some(requests), ..options(1) };
        let batches: Vec<Batch> = Synthesizer::new(&model, &options).unwrap().collect();
        assert!(batches.iter().all(|batch| batch.len() <= 1 << 16));
        let got = measure(&synthesize(&model, &options));
        assert_eq!(got.requests, requests);
        for (one, other, limit) in [
            (own.arrival_rate, got.arrival_rate, 0.001),
            (own.mean_kb, got.mean_kb, 0.02),
            (own.no_wait_pct, got.no_wait_pct, 0.005),
            (own.mean_service_ms, got.mean_service_ms, 0.001),
            (own.mean_response_ms, got.mean_response_ms, 0.005),
            (own.spatial_pct, got.spatial_pct, 0.005),
            (own.temporal_pct, got.temporal_pct, 0.005),
        ] {
            assert!((one / other - 1.0).abs() < limit, "{requests}: {own:?} {got:?}");
        }
    }
}

#[test]
fn duration_and_rate_are_obeyed() {
    let model = messaging();
    let hour = SynthOptions { duration: Some(Nanos::from_secs(3_600)), ..options(1) };
    let got = measure(&synthesize(&model, &hour));
    assert!((got.duration_s - 3_600.0).abs() < 1e-6 && (got.arrival_rate / 9.68 - 1.0).abs() < 0.001);
    let doubled = measure(&synthesize(&model, &SynthOptions { rate_pct: 200, ..options(1) }));
    assert!((doubled.arrival_rate / 19.36 - 1.0).abs() < 0.001);
    assert_eq!(doubled.requests, 5_702);
}

#[test]
fn what_service_times_do_not_allow_is_refused_with_the_limit() {
    let model = messaging();
    let refused = Synthesizer::new(&model, &SynthOptions { rate_pct: 10_000, ..options(1) }).err().unwrap();
    assert_eq!(refused.kind(), ErrorClass::Config);
    let hint = refused.hint_text().unwrap();
    let most: u64 = hint.split_whitespace().find_map(|word| word.parse().ok()).unwrap();
    assert!(Synthesizer::new(&model, &SynthOptions { rate_pct: most, ..options(1) }).is_ok(), "{hint}");
    assert!(Synthesizer::new(&model, &SynthOptions { rate_pct: most + 2, ..options(1) }).is_err(), "{hint}");
}

#[test]
fn impossible_options_are_refused() {
    let model = messaging();
    for options in [
        SynthOptions { requests: Some(0), ..options(0) },
        SynthOptions { requests: Some(u64::MAX), ..options(0) },
        SynthOptions { duration: Some(Nanos(0)), ..options(0) },
        SynthOptions { duration: Some(Nanos(-1)), ..options(0) },
        SynthOptions { duration: Some(Nanos::MAX), ..options(0) },
        SynthOptions { rate_pct: 0, ..options(0) },
        SynthOptions { rate_pct: u64::MAX, ..options(0) },
        SynthOptions { address_space_gb: Some(0), ..options(0) },
        SynthOptions { requests: Some(5), duration: Some(Nanos::from_secs(5)), rate_pct: 50, ..options(0) },
    ] {
        let error = Synthesizer::new(&model, &options).err().unwrap();
        assert!(error.kind() == ErrorClass::Config && error.hint_text().is_some(), "{options:?}");
    }
}

#[test]
fn bursts_are_reads_or_writes_and_end_in_commits_right_behind_the_journal() {
    let model = messaging();
    let trace = synthesize(&model, &options(5));
    let (mut switches, mut commits) = (0, 0);
    for pair in trace.windows(2) {
        let gap = pair[1].arrival - pair[0].complete.unwrap();
        switches += u32::from(gap < Nanos::from_millis(4) && pair[0].op != pair[1].op);
        commits += u32::from(
            pair[1].flags.contains(emmclab_trace::RequestFlags::META)
                && pair[1].sectors == 8
                && pair[1].op == Op::Write
                && pair[1].sector == pair[0].end(),
        );
    }
    assert!(switches < 30, "{switches} changes within bursts");
    let bursts = model.bursts.opens_pct / 100.0 * trace.len() as f64;
    assert!(f64::from(commits) > bursts / 4.0, "{commits} commits in {bursts} bursts");
}

/// Messaging with all writes in two busy periods, and all reads in the hour between them.
fn rushes() -> WorkloadModel {
    let mut model = messaging();
    model.service = None;
    model.duration_s = 3_620.0;
    let (reads, writes) = (model.reads.requests(), model.writes.requests());
    model.load = Some(LoadModel {
        curve: vec![
            [10_000_000, 4_000_000, 20, 0, 0, 1_000, 30_000],
            [3_600_000_000, 1_000_000, 60, reads, 3_580, 0, 0],
            [10_000_000, 2_000_000, 100, 0, 0, writes - 1_000, 30_088],
        ],
    });
    model
}

#[test]
fn a_curve_says_what_comes_when() {
    let model = rushes();
    for seed in 0..5 {
        let trace = synthesize(&model, &options(seed));
        let (first, rest) = trace.split_at(1_000);
        let (middle, last) = rest.split_at(model.reads.requests() as usize);
        assert!(first.iter().chain(last).all(|request| request.op == Op::Write));
        assert!(middle.iter().all(|request| request.op == Op::Read));
        let kb = |part: &[Request]| part.iter().map(|request| u64::from(request.sectors)).sum::<u64>() / 2;
        assert!(kb(first).abs_diff(30_000) < 8 && kb(middle) == 3_580 && kb(last).abs_diff(30_088) < 8);
        let ends = [first, middle, last].map(|part| part[part.len() - 1].arrival.as_secs_f64());
        for (end, wanted) in ends.into_iter().zip([10.0, 3_610.0, 3_620.0]) {
            assert!((end - wanted).abs() < 0.01, "{ends:?}");
        }
        let gaps = first.windows(2).map(|pair| (pair[1].arrival - pair[0].arrival).as_millis_f64());
        let think: f64 = gaps.filter(|gap| *gap < 4.0 * 4.0).sum();
        assert!((think / 4_000.0 - 1.0).abs() < 0.25, "{think} ms of 4 s within bursts");
    }
}

#[test]
fn a_curve_is_repeated_in_longer_traces_and_keeps_its_totals() {
    let model = rushes();
    for (requests, rushes) in [(2_851, 2), (5_702, 2), (8_000, 2), (57_020, 20), (400_000, 140)] {
        let options = SynthOptions { requests: Some(requests), ..options(1) };
        let trace = synthesize(&model, &options);
        assert_eq!(trace.len() as u64, requests);
        assert!(trace.is_sorted_by_key(|request| request.arrival));
        // The end of one pass and the beginning of the next form one busy period.
        let changes = trace.windows(2).filter(|pair| pair[0].op != pair[1].op).count();
        assert_eq!(changes, rushes, "{requests}");
        let kb = trace.iter().map(|request| f64::from(request.sectors)).sum::<f64>() / 2.0;
        assert!((kb / requests as f64 / (63_668.0 / 5_702.0) - 1.0).abs() < 0.02, "{requests}: {kb}");
        let span = trace[trace.len() - 1].arrival.as_secs_f64();
        assert!((span / (3_620.0 * requests as f64 / 5_702.0) - 1.0).abs() < 0.01, "{requests}: {span}");
    }
}

#[test]
fn a_curve_that_contradicts_its_model_is_refused() {
    let row = |model: &mut WorkloadModel, row: [u64; 7]| {
        model.load.as_mut().unwrap().curve[1] = row;
        model.check().unwrap_err().to_string()
    };
    let reads = messaging().reads.requests();
    assert!(row(&mut rushes(), [1, 0, 0, reads + 1, 0, 0, 0]).contains("of 155 reads"));
    assert!(row(&mut rushes(), [u64::MAX, 0, 0, reads, 0, 0, 0]).contains("row 2"));
    assert!(row(&mut rushes(), [1, 0, 0, reads, 0, u64::MAX, 0]).contains("row 2"));
    let mut model = rushes();
    model.load = Some(LoadModel::default());
    assert!(model.check().unwrap_err().to_string().contains("load.curve"));
    model.version = 2;
    assert!(model.check().unwrap_err().to_string().contains("`version` is 2"));
}

#[test]
fn every_fault_of_a_model_is_named_with_a_cure() {
    let mut model = messaging();
    model.duration_s = -1.0;
    model.address_space_gb = 0;
    model.reads.sequential_pct = 101.0;
    model.writes.reaccess_pct = f64::NAN;
    model.writes.sizes_kb = vec![(8.0, 1), (4.0, 1), (0.3, 0)];
    model.bursts.rounds = vec![];
    model.bursts.idle_ms = vec![(f64::INFINITY, 1)];
    let service = model.service.as_mut().unwrap();
    service.mean_response_ms = 0.5;
    service.round_requests = vec![(0, 1)];
    let error = model.check().unwrap_err();
    let text = error.to_string();
    for key in [
        "duration_s", "address_space_gb", "reads.sequential_pct", "writes.reaccess_pct", "writes.sizes_kb", "bursts.rounds",
        "bursts.idle_ms", "service.mean_response_ms", "service.round_requests",
    ] {
        assert!(text.contains(&format!("`{key}`")), "{key} in {text}");
    }
    assert!(text.contains("give") && error.hint_text().is_some());
}

#[test]
fn unknown_missing_and_misspelt_keys_are_named_with_their_line() {
    let text = presets::text("Messaging").unwrap();
    let misspelt = text.replace("no_wait_pct", "nowait_pct");
    let error = WorkloadModel::from_toml(&misspelt).unwrap_err();
    let line = misspelt.lines().position(|line| line.starts_with("nowait_pct")).unwrap() + 1;
    assert!(error.to_string().contains("nowait_pct") && error.line() == Some(line as u64), "{error}");
    assert_eq!(WorkloadModel::from_toml("").unwrap_err().kind(), ErrorClass::Config);
    assert_eq!(WorkloadModel::from_toml("= = =").unwrap_err().kind(), ErrorClass::Config);
    let error = presets::model("Messenger").unwrap_err();
    assert!(error.hint_text().unwrap().contains("Messaging"));
}

#[test]
fn models_of_a_group_share_its_sources_unless_they_name_their_own() {
    let sources = |name: &str| presets::model(name).unwrap().made_from;
    let (plain, combo, movie) = (sources("Messaging"), sources("Music/WB"), sources("Movie"));
    assert!(published().all(|name| sources(name).contains_key("service.read_us")));
    assert_ne!(plain["bursts.opens_pct"], combo["bursts.opens_pct"]);
    assert_eq!(plain["duration_s"], movie["duration_s"]);
    assert!(movie["bursts.opens_pct"].contains(&"iiswc-fig5".to_owned()));
    assert!(sources("Telegram").is_empty());
}

#[test]
fn every_preset_value_says_where_it_comes_from() {
    for name in published() {
        let lines: Vec<_> = presets::text(name).unwrap().lines().collect();
        for pair in lines.windows(2).filter(|pair| pair[1].contains(" = ") && !pair[1].starts_with('"')) {
            let says_itself = ["name", "source", "note"].iter().any(|key| pair[1].starts_with(key));
            let commented = pair[1].contains("  # ") || pair[0].starts_with('#');
            assert!(commented || says_itself, "{name}: no source for `{}`", pair[1]);
        }
    }
}

fn pairs(values: std::ops::Range<u64>, weights: std::ops::Range<u64>) -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::btree_map(values, weights, 1..6).prop_map(|map| map.into_iter().collect())
}

prop_compose! {
    fn operation()(
        sizes in prop::collection::btree_map(1_u64..4_000, 1_u64..300, 0..6),
        sequential_pct in 0.0..=100.0, reaccess_pct in 0.0..=100.0,
        returning in prop::collection::btree_map(1_u64..4_000, 1_u64..300, 0..6),
        reused_starts_pct in 0.0..=100.0, reuse_requests in pairs(1..5_000, 1..9),
    ) -> OperationModel {
        let kb = |sizes: BTreeMap<u64, u64>| sizes.into_iter().map(|(sectors, count)| (sectors as f64 / 2.0, count)).collect();
        OperationModel {
            sizes_kb: kb(sizes),
            sequential_pct,
            reaccess_pct,
            run_requests: 2.0 + sequential_pct / 10.0,
            sequential_reaccess_pct: reaccess_pct / 2.0,
            reaccess_kb: kb(returning),
            reused_starts_pct,
            reuse_requests,
        }
    }
}

prop_compose! {
    fn bursts()(
        opens_pct in 0.0..=100.0, rounds in pairs(1..50, 1..9), think in pairs(1..9_000, 1..9),
        idle in pairs(1..90_000, 1..9), op_mixing_pct in 0.0..=100.0, commit_pct in 0.0..=100.0,
    ) -> BurstModel {
        let times = |pairs: Vec<(u64, u64)>| pairs.into_iter().map(|(time, weight)| (time as f64, weight)).collect();
        BurstModel { opens_pct, rounds, think_us: times(think), idle_ms: times(idle), op_mixing_pct, commit_pct }
    }
}

prop_compose! {
    fn service()(
        no_wait_pct in 0.0..=100.0, mean_service_ms in 0.0..20.0, wait_ms in 0.0..30.0,
        round_requests in pairs(1..30, 1..9), fetch_us in 0.0..500.0, time in pairs(1..4_000, 1..90_000),
        jitter in pairs(1..500, 1..9), wake_after_ms in 0.0..500.0, wake_up_ms in 0.0..80.0,
    ) -> ServiceModel {
        let points: Vec<(f64, f64)> = time.into_iter().map(|(kb, us)| (kb as f64, us as f64)).collect();
        let jitter_pct = jitter.into_iter().map(|(percent, weight)| (percent as f64, weight)).collect();
        ServiceModel {
            no_wait_pct, mean_service_ms, mean_response_ms: mean_service_ms + wait_ms, round_requests, fetch_us,
            read_us: points.clone(), write_us: points, jitter_pct, wake_after_ms, wake_up_ms,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(300), failure_persistence: None, ..ProptestConfig::default() })]

    /// For any model and length there is no panic, times are in order, and counts, sizes, duration and service times are exact.
    #[test]
    fn random_models_give_possible_traces_with_exact_totals(
        reads in operation(), writes in operation(), bursts in bursts(), service in prop::option::of(service()),
        rows in prop::option::of(prop::collection::vec(prop::array::uniform7(0_u64..1_000), 1..9)),
        duration_s in 1.0..100_000.0, seed: u64, requests in prop::option::of(1_u64..3_000),
    ) {
        let load = rows.map(|mut curve| {
            // The counts of the model, distributed to the rows at random.
            for (column, of) in [(3, reads.requests()), (5, writes.requests())] {
                let mut left = of;
                for row in &mut curve {
                    row[column] = row[column].min(left);
                    left -= row[column];
                }
                curve[0][column] += left;
            }
            curve[0][0] += 1;
            LoadModel { curve }
        });
        let model = WorkloadModel {
            version: 1, load, name: "random".into(), source: "test".into(), made_from: BTreeMap::new(), note: None, duration_s, address_space_gb: 1,
            reads, writes, bursts, service,
        };
        prop_assume!(model.requests() > 0);
        let options = SynthOptions { requests, ..options(seed) };
        if let Err(error) = Synthesizer::new(&model, &options) {
            prop_assert_eq!(error.kind(), ErrorClass::Config);
            return Ok(());
        }
        let trace = synthesize(&model, &options);
        prop_assert_eq!(trace.len() as u64, requests.unwrap_or(model.requests()));
        prop_assert!(trace.is_sorted_by_key(|request| request.arrival));
        let limit = 1 << 21;
        prop_assert!(trace.iter().all(|request| request.sectors > 0 && request.end().0 <= limit));
        if requests.is_none() {
            check_sizes(&model, &trace);
        }
        if let Some(service) = &model.service {
            let total: i64 = trace.iter().map(|request| request.service().unwrap().0).sum();
            let wanted = (service.mean_service_ms * 1e6).round() as i64 * trace.len() as i64;
            prop_assert_eq!(total, wanted);
            prop_assert!(trace.windows(2).all(|pair| pair[0].complete <= pair[1].start));
        }
    }
}
