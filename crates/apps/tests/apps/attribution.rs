//! The time of a run is attributed to states exactly to the nanosecond, for any program.

use crate::support::{self, FixedDevice, host, outcome, program, thread};
use emmclab_apps::{AppResult, ProgramRunOptions, ThreadState, run};
use proptest::prelude::*;

/// Files and a database for random programs.
const FILES: &str = "[[file]]\nname = \"f\"\npartition = \"data\"\ncount = 3\nsize = \"64KB\"\n\
                     [[file]]\nname = \"new\"\nclass = \"cache\"\npartition = \"data\"\ncount = 4\n\
                     [[database]]\nname = \"d\"\npartition = \"data\"\nsize = \"256KB\"\n";

/// A step of a random program, determined by two numbers.
fn step(kind: u8, value: u8) -> String {
    let value = u64::from(value);
    match kind % 14 {
        0 => format!("{{ cpu = {{ ms = 0.{value:03} }} }}"),
        1 => format!("{{ think = {{ ms = {} }} }}", value % 5),
        2 => format!("{{ network = {{ size = {}, round_trips = {} }} }}", value * 100, value % 3),
        3 => {
            format!("{{ read = {{ file = \"f\", size = \"4KB\", count = {}, pick = \"next\" }} }}", value % 4)
        }
        4 => "{ overwrite = { file = \"f\", size = \"4KB\", pick = \"random\" } }".to_owned(),
        5 => "{ fsync = { file = \"f\" } }".to_owned(),
        6 => "{ create = { file = \"new\" } }, { append = { file = \"new\", size = \"10KB\" } }".to_owned(),
        7 => format!("{{ transaction = {{ database = \"d\", pages = {} }} }}", value % 5),
        8 => "{ query = { database = \"d\", pages = { uniform = [0, 4] } } }".to_owned(),
        9 => format!("{{ lock = {{ name = \"l\", steps = [{{ cpu = {{ ms = 0.{value:03} }} }}] }} }}"),
        10 => "{ signal = { name = \"s\" } }".to_owned(),
        11 => format!("{{ repeat = {{ times = {}, steps = [{{ cpu = {{ ms = 0.1 }} }}] }} }}", value % 7),
        12 => "{ sync = {} }".to_owned(),
        _ => "{ fdatasync = { file = \"f\", pick = \"next\" } }".to_owned(),
    }
}

/// A program of three threads. At its end, the user's thread waits for signals that a worker certainly sends.
fn random_program(steps: &[Vec<(u8, u8)>; 3]) -> String {
    let list = |steps: &[(u8, u8)]| steps.iter().map(|(kind, value)| step(*kind, *value)).collect::<Vec<_>>().join(", ");
    let [ui, worker, third] = steps;
    let join = |steps: String| if steps.is_empty() { steps } else { format!("{steps}, ") };
    let user = support::ui(&format!("{}{{ wait = {{ name = \"s\" }} }}", join(list(ui))));
    let worker = thread("worker", &format!("{}{{ signal = {{ name = \"s\" }} }}", join(list(worker))));
    [FILES, &user, &worker, &thread("third", &list(third))].concat()
}

fn adds_up(result: &AppResult) {
    assert_eq!(result.states.total(), result.runtime_ns, "the critical path is the runtime");
    assert_eq!(result.spent.iter().map(|spent| spent.ns).sum::<i64>(), result.runtime_ns);
    for state in ThreadState::ALL {
        let parts = result.spent.iter().filter(|spent| spent.state == state).map(|spent| spent.ns);
        assert_eq!(parts.sum::<i64>(), result.states.get(state));
    }
    let waited = result.threads.iter().find(|thread| thread.name == result.user_waits_for).unwrap();
    assert_eq!(waited.alive_ns, result.runtime_ns, "the user's thread is there from the beginning to the end");
    for thread in &result.threads {
        assert!(thread.alive_ns <= result.runtime_ns);
    }
    let running: i64 = result.threads.iter().map(|thread| thread.states.get(ThreadState::Running)).sum();
    assert_eq!(running, result.cpu_ns, "what threads run is what cores work");
    let lanes = &result.over_time.lanes;
    let sum = |at: usize| lanes[at].states.values().flatten().sum::<i64>();
    assert_eq!(sum(0), result.runtime_ns, "the bins of the path");
    for (at, thread) in result.threads.iter().enumerate() {
        assert_eq!(sum(at + 1), thread.alive_ns, "the bins of {}", thread.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(150), ..ProptestConfig::default() })]

    #[test]
    fn states_add_up_to_the_runtime_and_a_seed_gives_one_result(
        ui in prop::collection::vec(any::<(u8, u8)>(), 0..25),
        worker in prop::collection::vec(any::<(u8, u8)>(), 0..25),
        third in prop::collection::vec(any::<(u8, u8)>(), 0..25),
        cores in 1_u32..4,
        times in (1_i64..3000, 1_i64..3000, 0_i64..3000),
        seed: u64,
    ) {
        let program = program(&random_program(&[ui, worker, third]));
        let options = ProgramRunOptions { seed, ..ProgramRunOptions::default() };
        let once = || {
            let mut device = FixedDevice::new(times.0, times.1, times.2);
            let result = run(&program, &host(cores), &mut device, &options).unwrap();
            (result, device.requests)
        };
        let (first, second) = (once(), once());
        adds_up(&first.0);
        prop_assert_eq!(serde_json::to_string(&first.0).unwrap(), serde_json::to_string(&second.0).unwrap());
        prop_assert_eq!(first.1, second.1);
    }
}

#[test]
fn the_files_and_partitions_of_waits_are_named() {
    let threads = support::ui("{ transaction = { database = \"d\", pages = 2 } }");
    let result = outcome(&(FILES.to_owned() + &threads), 1);
    let sync: Vec<_> = result.spent.iter().filter(|spent| spent.state == ThreadState::Fsync).collect();
    assert!(!sync.is_empty());
    for spent in sync {
        assert_eq!(spent.partition.as_deref(), Some("data"));
        assert!(["database", "database_journal"].contains(&spent.class.unwrap()), "{spent:?}");
    }
}

#[test]
fn an_infinitely_fast_part_takes_its_share_of_the_time() {
    let steps = "{ transaction = { database = \"d\", pages = 2, count = 9 } }, { cpu = { ms = 5 } }";
    let program = program(&(FILES.to_owned() + &support::ui(steps)));
    let with = |parts: &[&str]| {
        let what_if = parts.iter().map(|part| part.parse().unwrap()).collect();
        let mut device = FixedDevice::new(1000, 1000, 1000);
        let options = ProgramRunOptions { what_if, ..ProgramRunOptions::default() };
        run(&program, &host(1), &mut device, &options).unwrap()
    };
    let base = with(&[]);
    let none = with(&["partition=data"]);
    assert_eq!(none.runtime_ns, 5_000_000, "the processor alone is left");
    assert_eq!(none.requests.unwrap().all.write.device_ns, 0);
    let fsync = with(&["op=fsync"]);
    // The remaining time in syncs is due to reads of bitmaps.
    assert!(fsync.states.get(ThreadState::Fsync) < base.states.get(ThreadState::Fsync) / 10, "{:?}", fsync.spent);
    assert_eq!(with(&["op=fsync", "op=read"]).states.get(ThreadState::Fsync), 0);
    assert_eq!(with(&["op=fsync", "op=read", "op=write_back"]).runtime_ns, 5_000_000);
}
