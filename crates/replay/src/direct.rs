//! A device under synchronous direct I/O, as a program with `O_DIRECT` and `O_SYNC` drives it: the next transfer begins when
//! the last is complete. Nothing waits in the host's queue then, so transfers go to the bare device.

use emmclab_device::{Command, Device, DeviceConfig, Quiet, Stop};
use emmclab_trace::{Error, Kind, Nanos, Op, Result, interrupt};

use crate::engine::Engine;

/// Largest request of the kernels of these devices, in sectors: a longer transfer is cut up, and the parts queue.
const MOST_SECTORS: u64 = 1024;
/// Sectors of each request of [`DirectIo::filled`].
const FILL_SECTORS: u64 = 1024;

/// A device and the program's clock.
pub struct DirectIo {
    engine: Engine,
    now: Nanos,
}

impl DirectIo {
    /// A new device.
    pub fn new(config: &DeviceConfig) -> Self {
        Self::on(Device::new(config))
    }

    /// A device as it is; its time and counters start again.
    pub fn on(mut device: Device) -> Self {
        device.rewind();
        Self { engine: Engine::bare(device), now: Nanos::ZERO }
    }

    /// A device that was written once from the first sector to the last.
    ///
    /// # Errors
    /// Where the device is full before its end.
    pub fn filled(config: &DeviceConfig) -> Result<Self> {
        let mut out = Self::new(config);
        let mut at = 0;
        while at < out.capacity() {
            interrupt::check()?;
            let count = FILL_SECTORS.min(out.capacity() - at);
            out.transfer(Op::Write, at, count)?;
            at += count;
        }
        Ok(Self::on(out.engine.into_device()))
    }

    /// Sectors that it has.
    pub fn capacity(&self) -> u64 {
        self.engine.capacity()
    }

    /// The device.
    pub fn device(&self) -> &Device {
        self.engine.device()
    }

    /// One transfer of any length; its time.
    ///
    /// # Errors
    /// For a transfer beyond the device, and where the device has stopped.
    pub fn transfer(&mut self, op: Op, sector: u64, sectors: u64) -> Result<Nanos> {
        let begin = self.now;
        if sector.saturating_add(sectors) > self.capacity() {
            return Err(Error::new(Kind::Value, "the transfer ends behind the last sector of the device")
                .of_field("sector", 0, sector.to_string().as_bytes()));
        }
        let mut at = sector;
        while at < sector + sectors {
            let count = MOST_SECTORS.min(sector + sectors - at);
            let command = Command::new(begin, op, at, count as u32);
            self.engine.submit(&command, &[], &mut Quiet)?;
            self.now = self.engine.settle(&mut Quiet)?.max(self.now);
            if let Some(stop) = self.engine.stop() {
                return Err(Error::new(Kind::Value, stop.reason()).hint(match stop {
                    Stop::Full => "take a device with collection and over-provisioning",
                    Stop::WornOut => "take a new one",
                }));
            }
            at += count;
        }
        Ok(self.now - begin)
    }
}
