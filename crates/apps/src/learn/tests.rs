use super::*;
use crate::program::ProgramStep;

fn options() -> LearnOptions {
    LearnOptions {
        name: "mine".to_owned(),
        partitions: vec![("data".to_owned(), "/".to_owned()), ("sdcard".to_owned(), "/sdcard".to_owned())],
        user_waits_for: None,
        keep_pauses: false,
        cpu_factor: 1.0,
    }
}

fn learned(text: &str) -> (LearnedProgram, AppProgram) {
    let outcome = learn(text.as_bytes(), &options()).unwrap_or_else(|error| panic!("{error}"));
    let program = AppProgram::from_toml(&outcome.program).unwrap();
    (outcome, program)
}

/// The program of a recording in which waits for what is not recorded are kept.
fn with_pauses(text: &str) -> LearnedProgram {
    learn(text.as_bytes(), &LearnOptions { keep_pauses: true, ..options() }).unwrap()
}

/// The error of a recording, and its hint.
fn refused(text: &str) -> (String, String) {
    let error = learn(text.as_bytes(), &options()).unwrap_err();
    (error.to_string(), error.hint_text().unwrap_or_default().to_owned())
}

fn words(program: &AppProgram, thread: usize) -> Vec<String> {
    let steps = &program.threads[thread].steps;
    steps.iter().map(|step| toml::Value::try_from(step).unwrap().to_string()).collect()
}

/// The durations of the work of the first thread.
fn work_ms(program: &AppProgram) -> Vec<f64> {
    let work = program.threads[0].steps.iter().filter_map(|step| match step {
        ProgramStep::Cpu { ms: crate::random_draws::Amount::Fixed(ms) } => Some(*ms),
        _ => None,
    });
    work.collect()
}

#[test]
fn accesses_of_one_size_are_one_step_and_time_between_calls_is_work() {
    let (outcome, program) = learned(
        r#"5 100.000000 openat(AT_FDCWD, "/data/app.db", O_RDWR) = 3 <0.000010>
5 100.000020 fstat(3, {st_mode=S_IFREG|0600, st_size=40960, ...}) = 0 <0.000005>
5 100.000030 pread64(3, "SQLite"..., 4096, 0) = 4096 <0.000900>
5 100.000940 pread64(3, "x"..., 4096, 4096) = 4096 <0.000900>
5 100.010000 pwrite64(3, "x"..., 4096, 20480) = 4096 <0.000010>
5 100.010020 pwrite64(3, "x"..., 4096, 8192) = 4096 <0.000010>
5 100.010040 fdatasync(3) = 0 <0.012000>
5 100.030000 +++ exited with 0 +++
"#,
    );
    assert_eq!((outcome.format, outcome.threads, outcome.files), ("strace", 1, 1));
    assert_eq!((outcome.known.read_bytes, outcome.known.written_bytes), (8192, 8192));
    assert_eq!(program.files[0].name, "/data/app.db");
    assert_eq!(program.files[0].class, emmclab_host::FileClass::Database);
    let steps = words(&program, 0);
    assert!(steps.iter().any(|step| step.contains("read") && step.contains("count = 2")), "{steps:?}");
    assert!(steps.iter().any(|step| step.contains("overwrite") && step.contains("count = 2")), "{steps:?}");
    assert!(steps.iter().any(|step| step.contains("fdatasync")), "{steps:?}");
    let work: f64 = work_ms(&program).iter().sum();
    // Expected work: from 100.00184 s to 100.01 s, from 100.02204 s to the end, and about 10 us between the other calls.
    assert!((work - (8.16 + 7.96 + 0.035)).abs() < 0.02, "{work}");
}

#[test]
fn a_file_that_was_made_is_created_and_one_that_was_there_has_its_size() {
    let (_, program) = learned(
        r#"1.000000 openat(AT_FDCWD, "/data/new", O_WRONLY|O_CREAT, 0600) = 3 <0.00001>
1.000100 write(3, "a", 5000) = 5000 <0.00001>
1.000200 close(3) = 0 <0.00001>
1.000300 openat(AT_FDCWD, "/sdcard/old", O_RDWR|O_CREAT, 0600) = 3 <0.00001>
1.000400 read(3, "a", 100) = 100 <0.00001>
1.000500 rename("/data/new", "/data/newer") = 0 <0.00001>
1.000600 unlink("/data/newer") = 0 <0.00001>
"#,
    );
    let set = |name: &str| program.files.iter().find(|set| set.name == name).unwrap();
    assert!(set("/data/new").size.is_none() && set("/data/newer").size.is_none());
    assert_eq!(set("/sdcard/old").size, Some(crate::random_draws::Amount::Fixed(emmclab_base::ByteSize(100))));
    assert_eq!(set("/sdcard/old").partition, "sdcard");
    let steps = words(&program, 0).join("\n");
    let order: Vec<_> = ["create", "append", "read", "rename", "delete"].map(|word| steps.find(word)).into();
    assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{steps}");
}

#[test]
fn threads_start_where_they_were_cloned_and_wait_for_files_that_others_make() {
    let (_, program) = learned(
        r#"10 1.000000 clone3({flags=CLONE_VM|CLONE_FILES|CLONE_THREAD}, 88) = 11 <0.00001>
11 1.000100 openat(AT_FDCWD, "/data/x", O_WRONLY|O_CREAT|O_EXCL, 0600) = 3 <0.00001>
11 1.000200 write(3, "a", 10) = 10 <0.00001>
10 1.000300 openat(AT_FDCWD, "/data/x", O_RDONLY) = 4 <0.00001>
10 1.000400 read(4, "a", 10) = 10 <0.00001>
10 1.000500 unlink("/data/x") = 0 <0.00001>
11 1.000600 write(3, "b", 10) = 10 <0.00001>
11 1.000700 close(3) = 0 <0.00001>
10 1.000800 close(4) = 0 <0.00001>
"#,
    );
    assert!(program.threads[0].at_begin && !program.threads[1].at_begin);
    let (first, second) = (words(&program, 0), words(&program, 1));
    assert!(first[0].contains("start"), "{first:?}");
    let wait = first.iter().position(|step| step.contains("wait")).unwrap();
    let read = first.iter().position(|step| step.contains("{ read =")).unwrap();
    assert!(wait < read, "{first:?}");
    let signal = second.iter().position(|step| step.contains("signal")).unwrap();
    assert!(second[signal - 1].contains("create"), "{second:?}");
    // The first thread waits for the writes of the second thread. Then it closes the last descriptor, which deletes the file.
    assert!(first.last().unwrap().contains("delete"), "{first:?}");
    assert!(!second.iter().any(|step| step.contains("delete")));
}

#[test]
fn an_answer_takes_the_place_of_the_wait_before_it_and_other_waits_are_pauses() {
    let (outcome, program) = learned(
        r#"1.000000 socket(AF_INET, SOCK_STREAM, IPPROTO_TCP) = 3 <0.00001>
1.000100 connect(3, {sa_family=AF_INET}, 16) = 0 <0.030>
1.030200 sendto(3, "GET", 100, 0, NULL, 0) = 100 <0.00001>
1.030210 poll([{fd=3, events=POLLIN}], 1, -1) = 1 ([{fd=3, revents=POLLIN}]) <0.050>
1.080210 recvfrom(3, "x", 4096, 0, NULL, NULL) = 4000 <0.00001>
1.090000 futex(0x7f, FUTEX_WAIT, 0, NULL) = 0 <0.5>
1.590000 getpid() = 1 <0.6>
"#,
    );
    assert_eq!(outcome.known.network_bytes, 4100);
    assert!((outcome.known.network_ns - 80_030_000).abs() < 100_000, "{}", outcome.known.network_ns);
    assert_eq!(outcome.known.pause_ns, 500_000_000);
    let steps = words(&program, 0).join("\n");
    assert!(steps.contains("4100B") || steps.contains("size = \"4100B\""), "{steps}");
    assert!(steps.contains("think = { ms = 500"), "{steps}");
}

#[test]
fn events_of_ftrace_are_files_without_names() {
    let (outcome, program) = learned(
        "a-7 [000] .... 1.000000: sys_openat(dfd: ffffff9c, filename: 7ffe, flags: 0, mode: 0)\n\
         a-7 [000] .... 1.000010: sys_openat -> 0x3\n\
         a-7 [000] .... 1.000020: sys_read(fd: 3, buf: 7ffe, count: 1000)\n\
         a-7 [000] .... 1.000900: sys_read -> 0x1000\n",
    );
    assert_eq!((outcome.format, outcome.known.read_bytes), ("ftrace", 4096));
    assert!(program.files[0].name.starts_with("?/opened-"), "{}", program.files[0].name);
}

#[test]
fn what_is_no_recording_is_refused_with_its_line_and_how_to_record() {
    for text in ["", "hello\nworld\n", "read(3, \"\", 5) = 0\n"] {
        let (message, hint) = refused(text);
        assert!(hint.contains("strace -f -ttt -T"), "{text}: {message}");
    }
    refused(&"x".repeat(3 << 20));
}

#[test]
fn relative_paths_are_below_the_folder_of_the_process() {
    let (_, program) = learned(
        r#"1.000000 chdir("/data/app") = 0 <0.00001>
1.000100 openat(AT_FDCWD, "new", O_WRONLY|O_CREAT|O_EXCL, 0600) = 3 <0.00001>
1.000200 write(3, "a", 10) = 10 <0.00001>
1.000300 rename("new", "/sdcard/newer") = 0 <0.00001>
1.000400 openat(AT_FDCWD</sdcard>, "old", O_RDONLY) = 4</sdcard/old> <0.00001>
1.000500 read(4</sdcard/old>, "a", 10) = 10 <0.00001>
"#,
    );
    let names: Vec<_> = program.files.iter().map(|set| set.name.as_str()).collect();
    assert_eq!(names, ["/data/app/new", "/sdcard/newer", "/sdcard/old"]);
    // A rename cannot cross file systems, so both files are on the same partition.
    assert_eq!(program.files[0].partition, program.files[1].partition);
}

/// Compares file operations and total pause time of a program that is run directly and through a shell.
#[test]
fn a_shell_waits_for_its_child_and_not_for_as_long_as_the_child_took() {
    let shell = r#"10 1.000000 vfork( <unfinished ...>
11 1.000100 execve("/bin/app", ["app"], 0x7f) = 0 <0.0005>
10 1.000650 <... vfork resumed>) = 11 <0.00065>
10 1.000700 wait4(-1,  <unfinished ...>
11 1.001000 openat(AT_FDCWD, "/data/x", O_WRONLY|O_CREAT|O_EXCL, 0600) = 3 <0.00001>
11 1.001100 write(3, "a", 4096) = 4096 <0.00001>
11 1.001200 fsync(3) = 0 <2.0>
11 3.002000 +++ exited with 0 +++
10 3.002100 <... wait4 resumed>[{WIFEXITED(s) && WEXITSTATUS(s) == 0}], 0, NULL) = 11 <2.0014>
10 3.002200 --- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=11, si_uid=0, si_status=0} ---
10 3.002300 +++ exited with 0 +++
"#;
    let (outcome, program) = learned(shell);
    assert!(outcome.known.pause_ns == 0 && outcome.known.awaited_ns > 1_900_000_000, "{:?}", outcome.known);
    let (first, second) = (words(&program, 0), words(&program, 1));
    assert!(first.iter().any(|step| step.contains("start")), "{first:?}");
    assert!(first.iter().any(|step| step.contains("wait")), "{first:?}");
    assert!(!first.iter().any(|step| step.contains("think")), "{first:?}");
    assert!(second.iter().any(|step| step.contains("fsync")), "{second:?}");
    assert!(second.last().unwrap().contains("signal"), "{second:?}");
}

#[test]
fn a_reader_of_a_pipe_waits_for_its_writer_and_a_thread_for_the_one_that_wakes_it() {
    let (outcome, program) = learned(
        r#"10 1.000000 pipe2([3, 4], O_CLOEXEC) = 0 <0.00001>
10 1.000100 clone(child_stack=NULL, flags=SIGCHLD) = 11 <0.0001>
10 1.000300 read(3,  <unfinished ...>
11 1.000400 openat(AT_FDCWD, "/data/x", O_RDONLY) = 5 <0.00001>
11 1.000500 read(5, "a", 4096) = 4096 <1.0>
11 2.000600 write(4, "a", 10) = 10 <0.00001>
10 2.000700 <... read resumed>"a", 4096) = 10 <1.0004>
10 2.000800 futex(0x7f10, FUTEX_WAIT_PRIVATE, 2, NULL <unfinished ...>
11 2.100000 futex(0x7f10, FUTEX_WAKE_PRIVATE, 1 <unfinished ...>
10 2.100050 <... futex resumed>) = 0 <0.09925>
11 2.100060 <... futex resumed>) = 1 <0.00006>
"#,
    );
    assert!(outcome.known.awaited_ns > 1_000_000_000, "{:?}", outcome.known);
    let first = words(&program, 0);
    assert!(first.iter().filter(|step| step.contains("wait")).count() >= 1, "{first:?}");
}

#[test]
fn work_that_was_recorded_on_a_faster_machine_is_stated_for_a_core_of_factor_one() {
    let text = "5 1.000000 openat(AT_FDCWD, \"/data/a\", O_RDONLY) = 3 <0.000000>\n\
                5 1.020000 read(3, \"\", 9) = 9 <0.001000>\n5 1.031000 read(3, \"\", 5) = 5 <0.001000>\n";
    let work = |cpu_factor| {
        let outcome = learn(text.as_bytes(), &LearnOptions { cpu_factor, ..options() }).unwrap();
        assert_eq!(outcome.known.work_ns, 30_000_000, "as it was recorded");
        assert!(outcome.program.contains(&format!("work on a core of CPU factor {cpu_factor},")));
        work_ms(&AppProgram::from_toml(&outcome.program).unwrap())
    };
    assert_eq!((work(1.0), work(0.25)), (vec![20.0, 10.0], vec![80.0, 40.0]));
    for wrong in [0.0, -1.0, f64::NAN, 1001.0] {
        let error = learn(text.as_bytes(), &LearnOptions { cpu_factor: wrong, ..options() }).unwrap_err();
        assert!(error.to_string().contains("the CPU factor must be above 0") && error.hint_text().is_some(), "{error}");
    }
}

#[test]
fn a_thread_that_mostly_waits_for_what_is_not_recorded_is_refused_with_a_cure() {
    let text = "7 1.000000 openat(AT_FDCWD, \"/data/a\", O_RDONLY) = 3 <0.00001>\n\
                7 1.000100 wait4(-1, NULL, 0, NULL) = 8 <3.0>\n7 4.000200 read(3, \"\", 9) = 9 <0.00001>\n";
    let (message, hint) = refused(text);
    assert!(message.contains("wait4 3.000 s") && hint.contains("--keep-pauses"), "{message}; {hint}");
    assert_eq!(with_pauses(text).known.pause_ns, 3_000_000_000);
}

#[test]
fn a_wait_for_a_child_that_waits_for_what_is_not_recorded_is_refused_with_the_name_of_the_child() {
    let text = r#"10 1.000000 execve("/bin/sh", ["sh"], 0x7f) = 0 <0.0005>
10 1.001000 vfork( <unfinished ...>
11 1.001100 execve("/bin/app", ["app"], 0x7f) = 0 <0.0005>
10 1.001650 <... vfork resumed>) = 11 <0.00065>
10 1.001700 wait4(-1,  <unfinished ...>
11 1.002000 openat(AT_FDCWD, "/data/x", O_RDWR|O_CREAT, 0600) = 3 <0.00001>
11 1.002100 ioctl(4, BINDER_WRITE_READ, 0x7f) = 0 <3.0>
11 4.002200 fsync(3) = 0 <1.0>
11 5.003000 +++ exited with 0 +++
10 5.003100 <... wait4 resumed>[{WIFEXITED(s) && WEXITSTATUS(s) == 0}], 0, NULL) = 11 <4.0014>
10 5.003200 +++ exited with 0 +++
"#;
    let (message, hint) = refused(text);
    assert!(message.contains("thread 10 (sh) waits for 3.000 of its 4.003 s"), "{message}");
    assert!(message.contains("wait4 for thread 11 (app) 3.000 s"), "{message}");
    assert!(hint.contains("10 (sh, 4.003 s), 11 (app, 4.00"), "{hint}");
    learned(&text.replace("<3.0>", "<0.3>"));
}

#[test]
fn the_wait_for_the_other_end_of_a_named_pipe_is_no_time_of_the_device() {
    let text = r#"10 1.000000 execve("/bin/cat", ["cat", "fifo"], 0x7f) = 0 <0.0005>
10 1.001000 openat(AT_FDCWD, "/data/fifo", O_RDONLY) = 3 <2.0>
10 3.001100 newfstatat(3, "", {st_mode=S_IFIFO|0644, st_size=0, ...}, AT_EMPTY_PATH) = 0 <0.00001>
10 3.001200 read(3, "a", 131072) = 10 <0.4>
10 3.401300 openat(AT_FDCWD, "/data/out", O_WRONLY|O_CREAT, 0600) = 4 <0.00001>
10 3.401400 write(4, "a", 10) = 10 <0.00001>
10 3.401500 openat(AT_FDCWD, "/data/fifo", O_RDONLY) = 5 <0.5>
10 3.901600 +++ exited with 0 +++
"#;
    let (error, _) = refused(text);
    assert!(error.contains("thread 10 (cat) waits for 2.900 of its 2.902 s"), "{error}");
    assert!(error.contains("open of a pipe 2.500 s, read 0.400 s"), "{error}");
    let kept = with_pauses(text);
    assert!(kept.known.storage_ns < 1_000_000, "{:?}", kept.known);
}

#[test]
fn every_form_of_time_gives_the_same_program() {
    let calls = [
        (0, r#"openat(AT_FDCWD, "/data/a", O_RDWR) = 3"#, 10),
        (100, r#"pread64(3, "x"..., 4096, 8192) = 4096"#, 800),
        (2000, "fsync(3) = 0", 9000),
        (20_000, r#"pwrite64(3, "x"..., 4096, 0) = 4096"#, 10),
    ];
    let text_of = |stamp: &dyn Fn(i64, i64) -> String| {
        let mut last = 0;
        calls.iter().fold(String::new(), |text, (at, call, took)| {
            let line = format!("7 {} {call} <0.{took:06}>\n", stamp(*at, at - last));
            last = *at;
            text + &line
        })
    };
    let epoch = text_of(&|at, _| format!("1700000000.{at:06}"));
    let of_day = text_of(&|at, _| format!("22:13:20.{at:06}"));
    let relative = text_of(&|_, step| format!("     0.{step:06}"));
    let both = text_of(&|at, step| format!("22:13:20.{at:06} (+     0.{step:06})"));
    let (_, first) = learned(&epoch);
    for text in [of_day, relative, both] {
        let (_, other) = learned(&text);
        assert_eq!(words(&first, 0), words(&other, 0), "{text}");
    }
}

#[test]
fn calls_without_durations_are_read_and_counted() {
    let (outcome, program) = learned(
        "7 1.000000 openat(AT_FDCWD, \"/data/a\", O_RDWR) = 3\n7 1.000100 fsync(3) = 0\n\
         7 1.500000 getpid() = 7\n7 1.600000 nanosleep({tv_sec=1}, NULL) = 0\n7 1.700000 close(3) = 0\n",
    );
    assert_eq!(outcome.known.untimed_calls, 5);
    // Without recorded durations, each call is assumed to last until the next call begins.
    assert!((outcome.known.storage_ns - 500_000_000).abs() < 1_000_000, "{:?}", outcome.known);
    let known = &outcome.known;
    assert_eq!((known.asleep_ns, known.pause_ns, known.work_ns), (100_000_000, 0, 100_000_000));
    assert!(words(&program, 0).iter().any(|step| step.contains("fsync")));
}

#[test]
fn links_folders_and_paths_below_descriptors_lead_to_the_same_file_and_what_is_dropped_is_counted() {
    let (outcome, program) = learned(
        r#"1.000000 mkdir("/data/d", 0700) = 0 <0.00001>
1.000100 openat(AT_FDCWD, "/data/d", O_RDONLY|O_DIRECTORY) = 3 <0.00001>
1.000200 openat(3, "./new", O_WRONLY|O_CREAT|O_EXCL, 0600) = 4 <0.00001>
1.000300 write(4, "a", 100) = 100 <0.00001>
1.000400 close(4) = 0 <0.00001>
1.000500 link("/data/d/new", "/data/other") = 0 <0.00001>
1.000600 unlink("/data/d/new") = 0 <0.00001>
1.000700 openat(AT_FDCWD, "/data/x/../other", O_RDONLY) = 4 <0.00001>
1.000800 read(4, "a", 100) = 100 <0.00001>
1.000900 rename("/data", "/moved") = 0 <0.00001>
1.001000 openat(AT_FDCWD, "/moved/other", O_RDONLY) = 5 <0.00001>
1.001100 read(5, "a", 100) = 100 <0.00001>
"#,
    );
    let names: Vec<_> = program.files.iter().map(|set| set.name.as_str()).collect();
    assert_eq!(names, ["/data/d/new"]);
    assert!(!words(&program, 0).iter().any(|step| step.contains("delete")), "{:?}", words(&program, 0));
    let dropped: Vec<_> = outcome.dropped.iter().map(|(kind, count)| (kind.as_str(), *count)).collect();
    assert_eq!(dropped, [("link", 1), ("mkdir", 1), ("rename of a folder", 1)]);
}

/// A recording of a shell that runs `sleep` for two seconds, and then a program that writes.
const SLEEPS_FIRST: &str = r#"10 1.000000 execve("/bin/sh", ["sh"], 0x7f) = 0 <0.0005>
10 1.001000 vfork( <unfinished ...>
11 1.001100 execve("/bin/sleep", ["sleep", "2"], 0x7f) = 0 <0.0005>
10 1.001650 <... vfork resumed>) = 11 <0.00065>
10 1.001700 wait4(-1,  <unfinished ...>
11 1.002000 clock_nanosleep(CLOCK_REALTIME, 0, {tv_sec=2, tv_nsec=0}, NULL) = 0 <2.0>
11 3.003000 +++ exited with 0 +++
10 3.003100 <... wait4 resumed>[{WIFEXITED(s) && WEXITSTATUS(s) == 0}], 0, NULL) = 11 <2.0014>
10 3.003200 openat(AT_FDCWD, "/data/x", O_RDWR|O_CREAT, 0600) = 3 <0.00001>
10 3.003300 fsync(3) = 0 <1.0>
10 4.003400 +++ exited with 0 +++
"#;

#[test]
fn a_shell_that_mostly_sleeps_is_refused_and_a_shorter_sleep_is_told_with_its_length() {
    let (message, hint) = refused(SLEEPS_FIRST);
    assert!(message.contains("thread 10 (sh) waits for 2.000 of its 3.003 s, 2.000 s asleep"), "{message}");
    assert!(message.contains("(wait4 for thread 11 (sleep) 2.000 s)"), "{message}");
    assert!(hint.contains("--keep-pauses") && hint.contains("without its sleeps"), "{hint}");
    assert!(!hint.contains("record all processes"), "{hint}");
    let longer = SLEEPS_FIRST.replace("10 4.003400 +++", "10 6.003400 +++").replace("<1.0>", "<3.0>");
    let (outcome, _) = learned(&longer);
    assert_eq!((outcome.user.asleep_ns, outcome.user.unexplained_ns, outcome.user.behind_ns), (2_000_000_000, 0, 0));
    assert_eq!((outcome.known.asleep_ns, outcome.known.pause_ns), (2_000_000_000, 0));
    assert!(outcome.program.contains("so are 2.000 s asleep"), "{}", outcome.program);
}

#[test]
fn time_asleep_is_neither_work_nor_storage_however_the_sleep_begins_and_ends() {
    let begin = "10 1.000000 openat(AT_FDCWD, \"/data/x\", O_RDWR) = 3 <0.000000>\n";
    let sleeps = [
        "10 1.000000 nanosleep({tv_sec=2}, NULL) = 0 <2.0>\n10 3.000000 +++ exited with 0 +++\n",
        // The thread is killed while it sleeps.
        "10 1.000000 nanosleep({tv_sec=9},  <unfinished ...>) = ?\n10 3.000000 +++ killed by SIGKILL +++\n",
        "10 1.000000 nanosleep({tv_sec=9},  <unfinished ...>\n10 3.000000 <... nanosleep resumed>) = ?\n\
         10 3.000000 +++ killed by SIGKILL +++\n",
        // A child ends during the sleep, which continues after the signal.
        "11 1.000000 exit_group(0) = ?\n10 1.000000 clock_nanosleep(CLOCK_REALTIME, 0, {tv_sec=2}, NULL) = ? \
         ERESTART_RESTARTBLOCK (Interrupted by signal) <1.0>\n10 2.000000 --- SIGCHLD {si_signo=SIGCHLD} ---\n\
         10 2.000000 restart_syscall(<... resuming interrupted clock_nanosleep ...>) = 0 <1.0>\n",
        // A signal stops the thread between calls.
        "10 1.000000 --- SIGSTOP {si_signo=SIGSTOP} ---\n10 1.000000 --- stopped by SIGSTOP ---\n\
         10 3.000000 --- SIGCONT {si_signo=SIGCONT} ---\n10 3.000000 +++ exited with 0 +++\n",
        // Durations are not recorded (no `strace -T`).
        "10 1.000000 nanosleep({tv_sec=2}, NULL) = 0\n10 3.000000 +++ exited with 0 +++\n",
        "10 1.000000 select(0, NULL, NULL, NULL, {tv_sec=2}) = 0 (Timeout) <2.0>\n",
        "10 1.000000 read(4<anon_inode:[timerfd]>, \"\\1\", 8) = 8 <2.0>\n",
    ];
    for sleep in sleeps {
        let known = with_pauses(&format!("{begin}{sleep}")).known;
        let waited = (known.asleep_ns, known.pause_ns, known.awaited_ns);
        assert_eq!((waited, known.work_ns, known.storage_ns), ((2_000_000_000, 0, 0), 0, 0), "{sleep}");
    }
}

#[test]
fn a_thread_that_ends_in_a_wait_or_waits_for_a_lock_has_not_worked() {
    for (end, storage) in [
        ("10 1.000000 futex(0x7f, FUTEX_WAIT, 0, NULL <unfinished ...>\n10 2.000000 +++ exited with 0 +++\n", 0),
        ("10 1.000000 fcntl(3</data/x>, F_SETLKW, {l_type=F_WRLCK}) = 0 <1.0>\n", 0),
        ("10 1.000000 fsync(3 <unfinished ...>\n10 2.000000 +++ killed by SIGKILL +++\n", 1_000_000_000),
    ] {
        let text = format!("10 1.000000 openat(AT_FDCWD, \"/data/x\", O_RDWR) = 3 <0.000000>\n{end}");
        let known = with_pauses(&text).known;
        let expected = (1_000_000_000 - storage, 0, storage);
        assert_eq!((known.pause_ns, known.work_ns, known.storage_ns), expected, "{end}");
    }
}

#[test]
fn a_shell_that_ends_before_its_children_have_worked_is_refused_unless_it_is_named() {
    let text = |child: &str| {
        format!(
            r#"10 1.000000 execve("/bin/sh", ["sh"], 0x7f) = 0 <0.0005>
10 1.001000 clone(child_stack=NULL, flags=SIGCHLD) = 11 <0.0001>
11 1.001200 execve("/bin/app", ["app"], 0x7f) = 0 <0.0005>
10 1.002000 +++ exited with 0 +++
11 1.003000 openat(AT_FDCWD, "/data/x", O_RDWR|O_CREAT, 0600) = 3 <0.00001>
11 1.004000 {child} = 0 <2.0>
11 3.004500 +++ exited with 0 +++
"#
        )
    };
    let (message, hint) = refused(&text("fsync(3)"));
    assert!(message.contains("thread 10 (sh) ends after 0.002 s, and thread 11 (app) continues with 2.00"), "{message}");
    assert!(hint.contains("--user-waits-for: 10 (sh, 0.002 s)"), "{hint}");
    let named = LearnOptions { user_waits_for: Some("10".to_owned()), ..options() };
    let outcome = learn(text("fsync(3)").as_bytes(), &named).unwrap();
    assert_eq!(outcome.user.behind_ns, 2_002_500_000);
    // Another thread sleeps after the thread that the user waits for has ended. This sleep does not count as work.
    let (outcome, _) = learned(&text("nanosleep({tv_sec=2}, NULL)"));
    assert_eq!(outcome.user.behind_ns, 2_500_000);
}

#[test]
fn a_synchronous_write_is_a_write_and_a_sync() {
    for (flags, write, sync) in [
        ("O_RDWR|O_SYNC", "pwrite64(3, \"a\"..., 4096, 0)", "fsync"),
        ("O_RDWR|O_DSYNC", "write(3, \"a\"..., 4096)", "fdatasync"),
        ("O_RDWR", "pwritev2(3, [{iov_base=\"a\"}], 1, 0, RWF_DSYNC)", "fdatasync"),
    ] {
        let (_, program) = learned(&format!(
            "7 1.000000 openat(AT_FDCWD, \"/data/x\", {flags}) = 3 <0.00001>\n7 1.000100 {write} = 4096 <0.002>\n"
        ));
        let steps = words(&program, 0);
        assert!(steps.last().unwrap().contains(&format!("{sync} =")), "{steps:?}");
    }
}

#[test]
fn a_recording_of_some_calls_is_named_and_without_writes_its_syncs_are_refused() {
    let opened = "1 10.0 openat(AT_FDCWD, \"/data/a\", O_RDWR|O_CREAT, 0644) = 3</data/a> <0.0001>\n";
    let synced = "1 10.1 fsync(3</data/a>) = 0 <0.002>\n1 10.2 +++ exited with 0 +++\n";
    let (message, hint) = refused(&format!("{opened}{synced}"));
    assert!(message.ends_with("contains only these calls: fsync, openat"), "{message}");
    assert!(hint.contains("leave out -e"), "{hint}");
    let written = "1 10.05 write(3</data/a>, \"\"..., 4096) = 4096 <0.0001>\n";
    let (outcome, program) = learned(&format!("{opened}{written}{synced}"));
    assert_eq!(outcome.only_calls, ["fsync", "openat", "write"]);
    assert!(program.about.contains("only of fsync, openat, write"), "{}", program.about);
    // If all system calls were recorded, `only_calls` is empty.
    let whole = format!("1 9.9 brk(NULL) = 0x1000 <0.0001>\n{opened}{written}{synced}");
    assert!(learned(&whole).0.only_calls.is_empty());
}
