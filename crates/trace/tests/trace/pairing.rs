//! Events are combined into requests by the rules of the kernel.

use emmclab_trace::{BlockEventKind, BlockLayerEvent, EventPairer, Ledger, NameTable, Nanos, Op, Request, RequestFlags, Sector};
use proptest::prelude::*;

/// Combines events in lines `time action rwbs sector sectors`, with the actions of blkparse; the length of `C` is the completed part.
fn pair(text: &str) -> (Vec<Request>, Ledger) {
    let mut names = NameTable::default();
    let device = names.intern("179,0");
    let (mut pairer, mut ledger, mut out) = (EventPairer::default(), Ledger::default(), Vec::new());
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let fields: Vec<_> = line.split_whitespace().collect();
        let number = |i: usize| fields[i].parse::<u64>().unwrap();
        let kind = match fields[1] {
            "Q" => BlockEventKind::Queue,
            "G" => BlockEventKind::GetRequest,
            "I" => BlockEventKind::Insert,
            "D" => BlockEventKind::Issue,
            "C" => BlockEventKind::Complete,
            "R" => BlockEventKind::Requeue,
            "M" => BlockEventKind::BackMerge,
            "F" => BlockEventKind::FrontMerge,
            "MM" => BlockEventKind::RequestMerge,
            "X" => BlockEventKind::Split(number(4)),
            other => panic!("{other}"),
        };
        let letters = fields[2];
        let (before, letters) = match letters.strip_prefix('F').filter(|rest| !rest.is_empty()) {
            Some(rest) => (RequestFlags::PREFLUSH, rest),
            None => (RequestFlags(0), letters),
        };
        let op = match &letters[..1] {
            "R" => Op::Read,
            "W" => Op::Write,
            "D" => Op::Discard,
            _ => Op::Flush,
        };
        let after = if letters[1..].contains('F') { RequestFlags::FUA } else { RequestFlags(0) };
        let split = matches!(kind, BlockEventKind::Split(_));
        pairer.feed(
            &BlockLayerEvent {
                time: Nanos(number(0) as i64),
                kind,
                device,
                op,
                flags: before.union(after),
                sector: number(3),
                sectors: if split { 0 } else { number(4) as u32 },
                pid: Some(7),
                process: None,
                error: 0,
                zeroes: false,
            },
            &mut ledger,
            &mut out,
        );
    }
    pairer.finish(&mut ledger, &mut out);
    // Every lost event is counted.
    let counts = pairer.counts();
    assert_eq!(
        (counts.seen, counts.classified_events()),
        (text.lines().filter(|line| !line.trim().is_empty()).count() as u64, counts.seen),
        "{counts:?}"
    );
    (out, ledger)
}

/// Arrival, start, issue and complete; -1 for missing times.
fn times(request: &Request) -> [i64; 4] {
    let time = |time: Option<Nanos>| time.map_or(-1, |time| time.0);
    [request.arrival.0, time(request.start), time(request.issue), time(request.complete)]
}

#[test]
fn queue_issue_and_complete_make_a_request() {
    let (requests, ledger) = pair("1 Q W 8 8\n2 G W 8 8\n3 I W 8 8\n4 D W 8 8\n9 C W 8 8");
    assert_eq!(times(&requests[0]), [1, 4, 4, 9]);
    assert_eq!((requests.len(), ledger), (1, Ledger { paired: 1, ..Ledger::default() }));
}

#[test]
fn merges_join_neighbours_and_keep_the_first_arrival() {
    let (requests, ledger) = pair("1 Q W 16 8\n2 Q W 24 8\n3 M W 24 8\n4 Q W 8 8\n5 F W 8 8\n6 D W 8 24\n9 C W 8 24");
    assert_eq!((requests[0].sector, requests[0].sectors, times(&requests[0])), (Sector(8), 24, [1, 6, 6, 9]));
    assert_eq!((requests.len(), ledger.merged, ledger.unpaired, ledger.ambiguous), (1, 2, 0, 0));
    let (requests, ledger) = pair("1 Q R 0 8\n2 Q R 8 8\n3 MM R 8 8\n4 D R 0 16\n9 C R 0 16");
    assert_eq!((requests.len(), requests[0].sectors, ledger.merged), (1, 16, 1));
}

#[test]
fn merges_that_were_not_recorded_are_seen_by_the_range() {
    let (requests, ledger) = pair("1 Q W 8 8\n2 Q W 16 8\n3 D W 8 16\n9 C W 8 16");
    assert_eq!((requests.len(), requests[0].sectors, ledger.merged, ledger.unpaired), (1, 16, 1, 0));
    let (requests, ledger) = pair("1 Q W 8 16\n3 D W 8 8\n4 D W 16 8\n8 C W 8 8\n9 C W 16 8");
    assert_eq!((requests.len(), ledger.split, ledger.unpaired), (2, 1, 0));
    assert_eq!(requests[1].arrival, Nanos(1));
}

#[test]
fn a_kernel_that_allocates_a_request_before_it_queues_the_io_has_one_request_with_its_merges() {
    // The order of events in Linux 2.6, as in the manual page of blkparse.
    let (requests, ledger) = pair(
        "0 G W 8 8\n1 Q W 8 8\n2 M W 16 8\n3 M W 24 8\n4 D W 8 24\n9 C W 8 24\n10 G W 64 8\n11 Q W 64 8\n12 F W 56 8\n\
         13 D W 56 16\n19 C W 56 16",
    );
    assert_eq!(requests.iter().map(times).collect::<Vec<_>>(), [[0, 4, 4, 9], [11, 13, 13, 19]]);
    assert_eq!((requests[0].sectors, requests[1].sectors), (24, 16));
    assert_eq!((ledger.merged, ledger.paired, ledger.unpaired, ledger.ambiguous), (3, 2, 0, 0));
}

#[test]
fn a_split_makes_two_requests_of_one_arrival() {
    let (requests, ledger) = pair("1 Q W 0 2048\n2 X W 0 1024\n3 D W 0 1024\n4 D W 1024 1024\n8 C W 0 1024\n9 C W 1024 1024");
    assert_eq!(requests.iter().map(times).collect::<Vec<_>>(), [[1, 3, 3, 8], [1, 4, 4, 9]]);
    assert_eq!((requests[1].sector, requests[1].sectors, ledger.split), (Sector(1024), 1024, 1));
}

#[test]
fn a_requeue_keeps_the_first_start_and_the_last_issue() {
    let (requests, ledger) = pair("1 Q W 8 8\n2 D W 8 8\n3 R W 8 8\n5 D W 8 8\n9 C W 8 8");
    assert_eq!((times(&requests[0]), ledger.requeued, ledger.paired), ([1, 2, 5, 9], 1, 1));
}

#[test]
fn a_request_that_is_given_back_without_an_event_is_issued_again() {
    let (requests, ledger) = pair("1 Q W 8 8\n2 D W 8 8\n5 D W 8 8\n9 C W 8 8");
    assert_eq!(requests.iter().map(times).collect::<Vec<_>>(), [[1, 2, 5, 9]]);
    assert_eq!(ledger, Ledger { paired: 1, requeued: 1, ..Ledger::default() });
    // Two re-issues, also of the rest of a request that is completed in parts.
    let (requests, ledger) = pair("1 Q W 0 64\n2 D W 0 64\n3 D W 0 64\n5 C W 0 24\n6 D W 24 40\n7 D W 24 40\n9 C W 24 40");
    assert_eq!(requests.iter().map(times).collect::<Vec<_>>(), [[1, 2, 7, 9]]);
    assert_eq!((ledger.requeued, ledger.unpaired, ledger.ambiguous), (3, 0, 0));
}

#[test]
fn where_requeues_are_recorded_two_issues_of_a_range_at_once_are_two_requests() {
    let back = "1 D R 0 8\n2 R R 0 8\n3 D R 0 8\n9 C R 0 8\n";
    let twice = "10 D R 8 8\n11 D R 8 8\n20 C R 8 8\n21 C R 8 8";
    let (requests, ledger) = pair(&format!("{back}{twice}"));
    assert_eq!(requests.iter().map(times).collect::<Vec<_>>(), [[1, 1, 3, 9], [10, 10, 10, 20], [11, 11, 11, 21]]);
    assert_eq!((ledger.paired, ledger.requeued, ledger.unpaired), (3, 1, 0));
    // Without requeue events, they may be the same request.
    let (requests, ledger) = pair(twice);
    assert_eq!((requests.len(), ledger.requeued, ledger.ambiguous, ledger.unpaired), (1, 1, 1, 1));
}

#[test]
fn a_later_request_of_a_range_that_was_issued_again_neither_vanishes_nor_takes_seconds() {
    let first = "1 Q R 8 8\n2 D R 8 8\n5 D R 8 8\n9 C R 8 8\n";
    let later = "5000 Q R 8 8\n5001 D R 8 8\n5009 C R 8 8\n9000 Q R 8 8\n9001 D R 8 8\n9009 C R 8 8";
    let (requests, ledger) = pair(&format!("{first}{later}"));
    let expected = [[1, 2, 5, 9], [5000, 5001, 5001, 5009], [9000, 9001, 9001, 9009]];
    assert_eq!(requests.iter().map(times).collect::<Vec<_>>(), expected);
    assert_eq!((ledger.paired, ledger.requeued, ledger.unpaired, ledger.ambiguous), (3, 1, 0, 0));
    // If queueing is not recorded, the response would be that of the lost request: from 5 to 5009.
    let unqueued = |text: &str| text.lines().filter(|line| !line.contains(" Q ")).collect::<Vec<_>>().join("\n");
    let (requests, ledger) = pair(&unqueued(&format!("{first}{later}")));
    let expected = [[2, 2, 5, 9], [5001, 5001, 5001, 5009], [9001, 9001, 9001, 9009]];
    assert_eq!(requests.iter().map(times).collect::<Vec<_>>(), expected);
    assert_eq!((ledger.paired, ledger.requeued, ledger.ambiguous), (3, 1, 1));
}

#[test]
fn equal_requests_that_were_each_queued_stay_two() {
    // Both orders of queueing and issuing, with and without a re-issue.
    let (requests, ledger) = pair("1 Q R 8 8\n2 D R 8 8\n3 Q R 8 8\n4 D R 8 8\n8 C R 8 8\n9 C R 8 8");
    assert_eq!(requests.iter().map(times).collect::<Vec<_>>(), [[1, 2, 2, 8], [3, 4, 4, 9]]);
    assert_eq!((ledger.paired, ledger.requeued), (2, 0));
    let (requests, ledger) = pair("1 Q R 8 8\n2 Q R 8 8\n3 D R 8 8\n4 D R 8 8\n5 D R 8 8\n8 C R 8 8\n9 C R 8 8");
    assert_eq!(requests.iter().map(times).collect::<Vec<_>>(), [[1, 3, 5, 8], [2, 4, 4, 9]]);
    assert_eq!((ledger.paired, ledger.requeued, ledger.unpaired), (2, 1, 0));
    // A longer request that waits at the same sector is not re-issued.
    let (requests, ledger) = pair("1 Q R 8 8\n2 D R 8 8\n3 Q R 8 16\n4 D R 8 8\n5 D R 8 16\n8 C R 8 8\n9 C R 8 16");
    assert_eq!(requests.iter().map(times).collect::<Vec<_>>(), [[1, 2, 4, 8], [3, 5, 5, 9]]);
    assert_eq!((requests[1].sectors, ledger.requeued, ledger.split, ledger.unpaired), (16, 1, 0, 0));
}

#[test]
fn a_partial_completion_moves_the_request_on() {
    let (requests, ledger) = pair("1 Q W 0 64\n2 D W 0 64\n5 C W 0 24\n6 R W 24 40\n7 D W 24 40\n9 C W 24 40");
    assert_eq!((requests[0].sector, requests[0].sectors, times(&requests[0])), (Sector(0), 64, [1, 2, 7, 9]));
    assert_eq!((requests.len(), ledger.requeued, ledger.unpaired, ledger.split), (1, 1, 0, 0));
    let (requests, ledger) = pair("1 Q W 0 64\n2 D W 0 64\n5 C W 0 24\n9 C W 24 40");
    assert_eq!((requests.len(), requests[0].sectors, ledger.unpaired), (1, 64, 0));
}

#[test]
fn a_bare_flush_is_served_by_the_next_flush_of_the_kernel() {
    let (requests, ledger) = pair("1 Q FW 0 0\n3 D FF 0 0\n8 C FF 18446744073709551615 0\n9 C W 0 0");
    assert_eq!((requests[0].op, requests[0].sectors, times(&requests[0])), (Op::Flush, 0, [1, 3, 3, 8]));
    assert_eq!((requests.len(), ledger.paired, ledger.unpaired), (1, 1, 0));
    // Two waiting flushes share a flush of the kernel and end with it.
    let (requests, _) = pair("1 Q FW 0 0\n2 Q FW 0 0\n3 D FF 0 0\n8 C FF 0 0\n9 C W 0 0\n10 C W 0 0");
    assert_eq!(requests.iter().map(times).collect::<Vec<_>>(), [[1, 3, 3, 8], [2, 3, 3, 8]]);
    // A flush that arrives later waits for the next flush of the kernel.
    let (requests, _) = pair("1 Q FW 0 0\n3 D FF 0 0\n4 Q FW 0 0\n8 C FF 0 0\n9 C W 0 0\n10 D FF 0 0\n12 C FF 0 0\n13 C W 0 0");
    assert_eq!(requests.iter().map(times).collect::<Vec<_>>(), [[1, 3, 3, 8], [4, 10, 10, 12]]);
}

#[test]
fn forced_unit_access_without_the_devices_help_ends_with_the_flush_behind_it() {
    let text = "1 Q FWF 8 8\n2 D FF 0 0\n3 C FF 18446744073709551615 0\n4 D W 8 8\n5 C W 8 8\n6 D FF 0 0\n\
                7 C FF 18446744073709551615 0\n8 C W 8 0";
    let (requests, ledger) = pair(text);
    assert_eq!((requests.len(), requests[0].op, times(&requests[0])), (1, Op::Write, [1, 2, 4, 8]));
    assert!(requests[0].flags.contains(RequestFlags::FUA.union(RequestFlags::PREFLUSH)));
    assert_eq!(ledger, Ledger { paired: 1, ..Ledger::default() });
}

#[test]
fn forced_unit_access_of_the_device_itself_ends_with_its_data() {
    let (requests, ledger) = pair("1 Q WF 8 8\n4 D WF 8 8\n5 C WF 8 8");
    assert_eq!((times(&requests[0]), ledger.paired), ([1, 4, 4, 5], 1));
}

#[test]
fn the_end_of_a_sequence_names_the_last_piece() {
    let text = "1 Q FW 8 16\n2 D FF 0 0\n3 C FF 0 0\n4 D W 8 16\n5 C W 8 8\n6 R W 16 8\n7 D W 16 8\n8 C W 16 8\n9 C W 16 0";
    let (requests, ledger) = pair(text);
    assert_eq!((requests[0].sector, requests[0].sectors, times(&requests[0])), (Sector(8), 16, [1, 2, 7, 9]));
    assert_eq!((ledger.unpaired, ledger.requeued), (0, 1));
}

#[test]
fn overlapping_requests_of_one_sector_go_first_in_first_out_and_are_counted() {
    let (requests, ledger) = pair("1 Q W 8 8\n2 Q W 8 8\n3 D W 8 8\n4 D W 8 8\n5 C W 8 8\n9 C W 8 8");
    assert_eq!(requests.iter().map(times).collect::<Vec<_>>(), [[1, 3, 3, 5], [2, 4, 4, 9]]);
    assert_eq!(ledger.ambiguous, 2);
}

#[test]
fn the_edges_of_a_recording_are_counted() {
    let (requests, ledger) = pair("1 C W 80 8\n2 Q R 8 8\n3 D R 8 8\n4 C R 8 8\n5 D W 160 8\n6 C W 160 8\n7 Q W 0 8");
    assert_eq!((requests.len(), ledger.paired, ledger.unpaired, ledger.unqueued), (2, 2, 2, 1));
    assert_eq!(times(&requests[1]), [5, 5, 5, 6]);
}

#[test]
fn recordings_without_some_events_are_met_half_way() {
    let (requests, ledger) = pair("1 D R 8 8\n4 C R 8 8\n5 D FF 0 0\n7 C FF 0 0\n8 C W 0 0");
    assert_eq!(requests.iter().map(times).collect::<Vec<_>>(), [[1, 1, 1, 4], [5, 5, 5, 7]]);
    assert_eq!((requests[1].op, ledger.unpaired), (Op::Flush, 0));
    let (requests, _) = pair("1 Q R 8 8\n4 C R 8 8");
    assert_eq!(times(&requests[0]), [1, -1, -1, 4]);
    let (requests, ledger) = pair("1 Q R 8 8\n4 Q W 16 8");
    assert_eq!((requests.len(), times(&requests[1]), ledger.unpaired), (2, [4, -1, -1, -1], 0));
    let (requests, _) = pair("1 I R 8 8\n2 D R 8 8\n4 C R 8 8");
    assert_eq!(times(&requests[0]), [1, 2, 2, 4]);
}

#[test]
fn open_requests_are_bounded() {
    let lines: Vec<_> = (0..200_000).map(|i| format!("{i} Q W {} 8", i * 8)).collect();
    let (requests, ledger) = pair(&lines.join("\n"));
    assert_eq!((requests.len(), ledger.unpaired), (200_000, 0));
    assert!(requests.is_sorted_by_key(|request| request.arrival));
}

#[test]
fn a_real_recording_leaves_nothing_unmatched_in_any_of_its_forms() {
    let forms = ["ftrace.txt.gz", "perf_script.txt.gz", "blkparse.txt.gz", "little.blktrace.0.gz", "big.blktrace.0.gz"];
    let traces = forms.map(|name| crate::support::read(&crate::support::fixture(name)).unwrap());
    // The kernel allocated this number of requests: there are 175 lines of `block_getrq`.
    for (trace, name) in traces.iter().zip(forms) {
        let Ledger { kept, paired, split, merged, unpaired, ambiguous, lost, .. } = trace.ledger;
        assert_eq!((kept, paired, split, merged), (175, 175, 6, 72), "{name}");
        assert_eq!((unpaired, ambiguous, lost), (0, 0, 0), "{name}");
    }
    let zero = traces[0].requests[0].arrival;
    let place = |request: &Request| (request.sector, request.sectors, request.arrival - zero, request.complete);
    let ftrace = traces[0].rows(place);
    for binary in &traces[3..] {
        assert_eq!(binary.rows(place), ftrace);
        assert_eq!(binary.processes, traces[3].processes);
    }
    assert!(traces[3].processes.iter().any(|name| name == "fio"));
    let text = &traces[2];
    for (found, request) in text.requests.iter().zip(&traces[3].requests) {
        assert_eq!((found.sector, found.sectors, found.op), (request.sector, request.sectors, request.op));
        assert_eq!(found.response(), request.response());
        assert_eq!(found.start.map(|start| start - found.arrival), request.start.map(|start| start - request.arrival));
    }
}

proptest! {
    /// A simulated block layer queues, merges, splits, requeues and completes many requests in parts, in random order. The pairer
    /// must return each request with its times.
    #[test]
    fn any_interleaving_is_paired(seed in any::<u64>(), count in 1usize..60) {
        let mut state = seed | 1;
        let mut random = move |limit: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % limit
        };
        // Each request uses its own 10,000 sectors, because overlapping requests are ambiguous.
        let mut scripts: Vec<Vec<String>> = (0..count as u64).map(|i| {
            let (at, length) = (i * 10_000 + 1_000, 16 + random(100));
            let end = at + length;
            let mut script = vec![format!("Q W {at} {length}")];
            if random(2) == 0 {
                script.push(format!("Q W {end} 8"));
                script.push(format!("M W {end} 8"));
            }
            let whole = length + if script.len() == 3 { 8 } else { 0 };
            script.push(format!("D W {at} {whole}"));
            if random(3) == 0 {
                script.push(format!("R W {at} {whole}"));
                script.push(format!("D W {at} {whole}"));
            }
            if random(3) == 0 {
                script.push(format!("C W {at} 8"));
                script.push(format!("C W {} {}", at + 8, whole - 8));
            } else {
                script.push(format!("C W {at} {whole}"));
            }
            script.reverse();
            script
        }).collect();
        let expected: u64 = count as u64;
        let mut lines = Vec::new();
        while !scripts.is_empty() {
            let i = random(scripts.len() as u64) as usize;
            let step = scripts[i].pop().unwrap();
            // A merge immediately follows the queueing, as in the kernel.
            lines.push(format!("{} {step}", lines.len()));
            if scripts[i].is_empty() { scripts.swap_remove(i); }
        }
        let (requests, ledger) = pair(&lines.join("\n"));
        prop_assert_eq!(requests.len() as u64, expected);
        prop_assert_eq!((ledger.paired, ledger.unpaired, ledger.ambiguous), (expected, 0, 0));
        for request in &requests {
            let [arrival, start, issue, complete] = times(request);
            prop_assert!(arrival < start && start <= issue && issue < complete);
            prop_assert_eq!(request.sector.0 % 10_000, 1_000);
        }
    }
}

#[test]
fn a_completion_before_its_request_is_unpaired() {
    let (requests, ledger) = pair("10 Q W 8 8\n20 D W 8 8\n15 C W 8 8\n30 Q W 8 8\n40 D W 8 8\n50 C W 8 8\n");
    assert_eq!(requests.len(), 1);
    assert_eq!((ledger.paired, ledger.unpaired), (1, 1));
}

/// `N` and zone commands end with a length of 0, like a flush.
#[test]
fn a_completion_that_was_written_before_its_queued_io_ends_it_if_its_time_is_later() {
    // The lines of each CPU are in order, but those of one CPU come first.
    let (requests, ledger) = pair(
        "10 Q R 0 8
         90 C R 0 8
         95 C R 64 8
         96 C R 64 8
         97 C R 128 8
         20 Q R 64 8
         99 Q R 128 8
         30 Q R 64 16",
    );
    let ends: Vec<_> = requests.iter().map(|request| (request.sector.0, times(request)[0], times(request)[3])).collect();
    assert_eq!(ends, [(0, 10, 90), (64, 20, 95)]);
    // The second completion at sector 64, the one at 128, and two I/Os have no counterpart.
    assert_eq!((ledger.paired, ledger.unpaired), (2, 4));
}

#[test]
fn a_command_that_passes_through_ends_nobodys_flush() {
    let text = "0 Q FWS 0 0\n10 D FF 0 0\n20 C DS 0 0\n25 C R 0 0\n30 C FF 0 0\n31 C FWS 0 0";
    let (requests, ledger) = pair(text);
    let [flush] = requests[..] else { panic!("{requests:?}") };
    assert_eq!((flush.op, flush.complete, ledger.unpaired), (Op::Flush, Some(Nanos(30)), 0));
}

#[test]
fn a_flush_of_the_kernel_that_nothing_waits_for_is_a_request() {
    let (requests, ledger) = pair("1 Q R 0 8\n2 D R 0 8\n3 C R 0 8\n4 D FF 0 0\n8 C FF 0 0");
    assert_eq!((requests[1].op, times(&requests[1])), (Op::Flush, [4, 4, 4, 8]));
    assert_eq!((requests.len(), ledger.unpaired, ledger.unqueued), (2, 0, 0));
}

#[test]
fn the_kernels_flush_before_4_8_is_an_empty_write_behind_the_last_sector() {
    let end = u64::MAX;
    let (requests, ledger) = pair(&format!("1 Q FWS 0 0\n2 D FWS {end} 0\n8 C FWS {end} 0\n9 C FWS 0 0"));
    assert_eq!((requests.len(), requests[0].op, times(&requests[0])), (1, Op::Flush, [1, 2, 2, 8]));
    assert_eq!(ledger, Ledger { paired: 1, ..Ledger::default() });
    let (requests, ledger) = pair(&format!("2 D FWS {end} 0\n8 C FWS {end} 0\n9 C FWS 0 0"));
    assert_eq!((requests.len(), requests[0].sector, times(&requests[0])), (1, Sector(0), [2, 2, 2, 8]));
    assert_eq!(ledger, Ledger { paired: 1, ..Ledger::default() });
}

#[test]
fn a_flush_whose_end_was_lost_makes_no_later_one_long() {
    let (requests, ledger) = pair("1 D R 0 8\n2 C R 0 8\n3 D FF 0 0\n9000 D FF 0 0\n9005 C FF 0 0");
    assert_eq!((requests.len(), times(&requests[1])), (2, [9000, 9000, 9000, 9005]));
    assert_eq!(ledger.unpaired, 1);
    // A request that the driver returned remains one request.
    let (requests, ledger) = pair("1 D R 0 8\n2 C R 0 8\n3 D FF 0 0\n4 R FF 0 0\n6 D FF 0 0\n9 C FF 0 0");
    assert_eq!((requests.len(), times(&requests[1])), (2, [3, 3, 6, 9]));
    assert_eq!((ledger.requeued, ledger.unpaired), (1, 0));
}

#[test]
fn a_request_whose_queueing_was_lost_arrives_with_its_issue() {
    let (requests, ledger) = pair("1 Q R 0 8\n2 D R 0 8\n3 C R 0 8\n4 D W 64 8\n7 C W 64 8");
    assert_eq!(requests.iter().map(times).collect::<Vec<_>>(), [[1, 2, 2, 3], [4, 4, 4, 7]]);
    assert_eq!((ledger.unqueued, ledger.unpaired, ledger.paired), (1, 0, 2));
}

#[test]
fn issues_of_one_range_without_any_completion_are_each_a_request() {
    let lines: Vec<_> = (0..1000).map(|i| format!("{i} D R 64 8")).collect();
    let (requests, ledger) = pair(&lines.join("\n"));
    assert_eq!((requests.len(), ledger), (1000, Ledger::default()));
    assert_eq!(times(&requests[999]), [999, 999, 999, -1]);
}

#[test]
fn completions_alone_are_requests_that_arrive_then() {
    let (requests, ledger) = pair("1 C W 8 8\n2 C FF 18446744073709551615 0\n3 C R 64 8\n4 C DN 0 0");
    assert_eq!(requests.iter().map(times).collect::<Vec<_>>(), [[1, -1, -1, -1], [2, -1, -1, -1], [3, -1, -1, -1]]);
    assert_eq!((requests[1].op, requests[1].sector), (Op::Flush, Sector(0)));
    assert_eq!(ledger, Ledger { from_completion: 3, ..Ledger::default() });
    // More requests than can be kept back.
    let lines: Vec<_> = (0..100_000).map(|i| format!("{i} C R 64 8")).collect();
    assert_eq!(pair(&lines.join("\n")).0.len(), 100_000);
}

#[test]
fn completions_before_the_first_issue_are_of_the_time_before_the_recording() {
    let (requests, ledger) = pair("1 C W 8 8\n2 C R 64 8\n3 D R 0 8\n4 C R 0 8");
    assert_eq!((requests.len(), ledger.unpaired, ledger.from_completion), (1, 2, 0));
}

proptest! {
    /// Random events on few sectors, so that they interact; `pair` checks that each event belongs to a request or is counted.
    #[test]
    fn events_seen_are_those_of_kept_requests_and_those_counted_by_cause(
        events in prop::collection::vec((0usize..10, 0usize..7, 0u64..4, 0u64..4), 0..200)
    ) {
        const ACTIONS: [&str; 10] = ["Q", "G", "I", "D", "C", "R", "M", "F", "MM", "X"];
        const LETTERS: [&str; 7] = ["R", "W", "FW", "WF", "FWF", "FF", "D"];
        let line = |(i, (action, letters, place, length)): (usize, &(usize, usize, u64, u64))| {
            let sector = if *place == 3 && *length == 0 { u64::MAX } else { 8 * place };
            let number = if ACTIONS[*action] == "X" { sector.saturating_add(8) } else { 8 * length };
            format!("{i} {} {} {sector} {number}", ACTIONS[*action], LETTERS[*letters])
        };
        let lines: Vec<_> = events.iter().enumerate().map(line).collect();
        let (requests, ledger) = pair(&lines.join("\n"));
        prop_assert!(requests.len() as u64 >= ledger.paired);
    }
}
