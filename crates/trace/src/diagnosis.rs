//! The error for a trace without requests: what the trace contains instead, and what to record.

use crate::{BlockEventKind, Error, ErrorClass, EventTally, KernelEvent, Ledger, RecordedActivity, TraceHeader};

/// Maximum number of event names in a message, unless more of them are of storage.
const MOST_LISTED: usize = 5;

/// The names by which a recorder knows the two events of a request, and how to record them.
struct RecorderEventNames {
    issue: &'static str,
    complete: &'static str,
    /// The hint if neither of the two was recorded.
    record: &'static str,
    /// The hint if only one of the two was recorded.
    add: &'static str,
}

/// Events of the kernel by name.
const KERNEL: RecorderEventNames = RecorderEventNames {
    issue: "block_rq_issue",
    complete: "block_rq_complete",
    record: "record the block events too: `echo 1 > /sys/kernel/tracing/events/block/enable`, `trace-cmd record -e \
             block`, `perf record -a -e 'block:*'`, or on Android `atrace disk`",
    add: "record both block_rq_issue and block_rq_complete, or better all block events: `trace-cmd record -e \
          block`, `perf record -a -e 'block:*'`",
};

/// Events of the kernel in a trace of Perfetto.
const PERFETTO: RecorderEventNames = RecorderEventNames {
    issue: KERNEL.issue,
    complete: KERNEL.complete,
    record: "record the block events too: `ftrace_events: \"block/*\"` in the `ftrace_config` of the recording, or \
             `emmclab record --adb`",
    add: "record both block_rq_issue and block_rq_complete, or better all block events: `ftrace_events: \
          \"block/*\"` in the `ftrace_config` of the recording",
};

/// Actions of blkparse, by letter.
const ACTIONS: RecorderEventNames = RecorderEventNames {
    issue: "D",
    complete: "C",
    record: "trace the actions D (issue) and C (completion) too: blktrace without `-a` records all of them",
    add: "trace both actions D (issue) and C (completion): blktrace without `-a` records all of them, and the text must \
          hold all of its lines",
};

/// The error for a trace without a request. `lenient`: whether bad records are skipped.
pub(crate) fn no_request(tally: &EventTally, ledger: &Ledger, header: &TraceHeader, lenient: bool) -> Error {
    let error = |text: String| Error::new(ErrorClass::Empty, text);
    if ledger.filtered > 0 {
        return error(format!("the choice by --only leaves none of {} requests", ledger.filtered))
            .hint("choose a wider range, or other values");
    }
    if tally.is_empty() {
        let problem = error("the trace holds no request".to_owned());
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
        return error(format!("the trace holds no read or write, but {packets}"))
            .hint("record while files are read or written: such commands of programs (INQUIRY, SMART) move no blocks");
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
    error(format!("the trace holds no request, but {}{commands}", list(tally, &vocabulary))).hint(cure)
}

/// The recorded commands of the drivers as text that begins with a semicolon; `None` if there are none.
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

/// Whether the name is a one-letter action of the block tracer, such as `Q`, `D` or `C`.
fn is_letter(name: &str) -> bool {
    name.len() == 1 && name.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// The hint if issues and completions were recorded, but no issue matches a completion.
fn unmatched(ledger: &Ledger) -> String {
    let cure = "no completion belongs to a request that was issued in this recording: record for longer";
    if ledger.lost > 0 {
        return format!("{cure}, with a larger buffer, as {} events were lost", ledger.lost);
    }
    format!("{cure}, and all events of the block layer")
}

/// Whether the event is about requests or commands of a storage device.
fn is_of_storage(name: &str) -> bool {
    is_letter(name)
        || BlockEventKind::of_event(name.as_bytes()).is_some()
        || KernelEvent::by_name(name.as_bytes()).is_some()
        || name.starts_with("block_io_")
        || name.starts_with("f2fs_iostat")
}

/// Lists events with their counts, those of storage first, and then those of the two needed events that are missing.
fn list(tally: &EventTally, vocabulary: &RecorderEventNames) -> String {
    let (mut first, others): (Vec<_>, Vec<_>) =
        tally.counts().iter().partition::<Vec<_>, _>(|(name, _)| is_of_storage(name));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn message_and_hint(counts: &[(&str, u64)], ledger: &Ledger) -> (String, String) {
        let error = no_request(&EventTally::new(counts.iter().copied()), ledger, &TraceHeader::default(), false);
        (error.to_string(), error.hint_text().unwrap_or_default().to_owned())
    }

    #[test]
    fn events_of_requests_are_listed_first_and_missing_ones_named() {
        let (problem, hint) =
            message_and_hint(&[("sched_switch", 755), ("block_rq_complete", 840)], &Ledger::default());
        assert_eq!(
            problem,
            "the trace holds no request, but 840 block_rq_complete, 755 sched_switch, no block_rq_issue"
        );
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
        assert_eq!(problem, "the trace holds no request, but 840 C, no D");
        assert!(hint.contains("without `-a`"), "{hint}");
    }

    #[test]
    fn lost_events_are_named_where_nothing_matches() {
        let ledger = Ledger { lost: 9, ..Ledger::default() };
        let (_, hint) = message_and_hint(&[("block_rq_issue", 1), ("block_rq_complete", 1)], &ledger);
        assert!(hint.contains("9 events were lost"), "{hint}");
    }

    #[test]
    fn a_tracer_that_is_in_the_way_is_named() {
        let mut tally = EventTally::new([("schedule", 2)]);
        tally.tracer = Some("function".to_owned());
        let error = no_request(&tally, &Ledger::default(), &TraceHeader::default(), false);
        assert!(error.hint_text().unwrap().starts_with("the tracer `function` records no block I/O"));
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
    fn commands_without_a_length_are_named_with_their_times() {
        let activity = r#"{"hosts":[{"host":"ufs","busy_ns":850,"unpaired":0,"commands":[{"kind":"read","count":1,
            "bytes":0,"packed":0,"reliable":0,"retries":0,"errors":0,"time_ns":800,"longest_ns":800}]}]}"#;
        let header =
            TraceHeader { format: "perfetto".into(), activity: Some(activity.into()), ..TraceHeader::default() };
        let error = no_request(&EventTally::new([("ufshcd_command", 2)]), &Ledger::default(), &header, false);
        let problem = error.to_string();
        assert!(
            problem.ends_with("no block_rq_issue, no block_rq_complete; commands of ufs: 1 read (800 ns)"),
            "{problem}"
        );
        let hint = error.hint_text().unwrap();
        assert!(hint.contains("without its address and length") && hint.contains("\"block/*\""), "{hint}");
    }
}
