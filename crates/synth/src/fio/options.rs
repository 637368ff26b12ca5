//! Converts sections with their options to jobs, and refuses options that are not supported.

use emmclab_trace::{Error, ErrorClass, Result};

use super::ignored::{IN_FLIGHT, ONE_AT_A_TIME, REFUSED_IF_SET, WITHOUT_EFFECT};
use super::job::{FioFileOrder, FioJob, FioRates};
use super::lines::{FioOption, sections};
use super::option_values::{distribution, one_size, pattern, range, rates, sequencer, set_sizes, split};

const MICROSECOND: u64 = 1_000;
const SECOND: u64 = 1_000_000_000;
/// Maximum number of files of a copy of a job.
const MOST_FILES: u64 = 1 << 16;

/// The jobs of a file, each with the options of the `[global]` sections before it.
///
/// # Errors
/// If an option is not supported, or a value is invalid.
pub(super) fn jobs(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Vec<FioJob>> {
    let mut global = FioJob::default();
    let mut jobs: Vec<FioJob> = Vec::new();
    for section in sections(text, variable)? {
        if section.name == "global" {
            for given in &section.options {
                set(&mut global, given)?;
            }
            continue;
        }
        let mut job = FioJob { name: section.name, line: section.line, ..global.clone() };
        for given in &section.options {
            set(&mut job, given)?;
        }
        jobs.push(job);
    }
    if jobs.is_empty() {
        return Err(Error::new(ErrorClass::Empty, "the job file has no job")
            .hint("add a section, such as [job] with rw=randwrite"));
    }
    Ok(jobs)
}

/// Applies an option to a job; each subject has its own function.
fn set(job: &mut FioJob, given: &FioOption) -> Result<()> {
    if !(set_requests(job, given)? || set_places(job, given)? || set_times(job, given)?) {
        check_other(given)?;
    }
    Ok(())
}

/// Applies an option about the kind of requests; false for an option of another subject.
fn set_requests(job: &mut FioJob, given: &FioOption) -> Result<bool> {
    match given.name.as_str() {
        "rw" | "readwrite" => job.pattern = pattern(given)?,
        "rw_sequencer" => job.sequencer = sequencer(given)?,
        "bs" | "blocksize" => {
            set_sizes(job, given, one_size)?;
            job.is_range = false;
        }
        "bssplit" => {
            set_sizes(job, given, split)?;
            job.is_range = false;
        }
        "bsrange" | "blocksize_range" => {
            set_sizes(job, given, range)?;
            job.is_range = true;
        }
        "rwmixread" => job.read_pct = given.percent()?,
        "rwmixwrite" => job.read_pct = 100 - given.percent()?,
        "percentage_random" => job.random_pct = given.percent()?,
        "percentage_sequential" => job.random_pct = 100 - given.percent()?,
        "fsync" | "fdatasync" => job.fsync = given.number()?,
        "end_fsync" | "fsync_on_close" => job.end_fsync = given.flag()?,
        "direct" => job.direct = given.flag()?,
        "buffered" => job.direct = !given.flag()?,
        "sync" => {
            job.sync = match given.text() {
                "none" => false,
                "sync" | "dsync" => true,
                _ => given.flag()?,
            }
        }
        "writefua" => job.sync |= given.flag()?,
        "ioengine" => job.in_flight = keeps_in_flight(given)?,
        "iodepth" => job.iodepth = given.count()?,
        "verify" => job.verify = given.text() != "0",
        "do_verify" => job.do_verify = given.flag()?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Applies an option about places or number of requests; false for an option of another subject.
fn set_places(job: &mut FioJob, given: &FioOption) -> Result<bool> {
    match given.name.as_str() {
        "ba" | "blockalign" => job.align = Some(given.bytes()?).filter(|bytes| *bytes > 0),
        "size" => job.size = Some(given.bytes()?),
        "filesize" => job.file_size = Some(given.bytes()?),
        "io_size" | "io_limit" => job.io_size = Some(given.bytes()?).filter(|bytes| *bytes > 0),
        "number_ios" => job.number_ios = Some(given.count()?),
        "offset" | "fileoffset" => job.offset = given.bytes()?,
        "offset_increment" => job.offset_increment = given.bytes()?,
        "numjobs" => job.numjobs = given.count()?,
        "loops" => job.loops = given.count()?,
        "norandommap" => job.random_map = !given.flag()?,
        "random_distribution" => job.distribution = distribution(given)?,
        "filename" => {
            let names = given.read(|text| Some(text.to_owned()).filter(|text| !text.is_empty()), "a name")?;
            job.files = names.replace("\\:", "\u{0}").split(':').map(|name| name.replace('\u{0}', ":")).collect();
        }
        "directory" => job.directory = Some(given.text().trim_end_matches('/').to_owned()),
        "nrfiles" | "nr_files" => {
            job.number_files = given.count()?;
            if job.number_files > MOST_FILES {
                return Err(given.invalid_option("is more than 65,536 files"));
            }
        }
        "file_service_type" => {
            job.file_order = match given.text() {
                "roundrobin" => FioFileOrder::RoundRobin,
                "random" => FioFileOrder::Random,
                "sequential" => FioFileOrder::Sequential,
                _ => {
                    return Err(given
                        .invalid_option("is an order of files that is not supported")
                        .hint("choose one of: roundrobin, random, sequential"));
                }
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Applies an option about times; false for an option of another subject.
fn set_times(job: &mut FioJob, given: &FioOption) -> Result<bool> {
    match given.name.as_str() {
        "thinktime" => job.think_ns = given.time(MICROSECOND)?,
        "thinktime_blocks" => job.think_requests = given.count()?,
        "rate" => job.rates = FioRates::Each(rates(given, true)?),
        "rate_iops" => job.rates = FioRates::Each(rates(given, false)?),
        "rate_process" => {
            job.poisson = match given.text() {
                "linear" => false,
                "poisson" => true,
                _ => return Err(given.invalid_option("is neither linear nor poisson")),
            }
        }
        "stonewall" | "wait_for_previous" => job.stonewall = given.flag()?,
        "startdelay" => job.start_ns = given.time(SECOND)?,
        "runtime" | "timeout" => job.runtime_ns = Some(given.time(SECOND)?).filter(|ns| *ns > 0),
        "time_based" => job.time_based = given.flag()?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Refuses options that change the requests in a way that is not supported, and ignores those without effect.
fn check_other(given: &FioOption) -> Result<()> {
    let name = given.name.as_str();
    if WITHOUT_EFFECT.contains(&name) {
        return Ok(());
    }
    if let Some((_, what)) = REFUSED_IF_SET.iter().find(|(refused, _)| *refused == name) {
        if given.flag()? {
            return Err(given.invalid_option(what).hint("set it to 0, or leave it out"));
        }
        return Ok(());
    }
    if name == "include" {
        return Err(given.invalid_option("names another file, which is not read").hint("put its lines here"));
    }
    Err(given
        .invalid_option("this option of fio is not supported")
        .hint("leave it out if it does not change what is read and written, or record the job with blktrace"))
}

/// Whether an engine keeps several requests in flight.
fn keeps_in_flight(given: &FioOption) -> Result<bool> {
    let name = given.text();
    match (IN_FLIGHT.contains(&name), ONE_AT_A_TIME.contains(&name)) {
        (true, _) => Ok(true),
        (_, true) => Ok(false),
        _ => Err(given
            .invalid_option("is an engine that does not read and write a file or a disk of this machine, or no engine")
            .hint(format!("the trace is the same for any of: {}, {}", IN_FLIGHT.join(", "), ONE_AT_A_TIME.join(", ")))),
    }
}
