//! A guest whose kernel drives the eMMC of the SDHCI export, over two boots. Takes a QEMU with vfio-user, and the folder that
//! `tests/guest/build.sh` fills; `make test-guest` provides both.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use emmclab_base::Modifiers;
use emmclab_serve::{
    Action, BlockDevice, BlockRequest, CardSettings, Completions, Extent, Limits, MemoryDevice, SdhciExport,
    SessionEvent,
};

/// What takes longer than this on the slowest machine does not come.
const PATIENCE: Duration = Duration::from_mins(10);

/// The guest's folder and its QEMU; `None`, with the reason printed, where there is none.
fn guest() -> Option<(PathBuf, PathBuf)> {
    let named = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.exists());
    let found = named("EMMCLAB_GUEST").filter(|folder| folder.join("initrd-sdhci").exists());
    let both = found.zip(named("EMMCLAB_QEMU"));
    if both.is_none() {
        eprintln!("skipped: EMMCLAB_GUEST or EMMCLAB_QEMU names nothing that `make test-guest` has prepared");
    }
    both
}

/// A device in memory that remembers its requests.
struct Recorded {
    inner: MemoryDevice,
    seen: Mutex<Vec<BlockRequest>>,
}

impl Recorded {
    fn new(sectors: u64) -> Arc<Self> {
        Arc::new(Self { inner: MemoryDevice::new(sectors), seen: Mutex::default() })
    }

    fn take(&self) -> Vec<BlockRequest> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

impl BlockDevice for Recorded {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn submit(&self, requests: &mut Vec<BlockRequest>, completions: &Arc<dyn Completions>) {
        self.seen.lock().unwrap().extend(requests.iter().cloned());
        self.inner.submit(requests, completions);
    }

    fn extents(&self, sector: u64, sectors: u64, most: usize, found: &mut Vec<Extent>) {
        self.inner.extents(sector, sectors, most, found);
    }
}

/// QEMU with a guest in it.
struct Guest {
    qemu: Child,
    console: tempfile::NamedTempFile,
}

impl Guest {
    fn boot((folder, qemu): &(PathBuf, PathBuf), socket: &Path, shared: bool) -> Self {
        let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let console = tempfile::NamedTempFile::new().unwrap();
        let memory = if shared {
            "-object memory-backend-memfd,id=ram,size=512M,share=on -machine pc,memory-backend=ram"
        } else {
            "-machine pc"
        };
        let words = format!(
            "-accel tcg,thread=multi -cpu max -m 512 -smp 1 -nodefaults -display none {memory} -kernel {} -initrd {} \
             -serial file:{}",
            path("vmlinuz"),
            path("initrd-sdhci"),
            console.path().display(),
        );
        let device = format!(
            r#"{{"driver":"vfio-user-pci","socket":{{"type":"unix","path":"{}"}}}}"#,
            socket.display()
        );
        let qemu = Command::new(qemu)
            .args(words.split_whitespace())
            .args(["-append", "console=ttyS0 quiet panic=-1", "-device", &device])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self { qemu, console }
    }

    /// What the guest said until it switched itself off.
    fn finish(mut self) -> String {
        let deadline = Instant::now() + PATIENCE;
        while self.qemu.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the guest does not end");
            std::thread::sleep(Duration::from_millis(200));
        }
        String::from_utf8_lossy(&fs::read(&self.console).unwrap()).into_owned()
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

#[test]
fn a_kernel_finds_the_card_and_its_files_survive_a_reset() {
    let Some(guest) = guest() else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("card");
    let device = Recorded::new(8 << 20);
    let news = |event: SessionEvent| eprintln!("{event}");
    let export = SdhciExport::start(device.clone(), &CardSettings::default(), &socket, news).unwrap();
    let said = Guest::boot(&guest, &socket, std::env::var_os("UNSHARED").is_none()).finish();
    eprintln!("{said}");
    for request in device.take() {
        let kind = match &request.action {
            Action::Read => "read",
            Action::Write(_) => "write",
            Action::WriteZeroes { .. } => "zero",
            Action::Discard { secure: true } => "secure",
            Action::Discard { secure: false } => "discard",
            Action::Flush => "flush",
        };
        if kind != "read" {
            eprintln!("{kind} {} {} {:?}", request.sector, request.sectors, request.modifiers);
        }
    }
    let _ = Modifiers::empty();
    export.stop();
    assert!(said.contains("SECOND BOOT DONE"));
}
