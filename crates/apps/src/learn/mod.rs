//! Learns a program from a recording of system calls by strace, or by the syscall events of ftrace.
//!
//! The recording provides the threads, their file operations with sizes and offsets, their transfers, and the order in which threads use
//! shared files. The duration of file operations comes from the simulation. Time without a known operation becomes CPU work, or a pause if
//! a call waited for a cause that is not in the recording.

mod build;
mod calls;
mod clock;
mod recording;
mod strace;
mod thread_items;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::BufRead;

use emmclab_base::{Error, ErrorClass, Result, interrupt};
use serde::Serialize;

use crate::program::AppProgram;
pub use calls::{RecordedArgument, RecordedSystemCall, strace_calls};
use recording::CallRecording;
pub use recording::CallTimes;
use strace::{FtraceCallParser, StraceParser, only_recorded_calls};
use thread_items::{CallWaits, RecordedThread};

/// Maximum length of a line in bytes. Lines of real recordings are shorter, because strace shortens strings.
const LONGEST_LINE: u64 = 1 << 20;
/// Maximum CPU factor, as for hosts.
const MOST_CPU_FACTOR: f64 = 1e3;
/// Number of lines between two checks for an interruption.
const INTERRUPT_EVERY: u64 = 4096;
const HOW: &str = "record with `strace -f -ttt -T -y -o FILE COMMAND`, or the syscall events of ftrace";

/// Options for learning a program.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnOptions {
    /// The name of the program.
    pub name: String,
    /// Names of partitions, each with a folder. A file is on the partition with the longest matching folder, otherwise on the first one.
    pub partitions: Vec<(String, String)>,
    /// The thread that the user waits for; `None` for the first thread.
    pub user_waits_for: Option<String>,
    /// Whether to learn a program from a recording in which the user's thread mostly sleeps or waits for unknown causes. Without this
    /// option, such a recording is rejected.
    pub keep_pauses: bool,
    /// CPU factor of the recorded machine, as in [`crate::HostSetup::cpu_factor`]. Programs specify work for a core of CPU factor 1. A core
    /// of factor 0.25 is four times as fast.
    pub cpu_factor: f64,
}

impl LearnOptions {
    fn partition_of(&self, path: &str) -> &str {
        let inside = |folder: &str| {
            let folder = folder.trim_end_matches('/');
            path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
        };
        let deepest = self.partitions.iter().filter(|(_, folder)| inside(folder)).max_by_key(|(_, folder)| folder.len());
        deepest.or(self.partitions.first()).map_or("data", |(partition, _)| partition)
    }
}

/// A learned program, with statistics of the recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LearnedProgram {
    /// The program, as TOML.
    pub program: String,
    /// The format of the recording: `strace` or `ftrace`.
    pub format: &'static str,
    /// Length of the recording, in ns.
    pub length_ns: i64,
    /// Number of threads.
    pub threads: usize,
    /// Number of files in the program.
    pub files: usize,
    /// Number of lines in the recording.
    pub lines: u64,
    /// Number of lines that were ignored, because they are not system calls in this format.
    pub unreadable_lines: u64,
    /// The kinds of calls in the recording, if the recorder was restricted to some kinds; empty for a recording of all calls.
    pub only_calls: Vec<String>,
    /// Number of calls that the program omits, and of lines that are not system calls, by kind.
    pub dropped: BTreeMap<String, u64>,
    /// Recorded time by cause, and counts of activity that the recording cannot show.
    pub known: CallTimes,
    /// How the thread that the user waits for spent its time.
    pub user: UserThreadTime,
}

/// Learns a program from a recording.
/// Errors: [`ErrorClass::Syntax`] with the line if the first lines are not a recording. [`ErrorClass::Value`] if there are no calls or too
/// many, if there are syncs but no writes, or if most of the user's time would be the same on every device. [`ErrorClass::Config`] for an
/// unknown thread or an impossible CPU factor.
pub fn learn(mut reader: impl BufRead, options: &LearnOptions) -> Result<LearnedProgram> {
    if !(options.cpu_factor > 0.0 && options.cpu_factor <= MOST_CPU_FACTOR) {
        return Err(Error::new(ErrorClass::Config, "the CPU factor must be above 0 and at most 1000")
            .of_field("cpu_factor", 0, options.cpu_factor.to_string().as_bytes())
            .hint("give a factor above 0 and up to 1000; 0.25 means a core that is four times as fast as a 1 GHz core of 2010"));
    }
    let head = reader.fill_buf().map_err(|error| Error::new(ErrorClass::Io, error.to_string()))?;
    let (mut strace, mut ftrace) = (StraceParser::new(&String::from_utf8_lossy(head)), FtraceCallParser::default());
    let mut recording = CallRecording::default();
    let (mut lines, mut unreadable, mut format, mut problem) = (0_u64, 0_u64, None, "the line is not a system call");
    let mut bytes = Vec::new();
    loop {
        if lines.is_multiple_of(INTERRUPT_EVERY) {
            interrupt::check()?;
        }
        bytes.clear();
        let read = std::io::Read::take(&mut reader, LONGEST_LINE)
            .read_until(b'\n', &mut bytes)
            .map_err(|error| Error::new(ErrorClass::Io, error.to_string()))?;
        if read == 0 {
            break;
        }
        lines += 1;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_end_matches(['\n', '\r']);
        if text.trim().is_empty() {
            continue;
        }
        let mut understood = false;
        if format != Some("ftrace") {
            match strace.line(text) {
                strace::StraceLine::Call(call) => {
                    (format, understood) = (Some("strace"), true);
                    recording.call(&call);
                }
                strace::StraceLine::Exit(thread, at) => {
                    (format, understood) = (Some("strace"), true);
                    recording.exit(thread, at);
                }
                strace::StraceLine::Began(call) => {
                    understood = true;
                    recording.began(&call);
                }
                strace::StraceLine::CutOff(call) => {
                    understood = true;
                    recording.cut_off(&call);
                    recording.drops(strace::NO_RESULT);
                }
                strace::StraceLine::Stop(thread, at, stopped) => {
                    understood = true;
                    recording.stops(thread, at, stopped);
                    recording.drops(strace::SIGNALS);
                }
                strace::StraceLine::Other(kind) => {
                    understood = true;
                    recording.drops(kind);
                }
                strace::StraceLine::Unreadable(reason) => problem = reason,
            }
        }
        if !understood && format != Some("strace") {
            match ftrace.line(text) {
                strace::FtraceCallLine::Call(call) => {
                    (format, understood) = (Some("ftrace"), true);
                    recording.call(&call);
                }
                strace::FtraceCallLine::Other => understood = true,
                strace::FtraceCallLine::Unreadable => {}
            }
        }
        unreadable += u64::from(!understood);
        if format.is_none() && unreadable > 100 {
            break;
        }
    }
    let Some(format) = format.filter(|_| recording.times.calls > 0) else {
        let nothing = if lines == 0 { "the recording is empty" } else { problem };
        return Err(Error::new(ErrorClass::Syntax, nothing).at_line(lines.clamp(1, unreadable.max(1))).hint(HOW));
    };
    recording.finish();
    let length = recording.last - recording.first.unwrap_or(recording.last);
    let only_calls = only_recorded_calls(&recording.calls)?;
    let only = if only_calls.is_empty() { String::new() } else { format!(", only of {}", only_calls.join(", ")) };
    let about = format!(
        "Learned from a recording of {format}: {} calls{only} of {} threads in {:.1} s",
        recording.times.calls,
        recording.threads.len(),
        length as f64 / 1e9,
    );
    let source = source(&recording, format, options.cpu_factor);
    let user = judge_user_thread(&recording, options)?;
    let program = build::program(&recording, options, &about, &source, &user.thread)?;
    let checked = AppProgram::from_toml(&program)?;
    Ok(LearnedProgram {
        format,
        length_ns: length,
        threads: checked.threads.len(),
        files: checked.files.len(),
        lines,
        unreadable_lines: unreadable,
        known: recording.times,
        user,
        only_calls,
        dropped: recording.dropped,
        program,
    })
}

/// Describes the source of the program's figures, and the assumptions.
fn source(recording: &CallRecording, format: &str, cpu_factor: f64) -> String {
    let known = &recording.times;
    let seconds = |ns: i64| ns as f64 / 1e9;
    let mut text = format!(
        "A recording of {format}. Taken from it: threads, files, sizes and places of accesses, syncs, transfers. Assumed: \
         {:.3} s between calls are work on a core of CPU factor {cpu_factor}, {:.3} s in calls that wait (futex, poll) are pauses of that length, \
         whatever they waited for, and so are {:.3} s asleep (sleeps, timeouts, stops by a signal). Left to the model: {:.3} s in calls on files, {:.3} s of waiting for the network and \
         {:.3} s of waiting for other threads and processes.",
        seconds(known.work_ns),
        seconds(known.pause_ns),
        seconds(known.asleep_ns),
        seconds(known.storage_ns),
        seconds(known.network_ns),
        seconds(known.awaited_ns),
    );
    if known.untimed_calls > 0 {
        let _ = write!(
            text,
            " {} calls have no duration (strace -T): of these, calls that wait and calls that reach files last until their thread's \
             next call, others no time.",
            known.untimed_calls,
        );
    }
    if !recording.dropped.is_empty() {
        let all: Vec<_> = recording.dropped.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let _ = write!(text, " Left out: {}.", all.join(", "));
    }
    for (count, what) in [
        (known.mapped_files, "files were mapped into memory: what is read and written there is not seen"),
        (known.unseen_requests, "requests went through io_uring or asynchronous I/O and are not seen"),
        (known.unknown_descriptors, "calls were on files whose opening is not in the recording"),
    ] {
        if count > 0 {
            let _ = write!(text, " {count} {what}.");
        }
    }
    text
}

#[cfg(test)]
mod tests;

/// Minimum time, in ns, for which a recording is rejected because of pauses, or because of work after the end of the user's thread.
const LEAST_REFUSED_NS: i64 = 10_000_000;
/// Shortest total wait of a kind that an error lists, in ns. Shorter waits would be rounded to 0.000 s.
const LEAST_TOLD_NS: i64 = 500_000;
/// Maximum number of threads that an error lists.
const MOST_LISTED: usize = 12;

/// How the thread that the user waits for spent its time, including the threads that it waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UserThreadTime {
    /// Name of the thread in the program.
    pub thread: String,
    /// The program that the thread executed; empty if its start was not recorded.
    pub runs: String,
    /// Time from the thread's first call to its end, in ns.
    pub lasted_ns: i64,
    /// Time in sleeps, timeouts and stops by a signal, in ns. It does not depend on the device.
    pub asleep_ns: i64,
    /// Time in waits whose cause is not in the recording, in ns. It does not depend on the device.
    pub unexplained_ns: i64,
    /// Time after the end of this thread in which other threads still worked or used files, in ns. The learned program does not contain
    /// this time.
    pub behind_ns: i64,
}

/// Selects the thread that the user waits for: the requested thread, or the first one if none is requested.
/// Errors: [`ErrorClass::Config`] for an unknown thread. [`ErrorClass::Value`] if the recording has no threads, if the thread mostly sleeps
/// or waits for something that is not recorded, or if the first thread ends before most of the work.
fn judge_user_thread(recording: &CallRecording, options: &LearnOptions) -> Result<UserThreadTime> {
    let named: Vec<_> = recording.threads.iter().map(RecordedThread::name).collect();
    let index = match &options.user_waits_for {
        Some(wanted) => {
            let is_it = |name: &String| name == wanted || name.strip_prefix("thread ") == Some(wanted);
            named.iter().position(is_it).ok_or_else(|| {
                Error::new(ErrorClass::Config, "the recording has no such thread")
                    .of_field("user_waits_for", 0, wanted.as_bytes())
                    .hint(format!("give the kernel's number of a thread; the recording has the threads {}", listed(recording)))
            })?
        }
        None if named.is_empty() => {
            return Err(Error::new(ErrorClass::Value, "the recording has no system call that has returned")
                .hint("record with `strace -f -ttt -T -y -o FILE COMMAND`"));
        }
        None => 0,
    };
    let thread = &recording.threads[index];
    let last = (recording.threads.iter())
        .map(|other| (busy_behind(other, thread.at), other))
        .max_by_key(|(busy, _)| *busy)
        .filter(|(busy, _)| *busy > 0);
    let time = UserThreadTime {
        thread: thread.name(),
        runs: thread.program.clone(),
        lasted_ns: thread.at - thread.started_ns,
        asleep_ns: thread.asleep.total(),
        unexplained_ns: thread.unexplained.total(),
        behind_ns: last.map_or(0, |(busy, _)| busy),
    };
    if let Some((_, other)) = last.filter(|_| options.user_waits_for.is_none()) {
        refuse_early_end(recording, &time, thread, other)?;
    }
    if !options.keep_pauses {
        refuse_pauses(recording, &time, thread)?;
    }
    Ok(time)
}

/// How long a thread worked or used files after the time `at`, in ns. Sleeps and waits for unknown causes do not count.
fn busy_behind(thread: &RecordedThread, at: i64) -> i64 {
    let from = thread.started_ns.max(at);
    let idle = |waits: &CallWaits| waits.between(from, thread.at).iter().map(|(begun, ended)| ended - begun).sum::<i64>();
    (thread.at - from).max(0) - idle(&thread.asleep) - idle(&thread.unexplained)
}

/// Returns an error if the first thread, for which the user waits by default, ends before most of the work is done, because the program
/// would end with it. An example is a shell that starts processes in the background.
fn refuse_early_end(
    recording: &CallRecording, time: &UserThreadTime, thread: &RecordedThread, other: &RecordedThread,
) -> Result<()> {
    let busy = time.lasted_ns - time.asleep_ns - time.unexplained_ns;
    if time.behind_ns <= LEAST_REFUSED_NS || time.behind_ns <= busy {
        return Ok(());
    }
    let problem = format!(
        "{} ends after {:.3} s, and {} continues with {:.3} s of work: the program ends with the thread that the user waits for",
        thread.title(),
        seconds(time.lasted_ns),
        other.title(),
        seconds(time.behind_ns),
    );
    Err(Error::new(ErrorClass::Value, problem).hint(format!(
        "let a shell wait for its children (`wait`), or name the thread with --user-waits-for: {}",
        listed(recording)
    )))
}

/// Returns an error if the thread mostly sleeps or waits for something that is not recorded. Each such wait would become a pause, whose
/// length does not depend on the device.
fn refuse_pauses(recording: &CallRecording, time: &UserThreadTime, thread: &RecordedThread) -> Result<()> {
    let waited = time.asleep_ns + time.unexplained_ns;
    if waited <= LEAST_REFUSED_NS || waited * 2 <= time.lasted_ns {
        return Ok(());
    }
    let kinds = [("asleep", &thread.asleep), ("for causes that are not in the recording", &thread.unexplained)];
    let kinds = kinds.iter().filter(|(_, waits)| waits.total() >= LEAST_TOLD_NS).map(|(what, waits)| {
        let calls = waits.longest(3);
        let calls: Vec<_> = calls.iter().map(|(name, ns)| format!("{name} {:.3} s", seconds(*ns))).collect();
        format!("{:.3} s {what} ({})", seconds(waits.total()), calls.join(", "))
    });
    let problem = format!(
        "{} waits for {:.3} of its {:.3} s, {}: in the program these are pauses of that length on every device",
        thread.title(),
        seconds(waited),
        seconds(time.lasted_ns),
        kinds.collect::<Vec<_>>().join(", and "),
    );
    let mut hint = "keep them with --keep-pauses".to_owned();
    if time.asleep_ns >= LEAST_TOLD_NS {
        hint.push_str("; record the command without its sleeps");
    }
    if time.unexplained_ns >= LEAST_TOLD_NS {
        hint.push_str("; record all processes with `strace -f -ttt -T -y`");
    }
    if recording.threads.len() > 1 {
        let _ = write!(hint, "; or name another thread by its number, with --user-waits-for: {}", listed(recording));
    }
    Err(Error::new(ErrorClass::Value, problem).hint(hint))
}

/// Lists the first threads with their programs and durations, for an error message.
fn listed(recording: &CallRecording) -> String {
    let threads = recording.threads.iter();
    let mut listed: Vec<_> = threads
        .take(MOST_LISTED)
        .map(|thread| {
            let program = if thread.program.is_empty() { "" } else { ", " };
            format!("{} ({}{program}{:.3} s)", thread.number, thread.program, seconds(thread.at - thread.started_ns))
        })
        .collect();
    if recording.threads.len() > MOST_LISTED {
        listed.push(format!("and {} more", recording.threads.len() - MOST_LISTED));
    }
    listed.join(", ")
}

fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}
