//! Converts the threads of a recording into the text of a program.

use std::fmt::Write;

use emmclab_base::{ByteSize, Error, ErrorClass, Result};
use emmclab_host::FileClass;

use super::LearnOptions;
use super::recording::CallRecording;
use super::thread_items::{PriorExistence, RecordedFile, RecordedFileOp, RecordedThread, ThreadItem};
use crate::program::{AccessPattern, FileAccess, FilePickOrder, FileSelection, FileSet, ProgramStep};
use crate::random_draws::Amount;

/// Two accesses of one file are combined if the CPU work between them is at most this long, in ns.
const SMALL_NS: i64 = 50_000;
/// Maximum number of steps of all threads together.
const MOST_STEPS: usize = 1 << 20;

/// Returns the program of a recording as TOML. `source` is the value of its key `source`; `waited` is the thread that the user waits for.
/// Errors: [`ErrorClass::Value`] if it has too many steps.
pub(super) fn program(
    recording: &CallRecording, options: &LearnOptions, about: &str, source: &str, waited: &str,
) -> Result<String> {
    let names = LearnedNames::of(recording, options);
    let mut out = String::new();
    for (key, value) in [("name", options.name.as_str()), ("about", about), ("source", source), ("user_waits_for", waited)] {
        let _ = writeln!(out, "{key} = {}", toml::Value::String(value.to_owned()));
    }
    for (number, file) in recording.files.all.iter().enumerate().filter(|(number, _)| names.used[*number]) {
        let set = FileSet {
            name: names.files[number].clone(),
            class: class_of(&file.path),
            partition: names.partitions[number].clone(),
            count: 1,
            size: (file.before == PriorExistence::There).then_some(Amount::Fixed(ByteSize(file.first_size))),
            working_set: None,
        };
        out.push_str("\n[[file]]\n");
        out.push_str(&toml::to_string(&set).map_err(unwritable)?);
    }
    let mut steps = 0;
    for thread in &recording.threads {
        let written = names.steps(thread, recording);
        steps += written.len();
        if steps > MOST_STEPS {
            return Err(Error::new(ErrorClass::Value, format!("the program would have more than {MOST_STEPS} steps"))
                .hint("learn the program from a part of the recording"));
        }
        let _ = write!(out, "\n[[thread]]\nname = {}\n", toml::Value::String(thread.name()));
        if thread.started {
            out.push_str("at_begin = false\n");
        }
        out.push_str("steps = [\n");
        for step in written {
            let step = on_factor_one(step, options.cpu_factor);
            let value = toml::Value::try_from(&step).map_err(unwritable)?;
            let _ = writeln!(out, "    {value},");
        }
        out.push_str("]\n");
    }
    Ok(out)
}

/// Groups of files that must be on one partition (union-find). Each file has the index of another file of its group, or its own.
struct PartitionGroups(Vec<usize>);

impl PartitionGroups {
    fn of(files: usize) -> Self {
        Self((0..files).collect())
    }

    fn first(&self, mut file: usize) -> usize {
        while self.0[file] != file {
            file = self.0[file];
        }
        file
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.first(one), self.first(other));
        self.0[one.max(other)] = one.min(other);
    }
}

fn unwritable(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorClass::Value, format!("the program cannot be written: {error}"))
}

/// Names of the files in the learned program. A file is named after its path; further files with an equal path also get a number.
struct LearnedNames {
    files: Vec<String>,
    /// For each file, whether a recorded operation uses it. A file that is only looked up by its path is not used.
    used: Vec<bool>,
    /// The partition of each file.
    partitions: Vec<String>,
}

impl LearnedNames {
    fn of(recording: &CallRecording, options: &LearnOptions) -> Self {
        let mut seen = rustc_hash::FxHashMap::<&str, u32>::default();
        let files = recording.files.all.iter().map(|file| {
            let count = seen.entry(&file.path).or_default();
            *count += 1;
            if *count == 1 { file.path.clone() } else { format!("{} #{count}", file.path) }
        });
        let files = files.collect();
        let mut used = vec![false; recording.files.all.len()];
        let mut together = PartitionGroups::of(used.len());
        for item in recording.threads.iter().flat_map(|thread| &thread.items) {
            if let ThreadItem::File(file, operation) = item {
                used[*file] = true;
                if let RecordedFileOp::Rename { to } = operation {
                    used[*to] = true;
                    together.join(*file, *to);
                }
            }
        }
        // A rename cannot cross file systems. All files that are connected by renames are therefore on one partition, that of the first
        // file.
        let partitions = (0..used.len())
            .map(|file| options.partition_of(&recording.files.all[together.first(file)].path).to_owned())
            .collect();
        Self { files, used, partitions }
    }

    /// Returns the steps of a thread. Consecutive accesses of equal size are combined into one step.
    fn steps(&self, thread: &RecordedThread, recording: &CallRecording) -> Vec<ProgramStep> {
        let mut steps: Vec<ProgramStep> = Vec::new();
        let since = thread.started_ns - recording.first.unwrap_or(thread.started_ns);
        if !thread.started && since > 0 {
            // The thread existed before the recording began. The time until its first recorded call is imported as a pause.
            steps.push(ProgramStep::Think { ms: ms(since) });
        }
        for item in &thread.items {
            match item {
                ThreadItem::Cpu(ns) => match steps.last_mut() {
                    Some(ProgramStep::Cpu { ms: Amount::Fixed(known) }) => {
                        *known = rounded(*known + *ns as f64 / 1e6);
                    }
                    _ if *ns >= 1_000 => {
                        steps.push(ProgramStep::Cpu { ms: ms(*ns) });
                    }
                    _ => {}
                },
                ThreadItem::Pause(ns) => steps.push(ProgramStep::Think { ms: ms(*ns) }),
                ThreadItem::Network { bytes, round_trips } => steps.push(ProgramStep::Network {
                    size: Amount::Fixed(ByteSize(*bytes)),
                    round_trips: Amount::Fixed(*round_trips),
                }),
                ThreadItem::Sync => steps.push(ProgramStep::Sync {}),
                ThreadItem::Mark => {}
                ThreadItem::Start(other) => {
                    steps.push(ProgramStep::Start { thread: recording.threads[*other].name() });
                }
                ThreadItem::Signal(number) => steps.push(ProgramStep::Signal { name: signal(*number) }),
                ThreadItem::Wait(number) => steps.push(ProgramStep::Wait { name: signal(*number) }),
                ThreadItem::File(file, operation) => {
                    if let Some(step) = self.step(*file, *operation, &recording.files.all[*file]) {
                        merge(&mut steps, step);
                    }
                }
            }
        }
        steps
    }

    fn step(&self, file: usize, operation: RecordedFileOp, known: &RecordedFile) -> Option<ProgramStep> {
        let name = &self.files[file];
        let access = |bytes: u64, place: Option<AccessPattern>| FileAccess {
            file: name.clone(),
            size: Amount::Fixed(ByteSize(bytes)),
            count: Amount::Fixed(1),
            place,
            pick: FilePickOrder::Same,
        };
        let picked = || FileSelection { file: name.clone(), pick: FilePickOrder::Same };
        let random = |sequential: bool| Some(if sequential { AccessPattern::Sequential } else { AccessPattern::Random });
        Some(match operation {
            RecordedFileOp::Read { bytes, sequential } => ProgramStep::Read(access(bytes, random(sequential))),
            RecordedFileOp::Write { bytes } => ProgramStep::Write(access(bytes, None)),
            RecordedFileOp::Overwrite { bytes } => ProgramStep::Overwrite(access(bytes, Some(AccessPattern::Random))),
            RecordedFileOp::Append { bytes } => ProgramStep::Append(access(bytes, None)),
            RecordedFileOp::OpenOrCreate if known.before == PriorExistence::There => return None,
            RecordedFileOp::OpenOrCreate => ProgramStep::Create { file: name.clone() },
            RecordedFileOp::Delete => ProgramStep::Delete(picked()),
            RecordedFileOp::Rename { to } => ProgramStep::Rename { file: name.clone(), to: self.files[to].clone() },
            RecordedFileOp::Truncate { bytes } => {
                ProgramStep::Truncate { file: name.clone(), size: Amount::Fixed(ByteSize(bytes)), pick: FilePickOrder::Same }
            }
            RecordedFileOp::Fsync { data_only: false } => ProgramStep::Fsync(picked()),
            RecordedFileOp::Fsync { data_only: true } => ProgramStep::Fdatasync(picked()),
        })
    }
}

/// Appends a step. An access of the same kind as the last step is combined with that step. CPU work of at most [`SMALL_NS`] between the two
/// is placed before both.
fn merge(steps: &mut Vec<ProgramStep>, step: ProgramStep) {
    let small = |step: &ProgramStep| matches!(step, ProgramStep::Cpu { ms: Amount::Fixed(ms) } if *ms * 1e6 <= SMALL_NS as f64);
    let behind = usize::from(steps.last().is_some_and(small));
    let at = steps.len().checked_sub(1 + behind);
    let alike = at.is_some_and(|at| alike(&steps[at], &step));
    let Some(at) = at.filter(|_| alike) else {
        steps.push(step);
        return;
    };
    if let Some(access) = access_of(&mut steps[at])
        && let Amount::Fixed(count) = &mut access.count
    {
        *count += 1;
    }
    if behind == 1 {
        let work = steps.pop();
        match (at.checked_sub(1).map(|before| &mut steps[before]), work) {
            (Some(ProgramStep::Cpu { ms: Amount::Fixed(known) }), Some(ProgramStep::Cpu { ms: Amount::Fixed(more) })) => {
                *known = rounded(*known + more);
            }
            (_, Some(work)) => steps.insert(at, work),
            _ => {}
        }
    }
}

fn access_of(step: &mut ProgramStep) -> Option<&mut FileAccess> {
    match step {
        ProgramStep::Read(access) | ProgramStep::Write(access) | ProgramStep::Overwrite(access) | ProgramStep::Append(access) => {
            Some(access)
        }
        _ => None,
    }
}

/// Whether two accesses are equal except for their counts.
fn alike(first: &ProgramStep, second: &ProgramStep) -> bool {
    let (mut first, mut second) = (first.clone(), second.clone());
    for step in [&mut first, &mut second] {
        let Some(access) = access_of(step) else { return false };
        access.count = Amount::Fixed(1);
    }
    first == second
}

fn signal(number: u32) -> String {
    format!("order {number}")
}

/// Converts the CPU work of a step from a machine with CPU factor `cpu_factor` to a core of CPU factor 1.
fn on_factor_one(step: ProgramStep, cpu_factor: f64) -> ProgramStep {
    match step {
        ProgramStep::Cpu { ms: Amount::Fixed(ms) } => ProgramStep::Cpu { ms: Amount::Fixed(rounded(ms / cpu_factor)) },
        other => other,
    }
}

/// Converts ns to milliseconds, rounded to three decimals.
fn ms(ns: i64) -> Amount<f64> {
    Amount::Fixed(rounded(ns as f64 / 1e6))
}

fn rounded(ms: f64) -> f64 {
    (ms * 1e3).round() / 1e3
}

/// The class of a file, derived from its name by the naming rules of SQLite and Android.
fn class_of(path: &str) -> FileClass {
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    if ["-journal", "-wal", "-mj"].iter().any(|end| name.ends_with(end) || name.contains(&format!("{end}."))) {
        return FileClass::DatabaseJournal;
    }
    if [".db", ".sqlite", ".sqlite3", ".db3"].iter().any(|end| name.ends_with(end)) {
        return FileClass::Database;
    }
    let cached = path.to_ascii_lowercase().split('/').any(|part| matches!(part, "cache" | "caches" | ".cache"));
    if cached { FileClass::Cache } else { FileClass::Other }
}
