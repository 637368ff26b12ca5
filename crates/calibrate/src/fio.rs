//! Results of `fio --output-format=json` (fio 3 HOWTO, "JSON output"): completion latency by operation and block size.
//!
//! fio prints notes and errors to the same file as its JSON. With `--output-format=json,normal`, its usual text follows the JSON. With
//! `--status-interval`, it prints several objects; a later one contains everything of an earlier one of the same jobs. No line of fio's
//! JSON begins with a letter. Lines that begin with a letter are therefore notes, even inside an object.
//!
//! The size of a request is `io_bytes / total_ios`. The samples are the percentiles of `clat_ns`, or its mean if there are no percentiles.
//! The jobs are sorted by size, and every second one is in the held-out half.

use emmclab_trace::{Error, ErrorClass, Op, Result, SECTOR_BYTES};
use serde_json::Value;

use crate::samples::ServiceSamples;

/// The lowest percentile of latencies that becomes a sample.
const FROM_PCT: f64 = 5.0;
const TO_PCT: f64 = 95.0;

struct FioJobTimes {
    op: Op,
    sectors: u32,
    count: usize,
    times_us: Vec<f64>,
}

/// Collects the samples of a file that `fio --output-format=json` has written.
/// Errors: if the text is not a result of fio, or latencies of a job are not those of single requests to a device.
pub fn samples_of_fio(text: &str) -> Result<ServiceSamples> {
    let (mut jobs, mut direct) = (Vec::new(), true);
    for result in results(text)? {
        let Some(values) = result["jobs"].as_array() else {
            return Err(Error::new(ErrorClass::Syntax, "the JSON has no list of fio jobs")
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
        return Err(Error::new(ErrorClass::Empty, "no fio job has read or written data").hint("give the fio jobs a --runtime"));
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

/// The latencies of one direction (read or write) of a job; `None` if the job did no I/O in this direction.
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
            format!("job `{name}` has requests of {bytes} bytes, to which no preset can be fitted"),
        )
        .of_field("io_bytes", 0, bytes.to_string().as_bytes())
        .hint("give the fio jobs a block size (--bs) of 512 B to 32 MB"));
    }
    let latency = ["clat_ns", "lat_ns"].iter().map(|key| &side[*key]).find(|latency| latency["mean"].is_number());
    let Some(latency) = latency else {
        return Err(Error::new(ErrorClass::Syntax, format!("job `{name}` has no latencies in nanoseconds"))
            .of_field("clat_ns", 0, b"")
            .hint("use fio 3 or later, which writes latencies in nanoseconds"));
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

/// Returns the fio results in a text. Of several results of the same jobs, only the last one is returned.
/// Errors: if there is no result, or one is incomplete.
pub(crate) fn results(text: &str) -> Result<Vec<Value>> {
    let json = text.lines().filter(|line| !is_note(line)).collect::<Vec<_>>().join("\n");
    let mut results: Vec<Value> = Vec::new();
    let (mut failure, mut other) = (None, false);
    let mut at = 0;
    while let Some(begin) = json[at..].find('{').map(|begin| at + begin) {
        at = begin + 1;
        if !json[at..].trim_start().starts_with(['"', '}']) {
            continue;
        }
        let mut values = serde_json::Deserializer::from_str(&json[begin..]).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => {
                at = begin + values.byte_offset();
                if value["jobs"].is_array() || value["fio version"].is_string() {
                    results.retain(|earlier| jobs(earlier) != jobs(&value));
                    results.push(value);
                } else {
                    other = true;
                }
            }
            // An incomplete JSON object ends the search. Objects nested in it are not parsed.
            Some(Err(error)) if error.is_eof() => {
                failure = Some(error);
                break;
            }
            Some(Err(error)) => failure = failure.or(Some(error)),
            None => break,
        }
    }
    match failure {
        Some(error) if results.is_empty() || error.is_eof() => {
            let hint = if error.is_eof() {
                "the file ends within the results: run fio again, or copy the file again"
            } else {
                "run fio with --output-format=json"
            };
            Err(Error::new(ErrorClass::Syntax, format!("the file is not JSON: {error}")).hint(hint))
        }
        _ if results.is_empty() && other => Err(Error::new(ErrorClass::Syntax, "the JSON has no list of fio jobs")
            .of_field("jobs", 0, b"")
            .hint("run fio with --output-format=json")),
        _ if results.is_empty() => {
            Err(Error::new(ErrorClass::Syntax, "the file contains no JSON of fio").hint("run fio with --output-format=json"))
        }
        _ => Ok(results),
    }
}

/// Whether a line of fio's output is a note, not JSON.
fn is_note(line: &str) -> bool {
    let words = ["true", "false", "null"];
    line.starts_with(|c: char| c.is_ascii_alphabetic()) && !words.iter().any(|word| line.starts_with(word))
}

/// Names and options of the jobs of a fio result.
fn jobs(result: &Value) -> Vec<(&Value, &Value)> {
    let entries = result["jobs"].as_array().into_iter().flatten();
    entries.map(|entry| (&entry["jobname"], &entry["job options"])).collect()
}

/// A job with more requests in flight than this, on average, did not wait for each request. A job that waits for each request has at most
/// 1.
const SEVERAL: f64 = 1.5;
const ONE_AT_A_TIME: &str = "run fio without waiting in its latencies, one request at a time: fio with --iodepth=1 --numjobs=1 --direct=1, \
                             and `stonewall` in each job";
const ONE_SIZE: &str = "give each size a job of its own, with a single bs=";
/// I/O engines of fio that do not read and write through the block layer, with their names and what they do instead.
const NO_DEVICE: [(&str, &str); 3] =
    [("mmap", "which copies from the page cache"), ("null", "which does no I/O"), ("cpuio", "which does no I/O")];

/// A job of a fio result, and the options that all jobs of the result share.
#[derive(Clone, Copy)]
pub(crate) struct FioJobResult<'a> {
    pub value: &'a Value,
    pub global: &'a Value,
}

impl<'a> FioJobResult<'a> {
    pub fn name(self) -> &'a str {
        self.value["jobname"].as_str().unwrap_or("")
    }

    /// Returns the value of an option that has several names: the value in the job, otherwise the global value.
    fn option(self, names: &[&str]) -> Option<&'a str> {
        let of = |options: &'a Value| names.iter().find_map(|name| options[*name].as_str());
        of(&self.value["job options"]).or_else(|| of(self.global))
    }

    /// Whether an option is set, without a value or to 1.
    fn has(self, name: &str) -> bool {
        self.option(&[name]).is_some_and(|value| value != "0")
    }

    fn count(self, side: &str) -> u64 {
        self.value[side]["total_ios"].as_u64().unwrap_or(0)
    }

    fn did_io(self) -> bool {
        ["read", "write", "trim", "mixed"].iter().any(|side| self.count(side) > 0)
    }

    fn refusal(self, problem: &str) -> Error {
        Error::new(ErrorClass::Value, format!("job `{}` {problem}", self.name()))
    }
}

/// Checks every job of a fio result.
/// Errors: for the first job whose latencies are not those of single requests, with its name and the cause.
pub(crate) fn check(entries: &[FioJobResult<'_>], version: &str) -> Result<()> {
    let at_once = jobs_at_once(entries);
    for (entry, jobs) in entries.iter().zip(at_once) {
        errors(*entry)?;
        if !entry.did_io() {
            continue;
        }
        units(*entry, version)?;
        requests_at_once(*entry, jobs)?;
        page_cache(*entry)?;
        sizes(*entry)?;
    }
    Ok(())
}

/// Rejects a job that ended with an error or had failed requests.
fn errors(entry: FioJobResult<'_>) -> Result<()> {
    let repeat = "correct the cause and run the job again: times of failed requests are not those of the device";
    let code = entry.value["error"].as_i64().unwrap_or(0);
    if code != 0 {
        let reason = i32::try_from(code.abs()).map(std::io::Error::from_raw_os_error);
        let reason = reason.map_or_else(|_| String::new(), |reason| format!(": {reason}"));
        return Err(entry
            .refusal(&format!("ended with error {code}{reason}"))
            .of_field("error", 0, code.to_string().as_bytes())
            .hint(repeat));
    }
    let failed = entry.value["total_err"].as_u64().unwrap_or(0);
    if failed > 0 {
        let first = entry.value["first_error"].as_i64().unwrap_or(0);
        return Err(entry
            .refusal(&format!("had {failed} failed requests, the first with error {first}"))
            .of_field("total_err", 0, failed.to_string().as_bytes())
            .hint(repeat));
    }
    Ok(())
}

/// Rejects results of fio 2 and older, which have latencies in microseconds and `io_bytes` in KB.
fn units(entry: FioJobResult<'_>, version: &str) -> Result<()> {
    let is_old = ["fio-1.", "fio-2."].iter().any(|old| version.starts_with(old));
    let has_microseconds = ["read", "write"].iter().any(|side| {
        let side = &entry.value[*side];
        side["clat"]["mean"].is_number() && !side["clat_ns"].is_object()
    });
    if is_old || has_microseconds {
        let program = if version.is_empty() { "fio 2 or older" } else { version };
        return Err(entry
            .refusal(&format!("was run by {program}, whose latencies are whole microseconds and whose io_bytes are KB"))
            .of_field("fio version", 0, version.as_bytes())
            .hint("use fio 3 or later, which writes nanoseconds and bytes"));
    }
    Ok(())
}

/// For each job, the number of jobs that ran at the same time, including itself. fio starts the jobs of a group together. A job
/// with `stonewall` waits for the jobs before it and begins a group; `new_group` alone does not make a job wait.
fn jobs_at_once(entries: &[FioJobResult<'_>]) -> Vec<u64> {
    let mut groups: Vec<usize> = Vec::with_capacity(entries.len());
    for (at, entry) in entries.iter().enumerate() {
        let group = match at.checked_sub(1).map(|before| (before, &entries[before].value["groupid"])) {
            Some((before, id)) => {
                let is_same = id.is_u64() && *id == entry.value["groupid"] && !entry.has("wait_for");
                let is_beside = entry.has("new_group") && !entry.has("stonewall");
                groups[before] + usize::from(!is_same && !is_beside)
            }
            None => 0,
        };
        groups.push(group);
    }
    let of = |(entry, group): (&FioJobResult<'_>, &usize)| {
        let same = entries.iter().zip(&groups).filter(|(other, also)| *also == group && other.did_io());
        // With `group_reporting`, one result entry describes all clones of a job (`numjobs`).
        let clones = entry.option(&["numjobs"]).and_then(|jobs| jobs.parse().ok()).unwrap_or(1);
        clones.max(same.count() as u64)
    };
    entries.iter().zip(&groups).map(of).collect()
}

/// Rejects a job with several requests in flight. The criteria are the queue depths that fio counted (or the option `iodepth`), the number
/// of concurrent jobs, and Little's law, which needs no options.
fn requests_at_once(entry: FioJobResult<'_>, jobs: u64) -> Result<()> {
    let levels = entry.value["iodepth_level"].as_object().into_iter().flatten();
    let seen: Vec<_> = levels.filter(|(_, share)| share.as_f64().is_some_and(|share| share > 0.0)).collect();
    let level = |name: &str| name.trim_start_matches(">=").parse().unwrap_or(1_u64);
    let deepest = seen.iter().max_by_key(|(name, _)| level(name));
    let by_option = || {
        let depth = entry.option(&["iodepth"]).and_then(|depth| depth.parse::<u64>().ok()).unwrap_or(1);
        (depth, "iodepth", depth.to_string())
    };
    let (depth, field, value) =
        deepest.map_or_else(by_option, |(name, share)| (level(name), "iodepth_level", format!("{name}: {share} %")));
    let refused = |problem: &str, field: &str, value: &str| {
        Err(entry.refusal(problem).of_field(field, 0, value.as_bytes()).hint(ONE_AT_A_TIME))
    };
    if depth > 1 {
        let each = if jobs > 1 { format!(" in each of {jobs} jobs") } else { String::new() };
        return refused(&format!("ran {depth} requests at once{each}"), field, &value);
    }
    if jobs > 1 {
        return refused(&format!("ran {jobs} requests at once, one in each of {jobs} jobs"), "numjobs", &jobs.to_string());
    }
    if let Some(mean) = mean_at_once(entry).filter(|mean| *mean > SEVERAL) {
        let problem = format!("ran {mean:.1} requests at once on average, according to its latencies and its run time");
        return refused(&problem, "runtime", &entry.value["read"]["runtime"].to_string());
    }
    Ok(())
}

/// Mean number of requests in flight by Little's law: the sum of the requests' latencies divided by the run time.
fn mean_at_once(entry: FioJobResult<'_>) -> Option<f64> {
    let sides = || ["read", "write", "trim"].map(|side| &entry.value[side]).into_iter();
    let ms = sides().filter_map(|side| side["runtime"].as_f64()).fold(0.0, f64::max);
    let busy_ns = sides().filter_map(|side| {
        let mean = side["lat_ns"]["mean"].as_f64().or_else(|| side["clat_ns"]["mean"].as_f64())?;
        Some(mean * side["total_ios"].as_f64()?)
    });
    // fio truncates the run time to whole milliseconds, so up to 1 ms may be missing.
    (ms > 0.0).then(|| busy_ns.sum::<f64>() / ((ms + 1.0) * 1e6))
}

/// Rejects a job whose requests passed through the page cache or did not reach a device.
fn page_cache(entry: FioJobResult<'_>) -> Result<()> {
    let refused = |problem: &str, field: &str, value: &str| {
        Err(entry
            .refusal(problem)
            .of_field(field, 0, value.as_bytes())
            .hint("run fio with --direct=1, and an engine such as psync or libaio"))
    };
    let engine = entry.option(&["ioengine"]).unwrap_or("");
    if let Some((name, what)) = NO_DEVICE.iter().find(|(name, _)| *name == engine) {
        return refused(&format!("used the engine {name}, {what}: its times are not those of a device"), "ioengine", name);
    }
    let problem = "read and wrote through the page cache: its times are not those of a device";
    match (entry.option(&["direct"]), entry.option(&["buffered"])) {
        (Some("0"), _) => refused(problem, "direct", "0"),
        (None, Some(value)) if value != "0" => refused(problem, "buffered", value),
        _ => Ok(()),
    }
}

/// Whether the options of a job state that it bypasses the page cache, which is not fio's default.
pub(crate) fn is_direct(entry: FioJobResult<'_>) -> bool {
    entry.has("direct") || entry.option(&["buffered"]) == Some("0")
}

/// Rejects a job with requests of several sizes, or a job that reports reads and writes as one figure.
fn sizes(entry: FioJobResult<'_>) -> Result<()> {
    if entry.count("mixed") > 0 && entry.count("read") + entry.count("write") == 0 {
        return Err(entry
            .refusal("reports reads and writes in one figure")
            .of_field("mixed", 0, b"")
            .hint("run fio without unified_rw_reporting"));
    }
    let names = ["bsrange", "blocksize_range", "bssplit"];
    for name in names {
        let Some(value) = entry.option(&[name]) else { continue };
        let each = value.split([',', ':', '-']).map(|size| size.split('/').next().unwrap_or_default());
        let mut each = each.filter(|size| !size.is_empty());
        let first = each.next();
        if each.any(|size| Some(size) != first) {
            return Err(several_sizes(entry, name, value));
        }
    }
    Ok(())
}

fn several_sizes(entry: FioJobResult<'_>, field: &str, value: &str) -> Error {
    entry
        .refusal("has requests of several sizes, whose times are not reported separately")
        .of_field(field, 0, value.as_bytes())
        .hint(ONE_SIZE)
}

/// Returns the size in bytes of each request in a direction that has I/O.
/// Errors: if the counts contradict the option `bs`; without `bs`, if the size of a request is not a whole number of sectors.
pub(crate) fn request_bytes(entry: FioJobResult<'_>, side: &str) -> Result<u64> {
    let (count, bytes) = (entry.count(side), entry.value[side]["io_bytes"].as_u64().unwrap_or(0));
    let option = entry.option(&["bs", "blocksize"]).and_then(|sizes| {
        let mut sizes = sizes.split(',');
        let last = sizes.clone().next_back();
        bytes_of(if side == "read" { sizes.next()? } else { sizes.nth(1).or(last)? })
    });
    if let Some(size) = option {
        // The last request at the end of a file may be shorter, so less than `size` bytes may be missing.
        let missing = size.saturating_mul(count).abs_diff(bytes);
        return if missing < size { Ok(size) } else { Err(differing(entry, bytes, count, Some(size))) };
    }
    if !bytes.is_multiple_of(count) || !(bytes / count).is_multiple_of(SECTOR_BYTES) {
        return Err(differing(entry, bytes, count, None));
    }
    Ok(bytes / count)
}

fn differing(entry: FioJobResult<'_>, bytes: u64, count: u64, option: Option<u64>) -> Error {
    let option = option.map_or_else(String::new, |size| format!(", and bs={size}"));
    several_sizes(entry, "io_bytes", &format!("{bytes} in {count} requests{option}"))
}

/// Parses a size as fio does, such as `4k`; `None` for other forms.
fn bytes_of(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok().filter(|size| *size > 0)?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT: &str = "{\n  \"fio version\" : \"fio-3.33\",\n  \"jobs\" : [\n    {\n      \"jobname\" : \"r\",\n      \"error\" : 0\n    }\n  ]\n}\n";

    #[test]
    fn what_stands_around_and_within_the_results_is_passed_over() {
        let plain = results(RESULT).unwrap();
        let normal = "\nr: (groupid=0, jobs=1): err= 0: pid=1: Wed\n  read: IOPS=11.7k, BW=45.7MiB/s {x}\n";
        for text in [
            format!("fio: note\nnote: depth {{seen in fio}} capped\n{RESULT}"),
            format!("{RESULT}\nfio: file hash not empty on exit\n"),
            format!("{RESULT}{normal}"),
            RESULT.replace("\n  \"jobs\"", "\nfio: io_u error on file f: Input/output error\n  \"jobs\""),
            RESULT.replace('\n', "\r\n"),
            RESULT.replace('\n', ""),
        ] {
            assert_eq!(results(&text).unwrap(), plain, "{text}");
        }
    }

    #[test]
    fn of_the_same_jobs_the_last_result_counts_and_others_are_added() {
        let later = RESULT.replace("\"error\" : 0", "\"error\" : 0, \"elapsed\" : 2");
        let found = results(&format!("{RESULT}{later}")).unwrap();
        assert_eq!((found.len(), found[0]["jobs"][0]["elapsed"].as_u64()), (1, Some(2)));
        let other = RESULT.replace("\"r\"", "\"w\"");
        assert_eq!(results(&format!("{RESULT}noise\n{other}")).unwrap().len(), 2);
    }

    #[test]
    fn a_text_without_results_or_with_half_of_them_is_refused() {
        assert!(results("fio: no such option\n").unwrap_err().to_string().contains("contains no JSON of fio"));
        assert!(results("{\"a\": 1}\n").unwrap_err().to_string().contains("jobs"));
        assert!(results("{}").is_err() && results("{\"a\" 1}\n").is_err());
        for length in 20..RESULT.len() - 2 {
            let error = results(&RESULT[..length]).unwrap_err();
            assert!(error.hint_text().unwrap().contains("ends within"), "{length}: {error}");
        }
        assert!(results(&format!("{RESULT}{}", &RESULT[..90])).is_err());
    }
}
