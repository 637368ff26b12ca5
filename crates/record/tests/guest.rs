//! A guest with Debian's kernel and an SD card behind the real MMC driver, recorded from outside over ssh. Takes QEMU, and
//! the folder that `tests/guest/build.sh` fills from Debian's packages; `make test-guest` provides both.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Counted, has, record_elsewhere, stop, take, wait_until};
use emmclab_record::{RecordOptions, Recorder, Target};
use emmclab_trace::{CommandKind, Flags, SyncCounts};

/// The folder with the guest; `None`, with the reason printed, where there is none.
fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("EMMCLAB_GUEST").map(PathBuf::from);
    let built = folder.filter(|folder| folder.join("initrd").exists() && has("qemu-system-x86_64"));
    if built.is_none() {
        eprintln!(
            "skipped: EMMCLAB_GUEST names no guest that `make test-guest` has built, or QEMU is not installed"
        );
    }
    built
}

/// A running guest. What it said is printed where a test fails.
struct Guest {
    qemu: Child,
    console: tempfile::NamedTempFile,
    options: Vec<String>,
}

impl Guest {
    /// Boots it and waits until it can be logged in to.
    fn boot(folder: &Path) -> Self {
        let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let console = tempfile::NamedTempFile::new().unwrap();
        // One thread for both processors: with two, QEMU 7.2 may translate an instruction while the other processor's kernel
        // patches it, and keep the breakpoint that stood there; of 56 guests booted on a busy machine, one died of it.
        let words = format!(
            "-accel tcg,thread=single -cpu max -m 512 -smp 2 -nodefaults -no-reboot -display none -kernel {} -initrd {} \
             -serial file:{} -device sdhci-pci -drive if=none,id=card,format=raw,snapshot=on,file={} -device sd-card,drive=card \
             -netdev user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22 -device virtio-net-pci,netdev=net,romfile=",
            path("vmlinuz"),
            path("initrd"),
            console.path().display(),
            path("card"),
        );
        let qemu = Command::new("qemu-system-x86_64")
            .args(words.split_whitespace())
            .args(["-append", "console=ttyS0 quiet panic=-1"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let key = path("key");
        let options = format!(
            "-p {port} -i {key} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR \
             -o BatchMode=yes -o ConnectTimeout=5"
        );
        let options = options.split_whitespace().map(str::to_owned).collect();
        let mut guest = Self { qemu, console, options };
        let deadline = Instant::now() + Duration::from_mins(2);
        while guest.ssh("true").is_none() {
            let ended = guest.qemu.try_wait().unwrap();
            assert!(ended.is_none(), "the guest ended: {ended:?}");
            assert!(Instant::now() < deadline, "the guest does not answer");
            std::thread::sleep(Duration::from_millis(300));
        }
        guest
    }

    /// What a command in the guest prints; `None` where it fails.
    fn ssh(&self, command: &str) -> Option<String> {
        let mut ssh = Command::new("ssh");
        ssh.args(&self.options).args(["root@127.0.0.1", command]);
        let output = ssh.stdin(Stdio::null()).stderr(Stdio::null()).output().unwrap();
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
        if std::thread::panicking() {
            let said = fs::read(&self.console).unwrap_or_default();
            eprintln!("the guest said:\n{}", String::from_utf8_lossy(&said));
        }
    }
}

/// The figures behind `word` in what the workload printed.
fn counted(text: &str, word: &str) -> Counted {
    Counted::parse(text.lines().find_map(|line| line.strip_prefix(word)).unwrap())
}

#[test]
fn an_sd_card_of_a_guest_is_recorded_over_ssh_as_its_kernel_counts() {
    let Some(folder) = folder() else { return };
    let guest = Guest::boot(&folder);
    let target = Target::Ssh { destination: "root@127.0.0.1".to_owned(), options: guest.options.clone() };
    let options = RecordOptions { target, devices: vec!["mmcblk0".to_owned()], ..RecordOptions::default() };
    let mut work = String::new();
    let (requests, outcome) = record_elsewhere(&options, || work = guest.ssh("sh /work").unwrap());
    assert!(!work.contains("FAILED"), "{work}");
    assert!(outcome.interrupted.is_none() && outcome.remarks.is_empty(), "{outcome:?}");
    let ledger = &outcome.ledger;
    assert_eq!((ledger.lost, ledger.unpaired, ledger.skipped), (0, 0, 0), "{ledger}");
    eprintln!("{}: {ledger}", outcome.header.source);
    let card = counted(&work, "AFTER").since(counted(&work, "BEFORE"));
    assert_eq!(Counted::of(&requests), card);

    // The driver was asked when the card got the data, and counted the same bytes.
    assert!(requests.iter().any(|recorded| recorded.request.start < recorded.request.issue));
    let [host] = &outcome.activity.hosts[..] else { unreachable!("{:?}", outcome.activity) };
    eprintln!("{host:?}");
    let bytes =
        |kind| host.commands.iter().filter(|row| row.kind == kind).map(|row| row.bytes.0).sum::<u64>();
    assert_eq!(&*host.host, "mmc0");
    assert_eq!(
        (bytes(CommandKind::Read) / 512, bytes(CommandKind::Write) / 512),
        (card.read_sectors, card.written_sectors)
    );
    assert!(host.commands.iter().all(|row| row.errors == 0 && row.time >= row.longest && row.count > 0));
    assert!(host.busy.0 > 0);

    // Each dd waited once for its file, on ext4 and on f2fs; ext4 committed its journal.
    for file_system in ["ext4", "f2fs"] {
        let calls = |row: &&SyncCounts| row.file_system == file_system && row.process == "dd";
        let row = outcome.activity.syncs.iter().find(calls).unwrap();
        assert_eq!((row.calls, row.errors), (5, 0), "{row:?}");
    }
    let [journal] = &outcome.activity.journals[..] else { unreachable!("{:?}", outcome.activity) };
    assert!(journal.device == "mmcblk0p1" && journal.commits >= 5, "{journal:?}");
    assert!(requests.iter().any(|recorded| recorded.request.flags.contains(Flags::JOURNAL)));
    // Nothing of the recorder is left there.
    assert_eq!(guest.ssh("ls /sys/kernel/tracing/instances").unwrap(), "");
}

#[test]
fn a_guest_that_dies_leaves_what_came_before() {
    let Some(folder) = folder() else { return };
    let mut guest = Guest::boot(&folder);
    let target = Target::Ssh { destination: "root@127.0.0.1".to_owned(), options: guest.options.clone() };
    let options = RecordOptions { target, devices: vec!["mmcblk0".to_owned()], ..RecordOptions::default() };
    let recorder = Recorder::start(&options).unwrap();
    for _ in 0..3 {
        guest.ssh("dd if=/dev/mmcblk0 of=/dev/null bs=16k count=40 iflag=direct").unwrap();
    }
    let requests = take(&recorder, 100);
    guest.qemu.kill().unwrap();
    wait_until(|| recorder.has_ended());
    let (requests, outcome) = stop(recorder, requests);
    assert!(requests.len() >= 100, "{outcome:?}");
    assert!(requests.iter().all(|recorded| recorded.request.complete.is_some()));
    assert!(outcome.interrupted.is_some() && outcome.header.note.unwrap().contains("ended early"));
    assert_eq!(outcome.ledger.lost, 0);
}
