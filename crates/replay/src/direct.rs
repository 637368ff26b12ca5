//! A device under synchronous direct I/O, as by a program that uses `O_DIRECT` and `O_SYNC`: each transfer begins when the
//! previous one is complete. The host's queue is always empty, so transfers go directly to the device.

use emmclab_device::{CommandFlags, Device, DeviceCommand, DeviceConfig, NullObserver, StopReason};
use emmclab_trace::{Error, ErrorClass, Nanos, Op, Result, interrupt};

use crate::engine::ReplayEngine;

/// Largest request of the kernels of these devices, in sectors. A longer transfer is split into requests, which are queued.
const MOST_SECTORS: u64 = 1024;
/// Sectors of each request of [`DirectIo::filled`].
const FILL_SECTORS: u64 = 1024;

/// A device and the program's clock.
pub struct DirectIo {
    engine: ReplayEngine,
    now: Nanos,
}

impl DirectIo {
    /// A new device.
    pub fn new(config: &DeviceConfig) -> Self {
        Self::on(Device::new(config))
    }

    /// Starts with this state of the device; its time and counters restart at 0.
    pub fn on(mut device: Device) -> Self {
        device.rewind();
        Self { engine: ReplayEngine::bare(device), now: Nanos::ZERO }
    }

    /// A device that was written once from the first sector to the last.
    ///
    /// # Errors
    /// If the device is full before its end.
    pub fn filled(config: &DeviceConfig) -> Result<Self> {
        Self::filled_to(config, u64::MAX)
    }

    /// As [`DirectIo::filled`], but only up to sector `end`.
    pub fn filled_to(config: &DeviceConfig, end: u64) -> Result<Self> {
        let mut out = Self::new(config);
        let end = end.min(out.capacity());
        let mut at = 0;
        while at < end {
            interrupt::check()?;
            let count = FILL_SECTORS.min(end - at);
            out.transfer(Op::Write, at, count)?;
            at += count;
        }
        Ok(Self::on(out.engine.main.device))
    }

    /// Number of sectors of the device.
    pub fn capacity(&self) -> u64 {
        self.engine.capacity()
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.engine.main.device
    }

    /// Executes a transfer of any length; returns its time.
    ///
    /// # Errors
    /// For a transfer beyond the device, and if the device has stopped.
    pub fn transfer(&mut self, op: Op, sector: u64, sectors: u64) -> Result<Nanos> {
        self.transfer_with(CommandFlags::empty(), op, sector, sectors)
    }

    /// As [`DirectIo::transfer`], with flags on every request.
    pub fn transfer_with(&mut self, modifiers: CommandFlags, op: Op, sector: u64, sectors: u64) -> Result<Nanos> {
        let begin = self.now;
        if sector.saturating_add(sectors) > self.capacity() {
            return Err(Error::new(ErrorClass::Value, "the transfer ends after the last sector of the device")
                .of_field("sector", 0, sector.to_string().as_bytes())
                .hint("use sectors below the capacity of the device"));
        }
        let mut at = sector;
        while at < sector + sectors {
            let count = MOST_SECTORS.min(sector + sectors - at);
            self.command(&DeviceCommand { modifiers, ..DeviceCommand::new(begin, op, at, count as u32) })?;
            at += count;
        }
        Ok(self.now - begin)
    }

    /// Executes transfers of one request each at the same time, as by a program with one thread for each tag of the device; returns the
    /// time until all are complete.
    pub fn at_once(&mut self, op: Op, transfers: impl Iterator<Item = (u64, u32)>) -> Result<Nanos> {
        let begin = self.now;
        for (sector, sectors) in transfers {
            interrupt::check()?;
            self.command(&DeviceCommand::new(begin, op, sector, sectors))?;
        }
        Ok(self.now - begin)
    }

    /// Executes a flush; returns its time.
    pub fn flush(&mut self) -> Result<Nanos> {
        let begin = self.now;
        self.command(&DeviceCommand::new(begin, Op::Flush, 0, 0))?;
        Ok(self.now - begin)
    }

    /// Leaves the device idle for a time, in which it does its background work.
    pub fn pause(&mut self, time: Nanos) {
        self.now += time;
        self.engine.main.device.idle_until(self.now);
    }

    fn command(&mut self, command: &DeviceCommand) -> Result<()> {
        self.engine.submit(command, &[], &mut NullObserver)?;
        self.now = self.engine.settle(&mut NullObserver)?.max(self.now);
        match self.engine.stop() {
            None => Ok(()),
            Some(stop) => Err(Error::new(ErrorClass::Value, stop.reason()).hint(match stop {
                StopReason::Full => "use a device with collection and over-provisioning",
                StopReason::WornOut => "use a new device",
            })),
        }
    }
}
