//! A device below the host's queue or the layers: its commands are not the workload's requests, everything else it tells is
//! passed on.

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
        self.submit_packed(std::slice::from_ref(command), |event| completed = Some(*event))?;
        Ok(completed)
    }

    /// Has the device do commands as one packed command, or a single one as it is; `told` hears of each in their order.
    pub fn submit_packed(
        &mut self,
        commands: &[Command],
        mut told: impl FnMut(&RequestCompleted),
    ) -> Result<()> {
        let mut below = OnCompletion {
            observer: &mut *self.observer,
            completed: |_: &mut O, event: &RequestCompleted| told(event),
        };
        if let Some(checker) = self.checker.as_deref_mut() {
            for command in commands {
                checker.expect(command);
            }
            self.device.submit_packed(commands, &mut (&mut *checker, &mut below))?;
            checker.verify_now_and_then(self.device)?;
        } else {
            self.device.submit_packed(commands, &mut below)?;
        }
        Ok(())
    }
}
