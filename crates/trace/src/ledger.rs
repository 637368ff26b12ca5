//! The counts of everything that was read or recorded.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A count; `None` if the input does not tell.
trait Count: Copy {
    fn value(self) -> Option<u64>;
    fn plus(self, other: Self) -> Self;
}

impl Count for u64 {
    fn value(self) -> Option<u64> {
        Some(self)
    }

    fn plus(self, other: Self) -> Self {
        self + other
    }
}

impl Count for Option<u64> {
    fn value(self) -> Option<u64> {
        self
    }

    fn plus(self, other: Self) -> Self {
        self.map_or(other, |count| Some(count + other.unwrap_or(0)))
    }
}

macro_rules! ledger {
    ($($(#[$doc:meta])* $field:ident: $type:ty, $label:literal;)*) => {
        /// Counts of records that an import or a recording kept, changed or lost. Every figure is shown with it.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Ledger {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl Ledger {
            /// Field, label and value, in the order of declaration; `None` if the input does not tell.
            pub fn entries(&self) -> Vec<(&'static str, &'static str, Option<u64>)> {
                vec![$((stringify!($field), $label, self.$field.value()),)*]
            }

            /// Adds the counts of a trace read beside this one.
            pub fn add(&mut self, other: &Ledger) {
                $(self.$field = self.$field.plus(other.$field);)*
            }
        }
    };
}

ledger! {
    /// Records (lines, rows or events) in the input.
    seen: u64, "seen";
    /// Requests for which arrival and completion events were brought together.
    paired: u64, "paired";
    /// Requests in the trace.
    kept: u64, "kept";
    /// Bad records left out under `--lenient`, or records of a kind that is no request.
    skipped: u64, "skipped";
    /// Lines of other origin around the trace, such as the output of a benchmark.
    foreign: u64, "foreign lines";
    /// Lines of call stacks below events.
    stack_lines: u64, "lines of call stacks";
    /// Lines that a mail program or a page had broken off the line before, and that were joined to it.
    joined: u64, "broken lines joined";
    /// Requests that the block layer split.
    split: u64, "split";
    /// Requests that were merged into another.
    merged: u64, "merged";
    /// Requests that the driver gave back and issued again.
    requeued: u64, "requeued";
    /// Requests that stood before one that arrived earlier, and were put in order of arrival.
    reordered: u64, "reordered";
    /// Places where the clock jumps, or the recording paused.
    clock_jumps: u64, "clock jumps or pauses";
    /// Those that were taken out under `--mend-clock`.
    mended_jumps: u64, "of them mended";
    /// Requests that are suspected to be issued a second time; `None` if neither processes nor completions are recorded.
    reissued: Option<u64>, "suspected re-issues";
    /// Those that were dropped under `--drop-reissued`.
    dropped_reissues: u64, "of them dropped";
    /// Requests left out under `--only`.
    filtered: u64, "left out by --only";
    /// Requests left out before, when the file was made: it holds their number.
    filtered_before: u64, "left out when the file was made";
    /// Requests whose block notes were left out under `--mend-clock`.
    notes_left_out: u64, "without their block notes";
    /// Packed-command header blocks taken off a request's size.
    headers_stripped: u64, "headers stripped";
    /// Requests that did not begin and end at a sector of 512 bytes, and were rounded.
    rounded: u64, "rounded to sectors";
    /// Requests that could be matched in more than one way.
    ambiguous: u64, "ambiguous";
    /// Requests that were not queued on the record, though others were: their arrival is their issue.
    unqueued: u64, "with their issue as arrival";
    /// Requests of which only the completion was recorded: its time is their arrival.
    from_completion: u64, "with their completion as arrival";
    /// Requests that ended with an error.
    failed: u64, "failed";
    /// Requests without a completion, or completions without a request, at the edges of a recording.
    unpaired: u64, "unpaired";
    /// Records that the recorder says it lost.
    lost: u64, "lost";
    /// Requests whose address was wrapped into a smaller device. The key is older than the word.
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
