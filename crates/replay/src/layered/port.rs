//! A device below the layers: its commands are not the workload's requests, everything else it tells is passed on.

use emmclab_device::checker::Checker;
use emmclab_device::{Command, Device, Observer, OnCompletion, RequestCompleted};
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
        let mut completed = None;
        let mut below = OnCompletion {
            observer: &mut *self.observer,
            completed: |_: &mut O, event: &RequestCompleted| completed = Some(*event),
        };
        if let Some(checker) = self.checker.as_deref_mut() {
            checker.expect(command);
            self.device.submit(command, &mut (&mut *checker, &mut below))?;
            checker.verify_now_and_then(self.device)?;
        } else {
            self.device.submit(command, &mut below)?;
        }
        Ok(completed)
    }
}
