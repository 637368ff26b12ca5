//! A guest with Debian's kernel and an SD card behind the real MMC driver, recorded from outside over a serial line. Takes
//! QEMU, and the folder that `tests/guest/build.sh` fills:
//!
//! `EMMCLAB_GUEST=/var/tmp/guest cargo test --release -p emmclab-record --test guest`
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{Counted, has, record_elsewhere, run};
use emmclab_record::{RecordOptions, Target, helper_command};

/// The folder with the guest; `None`, with the reason printed, where there is none.
fn guest() -> Option<PathBuf> {
    let folder = std::env::var_os("EMMCLAB_GUEST").map(PathBuf::from);
    let (Some(folder), true) = (folder, has("qemu-system-x86_64")) else {
        eprintln!("skipped: EMMCLAB_GUEST is not set, or qemu-system-x86_64 is not installed");
        return None;
    };
    fs::create_dir_all(&folder).unwrap();
    let helper = folder.join("helper");
    fs::write(&helper, helper_command()).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest/build.sh");
    run("sh", &[script.to_str().unwrap(), folder.to_str().unwrap(), helper.to_str().unwrap()]);
    Some(folder)
}

/// The figures behind `word` in the guest's console.
fn said<'a>(console: &'a str, word: &str) -> Option<&'a str> {
    console.lines().find_map(|line| line.trim().strip_prefix(word))
}

#[test]
fn an_sd_card_of_a_guest_is_recorded_as_its_kernel_counts() {
    let Some(folder) = guest() else { return };
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let console = path("console");
    let _ = fs::remove_file(&console);
    let (kernel, initrd, card) = (path("vmlinuz"), path("initrd"), path("card"));
    let (serial, drive) = (format!("file:{console}"), format!("if=none,id=card,format=raw,file={card}"));
    let qemu = [
        "qemu-system-x86_64",
        "-accel",
        "tcg,thread=multi",
        "-cpu",
        "max",
        "-m",
        "512",
        "-smp",
        "2",
        "-kernel",
        &kernel,
        "-initrd",
        &initrd,
        "-append",
        "console=ttyS0 quiet panic=-1",
        "-nodefaults",
        "-no-reboot",
        "-display",
        "none",
        "-serial",
        &serial,
        "-chardev",
        "stdio,id=link,signal=off",
        "-serial",
        "chardev:link",
        "-device",
        "sdhci-pci",
        "-drive",
        &drive,
        "-device",
        "sd-card,drive=card",
    ];
    let target = Target::Command(qemu.map(str::to_owned).to_vec());
    let options = RecordOptions { target, devices: vec!["mmcblk0".to_owned()], ..RecordOptions::default() };
    let text = || fs::read_to_string(&console).unwrap_or_default();
    let (requests, outcome) = record_elsewhere(&options, || {
        let deadline = Instant::now() + Duration::from_mins(2);
        while said(&text(), "DONE").is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    let console = text();
    let counted = |word| Counted::parse(said(&console, word).unwrap());
    assert!(outcome.interrupted.is_none(), "{:?}", outcome.interrupted);
    let ledger = &outcome.ledger;
    assert_eq!((ledger.lost, ledger.unpaired, ledger.skipped), (0, 0, 0), "{ledger}");
    assert_eq!(Counted::of(&requests), counted("AFTER").since(counted("BEFORE")));
    eprintln!("{}: {ledger}", outcome.header.source);
    // The MMC driver was asked when the card got the data.
    assert!(requests.iter().any(|recorded| recorded.request.start < recorded.request.issue));
    // The guest says what is left of the recorder right before it turns itself off.
    let deadline = Instant::now() + Duration::from_secs(10);
    while said(&text(), "LEFT").is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(said(&text(), "LEFT").map(str::trim), Some(""));
}
