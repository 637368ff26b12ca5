//! A guest with Debian's kernel in QEMU, which powers itself off at the end. Needs a QEMU with vfio-user, and the folder that
//! `tests/guest/build.sh` fills; `make test-guest` provides both.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit of a guest; it is long, so that a busy machine causes no failure.
const PATIENCE: Duration = Duration::from_mins(30);

/// The components of a guest.
pub struct Parts {
    pub folder: PathBuf,
    qemu: PathBuf,
}

impl Parts {
    /// `None` if there is no guest, and the test must be skipped.
    pub fn find() -> Option<Self> {
        let named = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.exists());
        let folder = named("EMMCLAB_GUEST").filter(|folder| folder.join("initrd-serve").exists());
        let both = folder.zip(named("EMMCLAB_QEMU"));
        if both.is_none() {
            emmclab_testing::skip_always("a guest", "make test-guest");
        }
        both.map(|(folder, qemu)| Self { folder, qemu })
    }

    /// The initial file system of the guest.
    pub fn initrd(&self) -> PathBuf {
        self.folder.join("initrd-serve")
    }
}

/// A QEMU with a guest.
pub struct Guest {
    qemu: Child,
    console: tempfile::NamedTempFile,
}

impl Guest {
    /// Boots a guest with 1 GiB of shared memory, this number of processors, and additional arguments of QEMU; `parameters` are
    /// those of the kernel.
    pub fn boot(parts: &Parts, initrd: &Path, processors: u32, arguments: &[&str], parameters: &str) -> Self {
        let console = tempfile::NamedTempFile::new().unwrap();
        let words = format!(
            "-accel tcg,thread=multi -cpu max -m 1024 -smp {processors} -nodefaults -display none \
             -object memory-backend-memfd,id=ram,size=1024M,share=on -machine pc,memory-backend=ram -kernel {} -initrd {} \
             -serial file:{}",
            parts.folder.join("vmlinuz").display(),
            initrd.display(),
            console.path().display(),
        );
        let qemu = Command::new(&parts.qemu)
            .args(words.split_whitespace())
            .args(["-append", &format!("console=ttyS0 quiet panic=-1 {parameters}")])
            .args(arguments)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self { qemu, console }
    }

    /// The console output of the guest until it powered itself off.
    pub fn finish(mut self) -> Said {
        let deadline = Instant::now() + PATIENCE;
        while self.qemu.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the guest does not end");
            std::thread::sleep(Duration::from_millis(200));
        }
        Said(String::from_utf8_lossy(&fs::read(&self.console).unwrap()).into_owned())
    }
}

/// The console output of a guest. It is printed if the test fails.
pub struct Said(String);

impl Said {
    /// Whether the kernel of the guest crashed, which an emulated processor on a busy machine sometimes causes.
    pub fn has_crashed(&self) -> bool {
        ["Kernel panic - ", "Oops: ", "kernel BUG at ", "BUG: "].iter().any(|sign| self.contains(sign))
    }
}

impl std::ops::Deref for Said {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Drop for Said {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the guest said:\n{}", self.0);
        }
    }
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
