//! Operations on a served device other than requests: power cuts, settings, figures, shutdown.

use emmclab_base::{DeviceHealth, Error, ErrorClass, Nanos, Result};
use emmclab_device::{Device, NullObserver};
use emmclab_replay::{RunMeasurement, SimulationResult};

use super::LiveCore;
use crate::block_roles::LiveAnnotator;
use crate::clock::ClockPace;
use crate::log::RunLog;
use crate::workload_lines::WorkloadLines;

impl LiveCore {
    /// Cuts the power: all requests fail, those in progress and those that arrive before [`Self::restore`].
    pub fn cut(&mut self) -> Result<()> {
        self.go_on();
        let now = self.clock.now();
        self.powered = false;
        self.sums.cuts += 1;
        self.abandon();
        // A log ends with the first power cut.
        self.end_log()?;
        self.stack.cut(now)
    }

    /// Logs a line about data that was acknowledged to the workload, after all completions that were delivered.
    pub fn acknowledge(&mut self, text: &str) {
        if let Some(log) = &self.log {
            log.acknowledge(self.clock.now(), text);
        }
    }

    /// Logs the lines of a workload from now on, each before the next request.
    pub fn follow(&mut self, lines: WorkloadLines) {
        self.lines = Some(lines);
    }

    /// Logs what the workload has printed so far.
    pub(super) fn log_lines(&mut self) {
        if let (Some(log), Some(lines)) = (&self.log, &mut self.lines) {
            let now = self.clock.now();
            lines.read(|line| log.acknowledge(now, line));
        }
    }

    /// Logs what the workload has printed so far, and returns the lines that were logged since the last call.
    pub fn new_lines(&mut self) -> Vec<String> {
        self.log_lines();
        self.lines.as_mut().map(WorkloadLines::take_new).unwrap_or_default()
    }

    /// Logs a named mark at the present position.
    pub fn mark(&mut self, text: &str) {
        if let Some(log) = &self.log {
            log.mark(self.clock.now(), text);
        }
    }

    /// Ends the log, if there is one.
    pub fn end_log(&mut self) -> Result<()> {
        self.lines = None;
        self.log.take().map_or(Ok(()), RunLog::finish)
    }

    /// Restores the power. The layers have recovered; the file system is read again.
    pub fn restore(&mut self) {
        self.go_on();
        self.powered = true;
        if let Some(naming) = &mut self.naming {
            *naming = LiveAnnotator::of(&self.stack, &self.layers);
        }
    }

    /// Changes a setting of the device.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        if let Some(layer) =
            key.split_once('.').and_then(|(name, _)| self.layers.iter().find(|layer| layer.name == name))
        {
            let problem = format!(
                "`{key}` cannot change in a device in use: it determines the layout of the state of `{}`",
                layer.name
            );
            return Err(Error::new(ErrorClass::Config, problem)
                .hint("serve the device again with other settings of its layers"));
        }
        let mut config = self.config.clone();
        config.set(key, value)?;
        self.go_on();
        let now = self.clock.now();
        self.changes.extend(self.stack.reconfigure(&self.config, &config, now)?);
        self.config = config;
        Ok(())
    }

    /// The state of the flash of the first device.
    pub fn health(&self) -> DeviceHealth {
        self.stack.device().health(self.config.settings())
    }

    /// Clears the figures of the run.
    pub fn clear_counters(&mut self) {
        self.go_on();
        let next = self.stack.next_request();
        self.measure = RunMeasurement::starting_at(next);
        self.stack.clear_counters();
        if let Some(Err(error)) = self.recording.as_mut().map(|recording| recording.restart(next)) {
            self.fail(error);
        }
    }

    /// Makes the layers move all data to its final place, and returns the result of the run until then. The clock must be free, and nothing
    /// in progress.
    pub fn drain(&mut self) -> Result<SimulationResult> {
        self.move_all()?;
        Ok(self.result())
    }

    fn move_all(&mut self) -> Result<()> {
        self.go_on();
        let hint = "make sure that no client sends requests during this, and serve with the clock `free`";
        if self.clock.pace() != ClockPace::Free || self.stack.open() > 0 {
            return Err(Error::new(
                ErrorClass::Config,
                "layers are drained on a free clock, without requests in progress",
            )
            .hint(hint));
        }
        let now = self.clock.now();
        let done = self.stack.drain(now, &mut NullObserver)?;
        self.clock.advance_free(done);
        self.image_error = self.stack.land(done).err();
        Ok(())
    }

    /// Makes the layers move all data to its final place, and removes the layers: the contents are then those of a device without layers.
    pub fn make_plain(&mut self) -> Result<()> {
        self.move_all()?;
        self.layers.clear();
        Ok(())
    }

    /// Shuts down in an orderly way: finishes requests in progress, and programs all cached data.
    pub fn power_off(&mut self) -> Result<()> {
        self.clock.set_pace(ClockPace::Free);
        self.go_on();
        self.abandon();
        let devices = [Some(self.stack.device()), self.stack.second()].into_iter().flatten();
        let now = devices.map(Device::idle_from).fold(self.clock.now(), Nanos::max);
        let logged = self.end_log();
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        logged?;
        if self.stack.stop().is_none() && !self.ended {
            self.stack.power_off(now, &mut NullObserver)?;
        }
        if let Some(recording) = self.recording.take() {
            self.is_recorded = recording.finish(&self.changes)?;
        }
        Ok(())
    }
}
