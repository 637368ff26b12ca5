//! Counts of records in an import or a recording.

use std::fmt;

use serde::{Deserialize, Serialize};

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
