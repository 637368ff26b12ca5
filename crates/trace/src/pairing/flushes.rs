//! Flushes of the device's cache: those that tasks wait for, and those of the kernel that serve them.

use std::collections::VecDeque;

use emmclab_base::{Flags, Nanos, Op};

use super::shelf::Open;
use super::{Event, EventKind};

/// A flush that the kernel gave to the driver.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelFlush {
    pub(super) open: Open,
    /// Whether a request that is kept by itself waits for it.
    pub(super) serves: bool,
    /// The driver gave it back; its next issue is the same flush.
    returned: bool,
}

/// The flushes of one device.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    /// Those that a task waits for, the oldest first.
    pub(super) waiting: VecDeque<Open>,
    /// Those of the kernel that are with the driver, the oldest first.
    pub(super) running: VecDeque<KernelFlush>,
}

/// Whether the event is of a flush that the kernel itself issues: `FF`, or before kernel 4.8 a write of no sectors with a
/// flush before it, which completes at sector 2^64-1.
pub(super) fn is_kernel_flush(event: &Event) -> bool {
    let empty_write = event.op == Op::Write && event.sectors == 0 && event.flags.contains(Flags::PREFLUSH);
    match event.kind {
        EventKind::Issue | EventKind::Requeue => event.op == Op::Flush || empty_write,
        EventKind::Complete => event.op == Op::Flush || empty_write && event.sector == u64::MAX,
        _ => false,
    }
}

impl Flushes {
    /// Takes the issue of a flush of the kernel. `serves` says whether a write of which the flush is a part waits for it.
    pub(super) fn issue(&mut self, event: &Event, mut serves: bool) {
        if let Some(running) = self.running.back_mut().filter(|running| running.returned) {
            running.returned = false;
            running.open.request.issue = Some(event.time);
            running.open.events += 1;
            return;
        }
        for open in self.waiting.iter_mut().filter(|open| open.request.issue.is_none()) {
            open.request.start = Some(event.time);
            open.request.issue = Some(event.time);
            serves = true;
        }
        let mut open = Open::new(event);
        open.request.op = Op::Flush;
        open.request.start = Some(event.time);
        open.request.issue = Some(event.time);
        self.running.push_back(KernelFlush { open, serves, returned: false });
    }

    /// The driver gave the latest one back; false if none is with it.
    pub(super) fn requeue(&mut self) -> bool {
        let Some(running) = self.running.back_mut() else { return false };
        running.returned = true;
        running.open.events += 1;
        true
    }

    /// Ends the latest one: where a completion was lost, older ones never end. Says whether it was the only one.
    pub(super) fn complete(&mut self) -> Option<(KernelFlush, bool)> {
        let flush = self.running.pop_back()?;
        Some((flush, self.running.is_empty()))
    }

    /// Arrivals of those that are open.
    pub(super) fn arrivals(&self) -> impl Iterator<Item = Nanos> {
        let running = self.running.iter().filter(|running| !running.serves).map(|running| &running.open);
        self.waiting.iter().chain(running).map(|open| open.request.arrival)
    }

    /// The larger number of open ones.
    pub(super) fn len(&self) -> usize {
        self.waiting.len().max(self.running.len())
    }
}
