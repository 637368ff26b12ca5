//! What a file states about its trace: where and how it was recorded, and the counts of records in an import or a recording.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::batch::BatchRows;
use crate::{ClockJumps, Op, RequestFlags};

/// The origin of a trace, which is stored in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceHeader {
    /// Name of the file (without folders) or recording from which the trace was first imported.
    pub source: String,
    /// Name of the format from which the trace was first imported.
    pub format: String,
    /// How the format was recognised at the first import: by `content`, `--format` or `--columns`.
    pub recognised: Option<String>,
    /// What the trace records in addition to reads and writes; `None` in files of older versions, for which
    /// [`crate::TraceReader`] derives it from the format.
    pub recorded: Option<RecordedFeatures>,
    /// Name of the device, if all requests have the same device.
    pub device: Option<String>,
    /// The meaning of time 0: `unix`, `monotonic` or `relative`.
    pub clock: String,
    /// Additional information from the recorder.
    pub note: Option<String>,
    /// Clock jumps or pauses of the recording, as JSON of [`crate::ClockJumps`]; `None` if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_jumps: Option<String>,
    /// The step of the clock, such as `1ms`, if it is too coarse to tell which requests waited for others; `None` for an ordinary clock. With
    /// a coarse clock, arrivals and what follows from them (no-wait, queue depth, idle time, think times) are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coarse_clock: Option<String>,
    /// The time range in which a request may be issued again, such as `0ms-100ms`, if `--reissue-window` was used; `None` for the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reissue_window: Option<String>,
    /// The file system that defines the roles of blocks in the block notes of the trace (`ext4`); `None` in a trace without notes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_notes: Option<String>,
    /// The activity that was recorded in addition to requests (commands of drivers, waits for durability), as JSON.
    pub activity: Option<String>,
    /// The registers of the recorded devices as JSON: register files by device, and what could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registers: Option<String>,
}

impl TraceHeader {
    /// The value of [`TraceHeader::block_notes`] for roles in ext4.
    pub const EXT4: &str = "ext4";

    /// What the trace records in addition to reads and writes, if it is known.
    pub fn recorded(&self) -> RecordedFeatures {
        self.recorded.unwrap_or(RecordedFeatures::NONE)
    }

    /// The clock jumps or pauses of the recording.
    pub fn clock_jumps(&self) -> Option<ClockJumps> {
        self.clock_jumps.as_deref().and_then(|json| serde_json::from_str(json).ok())
    }
}

/// The format in which a file is read, and how it was recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecognisedFormat {
    /// Name of the format.
    pub format: &'static str,
    /// How it was recognised: `content`, `--format` or `--columns`.
    pub by: &'static str,
}

/// The flags, and the operations besides reads and writes, that a format or trace records. Flags and operations that are not recorded may
/// have occurred although the trace has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordedFeatures {
    /// A bit for each operation, at the position of its code.
    ops: u8,
    flags: RequestFlags,
}

impl RecordedFeatures {
    /// No operations except reads and writes, and no flags.
    pub const NONE: Self = Self::of(&[], RequestFlags(0));

    /// What the letters of block-layer events (such as `WFSM`) describe: operations, flags and errors.
    pub const BLOCK_LAYER: Self = Self::of(
        &[Op::Discard, Op::Flush, Op::SecureErase],
        RequestFlags::SYNC
            .union(RequestFlags::FUA)
            .union(RequestFlags::PREFLUSH)
            .union(RequestFlags::META)
            .union(RequestFlags::READAHEAD)
            .union(RequestFlags::FAILED)
            .union(RequestFlags::APPEND),
    );

    /// The features of `BLOCK_LAYER`, and the flag for writes of a journal, which are recognised by the thread's name.
    pub const BLOCK_EVENTS: Self = Self::BLOCK_LAYER.and(RequestFlags::JOURNAL);

    /// The operations and flags that software can send to a block device that emmclab serves.
    pub const SERVED: Self =
        Self::of(&[Op::Discard, Op::Flush, Op::SecureErase], RequestFlags::FUA.union(RequestFlags::PREFLUSH));

    /// All operations and flags, for workloads whose definition contains them.
    pub const ALL: Self = Self { ops: u8::MAX, flags: RequestFlags(u16::MAX) };

    /// The given operations and flags.
    pub const fn of(ops: &[Op], flags: RequestFlags) -> Self {
        let (mut bits, mut at) = (1 << Op::Read as u8 | 1 << Op::Write as u8, 0);
        while at < ops.len() {
            bits |= 1 << ops[at] as u8;
            at += 1;
        }
        Self { ops: bits, flags }
    }

    /// Adds these flags.
    #[must_use]
    pub const fn and(self, flags: RequestFlags) -> Self {
        Self { ops: self.ops, flags: self.flags.union(flags) }
    }

    /// Whether this operation is recorded, so that its number is known.
    pub const fn has_op(self, op: Op) -> bool {
        self.ops >> op as u8 & 1 == 1
    }

    /// Whether all of these flags are recorded, so that their numbers are known.
    pub const fn has(self, flags: RequestFlags) -> bool {
        self.flags.contains(flags)
    }

    /// The operations and flags that at least one of the two records.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self { ops: self.ops | other.ops, flags: self.flags.union(other.flags) }
    }

    /// Returns the operations and flags that both `self` and `other` record. If both inputs are combined, only these are recorded
    /// completely.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self { ops: self.ops & other.ops, flags: self.flags.intersection(other.flags) }
    }

    /// The operations and flags that `self` records and `other` does not.
    #[must_use]
    pub const fn difference(self, other: Self) -> Self {
        Self { ops: self.ops & !other.ops, flags: self.flags.difference(other.flags) }
    }

    /// Whether only reads and writes are recorded.
    pub const fn is_empty(self) -> bool {
        self.ops == 0 && self.flags.0 == 0
    }

    /// Adds the operations and flags of these requests. The file evidently records an operation or a flag if one of its requests has it.
    pub(crate) fn see(&mut self, rows: &BatchRows<'_>) {
        self.ops |= rows.op.iter().fold(0, |all, op| all | 1_u8.unbounded_shl(u32::from(*op)));
        self.flags.0 |= rows.flags.iter().fold(0, |all, flags| all | flags);
    }

    /// The names of the recorded operations and flags except reads and writes, each with its value.
    fn named(self) -> impl Iterator<Item = (&'static str, Self)> {
        let ops = Op::ALL.into_iter().filter(|op| !op.has_data());
        let ops = ops.map(|op| (op.name(), Self { ops: 1 << op as u8, flags: RequestFlags(0) }));
        let flags = RequestFlags::NAMES.into_iter().zip(0..);
        ops.chain(flags.map(|(name, bit)| (name, Self { ops: 0, flags: RequestFlags(1 << bit) })))
            .filter(move |(_, feature)| self.intersection(*feature) == *feature)
    }
}

/// Prints the names of the recorded operations and flags, separated by blanks as in the header of a file; empty if only reads and writes
/// are recorded.
impl fmt::Display for RecordedFeatures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.named().map(|(name, _)| name).collect();
        f.write_str(&names.join(" "))
    }
}

impl Serialize for RecordedFeatures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Reads the names of recorded operations and flags. Unknown names are ignored.
impl<'de> Deserialize<'de> for RecordedFeatures {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let known: Vec<_> = Self::ALL.named().collect();
        let named = text.split_whitespace().filter_map(|word| known.iter().find(|(name, _)| *name == word));
        Ok(named.fold(Self::NONE, |all, (_, feature)| all.union(*feature)))
    }
}

/// A count; `None` if the input does not contain it.
trait LedgerCount: Copy + Into<Option<u64>> {
    fn plus(self, other: Self) -> Self;
}

impl LedgerCount for u64 {
    fn plus(self, other: Self) -> Self {
        self + other
    }
}

impl LedgerCount for Option<u64> {
    fn plus(self, other: Self) -> Self {
        self.map_or(other, |count| Some(count + other.unwrap_or(0)))
    }
}

macro_rules! ledger {
    ($($(#[$doc:meta])* $field:ident: $type:ty, $label:literal;)*) => {
        /// Counts of the records that an import or a recording kept, changed or lost. They are printed with every result.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Ledger {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl Ledger {
            /// Field, label and value of each count, in the order of declaration; the value is `None` if the input does not contain it.
            pub fn entries(&self) -> Vec<(&'static str, &'static str, Option<u64>)> {
                vec![$((stringify!($field), $label, self.$field.into()),)*]
            }

            /// Adds the counts of another trace.
            pub fn add(&mut self, other: &Ledger) {
                $(self.$field = self.$field.plus(other.$field);)*
            }
        }
    };
}

ledger! {
    /// Number of records (lines, rows or events) in the input.
    seen: u64, "seen";
    /// Requests whose arrival and completion events were combined.
    paired: u64, "paired";
    /// Number of requests in the trace.
    kept: u64, "kept";
    /// Number of skipped records: invalid records with `--lenient`, and records that are not requests.
    skipped: u64, "skipped";
    /// Lines in the file that do not belong to the trace, such as the output of a benchmark.
    foreign: u64, "foreign lines";
    /// Lines of call stacks after events.
    stack_lines: u64, "lines of call stacks";
    /// Lines that a mail program or web page had split from the line before, and that were joined to it again.
    joined: u64, "broken lines joined";
    /// Requests that the block layer split.
    split: u64, "split";
    /// Requests that were merged into another.
    merged: u64, "merged";
    /// Requests that the driver returned to the block layer, which issued them again.
    requeued: u64, "requeued";
    /// Requests that were out of order in the file and were sorted by arrival.
    reordered: u64, "reordered";
    /// Clock jumps or pauses of the recording.
    clock_jumps: u64, "clock jumps or pauses";
    /// Clock jumps that were removed with `--mend-clock`.
    mended_jumps: u64, "of them mended";
    /// Requests that are suspected re-issues; `None` if neither processes nor completions are recorded.
    reissued: Option<u64>, "suspected re-issues";
    /// Suspected re-issues that were dropped with `--drop-reissued`.
    dropped_reissues: u64, "of them dropped";
    /// Requests that `--only` did not select.
    filtered: u64, "left out by --only";
    /// Requests that were filtered out before the file was written, as stated in the file.
    filtered_before: u64, "left out when the file was made";
    /// Requests whose notes on the roles of blocks were dropped by `--mend-clock`.
    notes_left_out: u64, "without their block notes";
    /// Header blocks of packed commands that were subtracted from the size of a request.
    headers_stripped: u64, "headers stripped";
    /// Requests that did not begin and end at a sector of 512 bytes and were rounded.
    rounded: u64, "rounded to sectors";
    /// Requests that could be matched in more than one way.
    ambiguous: u64, "ambiguous";
    /// Requests without a queue event in a recording that contains queue events; the issue time is used as arrival.
    unqueued: u64, "with their issue as arrival";
    /// Requests of which only the completion was recorded; its time is used as arrival.
    from_completion: u64, "with their completion as arrival";
    /// Requests that ended with an error.
    failed: u64, "failed";
    /// Requests without a completion, or completions without a request, at the beginning or end of a recording.
    unpaired: u64, "unpaired";
    /// Records that the recorder reported as lost.
    lost: u64, "lost";
    /// Requests whose address was wrapped into a smaller device. The field keeps its old name `folded`, which stored files contain.
    folded: u64, "wrapped";
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} seen, {} kept", self.seen, self.kept)?;
        for (field, label, value) in self.entries() {
            if let Some(value) = value.filter(|value| *value > 0)
                && field != "seen"
                && field != "kept"
            {
                write!(f, ", {value} {label}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_written_and_read_as_names() {
        for records in [RecordedFeatures::NONE, RecordedFeatures::SERVED, RecordedFeatures::BLOCK_EVENTS] {
            let text = serde_json::to_string(&records).unwrap();
            assert_eq!(serde_json::from_str::<RecordedFeatures>(&text).unwrap(), records, "{text}");
        }
        assert_eq!(RecordedFeatures::SERVED.to_string(), "discard flush secure_erase fua preflush");
        let later: RecordedFeatures = serde_json::from_str("\"flush colour\"").unwrap();
        assert_eq!(later, RecordedFeatures::of(&[Op::Flush], RequestFlags(0)));
    }

    #[test]
    fn of_traces_together_only_what_all_record_is_known() {
        let both = RecordedFeatures::BLOCK_LAYER.intersection(RecordedFeatures::of(&[Op::Flush], RequestFlags::PACKED));
        assert!(both.has_op(Op::Flush) && !both.has_op(Op::Discard));
        assert!(!both.has(RequestFlags::PACKED) && !both.has(RequestFlags::SYNC));
    }
}
