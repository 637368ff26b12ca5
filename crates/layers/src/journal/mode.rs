//! The modes of the journal layer: a table of features.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The treatment of a file system's journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JournalLayerMode {
    /// As the file system asks: a flush before each commit, and a durable commit block.
    Legacy,
    /// Nothing is made durable: flushes and flags are dropped. Unsafe; for comparison only.
    NoBarrier,
    /// Blocks of the journal are not written. Unsafe; the ideal that the others are compared with.
    NoJournal,
    /// The blocks that a commit needs are written durably (forced programming), and the commit block as a reliable write.
    /// The cache is flushed only if other data must be durable, too.
    OrderedFua,
    /// Only the changed sectors of a logged block are written, into the layer's own log.
    Delta,
    /// A transaction and its commit block go into the layer's own log with one write.
    Packed,
    /// `ordered_fua`, `delta` and `packed` together.
    #[default]
    Aware,
}

/// The features of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a feature by itself")]
pub(super) struct JournalModeFeatures {
    /// Flushes and durable writes have an effect.
    pub barriers: bool,
    /// Blocks of the journal are written.
    pub journal: bool,
    /// Durable writes replace flushes.
    pub durable_writes: bool,
    /// Only sectors that changed are logged.
    pub delta: bool,
    /// A transaction is one write.
    pub one_write: bool,
}

impl JournalLayerMode {
    /// The features of the mode.
    pub(super) const fn features(self) -> JournalModeFeatures {
        let legacy = JournalModeFeatures {
            barriers: true,
            journal: true,
            durable_writes: false,
            delta: false,
            one_write: false,
        };
        match self {
            Self::Legacy => legacy,
            Self::NoBarrier => JournalModeFeatures { barriers: false, ..legacy },
            Self::NoJournal => JournalModeFeatures { journal: false, ..legacy },
            Self::OrderedFua => JournalModeFeatures { durable_writes: true, ..legacy },
            Self::Delta => JournalModeFeatures { delta: true, ..legacy },
            Self::Packed => JournalModeFeatures { one_write: true, ..legacy },
            Self::Aware => JournalModeFeatures { durable_writes: true, delta: true, one_write: true, ..legacy },
        }
    }
}

impl JournalModeFeatures {
    /// Whether transactions go into the layer's own log.
    pub const fn own_log(self) -> bool {
        self.delta || self.one_write
    }
}
