//! Tells the completion of a command as that of the requests it was made of.

use emmclab_device::{
    BlockErased, BlockRetired, GcFinished, GcStarted, Observer, PageProgrammed, PageRead, RequestCompleted,
    Trimmed, UnitCached, WokeUp,
};

use super::HostQueue;

/// Passes everything on; completions become those of the host's requests, in their order of arrival.
pub(crate) struct Spread<'a, O> {
    pub host: &'a mut HostQueue,
    /// Entry of the command that completes next.
    pub entry: usize,
    pub observer: &'a mut O,
}

impl<O: Observer> Observer for Spread<'_, O> {
    const UNITS: bool = O::UNITS;

    fn request_completed(&mut self, event: &RequestCompleted) {
        self.host.entry_completed(self.entry, event);
        self.entry += 1;
        while let Some(event) = self.host.pop_complete() {
            self.observer.request_completed(&event);
        }
    }
    fn page_read(&mut self, event: &PageRead) {
        self.observer.page_read(event);
    }
    fn page_programmed(&mut self, event: &PageProgrammed<'_>) {
        self.observer.page_programmed(event);
    }
    fn block_erased(&mut self, event: &BlockErased) {
        self.observer.block_erased(event);
    }
    fn block_retired(&mut self, event: &BlockRetired) {
        self.observer.block_retired(event);
    }
    fn gc_started(&mut self, event: &GcStarted) {
        self.observer.gc_started(event);
    }
    fn gc_finished(&mut self, event: &GcFinished) {
        self.observer.gc_finished(event);
    }
    fn trimmed(&mut self, event: &Trimmed) {
        self.observer.trimmed(event);
    }
    fn woke_up(&mut self, event: &WokeUp) {
        self.observer.woke_up(event);
    }
    fn unit_cached(&mut self, event: &UnitCached) {
        self.observer.unit_cached(event);
    }
}
