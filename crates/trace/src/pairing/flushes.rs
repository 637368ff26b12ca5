//! Flushes of the device's cache: those that tasks requested, and those that the kernel issues for them.

use std::collections::VecDeque;

use super::open_requests::OpenRequest;
use crate::{BlockEventKind, BlockLayerEvent, Nanos, Op, RequestFlags};

/// A flush that the kernel gave to the driver.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelFlush {
    pub(super) open: OpenRequest,
    /// Whether a request that is kept waits for it.
    pub(super) serves: bool,
    /// Whether the driver returned it; the next issue is then of the same flush.
    returned: bool,
}

/// The flushes of one device.
#[derive(Debug, Default)]
pub(super) struct FlushQueues {
    /// Flushes that tasks requested, the oldest first.
    pub(super) waiting: VecDeque<OpenRequest>,
    /// Flushes of the kernel that the driver has, the oldest first.
    pub(super) running: VecDeque<KernelFlush>,
}

/// Whether the event is of a flush that the kernel itself issues: `FF`, or before kernel 4.8 a write of no sectors with a
/// preflush, which completes at sector 2^64-1.
pub(super) fn is_kernel_flush(event: &BlockLayerEvent) -> bool {
    let empty_write = event.op == Op::Write && event.sectors == 0 && event.flags.contains(RequestFlags::PREFLUSH);
    match event.kind {
        BlockEventKind::Issue | BlockEventKind::Requeue => event.op == Op::Flush || empty_write,
        BlockEventKind::Complete => event.op == Op::Flush || empty_write && event.sector == u64::MAX,
        _ => false,
    }
}

impl FlushQueues {
    /// Handles the issue of a flush of the kernel. `serves` is whether a write waits for it as one of its steps.
    pub(super) fn issue(&mut self, event: &BlockLayerEvent, mut serves: bool) {
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
        let mut open = OpenRequest::new(event);
        open.request.op = Op::Flush;
        open.request.start = Some(event.time);
        open.request.issue = Some(event.time);
        self.running.push_back(KernelFlush { open, serves, returned: false });
    }

    /// Handles the requeue of the latest flush; false if the driver has none.
    pub(super) fn requeue(&mut self) -> bool {
        let Some(running) = self.running.back_mut() else { return false };
        running.returned = true;
        running.open.events += 1;
        true
    }

    /// Ends the latest flush, because older ones never end if their completion was lost. Also returns whether it was the only
    /// one.
    pub(super) fn complete(&mut self) -> Option<(KernelFlush, bool)> {
        let flush = self.running.pop_back()?;
        Some((flush, self.running.is_empty()))
    }

    /// Arrivals of the open flushes that become requests.
    pub(super) fn arrivals(&self) -> impl Iterator<Item = Nanos> {
        let running = self.running.iter().filter(|running| !running.serves).map(|running| &running.open);
        self.waiting.iter().chain(running).map(|open| open.request.arrival)
    }

    /// The number of waiting flushes or of running ones, whichever is larger.
    pub(super) fn len(&self) -> usize {
        self.waiting.len().max(self.running.len())
    }
}
