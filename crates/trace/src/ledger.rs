//! What became of everything that was read or recorded.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! ledger {
    ($($(#[$doc:meta])* $field:ident: $label:literal,)*) => {
        /// Counts of records that an import or a recording kept, changed or lost. Every figure is shown with it.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Ledger {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl Ledger {
            /// Field, label and value, in the order of declaration.
            pub fn entries(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($field), $label, self.$field),)*]
            }

            /// Adds the counts of a trace read beside this one.
            pub fn add(&mut self, other: &Ledger) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

ledger! {
    /// Records (lines, rows or events) in the input.
    seen: "seen",
    /// Requests for which arrival and completion events were brought together.
    paired: "paired",
    /// Requests in the trace.
    kept: "kept",
    /// Bad records left out under `--lenient`, or records of a kind that is no request.
    skipped: "skipped",
    /// Requests that the block layer split.
    split: "split",
    /// Requests that were merged into another.
    merged: "merged",
    /// Requests that the driver gave back and issued again.
    requeued: "requeued",
    /// Requests that stood before one that arrived earlier, and were put in order of arrival.
    reordered: "reordered",
    /// Places where the clock jumps, or the recording paused.
    clock_jumps: "clock jumps or pauses",
    /// Those that were taken out under `--mend-clock`.
    mended_jumps: "of them mended",
    /// Packed-command header blocks taken off a request's size.
    headers_stripped: "headers stripped",
    /// Requests that could be matched in more than one way.
    ambiguous: "ambiguous",
    /// Requests without a completion, or completions without a request, at the edges of a recording.
    unpaired: "unpaired",
    /// Records that the recorder says it lost.
    lost: "lost",
    /// Requests whose address was wrapped into a smaller device. The key is older than the word.
    folded: "wrapped",
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} seen, {} kept", self.seen, self.kept)?;
        for (field, label, value) in self.entries() {
            if value > 0 && field != "seen" && field != "kept" {
                write!(f, ", {value} {label}")?;
            }
        }
        Ok(())
    }
}
