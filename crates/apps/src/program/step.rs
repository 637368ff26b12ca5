//! The steps of a thread. In a file each is a table with one key, the name of the step: `{ cpu = { ms = 12 } }`.

use emmclab_layers::Size;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::draw::Amount;

/// A step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
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
        size: Amount<Size>,
        /// Round trips before the bytes flow.
        #[serde(default = "one")]
        round_trips: Amount<u64>,
    },
    /// Makes the next file of a set, empty; one that is there is emptied.
    Create {
        /// The set of files.
        file: String,
    },
    /// Reads.
    Read(Access),
    /// Writes behind the last access of the same thread, beyond the end of the file where it comes to that.
    Write(Access),
    /// Writes inside the file, or inside its working set.
    Overwrite(Access),
    /// Writes at the end of the file.
    Append(Access),
    /// Makes data and metadata of a file durable.
    Fsync(Picked),
    /// Makes the data of a file durable, and the metadata that is needed to read it.
    Fdatasync(Picked),
    /// Removes a file.
    Delete(Picked),
    /// Gives a file the name of another one, which is replaced.
    Rename {
        /// The set of the file, of which the thread's current one is taken.
        file: String,
        /// The set of the file that is replaced: the thread's current one of it.
        to: String,
    },
    /// Cuts a file, or extends it by a hole.
    Truncate {
        /// The set of files.
        file: String,
        /// The size that it has then.
        size: Amount<Size>,
        /// The file of the set.
        #[serde(default, skip_serializing_if = "is_same")]
        pick: Pick,
    },
    /// Makes everything on every partition durable, as `sync` does.
    Sync {},
    /// Write transactions of a database.
    Transaction {
        /// The database.
        database: String,
        /// Number of transactions.
        #[serde(default = "one")]
        count: Amount<u64>,
        /// Pages that each changes, beside the first one of the file, which holds the change counter.
        pages: Amount<u64>,
        /// Pages that each adds to the file.
        #[serde(default = "none")]
        new_pages: Amount<u64>,
    },
    /// Reads of a database.
    Query {
        /// The database.
        database: String,
        /// Number of queries.
        #[serde(default = "one")]
        count: Amount<u64>,
        /// Pages that each looks at.
        pages: Amount<u64>,
    },
    /// Lets one thread go on that waits for the signal, now or later.
    Signal {
        /// The name of the signal.
        name: String,
    },
    /// Waits for a signal; each signal lets one waiting thread go on.
    Wait {
        /// The name of the signal.
        name: String,
    },
    /// Steps that only one thread at a time does, in the order in which they come.
    Lock {
        /// The name of the lock.
        name: String,
        /// The steps.
        steps: Vec<Step>,
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
    /// Steps again and again.
    Repeat {
        /// How often; without it until the program ends, which only a thread may do that no thread waits for.
        times: Option<Amount<u64>>,
        /// The steps.
        steps: Vec<Step>,
    },
    /// Steps that are done sometimes.
    Maybe {
        /// In how many of 100 cases.
        pct: f64,
        /// The steps.
        steps: Vec<Step>,
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
pub struct Access {
    /// The set of files.
    pub file: String,
    /// Bytes of each.
    pub size: Amount<Size>,
    /// How many.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: Amount<u64>,
    /// Where each of them lies. Only of `read` and `overwrite`.
    pub place: Option<Place>,
    /// The file of the set.
    #[serde(default, skip_serializing_if = "is_same")]
    pub pick: Pick,
}

/// A file of a set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Picked {
    /// The set of files.
    pub file: String,
    /// The file of the set.
    #[serde(default, skip_serializing_if = "is_same")]
    pub pick: Pick,
}

/// Where an access lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Behind the last one of the thread; from the beginning again at the end of the working set.
    Sequential,
    /// At any multiple of 4 KB in the working set; of a smaller access, at any multiple of its size.
    Random,
}

/// Which file of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    /// The one that the thread used last, first the first one.
    #[default]
    Same,
    /// The next one that exists.
    Next,
    /// Any one that exists.
    Random,
}

fn one() -> Amount<u64> {
    Amount::Fixed(1)
}

fn none() -> Amount<u64> {
    Amount::Fixed(0)
}

fn is_one(count: &Amount<u64>) -> bool {
    *count == one()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_same(pick: &Pick) -> bool {
    *pick == Pick::Same
}
