//! The steps of a thread. In a program file each step is a table with one key, its name: `{ cpu = { ms = 12 } }`.

use emmclab_base::ByteSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::random_draws::Amount;

/// A step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ProgramStep {
    /// Work on a core.
    Cpu {
        /// Time on a core of CPU factor 1, in ms.
        ms: Amount<f64>,
    },
    /// A pause of the user, or a timer.
    Think {
        /// Its length, in ms.
        ms: Amount<f64>,
    },
    /// A transfer over the network.
    Network {
        /// Bytes in either direction.
        size: Amount<ByteSize>,
        /// Round trips before the bytes flow.
        #[serde(default = "once")]
        round_trips: Amount<u64>,
    },
    /// Creates the next file of a set, or truncates it to 0 bytes if it exists.
    Create {
        /// The set of files.
        file: String,
    },
    /// Reads from a file.
    Read(FileAccess),
    /// Writes after the position of the last access of the same thread, if necessary beyond the end of the file.
    Write(FileAccess),
    /// Writes inside the file, or inside its working set.
    Overwrite(FileAccess),
    /// Writes at the end of the file.
    Append(FileAccess),
    /// Makes data and metadata of a file durable.
    Fsync(FileSelection),
    /// Makes the data of a file durable, and the metadata that is needed to read it.
    Fdatasync(FileSelection),
    /// Removes a file.
    Delete(FileSelection),
    /// Renames a file to the name of another file, which is replaced.
    Rename {
        /// The set of the renamed file, which is the thread's current file of this set.
        file: String,
        /// The set of the replaced file, which is the thread's current file of this set.
        to: String,
    },
    /// Truncates a file, or extends it by a hole.
    Truncate {
        /// The set of files.
        file: String,
        /// The new size.
        size: Amount<ByteSize>,
        /// Which file of the set.
        #[serde(default, skip_serializing_if = "is_same")]
        pick: FilePickOrder,
    },
    /// Makes everything on every partition durable, as `sync` does.
    Sync {},
    /// Write transactions of a database.
    Transaction {
        /// The database.
        database: String,
        /// Number of transactions.
        #[serde(default = "once")]
        count: Amount<u64>,
        /// Pages that each transaction changes, in addition to the first page of the file, which holds the change counter.
        pages: Amount<u64>,
        /// Pages that each transaction adds to the file.
        #[serde(default = "zero_amount")]
        new_pages: Amount<u64>,
    },
    /// Reads of a database.
    Query {
        /// The database.
        database: String,
        /// Number of queries.
        #[serde(default = "once")]
        count: Amount<u64>,
        /// Pages that each query reads.
        pages: Amount<u64>,
    },
    /// Sends a signal, which wakes one thread that waits for it, now or later.
    Signal {
        /// The name of the signal.
        name: String,
    },
    /// Waits for a signal; each signal wakes one waiting thread.
    Wait {
        /// The name of the signal.
        name: String,
    },
    /// Steps under a lock: only one thread at a time executes them, in the order in which threads arrive.
    Lock {
        /// The name of the lock.
        name: String,
        /// The steps.
        steps: Vec<ProgramStep>,
    },
    /// Starts a thread.
    Start {
        /// Its name.
        thread: String,
    },
    /// Waits for the end of a thread.
    Join {
        /// Its name.
        thread: String,
    },
    /// Repeats steps.
    Repeat {
        /// Number of repetitions; by default until the program ends, which is only allowed in a thread that no other thread waits for.
        times: Option<Amount<u64>>,
        /// The steps.
        steps: Vec<ProgramStep>,
    },
    /// Steps that are executed with a probability.
    Maybe {
        /// The probability, in percent.
        pct: f64,
        /// The steps.
        steps: Vec<ProgramStep>,
    },
    /// The steps of a procedure.
    Call {
        /// Its name.
        procedure: String,
    },
}

/// Reads or writes of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileAccess {
    /// The set of files.
    pub file: String,
    /// Bytes of each access.
    pub size: Amount<ByteSize>,
    /// Number of accesses.
    #[serde(default = "once", skip_serializing_if = "is_one")]
    pub count: Amount<u64>,
    /// Position of each access; only for `read` and `overwrite`.
    pub place: Option<AccessPattern>,
    /// The file of the set.
    #[serde(default, skip_serializing_if = "is_same")]
    pub pick: FilePickOrder,
}

/// A file of a set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileSelection {
    /// The set of files.
    pub file: String,
    /// The file of the set.
    #[serde(default, skip_serializing_if = "is_same")]
    pub pick: FilePickOrder,
}

/// The position of an access in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccessPattern {
    /// After the last access of the thread; at the end of the working set, from its beginning again.
    Sequential,
    /// At any multiple of 4 KB in the working set; of a smaller access, at any multiple of its size.
    Random,
}

/// Which file of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FilePickOrder {
    /// The file that the thread used last; initially the first one.
    #[default]
    Same,
    /// The next existing file.
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
