//! Converts sections with their options to jobs. Options without effect are ignored, unsupported ones are refused.

use emmclab_trace::{Error, ErrorClass, Result};

use super::job::{FioFileOrder, FioJob, FioRates};
use super::lines::{FioOption, KbBase, distribution, one_size, pattern, range, rates, sections, sequencer, set_sizes, split};

const MICROSECOND: u64 = 1_000;
const SECOND: u64 = 1_000_000_000;
/// Maximum number of files of each copy of a job (`numjobs`).
const MOST_FILES: u64 = 1 << 16;

/// The jobs of a file, each with the options of the `[global]` sections before it.
/// Errors: if an option is not supported, or a value is invalid.
pub(super) fn jobs(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Vec<FioJob>> {
    let mut global = FioJob::default();
    let mut jobs: Vec<FioJob> = Vec::new();
    for section in sections(text, variable)? {
        if section.name == "global" {
            for option in &section.options {
                set(&mut global, option)?;
            }
            continue;
        }
        let mut job = FioJob { name: section.name, line: section.line, ..global.clone() };
        for option in &section.options {
            set(&mut job, option)?;
        }
        jobs.push(job);
    }
    if jobs.is_empty() {
        return Err(
            Error::new(ErrorClass::Empty, "the job file has no job").hint("add a section, such as [job] with rw=randwrite")
        );
    }
    Ok(jobs)
}

/// Replaces options of a job.
/// Errors: as [`jobs`].
pub(super) fn replace(job: &mut FioJob, options: &[(String, String)]) -> Result<()> {
    for (name, value) in options {
        let option = FioOption { line: None, name: name.clone(), value: Some(value.clone()), base: KbBase::Binary };
        set(job, &option)?;
    }
    Ok(())
}

/// Applies an option to a job. The functions for the different subjects of options are tried one after another.
fn set(job: &mut FioJob, option: &FioOption) -> Result<()> {
    job.options.insert(option.name.clone(), option.value.clone().unwrap_or_else(|| "1".to_owned()));
    let is_known = set_requests(job, option)
        .and_then(|done| Ok(done || set_places(job, option)?))
        .and_then(|done| Ok(done || set_times(job, option)?));
    let checked = is_known.and_then(|is_known| if is_known { Ok(()) } else { check_other(option) });
    checked.map_err(|error| error.hint("correct the value; fio's HOWTO lists the values of each option"))
}

/// Applies an option that describes the requests, such as `rw` or `bs`. Returns false for other options.
fn set_requests(job: &mut FioJob, option: &FioOption) -> Result<bool> {
    match option.name.as_str() {
        "rw" | "readwrite" => job.pattern = pattern(option)?,
        "rw_sequencer" => job.sequencer = sequencer(option)?,
        "bs" | "blocksize" => {
            set_sizes(job, option, one_size)?;
            job.is_range = false;
        }
        "bssplit" => {
            set_sizes(job, option, split)?;
            job.is_range = false;
        }
        "bsrange" | "blocksize_range" => {
            set_sizes(job, option, range)?;
            job.is_range = true;
        }
        "rwmixread" => job.read_pct = option.percent()?,
        "rwmixwrite" => job.read_pct = 100 - option.percent()?,
        "percentage_random" => job.random_pct = option.percent()?,
        "percentage_sequential" => job.random_pct = 100 - option.percent()?,
        "fsync" | "fdatasync" => job.fsync = option.number()?,
        "end_fsync" | "fsync_on_close" => job.end_fsync = option.flag()?,
        "direct" => job.direct = option.flag()?,
        "buffered" => job.direct = !option.flag()?,
        "sync" => {
            job.sync = match option.text() {
                "none" => false,
                "sync" | "dsync" => true,
                _ => option.flag()?,
            }
        }
        "writefua" => job.sync |= option.flag()?,
        "ioengine" => {
            job.in_flight = keeps_in_flight(option)?;
            job.discards_wait = !option.text().starts_with("io_uring");
        }
        "iodepth" => job.iodepth = option.count()?,
        "iodepth_low" => job.iodepth_low = Some(option.number()?).filter(|low| *low > 0),
        "iodepth_batch" | "iodepth_batch_submit" => job.submit_batch = option.count()?,
        "iodepth_batch_complete" | "iodepth_batch_complete_min" => job.complete_batch = option.number()?,
        "verify" => job.verify = option.text() != "0",
        "do_verify" => job.do_verify = option.flag()?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Applies an option about addresses or the number of requests; returns false if the option belongs to another subject.
fn set_places(job: &mut FioJob, option: &FioOption) -> Result<bool> {
    match option.name.as_str() {
        "ba" | "blockalign" => job.align = Some(option.bytes()?).filter(|bytes| *bytes > 0),
        "size" => job.size = Some(option.bytes()?),
        "filesize" => job.file_size = Some(option.bytes()?),
        "io_size" | "io_limit" => job.io_size = Some(option.bytes()?).filter(|bytes| *bytes > 0),
        "number_ios" => job.number_ios = Some(option.count()?),
        "offset" | "fileoffset" => job.offset = option.bytes()?,
        "offset_increment" => job.offset_increment = option.bytes()?,
        "numjobs" => job.numjobs = option.count()?,
        "loops" => job.loops = option.count()?,
        "norandommap" => job.random_map = !option.flag()?,
        "random_distribution" => job.distribution = distribution(option)?,
        "filename" => {
            let names = option.read(|text| Some(text.to_owned()).filter(|text| !text.is_empty()), "a name")?;
            job.files = names.replace("\\:", "\u{0}").split(':').map(|name| name.replace('\u{0}', ":")).collect();
        }
        "directory" => job.directory = Some(option.text().trim_end_matches('/').to_owned()),
        "nrfiles" | "nr_files" => {
            job.number_files = option.count()?;
            if job.number_files > MOST_FILES {
                return Err(option.invalid_option("the job has more than 65,536 files"));
            }
        }
        "file_service_type" => {
            job.file_order = match option.text() {
                "roundrobin" => FioFileOrder::RoundRobin,
                "random" => FioFileOrder::Random,
                "sequential" => FioFileOrder::Sequential,
                _ => {
                    return Err(option
                        .invalid_option("this order of files is not supported")
                        .hint("choose one of the orders of files roundrobin, random and sequential"));
                }
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Applies an option about times; returns false if the option belongs to another subject.
fn set_times(job: &mut FioJob, option: &FioOption) -> Result<bool> {
    match option.name.as_str() {
        "thinktime" => job.think_ns = option.time(MICROSECOND)?,
        "thinktime_blocks" => job.think_requests = option.count()?,
        "rate" => job.rates = FioRates::Each(rates(option, true)?),
        "rate_iops" => job.rates = FioRates::Each(rates(option, false)?),
        "rate_process" => {
            job.poisson = match option.text() {
                "linear" => false,
                "poisson" => true,
                _ => return Err(option.invalid_option("the process must be linear or poisson")),
            }
        }
        "stonewall" | "wait_for_previous" => job.stonewall = option.flag()?,
        "startdelay" => job.start_ns = option.time(SECOND)?,
        "runtime" | "timeout" => job.runtime_ns = Some(option.time(SECOND)?).filter(|ns| *ns > 0),
        "time_based" => job.time_based = option.flag()?,
        "ramp_time" => job.ramp_ns = option.time(SECOND)?,
        "exitall" => job.exit_all = option.flag()?,
        "group_reporting" => job.group_reporting = option.flag()?,
        "new_group" => job.new_group = option.flag()?,
        "percentile_list" => job.percentiles = percentiles(option)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Refuses options that change the requests in an unsupported way, and ignores those without effect.
fn check_other(option: &FioOption) -> Result<()> {
    let name = option.name.as_str();
    if WITHOUT_EFFECT.split_whitespace().any(|ignored| ignored == name) {
        return Ok(());
    }
    if let Some((_, what)) = REFUSED_IF_SET.iter().find(|(refused, _)| *refused == name) {
        if option.flag()? {
            return Err(option.invalid_option(what).hint("set this fio option to 0, or leave it out"));
        }
        return Ok(());
    }
    if name == "include" {
        return Err(option.invalid_option("the job file includes another file").hint("copy the included lines to this place"));
    }
    Err(option
        .invalid_option("this option of fio is not supported")
        .hint("leave this fio option out if it does not change what is read and written, or record the job with blktrace"))
}

/// Percentiles separated by colons, as in `99:99.9`.
fn percentiles(option: &FioOption) -> Result<Vec<f64>> {
    const MOST: usize = 20;
    let read = |text: &str| {
        let all: Option<Vec<f64>> = text.split(':').map(|each| each.trim().parse().ok()).collect();
        all.filter(|all| all.len() <= MOST && all.iter().all(|each| *each > 0.0 && *each <= 100.0))
    };
    let mut all = option.read(read, "a list of at most 20 percentiles above 0, separated by colons")?;
    all.sort_by(f64::total_cmp);
    all.dedup();
    Ok(all)
}

/// Whether an engine keeps several requests in flight.
fn keeps_in_flight(option: &FioOption) -> Result<bool> {
    let name = option.text();
    match (IN_FLIGHT.contains(&name), ONE_AT_A_TIME.contains(&name)) {
        (true, _) => Ok(true),
        (_, true) => Ok(false),
        _ => Err(option.invalid_option("this engine does not read and write a file or a disk of this machine").hint(format!(
            "use another engine; the trace is the same for any of these engines: {}, {}",
            IN_FLIGHT.join(", "),
            ONE_AT_A_TIME.join(", ")
        ))),
    }
}

/// Options without effect on the requests: how fio works, measures, fills and checks memory, creates files, and prints.
pub(super) const WITHOUT_EFFECT: &str = "
    allow_file_create allow_mounted_write allrandrepeat apptag apptag_mask atomic block_error_percentiles
    buffer_compress_chunk buffer_compress_percentage buffer_pattern bwavgtime cgroup cgroup_nodelete cgroup_weight
    clat_percentiles clocksource cmd_type cmdprio cmdprio_bssplit cmdprio_class cmdprio_hint cmdprio_percentage comm
    cpumask cpus_allowed cpus_allowed_policy create_fsync create_on_open create_serialize dataplacement dedupe_global
    dedupe_mode dedupe_percentage dedupe_working_set_percentage description directory disable_bw disable_bw_measurement
    disable_clat disable_lat disable_slat disk_util error_dump eta-newline exec_postrun exec_prerun fadvise_hint
    fallocate fdp fdp_pli filename_format fixedbufs force_async gid gtod_cpu gtod_reduce hipri hugepage-size invalidate
    io_submit_mode iodepth_batch_complete_max iodepth_batch_max iomem iomem_align iopsavgtime ioscheduler kb_base
    lat_percentiles libblkio_driver libblkio_force_enable_completion_eventfd libblkio_num_entries libblkio_path
    libblkio_pre_connect_props libblkio_pre_start_props libblkio_queue_size libblkio_wait_mode lockmem
    log_alternate_epoch log_alternate_epoch_clock_id log_avg_msec log_compression log_entries log_hist_coarseness
    log_hist_msec log_issue_time log_max_value log_offset log_prio log_unix_epoch log_window_value max_latency
    md_per_io_size mem mem_align minimal name nice nonvectored numa_cpu_nodes numa_mem_policy overwrite per_job_logs
    pi_act pi_chk plid_select plids prio prioclass priohint random_generator randrepeat randseed rate_cycle
    rate_iops_min rate_min ratecycle ratemin refill_buffers registerfiles scramble_buffers significant_figures
    slat_percentiles softrandommap sqthread_poll sqthread_poll_cpu stats thinktime_spin thread uid uncached
    unified_rw_reporting unique_filename unit_base unlink unlink_each_loop userspace_reap verify_async
    verify_async_cpus verify_dump verify_fatal verify_header_seed verify_interval verify_offset verify_pattern
    verify_pattern_interval verify_state_save verify_write_sequence write_bw_log write_hint write_hist_log write_iolog
    write_iops_log write_lat_log xnvme_admin xnvme_async xnvme_dev_nsid xnvme_dev_subnqn xnvme_iovec xnvme_mem
    xnvme_sync zero_buffers
";

/// Engines that issue one request after another to a file or a disk: `iodepth` has no effect.
pub(super) const ONE_AT_A_TIME: &[&str] = &["sync", "psync", "vsync", "pvsync", "pvsync2", "mmap"];

/// Engines that keep `iodepth` requests in flight.
pub(super) const IN_FLIGHT: &[&str] =
    &["libaio", "io_uring", "io_uring_cmd", "posixaio", "windowsaio", "solarisaio", "sg", "null", "libblkio", "xnvme"];

/// Flags that are refused if they are set, each with the reason for the error message.
pub(super) const REFUSED_IF_SET: &[(&str, &str)] = &[
    ("create_only", "makes the files and issues no request"),
    ("pre_read", "reads the file before the job begins"),
    ("fill_device", "ends when the device is full, and its size is not known here"),
    ("fill_fs", "ends when the file system is full, and its size is not known here"),
    ("bs_unaligned", "has sizes of any number of bytes"),
    ("bs_is_seq_rand", "has other sizes for sequential requests than for random ones"),
    ("verify_only", "reads what an earlier run wrote"),
    ("experimental_verify", "verifies by issuing the job again"),
    ("rate_ignore_thinktime", "does not catch up with the rate after a think time"),
];
