//! The replay engine: all commands reach the devices through it.
//!
//! An [`ReplayEngine`] accepts commands in order of arrival and reports their completions to an observer. Below it is one device, bare or with
//! host queue and checker, or a stack of layers over one or two such disks. The completion of a command may become known later: a device
//! that reorders reports it when the request's last page has begun.

mod completion_queue;
#[cfg(test)]
mod tests;

use emmclab_device::gc::VictimPolicy;
use emmclab_device::{Device, DeviceCommand, DeviceConfig, NullObserver, Observer, RequestCompleted, StopReason};
use emmclab_layers::LayerConfig;
use emmclab_trace::{BlockNote, Error, ErrorClass, Nanos, Result};

use crate::disk::SimulatedDisk;
use crate::disk_pair::DiskPair;
use crate::host::HostCounts;
use crate::reorder_buffer::ReorderBuffer;
use crate::simulated_stack::SimulatedStack;

use completion_queue::CompletionQueue;

/// One or two devices and the software above them.
pub(crate) struct ReplayEngine {
    main: SimulatedDisk,
    second: Option<Box<SimulatedDisk>>,
    layers: Option<Box<SimulatedStack>>,
    /// Whether commands go directly to the device.
    bare: bool,
    reorder_buffer: ReorderBuffer,
    /// The last completions of a disk, kept to reuse the memory.
    completions: Vec<RequestCompleted>,
    /// The completion that became known last. With layers: when the latest one became known.
    last_complete: Nanos,
    /// Completions as soon as they are known, if a caller waits for them.
    completion_queue: Option<Box<CompletionQueue>>,
}

impl ReplayEngine {
    /// Wraps a device without host queue, checker and layers.
    pub fn bare(device: Device) -> Self {
        Self::of(SimulatedDisk::new(device))
    }

    /// A device at time 0 of a run, with the host queue that its settings configure, and a checker if `check`.
    pub fn for_run(config: &DeviceConfig, device: Device, check: bool) -> Self {
        Self::of(SimulatedDisk::for_run(config.settings(), device, check))
    }

    fn of(main: SimulatedDisk) -> Self {
        Self {
            bare: main.is_bare(),
            main,
            second: None,
            layers: None,
            reorder_buffer: ReorderBuffer::default(),
            completions: Vec::new(),
            last_complete: Nanos::ZERO,
            completion_queue: None,
        }
    }

    /// Adds layers above the device, the first on top, and a second device beside it. The first `first_writes` writes that the layers send
    /// to the device are recorded.
    ///
    /// # Errors
    /// For an unknown layer, invalid settings, and a second device without a layer that uses it.
    pub fn with_layers(
        mut self,
        layers: &[LayerConfig],
        second: Option<SimulatedDisk>,
        first_writes: u32,
    ) -> Result<Self> {
        if layers.is_empty() {
            if second.is_some() {
                return Err(Error::new(ErrorClass::Config, "there is a second device, but no layer to use it"));
            }
            return Ok(self);
        }
        let below = self.main.below(second.as_ref());
        self.layers = Some(Box::new(SimulatedStack::new(layers, &below, first_writes)?));
        (self.second, self.bare) = (second.map(Box::new), false);
        Ok(self)
    }

    /// Number of sectors that commands can address.
    pub fn capacity(&self) -> u64 {
        match &self.layers {
            Some(layers) => layers.capacity(),
            None => self.main.device().geometry().sectors(),
        }
    }

    /// Whether commands reach the device unchanged.
    #[inline]
    pub fn is_bare(&self) -> bool {
        self.bare
    }

    /// The device.
    #[inline]
    pub fn device(&self) -> &Device {
        self.main.device()
    }

    /// The device, to be driven directly; only if the engine is bare.
    #[inline]
    pub fn device_mut(&mut self) -> &mut Device {
        self.main.device_mut()
    }

    /// Sets the policy that chooses victims of the device's garbage collection from now on.
    ///
    /// # Errors
    /// As [`Device::set_victim_policy`].
    pub fn set_victim_policy(&mut self, policy: Box<dyn VictimPolicy>) -> Result<()> {
        self.main.device_mut().set_victim_policy(policy)
    }

    /// Returns the device, without the rest.
    pub fn into_device(self) -> Device {
        self.main.into_device()
    }

    /// The second device and the counts of its host queue.
    pub fn second(&self) -> Option<(&Device, Option<HostCounts>)> {
        self.second.as_ref().map(|disk| (disk.device(), disk.host_counts()))
    }

    /// The layers.
    pub fn layers(&self) -> Option<&SimulatedStack> {
        self.layers.as_deref()
    }

    /// The counts of the device's host queue, if there is one.
    pub fn host_counts(&self) -> Option<HostCounts> {
        self.main.host_counts()
    }

    /// Why a device accepts no more commands; `None` if all still do.
    #[inline]
    pub fn stop(&self) -> Option<StopReason> {
        self.main.stop().or_else(|| self.second.as_ref().and_then(|disk| disk.stop()))
    }

    /// When the last submitted command is complete, as far as that is known; [`ReplayEngine::settle`] makes it known.
    #[inline]
    pub fn completed(&self) -> Nanos {
        self.last_complete
    }

    /// Whether a layer reads the notes on the blocks of writes.
    pub fn reads_notes(&self) -> bool {
        self.layers.as_ref().is_some_and(|layers| layers.reads_notes())
    }

    /// Submits a command, with notes on its blocks or without; returns false once a device has stopped.
    ///
    /// # Errors
    /// As [`Device::submit`], and for a broken invariant.
    #[inline]
    pub fn submit<O: Observer>(
        &mut self,
        command: &DeviceCommand,
        notes: &[BlockNote],
        observer: &mut O,
    ) -> Result<bool> {
        if !self.bare {
            return self.submit_to_disks(command, notes, observer);
        }
        match self.main.device_mut().submit(command, observer)? {
            Some(done) => {
                self.last_complete = done;
                Ok(true)
            }
            None => Ok(self.main.stop().is_none()),
        }
    }

    #[inline(never)]
    fn submit_to_disks<O: Observer>(
        &mut self,
        command: &DeviceCommand,
        notes: &[BlockNote],
        observer: &mut O,
    ) -> Result<bool> {
        if let Some(layers) = &mut self.layers {
            let second = self.second.as_deref_mut();
            let disks = &mut DiskPair { main: &mut self.main, second, observer };
            let id = layers.submit(command, notes.to_vec(), disks)?;
            if let Some(watched) = &mut self.completion_queue {
                watched.map_number(id);
                watched.take_from_layers(layers);
            }
        } else {
            self.main.advance(command.arrival, observer)?;
            self.main.submit(std::slice::from_ref(command), observer)?;
            self.report(observer);
        }
        Ok(self.stop().is_none())
    }

    /// Simulates until every command is complete or a device has stopped. Returns the completion that became known last.
    ///
    /// # Errors
    /// As [`ReplayEngine::submit`].
    #[inline]
    pub fn settle<O: Observer>(&mut self, observer: &mut O) -> Result<Nanos> {
        if self.bare {
            self.last_complete = self.main.device_mut().settle(observer);
        } else if let Some(layers) = &mut self.layers {
            let second = self.second.as_deref_mut();
            layers.settle(&mut DiskPair { main: &mut self.main, second, observer })?;
            self.last_complete = layers.last_known();
        } else {
            self.main.advance(Nanos::MAX, observer)?;
            self.report(observer);
        }
        Ok(self.last_complete)
    }

    /// Makes the layers move all data that they hold in temporary places to its final place. All commands must be complete. Returns how
    /// long that took.
    ///
    /// # Errors
    /// As [`ReplayEngine::submit`].
    pub fn drain<O: Observer>(&mut self, observer: &mut O) -> Result<Nanos> {
        let Some(layers) = &mut self.layers else { return Ok(Nanos::ZERO) };
        let second = self.second.as_deref_mut();
        layers.drain(&mut DiskPair { main: &mut self.main, second, observer })
    }

    /// Reports the completions that have become known, in order of arrival.
    fn report<O: Observer>(&mut self, observer: &mut O) {
        self.main.take_completed(&mut self.completions);
        for event in self.completions.drain(..) {
            self.last_complete = event.complete;
            if let Some(watched) = &mut self.completion_queue {
                watched.add_completion(&event);
            }
            self.reorder_buffer.insert(event);
        }
        while let Some(event) = self.reorder_buffer.pop() {
            observer.request_completed(&event);
        }
    }

    /// Powers the device off in an orderly way, so that all host writes count as programmed, and checks the contents of the devices. The
    /// second device begins all its commands, but its cache is not written back.
    ///
    /// # Errors
    /// For a broken invariant.
    pub fn finish<O: Observer>(&mut self, observer: &mut O) -> Result<()> {
        if self.bare {
            self.main.device_mut().power_off(observer);
            return Ok(());
        }
        self.main.power_off(observer)?;
        self.main.verify()?;
        if let Some(second) = &mut self.second {
            second.advance(Nanos::MAX, &mut NullObserver)?;
            second.verify()?;
        }
        Ok(())
    }
}
