//! Measures the bandwidth of synchronous direct I/O by transfer size, as in Table II of Kim and Kim's paper on Advil, also with FUA or a
//! flush after each write. Also measures sustained random writes and the times of single commands.
//!
//! The device already contains data; for Table II it is full. A file in the middle of that data is read and written sequentially or at
//! aligned random addresses. Every measurement starts from the same device state and transfers as many bytes as the file has.

use emmclab_device::{CommandFlags, Device, DeviceCommand, DeviceConfig, NullObserver, StopReason};
use emmclab_trace::{Error, ErrorClass, Nanos, Op, Result, interrupt};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use crate::engine::ReplayEngine;

/// Size in bytes of the file that is read and written, as in Table II of the paper and in the measurements of cards at FAST 2012. The
/// device must be at least twice as large.
pub(crate) const FILE_BYTES: u64 = 1 << 30;
/// Number of bytes in a MB, as used in the reported bandwidths.
const MB: f64 = 1_048_576.0;
/// Idle time before each single command: sufficient for background work, but too short for the device to fall asleep.
const PAUSE: Nanos = Nanos(100_000_000);
/// Idle time before each single command of a UFS, which hibernates after a shorter idle time than an eMMC sleeps.
const SHORT_PAUSE: Nanos = Nanos(5_000_000);
/// Time for background work after filling a device.
const REST: Nanos = Nanos::from_secs(3600);
/// Number of single commands that are measured for each kind of command.
const SINGLE: u64 = 100;

/// The bandwidth for a transfer size, in MB/s of 1,048,576 bytes.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct BandwidthRow {
    pub unit_kb: u64,
    pub seq_read_mb_s: f64,
    pub seq_write_mb_s: f64,
    pub random_read_mb_s: f64,
    pub random_write_mb_s: f64,
}

/// A file in the middle of a device's data, divided into transfers.
struct TransferFile {
    /// First sector of the file.
    first: u64,
    /// Length of a transfer in sectors.
    unit: u64,
    /// Number of transfers in the file.
    count: u64,
}

impl TransferFile {
    fn place(&self, transfer: u64) -> u64 {
        self.first + transfer * self.unit
    }

    fn random_place(&self, draw: &mut Pcg64) -> u64 {
        self.place(((draw.next_u64() >> 32) * self.count) >> 32)
    }
}

/// How a program makes its writes durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncMethod {
    /// Writes are not made durable.
    #[default]
    None,
    /// Each write has FUA.
    Fua,
    /// A flush follows each transfer.
    Flush,
}

/// A pattern of transfers over a file.
#[derive(Clone, Copy, Debug)]
pub struct TransferPattern {
    /// Read or write.
    pub op: Op,
    /// Length of each transfer in KB.
    pub unit_kb: u64,
    /// Whether the transfers go to random addresses instead of sequential ones.
    pub random: bool,
    /// How writes are made durable.
    pub sync: SyncMethod,
}

/// Mean times of single 4 KB commands at random addresses of an idle device, in us.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct CommandTimes {
    pub read_us: f64,
    pub write_us: f64,
    /// Time of a flush after a write of 4 KB.
    pub flush_us: f64,
    pub reliable_write_us: f64,
}

/// A device that contains data. Each measurement uses a copy of its state.
pub struct UsedDevice {
    device: Device,
    /// Number of sectors with data, starting at sector 0.
    used: u64,
}

impl UsedDevice {
    /// A device that was written once sequentially.
    /// Errors: if the device is full before its end.
    pub fn full(config: &DeviceConfig) -> Result<Self> {
        Self::of(config, &DirectIo::filled(config)?)
    }

    /// A device whose first half was written once sequentially, and which then had an hour for background work.
    pub fn half_full(config: &DeviceConfig) -> Result<Self> {
        let half = DirectIo::new(config).capacity() / 2;
        let mut io = DirectIo::filled_to(config, half)?;
        // Idle time starts at the end of a command. The flush provides this command before the pause.
        io.flush()?;
        io.pause(REST);
        Ok(Self { used: half, ..Self::of(config, &io)? })
    }

    fn of(config: &DeviceConfig, io: &DirectIo) -> Result<Self> {
        // An image contains neither times nor counters, so each measurement starts at time 0.
        let device = Device::from_image(config, &io.device().to_image())?;
        Ok(Self { device, used: io.capacity() })
    }

    fn start(&self) -> DirectIo {
        DirectIo::on(self.device.clone())
    }

    /// Measures the rate in MB/s of transfers over a file of `file_bytes` bytes, or of half the device's data if that is smaller.
    /// Errors: if a transfer is empty or longer than half the data, and if the device stops.
    pub fn rate(&self, transfers: &TransferPattern, file_bytes: u64) -> Result<f64> {
        let mut io = self.start();
        let TransferPattern { op, unit_kb, random, sync } = *transfers;
        let file = self.file(unit_kb, file_bytes)?;
        let mut draw = Pcg64::new(u128::from(unit_kb), 2);
        let modifiers = if sync == SyncMethod::Fua { CommandFlags::RELIABLE.of(op) } else { CommandFlags::empty() };
        let mut took = Nanos::ZERO;
        for i in 0..file.count {
            interrupt::check()?;
            let sector = if random { file.random_place(&mut draw) } else { file.place(i) };
            took += io.transfer_with(modifiers, op, sector, file.unit)?;
            if sync == SyncMethod::Flush {
                took += io.flush()?;
            }
        }
        Ok((file.count * file.unit * 512) as f64 / MB / took.max(Nanos(1)).as_secs_f64())
    }

    /// Sustained random 4 KB writes per second over a file of `file_bytes` bytes, counted in the second half of the simulated time `time`.
    pub fn lasting_random_writes_per_s(&self, file_bytes: u64, time: Nanos) -> Result<f64> {
        let mut io = self.start();
        let file = self.file(4, file_bytes)?;
        let mut draw = Pcg64::new(4, 2);
        let mut writes_until = |end: Nanos| -> Result<(u64, Nanos)> {
            let (mut writes, mut took) = (0, Nanos::ZERO);
            while took < end {
                interrupt::check()?;
                took += io.transfer(Op::Write, file.random_place(&mut draw), file.unit)?.max(Nanos(1));
                writes += 1;
            }
            Ok((writes, took))
        };
        let half = Nanos(time.0 / 2).max(Nanos(1));
        writes_until(half)?;
        let (writes, took) = writes_until(half)?;
        Ok(writes as f64 / took.as_secs_f64())
    }

    /// Measures the rate in MB/s at which a file of `file_bytes` bytes is read or written, with one request for each transfer. All requests
    /// are submitted at once, so the device's queue is always full.
    pub fn queued_rate(&self, op: Op, unit_kb: u64, random: bool, file_bytes: u64) -> Result<f64> {
        let mut io = self.start();
        let file = self.file(unit_kb, file_bytes)?;
        let mut draw = Pcg64::new(u128::from(unit_kb), 2);
        let place = |i| if random { file.random_place(&mut draw) } else { file.place(i) };
        let took = io.at_once(op, (0..file.count).map(place).map(|sector| (sector, file.unit as u32)))?;
        Ok((file.count * file.unit * 512) as f64 / MB / took.max(Nanos(1)).as_secs_f64())
    }

    /// Measures the mean time in us of a write of `unit_kb` with FUA, and of a plain write followed by a flush. The addresses are random.
    /// The device is idle but awake before each write.
    pub fn durable_times(&self, unit_kb: u64) -> Result<[f64; 2]> {
        let file = self.file(unit_kb, FILE_BYTES)?;
        let mean = |modifiers: CommandFlags| -> Result<f64> {
            let (mut io, mut draw, mut took) = (self.start(), Pcg64::new(1, 2), Nanos::ZERO);
            for _ in 0..SINGLE {
                interrupt::check()?;
                io.pause(SHORT_PAUSE);
                took += io.transfer_with(modifiers, Op::Write, file.random_place(&mut draw), file.unit)?;
                if modifiers.is_empty() {
                    took += io.flush()?;
                }
            }
            Ok(took.0 as f64 / 1e3 / SINGLE as f64)
        };
        Ok([mean(CommandFlags::RELIABLE)?, mean(CommandFlags::empty())?])
    }

    /// Returns a file of `file_bytes` bytes, or of half the device's data if that is smaller.
    fn file(&self, unit_kb: u64, file_bytes: u64) -> Result<TransferFile> {
        let unit = unit_kb.saturating_mul(2);
        let count = (file_bytes / 512).min(self.used / 2).checked_div(unit).unwrap_or(0);
        if count == 0 {
            return Err(Error::new(ErrorClass::Value, "the transfer size must be 1 KB to half of the data on the device")
                .of_field("unit_kb", 0, unit_kb.to_string().as_bytes())
                .hint("use a transfer size in the allowed range"));
        }
        Ok(TransferFile { first: self.used / 4 / unit * unit, unit, count })
    }

    /// Mean times of single commands, see [`CommandTimes`].
    pub fn command_times(&self) -> Result<CommandTimes> {
        let mean = |work: &dyn Fn(&mut DirectIo, u64) -> Result<Nanos>| -> Result<f64> {
            let mut io = self.start();
            let mut draw = Pcg64::new(1, 2);
            let mut took = Nanos::ZERO;
            for _ in 0..SINGLE {
                interrupt::check()?;
                io.pause(PAUSE);
                let sector = draw.next_u64() % (self.used / 8).max(1) * 8;
                took += work(&mut io, sector)?;
            }
            Ok(took.0 as f64 / 1e3 / SINGLE as f64)
        };
        Ok(CommandTimes {
            read_us: mean(&|io, sector| io.transfer(Op::Read, sector, 8))?,
            write_us: mean(&|io, sector| io.transfer(Op::Write, sector, 8))?,
            flush_us: mean(&|io, sector| io.transfer(Op::Write, sector, 8).and_then(|_| io.flush()))?,
            reliable_write_us: mean(&|io, sector| io.transfer_with(CommandFlags::RELIABLE, Op::Write, sector, 8))?,
        })
    }
}

/// Measures the bandwidths of a full device for transfers of these sizes, without FUA or flushes.
pub fn bandwidth(config: &DeviceConfig, units_kb: &[u64]) -> Result<Vec<BandwidthRow>> {
    let device = UsedDevice::full(config)?;
    let run =
        |op, unit_kb: u64, random| device.rate(&TransferPattern { op, unit_kb, random, sync: SyncMethod::None }, FILE_BYTES);
    units_kb
        .iter()
        .map(|&unit_kb| {
            Ok(BandwidthRow {
                unit_kb,
                seq_read_mb_s: run(Op::Read, unit_kb, false)?,
                seq_write_mb_s: run(Op::Write, unit_kb, false)?,
                random_read_mb_s: run(Op::Read, unit_kb, true)?,
                random_write_mb_s: run(Op::Write, unit_kb, true)?,
            })
        })
        .collect()
}

/// Maximum size of a request in the kernels of the measured devices, in sectors. A longer transfer is split into queued requests.
const MOST_SECTORS: u64 = 1024;
/// Number of sectors of each request of [`DirectIo::filled`].
const FILL_SECTORS: u64 = 1024;

/// A device and the clock of a program that uses `O_DIRECT` and `O_SYNC`. Each transfer begins when the previous one is complete, so the
/// queue of the host is always empty and transfers go directly to the device.
pub struct DirectIo {
    engine: ReplayEngine,
    now: Nanos,
}

impl DirectIo {
    /// Creates direct I/O on a new device.
    pub fn new(config: &DeviceConfig) -> Self {
        Self::on(Device::new(config))
    }

    /// Starts with a used device, and resets its time and counters to 0.
    pub fn on(mut device: Device) -> Self {
        device.rewind();
        Self { engine: ReplayEngine::bare(device), now: Nanos::ZERO }
    }

    /// A device that was written once sequentially.
    /// Errors: if the device is full before its end.
    pub fn filled(config: &DeviceConfig) -> Result<Self> {
        Self::filled_to(config, u64::MAX)
    }

    /// A device that was written once sequentially up to sector `end`.
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

    /// Executes a transfer of any length. Returns the time that it took.
    /// Errors: for a transfer beyond the device, and if the device has stopped.
    pub fn transfer(&mut self, op: Op, sector: u64, sectors: u64) -> Result<Nanos> {
        self.transfer_with(CommandFlags::empty(), op, sector, sectors)
    }

    /// Executes a transfer like [`DirectIo::transfer`], with flags on every request.
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

    /// Executes transfers of one request each in parallel, like a program with one thread for each tag of the device's command queue.
    /// Returns the time until all are complete.
    pub fn at_once(&mut self, op: Op, transfers: impl Iterator<Item = (u64, u32)>) -> Result<Nanos> {
        let begin = self.now;
        for (sector, sectors) in transfers {
            interrupt::check()?;
            self.command(&DeviceCommand::new(begin, op, sector, sectors))?;
        }
        Ok(self.now - begin)
    }

    /// Executes a flush. Returns the time that it took.
    pub fn flush(&mut self) -> Result<Nanos> {
        let begin = self.now;
        self.command(&DeviceCommand::new(begin, Op::Flush, 0, 0))?;
        Ok(self.now - begin)
    }

    /// Lets the device idle for this time, in which it does background work.
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
