//! Programs that are learned from recordings can be run.

use std::fmt::Write;

use crate::support::FixedDevice;
use emmclab_apps::{AppProgram, HostSetup, LearnOptions, ProgramRunOptions, learn, run};
use proptest::prelude::*;

fn options() -> LearnOptions {
    let partition = |name: &str, folder: &str| (name.to_owned(), folder.to_owned());
    LearnOptions {
        name: "mine".to_owned(),
        partitions: vec![partition("data", "/"), partition("cache", "/cache")],
        user_waits_for: None,
        keep_pauses: true,
        cpu_factor: 1.0,
    }
}

fn line() -> impl Strategy<Value = (u32, String)> {
    let fd = 3..6_i64;
    let path = prop_oneof![Just("/data/a"), Just("/data/b.db"), Just("/cache/c"), Just("d")];
    let bytes = 1..9000_i64;
    let call = prop_oneof![
        (path.clone(), any::<bool>(), fd.clone()).prop_map(|(path, create, fd)| {
            let flags = if create { "O_RDWR|O_CREAT" } else { "O_RDWR" };
            format!("openat(AT_FDCWD, \"{path}\", {flags}, 0600) = {fd}")
        }),
        (fd.clone(), bytes.clone()).prop_map(|(fd, n)| format!("read({fd}, \"\"..., {n}) = {n}")),
        (fd.clone(), bytes.clone(), bytes.clone()).prop_map(|(fd, n, at)| format!("pwrite64({fd}, \"\"..., {n}, {at}) = {n}")),
        (fd.clone(), bytes).prop_map(|(fd, n)| format!("write({fd}, \"\"..., {n}) = {n}")),
        fd.clone().prop_map(|fd| format!("fsync({fd}) = 0")),
        fd.clone().prop_map(|fd| format!("close({fd}) = 0")),
        fd.clone().prop_map(|fd| format!("ftruncate({fd}, 4096) = 0")),
        fd.prop_map(|fd| format!("dup2({fd}, 5) = 5")),
        path.clone().prop_map(|path| format!("unlink(\"{path}\") = 0")),
        (path.clone(), path).prop_map(|(from, to)| format!("rename(\"{from}\", \"{to}\") = 0")),
    ];
    (1..4_u32, call)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: emmclab_testing::cases(2000), ..ProptestConfig::default() })]

    #[test]
    fn whatever_was_recorded_the_program_runs_to_its_end(lines in prop::collection::vec(line(), 1..60)) {
        let mut text = "1 0.9 brk(NULL) = 0x1000 <0.000001>\n".to_owned();
        for (number, (thread, call)) in lines.iter().enumerate() {
            writeln!(text, "{thread} 1.{:06} {call} <0.000001>", number * 10).unwrap();
        }
        let learned = learn(text.as_bytes(), &options()).unwrap();
        let program = AppProgram::from_toml(&learned.program).unwrap();
        let host = HostSetup::preset("phone-2020-ext4").unwrap();
        let run = run(&program, &host, &mut FixedDevice::new(100, 1000, 500), &ProgramRunOptions::default());
        prop_assert!(run.is_ok(), "{}\n{text}\n{}", run.unwrap_err(), learned.program);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = learn(bytes.as_slice(), &options());
    }

    #[test]
    fn a_recording_that_is_cut_anywhere_is_read_or_refused(cut in 0..600_usize) {
        let text = r#"5 100.000000 openat(AT_FDCWD, "/data/a\303\244\"", O_RDWR|O_CREAT) = 3 <0.000010>
6 100.000020 fstat(3, {st_mode=S_IFREG|0600, st_size=40960, ...}) = 0 <0.000005>
5 100.000030 pread64(3, "SQLite"..., 4096, 0 <unfinished ...>
6 100.000940 recvmsg(9<socket:[1]>, {msg_name=NULL}, 0) = 40 <0.000900>
5 100.010000 <... pread64 resumed>) = 4096 <0.000010>
"#;
        let _ = learn(text.as_bytes().get(..cut).unwrap_or(text.as_bytes()), &options());
    }
}
