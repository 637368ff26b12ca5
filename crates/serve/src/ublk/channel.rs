//! The connection to one queue of a ublk device: `/dev/ublkcN`, an `io_uring`, and the memory that is shared with the kernel. It contains
//! all unsafe code of the data path.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::types::Fd;
use io_uring::{IoUring, opcode, squeue};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::abi::{self, DESCRIPTION_BYTES, IOCTL_NUMBERS, MOST_DEPTH, UblkDeviceInfo, UblkIoCommand, UblkIoDescriptor};

/// `user_data` of the entry that waits for the wake event; other entries have their tag.
const WAKE: u64 = u64::MAX;

/// A mapping of memory.
struct UblkMemoryMap {
    start: *mut u8,
    bytes: usize,
}

impl UblkMemoryMap {
    /// Maps a file from `offset` on, for reading.
    #[expect(unsafe_code, reason = "mapping memory")]
    fn of_file(file: &File, offset: u64, bytes: usize) -> io::Result<Self> {
        // SAFETY: a new mapping, at a place of the kernel's choice.
        let start = unsafe {
            mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED | MapFlags::POPULATE, file, offset)
        }?;
        Ok(Self { start: start.cast(), bytes })
    }

    /// Lazily allocated anonymous memory.
    #[expect(unsafe_code, reason = "mapping memory")]
    fn anonymous(bytes: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, at a place of the kernel's choice.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) }?;
        Ok(Self { start: start.cast(), bytes })
    }
}

impl Drop for UblkMemoryMap {
    #[expect(unsafe_code, reason = "mapping memory")]
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing borrows from it.
        let _ = unsafe { munmap(self.start.cast(), self.bytes) };
    }
}

/// An event of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UblkQueueEvent {
    /// The kernel has sent a request with this tag.
    Request(u16),
    /// The wake event was signalled.
    Woken,
}

/// The owner of a tag and its buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UblkTagOwner {
    Kernels,
    Ours,
    /// The kernel sends no more requests with this tag.
    Gone,
}

/// One queue. Only the thread that made it may use it: the kernel knows the queue by its thread.
pub(super) struct UblkQueue {
    // Dropped first, because the kernel may use the memory until the ring is closed.
    ring: IoUring,
    file: Arc<File>,
    wake: Arc<OwnedFd>,
    descriptions: UblkMemoryMap,
    buffers: ManuallyDrop<UblkMemoryMap>,
    buffer_bytes: usize,
    queue: u16,
    ioctl_numbers: bool,
    tags: Vec<UblkTagOwner>,
    /// Whether the ring waits for the wake event.
    polled: bool,
}

impl UblkQueue {
    /// Opens a queue of the device and asks for requests with every tag; `wake` is an eventfd that ends [`Self::wait`].
    pub(super) fn open(file: Arc<File>, info: &UblkDeviceInfo, queue: u16, wake: Arc<OwnedFd>) -> io::Result<Self> {
        let depth = usize::from(info.depth);
        let page = rustix::param::page_size() as u64;
        let stride = (u64::from(MOST_DEPTH) * DESCRIPTION_BYTES as u64).next_multiple_of(page);
        let descriptions = UblkMemoryMap::of_file(&file, u64::from(queue) * stride, depth * DESCRIPTION_BYTES)?;
        let buffer_bytes = info.buffer_bytes as usize;
        let mut channel = Self {
            // An entry for each tag, and one for the wake event.
            ring: IoUring::new((depth as u32 + 1).next_power_of_two())?,
            file,
            wake,
            descriptions,
            buffers: ManuallyDrop::new(UblkMemoryMap::anonymous(depth * buffer_bytes)?),
            buffer_bytes,
            queue,
            ioctl_numbers: info.flags & IOCTL_NUMBERS != 0,
            tags: vec![UblkTagOwner::Ours; depth],
            polled: false,
        };
        for tag in 0..info.depth {
            channel.pass_to_kernel(tag, UblkIoCommand::Fetch, 0)?;
        }
        channel.wait(false)?;
        Ok(channel)
    }

    #[expect(unsafe_code, reason = "entries of a ring may have addresses")]
    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the files of all entries live as long as the ring. Their addresses are buffers, which are only given back
        // to the system once the kernel is done with all tags.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.ring.submit()?;
        }
        Ok(())
    }

    /// Passes a tag to the kernel.
    fn pass_to_kernel(&mut self, tag: u16, command: UblkIoCommand, result: i32) -> io::Result<()> {
        let at = usize::from(tag);
        if self.tags.get(at) != Some(&UblkTagOwner::Ours) {
            return Ok(());
        }
        self.tags[at] = UblkTagOwner::Kernels;
        let address = self.buffers.start.expose_provenance() + at * self.buffer_bytes;
        let entry = opcode::UringCmd16::new(Fd(self.file.as_raw_fd()), command.number(self.ioctl_numbers))
            .cmd(abi::io(self.queue, tag, result, address as u64))
            .build()
            .user_data(u64::from(tag));
        self.push(&entry)
    }

    /// Ends the request of a tag and asks for the next one. `result` is the number of moved bytes, or a negative error number.
    pub(super) fn finish(&mut self, tag: u16, result: i32) -> io::Result<()> {
        self.pass_to_kernel(tag, UblkIoCommand::CommitAndFetch, result)
    }

    /// Collects the events since the last call.
    pub(super) fn events(&mut self, found: &mut Vec<UblkQueueEvent>) {
        for entry in self.ring.completion() {
            if entry.user_data() == WAKE {
                self.polled = false;
                found.push(UblkQueueEvent::Woken);
                continue;
            }
            let tag = entry.user_data() as u16;
            if let Some(state) = self.tags.get_mut(usize::from(tag)) {
                // UBLK_IO_RES_OK is 0; anything else means that the tag can no longer be used.
                *state = if entry.result() == 0 { UblkTagOwner::Ours } else { UblkTagOwner::Gone };
                if entry.result() == 0 {
                    found.push(UblkQueueEvent::Request(tag));
                }
            }
        }
    }

    /// Whether the kernel sends no more requests.
    pub(super) fn is_gone(&self) -> bool {
        self.tags.iter().all(|tag| *tag == UblkTagOwner::Gone)
    }

    /// Submits completions to the kernel; waits for an event if `sleeps`.
    pub(super) fn wait(&mut self, sleeps: bool) -> io::Result<()> {
        if !self.polled {
            let events = u32::from(PollFlags::IN.bits());
            let entry = opcode::PollAdd::new(Fd(self.wake.as_raw_fd()), events).build().user_data(WAKE);
            self.push(&entry)?;
            self.polled = true;
        }
        let Err(error) = self.ring.submit_and_wait(usize::from(sleeps)) else { return Ok(()) };
        match Errno::from_io_error(&error) {
            // A signal arrived, or the completion queue has to be emptied first.
            Some(Errno::INTR | Errno::AGAIN | Errno::BUSY) => Ok(()),
            _ => Err(error),
        }
    }

    /// The index of a tag; `None` if the kernel owns the tag.
    fn owned_tag_index(&self, tag: u16) -> Option<usize> {
        let at = usize::from(tag);
        (self.tags.get(at) == Some(&UblkTagOwner::Ours)).then_some(at)
    }

    /// The operation of the request of a tag.
    #[expect(unsafe_code, reason = "memory that the kernel writes")]
    pub(super) fn description(&self, tag: u16) -> Option<UblkIoDescriptor> {
        let at = self.owned_tag_index(tag)?;
        // SAFETY: there is a description for each tag, and the kernel changes it only while it owns the tag.
        let bytes = unsafe {
            self.descriptions.start.add(at * DESCRIPTION_BYTES).cast::<[u8; DESCRIPTION_BYTES]>().read_volatile()
        };
        Some(UblkIoDescriptor::parse(&bytes))
    }

    /// The data of a write; `None` if it is longer than the buffer.
    #[expect(unsafe_code, reason = "memory that the kernel writes")]
    pub(super) fn data(&self, tag: u16, bytes: usize) -> Option<Vec<u8>> {
        let at = self.owned_tag_index(tag).filter(|_| bytes <= self.buffer_bytes)?;
        // SAFETY: the range is within the buffer of the tag, and the kernel writes to it only while it owns the tag.
        let data = unsafe { std::slice::from_raw_parts(self.buffers.start.add(at * self.buffer_bytes), bytes) };
        Some(data.to_vec())
    }

    /// Stores the data of a read; returns false if it is longer than the buffer.
    #[expect(unsafe_code, reason = "memory that the kernel reads")]
    pub(super) fn store(&mut self, tag: u16, data: &[u8]) -> bool {
        let Some(at) = self.owned_tag_index(tag).filter(|_| data.len() <= self.buffer_bytes) else {
            return false;
        };
        // SAFETY: the range is within the buffer of the tag, the kernel does not own the tag, and no other reference to it exists.
        let buffer =
            unsafe { std::slice::from_raw_parts_mut(self.buffers.start.add(at * self.buffer_bytes), data.len()) };
        buffer.copy_from_slice(data);
        true
    }
}

impl Drop for UblkQueue {
    #[expect(unsafe_code, reason = "memory that the kernel writes")]
    fn drop(&mut self) {
        // If the kernel still owns a tag, as after a failure, it could write to the memory after it was reused; so it is leaked.
        if !self.tags.contains(&UblkTagOwner::Kernels) {
            // SAFETY: dropped once, and not used again.
            unsafe { ManuallyDrop::drop(&mut self.buffers) };
        }
    }
}
