//! The thread of one queue: passes requests of the kernel to the device, and completions back.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use emmclab_base::CommandFlags;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::abi::UblkIoDescriptor;
use super::channel::{UblkQueue, UblkQueueEvent};
use crate::device::{BlockAction, BlockDevice, CompletionReceiver, RequestFailure, ServedCompletion, ServedRequest};

#[derive(Default)]
struct UblkInboxState {
    completions: Vec<ServedCompletion>,
    /// Whether the thread sleeps, or is about to.
    asleep: bool,
}

/// Completions for the thread of the queue.
pub(super) struct UblkCompletionInbox {
    list: Mutex<UblkInboxState>,
    wake: Arc<OwnedFd>,
    /// Whether the thread must end, even if the kernel still has requests.
    leaving: AtomicBool,
}

impl UblkCompletionInbox {
    pub(super) fn new() -> io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(Self { list: Mutex::default(), wake, leaving: AtomicBool::new(false) })
    }

    pub(super) fn wake(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.wake)
    }

    fn list(&self) -> MutexGuard<'_, UblkInboxState> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        // It fails only if the event is already signalled.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
    }

    /// Makes the thread end.
    pub(super) fn leave(&self) {
        self.leaving.store(true, Ordering::Release);
        self.ring();
    }

    /// Moves the completed requests to `completions`. Returns false if there are none; the thread may sleep then.
    fn take(&self, completions: &mut Vec<ServedCompletion>) -> bool {
        let mut list = self.list();
        completions.append(&mut list.completions);
        list.asleep = completions.is_empty();
        !list.asleep
    }

    fn awake(&self) {
        self.list().asleep = false;
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
            self.ring();
        }
    }
}

/// Serves the queue until the kernel sends no more requests.
pub(super) fn serve(
    mut channel: UblkQueue,
    device: &dyn BlockDevice,
    inbox: &Arc<UblkCompletionInbox>,
) -> io::Result<()> {
    let completions = Arc::clone(inbox) as Arc<dyn CompletionReceiver>;
    let (mut events, mut requests, mut completed) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        channel.events(&mut events);
        for event in events.drain(..) {
            match event {
                UblkQueueEvent::Woken => drop(rustix::io::read(&*inbox.wake, &mut [0; 8])),
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
        if channel.is_gone() || inbox.leaving.load(Ordering::Acquire) {
            return Ok(());
        }
        channel.wait(true)?;
        inbox.awake();
    }
}

/// Translates the request of a tag for the device.
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
    // The kernel also sets these flags for other requests; its own flushes have FUA, too.
    let data = matches!(description.operation, UblkIoDescriptor::READ | UblkIoDescriptor::WRITE);
    modifiers
        .set(CommandFlags::RELIABLE, description.operation != UblkIoDescriptor::FLUSH && has(UblkIoDescriptor::FUA));
    modifiers.set(CommandFlags::META, data && has(UblkIoDescriptor::META));
    modifiers
}

/// Ends the request of a tag.
fn finish(channel: &mut UblkQueue, tag: u16, outcome: Result<Vec<u8>, RequestFailure>) -> io::Result<()> {
    let Some(description) = channel.description(tag) else { return Ok(()) };
    let bytes = description.data_bytes();
    let outcome = match outcome {
        Err(failure) => Err(errno(failure)),
        Ok(data) if description.operation == UblkIoDescriptor::READ => {
            // If the device returns data of another length than requested, the read has failed.
            if data.len() == bytes && channel.store(tag, &data) { Ok(bytes) } else { Err(Errno::IO) }
        }
        Ok(_) => Ok(bytes),
    };
    channel.finish(tag, outcome.map_or_else(|errno| -errno.raw_os_error(), |bytes| bytes as i32))
}

fn errno(failure: RequestFailure) -> Errno {
    match failure {
        RequestFailure::Invalid => Errno::INVAL,
        RequestFailure::NoSpace => Errno::NOSPC,
        RequestFailure::Io => Errno::IO,
        RequestFailure::ReadOnly => Errno::ROFS,
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
        // UBLK_IO_OP_WRITE_SAME, UBLK_IO_OP_ZONE_OPEN
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
        let rang = || rustix::io::read(&*inbox.wake, &mut [0; 8]).is_ok();
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
