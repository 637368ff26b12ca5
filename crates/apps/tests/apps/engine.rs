//! Threads, cores, network and waits, with times that can be calculated by hand.

use crate::support::{FixedDevice, failure, host, outcome, program, run_on, thread, ui};
use emmclab_apps::ThreadState::{self, Core, Network, Running, Think, Thread};
use emmclab_apps::{PeriodicWork, ProgramRunOptions};

const MS: i64 = 1_000_000;

/// The runtime in ms, and the states on the critical path with their times in ms.
fn times(rest: &str, cores: u32) -> (i64, Vec<(ThreadState, i64)>) {
    let result = outcome(rest, cores);
    let states = ThreadState::ALL.into_iter().map(|state| (state, result.states.get(state) / MS));
    (result.runtime_ns / MS, states.filter(|(_, ms)| *ms > 0).collect())
}

#[test]
fn steps_of_a_thread_come_one_after_the_other() {
    let steps =
        "{ cpu = { ms = 5 } }, { think = { ms = 7 } }, { network = { size = 4000, round_trips = 2 } }, { cpu = { ms = 1 } }";
    // 4,000 bytes at one byte per microsecond, and two round trips of 10 ms.
    assert_eq!(times(&ui(steps), 1), (37, vec![(Running, 6), (Network, 24), (Think, 7)]));
}

#[test]
fn threads_share_a_core_by_turns_and_two_cores_do_not_make_them_wait() {
    let threads = ui("{ cpu = { ms = 5 } }") + &thread("other", "{ cpu = { ms = 20 } }");
    // With quanta of 2 ms, `ui` runs in 0-2, 4-6 and 8-9 ms.
    assert_eq!(times(&threads, 1), (9, vec![(Running, 5), (Core, 4)]));
    assert_eq!(times(&threads, 2), (5, vec![(Running, 5)]));
}

#[test]
fn transfers_share_the_network() {
    let transfer = |bytes: u32| format!("{{ network = {{ size = {bytes}, round_trips = 0 }} }}");
    let threads = ui(&transfer(1000)) + &thread("other", &transfer(90_000));
    assert_eq!(times(&threads, 1), (2, vec![(Network, 2)]));
}

#[test]
fn what_a_wait_for_a_worker_consists_of_is_what_the_worker_did() {
    let user = "{ cpu = { ms = 1 } }, { signal = { name = \"go\" } }, { wait = { name = \"done\" } }, { cpu = { ms = 1 } }";
    let worker = "{ wait = { name = \"go\" } }, { think = { ms = 3 } }, { cpu = { ms = 4 } }, { signal = { name = \"done\" } }";
    let result = outcome(&(ui(user) + &thread("worker", worker)), 2);
    assert_eq!(result.runtime_ns, 9 * MS);
    let path: Vec<_> = [Running, Think, Thread].map(|state| result.states.get(state) / MS).to_vec();
    assert_eq!(path, [6, 3, 0]);
    let own = &result.threads[0].states;
    assert_eq!([own.get(Running) / MS, own.get(Thread) / MS], [2, 7], "its own time line has the wait");
}

#[test]
fn a_lock_is_handed_on_in_the_order_of_asking() {
    let asks = |name: &str, before: u32| {
        let steps = "{ lock = { name = \"l\", steps = [{ think = { ms = 10 } }] } }";
        thread(name, &format!("{{ think = {{ ms = {before} }} }}, {steps}"))
    };
    let threads = [asks("ui", 2), asks("a", 1), asks("b", 0)].concat();
    // `b` has the lock until 10 ms, `a` until 20, `ui` until 30.
    assert_eq!(times(&threads, 1), (30, vec![(Think, 30)]));
}

#[test]
fn a_started_thread_runs_beside_and_its_end_can_be_waited_for() {
    let twice = "{ start = { thread = \"w\" } }, { cpu = { ms = 1 } }, { join = { thread = \"w\" } }";
    let threads = ui(&format!("{{ repeat = {{ times = 2, steps = [{twice}] }} }}")) + STARTED;
    let result = outcome(&threads, 2);
    assert_eq!(result.runtime_ns, 8 * MS);
    assert_eq!(result.threads[1].alive_ns, 8 * MS);
    // While the user's thread works, its own state counts; then it waits, and the state of the other thread counts.
    assert_eq!((result.states.get(Running), result.states.get(Think)), (2 * MS, 6 * MS));
}

#[test]
fn the_program_ends_with_the_thread_that_the_user_waits_for() {
    let threads = ui("{ cpu = { ms = 3 } }") + &thread("for ever", "{ repeat = { steps = [{ think = { ms = 1 } }] } }");
    assert_eq!(outcome(&threads, 1).runtime_ns, 3 * MS);
}

#[test]
fn periodic_work_of_the_host_takes_its_turns_on_the_core_and_hides_no_deadlock() {
    let mut setup = host(1);
    setup.periodic.push(PeriodicWork { name: "indicator".to_owned(), every_ms: 5.0, cpu_ms: 1.0 });
    let result = run_on(&setup, &ui("{ think = { ms = 59 } }")).unwrap();
    assert_eq!((result.runtime_ns, result.cpu_ns), (59 * MS, 9 * MS), "at 5-6, 11-12, to 53-54 ms");
    let own = result.threads.last().unwrap();
    assert_eq!((own.name.as_str(), own.states.get(Running)), ("host: indicator", 9 * MS));
    let result = run_on(&setup, &ui("{ cpu = { ms = 20 } }")).unwrap();
    assert_eq!(result.states.get(Running) + result.states.get(Core), result.runtime_ns);
    assert!(result.states.get(Core) >= 2 * MS, "it takes turns: {:?}", result.states);
    assert!(run_on(&setup, &ui(STUCK)).unwrap_err().to_string().contains("deadlock at"));
}

#[test]
fn a_driver_that_asks_whether_a_write_is_done_works_as_long_as_the_device_has_one() {
    let steps = "{ create = { file = \"f\" } }, { append = { file = \"f\", size = 4096 } }, { fsync = { file = \"f\" } }";
    let program = program(&format!("[[file]]\nname = \"f\"\npartition = \"data\"\n{}", ui(steps)));
    let cpu_ns = |poll_ns: i64, write_us: i64| {
        let mut setup = host(1);
        let cpu = setup.kernel["cpu"].as_table_mut().unwrap();
        cpu.insert("poll_ns".to_owned(), poll_ns.into());
        let mut device = FixedDevice::new(1000, write_us, 1000);
        let result = emmclab_apps::run(&program, &setup, &mut device, &ProgramRunOptions::default()).unwrap();
        (result.kernel_cpu_ns.unwrap(), result.requests.unwrap().all.write.requests)
    };
    assert_eq!(cpu_ns(0, 1_000).0, 0, "an interrupt");
    for write_us in [1_000, 7_000] {
        let (spent, writes) = cpu_ns(20_000, write_us);
        // One query in 100 us. The last write may not be complete when the program ends.
        let most = writes * write_us as u64 * 1_000 / 100_000 * 20_000;
        assert!(writes >= 2 && spent <= most && 2 * spent >= most, "{spent} of {most}");
    }
}

/// Steps that wait for a signal that is sent only afterwards.
const STUCK: &str = "{ wait = { name = \"s\" } }, { signal = { name = \"s\" } }";
/// A thread that starts when another thread starts it.
const STARTED: &str = "[[thread]]\nname = \"w\"\nat_begin = false\nsteps = [{ think = { ms = 4 } }]\n";

#[test]
fn what_cannot_end_or_lacks_a_part_is_refused_with_its_cause() {
    let locks = |name: &str, first: &str, second: &str| {
        let inner = format!("{{ think = {{ ms = 1 }} }}, {{ lock = {{ name = \"{second}\", steps = [] }} }}");
        thread(name, &format!("{{ lock = {{ name = \"{first}\", steps = [{inner}] }} }}"))
    };
    let busy = "{ repeat = { steps = [{ think = { ms = 1000 } }] } }, { signal = { name = \"s\" } }";
    let call = "{ call = { procedure = \"q\" } }";
    let start = "{ start = { thread = \"w\" } }";
    for (threads, words) in [
        (
            locks("ui", "a", "b") + &locks("other", "b", "a"),
            &[
                "deadlock at 1.00 ms",
                "thread `ui` waits for lock `b`, which `other` has",
                "thread `other` waits for lock `a`, which `ui` has",
            ][..],
        ),
        (ui(STUCK), &["thread `ui` waits for signal `s`"]),
        (
            ui("{ wait = { name = \"s\" } }") + &thread("busy", busy),
            &["has not ended after 60.00 s: thread `ui` waits for signal `s`"],
        ),
        (ui("{ repeat = { times = 1000000000000, steps = [] } }"), &["steps that take no time"]),
        (ui(&format!("{start}, {start}")) + STARTED, &["`w`", "still runs"]),
        (format!("[[procedure]]\nname = \"q\"\nsteps = [{call}]\n{}", ui(call)), &["`q`: the procedure calls itself"]),
        (
            "[[file]]\nname = \"late\"\npartition = \"data\"\n".to_owned() + &ui("{ append = { file = \"late\", size = 5 } }"),
            &["`late`: the program uses a file of this file set"],
        ),
        ("[[file]]\nname = \"f\"\npartition = \"elsewhere\"\n".to_owned() + &ui(""), &["`elsewhere`", "`f`"]),
    ] {
        let message = failure(&threads);
        for word in words {
            assert!(message.contains(word), "{word}: {message}");
        }
    }
}
