//! Threads, cores, network and waits, with times that can be calculated by hand.

use crate::support::{FixedDevice, failure, host, outcome, program};
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
    let steps = "[[thread]]\nname = \"ui\"\nsteps = [{ cpu = { ms = 5 } }, { think = { ms = 7 } }, \
                 { network = { size = 4000, round_trips = 2 } }, { cpu = { ms = 1 } }]";
    // 4,000 bytes at one byte per microsecond, and two round trips of 10 ms.
    assert_eq!(times(steps, 1), (37, vec![(Running, 6), (Network, 24), (Think, 7)]));
}

#[test]
fn threads_share_a_core_by_turns_and_two_cores_do_not_make_them_wait() {
    let steps = "[[thread]]\nname = \"ui\"\nsteps = [{ cpu = { ms = 5 } }]\n\
                 [[thread]]\nname = \"other\"\nsteps = [{ cpu = { ms = 20 } }]";
    // With quanta of 2 ms, `ui` runs in 0-2, 4-6 and 8-9 ms.
    assert_eq!(times(steps, 1), (9, vec![(Running, 5), (Core, 4)]));
    assert_eq!(times(steps, 2), (5, vec![(Running, 5)]));
}

#[test]
fn transfers_share_the_network() {
    let steps = "[[thread]]\nname = \"ui\"\nsteps = [{ network = { size = 1000, round_trips = 0 } }]\n\
                 [[thread]]\nname = \"other\"\nsteps = [{ network = { size = 90000, round_trips = 0 } }]";
    assert_eq!(times(steps, 1), (2, vec![(Network, 2)]));
}

#[test]
fn what_a_wait_for_a_worker_consists_of_is_what_the_worker_did() {
    let steps = "[[thread]]\nname = \"ui\"\nsteps = [{ cpu = { ms = 1 } }, { signal = { name = \"go\" } }, \
                 { wait = { name = \"done\" } }, { cpu = { ms = 1 } }]\n\
                 [[thread]]\nname = \"worker\"\nsteps = [{ wait = { name = \"go\" } }, { think = { ms = 3 } }, \
                 { cpu = { ms = 4 } }, { signal = { name = \"done\" } }]";
    let result = outcome(steps, 2);
    assert_eq!(result.runtime_ns, 9 * MS);
    let path: Vec<_> = [Running, Think, Thread].map(|state| result.states.get(state) / MS).to_vec();
    assert_eq!(path, [6, 3, 0]);
    let own = &result.threads[0].states;
    assert_eq!([own.get(Running) / MS, own.get(Thread) / MS], [2, 7], "its own time line has the wait");
}

#[test]
fn a_lock_is_handed_on_in_the_order_of_asking() {
    let thread = |name: &str, before: u32| {
        format!(
            "[[thread]]\nname = \"{name}\"\nsteps = [{{ think = {{ ms = {before} }} }}, \
             {{ lock = {{ name = \"l\", steps = [{{ think = {{ ms = 10 }} }}] }} }}]\n"
        )
    };
    let steps = [thread("ui", 2), thread("a", 1), thread("b", 0)].concat();
    // `b` has the lock until 10 ms, `a` until 20, `ui` until 30.
    assert_eq!(times(&steps, 1), (30, vec![(Think, 30)]));
}

#[test]
fn a_started_thread_runs_beside_and_its_end_can_be_waited_for() {
    let steps = "[[thread]]\nname = \"ui\"\nsteps = [{ repeat = { times = 2, steps = [{ start = { thread = \"w\" } }, \
                 { cpu = { ms = 1 } }, { join = { thread = \"w\" } }] } }]\n\
                 [[thread]]\nname = \"w\"\nat_begin = false\nsteps = [{ think = { ms = 4 } }]";
    let result = outcome(steps, 2);
    assert_eq!(result.runtime_ns, 8 * MS);
    assert_eq!(result.threads[1].alive_ns, 8 * MS);
    // While the user's thread works, its own state counts; then it waits, and the state of the other thread counts.
    assert_eq!((result.states.get(Running), result.states.get(Think)), (2 * MS, 6 * MS));
}

#[test]
fn the_program_ends_with_the_thread_that_the_user_waits_for() {
    let steps = "[[thread]]\nname = \"ui\"\nsteps = [{ cpu = { ms = 3 } }]\n\
                 [[thread]]\nname = \"for ever\"\nsteps = [{ repeat = { steps = [{ think = { ms = 1 } }] } }]";
    assert_eq!(outcome(steps, 1).runtime_ns, 3 * MS);
}

#[test]
fn a_deadlock_names_the_threads_and_what_each_waits_for() {
    let thread = |name: &str, first: &str, second: &str| {
        format!(
            "[[thread]]\nname = \"{name}\"\nsteps = [{{ lock = {{ name = \"{first}\", steps = [{{ think = {{ ms = 1 }} }}, \
             {{ lock = {{ name = \"{second}\", steps = [] }} }}] }} }}]\n"
        )
    };
    let message = failure(&[thread("ui", "a", "b"), thread("other", "b", "a")].concat());
    assert!(message.contains("deadlock at 1.00 ms"), "{message}");
    assert!(message.contains("thread `ui` waits for lock `b`, which `other` has"), "{message}");
    assert!(message.contains("thread `other` waits for lock `a`, which `ui` has"), "{message}");
    let alone = failure("[[thread]]\nname = \"ui\"\nsteps = [{ wait = { name = \"s\" } }, { signal = { name = \"s\" } }]");
    assert!(alone.contains("thread `ui` waits for signal `s`"), "{alone}");
}

#[test]
fn periodic_work_of_the_host_takes_its_turns_on_the_core_and_hides_no_deadlock() {
    let mut setup = host(1);
    setup.periodic.push(PeriodicWork { name: "indicator".to_owned(), every_ms: 5.0, cpu_ms: 1.0 });
    let run = |steps: &str| {
        let mut device = FixedDevice::new(1000, 1000, 1000);
        emmclab_apps::run(&program(steps), &setup, &mut device, &ProgramRunOptions::default())
    };
    let result = run("[[thread]]\nname = \"ui\"\nsteps = [{ think = { ms = 59 } }]").unwrap();
    assert_eq!((result.runtime_ns, result.cpu_ns), (59 * MS, 9 * MS), "at 5-6, 11-12, to 53-54 ms");
    let own = result.threads.last().unwrap();
    assert_eq!((own.name.as_str(), own.states.get(Running)), ("host: indicator", 9 * MS));
    let result = run("[[thread]]\nname = \"ui\"\nsteps = [{ cpu = { ms = 20 } }]").unwrap();
    assert_eq!(result.states.get(Running) + result.states.get(Core), result.runtime_ns);
    assert!(result.states.get(Core) >= 2 * MS, "it takes turns: {:?}", result.states);
    let stuck = run("[[thread]]\nname = \"ui\"\nsteps = [{ wait = { name = \"s\" } }, \
                     { signal = { name = \"s\" } }]");
    assert!(stuck.unwrap_err().to_string().contains("deadlock at"));
}

#[test]
fn a_driver_that_asks_whether_a_write_is_done_works_as_long_as_the_device_has_one() {
    let steps = "[[file]]\nname = \"f\"\npartition = \"data\"\n[[thread]]\nname = \"ui\"\nsteps = [\
                 { create = { file = \"f\" } }, { append = { file = \"f\", size = 4096 } }, { fsync = { file = \"f\" } }]";
    let cpu_ns = |poll_ns: i64, write_us: i64| {
        let mut setup = host(1);
        let cpu = setup.kernel["cpu"].as_table_mut().unwrap();
        cpu.insert("poll_ns".to_owned(), poll_ns.into());
        let mut device = FixedDevice::new(1000, write_us, 1000);
        let result = emmclab_apps::run(&program(steps), &setup, &mut device, &ProgramRunOptions::default()).unwrap();
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

#[test]
fn a_wait_without_end_beside_a_busy_thread_ends_at_the_limit() {
    let message = failure(
        "[[thread]]\nname = \"ui\"\nsteps = [{ wait = { name = \"s\" } }]\n\
         [[thread]]\nname = \"busy\"\nsteps = [{ repeat = { steps = [{ think = { ms = 1000 } }] } }, \
         { signal = { name = \"s\" } }]",
    );
    assert!(message.contains("has not ended after 60.00 s: thread `ui` waits for signal `s`"), "{message}");
}

#[test]
fn steps_that_let_no_time_pass_are_refused() {
    let message = failure("[[thread]]\nname = \"ui\"\nsteps = [{ repeat = { times = 1000000000000, steps = [] } }]");
    assert!(message.contains("steps that take no time"), "{message}");
}

#[test]
fn a_thread_that_runs_is_not_started_again() {
    let message = failure(
        "[[thread]]\nname = \"ui\"\nsteps = [{ start = { thread = \"w\" } }, { start = { thread = \"w\" } }]\n\
         [[thread]]\nname = \"w\"\nat_begin = false\nsteps = [{ think = { ms = 4 } }]",
    );
    assert!(message.contains("`w`") && message.contains("still runs"), "{message}");
}
