//! Program and host files: which faults are refused, and how the error describes them.

use std::fmt::Write;

use crate::support::FixedDevice;
use emmclab_apps::{AppProgram, HostSetup, ProgramRunOptions, preset_names, preset_text, run};
use proptest::prelude::*;

const HEAD: &str = "name = \"p\"\nabout = \"a\"\nsource = \"s\"\nuser_waits_for = \"ui\"\n";

/// Returns the error of a program that has a head of four lines, then `rest`, and a thread with these steps.
fn refused(rest: &str, steps: &str) -> (String, Option<u64>) {
    let text = format!("{HEAD}{rest}[[thread]]\nname = \"ui\"\nsteps = [\n{steps}\n]\n");
    let error = AppProgram::from_toml(&text).unwrap_err();
    assert!(error.hint_text().is_some(), "{error}");
    (error.to_string(), error.line())
}

#[test]
fn a_fault_is_named_with_its_line() {
    let file = "[[file]]\nname = \"f\"\npartition = \"data\"\n";
    for (rest, steps, word, line) in [
        ("", "{ cpu = { ms = 1 },", "", Some(9)),
        ("", "{ cup = { ms = 1 } }", "unknown name `cup`", Some(8)),
        ("", "{ cpu = { ms = 1, s = 2 } }", "unexpected keys in table: s", Some(8)),
        ("", "{ cpu = { ms = \"long\" } }", "a value", Some(8)),
        ("", "{ cpu = { ms = -1 } }", "a time must be from 0", Some(6)),
        ("", "{ cpu = { ms = nan } }", "a time must be from 0", Some(6)),
        ("", "{ cpu = { ms = { uniform = [3, 1] } } }", "is greater than the second", Some(6)),
        ("", "{ think = { ms = { choices = [[3, 0]] } } }", "no weight above 0", Some(6)),
        ("", "{ read = { file = \"nowhere\", size = 1 } }", "the program does not define this name", Some(8)),
        ("", "{ wait = { name = \"never\" } }", "no thread sends this signal", Some(8)),
        ("", "{ start = { thread = \"nobody\" } }", "the program does not define this name", Some(8)),
        ("", "{ call = { procedure = \"nothing\" } }", "the program does not define this name", Some(8)),
        ("", "{ maybe = { pct = 120, steps = [] } }", "must be 0 to 100", None),
        ("", "{ repeat = { steps = [{ cpu = { ms = 1 } }] } }", "repeats steps without an end", Some(6)),
        (file, "{ read = { file = \"f\", size = 0 } }", "must be at least 1", Some(11)),
        (file, "{ append = { file = \"f\", size = 1, place = \"random\" } }", "only for `read` and `overwrite`", Some(11)),
        (file, "{ rename = { file = \"f\", to = \"f\" } }", "of its own set", Some(11)),
        ("[[file]]\nname = \"f\"\npartition = \"data\"\nclass = \"metadata\"\n", "", "of the file system", Some(6)),
        ("[[file]]\nname = \"f\"\npartition = \"data\"\ncount = 0\n", "", "`count` must be 1", Some(6)),
        ("[[file]]\nname = \"f\"\npartition = \"data\"\ncount = 4000000000\n", "", "`count` must be 1", Some(6)),
        ("[[database]]\nname = \"d\"\npartition = \"data\"\nsize = \"1MB\"\npage_size = 1000\n", "", "power of two", Some(6)),
        ("[[database]]\nname = \"d\"\npartition = \"data\"\nsize = 5\n", "", "at least two pages", Some(6)),
    ] {
        let (message, at) = refused(rest, steps);
        assert!(message.contains(word), "{word}: {message}");
        assert_eq!(at, line, "{message}");
    }
    let text = format!("{HEAD}[[thread]]\nname = \"ui\"\nsteps = [{{ cpu = {{ ms = -1 }} }}]\n");
    assert_eq!(AppProgram::from_toml(&text).unwrap_err().hint_text(), Some("give times in this range"));
    let twice = format!("{HEAD}[[thread]]\nname = \"ui\"\nsteps = []\n[[thread]]\nname = \"ui\"\nsteps = []\n");
    let error = AppProgram::from_toml(&twice).unwrap_err();
    assert_eq!((error.line(), error.to_string().contains("has two entries of this name")), (Some(9), true));
    let nobody = AppProgram::from_toml(&format!("{HEAD}thread = []\n")).unwrap_err();
    assert!(nobody.to_string().contains("user_waits_for"), "{nobody}");
}

#[test]
fn more_threads_than_a_kernel_has_are_refused() {
    let mut many = String::new();
    for number in 0..32_768 {
        writeln!(many, "[[thread]]\nname = \"t{number}\"\nsteps = []").unwrap();
    }
    let (message, line) = refused(&many, "");
    assert!(message.contains("the program has 32769 threads; the maximum is 32768"), "{message}");
    assert!(line.is_some());
}

#[test]
fn every_application_and_host_that_comes_with_it_is_valid_and_says_where_it_is_from() {
    assert_eq!(preset_names().len(), 11);
    for name in preset_names() {
        let program = AppProgram::preset(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(program.name, name);
        assert!(program.about.len() > 10 && program.source.len() > 100, "{name}");
        assert!(preset_text(&name.to_uppercase()).is_ok(), "case does not matter");
    }
    for name in HostSetup::preset_names() {
        let host = HostSetup::preset(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(host.name, name);
        assert!(host.network("wifi").is_ok() && host.network("usb").is_ok(), "{name}");
    }
    assert!(AppProgram::preset("notes").unwrap_err().hint_text().unwrap().contains("webbench"));
}

#[test]
fn impossible_hosts_are_refused() {
    let host = |more: &str| {
        HostSetup::from_toml(&format!(
            "name = \"h\"\nabout = \"\"\nsource = \"\"\ncores = 1\nera = \"linux-6\"\n{more}\
             [[partition]]\nname = \"data\"\nfilesystem = \"ext4\"\n\
             [[network]]\nname = \"wifi\"\nrate_mbit_s = 1\nround_trip_ms = 1\n"
        ))
    };
    assert!(host("").is_ok());
    assert!(host("kernel = { page_cache_mb = 64 }\n").unwrap().kernel().unwrap().page_cache_mb == 64);
    for (more, word) in [
        ("kernel = { page_cache = 64 }\n", "page_cache"),
        ("kernel = { dirty_pct = 500 }\n", "dirty_pct"),
        ("cpu_factor = -1\n", "cpu_factor"),
        ("quantum_ms = 0\n", "quantum_ms"),
        ("[[periodic]]\nname = \"a\"\nevery_ms = 0\ncpu_ms = 1\n", "periodic.every_ms"),
        ("[[periodic]]\nname = \"a\"\nevery_ms = 1\ncpu_ms = -1\n", "periodic.cpu_ms"),
        ("[kernel.cpu]\npoll_ns = 200000\n", "cpu.poll_ns"),
        ("[[partition]]\nname = \"a\"\n", "only the last partition"),
        ("[[partition]]\nname = \"data\"\nsize = 4096\n", "have two entries of the same name"),
    ] {
        let message = host(more).unwrap_err().to_string();
        assert!(message.contains(word), "{word}: {message}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(300), ..ProptestConfig::default() })]

    /// Files with lines that are removed, duplicated or moved, and with changed digits.
    #[test]
    fn a_damaged_program_is_refused_or_runs(
        preset in 0_usize..10,
        changes in prop::collection::vec((any::<u16>(), any::<u16>(), 0_u8..4), 1..4),
    ) {
        let text = preset_text(preset_names().nth(preset).unwrap()).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for (from, to, kind) in changes {
            let (from, to) = (usize::from(from) % lines.len(), usize::from(to) % lines.len());
            match kind {
                0 => drop(lines.remove(from)),
                1 => lines.swap(from, to),
                2 => lines.insert(to, lines[from].clone()),
                _ => lines[from] = lines[from].replace(['0', '1', '2'], "9"),
            }
        }
        let outcome = AppProgram::from_toml(&lines.join("\n")).and_then(|program| {
            let mut device = FixedDevice::new(100, 100, 100);
            let options = ProgramRunOptions { limit: emmclab_base::Nanos::from_secs(3), ..ProgramRunOptions::default() };
            run(&program, &HostSetup::preset("nexusone")?, &mut device, &options)
        });
        if let Err(error) = outcome {
            prop_assert!(error.hint_text().is_some(), "{}", error);
        }
    }
}

#[test]
fn programs_at_once_share_cores_memory_and_device_and_the_first_keeps_its_draws() {
    let program = |name: &str| AppProgram::preset(name).unwrap();
    let host = HostSetup::preset("nexusone").unwrap();
    let time = |program: &AppProgram| {
        let mut device = FixedDevice::new(200, 2_000, 500);
        run(program, &host, &mut device, &ProgramRunOptions::default()).unwrap()
    };
    let alone = time(&program("webbench"));
    assert_eq!(time(&program("webbench").combined_with(&[]).unwrap()), alone, "nothing beside it changes nothing");
    let both = program("webbench").combined_with(&[program("facebook"), program("webbench")]).unwrap();
    assert_eq!(both.name, "webbench + facebook + webbench");
    let combined = time(&both);
    assert!(combined.runtime_ns > alone.runtime_ns, "{} {}", combined.runtime_ns, alone.runtime_ns);
    let names: Vec<&str> = combined.threads.iter().map(|thread| thread.name.as_str()).collect();
    assert!(names.contains(&"browser") && names.contains(&"webbench 2: browser"), "{names:?}");
    // Each program has its own files, all on the partitions of one host.
    assert!(both.databases.iter().any(|database| database.name == "webbench 2: browser.db"));
    assert_eq!(both.combined_with(&[]).unwrap().user_waits_for, "browser");
}
