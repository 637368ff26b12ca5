//! The error for a trace without requests: what it contains instead, and what to record.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::{BlockEventKind, Error, ErrorClass, KernelEvent, Ledger, RecordedActivity, TraceHeader};

/// Maximum number of event names in a message. Names of storage events are listed even if there are more.
const MOST_LISTED: usize = 5;

/// How a recorder names the two events of a request, and how to record them.
struct RecorderEventNames {
    issue: &'static str,
    complete: &'static str,
    /// The hint if neither event was recorded.
    record: &'static str,
    /// The hint if only one of the two events was recorded.
    add: &'static str,
}

const KERNEL: RecorderEventNames = RecorderEventNames {
    issue: "block_rq_issue",
    complete: "block_rq_complete",
    record: "record the block events too: `echo 1 > /sys/kernel/tracing/events/block/enable`, `trace-cmd record -e \
             block`, `perf record -a -e 'block:*'`, or on Android `atrace disk`",
    add: "record both block_rq_issue and block_rq_complete, or better all block events: `trace-cmd record -e \
          block`, `perf record -a -e 'block:*'`",
};

/// Kernel events in a Perfetto trace.
const PERFETTO: RecorderEventNames = RecorderEventNames {
    issue: KERNEL.issue,
    complete: KERNEL.complete,
    record: "record the block events too: `ftrace_events: \"block/*\"` in the `ftrace_config` of the recording, or \
             `emmclab record --adb`",
    add: "record both block_rq_issue and block_rq_complete, or better all block events: `ftrace_events: \
          \"block/*\"` in the `ftrace_config` of the recording",
};

/// Actions of blkparse by letter.
const ACTIONS: RecorderEventNames = RecorderEventNames {
    issue: "D",
    complete: "C",
    record: "trace the actions D (issue) and C (completion) too: blktrace without `-a` records all of them",
    add: "trace both actions D (issue) and C (completion): blktrace without `-a` records all of them, and the text must \
          hold all of its lines",
};

/// The error for a trace without a request. `lenient` states whether invalid records are skipped.
pub(crate) fn no_request(tally: &EventTally, ledger: &Ledger, header: &TraceHeader, lenient: bool) -> Error {
    let error = |text: String| Error::new(ErrorClass::Empty, text);
    if ledger.filtered > 0 {
        return error(format!("--only selects none of {} requests", ledger.filtered))
            .hint("give --only a wider range of times, or other values");
    }
    if tally.is_empty() {
        let problem = error("the trace contains no request".to_owned());
        return problem.hint(if lenient && ledger.skipped > 0 {
            format!("all {} records were skipped; read without --lenient to see why", ledger.skipped)
        } else {
            "record again while the device has I/O".to_owned()
        });
    }
    let vocabulary = match () {
        () if tally.counts().iter().any(|(name, _)| is_letter(name)) => ACTIONS,
        () if header.format == "perfetto" => PERFETTO,
        () => KERNEL,
    };
    if let Some(packets) = tally.packets.as_deref().filter(|_| ledger.unpaired == 0) {
        return error(format!("the trace contains no read or write, but {packets}"))
            .hint("record while files are read or written: commands such as INQUIRY or SMART transfer no blocks");
    }
    let commands = commands(header);
    let seen = [vocabulary.issue, vocabulary.complete].map(|name| tally.of(name) > 0);
    let tracer = tally.tracer.as_deref().filter(|tracer| !matches!(*tracer, "nop" | "blk"));
    let cure = match seen {
        _ if tally.missing.is_some() => tally.missing.clone().unwrap_or_default(),
        [true, true] => unmatched(ledger),
        [false, false] => match tracer {
            Some(tracer) => format!(
                "the tracer `{tracer}` records no block I/O: `echo nop > /sys/kernel/tracing/current_tracer`, and {}",
                vocabulary.record
            ),
            None => vocabulary.record.to_owned(),
        },
        _ => vocabulary.add.to_owned(),
    };
    let cure = if commands.is_some() && seen == [false; 2] {
        format!("a command without its address and length is no request: {cure}")
    } else {
        cure
    };
    let commands = commands.unwrap_or_default();
    error(format!("the trace contains no request, but {}{commands}", list(tally, &vocabulary))).hint(cure)
}

/// The recorded commands of the drivers as a text that begins with a semicolon; `None` if there are none.
fn commands(header: &TraceHeader) -> Option<String> {
    let activity = RecordedActivity::from_json(header.activity.as_deref()?)?;
    let hosts = activity.hosts.iter().filter(|host| !host.commands.is_empty()).map(|host| {
        let counts = host.commands.iter().map(|of_kind| match of_kind.count {
            1 => format!("1 {} ({})", of_kind.kind.name(), of_kind.longest),
            count => format!("{count} {} ({} at most)", of_kind.kind.name(), of_kind.longest),
        });
        format!("commands of {}: {}", host.host, counts.collect::<Vec<_>>().join(", "))
    });
    let hosts: Vec<_> = hosts.collect();
    (!hosts.is_empty()).then(|| format!("; {}", hosts.join("; ")))
}

/// Whether the name is an action of the block tracer, a single letter such as `Q`, `D` or `C`.
fn is_letter(name: &str) -> bool {
    name.len() == 1 && name.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// The hint if issues and completions were recorded but none of them match.
fn unmatched(ledger: &Ledger) -> String {
    let cure = "no completion belongs to a request that was issued in this recording: record for longer";
    if ledger.lost > 0 {
        return format!("{cure}, with a larger buffer, as {} events were lost", ledger.lost);
    }
    format!("{cure}, and all events of the block layer")
}

/// Whether the event concerns requests or commands of a storage device.
fn is_of_storage(name: &str) -> bool {
    is_letter(name)
        || BlockEventKind::of_event(name.as_bytes()).is_some()
        || KernelEvent::by_name(name.as_bytes()).is_some()
        || name.starts_with("block_io_")
        || name.starts_with("f2fs_iostat")
}

/// Lists events with their counts, first those of storage, and the missing events of a request.
fn list(tally: &EventTally, vocabulary: &RecorderEventNames) -> String {
    let (mut first, others): (Vec<_>, Vec<_>) = tally.counts().iter().partition::<Vec<_>, _>(|(name, _)| is_of_storage(name));
    let room = MOST_LISTED.max(first.len());
    let further = (first.len() + others.len()).saturating_sub(room);
    first.extend(others);
    let mut words: Vec<_> = first.iter().take(room).map(|(name, count)| format!("{count} {name}")).collect();
    if further > 0 {
        let rest: u64 = first.iter().skip(room).map(|(_, count)| count).sum();
        words.push(format!("{rest} of {further} other kinds"));
    }
    let missing = [vocabulary.issue, vocabulary.complete].into_iter().filter(|name| tally.of(name) == 0);
    words.extend(missing.map(|name| format!("no {name}")));
    words.join(", ")
}

/// Maximum number of names that are counted separately; events of further names are counted together.
const MOST_NAMES: usize = 1 << 10;

/// Counts of the events of a recording by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventTally {
    counts: Vec<(String, u64)>,
    /// The tracer that the recording specifies (`# tracer: function`), if any.
    pub tracer: Option<String>,
    /// The pass-through commands of programs as text, if there are any.
    pub packets: Option<String>,
    /// The hint that lists missing parts of the recording; `None` if none is missing.
    pub missing: Option<String>,
}

impl EventTally {
    /// Sorts the counts, most frequent first. Counts of equal names are added, names with a count of 0 are omitted.
    pub fn new<N: Into<String>>(counts: impl IntoIterator<Item = (N, u64)>) -> Self {
        let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
        for (name, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            *by_name.entry(name.into()).or_default() += count;
        }
        let mut counts: Vec<(String, u64)> = by_name.into_iter().collect();
        counts.sort_by(|left, right| right.1.cmp(&left.1).then_with(|| left.0.cmp(&right.0)));
        Self { counts, ..Self::default() }
    }

    /// Names and counts, most frequent first.
    pub fn counts(&self) -> &[(String, u64)] {
        &self.counts
    }

    /// Number of events with this name.
    pub fn of(&self, name: &str) -> u64 {
        self.counts.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count)
    }

    /// Whether there are no events.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}

/// Counts events by name while they are read, and keeps a meaning for each name.
#[derive(Debug)]
pub(crate) struct NameCounts<M> {
    entries: Vec<NameCountEntry<M>>,
    index_of_name: FxHashMap<Box<[u8]>, usize>,
    last: usize,
    others: u64,
}

#[derive(Debug)]
struct NameCountEntry<M> {
    name: Box<[u8]>,
    count: u64,
    meaning: M,
}

impl<M> Default for NameCounts<M> {
    fn default() -> Self {
        Self { entries: Vec::new(), index_of_name: FxHashMap::default(), last: 0, others: 0 }
    }
}

/// A name in [`NameCounts`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameIndex(usize);

impl<M: Copy> NameCounts<M> {
    /// Returns the index and the meaning of a name without counting an event. For a new name, calls `find` to determine the meaning.
    #[inline]
    pub(crate) fn name_index(&mut self, name: &[u8], find: impl FnOnce(&[u8]) -> M) -> (NameIndex, M) {
        match self.entries.get(self.last) {
            Some(known) if *known.name == *name => (NameIndex(self.last), known.meaning),
            _ => self.look_up_name(name, find),
        }
    }

    fn look_up_name(&mut self, name: &[u8], find: impl FnOnce(&[u8]) -> M) -> (NameIndex, M) {
        let place = match self.index_of_name.get(name) {
            Some(place) => *place,
            None if self.entries.len() == MOST_NAMES => return (NameIndex(MOST_NAMES), find(name)),
            None => {
                let (name, meaning) = (Box::<[u8]>::from(name), find(name));
                self.index_of_name.insert(name.clone(), self.entries.len());
                self.entries.push(NameCountEntry { name, count: 0, meaning });
                self.entries.len() - 1
            }
        };
        self.last = place;
        (NameIndex(place), self.entries[place].meaning)
    }

    /// Counts an event with this name.
    #[inline]
    pub(crate) fn add(&mut self, place: NameIndex) {
        match self.entries.get_mut(place.0) {
            Some(known) => known.count += 1,
            None => self.others += 1,
        }
    }

    /// Names and counts so far.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (String, u64)> {
        let known = self.entries.iter().map(|known| (String::from_utf8_lossy(&known.name).into_owned(), known.count));
        known.chain([("of further names".to_owned(), self.others)])
    }

    /// The counts so far.
    pub(crate) fn tally(&self) -> EventTally {
        EventTally::new(self.counts())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message_and_hint(counts: &[(&str, u64)], ledger: &Ledger) -> (String, String) {
        let error = no_request(&EventTally::new(counts.iter().copied()), ledger, &TraceHeader::default(), false);
        (error.to_string(), error.hint_text().unwrap_or_default().to_owned())
    }

    #[test]
    fn events_of_requests_are_listed_first_and_missing_ones_named() {
        let (problem, hint) = message_and_hint(&[("sched_switch", 755), ("block_rq_complete", 840)], &Ledger::default());
        assert_eq!(problem, "the trace contains no request, but 840 block_rq_complete, 755 sched_switch, no block_rq_issue");
        assert!(hint.contains("both block_rq_issue and block_rq_complete"), "{hint}");
    }

    #[test]
    fn a_long_list_ends_in_a_sum() {
        let counts = ["a_a", "b_b", "c_c", "d_d", "e_e", "f_f", "g_g"].map(|name| (name, 2));
        let (problem, hint) = message_and_hint(&counts, &Ledger::default());
        assert!(problem.contains("2 e_e, 4 of 2 other kinds, no block_rq_issue, no block_rq_complete"), "{problem}");
        assert!(hint.contains("-e block"), "{hint}");
    }

    #[test]
    fn actions_of_blkparse_are_named_by_their_letters() {
        let (problem, hint) = message_and_hint(&[("C", 840)], &Ledger::default());
        assert_eq!(problem, "the trace contains no request, but 840 C, no D");
        assert!(hint.contains("without `-a`"), "{hint}");
    }

    #[test]
    fn the_option_lenient_is_named_only_where_it_was_given() {
        let ledger = Ledger { skipped: 3, ..Ledger::default() };
        for (lenient, names_it) in [(false, false), (true, true)] {
            let error = no_request(&EventTally::default(), &ledger, &TraceHeader::default(), lenient);
            assert_eq!(error.hint_text().unwrap().contains("--lenient"), names_it);
        }
    }
    #[test]
    fn names_are_counted_and_sorted_by_frequency() {
        let mut counts = NameCounts::default();
        for name in ["sched_switch", "block_rq_issue", "sched_switch", "sched_switch"] {
            let (place, length) = counts.name_index(name.as_bytes(), <[u8]>::len);
            assert_eq!(length, name.len());
            counts.add(place);
        }
        let tally = counts.tally();
        assert_eq!(tally.counts(), [("sched_switch".to_owned(), 3), ("block_rq_issue".to_owned(), 1)]);
        assert_eq!((tally.of("sched_switch"), tally.of("sched_wakeup")), (3, 0));
    }

    #[test]
    fn names_without_end_do_not_fill_the_memory() {
        let mut counts = NameCounts::default();
        for number in 0..10_000 {
            let (place, ()) = counts.name_index(format!("event_{number}").as_bytes(), |_| ());
            counts.add(place);
        }
        assert_eq!(counts.tally().counts().len(), MOST_NAMES + 1);
        assert_eq!(counts.tally().of("of further names"), 10_000 - MOST_NAMES as u64);
    }
}
