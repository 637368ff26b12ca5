//! The thread of a queue of a ublk device: passes requests of the kernel to the device and completions back. [`UblkQueue`] is the connection
//! (`/dev/ublkcN`, an `io_uring`, memory that is shared with the kernel); it contains all unsafe code of the data path.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use emmclab_base::CommandFlags;
use io_uring::types::Fd;
use io_uring::{IoUring, opcode, squeue};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::control::{self, DESCRIPTION_BYTES, IOCTL_NUMBERS, MOST_DEPTH, UblkDeviceInfo, UblkIoCommand, UblkIoDescriptor};
use crate::device::{BlockAction, BlockDevice, CompletionReceiver, RequestFailure, ServedCompletion, ServedRequest};
use crate::waker::ThreadWaker;

#[derive(Default)]
struct UblkInboxState {
    completions: Vec<ServedCompletion>,
    /// Whether the thread sleeps or is about to.
    asleep: bool,
}

/// Completions for the thread of the queue.
pub(super) struct UblkCompletionInbox {
    list: Mutex<UblkInboxState>,
    /// Wakes the thread, or makes it end even if the kernel still has requests.
    pub(super) wake: Arc<ThreadWaker>,
}

impl UblkCompletionInbox {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { list: Mutex::default(), wake: Arc::new(ThreadWaker::new()?) })
    }

    fn list(&self) -> MutexGuard<'_, UblkInboxState> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the completed requests to `completions`. Returns false if there are none; then the thread may sleep.
    fn take(&self, completions: &mut Vec<ServedCompletion>) -> bool {
        let mut list = self.list();
        completions.append(&mut list.completions);
        list.asleep = completions.is_empty();
        !list.asleep
    }
}

impl CompletionReceiver for UblkCompletionInbox {
    fn complete(&self, completed: &mut Vec<ServedCompletion>) {
        let asleep = {
            let mut list = self.list();
            list.completions.append(completed);
            std::mem::take(&mut list.asleep)
        };
        if asleep {
            self.wake.wake();
        }
    }
}

/// Serves the queue until the kernel sends no more requests.
pub(super) fn serve(mut channel: UblkQueue, device: &dyn BlockDevice, inbox: &Arc<UblkCompletionInbox>) -> io::Result<()> {
    let completions = Arc::clone(inbox) as Arc<dyn CompletionReceiver>;
    let (mut events, mut requests, mut completed) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        channel.events(&mut events);
        for event in events.drain(..) {
            match event {
                UblkQueueEvent::Woken => drop(inbox.wake.clear()),
                UblkQueueEvent::Request(tag) => match request(&channel, tag) {
                    Ok(request) => requests.push(request),
                    Err(errno) => channel.finish(tag, -errno.raw_os_error())?,
                },
            }
        }
        if !requests.is_empty() {
            device.submit(&mut requests, &completions);
            requests.clear();
        }
        while inbox.take(&mut completed) {
            for ServedCompletion { tag, outcome } in completed.drain(..) {
                finish(&mut channel, tag as u16, outcome)?;
            }
        }
        // If all tags are gone, the kernel sends no more requests.
        if channel.tags.iter().all(|tag| *tag == UblkTagOwner::Gone) || inbox.wake.is_stopping() {
            return Ok(());
        }
        channel.wait(true)?;
        inbox.list().asleep = false;
    }
}

/// Converts the kernel's request with this tag to a request for the device.
fn request(channel: &UblkQueue, tag: u16) -> Result<ServedRequest, Errno> {
    let description = channel.description(tag).ok_or(Errno::INVAL)?;
    let action = match description.operation {
        UblkIoDescriptor::READ => BlockAction::Read,
        UblkIoDescriptor::WRITE => BlockAction::Write(channel.data(tag, description.data_bytes()).ok_or(Errno::INVAL)?),
        _ => action(&description).ok_or(Errno::OPNOTSUPP)?,
    };
    let sectors = if action == BlockAction::Flush { 0 } else { description.sectors };
    let sector = if action == BlockAction::Flush { 0 } else { description.sector };
    Ok(ServedRequest { tag: u64::from(tag), action, sector, sectors, modifiers: modifiers(&description) })
}

/// The action of a request without data.
fn action(description: &UblkIoDescriptor) -> Option<BlockAction> {
    Some(match description.operation {
        UblkIoDescriptor::FLUSH => BlockAction::Flush,
        UblkIoDescriptor::DISCARD => BlockAction::Discard { secure: false },
        UblkIoDescriptor::WRITE_ZEROES => {
            BlockAction::WriteZeroes { keep_allocated: description.flags & UblkIoDescriptor::NO_UNMAP != 0 }
        }
        _ => return None,
    })
}

fn modifiers(description: &UblkIoDescriptor) -> CommandFlags {
    let mut modifiers = CommandFlags::empty();
    let has = |flag| description.flags & flag != 0;
    // The kernel also sets these flags for requests to which they do not apply; for example, its own flushes have FUA.
    let data = matches!(description.operation, UblkIoDescriptor::READ | UblkIoDescriptor::WRITE);
    modifiers.set(CommandFlags::RELIABLE, description.operation != UblkIoDescriptor::FLUSH && has(UblkIoDescriptor::FUA));
    modifiers.set(CommandFlags::META, data && has(UblkIoDescriptor::META));
    modifiers
}

/// Completes the kernel's request with this tag.
fn finish(channel: &mut UblkQueue, tag: u16, outcome: Result<Vec<u8>, RequestFailure>) -> io::Result<()> {
    let Some(description) = channel.description(tag) else { return Ok(()) };
    let bytes = description.data_bytes();
    let outcome = match outcome {
        Err(failure) => Err(failure.errno()),
        Ok(data) if description.operation == UblkIoDescriptor::READ => {
            // A read has failed if the device returns data of another length than requested.
            if data.len() == bytes && channel.store(tag, &data) { Ok(bytes) } else { Err(Errno::IO) }
        }
        Ok(_) => Ok(bytes),
    };
    channel.finish(tag, outcome.map_or_else(|errno| -errno.raw_os_error(), |bytes| bytes as i32))
}

/// `user_data` of the ring entry that waits for the wake event; the `user_data` of all other entries is their tag.
const WAKE: u64 = u64::MAX;

/// A memory mapping, which is unmapped when it is dropped.
struct UblkMemoryMap {
    start: *mut u8,
    bytes: usize,
}

impl UblkMemoryMap {
    /// Maps a file from `offset` on, for reading.
    #[expect(unsafe_code, reason = "mapping memory")]
    fn of_file(file: &File, offset: u64, bytes: usize) -> io::Result<Self> {
        // SAFETY: this creates a new mapping, at an address that the kernel chooses.
        let start =
            unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED | MapFlags::POPULATE, file, offset) }?;
        Ok(Self { start: start.cast(), bytes })
    }

    /// Lazily allocated anonymous memory.
    #[expect(unsafe_code, reason = "mapping memory")]
    fn anonymous(bytes: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: this creates a new mapping, at an address that the kernel chooses.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) }?;
        Ok(Self { start: start.cast(), bytes })
    }
}

impl Drop for UblkMemoryMap {
    #[expect(unsafe_code, reason = "mapping memory")]
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and nothing borrows from it.
        let _ = unsafe { munmap(self.start.cast(), self.bytes) };
    }
}

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

/// A queue. Only the thread that opened it may use it: the kernel identifies the queue by its thread.
pub(super) struct UblkQueue {
    // The ring must be dropped first, because the kernel may use the memory of the other fields until the ring is closed.
    ring: IoUring,
    file: Arc<File>,
    wake: Arc<ThreadWaker>,
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
    /// Opens a queue of the device and asks the kernel for a request with every tag; `wake` ends [`Self::wait`].
    pub(super) fn open(file: Arc<File>, info: &UblkDeviceInfo, queue: u16, wake: Arc<ThreadWaker>) -> io::Result<Self> {
        let depth = usize::from(info.depth);
        let page = rustix::param::page_size() as u64;
        let stride = (u64::from(MOST_DEPTH) * DESCRIPTION_BYTES as u64).next_multiple_of(page);
        let descriptions = UblkMemoryMap::of_file(&file, u64::from(queue) * stride, depth * DESCRIPTION_BYTES)?;
        let buffer_bytes = info.buffer_bytes as usize;
        let mut channel = Self {
            // The ring has an entry for each tag, and one for the wake event.
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
        // SAFETY: the files of all entries live as long as the ring. The addresses in the entries are buffers, which are freed only after
        // the kernel has finished with all tags.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.ring.submit()?;
        }
        Ok(())
    }

    fn pass_to_kernel(&mut self, tag: u16, command: UblkIoCommand, result: i32) -> io::Result<()> {
        let at = usize::from(tag);
        if self.tags.get(at) != Some(&UblkTagOwner::Ours) {
            return Ok(());
        }
        self.tags[at] = UblkTagOwner::Kernels;
        let address = self.buffers.start.expose_provenance() + at * self.buffer_bytes;
        let entry = opcode::UringCmd16::new(Fd(self.file.as_raw_fd()), command.number(self.ioctl_numbers))
            .cmd(control::io(self.queue, tag, result, address as u64))
            .build()
            .user_data(u64::from(tag));
        self.push(&entry)
    }

    /// Completes the request with this tag and asks the kernel for the next one. `result` is the number of moved bytes, or a negative
    /// errno.
    pub(super) fn finish(&mut self, tag: u16, result: i32) -> io::Result<()> {
        self.pass_to_kernel(tag, UblkIoCommand::CommitAndFetch, result)
    }

    /// Appends the events since the last call to `events`.
    pub(super) fn events(&mut self, events: &mut Vec<UblkQueueEvent>) {
        for entry in self.ring.completion() {
            if entry.user_data() == WAKE {
                self.polled = false;
                events.push(UblkQueueEvent::Woken);
                continue;
            }
            let tag = entry.user_data() as u16;
            if let Some(state) = self.tags.get_mut(usize::from(tag)) {
                // The result 0 is UBLK_IO_RES_OK. After any other result, the tag can no longer be used.
                *state = if entry.result() == 0 { UblkTagOwner::Ours } else { UblkTagOwner::Gone };
                if entry.result() == 0 {
                    events.push(UblkQueueEvent::Request(tag));
                }
            }
        }
    }

    /// Submits completions to the kernel; waits for an event if `sleeps` is set.
    pub(super) fn wait(&mut self, sleeps: bool) -> io::Result<()> {
        if !self.polled {
            let events = u32::from(PollFlags::IN.bits());
            let entry = opcode::PollAdd::new(Fd(self.wake.event.as_raw_fd()), events).build().user_data(WAKE);
            self.push(&entry)?;
            self.polled = true;
        }
        let Err(error) = self.ring.submit_and_wait(usize::from(sleeps)) else { return Ok(()) };
        match Errno::from_io_error(&error) {
            // These are no failures: a signal arrived, or the completion queue must be emptied first.
            Some(Errno::INTR | Errno::AGAIN | Errno::BUSY) => Ok(()),
            _ => Err(error),
        }
    }

    /// The index of a tag; `None` if the kernel owns the tag.
    fn owned_tag_index(&self, tag: u16) -> Option<usize> {
        let at = usize::from(tag);
        (self.tags.get(at) == Some(&UblkTagOwner::Ours)).then_some(at)
    }

    /// The kernel's description of the request with this tag.
    #[expect(unsafe_code, reason = "memory that the kernel writes")]
    pub(super) fn description(&self, tag: u16) -> Option<UblkIoDescriptor> {
        let at = self.owned_tag_index(tag)?;
        // SAFETY: there is a description for each tag, and the kernel changes it only while it owns the tag.
        let bytes =
            unsafe { self.descriptions.start.add(at * DESCRIPTION_BYTES).cast::<[u8; DESCRIPTION_BYTES]>().read_volatile() };
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

    /// Stores the data of a read in the buffer; returns false if it is longer than the buffer.
    #[expect(unsafe_code, reason = "memory that the kernel reads")]
    pub(super) fn store(&mut self, tag: u16, data: &[u8]) -> bool {
        let Some(at) = self.owned_tag_index(tag).filter(|_| data.len() <= self.buffer_bytes) else {
            return false;
        };
        // SAFETY: the range is within the buffer of the tag, the kernel does not own the tag, and no other reference to it exists.
        let buffer = unsafe { std::slice::from_raw_parts_mut(self.buffers.start.add(at * self.buffer_bytes), data.len()) };
        buffer.copy_from_slice(data);
        true
    }
}

impl Drop for UblkQueue {
    #[expect(unsafe_code, reason = "memory that the kernel writes")]
    fn drop(&mut self) {
        // After a failure, the kernel may still own a tag, and may write to its buffer. Then the memory of the buffers is leaked, so that
        // it is not reused.
        if !self.tags.contains(&UblkTagOwner::Kernels) {
            // SAFETY: the buffers are dropped once, and not used again.
            unsafe { ManuallyDrop::drop(&mut self.buffers) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(operation: u8, flags: u32) -> UblkIoDescriptor {
        UblkIoDescriptor { operation, flags, sectors: 8, sector: 16 }
    }

    #[test]
    fn zeros_stay_allocated_only_where_the_kernel_says_so() {
        let zeroes = |flags| action(&description(UblkIoDescriptor::WRITE_ZEROES, flags));
        assert_eq!(zeroes(0), Some(BlockAction::WriteZeroes { keep_allocated: false }));
        assert_eq!(zeroes(UblkIoDescriptor::NO_UNMAP), Some(BlockAction::WriteZeroes { keep_allocated: true }));
    }

    #[test]
    fn an_operation_that_was_not_offered_is_refused() {
        assert_eq!(action(&description(UblkIoDescriptor::DISCARD, 0)), Some(BlockAction::Discard { secure: false }));
        // 4 is UBLK_IO_OP_WRITE_SAME, and 10 is UBLK_IO_OP_ZONE_OPEN.
        assert_eq!([4, 10].map(|operation| action(&description(operation, 0))), [None, None]);
    }

    #[test]
    fn fua_and_metadata_are_those_of_the_request() {
        let flags = UblkIoDescriptor::FUA | UblkIoDescriptor::META;
        let of = |operation| modifiers(&description(operation, flags));
        assert_eq!(of(UblkIoDescriptor::WRITE), CommandFlags::RELIABLE | CommandFlags::META);
        assert_eq!(of(UblkIoDescriptor::FLUSH), CommandFlags::empty());
        assert_eq!(modifiers(&description(UblkIoDescriptor::READ, UblkIoDescriptor::META)), CommandFlags::META);
        assert_eq!(modifiers(&description(UblkIoDescriptor::WRITE, 0)), CommandFlags::empty());
    }

    #[test]
    fn only_a_thread_that_sleeps_is_woken() {
        let inbox = UblkCompletionInbox::new().unwrap_or_else(|error| unreachable!("{error}"));
        let done = |tag| vec![ServedCompletion { tag, outcome: Ok(Vec::new()) }];
        let rang = || inbox.wake.clear();
        inbox.complete(&mut done(1));
        assert!(!rang());
        let mut taken = Vec::new();
        assert!(inbox.take(&mut taken) && taken.len() == 1);
        taken.clear();
        assert!(!inbox.take(&mut taken));
        inbox.complete(&mut done(2));
        inbox.complete(&mut done(3));
        assert!(rang() && !rang());
    }
}
