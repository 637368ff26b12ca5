//! The thread that the user waits for: which one it is, and whether a device can change most of its time.

use std::fmt::Write;

use emmclab_base::{Error, ErrorClass, Result};
use serde::Serialize;

use super::LearnOptions;
use super::call_waits::CallWaits;
use super::recording::CallRecording;
use super::thread_items::RecordedThread;

/// Waits, and work after the end of the thread, up to this time are never refused, in ns.
const LEAST_REFUSED_NS: i64 = 10_000_000;
/// Waits of a kind that are shorter than this are not named in an error, in ns: they would be rounded to nothing.
const LEAST_TOLD_NS: i64 = 500_000;
/// Maximum number of threads that an error lists.
const MOST_LISTED: usize = 12;

/// How the thread that the user waits for spent its time, itself and through threads that it waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UserThreadTime {
    /// Its name in the program.
    pub thread: String,
    /// The program that it executed; empty if its start was not recorded.
    pub runs: String,
    /// From its first call to its end, in ns.
    pub lasted_ns: i64,
    /// Sleeps, timeouts and stops by a signal; they have the same length on every device.
    pub asleep_ns: i64,
    /// Waits whose cause is not in the recording; they have the same length on every device.
    pub unexplained_ns: i64,
    /// How long other threads worked or used files after its end; the program omits this.
    pub behind_ns: i64,
}

/// The thread that the user waits for: the requested one, else the first one.
///
/// # Errors
/// [`ErrorClass::Config`] for an unknown thread. [`ErrorClass::Value`] if the recording has no threads, if the thread mostly sleeps or waits for
/// something that is not recorded, or if the first thread ends before most of the work.
pub(super) fn of(recording: &CallRecording, options: &LearnOptions) -> Result<UserThreadTime> {
    let named: Vec<_> = recording.threads.iter().map(RecordedThread::name).collect();
    let found = match &options.user_waits_for {
        Some(wanted) => {
            let is_it = |name: &String| name == wanted || name.strip_prefix("thread ") == Some(wanted);
            named.iter().position(is_it).ok_or_else(|| {
                Error::new(ErrorClass::Config, "the recording has no such thread")
                    .of_field("user_waits_for", 0, wanted.as_bytes())
                    .hint(format!("give the kernel's number of a thread; there are: {}", listed(recording)))
            })?
        }
        None if named.is_empty() => {
            return Err(Error::new(ErrorClass::Value, "the recording has no system call that has returned")
                .hint("record with `strace -f -ttt -T -y -o FILE COMMAND`"));
        }
        None => 0,
    };
    let thread = &recording.threads[found];
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

/// How long a thread neither slept nor waited for an unknown cause after a time, in ns.
fn busy_behind(thread: &RecordedThread, at: i64) -> i64 {
    let from = thread.started_ns.max(at);
    let idle =
        |waits: &CallWaits| waits.between(from, thread.at).iter().map(|(begun, ended)| ended - begun).sum::<i64>();
    (thread.at - from).max(0) - idle(&thread.asleep) - idle(&thread.unexplained)
}

/// Returns an error if the thread was not requested and ends before most of the work is done, such as a shell with children in the
/// background: the program would end with it.
fn refuse_early_end(
    recording: &CallRecording,
    time: &UserThreadTime,
    thread: &RecordedThread,
    other: &RecordedThread,
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

/// Returns an error if the thread mostly sleeps or waits for something that is not recorded: in the program each such wait is a pause of
/// the same length on every device.
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

/// A list of the first threads, with their programs and durations.
fn listed(recording: &CallRecording) -> String {
    let threads = recording.threads.iter();
    let mut found: Vec<_> = threads
        .take(MOST_LISTED)
        .map(|thread| {
            let program = if thread.program.is_empty() { "" } else { ", " };
            format!("{} ({}{program}{:.3} s)", thread.number, thread.program, seconds(thread.at - thread.started_ns))
        })
        .collect();
    if recording.threads.len() > MOST_LISTED {
        found.push(format!("and {} more", recording.threads.len() - MOST_LISTED));
    }
    found.join(", ")
}

fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}
