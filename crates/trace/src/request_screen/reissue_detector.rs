//! Finds suspected re-issues: requests that the driver returned and the kernel issued again, in a trace of issues that does not
//! mark them.
//!
//! A request is suspected if the latest earlier request of the same device, sector, length and operation was 0.5 to 3 ms (or
//! `--reissue-window`) before it, and
//! - if processes are recorded: the earlier one is of another process, and this one is of a kernel worker (`kworker/...`);
//! - if completions are recorded: the earlier one was not complete.
//!
//! A driver that cannot accept a request, because the link to the device sleeps, returns it; a worker of the block layer issues
//! it again when the link is up. Requests with neither process nor completion cannot be judged.

use super::recent_requests::RecentRequests;
use crate::{Batch, ReissueWindow, Request, RequestFlags};

const WORKER: &str = "kworker/";

/// Finds suspected re-issues in batches in order of arrival.
#[derive(Debug)]
pub(super) struct ReissueDetector {
    window: ReissueWindow,
    recent: RecentRequests,
    /// Whether a process is a kernel worker, by the id of its name.
    workers: Vec<bool>,
    could_detect: bool,
}

impl ReissueDetector {
    pub fn new(window: ReissueWindow) -> Self {
        Self { window, recent: RecentRequests::new(window.latest_ns()), workers: Vec::new(), could_detect: false }
    }

    /// Whether any batch had the processes or completions that are needed.
    pub fn could_detect(&self) -> bool {
        self.could_detect
    }

    /// Marks suspected re-issues with [`RequestFlags::REISSUED`].
    pub fn mark(&mut self, batch: Batch) -> Batch {
        if batch.process.is_empty() && batch.complete.is_empty() {
            return batch;
        }
        self.could_detect = true;
        let names = batch.processes().iter().skip(self.workers.len());
        self.workers.extend(names.map(|name| name.starts_with(WORKER)));
        let mut found = Vec::new();
        for (row, request) in batch.iter().enumerate().filter(|(_, request)| request.sectors > 0) {
            if self.is_reissue(&request) {
                found.push(row);
            }
            self.recent.push(&request);
        }
        if found.is_empty() { batch } else { batch.flagged(&found, RequestFlags::REISSUED) }
    }

    #[inline]
    fn is_reissue(&self, request: &Request) -> bool {
        let by_worker = request.process.map(|process| self.workers.get(process.0 as usize).copied().unwrap_or(false));
        if by_worker == Some(false) {
            return false;
        }
        let Some(first) = self.recent.find(request) else { return false };
        let after_ns = request.arrival.0.saturating_sub(first.arrival.0);
        let open = first.complete.map(|complete| complete > request.arrival);
        let by_process = if by_worker.is_some() { of_another_process(first, request) } else { open.is_some() };
        self.window.holds(after_ns) && by_process && open != Some(false)
    }
}

/// Whether two requests are of different processes: compares their pids if both have one, otherwise their names.
fn of_another_process(first: &Request, second: &Request) -> bool {
    match (first.pid, second.pid, first.process) {
        (Some(a), Some(b), _) => a != b,
        (_, _, Some(_)) => first.process != second.process,
        _ => false,
    }
}
