//! An application described as a program: files, databases, and threads with their steps. Programs are read from TOML.

mod step;

use std::path::Path;

use emmclab_base::{ByteSize, Result};
use emmclab_host::FileClass;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::random_draws::Amount;
use crate::toml_files;
pub use step::{AccessPattern, FileAccess, FilePickOrder, FileSelection, ProgramStep};

/// An application as a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AppProgram {
    /// Name of the program.
    pub name: String,
    /// One line that describes what the user does.
    pub about: String,
    /// Where the figures come from, and which assumptions were made.
    pub source: String,
    /// The thread that the user waits for: the program ends when this thread ends.
    pub user_waits_for: String,
    /// Whether the program represents an activity of a user; false for background programs and benchmarks.
    #[serde(default = "yes")]
    pub is_activity: bool,
    /// The sets of files that the program uses.
    #[serde(default, rename = "file")]
    pub files: Vec<FileSet>,
    /// The SQLite databases that the program uses.
    #[serde(default, rename = "database")]
    pub databases: Vec<SqliteDatabase>,
    /// Procedures: named sequences of steps that threads call.
    #[serde(default, rename = "procedure")]
    pub procedures: Vec<StepProcedure>,
    /// The threads of the program.
    #[serde(rename = "thread")]
    pub threads: Vec<ThreadProgram>,
}

/// A set of files whose contents are of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileSet {
    /// Name of the set.
    pub name: String,
    /// The class of the contents: `database`, `database_journal`, `cache` or `other`.
    #[serde(default)]
    pub class: FileClass,
    /// The partition on which the files are.
    pub partition: String,
    /// Maximum number of files.
    #[serde(default = "default_count")]
    pub count: u32,
    /// The size of each file when the program begins. Without it, the files do not exist at the beginning.
    pub size: Option<Amount<ByteSize>>,
    /// Size of the part at the beginning of each file that random and repeated accesses use; by default the whole file.
    pub working_set: Option<ByteSize>,
}

/// A SQLite database: its file and its journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SqliteDatabase {
    /// Name of the database.
    pub name: String,
    /// The partition on which the database is.
    pub partition: String,
    /// The size of the file when the program begins.
    pub size: ByteSize,
    /// Size of a page in bytes: a power of two from 512 to 65536.
    #[serde(default = "page")]
    pub page_size: ByteSize,
    /// Size of the part at the beginning of the file that transactions and queries use; by default the whole file.
    pub working_set: Option<ByteSize>,
    /// `PRAGMA journal_mode`.
    #[serde(default)]
    pub journal_mode: SqliteJournalMode,
    /// `PRAGMA synchronous`.
    #[serde(default)]
    pub synchronous: SqliteSynchronous,
    /// `PRAGMA wal_autocheckpoint`, in frames.
    #[serde(default = "checkpoint")]
    pub checkpoint_pages: u32,
    /// The system call by which SQLite makes its files durable.
    #[serde(default)]
    pub sync_call: SqliteSyncCall,
}

/// The values of `PRAGMA journal_mode`, except `memory`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SqliteJournalMode {
    /// The rollback journal is removed at the end of each transaction.
    #[default]
    Delete,
    /// The rollback journal is truncated to length 0.
    Truncate,
    /// The header of the rollback journal is overwritten with zeros.
    Persist,
    /// A write-ahead log is used.
    Wal,
    /// No journal is used.
    Off,
}

/// The values of `PRAGMA synchronous`, except `extra`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SqliteSynchronous {
    /// Nothing is synced.
    Off,
    /// Files are synced at the most critical moments.
    Normal,
    /// Each transaction is durable when it ends.
    #[default]
    Full,
}

/// The system call by which SQLite makes a file durable. The official builds use `fdatasync` if it is available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SqliteSyncCall {
    /// SQLite calls `fdatasync`.
    #[default]
    Fdatasync,
    /// SQLite calls `fsync`.
    Fsync,
}

/// A named sequence of steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepProcedure {
    /// Name of the procedure.
    pub name: String,
    /// The steps of the procedure.
    pub steps: Vec<ProgramStep>,
}

/// A thread of the program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThreadProgram {
    /// Name of the thread.
    pub name: String,
    /// Whether the thread starts with the program; otherwise a `start` step of another thread starts it.
    #[serde(default = "yes")]
    pub at_begin: bool,
    /// The steps of the thread.
    pub steps: Vec<ProgramStep>,
}

impl AppProgram {
    /// Parses a program from the text of a TOML file.
    /// Errors: [`emmclab_base::ErrorClass::Config`] with line and hint for a syntax error, an unknown key, or an impossible name or value.
    pub fn from_toml(text: &str) -> Result<Self> {
        let program: Self = toml_files::from_toml(text, "see docs/guides/apps.md; `emmclab apps show NAME` prints a program")?;
        program.check(text)?;
        Ok(program)
    }

    /// Reads a program from a TOML file.
    /// Errors: as [`AppProgram::from_toml`], and if the file cannot be read.
    pub fn from_file(path: &Path) -> Result<Self> {
        let text = emmclab_base::read_settings(path)?;
        Self::from_toml(&text).map_err(|error| error.in_file(path))
    }

    /// Returns a built-in program.
    /// Errors: [`emmclab_base::ErrorClass::Config`] if there is no such program; the hint lists them.
    pub fn preset(name: &str) -> Result<Self> {
        Self::from_toml(preset_text(name)?)
    }

    /// The JSON Schema of a program file.
    pub fn json_schema() -> serde_json::Value {
        schemars::schema_for!(Self).to_value()
    }
}

fn default_count() -> u32 {
    1
}

fn yes() -> bool {
    true
}

fn page() -> ByteSize {
    ByteSize::kb(4)
}

fn checkpoint() -> u32 {
    1000
}

macro_rules! presets {
    ($($name:literal,)*) => {
        /// Names and texts of the built-in program files.
        const PRESETS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../../presets/apps/", $name, ".toml"))),)*];
    };
}

presets! {
    "webbench",
    "facebook",
    "email",
    "maps",
    "pulse",
    "appinstall",
    "rlbench",
    "applaunch",
    "background",
    "iperf",
    "random-writes",
}

/// The names of the built-in applications.
pub fn preset_names() -> impl ExactSizeIterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}

/// The text of a built-in application, with its comments. The name is not case-sensitive.
/// Errors: [`emmclab_base::ErrorClass::Config`] if there is no such application; the hint lists them.
pub fn preset_text(name: &str) -> Result<&'static str> {
    toml_files::preset("application", PRESETS, name)
}

impl AppProgram {
    /// Combines this program with others, which begin at the same time. Names in the others are prefixed with the name of their program,
    /// such as `email: mail.db`. The user waits only for this program: when it ends, all programs end.
    /// Errors: as [`AppProgram::from_toml`], if the combination exceeds the limits of a program, or if two names are equal.
    pub fn combined_with(mut self, others: &[Self]) -> Result<Self> {
        let mut names = vec![self.name.clone()];
        for other in others {
            let Self { name, files, databases, procedures, threads, .. } = other.clone();
            // A program whose name is already used gets a number.
            let count = names.iter().filter(|known| **known == name).count();
            let prefix = if count == 0 { name.clone() } else { format!("{name} {}", count + 1) };
            names.push(name);
            let own = |name: &mut String| *name = format!("{prefix}: {name}");
            self.files.extend(files.into_iter().map(|mut set| {
                own(&mut set.name);
                set
            }));
            self.databases.extend(databases.into_iter().map(|mut database| {
                own(&mut database.name);
                database
            }));
            self.procedures.extend(procedures.into_iter().map(|mut procedure| {
                own(&mut procedure.name);
                for step in &mut procedure.steps {
                    step.rename(&own);
                }
                procedure
            }));
            self.threads.extend(threads.into_iter().map(|mut thread| {
                own(&mut thread.name);
                for step in &mut thread.steps {
                    step.rename(&own);
                }
                thread
            }));
        }
        self.name = names.join(" + ");
        self.check("")?;
        Ok(self)
    }
}

impl ProgramStep {
    /// Renames all files, databases, procedures, threads, signals and locks of the step with the function `own`.
    fn rename(&mut self, own: &impl Fn(&mut String)) {
        match self {
            Self::Cpu { .. } | Self::Think { .. } | Self::Network { .. } | Self::Sync {} => {}
            Self::Create { file }
            | Self::Truncate { file, .. }
            | Self::Read(FileAccess { file, .. })
            | Self::Write(FileAccess { file, .. })
            | Self::Overwrite(FileAccess { file, .. })
            | Self::Append(FileAccess { file, .. })
            | Self::Fsync(FileSelection { file, .. })
            | Self::Fdatasync(FileSelection { file, .. })
            | Self::Delete(FileSelection { file, .. }) => own(file),
            Self::Rename { file, to } => {
                own(file);
                own(to);
            }
            Self::Transaction { database, .. } | Self::Query { database, .. } => own(database),
            Self::Signal { name } | Self::Wait { name } => own(name),
            Self::Lock { name, steps } => {
                own(name);
                for step in steps {
                    step.rename(own);
                }
            }
            Self::Start { thread } | Self::Join { thread } => own(thread),
            Self::Repeat { steps, .. } | Self::Maybe { steps, .. } => {
                for step in steps {
                    step.rename(own);
                }
            }
            Self::Call { procedure } => own(procedure),
        }
    }
}
