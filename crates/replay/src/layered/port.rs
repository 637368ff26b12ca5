//! A device below the layers: its commands are not the workload's requests, everything else it tells is passed on.

use emmclab_device::checker::Checker;
use emmclab_device::{
    BlockErased, BlockRetired, Command, Device, GcFinished, GcStarted, Observer, PageProgrammed, PageRead,
    RequestCompleted, Trimmed, WokeUp,
};
use emmclab_trace::Result;

/// A device with who listens to it.
pub(crate) struct Port<'a, O> {
    pub device: &'a mut Device,
    pub checker: Option<&'a mut Checker>,
    pub observer: &'a mut O,
}

impl<O: Observer> Port<'_, O> {
    /// Whether the device takes no more.
    pub fn stopped(&self) -> bool {
        self.device.stop().is_some()
    }

    /// Has the device do a command; `None` once it has stopped.
    pub fn submit(&mut self, command: &Command) -> Result<Option<RequestCompleted>> {
        let mut below = Below { observer: &mut *self.observer, completed: None };
        if let Some(checker) = self.checker.as_deref_mut() {
            checker.expect(command);
            self.device.submit(command, &mut (&mut *checker, &mut below))?;
            checker.verify_now_and_then(self.device)?;
        } else {
            self.device.submit(command, &mut below)?;
        }
        Ok(below.completed)
    }
}

/// Keeps the completion of a command to itself.
struct Below<'a, O> {
    observer: &'a mut O,
    completed: Option<RequestCompleted>,
}

impl<O: Observer> Observer for Below<'_, O> {
    const UNITS: bool = O::UNITS;

    fn request_completed(&mut self, event: &RequestCompleted) {
        self.completed = Some(*event);
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
}
