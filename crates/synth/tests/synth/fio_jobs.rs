//! Job files of fio as traces.

use std::collections::{BTreeMap, BTreeSet};

use emmclab_synth::fio::{FioJobs, WorkloadPattern};
use emmclab_trace::{Error, Op, Request, RequestFlags};

fn no_variable(_: &str) -> Option<String> {
    None
}

fn trace_of(text: &str) -> Vec<Request> {
    let jobs = FioJobs::new(text, 1, Some(100_000), &no_variable).unwrap();
    jobs.flat_map(|batch| batch.iter().collect::<Vec<_>>()).collect()
}

fn refused(text: &str) -> Error {
    FioJobs::new(text, 1, None, &no_variable).map(|_| ()).unwrap_err()
}

/// Addresses of the requests, in units of 4 KiB.
fn places(all: &[Request]) -> Vec<u64> {
    all.iter().map(|request| request.sector.0 / 8).collect()
}

#[test]
fn a_sequential_job_goes_through_its_file_once() {
    let all = trace_of(
        "; a comment\n[global]\nioengine=libaio ; of Linux\ndirect=1\n[w]\nrw=write\nbs=64k\nsize=1025k # not whole\niodepth=4\n",
    );
    assert_eq!(all.len(), 16, "a part of a block at the end is not issued");
    assert!(all.windows(2).all(|pair| pair[0].end() == pair[1].sector));
    assert!(all.iter().all(|request| request.op == Op::Write && request.flags.contains(RequestFlags::SYNC)));
    let moments: BTreeSet<_> = all.iter().map(|request| request.arrival).collect();
    assert_eq!(moments.len(), 4, "iodepth requests arrive at once");
    let all = trace_of("[w]\nrw=write\nbs=4k\nsize=64k\niodepth=4\n");
    let moments: BTreeSet<_> = all.iter().map(|request| request.arrival).collect();
    assert_eq!(moments.len(), 16, "fio's own engine issues one after the other");
}

#[test]
fn a_random_job_covers_each_block_once() {
    let all = trace_of("[r]\nrw=randwrite\nbs=4k\nsize=4m\nloops=2\n");
    assert_eq!(all.len(), 2_048);
    for pass in all.chunks(1_024) {
        assert_eq!(places(pass).into_iter().collect::<BTreeSet<_>>().len(), 1_024);
    }
    assert_ne!(places(&all[..1_024]), places(&all[1_024..]));
    let repeated = trace_of("[r]\nrw=randwrite\nbs=4k\nsize=4m\nloops=2\n");
    assert_eq!(all, repeated, "the same seed gives the same trace");
}

#[test]
fn a_random_job_of_several_sizes_covers_each_block_once() {
    let all = trace_of("[r]\nrw=randwrite\nbssplit=4k/80:64k/20\nsize=64m\n");
    let mut times = BTreeMap::new();
    for request in &all {
        for block in request.sector.0 / 8..request.end().0 / 8 {
            *times.entry(block).or_insert(0) += 1;
        }
    }
    assert!(times.len() == 16_384 && times.values().all(|count| *count == 1));
    assert!(all.iter().any(|request| ![8, 128].contains(&request.sectors)), "long requests end at a block that came before");
}

#[test]
fn mixes_sizes_and_syncs_have_their_shares() {
    let all = trace_of("[m]\nrw=randrw\nrwmixread=70\nnorandommap\nbssplit=4k/80:64k/20\nsize=256m\nio_size=100m\n");
    let share = |count: usize| count as f64 / all.len() as f64;
    assert!((share(all.iter().filter(|request| request.op == Op::Read).count()) - 0.7).abs() < 0.02);
    assert!((share(all.iter().filter(|request| request.sectors == 8).count()) - 0.8).abs() < 0.02);
    let all = trace_of("[s]\nrw=write\nbs=4k\nsize=32k\nfsync=4\nend_fsync=1\n");
    let ops: Vec<_> = all.iter().map(|request| request.op).collect();
    let flushes: Vec<_> = (0..ops.len()).filter(|at| ops[*at] == Op::Flush).collect();
    assert_eq!((ops.len(), flushes), (11, vec![4, 9, 10]));
    // As in fio, a sync also follows each read while the number of writes is a multiple of `fsync`.
    let all = trace_of("[s]\nrw=rw\nbs=4k\nsize=1m\nfsync=4\n");
    let mut writes = 0;
    for pair in all.windows(2) {
        writes += u32::from(pair[0].op == Op::Write);
        let is_due = pair[0].op != Op::Flush && writes > 0 && writes % 4 == 0;
        assert_eq!(pair[1].op == Op::Flush, is_due);
    }
    let all = trace_of("[o]\nrw=write\nbs=4k\nsize=8k\nsync=1\n");
    assert!(all.iter().all(|request| request.flags.contains(RequestFlags::FUA)));
    let all = trace_of("[t]\nrw=trimwrite\nbs=4k\nsize=8k\n");
    let ops: Vec<_> = all.iter().map(|request| (request.op, request.sector.0)).collect();
    assert_eq!(ops, [(Op::Discard, 0), (Op::Write, 0), (Op::Discard, 8), (Op::Write, 8)]);
}

#[test]
fn streams_with_holes_backwards_and_over_several_files_go_as_those_of_fio() {
    assert_eq!(places(&trace_of("[h]\nrw=write:4k\nbs=4k\nsize=32k\n")), [0, 2, 4, 6, 0, 2, 4, 6]);
    let back = places(&trace_of("[b]\nrw=read:-8k\nbs=4k\nsize=64k\n"));
    assert_eq!(back[..5], [0, 14, 13, 12, 11]);
    assert_eq!(back[13..], [2, 1, 0]);
    let two = places(&trace_of("[f]\nrw=write\nbs=4k\nsize=32k\nnrfiles=2\n"));
    assert_eq!(two, [0, 256, 1, 257, 2, 258, 3, 259]);
    assert_eq!(places(&trace_of("[i]\nrw=write\nbs=64k\nsize=256k\nio_size=448k\n")), [0, 16, 32, 48, 0, 16, 32]);
    let runs = trace_of("[i]\nrw=randwrite:3\nrw_sequencer=identical\nbs=4k\nsize=48k\n");
    assert!(places(&runs).chunks(3).all(|run| run[0] == run[1] && run[1] == run[2]));
    let runs = trace_of("[s]\nrw=randread:4\nbs=4k\nsize=4m\n");
    let followed = runs.windows(2).filter(|pair| pair[0].end() == pair[1].sector).count() as f64;
    assert!((followed / runs.len() as f64 - 0.75).abs() < 0.01);
    let half = trace_of("[p]\nrw=randread\npercentage_random=50\nbs=4k\nsize=4m\n");
    let followed = half.windows(2).filter(|pair| pair[0].end() == pair[1].sector).count() as f64;
    assert!((followed / half.len() as f64 - 0.5).abs() < 0.06);
}

#[test]
fn a_rate_and_think_times_pace_a_job() {
    let all = trace_of("[r]\nrw=read\nbs=4k\nsize=40k\nrate_iops=100\n");
    assert!(all.windows(2).all(|pair| (pair[1].arrival - pair[0].arrival).0 == 10_000_000));
    let all = trace_of("[r]\nrw=read\nbs=4k\nsize=16k\nthinktime=5ms\nthinktime_blocks=2\n");
    let gaps: Vec<_> = all.windows(2).map(|pair| (pair[1].arrival - pair[0].arrival).0).collect();
    assert_eq!(gaps, [1_000, 5_001_000, 1_000]);
    let all = trace_of("[r]\nrw=read\nbs=4k\nsize=1m\ntime_based\nruntime=10\nrate=40k\n");
    assert_eq!(all.len(), 100);
    // If a job has rates for reads and writes, these determine the shares, and rwmixread does not.
    let all = trace_of("[m]\nrw=rw\nrwmixread=50\nbs=4k\nsize=64m\nrate=400k,100k\n");
    let reads = all.iter().filter(|request| request.op == Op::Read).count() as f64;
    assert!((reads / all.len() as f64 - 0.8).abs() < 0.01, "{reads}");
    let all = trace_of("[p]\nrw=read\nbs=4k\nsize=40m\nrate_iops=1000\nrate_process=poisson\n");
    let last = all.last().unwrap().arrival.0 as f64 / 1e9;
    assert!((all.len() as f64 / last / 1_000.0 - 1.0).abs() < 0.05, "{last}");
    let at_once = all.windows(2).filter(|pair| (pair[1].arrival - pair[0].arrival).0 < 100_000).count() as f64;
    assert!((at_once / all.len() as f64 - 0.095).abs() < 0.02, "a tenth of the gaps is below a tenth of the mean");
}

#[test]
fn what_a_job_wrote_is_read_again_in_the_same_order_where_it_verifies() {
    let all = trace_of("[v]\nrw=randrw\nbs=4k\nsize=1m\nverify=crc32c\nverify_fatal=1\n");
    let (pass, verified) = all.split_at(256);
    let written: Vec<_> = pass.iter().filter(|request| request.op == Op::Write).map(|request| request.sector).collect();
    assert_eq!(verified.iter().map(|request| request.sector).collect::<Vec<_>>(), written);
    assert!(verified.iter().all(|request| request.op == Op::Read));
    assert_eq!(trace_of("[v]\nrw=write\nbs=4k\nsize=1m\nverify=md5\ndo_verify=0\n").len(), 256);
}

#[test]
fn jobs_run_beside_or_behind_each_other_in_files_of_their_own() {
    let all = trace_of("[global]\nbs=4k\nsize=8k\nrw=write\n[a]\n[b]\n[c]\nstonewall\n");
    let starts: BTreeSet<_> = all.iter().map(|request| request.sector.0 / 2_048).collect();
    assert_eq!((all.len(), starts.len()), (6, 3));
    let last = all.last().unwrap();
    assert!(all[..4].iter().all(|request| request.arrival < last.arrival && request.sector.0 / 2_048 < 2));
    let all = trace_of("[n]\nfilename=/dev/sda\nrw=write\nbs=4k\nsize=8k\nnumjobs=3\noffset_increment=8k\n");
    assert_eq!(places(&all).into_iter().collect::<BTreeSet<_>>(), (0..6).collect());
    assert!(all.iter().all(|request| request.device.is_some()));
}

#[test]
fn variables_and_units_are_those_of_fio() {
    let variable = |name: &str| (name == "BS").then(|| "8k".to_owned());
    let jobs = FioJobs::new("[j]\nrw=write\nbs=${BS}\nsize=64KiB\nkb_base=1000\n", 1, None, &variable).unwrap();
    let all: Vec<_> = jobs.flat_map(|batch| batch.iter().collect::<Vec<_>>()).collect();
    assert_eq!(all.len(), 8, "65,536 bytes hold eight blocks of 8,000");
}

#[test]
fn what_is_not_understood_is_refused_by_name_and_line() {
    for (text, field, line) in [
        ("[j]\nrw=read\nsize=1m\nverify_backlog=4\n", "verify_backlog", 4),
        ("[j]\nrw=sideways\nsize=1m\n", "rw", 2),
        ("[j]\nrw=read\nsize=50%\n", "size", 3),
        ("[j]\nrw=read\nsize=(4*1024)\n", "size", 3),
        ("[j]\nrw=read\nbs=4q\nsize=1m\n", "bs", 3),
        ("[j]\nrw=read\nbs=4Å\nsize=1m\n", "bs", 3),
        ("[j]\nrw=read\nsize=1m\nrandom_distribution=zoned:50/5\n", "random_distribution", 4),
        ("[j]\nrw=read\nsize=${SIZE}\n", "size", 3),
        ("[j]\nrw=read\nsize=4*$pagesize\n", "size", 3),
        ("[j]\nrw=read\nsize=1m\nbssplit=4k/80\n", "bssplit", 4),
        ("[j]\nrw=read\nsize=1m\nnumjobs=0\n", "numjobs", 4),
        ("[j]\nioengine=cpuio\n", "ioengine", 2),
        ("[j]\nrw=read\nsize=1m\nfill_device\n", "fill_device", 4),
        ("include other.fio\n", "include", 1),
        ("[j]\ninclude other.fio\n", "include", 2),
        ("rw=read\n", "rw", 1),
        ("[j\n", "section", 1),
        ("[j]\nrw=read\n", "size", 1),
        ("[j]\nrw=read\nsize=1m\ntime_based\nruntime=10\n", "time_based", 1),
        ("[j]\nrw=randwrite\nsize=1m\nrandom_distribution=zipf\nverify=crc32c\n", "verify", 1),
        ("[a]\nfilename=x\nsize=1m\n[b]\nfilename=x\nsize=2m\n", "size", 4),
    ] {
        let error = refused(text);
        assert_eq!((error.field(), error.line()), (Some(field), Some(line)), "{text}: {error}");
    }
    assert!(refused("; nothing\n").to_string().contains("no job"));
}

#[test]
fn a_pattern_has_its_shares_rate_and_skew() {
    let pattern = WorkloadPattern { read_pct: 30, zipf: Some(0.9), iops: 500.0, span: 256 << 20, ..WorkloadPattern::default() };
    let jobs = pattern.trace(1, 20_000).unwrap();
    let all: Vec<_> = jobs.flat_map(|batch| batch.iter().collect::<Vec<_>>()).collect();
    assert_eq!(all.len(), 20_000);
    let reads = all.iter().filter(|request| request.op == Op::Read).count() as f64 / 20_000.0;
    assert!((reads - 0.3).abs() < 0.02, "{reads}");
    let seconds = all.last().unwrap().arrival.0 as f64 / 1e9;
    assert!((seconds / 40.0 - 1.0).abs() < 0.03, "{seconds}");
    let mut counts = BTreeMap::<u64, u32>::new();
    for request in &all {
        *counts.entry(request.sector.0).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_values().collect();
    counts.sort_unstable_by(|request, other| other.cmp(request));
    // The most frequent of 65,536 blocks has 1 / (sum of r^-0.9) of the requests.
    let weights: f64 = (1..=65_536).map(|rank| f64::from(rank).powf(-0.9)).sum();
    assert!((f64::from(counts[0]) / 20_000.0 - 1.0 / weights).abs() < 0.01, "{}", counts[0]);
    for (pattern, field) in [
        (WorkloadPattern { read_pct: 101, ..WorkloadPattern::default() }, "reads"),
        (WorkloadPattern { bytes: 1000, ..WorkloadPattern::default() }, "size"),
        (WorkloadPattern { span: 0, ..WorkloadPattern::default() }, "span"),
        (WorkloadPattern { zipf: Some(0.0), ..WorkloadPattern::default() }, "zipf"),
        (WorkloadPattern { iops: f64::NAN, ..WorkloadPattern::default() }, "iops"),
    ] {
        assert_eq!(pattern.trace(1, 10).map(|_| ()).unwrap_err().field(), Some(field));
    }
}
