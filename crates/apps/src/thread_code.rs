//! Compiles a program to instructions: names become numbers, procedures are inlined, loops become jumps.

use std::collections::HashMap;

use emmclab_base::{Error, ErrorClass, Result};

use crate::program::{AccessPattern, AppProgram, FileAccess, FilePickOrder, ProgramStep};
use crate::random_draws::{Amount, IntegerDistribution};

/// Maximum number of instructions of a program after procedures are inlined.
const MOST_INSTRUCTIONS: usize = 1 << 20;
const MOST_DEPTH: u32 = 64;

/// An instruction of a thread. Sets of files, databases, threads, signals and locks are identified by numbers.
///
/// `Repeat` executes the instructions up to `end` `times` times; without `times`, endlessly. `Again` ends the repeated section. `Maybe`
/// jumps to `end`, except with a probability of `millionths` / 10^6.
#[derive(Clone, Debug)]
pub(crate) enum ThreadInstruction {
    Cpu(IntegerDistribution),
    Think(IntegerDistribution),
    Network { bytes: IntegerDistribution, round_trips: IntegerDistribution },
    Pick { set: u32, pick: FilePickOrder },
    Create { set: u32 },
    Access { set: u32, kind: FileAccessKind, size: IntegerDistribution },
    Fsync { set: u32, data_only: bool },
    Delete { set: u32 },
    Rename { from: u32, to: u32 },
    Truncate { set: u32, size: IntegerDistribution },
    Sync,
    Transaction { database: u32, pages: IntegerDistribution, new_pages: IntegerDistribution },
    Query { database: u32, pages: IntegerDistribution },
    Signal(u32),
    Wait(u32),
    Lock(u32),
    Unlock(u32),
    Start(u32),
    Join(u32),
    Repeat { times: Option<IntegerDistribution>, end: u32 },
    Again { begin: u32 },
    Maybe { millionths: u64, end: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileAccessKind {
    Read(AccessPattern),
    Write,
    Overwrite(AccessPattern),
    Append,
}

/// The instructions of all threads.
#[derive(Debug)]
pub(crate) struct ProgramCode {
    pub threads: Vec<Vec<ThreadInstruction>>,
    pub signals: Vec<String>,
    pub locks: Vec<String>,
}

impl ProgramCode {
    /// Compiles a program.
    /// Errors: [`ErrorClass::Config`] if a procedure calls itself, or if the program becomes too large by inlining.
    pub fn of(program: &AppProgram) -> Result<Self> {
        let mut compiler = ProgramCompiler::new(program);
        let mut threads = Vec::with_capacity(program.threads.len());
        for thread in &program.threads {
            compiler.out = Vec::new();
            compiler.steps(&thread.steps, 0)?;
            compiler.total += compiler.out.len();
            threads.push(std::mem::take(&mut compiler.out));
        }
        Ok(Self { threads, signals: compiler.signals.names, locks: compiler.locks.names })
    }
}

/// Assigns numbers to names, in the order of their first use.
#[derive(Default)]
struct NameNumbers {
    names: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl NameNumbers {
    fn of(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }
}

struct ProgramCompiler<'a> {
    program: &'a AppProgram,
    sets: HashMap<&'a str, u32>,
    databases: HashMap<&'a str, u32>,
    threads: HashMap<&'a str, u32>,
    signals: NameNumbers,
    locks: NameNumbers,
    out: Vec<ThreadInstruction>,
    total: usize,
}

impl<'a> ProgramCompiler<'a> {
    fn new(program: &'a AppProgram) -> Self {
        fn numbered<'a>(names: impl Iterator<Item = &'a String>) -> HashMap<&'a str, u32> {
            names.map(String::as_str).zip(0..).collect()
        }
        Self {
            program,
            sets: numbered(program.files.iter().map(|set| &set.name)),
            databases: numbered(program.databases.iter().map(|database| &database.name)),
            threads: numbered(program.threads.iter().map(|thread| &thread.name)),
            signals: NameNumbers::default(),
            locks: NameNumbers::default(),
            out: Vec::new(),
            total: 0,
        }
    }

    /// The number of a set of files. The program was checked before, so the set exists.
    fn set(&self, name: &str) -> u32 {
        self.sets.get(name).copied().unwrap_or_default()
    }

    fn database(&self, name: &str) -> u32 {
        self.databases.get(name).copied().unwrap_or_default()
    }

    fn thread(&self, name: &str) -> u32 {
        self.threads.get(name).copied().unwrap_or_default()
    }

    fn next_index(&self) -> u32 {
        self.out.len() as u32
    }

    fn steps(&mut self, steps: &[ProgramStep], depth: u32) -> Result<()> {
        steps.iter().try_for_each(|step| self.step(step, depth))
    }

    fn step(&mut self, step: &ProgramStep, depth: u32) -> Result<()> {
        if self.total + self.out.len() > MOST_INSTRUCTIONS {
            return Err(Error::new(
                ErrorClass::Config,
                format!("the program has more than {MOST_INSTRUCTIONS} steps when its procedures are expanded"),
            )
            .hint("use `repeat` in place of procedures that call each other many times"));
        }
        match step {
            ProgramStep::Cpu { ms } => self.out.push(ThreadInstruction::Cpu(ms.resolved())),
            ProgramStep::Think { ms } => self.out.push(ThreadInstruction::Think(ms.resolved())),
            ProgramStep::Network { size, round_trips } => {
                self.out.push(ThreadInstruction::Network { bytes: size.resolved(), round_trips: round_trips.resolved() });
            }
            ProgramStep::Create { file } => self.out.push(ThreadInstruction::Create { set: self.set(file) }),
            ProgramStep::Read(access) => {
                self.access(access, FileAccessKind::Read(access.place.unwrap_or(AccessPattern::Sequential)));
            }
            ProgramStep::Write(access) => self.access(access, FileAccessKind::Write),
            ProgramStep::Overwrite(access) => {
                self.access(access, FileAccessKind::Overwrite(access.place.unwrap_or(AccessPattern::Random)));
            }
            ProgramStep::Append(access) => self.access(access, FileAccessKind::Append),
            ProgramStep::Fsync(picked) => {
                let set = self.pick(&picked.file, picked.pick);
                self.out.push(ThreadInstruction::Fsync { set, data_only: false });
            }
            ProgramStep::Fdatasync(picked) => {
                let set = self.pick(&picked.file, picked.pick);
                self.out.push(ThreadInstruction::Fsync { set, data_only: true });
            }
            ProgramStep::Delete(picked) => {
                let set = self.pick(&picked.file, picked.pick);
                self.out.push(ThreadInstruction::Delete { set });
            }
            ProgramStep::Rename { file, to } => {
                self.out.push(ThreadInstruction::Rename { from: self.set(file), to: self.set(to) });
            }
            ProgramStep::Truncate { file, size, pick } => {
                let set = self.pick(file, *pick);
                self.out.push(ThreadInstruction::Truncate { set, size: size.resolved() });
            }
            ProgramStep::Sync {} => self.out.push(ThreadInstruction::Sync),
            ProgramStep::Transaction { database, count, pages, new_pages } => {
                // Transactions on the same database must not overlap, so each database has its own lock.
                let lock = self.locks.of(&format!("database {database}"));
                let database = self.database(database);
                let (pages, new_pages) = (pages.resolved(), new_pages.resolved());
                let transaction = ThreadInstruction::Transaction { database, pages, new_pages };
                self.push_loop(count, [ThreadInstruction::Lock(lock), transaction, ThreadInstruction::Unlock(lock)]);
            }
            ProgramStep::Query { database, count, pages } => {
                let database = self.database(database);
                self.push_loop(count, [ThreadInstruction::Query { database, pages: pages.resolved() }]);
            }
            ProgramStep::Signal { name } => {
                let signal = self.signals.of(name);
                self.out.push(ThreadInstruction::Signal(signal));
            }
            ProgramStep::Wait { name } => {
                let signal = self.signals.of(name);
                self.out.push(ThreadInstruction::Wait(signal));
            }
            ProgramStep::Lock { name, steps } => {
                let lock = self.locks.of(name);
                self.out.push(ThreadInstruction::Lock(lock));
                self.steps(steps, depth)?;
                self.out.push(ThreadInstruction::Unlock(lock));
            }
            ProgramStep::Start { thread } => self.out.push(ThreadInstruction::Start(self.thread(thread))),
            ProgramStep::Join { thread } => self.out.push(ThreadInstruction::Join(self.thread(thread))),
            ProgramStep::Repeat { times, steps } => {
                let at = self.out.len();
                let times = times.as_ref().map(Amount::resolved);
                self.out.push(ThreadInstruction::Repeat { times: None, end: 0 });
                self.steps(steps, depth)?;
                self.out.push(ThreadInstruction::Again { begin: at as u32 + 1 });
                self.out[at] = ThreadInstruction::Repeat { times, end: self.next_index() };
            }
            ProgramStep::Maybe { pct, steps } => {
                let at = self.out.len();
                let millionths = (pct * 1e4).round() as u64;
                self.out.push(ThreadInstruction::Maybe { millionths, end: 0 });
                self.steps(steps, depth)?;
                self.out[at] = ThreadInstruction::Maybe { millionths, end: self.next_index() };
            }
            ProgramStep::Call { procedure } => {
                if depth == MOST_DEPTH {
                    return Err(Error::new(ErrorClass::Config, "the procedure calls itself")
                        .of_field("procedure", 0, procedure.as_bytes())
                        .hint("use `repeat` in place of the recursive call"));
                }
                let called = self.program.procedures.iter().find(|known| known.name == *procedure);
                self.steps(called.map_or(&[], |called| &called.steps), depth + 1)?;
            }
        }
        Ok(())
    }

    fn pick(&mut self, file: &str, pick: FilePickOrder) -> u32 {
        let set = self.set(file);
        if pick != FilePickOrder::Same {
            self.out.push(ThreadInstruction::Pick { set, pick });
        }
        set
    }

    fn access(&mut self, access: &FileAccess, kind: FileAccessKind) {
        let set = self.pick(&access.file, access.pick);
        self.push_loop(&access.count, [ThreadInstruction::Access { set, kind, size: access.size.resolved() }]);
    }

    /// Adds a loop that executes instructions `count` times.
    fn push_loop<const N: usize>(&mut self, count: &Amount<u64>, instructions: [ThreadInstruction; N]) {
        if *count == Amount::Fixed(1) {
            self.out.extend(instructions);
            return;
        }
        let begin = self.next_index() + 1;
        self.out.push(ThreadInstruction::Repeat { times: Some(count.resolved()), end: begin + N as u32 + 1 });
        self.out.extend(instructions);
        self.out.push(ThreadInstruction::Again { begin });
    }
}
