//! Screens the requests of a trace in order of arrival. First marks suspected re-issues among all requests, then removes requests that are
//! not selected, and finally drops the marked requests if the options require it. Re-issues are thus detected among all requests, but
//! counted only among the selected ones.

mod reissue_detector;
mod selection;

use std::sync::Arc;

use crate::{Batch, BatchBuilder, Ledger, NameTable, ReadOptions, RequestFlags, Result};
use reissue_detector::ReissueDetector;
use selection::{RequestSelection, several_devices};

pub use reissue_detector::ReissueWindow;
pub use selection::RequestFilter;
pub(crate) use selection::RequestsByName;

/// Marks suspected re-issues and removes requests, batch by batch in order of arrival, in bounded memory.
pub(crate) struct RequestScreen {
    /// Detects re-issues; `None` if the file marks them.
    reissues: Option<ReissueDetector>,
    /// `--reissue-window`; `None` for the default.
    window: Option<ReissueWindow>,
    selection: Option<RequestSelection>,
    drop_reissued: bool,
    one_device: bool,
    /// Whether the input is only a part of a trace. A part may lack values that the selection names.
    is_slice: bool,
    /// Number of requests that are marked as suspected re-issues, among the selected requests.
    reissued: u64,
    dropped: u64,
    /// Number of re-issues that were dropped before the file was written.
    dropped_before: u64,
    devices: RequestsByName,
    /// Names of processes and devices up to the last batch.
    names: Option<(Arc<NameTable>, Arc<NameTable>)>,
}

impl RequestScreen {
    /// Creates the filter for the requests of a source. `stored` is the ledger that the file contains.
    pub fn new(options: &ReadOptions, stored: &Ledger) -> Self {
        let origin = options.slice.as_ref().map(|slice| slice.origin);
        Self {
            reissues: stored.reissued.is_none().then(|| ReissueDetector::new(options.reissue_window.unwrap_or_default())),
            window: options.reissue_window,
            selection: options.only.as_ref().map(|only| RequestSelection::new(only, origin)),
            is_slice: options.slice.is_some(),
            drop_reissued: options.drop_reissued,
            one_device: options.one_device,
            reissued: 0,
            dropped: 0,
            dropped_before: stored.dropped_reissues,
            devices: RequestsByName::default(),
            names: None,
        }
    }

    /// `--reissue-window`; `None` for the default.
    pub fn window(&self) -> Option<ReissueWindow> {
        self.window
    }

    /// Whether requests may be removed.
    pub fn leaves_out(&self) -> bool {
        self.selection.is_some() || self.drop_reissued
    }

    /// Rejects a trace with several devices from now on.
    pub fn require_one_device(&mut self) {
        self.one_device = true;
    }

    /// Marks suspected re-issues in the next batch, removes requests as the options state, and returns the rest.
    pub fn apply(&mut self, mut batch: Batch) -> Batch {
        self.names = Some((batch.processes().clone(), batch.devices().clone()));
        if let Some(reissues) = &mut self.reissues {
            batch = reissues.mark(batch);
        }
        if let Some(selection) = &mut self.selection {
            batch = selection.choose(batch);
        }
        let marked = batch.flags.iter().filter(|flags| **flags & RequestFlags::REISSUED.0 != 0).count();
        if marked > 0 {
            self.reissued += marked as u64;
            if self.drop_reissued {
                self.dropped += marked as u64;
                let is_first = |row: &usize| batch.flags[*row] & RequestFlags::REISSUED.0 == 0;
                let first: Vec<_> = (0..batch.len()).filter(is_first).collect();
                batch = batch.chosen(&first);
            }
        }
        self.devices.add(&batch.device, batch.len());
        batch
    }

    /// Whether the trace must be rejected because it has several devices.
    pub fn refuses(&self) -> bool {
        self.one_device && self.devices.len() > 1
    }

    /// Called at the end of the trace. Returns an error if there are several devices where only one is permitted, or if a selected value
    /// (such as a process name) occurs in no request.
    pub fn check(&self) -> Result<()> {
        let Some((processes, devices)) = &self.names else { return Ok(()) };
        if self.refuses() {
            return Err(several_devices(&self.devices, devices));
        }
        let selection = self.selection.as_ref().filter(|_| !self.is_slice);
        selection.map_or(Ok(()), |selection| selection.check(processes, devices))
    }

    /// Adds the numbers of marked and removed requests to the ledger of the source.
    pub fn count(&self, ledger: &mut Ledger) {
        let left_out = self.selection.as_ref().map_or(0, RequestSelection::left_out);
        // A Parquet trace stores the request counts of its first import, so requests that are left out now must be subtracted.
        ledger.kept = ledger.kept.saturating_sub(left_out + self.dropped);
        ledger.filtered += left_out;
        let judged = self.reissues.as_ref().is_none_or(ReissueDetector::could_detect);
        ledger.reissued = judged.then_some(self.dropped_before + self.reissued);
        ledger.dropped_reissues += self.dropped;
    }

    /// Devices with the number of their requests, largest number first.
    pub fn devices(&self) -> Vec<(String, u64)> {
        let rows = self.names.as_ref().map(|(_, names)| self.devices.rows(names)).unwrap_or_default();
        rows.into_iter().map(|(name, requests)| (name.to_owned(), requests)).collect()
    }
}

impl Batch {
    fn flagged(self, rows: &[usize], flag: RequestFlags) -> Batch {
        let mut flags = self.flags.to_vec();
        for row in rows {
            flags[*row] |= flag.0;
        }
        Batch { flags: flags.into(), ..self }
    }

    /// The batch with these rows, which must be in order.
    pub(crate) fn chosen(self, rows: &[usize]) -> Batch {
        if rows.len() == self.len() {
            return self;
        }
        let mut builder = BatchBuilder::of_noted(self.has_notes());
        for row in rows {
            builder.push_noted(&self.get(*row), self.notes(*row));
        }
        builder.finish(&self.processes, &self.devices)
    }
}
