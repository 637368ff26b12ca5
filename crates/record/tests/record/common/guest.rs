//! A guest with Debian's kernel in QEMU, in which a test logs in over ssh.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::PATIENCE;
use emmclab_record::{RecordOptions, RecordTarget};

/// The folder with the guest; `None` if there is none, and the test must be skipped.
pub fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("EMMCLAB_GUEST").map(PathBuf::from);
    let has_qemu = || emmclab_testing::has_tool("qemu-system-x86_64");
    let built = folder.filter(|folder| folder.join("initrd").exists() && has_qemu());
    if built.is_none() {
        emmclab_testing::skip_always("a guest", "make test-guest");
    }
    built
}

/// A running guest. Its console is printed if the test fails.
pub struct Guest {
    qemu: Child,
    console: tempfile::NamedTempFile,
    options: Vec<String>,
}

impl Guest {
    /// Boots the guest and waits until a login is possible.
    pub fn boot(folder: &Path, clock: Clock) -> Self {
        Self::boot_as(folder, clock, &Machine::default())
    }

    /// Like [`Guest::boot`], with another QEMU and additional devices.
    pub fn boot_as(folder: &Path, clock: Clock, machine: &Machine) -> Self {
        let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let console = tempfile::NamedTempFile::new().unwrap();
        // One thread for both processors: with two, QEMU 7.2 may translate an instruction while the kernel on the other processor
        // patches it, and keep the temporary breakpoint; of 56 guests booted on a busy machine, one crashed for this reason.
        let clock = match clock {
            Clock::Host => "",
            Clock::Instructions => "-icount shift=1,sleep=on",
        };
        let words = format!(
            "-accel tcg,thread=single {clock} -cpu max -m 512 -smp 2 -nodefaults -no-reboot -display none -kernel {} -initrd {} \
             -serial file:{} -device sdhci-pci -drive if=none,id=card,format=raw,snapshot=on,file={} -device sd-card,drive=card \
             -netdev user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22 -device virtio-net-pci,netdev=net,romfile=",
            path("vmlinuz"),
            path("initrd"),
            console.path().display(),
            path("card"),
        );
        let qemu = Command::new(&machine.qemu)
            .args(words.split_whitespace())
            .args(&machine.devices)
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
        let deadline = Instant::now() + PATIENCE;
        while guest.ssh("true").is_none() {
            let ended = guest.qemu.try_wait().unwrap();
            assert!(ended.is_none(), "the guest ended: {ended:?}");
            assert!(Instant::now() < deadline, "the guest does not answer");
            std::thread::sleep(Duration::from_millis(300));
        }
        guest
    }

    /// Options of a recording of this disk over ssh.
    pub fn recording_of(&self, disk: &str) -> RecordOptions {
        let target = RecordTarget::Ssh { destination: "root@127.0.0.1".to_owned(), options: self.options.clone() };
        RecordOptions { target, devices: vec![disk.to_owned()], ..RecordOptions::default() }
    }

    /// Ends the guest like a power loss.
    pub fn kill(&mut self) {
        self.qemu.kill().unwrap();
    }

    /// The output of a command in the guest; `None` if the command fails.
    pub fn ssh(&self, command: &str) -> Option<String> {
        let mut ssh = Command::new("ssh");
        ssh.args(&self.options).args(["root@127.0.0.1", command]);
        let output = ssh.stdin(Stdio::null()).stderr(Stdio::null()).output().unwrap();
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// The QEMU that runs a guest, and devices in addition to card and network.
pub struct Machine {
    qemu: PathBuf,
    devices: Vec<String>,
}

impl Default for Machine {
    fn default() -> Self {
        Self { qemu: "qemu-system-x86_64".into(), devices: Vec::new() }
    }
}

impl Machine {
    /// A machine with a UFS of these options, whose logical unit is the file `ufs` of the folder; `None` if `$EMMCLAB_QEMU` is
    /// not a QEMU with this device, and the test must be skipped.
    pub fn with_ufs(folder: &Path, options: &str) -> Option<Self> {
        let able = |qemu: &PathBuf| {
            let help = Command::new(qemu).args(["-device", "ufs,help"]).output();
            help.is_ok_and(|help| String::from_utf8_lossy(&help.stdout).contains("mcq"))
        };
        let qemu = std::env::var_os("EMMCLAB_QEMU").map(PathBuf::from).filter(able);
        if qemu.is_none() {
            emmclab_testing::skip_always("a QEMU whose UFS has queues (9.1 or later)", "set EMMCLAB_QEMU to it");
        }
        let unit = folder.join("ufs");
        let devices = [
            "-device",
            &format!("ufs,id=ufs,{options}"),
            "-drive",
            &format!("if=none,id=unit,format=raw,snapshot=on,discard=unmap,file={}", unit.display()),
            "-device",
            "ufs-lu,drive=unit,bus=ufs",
        ];
        Some(Self { qemu: qemu?, devices: devices.map(str::to_owned).to_vec() })
    }
}

/// The source of a guest's time.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The clock of the host: on a busy host the guest also measures longer times.
    Host,
    /// The instructions of the guest, 2 ns each, so that a busy host does not change the times that the guest measures.
    Instructions,
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
        if std::thread::panicking() {
            let console = fs::read(&self.console).unwrap_or_default();
            eprintln!("the guest said:\n{}", String::from_utf8_lossy(&console));
        }
    }
}
