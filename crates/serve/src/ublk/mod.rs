//! Exports a device as a block device of this host through the kernel's ublk driver (Linux 6.0 and later).

mod control;
mod queue;

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use emmclab_base::{Error, ErrorClass, Result};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

pub use self::control::delete_left_ublk;
use self::control::{MOST_DEPTH, PATH, UblkControl, UblkDeviceInfo};
use self::queue::{UblkCompletionInbox, UblkQueue};
use crate::device::{BlockDevice, BlockDeviceLimits};
use crate::host_programs::Supervisor;
use crate::{SECTOR, host_programs};

/// Maximum length of a read or write of the kernel, in bytes, which is also the maximum size of each tag's buffer. The memory of
/// a buffer is allocated at its first use.
const LONGEST_BYTES: u32 = 512 << 10;
/// Size of a page in bytes. The maximum request length is a multiple of it, because the kernel reads and writes whole pages.
const PAGE: u32 = 4096;
/// Time limit for the files of a new device to appear in `/dev`.
const APPEARS: Duration = Duration::from_secs(5);
/// Time limit for the queue threads to end after the disk is removed.
const QUEUES_END: Duration = Duration::from_secs(5);
const BETWEEN: Duration = Duration::from_millis(5);

/// Options of a ublk device.
#[derive(Clone, Debug)]
pub struct UblkOptions {
    /// Number of queues, each with its own thread; at most the number of processors.
    pub queues: u16,
    /// Maximum number of requests in flight in each queue: 1 to 4096.
    pub depth: u16,
    /// Time for which unmounting waits for processes that use a file system before it fails.
    pub patience: Duration,
    /// A command that deletes the ublk device if this process is killed. In this case, the kernel removes only the disk; without the
    /// command, `/dev/ublkcN` remains. The command must call [`crate::delete_left_ublk`] with the token that is appended as its last
    /// argument.
    pub cleaner: Vec<OsString>,
}

impl Default for UblkOptions {
    fn default() -> Self {
        Self { queues: 1, depth: 128, patience: Duration::from_secs(10), cleaner: Vec::new() }
    }
}

/// A ublk device with the threads that serve it. The kernel does not scan for partitions; `partx -a` adds them.
pub(crate) struct UblkDevice {
    pub(crate) supervisor: Supervisor,
    control: UblkControl,
    /// N of `/dev/ublkbN`.
    device: u32,
    queues: Vec<(Arc<UblkCompletionInbox>, JoinHandle<()>)>,
    started: bool,
}

/// Maximum length of a read or write in bytes.
fn longest_request(limits: &BlockDeviceLimits) -> Result<u32> {
    let longest = u64::from(limits.max_sectors) * SECTOR as u64;
    let longest = longest.min(u64::from(LONGEST_BYTES)) as u32 / PAGE * PAGE;
    if longest == 0 {
        let problem =
            format!("the device accepts requests of at most {} sectors, and ublk sends whole pages", limits.max_sectors);
        return Err(Error::new(ErrorClass::Config, problem).hint("let the device accept requests of 8 sectors or more"));
    }
    Ok(longest)
}

fn check(limits: &BlockDeviceLimits, options: &UblkOptions) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::new(ErrorClass::Unsupported, "a ublk device needs root")
            .hint("run emmclab as root, or serve the device as a FUSE file or over NBD"));
    }
    if limits.sectors == 0 {
        return Err(Error::new(ErrorClass::Config, "a ublk device must have at least one sector").hint("choose a larger size"));
    }
    if options.queues == 0 || options.depth == 0 || options.depth > MOST_DEPTH {
        let problem = format!("{} queues of {} requests are impossible", options.queues, options.depth);
        return Err(Error::new(ErrorClass::Config, problem)
            .hint(format!("give the ublk device 1 queue or more, of 1 to {MOST_DEPTH} requests each")));
    }
    Ok(())
}

/// The error for a command that the driver rejects.
fn rejected(work: &str, errno: Errno) -> Error {
    Error::new(ErrorClass::Io, format!("ublk_drv refuses to {work}: {}", io::Error::from(errno)))
        .in_file(Path::new(PATH))
        .hint("see the output of `dmesg` for the reason")
}

/// Opens or looks up a file of a new device; waits until the file exists.
fn appearing<T>(path: &Path, mut open: impl FnMut(&Path) -> io::Result<T>) -> Result<T> {
    let until = Instant::now() + APPEARS;
    loop {
        match open(path) {
            Ok(opened) => return Ok(opened),
            Err(error) if error.kind() == io::ErrorKind::NotFound && Instant::now() < until => {
                std::thread::sleep(BETWEEN);
            }
            Err(error) => {
                return Err(Error::io(path, error).hint("mount devtmpfs on /dev, so that it shows the devices of this host"));
            }
        }
    }
}

impl UblkDevice {
    /// Creates a ublk device that passes its requests to `device`.
    pub(crate) fn start(device: &Arc<dyn BlockDevice>, options: &UblkOptions) -> Result<Self> {
        let limits = device.limits();
        check(&limits, options)?;
        let buffer_bytes = longest_request(&limits)?;
        let mut control = UblkControl::open()?;
        // A random number that identifies the devices of this process. Its source is the random keys of hash maps.
        let token = RandomState::new().build_hasher().finish();
        let mut cleaner = options.cleaner.clone();
        if !cleaner.is_empty() {
            cleaner.push(token.to_string().into());
        }
        let supervisor = Supervisor::start(&cleaner)?;
        let wanted =
            UblkDeviceInfo { queues: options.queues, depth: options.depth, buffer_bytes, device: u32::MAX, flags: 0, token };
        let info = control.add(&wanted).map_err(|errno| rejected("create a device", errno))?;
        let mut ublk = Self { supervisor, control, device: info.device, queues: Vec::new(), started: true };
        ublk.control
            .set_parameters(info.device, control::parameters(&limits, info.buffer_bytes.min(buffer_bytes)))
            .map_err(|errno| rejected("accept the limits of the device", errno))?;
        // The character device can be opened only once.
        let path = PathBuf::from(format!("/dev/ublkc{}", info.device));
        let file = Arc::new(appearing(&path, |path| OpenOptions::new().read(true).write(true).open(path))?);
        for queue in 0..info.queues {
            ublk.start_queue(&file, device, &info, queue)?;
        }
        drop(file);
        let queues = &ublk.queues;
        let failed = || queues.iter().any(|(_, thread)| thread.is_finished());
        ublk.control.start(info.device, failed).map_err(|errno| rejected("start the device", errno))?;
        appearing(&ublk.path(), Path::metadata)?;
        Ok(ublk)
    }

    /// Starts the thread of a queue and waits until it accepts requests.
    fn start_queue(&mut self, file: &Arc<File>, device: &Arc<dyn BlockDevice>, info: &UblkDeviceInfo, queue: u16) -> Result<()> {
        let failed = |error: io::Error| Error::io(Path::new(PATH), error);
        let inbox = Arc::new(UblkCompletionInbox::new().map_err(failed)?);
        let (sender, opened) = channel();
        let (file, device, info) = (Arc::clone(file), Arc::clone(device), *info);
        let thread_inbox = Arc::clone(&inbox);
        let thread = std::thread::Builder::new()
            .name(format!("ublk-{queue}"))
            .spawn(move || run_queue(file, &info, queue, &*device, &thread_inbox, &sender))
            .map_err(failed)?;
        self.queues.push((inbox, thread));
        opened.recv().unwrap_or_else(|_| Err(io::Error::other("its thread ended"))).map_err(|error| control::no_ring(&error))
    }

    /// The path of the block device, `/dev/ublkbN`.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/ublkb{}", self.device))
    }

    /// Removes the disk even if processes use it, and deletes the device.
    /// Errors: if processes had the disk open, with their names. The device is deleted in this case, too.
    pub(crate) fn end(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.started) {
            return Ok(());
        }
        let stopped = self.control.stop(self.device).map_err(|errno| rejected("stop the device", errno));
        let until = Instant::now() + QUEUES_END;
        for (inbox, thread) in self.queues.drain(..) {
            while !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(BETWEEN);
            }
            inbox.wake.stop();
            // `join` fails only if the thread of the queue panicked. The queue has ended in this case as well.
            let _ = thread.join();
        }
        control::unmount_all(self.device);
        let deleted = match self.control.delete(self.device, control::PATIENCE) {
            Ok(()) => Ok(()),
            Err(Errno::TIMEDOUT) => Err(self.in_use()),
            Err(errno) => Err(rejected("delete the device", errno)),
        };
        self.supervisor.end();
        stopped.and(deleted)
    }

    /// The error if processes still have the disk open; the kernel marks its path as deleted.
    fn in_use(&self) -> Error {
        let path = self.path();
        let held = host_programs::holder_sentence(host_programs::holders(Path::new(&format!("{} (deleted)", path.display()))));
        let problem = held.unwrap_or_else(|| "it is in use".to_owned());
        Error::new(ErrorClass::Io, problem).in_file(&path).hint("before you remove a ublk device, end the processes that use it")
    }
}

impl Drop for UblkDevice {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Drops the capability `CAP_SYS_ADMIN` of this thread, so that the kernel does not read the partition table of the disk (6.3 and later). A
/// process that is killed while its driver reads a partition table cannot end, and its device cannot be deleted (seen on 6.12).
fn give_up_administration() -> rustix::io::Result<()> {
    let mut sets = capabilities(None)?;
    sets.effective.remove(CapabilitySet::SYS_ADMIN);
    set_capabilities(None, sets)
}

/// Runs the thread of a queue.
fn run_queue(
    file: Arc<File>, info: &UblkDeviceInfo, queue: u16, device: &dyn BlockDevice, inbox: &Arc<UblkCompletionInbox>,
    opened: &Sender<io::Result<()>>,
) {
    match give_up_administration()
        .map_err(io::Error::from)
        .and_then(|()| UblkQueue::open(file, info, queue, Arc::clone(&inbox.wake)))
    {
        Ok(channel) => {
            let _ = opened.send(Ok(()));
            // If serving a queue fails, the kernel fails its requests and removes the disk.
            let _ = queue::serve(channel, device, inbox);
        }
        Err(error) => drop(opened.send(Err(error))),
    }
}
