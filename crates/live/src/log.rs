//! The log of a live run, for the exploration of power cuts.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use emmclab_base::{Error, Modifiers, Nanos, Op, Result, SECTOR_BYTES};
use emmclab_crash::log::{DeviceFacts, LogHeader, LogWriter, Port, Record};
use emmclab_device::contract::Rules;
use emmclab_device::{Command, DeviceConfig, Lie};
use emmclab_layers::LayerConfig;
use emmclab_media::Media;
use emmclab_replay::{Stack, Tap};

/// Number of sectors of the initial contents that are written at once.
const BASE_SECTORS: u64 = 1 << 11;

/// The writer that all ports share; after the first error nothing more is logged.
struct Shared {
    writer: LogWriter,
    error: Option<Error>,
    numbers: Option<Numbers>,
}

/// Numbers of the commands to two devices; the log treats the two as one.
#[derive(Default)]
struct Numbers {
    next: u64,
    /// For each device, the log's number of each known command, by the device's own number.
    known: [BTreeMap<u64, u64>; 2],
}

/// Maximum number of known commands of a device. They are kept because data may be programmed long after its command is complete.
const MOST_KNOWN: usize = 1 << 16;

impl Numbers {
    fn add(&mut self, device: usize, number: u64) -> u64 {
        let known = &mut self.known[device];
        known.insert(number, self.next);
        if known.len() > MOST_KNOWN {
            known.pop_first();
        }
        self.next += 1;
        self.next - 1
    }
}

impl Shared {
    fn add(&mut self, record: &Record<'_>) {
        if self.error.is_none() {
            self.error = self.writer.add(record).err();
        }
    }
}

/// A log being written.
pub(crate) struct RunLog {
    shared: Arc<Mutex<Shared>>,
    /// Whether there are no layers, so that host requests are the device's commands, which are logged by its port.
    plain: bool,
}

/// The port that logs the commands of one device.
struct DevicePort {
    shared: Arc<Mutex<Shared>>,
    /// Number of the device: 0 or 1.
    device: usize,
    /// First sector of the device in the log.
    first: u64,
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RunLog {
    /// Begins a log with the present contents, and attaches the ports to the devices.
    pub fn create(
        path: &Path,
        config: &DeviceConfig,
        layers: &[LayerConfig],
        stack: &mut Stack,
    ) -> Result<Self> {
        let settings = config.settings();
        let device = stack.device();
        let rules = Rules::of(device);
        let facts = DeviceFacts {
            name: config.name().to_owned(),
            sectors: device.geometry().sectors(),
            write_through: rules.write_through,
            fifo: rules.fifo,
            interface: rules.interface,
            unit_sectors: rules.unit_sectors,
            erase_sectors: device.geometry().erase_sectors(),
            zones: stack.zones(),
            lies: lie(settings.cache.lies),
        };
        let second_sectors = match stack.second() {
            Some(second) if !Rules::of(second).write_through => {
                return Err(refused(
                    "the second device has a cache",
                    "name one without, for example --device2 pcm-16mb",
                ));
            }
            Some(_) if rules.fifo => {
                return Err(refused(
                    "the device has a cache that keeps the order of writes",
                    "name another device",
                ));
            }
            second => second.map_or(0, |second| second.geometry().sectors()),
        };
        let header = LogHeader {
            second_sectors,
            device: facts,
            layers: layers.to_vec(),
            sectors: stack.capacity(),
            cells: true,
            writer: format!("emmclab {}", env!("CARGO_PKG_VERSION")),
        };
        let mut writer = LogWriter::create(path, &header)?;
        let first = header.device.sectors;
        for (media, first) in [(stack.media(), 0), (stack.second_media(), first)] {
            let Some(media) = media else { continue };
            write_base(media, first, &mut writer).map_err(|error| error.in_file(path))?;
        }
        let numbers = (second_sectors > 0).then(Numbers::default);
        let shared = Arc::new(Mutex::new(Shared { writer, error: None, numbers }));
        let port = |device, first| Box::new(DevicePort { shared: shared.clone(), device, first });
        stack.tap(port(0, 0));
        stack.tap_second(port(1, first));
        Ok(Self { shared, plain: stack.is_plain() })
    }

    /// Logs the arrival of a request that will have this number.
    pub fn arrives(&self, number: u64, command: &Command, data: &[u8]) {
        if !self.plain {
            lock(&self.shared).add(&Record::of(Port::Host, number, command, 0, data));
        }
    }

    /// Logs the completion of a request.
    pub fn completes(&self, number: u64, at: Nanos) {
        if !self.plain {
            lock(&self.shared).add(&Record::Complete { port: Port::Host, number, at });
        }
    }

    /// Logs a line about data that the workload was told is safe.
    pub fn acknowledge(&self, at: Nanos, text: &str) {
        lock(&self.shared).add(&Record::Acknowledged { at, text });
    }

    /// Logs a named mark.
    pub fn mark(&self, at: Nanos, text: &str) {
        lock(&self.shared).add(&Record::Mark { at, text });
    }

    /// Ends the log; later operations of the device are not logged.
    pub fn finish(self) -> Result<()> {
        let mut shared = lock(&self.shared);
        let ended = shared.writer.finish();
        match shared.error.replace(closed()) {
            Some(error) => Err(error),
            None => ended,
        }
    }
}

/// The name of a lie, as in the settings.
fn lie(lie: Lie) -> String {
    serde_json::to_value(lie).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

/// The error that is stored after the end, so that later records are not logged.
fn closed() -> Error {
    Error::new(emmclab_base::Kind::Io, "the log has ended")
}

fn refused(problem: &str, hint: &str) -> Error {
    Error::new(emmclab_base::Kind::Config, format!("two devices cannot be logged: {problem}")).hint(hint)
}

/// Logs the contents of a device, with sector numbers shifted by `shift`.
fn write_base(media: &Media, shift: u64, writer: &mut LogWriter) -> Result<()> {
    let fail = |error| Error::io(&std::env::temp_dir(), error);
    let (mut at, mut found) = (0, Vec::new());
    media
        .runs(0, media.image().sectors(), |run| {
            if run.data {
                found.push((at, at + run.sectors));
            }
            at += run.sectors;
            true
        })
        .map_err(fail)?;
    let mut buffer = Vec::new();
    for (first, end) in found {
        let mut sector = first;
        while sector < end {
            let sectors = (end - sector).min(BASE_SECTORS);
            buffer.resize((sectors * SECTOR_BYTES) as usize, 0);
            media.read(sector, &mut buffer).map_err(fail)?;
            writer.add(&Record::Base { sector: shift + sector, data: &buffer })?;
            sector += sectors;
        }
    }
    Ok(())
}

impl DevicePort {
    /// Logs a record of a command with its number in the log; does nothing if the number is no longer known.
    fn add<'a>(&self, number: u64, record: impl FnOnce(u64) -> Record<'a>) {
        let mut shared = lock(&self.shared);
        let known = shared
            .numbers
            .as_ref()
            .map_or(Some(number), |numbers| numbers.known[self.device].get(&number).copied());
        if let Some(number) = known {
            shared.add(&record(number));
        }
    }
}

impl Tap for DevicePort {
    fn command(&mut self, number: u64, command: &Command, packed_after: u16, data: &[u8]) {
        let mut shared = lock(&self.shared);
        let mut command = *command;
        command.sector += self.first;
        if self.device == 1 {
            // The second device has no cache: a write is durable when it is complete, and there is nothing to flush.
            if command.op == Op::Flush {
                return;
            }
            if command.op == Op::Write {
                command.modifiers |= Modifiers::FORCED;
            }
        }
        let device = self.device;
        let number = shared.numbers.as_mut().map_or(number, |numbers| numbers.add(device, number));
        shared.add(&Record::of(Port::Device, number, &command, packed_after, data));
    }

    fn completed(&mut self, number: u64, at: Nanos) {
        self.add(number, |number| Record::Complete { port: Port::Device, number, at });
    }

    fn programmed(&mut self, number: u64, (sector, sectors): (u64, u32), begin: Nanos, end: Nanos) {
        let sector = self.first + sector;
        self.add(number, |number| Record::Programmed { number, sector, sectors, begin, end });
    }

    fn discarded(&mut self, number: u64, (sector, sectors): (u64, u64), at: Nanos) {
        let sector = self.first + sector;
        self.add(number, |number| Record::Discarded { number, sector, sectors, at });
    }
}
