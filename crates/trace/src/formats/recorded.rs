//! The flags and operations that a format can record; a count of zero means nothing if the format cannot record it.

use emmclab_base::Flags;

/// The flags that the letters of an operation (such as `WSM`) can state.
const LETTERS: Flags =
    Flags::SYNC.union(Flags::FUA).union(Flags::PREFLUSH).union(Flags::META).union(Flags::READAHEAD);

/// The flags that a trace first read from `format` can have, and whether it can have flushes. Formats joined by ` + ` can have
/// those of each. A format that is not listed here is assumed to have all.
pub fn recorded_flags(format: &str) -> (Flags, bool) {
    format.split(" + ").fold((Flags::empty(), false), |(flags, flushes), one| {
        let (more, flush) = match one {
            "biotracer" => (Flags::PACKED.union(Flags::NO_WAIT).union(Flags::NO_WAIT_KNOWN), false),
            "blktrace" | "blkparse" | "iosnoop" | "pixel" => (LETTERS, true),
            "biosnoop" | "fio" | "vscsi" | "vscsi-csv" => (Flags::empty(), true),
            "alibaba" | "disksim" | "fiu" | "hfplayer" | "k5cloud" | "lcs" | "mqsim" | "msr"
            | "oracle-general" | "spc1" | "ssdsim" | "systor17" | "tectonic" | "tencent" | "thesios" => {
                (Flags::empty(), false)
            }
            _ => (Flags::all(), true),
        };
        (flags.union(more), flushes || flush)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_formats_record_what_each_records() {
        assert_eq!(recorded_flags("msr"), (Flags::empty(), false));
        let (flags, flushes) = recorded_flags("biotracer + blkparse");
        assert!(flags.contains(Flags::PACKED) && flags.contains(Flags::SYNC) && flushes);
        assert!(!flags.contains(Flags::JOURNAL));
    }
}
