//! The thread of one queue: passes requests of the kernel to the device, and completions back.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use emmclab_base::Modifiers;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::abi::Description;
use super::channel::{Channel, Event};
use crate::device::{Action, BlockDevice, BlockRequest, Completion, Completions, Failure};

#[derive(Default)]
struct List {
    completions: Vec<Completion>,
    /// Whether the thread sleeps, or is about to.
    asleep: bool,
}

/// Completions for the thread of the queue.
pub(super) struct Inbox {
    list: Mutex<List>,
    wake: Arc<OwnedFd>,
    /// Whether the thread must end, even if the kernel still has requests.
    leaving: AtomicBool,
}

impl Inbox {
    pub(super) fn new() -> io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(Self { list: Mutex::default(), wake, leaving: AtomicBool::new(false) })
    }

    pub(super) fn wake(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.wake)
    }

    fn list(&self) -> MutexGuard<'_, List> {
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
    fn take(&self, completions: &mut Vec<Completion>) -> bool {
        let mut list = self.list();
        completions.append(&mut list.completions);
        list.asleep = completions.is_empty();
        !list.asleep
    }

    fn awake(&self) {
        self.list().asleep = false;
    }
}

impl Completions for Inbox {
    fn complete(&self, completed: &mut Vec<Completion>) {
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
pub(super) fn serve(mut channel: Channel, device: &dyn BlockDevice, inbox: &Arc<Inbox>) -> io::Result<()> {
    let completions = Arc::clone(inbox) as Arc<dyn Completions>;
    let (mut events, mut requests, mut completed) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        channel.events(&mut events);
        for event in events.drain(..) {
            match event {
                Event::Woken => drop(rustix::io::read(&*inbox.wake, &mut [0; 8])),
                Event::Request(tag) => match request(&channel, tag) {
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
            for Completion { tag, outcome } in completed.drain(..) {
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
fn request(channel: &Channel, tag: u16) -> Result<BlockRequest, Errno> {
    let description = channel.description(tag).ok_or(Errno::INVAL)?;
    let action = match description.operation {
        Description::READ => Action::Read,
        Description::WRITE => Action::Write(channel.data(tag, description.data_bytes()).ok_or(Errno::INVAL)?),
        _ => action(&description).ok_or(Errno::OPNOTSUPP)?,
    };
    let sectors = if action == Action::Flush { 0 } else { description.sectors };
    let sector = if action == Action::Flush { 0 } else { description.sector };
    Ok(BlockRequest { tag: u64::from(tag), action, sector, sectors, modifiers: modifiers(&description) })
}

/// The action of a request without data.
fn action(description: &Description) -> Option<Action> {
    Some(match description.operation {
        Description::FLUSH => Action::Flush,
        Description::DISCARD => Action::Discard { secure: false },
        Description::WRITE_ZEROES => {
            Action::WriteZeroes { keep_allocated: description.flags & Description::NO_UNMAP != 0 }
        }
        _ => return None,
    })
}

fn modifiers(description: &Description) -> Modifiers {
    let mut modifiers = Modifiers::empty();
    let has = |flag| description.flags & flag != 0;
    // The kernel also sets these flags for other requests; its own flushes have FUA, too.
    let data = matches!(description.operation, Description::READ | Description::WRITE);
    modifiers.set(Modifiers::RELIABLE, description.operation != Description::FLUSH && has(Description::FUA));
    modifiers.set(Modifiers::META, data && has(Description::META));
    modifiers
}

/// Ends the request of a tag.
fn finish(channel: &mut Channel, tag: u16, outcome: Result<Vec<u8>, Failure>) -> io::Result<()> {
    let Some(description) = channel.description(tag) else { return Ok(()) };
    let bytes = description.data_bytes();
    let outcome = match outcome {
        Err(failure) => Err(errno(failure)),
        Ok(data) if description.operation == Description::READ => {
            // If the device returns data of another length than requested, the read has failed.
            if data.len() == bytes && channel.store(tag, &data) { Ok(bytes) } else { Err(Errno::IO) }
        }
        Ok(_) => Ok(bytes),
    };
    channel.finish(tag, outcome.map_or_else(|errno| -errno.raw_os_error(), |bytes| bytes as i32))
}

fn errno(failure: Failure) -> Errno {
    match failure {
        Failure::Invalid => Errno::INVAL,
        Failure::NoSpace => Errno::NOSPC,
        Failure::Io => Errno::IO,
        Failure::ReadOnly => Errno::ROFS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(operation: u8, flags: u32) -> Description {
        Description { operation, flags, sectors: 8, sector: 16 }
    }

    #[test]
    fn zeros_stay_allocated_only_where_the_kernel_says_so() {
        let zeroes = |flags| action(&description(Description::WRITE_ZEROES, flags));
        assert_eq!(zeroes(0), Some(Action::WriteZeroes { keep_allocated: false }));
        assert_eq!(zeroes(Description::NO_UNMAP), Some(Action::WriteZeroes { keep_allocated: true }));
    }

    #[test]
    fn an_operation_that_was_not_offered_is_refused() {
        assert_eq!(action(&description(Description::DISCARD, 0)), Some(Action::Discard { secure: false }));
        // UBLK_IO_OP_WRITE_SAME, UBLK_IO_OP_ZONE_OPEN
        assert_eq!([4, 10].map(|operation| action(&description(operation, 0))), [None, None]);
    }

    #[test]
    fn fua_and_metadata_are_those_of_the_request() {
        let flags = Description::FUA | Description::META;
        let of = |operation| modifiers(&description(operation, flags));
        assert_eq!(of(Description::WRITE), Modifiers::RELIABLE | Modifiers::META);
        assert_eq!(of(Description::FLUSH), Modifiers::empty());
        assert_eq!(modifiers(&description(Description::READ, Description::META)), Modifiers::META);
        assert_eq!(modifiers(&description(Description::WRITE, 0)), Modifiers::empty());
    }

    #[test]
    fn only_a_thread_that_sleeps_is_woken() {
        let inbox = Inbox::new().unwrap_or_else(|error| unreachable!("{error}"));
        let done = |tag| vec![Completion { tag, outcome: Ok(Vec::new()) }];
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
