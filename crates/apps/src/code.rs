//! A program compiled to instructions: names become numbers, procedures are inlined, loops become jumps.

use std::collections::HashMap;

use emmclab_base::{Error, Kind, Result};

use crate::draw::{Amount, Resolved};
use crate::program::{Access, Pick, Place, Program, Step};

/// Maximum number of instructions of a program, and maximum depth of calls.
const MOST_INSTRUCTIONS: usize = 1 << 20;
const MOST_DEPTH: u32 = 64;

/// An instruction of a thread. Sets of files, databases, threads, signals and locks are identified by numbers.
#[derive(Clone, Debug)]
pub(crate) enum Instruction {
    Cpu(Resolved),
    Think(Resolved),
    Network {
        bytes: Resolved,
        round_trips: Resolved,
    },
    Pick {
        set: u32,
        pick: Pick,
    },
    Create {
        set: u32,
    },
    Access {
        set: u32,
        kind: AccessKind,
        size: Resolved,
    },
    Fsync {
        set: u32,
        data_only: bool,
    },
    Delete {
        set: u32,
    },
    Rename {
        from: u32,
        to: u32,
    },
    Truncate {
        set: u32,
        size: Resolved,
    },
    Sync,
    Transaction {
        database: u32,
        pages: Resolved,
        new_pages: Resolved,
    },
    Query {
        database: u32,
        pages: Resolved,
    },
    Signal(u32),
    Wait(u32),
    Lock(u32),
    Unlock(u32),
    Start(u32),
    Join(u32),
    /// Repeats the instructions up to `end` this many times, or for ever for `None`.
    Repeat {
        times: Option<Resolved>,
        end: u32,
    },
    /// The end of a repeated section.
    Again {
        begin: u32,
    },
    /// Jumps to `end`, except with a probability of `millionths` / 10^6.
    Maybe {
        millionths: u64,
        end: u32,
    },
}

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessKind {
    Read(Place),
    Write,
    Overwrite(Place),
    Append,
}

/// The instructions of all threads.
#[derive(Debug)]
pub(crate) struct Code {
    pub threads: Vec<Vec<Instruction>>,
    pub signals: Vec<String>,
    pub locks: Vec<String>,
}

impl Code {
    /// # Errors
    /// [`Kind::Config`] for a procedure that calls itself, and for a program that becomes too large by inlining.
    pub fn of(program: &Program) -> Result<Self> {
        let mut compiler = Compiler::new(program);
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

/// Numbers of names, in the order of their first use.
#[derive(Default)]
struct Numbers {
    names: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Numbers {
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

struct Compiler<'a> {
    program: &'a Program,
    sets: HashMap<&'a str, u32>,
    databases: HashMap<&'a str, u32>,
    threads: HashMap<&'a str, u32>,
    signals: Numbers,
    locks: Numbers,
    out: Vec<Instruction>,
    total: usize,
}

impl<'a> Compiler<'a> {
    fn new(program: &'a Program) -> Self {
        fn numbered<'a>(names: impl Iterator<Item = &'a String>) -> HashMap<&'a str, u32> {
            names.map(String::as_str).zip(0..).collect()
        }
        Self {
            program,
            sets: numbered(program.files.iter().map(|set| &set.name)),
            databases: numbered(program.databases.iter().map(|database| &database.name)),
            threads: numbered(program.threads.iter().map(|thread| &thread.name)),
            signals: Numbers::default(),
            locks: Numbers::default(),
            out: Vec::new(),
            total: 0,
        }
    }

    /// The number of a set; the program was checked, so the set exists.
    fn set(&self, name: &str) -> u32 {
        self.sets.get(name).copied().unwrap_or_default()
    }

    fn database(&self, name: &str) -> u32 {
        self.databases.get(name).copied().unwrap_or_default()
    }

    fn thread(&self, name: &str) -> u32 {
        self.threads.get(name).copied().unwrap_or_default()
    }

    fn here(&self) -> u32 {
        self.out.len() as u32
    }

    fn steps(&mut self, steps: &[Step], depth: u32) -> Result<()> {
        steps.iter().try_for_each(|step| self.step(step, depth))
    }

    fn step(&mut self, step: &Step, depth: u32) -> Result<()> {
        if self.total + self.out.len() > MOST_INSTRUCTIONS {
            return Err(Error::new(
                Kind::Config,
                format!(
                    "the program has more than {MOST_INSTRUCTIONS} steps when its procedures are expanded"
                ),
            )
            .hint("use `repeat` in place of procedures that call each other many times"));
        }
        match step {
            Step::Cpu { ms } => self.out.push(Instruction::Cpu(ms.resolved())),
            Step::Think { ms } => self.out.push(Instruction::Think(ms.resolved())),
            Step::Network { size, round_trips } => self
                .out
                .push(Instruction::Network { bytes: size.resolved(), round_trips: round_trips.resolved() }),
            Step::Create { file } => self.out.push(Instruction::Create { set: self.set(file) }),
            Step::Read(access) => {
                self.access(access, AccessKind::Read(access.place.unwrap_or(Place::Sequential)));
            }
            Step::Write(access) => self.access(access, AccessKind::Write),
            Step::Overwrite(access) => {
                self.access(access, AccessKind::Overwrite(access.place.unwrap_or(Place::Random)));
            }
            Step::Append(access) => self.access(access, AccessKind::Append),
            Step::Fsync(picked) => {
                let set = self.pick(&picked.file, picked.pick);
                self.out.push(Instruction::Fsync { set, data_only: false });
            }
            Step::Fdatasync(picked) => {
                let set = self.pick(&picked.file, picked.pick);
                self.out.push(Instruction::Fsync { set, data_only: true });
            }
            Step::Delete(picked) => {
                let set = self.pick(&picked.file, picked.pick);
                self.out.push(Instruction::Delete { set });
            }
            Step::Rename { file, to } => {
                self.out.push(Instruction::Rename { from: self.set(file), to: self.set(to) });
            }
            Step::Truncate { file, size, pick } => {
                let set = self.pick(file, *pick);
                self.out.push(Instruction::Truncate { set, size: size.resolved() });
            }
            Step::Sync {} => self.out.push(Instruction::Sync),
            Step::Transaction { database, count, pages, new_pages } => {
                // Transactions of the same database do not overlap.
                let lock = self.locks.of(&format!("database {database}"));
                let database = self.database(database);
                let (pages, new_pages) = (pages.resolved(), new_pages.resolved());
                let transaction = Instruction::Transaction { database, pages, new_pages };
                self.counted(count, [Instruction::Lock(lock), transaction, Instruction::Unlock(lock)]);
            }
            Step::Query { database, count, pages } => {
                let database = self.database(database);
                self.counted(count, [Instruction::Query { database, pages: pages.resolved() }]);
            }
            Step::Signal { name } => {
                let signal = self.signals.of(name);
                self.out.push(Instruction::Signal(signal));
            }
            Step::Wait { name } => {
                let signal = self.signals.of(name);
                self.out.push(Instruction::Wait(signal));
            }
            Step::Lock { name, steps } => {
                let lock = self.locks.of(name);
                self.out.push(Instruction::Lock(lock));
                self.steps(steps, depth)?;
                self.out.push(Instruction::Unlock(lock));
            }
            Step::Start { thread } => self.out.push(Instruction::Start(self.thread(thread))),
            Step::Join { thread } => self.out.push(Instruction::Join(self.thread(thread))),
            Step::Repeat { times, steps } => {
                let at = self.out.len();
                let times = times.as_ref().map(Amount::resolved);
                self.out.push(Instruction::Repeat { times: None, end: 0 });
                self.steps(steps, depth)?;
                self.out.push(Instruction::Again { begin: at as u32 + 1 });
                self.out[at] = Instruction::Repeat { times, end: self.here() };
            }
            Step::Maybe { pct, steps } => {
                let at = self.out.len();
                let millionths = (pct * 1e4).round() as u64;
                self.out.push(Instruction::Maybe { millionths, end: 0 });
                self.steps(steps, depth)?;
                self.out[at] = Instruction::Maybe { millionths, end: self.here() };
            }
            Step::Call { procedure } => {
                if depth == MOST_DEPTH {
                    return Err(Error::new(Kind::Config, "the procedure calls itself")
                        .of_field("procedure", 0, procedure.as_bytes())
                        .hint("use `repeat`"));
                }
                let called = self.program.procedures.iter().find(|known| known.name == *procedure);
                self.steps(called.map_or(&[], |called| &called.steps), depth + 1)?;
            }
        }
        Ok(())
    }

    fn pick(&mut self, file: &str, pick: Pick) -> u32 {
        let set = self.set(file);
        if pick != Pick::Same {
            self.out.push(Instruction::Pick { set, pick });
        }
        set
    }

    fn access(&mut self, access: &Access, kind: AccessKind) {
        let set = self.pick(&access.file, access.pick);
        self.counted(&access.count, [Instruction::Access { set, kind, size: access.size.resolved() }]);
    }

    /// Repeats instructions this many times.
    fn counted<const N: usize>(&mut self, count: &Amount<u64>, instructions: [Instruction; N]) {
        if *count == Amount::Fixed(1) {
            self.out.extend(instructions);
            return;
        }
        let begin = self.here() + 1;
        self.out.push(Instruction::Repeat { times: Some(count.resolved()), end: begin + N as u32 + 1 });
        self.out.extend(instructions);
        self.out.push(Instruction::Again { begin });
    }
}
