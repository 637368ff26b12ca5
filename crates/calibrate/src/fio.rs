//! Results of `fio --output-format=json` (fio 3 HOWTO, "JSON output"): completion latency by operation and block size.
//!
//! Notes around the JSON are ignored. The size of a request is `io_bytes / total_ios`. The percentiles of `clat_ns` represent the requests; without them,
//! the mean does so. Every second job in order of size is held out of the fit.

use emmclab_trace::{Error, ErrorClass, Op, Result, SECTOR_BYTES};

use crate::fio_checks::{FioJobResult, check, is_direct, request_bytes};
use crate::fio_json::results;
use crate::samples::ServiceSamples;

/// Range of the percentiles that are used.
const FROM_PCT: f64 = 5.0;
const TO_PCT: f64 = 95.0;

struct FioJobTimes {
    op: Op,
    sectors: u32,
    count: usize,
    times_us: Vec<f64>,
}

/// Collects the samples of a file of `fio --output-format=json`.
///
/// # Errors
/// If the text is no fio result, or the latencies of a job are not those of single requests to a device.
pub fn samples_of_fio(text: &str) -> Result<ServiceSamples> {
    let (mut jobs, mut direct) = (Vec::new(), true);
    for result in results(text)? {
        let Some(values) = result["jobs"].as_array() else {
            return Err(Error::new(ErrorClass::Syntax, "has no list of jobs")
                .of_field("jobs", 0, b"")
                .hint("run fio with --output-format=json"));
        };
        let global = &result["global options"];
        let entries: Vec<_> = values.iter().map(|value| FioJobResult { value, global }).collect();
        check(&entries, result["fio version"].as_str().unwrap_or(""))?;
        for entry in entries {
            let before = jobs.len();
            for (side, op) in [("read", Op::Read), ("write", Op::Write)] {
                jobs.extend(job(entry, side, op)?);
            }
            direct &= jobs.len() == before || is_direct(entry);
        }
    }
    if jobs.is_empty() {
        return Err(Error::new(ErrorClass::Empty, "no job has read or written").hint("give the jobs some --runtime"));
    }
    jobs.sort_by_key(|job| (job.op, job.sectors));
    let mut samples = ServiceSamples::default();
    if !direct {
        samples.warn(
            "the options of the jobs do not include direct=1: without it, fio measures the page cache of the host and not the device",
        );
    }
    for (i, job) in jobs.iter().enumerate() {
        let each = job.count.div_ceil(job.times_us.len());
        for time in &job.times_us {
            samples.add_measured(job.op, job.sectors, *time, each, i % 2 == 1);
        }
    }
    Ok(samples)
}

/// One direction of a job; `None` if it did no I/O.
fn job(entry: FioJobResult<'_>, key: &str, op: Op) -> Result<Option<FioJobTimes>> {
    let (side, name) = (&entry.value[key], entry.name());
    let count = side["total_ios"].as_u64().unwrap_or(0);
    if count == 0 {
        return Ok(None);
    }
    let bytes = request_bytes(entry, key)?;
    let sectors = u32::try_from(bytes / SECTOR_BYTES).unwrap_or(0);
    if sectors == 0 || sectors > 1 << 16 {
        return Err(Error::new(
            ErrorClass::Value,
            format!("job `{name}` has requests of {bytes} bytes, whose times cannot be calibrated"),
        )
        .of_field("io_bytes", 0, bytes.to_string().as_bytes())
        .hint("give jobs a --bs of 512 B to 32 MB"));
    }
    let latency = ["clat_ns", "lat_ns"].iter().map(|key| &side[*key]).find(|latency| latency["mean"].is_number());
    let Some(latency) = latency else {
        return Err(Error::new(ErrorClass::Syntax, format!("job `{name}` has no latencies in nanoseconds"))
            .of_field("clat_ns", 0, b"")
            .hint("use fio 3 or later, which writes them"));
    };
    let mut times_us: Vec<f64> = latency["percentile"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(share, _)| share.parse().is_ok_and(|share: f64| (FROM_PCT..=TO_PCT).contains(&share)))
        .filter_map(|(_, time)| Some(time.as_f64()? / 1e3))
        .collect();
    if times_us.is_empty() {
        times_us.extend(latency["mean"].as_f64().map(|mean| mean / 1e3));
    }
    times_us.retain(|time| time.is_finite() && *time > 0.0);
    if times_us.is_empty() {
        return Err(Error::new(ErrorClass::Value, format!("job `{name}` has no completion latency above 0 ns"))
            .of_field("clat_ns", 0, b"0"));
    }
    Ok(Some(FioJobTimes { op, sectors, count: usize::try_from(count).unwrap_or(usize::MAX), times_us }))
}
