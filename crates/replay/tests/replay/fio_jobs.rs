//! Jobs of fio in closed loop on a simulated device.

use emmclab_device::DeviceConfig;
use emmclab_replay::{
    DirectIo, FioHostCost, FioJobResult, FioOperationResult, FioRun, ReplayOptions, RunRecorder, Simulation, SimulationResult,
};
use emmclab_synth::fio::{FioJobs, FioLoad};
use emmclab_trace::{Error, Nanos, Op};
use proptest::prelude::*;

fn device(name: &str) -> DeviceConfig {
    DeviceConfig::preset(name).unwrap()
}

fn load(text: &str, config: &DeviceConfig) -> Result<FioLoad, Error> {
    FioLoad::new(text, 1, config.capacity().0, &|_| None, &[])
}

fn run_on(config: &DeviceConfig, text: &str, cost: FioHostCost) -> SimulationResult {
    let options = ReplayOptions { precondition: "sequential:10".parse().unwrap(), check: true, ..ReplayOptions::default() };
    let simulation = Simulation::new(config, &options, None).unwrap();
    let mut run = FioRun::new(simulation, RunRecorder::default(), load(text, config).unwrap(), cost);
    while run.advance(1_000).unwrap() {}
    run.finish().unwrap().0
}

fn run(name: &str, text: &str) -> Vec<FioJobResult> {
    run_on(&device(name), text, FioHostCost::default()).fio.unwrap().jobs
}

const READS: &str = "[global]\nioengine=libaio\ndirect=1\nbs=4k\nsize=16m\nrw=randread\nnumber_ios=2000\n";

fn reads(job: &FioJobResult) -> &FioOperationResult {
    job.read.as_ref().unwrap()
}

#[test]
fn one_request_at_a_time_takes_the_time_of_a_direct_read() {
    let config = device("small-1gb");
    let mut io = DirectIo::new(&config);
    let took = io.transfer(Op::Read, 0, 8).unwrap();
    let jobs = run_on(&config, &format!("{READS}[j]\n"), FioHostCost::default()).fio.unwrap().jobs;
    let figures = reads(&jobs[0]);
    assert_eq!(figures.clat.min_us, figures.clat.max_us);
    assert!(figures.clat.mean_us >= took.0 as f64 / 1e3, "data that was written takes at least as long as data that was not");
    assert!((figures.iops * figures.clat.mean_us / 1e6 - 1.0).abs() < 1e-6);
    assert_eq!(figures.slat.unwrap().max_us, 0.0);
}

#[test]
fn throughput_grows_with_the_queue_depth_until_the_device_is_busy_and_follows_littles_law() {
    let mut iops = Vec::new();
    for depth in [1, 2, 8, 32] {
        let jobs = run("ufs31", &format!("{READS}iodepth={depth}\n[j]\n"));
        let figures = reads(&jobs[0]);
        assert!((figures.iops * figures.lat.mean_us / 1e6 / f64::from(depth) - 1.0).abs() < 0.02, "{depth}: {figures:?}");
        iops.push(figures.iops);
    }
    assert!(iops[1] > 1.8 * iops[0] && iops[2] > 2.5 * iops[1] && iops[3] >= iops[2], "{iops:?}");
}

#[test]
fn a_device_never_has_more_requests_than_the_jobs_keep_unfinished() {
    for (depth, copies) in [(1, 1), (4, 1), (1, 5), (3, 4)] {
        let text = format!("{READS}iodepth={depth}\nnumjobs={copies}\n[j]\n");
        let result = run_on(&device("ufs31"), &text, FioHostCost::default());
        assert_eq!(result.ufs.unwrap().most_in_flight, depth * copies);
    }
}

#[test]
fn engines_that_wait_ignore_the_depth() {
    let deep = READS.replace("libaio", "psync");
    let jobs = run("ufs31", &format!("{deep}iodepth=32\n[j]\n"));
    assert!(jobs[0].queue_depth == 1 && reads(&jobs[0]).slat.is_none());
    assert_eq!(reads(&jobs[0]).clat, reads(&jobs[0]).lat);
}

#[test]
fn jobs_end_by_their_runtime_and_ramp_time_is_not_measured() {
    let timed = "[global]\nioengine=libaio\ndirect=1\nbs=4k\nsize=4m\nrw=randread\ntime_based\nruntime=200ms\niodepth=4\n";
    let plain = &run("ufs31", &format!("{timed}[j]\n"))[0];
    assert!((plain.runtime_s - 0.2).abs() < 0.001, "{}", plain.runtime_s);
    assert!(reads(plain).requests > 1_024, "a job that is longer than a pass begins again");
    let ramp = &run("ufs31", &format!("{timed}ramp_time=100ms\n[j]\n"))[0];
    assert!((ramp.runtime_s - 0.2).abs() < 0.001, "{}", ramp.runtime_s);
    assert!((reads(ramp).iops / reads(plain).iops - 1.0).abs() < 0.01);
}

#[test]
fn rates_and_think_times_limit_a_job() {
    let paced = run("ufs31", &format!("{READS}rate_iops=1000\niodepth=8\n[j]\n"));
    assert!((reads(&paced[0]).iops / 1_000.0 - 1.0).abs() < 0.01);
    let plain = &run("ufs31", &format!("{READS}[j]\n"))[0];
    let thinking = &run("ufs31", &format!("{READS}thinktime=1000\n[j]\n"))[0];
    let more_s = thinking.runtime_s - plain.runtime_s;
    assert!((more_s / 2.0 - 1.0).abs() < 0.02, "2,000 think times of 1 ms, measured from the completion: {more_s}");
}

#[test]
fn the_host_adds_submission_latency_and_its_cores_limit_the_rate() {
    let cost = FioHostCost { cores: 1, call: Nanos(5_000), submit: Nanos(15_000), ..FioHostCost::default() };
    let jobs = run_on(&device("ufs31"), &format!("{READS}iodepth=32\n[j]\n"), cost).fio.unwrap().jobs;
    let figures = reads(&jobs[0]);
    assert_eq!(figures.slat.unwrap().min_us, 20.0);
    assert!(figures.iops < 50_000.0 && figures.iops > 35_000.0, "20 to 25 us of one core for each request: {}", figures.iops);
    let jobs = run_on(&device("ufs31"), &format!("{READS}numjobs=4\ngroup_reporting\n[j]\n"), cost).fio.unwrap().jobs;
    assert!(reads(&jobs[0]).iops < 50_000.0);
}

#[test]
fn copies_are_measured_one_by_one_unless_the_job_reports_its_group() {
    let jobs = run("ufs31", &format!("{READS}numjobs=3\n[a]\n[b]\nstonewall\n"));
    let described: Vec<_> = jobs.iter().map(|job| (job.name.as_str(), job.group, job.copies)).collect();
    assert_eq!(described, [("a", 0, 1), ("a", 0, 1), ("a", 0, 1), ("b", 1, 1), ("b", 1, 1), ("b", 1, 1)]);
    let jobs = run("ufs31", &format!("{READS}numjobs=3\ngroup_reporting\n[a]\n[b]\nstonewall\n"));
    let described: Vec<_> = jobs.iter().map(|job| (job.name.as_str(), job.copies, reads(job).requests)).collect();
    assert_eq!(described, [("a", 3, 6_000), ("b", 3, 6_000)]);
}

#[test]
fn a_job_with_exitall_ends_the_others_and_syncs_are_measured_separately() {
    let text = "[global]\nioengine=libaio\ndirect=1\nbs=4k\nsize=4m\n[w]\nrw=randwrite\nfsync=4\nnumber_ios=100\nexitall\n[r]\nrw=randread\ntime_based\nruntime=1h\n";
    let jobs = run("ufs31", text);
    assert_eq!((jobs[0].write.as_ref().unwrap().requests, jobs[0].sync.as_ref().unwrap().requests), (100, 25));
    assert!((jobs[1].runtime_s - jobs[0].runtime_s).abs() < 0.01, "{jobs:?}");
}

#[test]
fn jobs_on_a_device_that_becomes_full_are_measured_until_then() {
    let mut config = device("small-1gb");
    config.set("gc.policy", "none").unwrap();
    let text =
        "[w]\nioengine=libaio\ndirect=1\nbs=64k\nsize=900m\nrw=randwrite\nnorandommap\ntime_based\nruntime=1h\niodepth=4\n";
    let result = run_on(&config, text, FioHostCost::default());
    assert!(result.run.stopped.is_some());
    let job = &result.fio.unwrap().jobs[0];
    let written = job.write.as_ref().unwrap();
    assert!((written.iops * job.runtime_s / written.requests as f64 - 1.0).abs() < 1e-6 && written.requests > 1_000);
}

#[test]
fn a_job_that_cannot_run_in_closed_loop_is_refused_by_option_and_line() {
    for (text, field, line) in [
        ("[j]\nrw=read\nsize=1m\nioengine=libaio\n", "direct", 1),
        ("[j]\ndirect=1\nrw=read\nsize=1m\ntime_based\n", "time_based", 1),
        ("[j]\ndirect=1\nrw=read\n", "size", 1),
        ("[j]\ndirect=1\nsize=1m\niodepth_batch_complete=x\n", "iodepth_batch_complete", 4),
        ("[j]\ndirect=1\nsize=1m\nlatency_target=10ms\n", "latency_target", 4),
        ("[j]\ndirect=1\nsize=1m\nmax_latency=10ms\n", "max_latency", 1),
        ("[j]\ndirect=1\nsize=1m\nio_submit_mode=offload\n", "io_submit_mode", 1),
        ("[j]\ndirect=1\nsize=1m\nnumjobs=5000\n", "numjobs", 1),
    ] {
        let error = load(text, &device("ufs31")).map(|_| ()).unwrap_err();
        assert_eq!((error.field(), error.line()), (Some(field), Some(line)), "{error}");
    }
    let whole = load("[j]\ndirect=1\nrw=read\nfilename=/dev/sda\nruntime=1\n", &device("small-1gb")).unwrap();
    assert_eq!(whole.end, device("small-1gb").capacity().0 / 512, "a job on a device without a size uses the whole device");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(40), ..ProptestConfig::default() })]

    /// The reference is the trace of the job file, whose requests do not depend on times.
    #[test]
    fn every_request_of_a_job_is_issued_and_completed_once_at_any_depth(
        depth in 1_u64..40,
        low in 0_u64..40,
        submit in 1_u64..8,
        complete in 0_u64..8,
        copies in 1_u64..4,
        ops in prop::sample::select(vec!["randread", "randwrite", "randrw", "write", "trimwrite", "randtrim"]),
        every in 0_u64..5,
        cfq_requests in prop::option::of(1_u32..20),
        seed in any::<u64>(),
    ) {
        let text = format!(
            "[j]\nioengine=libaio\ndirect=1\nrw={ops}\nbs=4k\nsize=512k\niodepth={depth}\niodepth_low={low}\n\
             iodepth_batch={submit}\niodepth_batch_complete={complete}\nnumjobs={copies}\nfsync={every}\ngroup_reporting\n"
        );
        let mut config = device("small-1gb");
        config.set("geometry.block_groups.0.pages_per_block", "16").unwrap();
        let expected = FioJobs::new(&text, seed, None, &|_| None).unwrap();
        let mut counts = [0; 4];
        for request in expected.flat_map(|batch| batch.iter().collect::<Vec<_>>()) {
            counts[match request.op { Op::Read => 0, Op::Write => 1, Op::Flush => 3, _ => 2 }] += 1;
        }
        let simulation = Simulation::new(&config, &ReplayOptions { check: true, ..ReplayOptions::default() }, None).unwrap();
        let load = FioLoad::new(&text, seed, config.capacity().0, &|_| None, &[]).unwrap();
        let (call, submit, switch) = (Nanos(600), Nanos(3_000), Nanos(2_000));
        let cost = FioHostCost { cores: 2, call, submit, switch, cfq_requests, ..FioHostCost::default() };
        let mut run = FioRun::new(simulation, RunRecorder::default(), load, cost);
        while run.advance(100).unwrap() {}
        let (result, _) = run.finish().unwrap();
        let job = &result.fio.as_ref().unwrap().jobs[0];
        let measured = [&job.read, &job.write, &job.trim, &job.sync].map(|figures| figures.as_ref().map_or(0, |all| all.requests));
        prop_assert_eq!(measured, counts);
        prop_assert_eq!(result.requests.total, counts.iter().sum::<u64>());
    }
}

#[test]
fn the_clock_of_a_core_follows_its_load_between_the_lowest_and_the_highest() {
    let config = device("ufs31");
    let cost =
        FioHostCost { cores: 4, submit: Nanos(10_000), complete: Nanos(10_000), lowest_clock: 0.1, ..FioHostCost::default() };
    let slat_us = |depth: u32| {
        let text = format!(
            "[global]\nioengine=libaio\ndirect=1\nbs=4k\nsize=16m\nrw=randread\nruntime=1\ntime_based\nramp_time=500ms\niodepth={depth}\n[j]\n"
        );
        let jobs = run_on(&config, &text, cost).fio.unwrap().jobs;
        let figures = reads(&jobs[0]);
        (figures.slat.unwrap().mean_us, figures.iops)
    };
    // One request at a time loads a core by a few percent, which leaves it at its lowest clock.
    let (slat, iops) = slat_us(1);
    assert!(1.25 * iops * 20e-6 < 0.1, "the load is 20 us of work per request");
    assert!((slat - 100.0).abs() < 0.5, "{slat}");
    // Many requests load the core until its clock is the highest.
    let (slat, iops) = slat_us(64);
    let clock = (1.25 * iops * 20e-6).min(1.0);
    assert!(clock > 0.5 && (slat * clock / 10.0 - 1.0).abs() < 0.03, "{slat} us at {iops} requests/s");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]
    /// At a constant rate of work below the knee, the clock is 1.25 times the load, so that the core is busy for 80 % of the time.
    #[test]
    fn a_core_between_its_lowest_and_highest_clock_is_busy_for_four_fifths_of_the_time(per_second in 2_000..20_000_u32) {
        let config = device("ufs40");
        let work_us = 0.4e6 / f64::from(per_second);
        let cost = FioHostCost { cores: 1, submit: Nanos((work_us * 1e3) as i64), lowest_clock: 0.05, ..FioHostCost::default() };
        let text = format!(
            "[j]\nioengine=libaio\ndirect=1\nbs=4k\nsize=16m\nrw=randread\nruntime=300ms\ntime_based\nramp_time=300ms\niodepth=16\nrate_iops={per_second}\n"
        );
        let jobs = run_on(&config, &text, cost).fio.unwrap().jobs;
        let figures = reads(&jobs[0]);
        let busy = figures.slat.unwrap().mean_us * figures.iops / 1e6;
        prop_assert!((busy - 0.8).abs() < 0.02, "{busy}");
    }
}

/// The figures of random reads of 4 KB by several threads with the scheduler CFQ.
fn with_cfq(threads: u32, depth: u32) -> FioOperationResult {
    let text = format!(
        "[j]\nioengine=libaio\ndirect=1\nbs=4k\nsize=16m\nrw=randread\nruntime=2\ntime_based\niodepth={depth}\nnumjobs={threads}\n\
         offset_increment=16m\ngroup_reporting\npercentile_list=50\n"
    );
    let mut config = device("ufs31");
    config.set("controller.queue_depth", "32").unwrap();
    let cost = FioHostCost { cores: 8, cfq_requests: Some(128), ..FioHostCost::default() };
    run_on(&config, &text, cost).fio.unwrap().jobs.swap_remove(0).read.unwrap()
}

#[test]
fn cfq_serves_the_waiting_requests_of_a_thread_in_the_order_of_their_addresses() {
    let found = with_cfq(1, 128);
    // Of 128 requests 96 wait on average, so that an address has its turn again after as many requests as twice these; the waits are
    // distributed evenly up to this time. The others are at the device, where they take as long as 32 requests.
    let (at_device, longest) = (32e6 / found.iops, 2.0 * 96e6 / found.iops);
    assert!((found.clat.mean_us / (at_device + longest / 2.0) - 1.0).abs() < 0.02, "{found:?}");
    assert!((found.clat.stddev_us / (longest / 12_f64.sqrt()) - 1.0).abs() < 0.1, "{found:?}");
}

#[test]
fn cfq_serves_a_thread_for_a_slice_of_time_while_the_others_wait() {
    let found = with_cfq(4, 16);
    // While a thread has its slice of 75 ms (a fourth of 300 ms), its 16 requests are the only ones that are served. The first slice is one
    // of 100 ms, because the other threads begin later.
    assert!((found.percentiles[0].clat_us / (16e6 / found.iops) - 1.0).abs() < 0.1, "{found:?}");
    assert!((225e3..252e3).contains(&found.clat.max_us), "three slices of the others: {found:?}");
}

#[test]
fn threads_that_need_more_requests_than_the_block_layer_has_wait_at_the_submission() {
    assert_eq!(with_cfq(1, 128).slat.unwrap().max_us, 0.0);
    let found = with_cfq(4, 64);
    // A thread submits one request for each that completes, and waits in between.
    assert!((found.slat.unwrap().mean_us / (4e6 / found.iops) - 1.0).abs() < 0.1, "{found:?}");
    assert!((found.lat.mean_us / (256e6 / found.iops) - 1.0).abs() < 0.02, "Little's law: {found:?}");
}
