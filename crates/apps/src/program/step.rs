//! The steps of a thread. In a program file each step is a table whose only key is the name of the step: `{ cpu = { ms = 12 } }`.

use std::collections::BTreeSet;

use emmclab_base::{ByteSize, Error, ErrorClass, Result};
use emmclab_host::FileClass;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AppProgram;
use crate::random_draws::{Amount, DrawableQuantity};

/// A step of a thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ProgramStep {
    /// Uses a core for some time.
    Cpu {
        /// Duration of the work on a core of CPU factor 1, in ms.
        ms: Amount<f64>,
    },
    /// Pauses without using a core, as for the think time of a user or for a timer.
    Think {
        /// Length of the pause, in ms.
        ms: Amount<f64>,
    },
    /// Transfers data over the network.
    Network {
        /// Number of bytes to transfer, in either direction.
        size: Amount<ByteSize>,
        /// Number of network round trips before the data is transferred.
        #[serde(default = "once")]
        round_trips: Amount<u64>,
    },
    /// Creates the next file of a set, or truncates it to 0 bytes if it exists.
    Create {
        /// Name of the set of files.
        file: String,
    },
    /// Reads from a file.
    Read(FileAccess),
    /// Writes after the last access of this thread to the file, and extends the file if necessary.
    Write(FileAccess),
    /// Writes within the file, or within its working set.
    Overwrite(FileAccess),
    /// Writes at the end of the file.
    Append(FileAccess),
    /// Makes data and metadata of a file durable with `fsync`.
    Fsync(FileSelection),
    /// Makes the data of a file durable, and the metadata that is needed to read it, with `fdatasync`.
    Fdatasync(FileSelection),
    /// Deletes a file.
    Delete(FileSelection),
    /// Renames a file to the path of another file, which it replaces.
    Rename {
        /// Name of the set whose file is renamed; it is the thread's current file of this set.
        file: String,
        /// Name of the file set that contains the replaced file, which is the thread's current file of this set.
        to: String,
    },
    /// Truncates a file, or extends it by a hole.
    Truncate {
        /// Name of the set of files.
        file: String,
        /// The new size of the file.
        size: Amount<ByteSize>,
        /// Which file of the set is used.
        #[serde(default, skip_serializing_if = "is_same")]
        pick: FilePickOrder,
    },
    /// Makes all data on all partitions durable, like the command `sync`.
    Sync {},
    /// Executes write transactions of a database.
    Transaction {
        /// Name of the database.
        database: String,
        /// Number of transactions.
        #[serde(default = "once")]
        count: Amount<u64>,
        /// Number of pages that each transaction changes, in addition to the first page of the file, which contains the change counter.
        pages: Amount<u64>,
        /// Number of pages that each transaction adds to the file.
        #[serde(default = "zero_amount")]
        new_pages: Amount<u64>,
    },
    /// Reads from a database.
    Query {
        /// Name of the database.
        database: String,
        /// Number of queries.
        #[serde(default = "once")]
        count: Amount<u64>,
        /// Number of pages that each query reads.
        pages: Amount<u64>,
    },
    /// Sends a signal, which wakes one thread: one that already waits for it, or the next one that will wait for it.
    Signal {
        /// The name of the signal.
        name: String,
    },
    /// Waits for a signal. Each signal wakes one thread.
    Wait {
        /// The name of the signal.
        name: String,
    },
    /// Executes steps under a lock: only one thread at a time executes them, in the order in which threads arrive.
    Lock {
        /// The name of the lock.
        name: String,
        /// The steps under the lock.
        steps: Vec<ProgramStep>,
    },
    /// Starts a thread.
    Start {
        /// Name of the thread to start.
        thread: String,
    },
    /// Waits for the end of a thread.
    Join {
        /// Name of the thread to wait for.
        thread: String,
    },
    /// Repeats steps.
    Repeat {
        /// Number of repetitions; by default until the program ends, which is only allowed in a thread that no other thread waits for.
        times: Option<Amount<u64>>,
        /// The steps that are repeated.
        steps: Vec<ProgramStep>,
    },
    /// Executes steps with a probability.
    Maybe {
        /// The probability, in percent.
        pct: f64,
        /// The steps that may be executed.
        steps: Vec<ProgramStep>,
    },
    /// Executes the steps of a procedure.
    Call {
        /// Name of the procedure.
        procedure: String,
    },
}

/// Parameters of the reads or writes of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileAccess {
    /// Name of the set of files.
    pub file: String,
    /// Number of bytes of each access.
    pub size: Amount<ByteSize>,
    /// Number of accesses.
    #[serde(default = "once", skip_serializing_if = "is_one")]
    pub count: Amount<u64>,
    /// Position of each access in the file; only for `read` and `overwrite`.
    pub place: Option<AccessPattern>,
    /// Which file of the set is used.
    #[serde(default, skip_serializing_if = "is_same")]
    pub pick: FilePickOrder,
}

/// Selects the file of a set that a step uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileSelection {
    /// Name of the set of files.
    pub file: String,
    /// Which file of the set is used.
    #[serde(default, skip_serializing_if = "is_same")]
    pub pick: FilePickOrder,
}

/// How the position of an access in the file is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccessPattern {
    /// Directly after the last access of the thread. After the end of the working set, access continues at its beginning.
    Sequential,
    /// At a random multiple of 4 KB in the working set. Accesses smaller than 4 KB are at a random multiple of their size.
    Random,
}

/// How a file of a set is selected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FilePickOrder {
    /// The file that the thread used last; initially the first one.
    #[default]
    Same,
    /// The existing file after the one that the thread used last.
    Next,
    /// A random existing file.
    Random,
}

fn once() -> Amount<u64> {
    Amount::Fixed(1)
}

fn zero_amount() -> Amount<u64> {
    Amount::Fixed(0)
}

fn is_one(count: &Amount<u64>) -> bool {
    *count == once()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_same(pick: &FilePickOrder) -> bool {
    *pick == FilePickOrder::Same
}

/// Maximum number of threads: the default limit of Linux for thread ids (`PID_MAX_DEFAULT`).
const MOST_THREADS: usize = 32_768;
/// Maximum total number of files in all sets.
const MOST_FILES: u64 = 1 << 20;
/// Maximum number of bytes of an access or transfer.
const MOST_BYTES: u64 = 1 << 40;
/// Maximum number of pages of a transaction or query.
const MOST_PAGES: u64 = 1 << 20;

/// A fault in a program description: the key, its value, the problem, and a hint.
struct ProgramFault {
    key: &'static str,
    value: String,
    problem: String,
    hint: String,
}

type CheckResult = std::result::Result<(), ProgramFault>;

fn fault(key: &'static str, value: &str, problem: impl Into<String>, hint: impl Into<String>) -> CheckResult {
    Err(ProgramFault { key, value: value.to_owned(), problem: problem.into(), hint: hint.into() })
}

impl AppProgram {
    /// Returns an error if the program cannot be run. `text` is the program file, which is used to find the line number of the fault.
    pub(crate) fn check(&self, text: &str) -> Result<()> {
        let names = DeclaredNames::of(self);
        let check_steps = || each_step(self, &mut |inside, step| names.check_step(self, inside, step));
        let all = self.check_sets().and_then(|()| names.check(self)).and_then(|()| check_steps());
        all.map_err(|ProgramFault { key, value, problem, hint }| {
            let error = Error::new(ErrorClass::Config, problem).of_field(key, 0, value.as_bytes()).hint(hint);
            // A duplicate or unknown name is reported at its last occurrence in the text.
            match text.rfind(&format!("\"{value}\"")) {
                Some(at) => error.at_line(text[..at].matches('\n').count() as u64 + 1),
                None => error,
            }
        })
    }

    fn check_sets(&self) -> CheckResult {
        if let Some(beyond) = self.threads.get(MOST_THREADS) {
            let problem = format!("the program has {} threads; the maximum is {MOST_THREADS}", self.threads.len());
            return fault("thread.name", &beyond.name, problem, "use fewer threads, with `repeat`");
        }
        let mut files = 2 * self.databases.len() as u64;
        for set in &self.files {
            files += u64::from(set.count);
            if set.count == 0 || files > MOST_FILES {
                let problem = format!("`count` must be 1 to {MOST_FILES}, over all sets");
                return fault("file.name", &set.name, problem, "give a smaller `count`");
            }
            if matches!(set.class, FileClass::Metadata | FileClass::FilesystemJournal) {
                let problem = format!("`{}` is a class of blocks of the file system", set.class.name());
                return fault("file.name", &set.name, problem, "write database, database_journal, cache or other");
            }
            if let Some(size) = &set.size {
                amount("file.name", &set.name, "size", size, 0..=MOST_BYTES)?;
            }
        }
        for database in &self.databases {
            let page = database.page_size.0;
            if !page.is_power_of_two() || !(512..=65536).contains(&page) {
                let problem = "`page_size` must be a power of two from 512 to 65536";
                return fault("database.name", &database.name, problem, "write page_size = \"4KB\"");
            }
            if database.size.0 < 2 * page || database.size.0 / page > u64::from(u32::MAX) {
                let problem = "`size` must be at least two pages, and at most 2^32 pages";
                return fault("database.name", &database.name, problem, "write size = \"1MB\"");
            }
            if database.checkpoint_pages == 0 {
                let problem = "`checkpoint_pages` must be at least 1";
                return fault("database.name", &database.name, problem, "use 1000, the default of SQLite");
            }
        }
        Ok(())
    }
}

/// The names that the program declares and steps can refer to.
struct DeclaredNames<'a> {
    files: Vec<&'a str>,
    databases: Vec<&'a str>,
    procedures: Vec<&'a str>,
    threads: Vec<&'a str>,
    signalled: BTreeSet<&'a str>,
}

impl<'a> DeclaredNames<'a> {
    fn of(program: &'a AppProgram) -> Self {
        let mut signalled = BTreeSet::new();
        each_step(program, &mut |_, step| {
            if let ProgramStep::Signal { name } = step {
                signalled.insert(name.as_str());
            }
            Ok(())
        })
        .unwrap_or_default();
        Self {
            files: program.files.iter().map(|set| set.name.as_str()).collect(),
            databases: program.databases.iter().map(|database| database.name.as_str()).collect(),
            procedures: program.procedures.iter().map(|procedure| procedure.name.as_str()).collect(),
            threads: program.threads.iter().map(|thread| thread.name.as_str()).collect(),
            signalled,
        }
    }

    fn check(&self, program: &AppProgram) -> CheckResult {
        let kinds = [
            ("file.name", &self.files),
            ("database.name", &self.databases),
            ("procedure.name", &self.procedures),
            ("thread.name", &self.threads),
        ];
        for (key, names) in kinds {
            let mut seen = BTreeSet::new();
            if let Some(twice) = names.iter().find(|name| !seen.insert(**name)) {
                return fault(key, twice, "the program has two entries of this name", "give each entry its own name");
            }
        }
        check_name_exists("user_waits_for", &program.user_waits_for, &self.threads)?;
        let waited = program.threads.iter().find(|thread| thread.name == program.user_waits_for);
        if waited.is_some_and(|thread| !thread.at_begin) {
            let problem = "the thread that the user waits for must begin with the program";
            return fault("user_waits_for", &program.user_waits_for, problem, "leave out `at_begin = false`");
        }
        Ok(())
    }

    fn check_step(&self, program: &AppProgram, inside: &str, step: &ProgramStep) -> CheckResult {
        match step {
            ProgramStep::Cpu { ms } => amount("cpu.ms", inside, "ms", ms, 0..=u64::MAX),
            ProgramStep::Think { ms } => amount("think.ms", inside, "ms", ms, 0..=u64::MAX),
            ProgramStep::Network { size, round_trips } => {
                amount("network.size", inside, "size", size, 0..=MOST_BYTES)?;
                amount("network.round_trips", inside, "round_trips", round_trips, 0..=1_000_000)
            }
            ProgramStep::Create { file } => check_name_exists("file", file, &self.files),
            ProgramStep::Read(access) | ProgramStep::Overwrite(access) => self.check_access(access),
            ProgramStep::Write(access) | ProgramStep::Append(access) => {
                if access.place.is_some() {
                    let problem = "`place` is only for `read` and `overwrite`";
                    return fault("file", &access.file, problem, "leave it out, or use `overwrite`");
                }
                self.check_access(access)
            }
            ProgramStep::Fsync(picked) | ProgramStep::Fdatasync(picked) | ProgramStep::Delete(picked) => {
                check_name_exists("file", &picked.file, &self.files)
            }
            ProgramStep::Rename { file, to } => {
                check_name_exists("file", file, &self.files)?;
                check_name_exists("to", to, &self.files)?;
                if file == to {
                    let problem = "a file cannot replace a file of its own set";
                    return fault("to", to, problem, "use another set");
                }
                let partition = |name: &str| program.files.iter().find(|set| set.name == name);
                let partitions = [partition(file), partition(to)].map(|set| set.map(|set| &set.partition));
                if partitions[0] != partitions[1] {
                    let problem = "a file cannot be renamed to another partition";
                    return fault("to", to, problem, "put both sets on the same partition");
                }
                Ok(())
            }
            ProgramStep::Truncate { file, size, .. } => {
                amount("truncate.size", file, "size", size, 0..=MOST_BYTES)?;
                check_name_exists("file", file, &self.files)
            }
            ProgramStep::Transaction { database, count, pages, new_pages } => {
                amount("transaction.count", database, "count", count, 0..=u64::MAX)?;
                amount("transaction.pages", database, "pages", pages, 0..=MOST_PAGES)?;
                amount("transaction.new_pages", database, "new_pages", new_pages, 0..=MOST_PAGES)?;
                check_name_exists("database", database, &self.databases)
            }
            ProgramStep::Query { database, count, pages } => {
                amount("query.count", database, "count", count, 0..=u64::MAX)?;
                amount("query.pages", database, "pages", pages, 0..=MOST_PAGES)?;
                check_name_exists("database", database, &self.databases)
            }
            ProgramStep::Wait { name } if !self.signalled.contains(name.as_str()) => {
                fault("wait.name", name, "no thread sends this signal", "add `{ signal = { name = ... } }`")
            }
            ProgramStep::Start { thread } | ProgramStep::Join { thread } => check_name_exists("thread", thread, &self.threads),
            ProgramStep::Repeat { times: Some(times), .. } => amount("repeat.times", inside, "times", times, 0..=u64::MAX),
            ProgramStep::Repeat { times: None, .. } if inside == program.user_waits_for => {
                let problem = "the thread that the user waits for repeats steps without an end";
                fault("thread.name", inside, problem, "give `times`")
            }
            ProgramStep::Maybe { pct, .. } if !(0.0..=100.0).contains(pct) => {
                fault("maybe.pct", &pct.to_string(), "must be 0 to 100", "give a percentage")
            }
            ProgramStep::Call { procedure } => check_name_exists("procedure", procedure, &self.procedures),
            _ => Ok(()),
        }
    }

    fn check_access(&self, access: &FileAccess) -> CheckResult {
        amount("size", &access.file, "size", &access.size, 1..=MOST_BYTES)?;
        amount("count", &access.file, "count", &access.count, 0..=u64::MAX)?;
        check_name_exists("file", &access.file, &self.files)
    }
}

/// Calls `check` with each step and the name of its thread or procedure.
fn each_step<'a>(program: &'a AppProgram, check: &mut impl FnMut(&'a str, &'a ProgramStep) -> CheckResult) -> CheckResult {
    fn walk<'a>(
        inside: &'a str, steps: &'a [ProgramStep], check: &mut impl FnMut(&'a str, &'a ProgramStep) -> CheckResult,
    ) -> CheckResult {
        for step in steps {
            check(inside, step)?;
            if let ProgramStep::Lock { steps, .. } | ProgramStep::Repeat { steps, .. } | ProgramStep::Maybe { steps, .. } = step {
                walk(inside, steps, check)?;
            }
        }
        Ok(())
    }
    let threads = program.threads.iter().map(|thread| (&thread.name, &thread.steps));
    let procedures = program.procedures.iter().map(|procedure| (&procedure.name, &procedure.steps));
    threads.chain(procedures).try_for_each(|(name, steps)| walk(name, steps, check))
}

fn check_name_exists(key: &'static str, name: &str, names: &[&str]) -> CheckResult {
    if names.contains(&name) {
        return Ok(());
    }
    let there = if names.is_empty() {
        "the program defines none".to_owned()
    } else {
        format!("the program defines: {}", names.join(", "))
    };
    fault(key, name, "the program does not define this name", there)
}

fn amount<T: DrawableQuantity>(
    key: &'static str, inside: &str, name: &str, amount: &Amount<T>, range: std::ops::RangeInclusive<u64>,
) -> CheckResult {
    if let Some((problem, hint)) = amount.fault() {
        return fault(key, inside, problem, hint);
    }
    let (least, most) = amount.range();
    if range.contains(&least) && range.contains(&most) {
        return Ok(());
    }
    let (bound, side) = if least < *range.start() { (*range.start(), "least") } else { (*range.end(), "most") };
    fault(key, inside, format!("`{name}` must be at {side} {bound}"), format!("change `{name}` in this step"))
}
