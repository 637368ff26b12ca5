//! Splits the line of an event into its parts, as printed by the kernel's tracer, `trace-cmd report`, `perf script` and `perf trace`.
//!
//! | printed by | form |
//! | --- | --- |
//! | tracefs, `trace-cmd report` | `NAME-PID [CPU] FLAGS TIME: EVENT: ...`; options add a thread group `(TGID)` before `[CPU]`, or remove the flags |
//! | `perf script` | `NAME PID/TID [CPU] TIME: PERIOD SYSTEM:EVENT: ...`; options can remove task, `[CPU]` and period |
//! | `perf trace` | `MS (DURATION): NAME/TID SYSTEM:EVENT:...`; duration and task are missing if there is only one task |
//!
//! There are four to eight flags, depending on the kernel's configuration. A task can choose its name, which may contain blanks,
//! brackets, slashes and `#` and is truncated to 15 bytes. Mail programs insert `> ` before quoted lines.

use memchr::memmem;

use crate::formats::fields::is_blank;
use crate::formats::prelude::*;

/// Maximum number of digits of a CPU number, including padding.
const MOST_CPU_DIGITS: usize = 6;

pub(super) struct FtraceLine<'a> {
    task: &'a [u8],
    time: &'a [u8],
    unit: TimeUnit,
    /// Name of the event without its system; empty for a line of the tracer `blk`.
    pub event: &'a [u8],
    /// The text after the name of the event.
    pub payload: &'a [u8],
    /// Whether the line contains a CPU number, which is rare in other texts.
    pub has_cpu: bool,
}

impl<'a> FtraceLine<'a> {
    #[inline]
    pub(super) fn of(line: &'a [u8]) -> Option<Self> {
        let line = line.strip_prefix(b"> ").unwrap_or(line);
        if let Some(split) = Self::with_cpu(line) {
            return Some(split);
        }
        Self::without_cpu(line).or_else(|| Self::of_perf_trace(line))
    }

    /// Splits a line that contains the CPU as `[cpu]`. Names may contain brackets, too, so the number must be between blanks, and at most
    /// one word may follow before the time.
    #[inline]
    fn with_cpu(line: &'a [u8]) -> Option<Self> {
        memchr::memchr_iter(b'[', line).find_map(|open| {
            if open > 0 && !is_blank(line[open - 1]) {
                return None;
            }
            let number = &line[open + 1..];
            let digits = number.iter().take(MOST_CPU_DIGITS).position(|byte| !byte.is_ascii_digit())?;
            let [b']', b' ' | b'\t', rest @ ..] = &number[digits..] else { return None };
            if digits == 0 {
                return None;
            }
            let colon = colon_and_blank(rest)?;
            let mut words = blank_separated(&rest[..colon]);
            let first = words.next()?;
            let time = words.next().unwrap_or(first);
            if words.next().is_some() || !time[0].is_ascii_digit() {
                return None;
            }
            let (event, payload) = event_of(&rest[colon + 2..]);
            let task = line[..open].trim_ascii();
            Some(FtraceLine { task, time, unit: TimeUnit::Seconds, event, payload, has_cpu: true })
        })
    }

    /// Splits `NAME PID TIME: SYSTEM:EVENT: ...`; options of perf can omit the task.
    #[cold]
    fn without_cpu(line: &'a [u8]) -> Option<Self> {
        memmem::find_iter(line, b": ").find_map(|colon| {
            let begin = line[..colon].iter().rposition(|byte| is_blank(*byte)).map_or(0, |blank| blank + 1);
            let time = &line[begin..colon];
            if !time.contains(&b'.') || !is_decimal(time) {
                return None;
            }
            let task = line[..begin].trim_ascii();
            let rest = line[colon + 2..].trim_ascii_start();
            let (event, payload) = event_of(rest);
            let has_system = !rest.starts_with(event);
            let has_task = if task.is_empty() { has_system } else { task_of(task).is_ok() };
            (has_task && is_name(event)).then_some(FtraceLine {
                task,
                time,
                unit: TimeUnit::Seconds,
                event,
                payload,
                has_cpu: false,
            })
        })
    }

    /// Splits `MS (DURATION): NAME/TID SYSTEM:EVENT:...`, or `SYSTEM:EVENT(...)` in newer versions.
    #[cold]
    fn of_perf_trace(line: &'a [u8]) -> Option<Self> {
        let line = line.trim_ascii_start();
        let end = line.iter().position(|byte| is_blank(*byte))?;
        let time = &line[..end];
        if !time.contains(&b'.') || !is_decimal(time) {
            return None;
        }
        let mut rest = line[end..].trim_ascii_start();
        if rest.starts_with(b"(") {
            rest = rest[memmem::find(rest, b"): ")? + 3..].trim_ascii_start();
        }
        let mut at = 0;
        loop {
            let word = &rest[at..];
            let length = word.iter().position(|byte| is_blank(*byte)).unwrap_or(word.len());
            if let Some((event, behind)) = event_with_system(&word[..length]) {
                let payload = word[behind..].strip_suffix(b")").filter(|_| word[behind - 1] == b'(');
                let payload = payload.unwrap_or(&word[behind..]).trim_ascii_start();
                let task = rest[..at].trim_ascii();
                return Some(FtraceLine { task, time, unit: TimeUnit::Millis, event, payload, has_cpu: false });
            }
            at += length + 1;
            if at >= rest.len() {
                return None;
            }
        }
    }

    /// Whether this may be the first part of a broken line: one of its words must be a number in brackets, the CPU.
    pub(super) fn may_begin(line: &[u8]) -> bool {
        blank_separated(line).any(|word| word.strip_prefix(b"[").and_then(|word| word.strip_suffix(b"]")).is_some_and(is_digits))
    }

    pub(super) fn time(&self) -> Result<Nanos> {
        let time = decimal_time(self.time, self.unit, "time", 0)?;
        if !self.time.contains(&b'.') {
            return Err(Error::new(ErrorClass::Value, "the event times must be in seconds with a decimal point")
                .of_field("time", 0, self.time)
                .hint("record with a clock that counts time: `echo mono > trace_clock`"));
        }
        Ok(Nanos(time))
    }

    /// Whether times are relative to the start of the recording.
    pub(super) fn is_relative(&self) -> bool {
        self.unit == TimeUnit::Millis
    }

    /// Name and id of the task. The name is empty if the kernel did not know it. If the line has no task, the name is empty and
    /// the id is `None`.
    pub(super) fn task(&self) -> Result<(&'a [u8], Option<i32>)> {
        if self.task.is_empty() {
            return Ok((b"", None));
        }
        let (name, id) = if self.unit == TimeUnit::Millis { task_of_perf_trace(self.task)? } else { task_of(self.task)? };
        Ok((if name == b"<...>" { b"" } else { name }, Some(id)))
    }
}

/// The offset of the first colon before a blank. Only the colon is searched for, because a search for two bytes needs preparation.
#[inline]
fn colon_and_blank(text: &[u8]) -> Option<usize> {
    memchr::memchr_iter(b':', text).find(|colon| text.get(colon + 1) == Some(&b' '))
}

/// Name of the event, and the text after it; a period (perf) before the name is skipped.
#[inline]
fn event_of(rest: &[u8]) -> (&[u8], &[u8]) {
    let mut rest = rest.trim_ascii_start();
    if rest.first().is_some_and(u8::is_ascii_digit) {
        let digits = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
        match rest.get(digits) {
            // The number is the first part of `MAJOR,MINOR`, as in lines of the kernel's `blk` tracer.
            Some(b',') => return (&[], rest),
            Some(b' ') => rest = rest[digits..].trim_ascii_start(),
            _ => {}
        }
    }
    let (event, payload) = match colon_and_blank(rest) {
        Some(end) => (&rest[..end], &rest[end + 2..]),
        None => (rest.strip_suffix(b":").unwrap_or(rest), &[][..]),
    };
    let system = memchr::memrchr(b':', event).map_or(0, |colon| colon + 1);
    (&event[system..], payload)
}

fn is_name(event: &[u8]) -> bool {
    !event.is_empty() && event.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// The name in `SYSTEM:EVENT:` or `SYSTEM:EVENT(`, and the offset of the text after it; `None` for other text.
fn event_with_system(word: &[u8]) -> Option<(&[u8], usize)> {
    let system = memchr::memchr(b':', word)?;
    let event = &word[system + 1..];
    let end = event.iter().position(|byte| matches!(byte, b':' | b'('))?;
    (is_name(&word[..system]) && is_name(&event[..end])).then_some((&event[..end], system + end + 2))
}

/// Splits the task before `[cpu]`: `NAME-PID`, possibly with a thread group `(TGID)`, or `NAME PID` or `NAME PID/TID` of perf.
fn task_of(field: &[u8]) -> Result<(&[u8], i32)> {
    let bad = || Error::new(ErrorClass::Syntax, "the task of an event must have the form NAME-PID").of_field("task", 1, field);
    let field = match memchr::memrchr(b'(', field) {
        Some(open) if field.ends_with(b")") && !field[..open].trim_ascii_end().is_empty() => field[..open].trim_ascii_end(),
        _ => field,
    };
    let cut = field.iter().rposition(|byte| !byte.is_ascii_digit() && *byte != b'/').ok_or_else(bad)?;
    if !matches!(field[cut], b'-' | b' ') {
        return Err(bad());
    }
    let id = field[cut + 1..].rsplit(|byte| *byte == b'/').next().unwrap_or(&[]);
    Ok((field[..cut].trim_ascii(), pid(id, "task", 1)?))
}

/// Splits `NAME/TID` of `perf trace`.
fn task_of_perf_trace(field: &[u8]) -> Result<(&[u8], i32)> {
    let bad = || Error::new(ErrorClass::Syntax, "the task of an event must have the form NAME/TID").of_field("task", 1, field);
    let cut = memchr::memrchr(b'/', field).ok_or_else(bad)?;
    if !is_digits(&field[cut + 1..]) {
        return Err(bad());
    }
    Ok((&field[..cut], pid(&field[cut + 1..], "task", 1)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(line: &str) -> (String, Option<i32>, i64, String, String) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let parts = FtraceLine::of(line.as_bytes()).unwrap_or_else(|| panic!("{line}"));
        let (name, id) = parts.task().unwrap();
        (text(name), id, parts.time().unwrap().0 / 1000, text(parts.event), text(parts.payload))
    }

    #[test]
    fn names_of_tasks_may_hold_brackets_blanks_slashes_and_hashes() {
        for (line, name, id) in [
            ("  highpool[1]-7685    [002] ..... 5.000001: block_rq_issue: 8,0 R", "highpool[1]", 7685),
            ("IntentService[C-9374 [005] ..... 5.000001: block_rq_issue: 8,0 R", "IntentService[C", 9374),
            ("a [3] x-12 (   12) [002] d..1 5.000001: block_rq_issue: 8,0 R", "a [3] x", 12),
            ("binder:10_1[2]-1044 (-----) [001] ..... 5.000001: block_rq_issue: 8,0 R", "binder:10_1[2]", 1044),
            ("#worker: 1-7 [001] 5.000001: block_rq_issue: 8,0 R", "#worker: 1", 7),
            ("Chrome IO 4096/4097 [003] 5.000001:   1 block:block_rq_issue: 8,0 R", "Chrome IO", 4097),
            ("> fs-read 4096 [003] 5.000001: block:block_rq_issue: 8,0 R", "fs-read", 4096),
            ("fs [1]: x 4096 5.000001: block:block_rq_issue: 8,0 R", "fs [1]: x", 4096),
        ] {
            let (found, found_id, time, event, payload) = parts(line);
            assert_eq!((found.as_str(), found_id, time), (name, Some(id), 5_000_001), "{line}");
            assert_eq!((event.as_str(), payload.as_str()), ("block_rq_issue", "8,0 R"), "{line}");
        }
    }

    #[test]
    fn a_line_of_perf_script_may_lack_its_task() {
        for line in ["    5.000001: block:block_rq_issue: 8,0 R", "[001]     5.000001:   1 block:block_rq_issue: 8,0 R"] {
            let (name, id, time, event, payload) = parts(line);
            assert_eq!((name.as_str(), id, time), ("", None, 5_000_001), "{line}");
            assert_eq!((event.as_str(), payload.as_str()), ("block_rq_issue", "8,0 R"), "{line}");
        }
    }

    #[test]
    fn any_number_of_flags_is_passed_over() {
        for flags in ["", "d..1", "d..2", ".....", "d..1.", "....1..", "d..h2.1", "dNLh2.1", "dNLh2.1.", "dNLh211.", "dNLh2111"] {
            let (name, id, time, event, _) = parts(&format!("rcuc/1-25 [001] {flags}  1.004210: block_rq_issue: 8,0 R"));
            assert_eq!((name.as_str(), id, time, event.as_str()), ("rcuc/1", Some(25), 1_004_210, "block_rq_issue"));
        }
    }

    #[test]
    fn perf_trace_has_milliseconds_and_may_lack_the_task() {
        for (line, name, id) in [
            ("  9.133 kworker/0:1H/95 block:block_rq_issue:8,0 R", "kworker/0:1H", Some(95)),
            ("  9.133 (         ): Web Content/12 block:block_rq_issue:8,0 R", "Web Content", Some(12)),
            ("  9.133 block:block_rq_issue:8,0 R", "", None),
            ("  9.133 dd/3 block:block_rq_issue(8,0 R)", "dd", Some(3)),
        ] {
            let (found, found_id, time, event, payload) = parts(line);
            assert_eq!((found.as_str(), found_id, time), (name, id, 9_133), "{line}");
            assert_eq!((event.as_str(), payload.as_str()), ("block_rq_issue", "8,0 R"), "{line}");
        }
    }

    #[test]
    fn lines_of_the_tracer_blk_have_no_event() {
        let (_, _, _, event, payload) = parts("dd-2391 [001] .....  5.104440: 179,0    D   W 1056768 + 8 [dd]");
        assert_eq!((event.as_str(), payload.as_str()), ("", "179,0    D   W 1056768 + 8 [dd]"));
    }

    #[test]
    fn other_lines_are_no_events() {
        for line in [
            "",
            "[",
            "cpus=24",
            "=> __schedule (ffffffc0110a0b1c)",
            "   ffffffffb12d5040 blk_mq_start_request+0xa0 ([kernel.kallsyms])",
            "read: IOPS=1.5k, BW=12.0MiB/s (12.6MB/s)(1024MiB/85.3s)",
            "  lat (usec): min=12, max=3.5, avg=1.25: stdev=1",
            "[  123.456789] mmc0: new HS400 MMC card at address 0001",
            "2564656 + 8 [kworker/u16:3]",
        ] {
            assert!(FtraceLine::of(line.as_bytes()).is_none(), "{line}");
        }
    }
}
