//! Writers and readers are consistent; what a format cannot represent is counted or rejected.

use std::path::Path;
use std::sync::Arc;

use crate::support::{Trace, batch_of, read, scratch, write_batches};
use emmclab_trace::{ErrorClass, Ledger, NameTable, Nanos, Op, Request, RequestFlags, Result, Sector, TraceHeader, WriteLosses};
use proptest::prelude::*;

/// Requests, and the names of their processes and devices.
type Named = (Vec<Request>, Arc<NameTable>, Arc<NameTable>);

fn nameless(requests: &[Request]) -> Named {
    (requests.to_vec(), Arc::default(), Arc::default())
}

fn write(path: &Path, (requests, processes, devices): &Named) -> Result<WriteLosses> {
    write_batches(path, &[batch_of(requests, processes, devices)], &Ledger::default(), &TraceHeader::default())
}

/// Requests in order of arrival, some with names.
fn requests(names: &'static str) -> impl Strategy<Value = Named> {
    let row = (
        (0i64..1 << 50, 0i64..1 << 33, 0i64..1 << 33, 0i64..1 << 33),
        (0u64..1 << 38, 1u32..1 << 20, 0usize..5, any::<u16>()),
        (prop::option::of(0i32..), prop::option::of(names), prop::option::of("[0-9]{1,2},[0-9]")),
        (any::<bool>(), any::<bool>(), any::<bool>()),
    );
    prop::collection::vec(row, 1..50).prop_map(|rows| {
        let (mut processes, mut devices) = (NameTable::default(), NameTable::default());
        let mut requests: Vec<_> = rows
            .into_iter()
            .map(|((arrival, wait, work, rest), (sector, sectors, op, flags), (pid, name, device), some)| {
                let start = arrival + wait;
                Request {
                    start: some.0.then_some(Nanos(start)),
                    issue: some.1.then_some(Nanos(start + work)),
                    served: (some.0 && some.2).then_some(Nanos(start + work + rest / 2)),
                    complete: some.2.then_some(Nanos(start + work + rest)),
                    flags: RequestFlags(flags & 0xff),
                    pid,
                    process: name.map(|name| processes.intern(&name)),
                    device: device.map(|name| devices.intern(&name)),
                    ..Request::new(Nanos(arrival), Op::ALL[op], Sector(sector), sectors)
                }
            })
            .collect();
        requests.sort_by_key(|request| request.arrival);
        (requests, processes.into(), devices.into())
    })
}

fn written(name: &str, input: &Named) -> (Trace, WriteLosses) {
    let (_folder, path) = scratch(name);
    let losses = write(&path, input).unwrap();
    (read(&path).unwrap_or_else(|error| panic!("{error}")), losses)
}

/// Number of lost values of a column.
fn lost(losses: &WriteLosses, column: &str) -> u64 {
    losses.values.iter().find(|(name, _)| *name == column).map_or(0, |(_, count)| *count)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(emmclab_testing::cases(128)))]

    #[test]
    fn csv_holds_everything(input in requests("[a-z,\" äß-]{0,6}")) {
        let (trace, losses) = written("t.csv", &input);
        prop_assert_eq!(losses, WriteLosses::default());
        let name = |names: &[String], id: Option<emmclab_trace::NameId>| id.map(|id| names[id.0 as usize].clone());
        let (requests, processes, devices) = input;
        let processes: Vec<_> = processes.iter().map(str::to_owned).collect();
        let devices: Vec<_> = devices.iter().map(str::to_owned).collect();
        prop_assert_eq!(trace.requests.len(), requests.len());
        for (found, request) in trace.requests.iter().zip(&requests) {
            prop_assert_eq!(name(&trace.processes, found.process), name(&processes, request.process));
            prop_assert_eq!(name(&trace.devices, found.device), name(&devices, request.device));
            let plain = |request: &Request| Request { process: None, device: None, ..*request };
            prop_assert_eq!(plain(found), plain(request));
        }
    }

    #[test]
    fn ssdsim_and_mqsim_hold_five_numbers_and_count_the_rest(input in requests("[a-z]{1,3}")) {
        for name in ["t.ssdsim", "t.mqsim"] {
            let kept: Vec<_> = input.0.iter().filter(|request| request.op.has_data()).collect();
            prop_assume!(!kept.is_empty());
            let (trace, losses) = written(name, &input);
            prop_assert_eq!(losses.requests, (input.0.len() - kept.len()) as u64);
            let count = |has: fn(&Request) -> bool| kept.iter().filter(|request| has(request)).count() as u64;
            prop_assert_eq!(lost(&losses, "start_ns"), count(|request| request.start.is_some()));
            prop_assert_eq!(lost(&losses, "process"), count(|request| request.process.is_some()));
            prop_assert_eq!(lost(&losses, "flags"), count(|request| request.flags != RequestFlags(0)));
            prop_assert_eq!(trace.requests.len(), kept.len());
            // The clock of the simulators starts at the first request.
            let origin = kept[0].arrival;
            for (found, request) in trace.requests.iter().zip(kept) {
                let plain = |request: &Request| (request.sector, request.sectors, request.op);
                prop_assert_eq!(found.arrival, request.arrival - origin);
                prop_assert_eq!(plain(found), plain(request));
            }
        }
    }

    #[test]
    fn fio_holds_order_place_and_microseconds(input in requests("[a-z]{1,3}")) {
        let kept: Vec<_> = input.0.iter().filter(|request| request.op != Op::SecureErase).collect();
        prop_assume!(!kept.is_empty());
        let (trace, losses) = written("t.iolog", &input);
        let coarse = kept.iter().filter(|request| request.arrival.0 % 1_000 != 0).count() as u64;
        prop_assert_eq!(lost(&losses, "arrival_ns"), coarse);
        let zero = kept[0].arrival.0 / 1_000;
        for (found, request) in trace.requests.iter().zip(&kept) {
            prop_assert_eq!(found.arrival.0, (request.arrival.0 / 1_000 - zero) * 1_000);
            prop_assert_eq!(found.op, request.op);
            if request.op != Op::Flush {
                prop_assert_eq!((found.sector, found.sectors), (request.sector, request.sectors));
            }
        }
        prop_assert_eq!(trace.requests.len(), kept.len());
    }

    #[test]
    fn biotracer_gives_back_all_that_it_has_columns_for(
        rows in prop::collection::vec((0i64..1 << 50, 0i64..1 << 30, 1u32..200, any::<bool>(), any::<bool>(), any::<bool>()), 1..50)
    ) {
        let mut requests: Vec<_> = rows.iter().map(|&(arrival, wait, pages, write, packed, idle)| {
            let mut flags = RequestFlags::NO_WAIT_KNOWN;
            if packed { flags = flags.union(RequestFlags::PACKED); }
            if idle { flags = flags.union(RequestFlags::NO_WAIT); }
            Request {
                start: Some(Nanos(arrival + wait)),
                issue: Some(Nanos(arrival + 2 * wait)),
                complete: Some(Nanos(arrival + 3 * wait)),
                flags,
                ..Request::new(Nanos(arrival), if write { Op::Write } else { Op::Read }, Sector(arrival as u64 % 999), pages * 8)
            }
        }).collect();
        requests.sort_by_key(|request| request.arrival);
        let (trace, losses) = written("t.biotracer", &nameless(&requests));
        prop_assert_eq!(losses, WriteLosses::default());
        prop_assert_eq!(trace.requests, requests);
    }
}

#[test]
fn what_a_format_cannot_say_at_all_is_refused_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let without_times = Request::new(Nanos(5), Op::Read, Sector(8), 8);
    let far = Request::new(Nanos(5), Op::Read, Sector(u64::MAX - 8), 8);
    for (name, request) in [("a.biotracer", without_times), ("a.iolog", far)] {
        let error = write(&folder.path().join(name), &nameless(&[request])).unwrap_err();
        assert_eq!(error.kind(), ErrorClass::Unsupported, "{name}: {error}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_trace_from_before_the_zero_of_its_clock_survives_csv() {
    let request = Request::new(Nanos(-1_500), Op::Write, Sector(8), 8);
    assert_eq!(written("t.csv", &nameless(&[request])).0.requests, [request]);
}

#[test]
fn traces_for_simulators_start_at_time_0_wherever_the_clock_of_the_recording_was() {
    for origin in [-7_000, 0, 1_400_000_000_000_000_000_i64] {
        let at = |ns: i64| Request::new(Nanos(origin + ns), Op::Write, Sector(8), 8);
        let input = nameless(&[at(0), at(10), at(2_000)]);
        for name in ["t.ssdsim", "t.mqsim", "t.iolog"] {
            let arrivals = written(name, &input).0.rows(|request| request.arrival.0);
            let expected = if name == "t.iolog" { [0, 0, 2_000] } else { [0, 10, 2_000] };
            assert_eq!(arrivals, expected, "{name} from {origin}");
        }
    }
}

#[test]
fn the_real_messaging_trace_survives_every_writer() {
    let Some(path) = crate::support::real_trace("nexus5/log106_Messaging.txt") else { return };
    let input = nameless(&read(&path).unwrap().requests);
    for name in ["t.csv", "t.biotracer", "t.parquet"] {
        let (again, losses) = written(name, &input);
        assert_eq!(losses, WriteLosses::default());
        assert!(again.requests == input.0, "{name}");
    }
    let (again, losses) = written("t.ssdsim", &input);
    assert_eq!((again.requests.len(), losses.requests), (5_702, 0));
    assert_eq!(lost(&losses, "complete_ns"), 5_702);
}

#[test]
fn an_unwritable_place_is_an_error() {
    let input = nameless(&[Request::new(Nanos(0), Op::Read, Sector(0), 8)]);
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().to_path_buf(), folder.path().join("none/t.csv")] {
        assert!(write(&path, &input).is_err());
    }
    let error = write(&folder.path().join("t.xyz"), &input).unwrap_err();
    assert_eq!(error.kind(), ErrorClass::UnknownFormat);
}
