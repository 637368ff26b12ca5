//! Requests in progress at a disk: reads, writes and flushes in an `io_uring`, discards on threads, because a ring of a kernel before
//! Linux 6.12 has no discards.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use emmclab_trace::{Error, ErrorClass, Op, Result, SECTOR_BYTES};
use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use rustix::io::{Errno, ReadWriteFlags};

use crate::disk_file::{AlignedBuffer, DiskFile};

/// Interval at which completions of discards are looked for.
const DISCARD_POLL: Duration = Duration::from_micros(200);
/// The bit of `user_data` that marks the flush before a write.
const FLUSH_BEFORE: u64 = 1 << 63;

/// A request to a disk. Offset and length are in bytes, and aligned to blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskRequest {
    pub op: Op,
    pub start: u64,
    pub bytes: u64,
    /// Whether a write is durable on completion (FUA).
    pub durable: bool,
    /// Whether the disk flushes its cache before the write.
    pub flush_before: bool,
}

/// A completed request.
pub(crate) struct CompletedDiskRequest {
    pub slot: usize,
    /// Time at which the request was sent, if it differs from the time of [`RequestRing::send`].
    pub sent: Option<Instant>,
    pub at: Instant,
    pub outcome: std::result::Result<(), Errno>,
}

/// A place for a request in progress, with the memory of its data.
#[derive(Default)]
struct RingSlot {
    buffer: AlignedBuffer,
    bytes: u64,
    /// Number of completions that the ring will still deliver.
    open: u8,
    error: Option<Errno>,
}

/// The requests in progress.
pub(crate) struct RequestRing {
    disk: Arc<DiskFile>,
    /// The ring, then the slots, whose buffers the kernel uses while requests are in progress.
    ring: ManuallyDrop<IoUring>,
    slots: ManuallyDrop<Vec<RingSlot>>,
    free: Vec<usize>,
    in_ring: usize,
    on_threads: usize,
    discarded: (Sender<CompletedDiskRequest>, Receiver<CompletedDiskRequest>),
}

impl RequestRing {
    /// Creates a ring for at most `depth` requests in progress.
    /// Errors: [`ErrorClass::Unsupported`] if the kernel has no `io_uring` (before Linux 5.11) or forbids it.
    pub fn new(disk: Arc<DiskFile>, depth: usize) -> Result<Self> {
        let unsupported = |problem: String| {
            Error::new(ErrorClass::Unsupported, problem).hint(
                "use Linux 5.11 or later, and permit it: sysctl kernel.io_uring_disabled=0, and the profile of the container",
            )
        };
        let ring = IoUring::new((2 * depth as u32).next_power_of_two());
        let ring =
            ring.map_err(|error| unsupported(format!("requests are sent by io_uring, which this machine refuses: {error}")))?;
        if !ring.params().is_feature_ext_arg() {
            return Err(unsupported("the io_uring of this kernel cannot wait for a limited time".to_owned()));
        }
        let mut slots = Vec::new();
        slots.resize_with(depth, RingSlot::default);
        Ok(Self {
            disk,
            ring: ManuallyDrop::new(ring),
            slots: ManuallyDrop::new(slots),
            free: (0..depth).rev().collect(),
            in_ring: 0,
            on_threads: 0,
            discarded: channel(),
        })
    }

    /// Number of requests in progress.
    pub fn open(&self) -> usize {
        self.in_ring + self.on_threads
    }

    /// Takes a free slot with memory for `bytes` of data; `None` if all slots are in use.
    pub fn take_slot(&mut self, bytes: u64) -> Option<usize> {
        let slot = self.free.pop()?;
        self.slots[slot].bytes = bytes;
        self.slots[slot].buffer.resize(bytes as usize);
        Some(slot)
    }

    /// The memory of a slot that was taken and whose request is not in progress.
    pub fn data(&mut self, slot: usize) -> &mut [u8] {
        self.slots[slot].buffer.bytes_mut()
    }

    /// Sends a request; [`RequestRing::wait`] returns its completion, and frees its slot.
    pub fn send(&mut self, slot: usize, request: &DiskRequest) -> io::Result<()> {
        let fd = Fd(self.disk.file().as_raw_fd());
        let number = slot as u64;
        let flush = || opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build();
        let place = &mut self.slots[slot];
        (place.open, place.error) = (1, None);
        let entry = match request.op {
            Op::Read => {
                let memory = place.buffer.bytes_mut();
                opcode::Read::new(fd, memory.as_mut_ptr(), memory.len() as u32).offset(request.start).build()
            }
            Op::Write => {
                let memory = place.buffer.bytes();
                let flags = if request.durable { ReadWriteFlags::DSYNC.bits() } else { 0 };
                let write = opcode::Write::new(fd, memory.as_ptr(), memory.len() as u32).offset(request.start);
                let write = write.rw_flags(flags.cast_signed()).build();
                if request.flush_before {
                    place.open = 2;
                    let flush = flush().flags(squeue::Flags::IO_LINK).user_data(number | FLUSH_BEFORE);
                    self.push(&flush)?;
                }
                write
            }
            Op::Flush => flush(),
            Op::Discard | Op::SecureErase => return self.discard_on_thread(slot, request),
        };
        self.push(&entry.user_data(number))?;
        self.in_ring += 1;
        match self.ring.submit() {
            Ok(_) => Ok(()),
            // The kernel is short of memory for now, or a signal arrived; the next wait submits the request.
            Err(error) if is_passing(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    #[expect(unsafe_code, reason = "entries of a ring may have addresses")]
    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the file lives as long as the ring, and the buffers of the slots until all requests are complete.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.ring.submit()?;
        }
        Ok(())
    }

    fn discard_on_thread(&mut self, slot: usize, request: &DiskRequest) -> io::Result<()> {
        let (disk, to) = (self.disk.clone(), self.discarded.0.clone());
        let DiskRequest { start, bytes, op, .. } = *request;
        let work = move || {
            let sent = Instant::now();
            let done = disk.discard(start, bytes, op == Op::SecureErase);
            let outcome = done.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
            // The receiver is gone if the run has ended without waiting for this request.
            let _ = to.send(CompletedDiskRequest { slot, sent: Some(sent), at: Instant::now(), outcome });
        };
        std::thread::Builder::new().name("emmclab-discard".to_owned()).spawn(work)?;
        self.on_threads += 1;
        Ok(())
    }

    /// Waits until a request completes, but not beyond `until`. Appends the completed requests to `done`.
    pub fn wait(&mut self, until: Instant, done: &mut Vec<CompletedDiskRequest>) -> io::Result<()> {
        self.reap(done);
        if !done.is_empty() {
            return Ok(());
        }
        let mut wait = until.saturating_duration_since(Instant::now());
        if self.on_threads > 0 {
            wait = wait.min(DISCARD_POLL);
        }
        if wait.is_zero() {
            return Ok(());
        }
        let timeout = Timespec::new().sec(wait.as_secs()).nsec(wait.subsec_nanos());
        match self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout)) {
            Err(error) if !is_passing(&error) => return Err(error),
            _ => {}
        }
        self.reap(done);
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<CompletedDiskRequest>) {
        let mut at = None;
        for entry in self.ring.completion() {
            let slot = (entry.user_data() & !FLUSH_BEFORE) as usize;
            let place = &mut self.slots[slot];
            place.open -= 1;
            let flushed = entry.user_data() & FLUSH_BEFORE != 0;
            let error = match entry.result() {
                // A write behind a failed flush is cancelled; the error of the flush is the cause.
                result if result < 0 => Some(Errno::from_raw_os_error(-result)),
                moved if !flushed && u64::from(moved.unsigned_abs()) != place.bytes => Some(Errno::IO),
                _ => None,
            };
            place.error = place.error.or(error);
            if place.open == 0 {
                let outcome = place.error.map_or(Ok(()), Err);
                done.push(CompletedDiskRequest { slot, sent: None, at: *at.get_or_insert_with(Instant::now), outcome });
                self.in_ring -= 1;
                self.free.push(slot);
            }
        }
        while let Ok(completed) = self.discarded.1.try_recv() {
            self.on_threads -= 1;
            self.free.push(completed.slot);
            done.push(completed);
        }
    }
}

impl Drop for RequestRing {
    #[expect(unsafe_code, reason = "memory that the kernel uses")]
    fn drop(&mut self) {
        // While requests are in progress, the kernel may write to the buffers, so they are leaked.
        if self.in_ring == 0 {
            // SAFETY: they are dropped once, and not used afterwards.
            unsafe {
                ManuallyDrop::drop(&mut self.ring);
                ManuallyDrop::drop(&mut self.slots);
            }
        }
    }
}

/// Whether an error of a submission is none: a signal arrived, or the time is over, or resources are short for the moment.
fn is_passing(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INTR | Errno::TIME | Errno::AGAIN | Errno::BUSY))
}

/// The size of a sector as a length of data.
pub(crate) fn bytes_of(sectors: u32) -> u64 {
    u64::from(sectors) * SECTOR_BYTES
}
