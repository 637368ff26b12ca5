//! The log of a live run, for the exploration of power cuts.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use emmclab_base::{Error, Nanos, Result, SECTOR_BYTES};
use emmclab_crash::log::{DeviceFacts, LogHeader, LogWriter, Port, Record};
use emmclab_device::contract::Rules;
use emmclab_device::{Command, DeviceConfig, Lie};
use emmclab_layers::LayerConfig;
use emmclab_replay::{Stack, Tap};

/// Sectors of what the device held before that are written at a time.
const BASE_SECTORS: u64 = 1 << 11;

/// What both ports write to; the first error ends the log.
struct Shared {
    writer: LogWriter,
    error: Option<Error>,
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
    /// Whether requests are those of the device, which the tap writes.
    plain: bool,
}

/// The part of it at the device.
struct DevicePort(Arc<Mutex<Shared>>);

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RunLog {
    /// Begins a log with what the device holds, and listens at its port.
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
            unit_sectors: rules.unit_sectors,
            lies: lie(settings.cache.lies),
        };
        let header = LogHeader {
            device: facts,
            layers: layers.to_vec(),
            sectors: stack.capacity(),
            cells: true,
            writer: format!("emmclab {}", env!("CARGO_PKG_VERSION")),
        };
        let mut writer = LogWriter::create(path, &header)?;
        write_base(stack, &mut writer).map_err(|error| error.in_file(path))?;
        let shared = Arc::new(Mutex::new(Shared { writer, error: None }));
        stack.tap(Box::new(DevicePort(shared.clone())));
        Ok(Self { shared, plain: stack.is_plain() })
    }

    /// A request comes, which will have this number.
    pub fn arrives(&self, number: u64, command: &Command, data: &[u8]) {
        if !self.plain {
            lock(&self.shared).add(&Record::of(Port::Host, number, command, 0, data));
        }
    }

    /// A request is complete.
    pub fn completes(&self, number: u64, at: Nanos) {
        if !self.plain {
            lock(&self.shared).add(&Record::Complete { port: Port::Host, number, at });
        }
    }

    /// The workload says what it was told is safe.
    pub fn acknowledge(&self, at: Nanos, text: &str) {
        lock(&self.shared).add(&Record::Acknowledged { at, text });
    }

    /// A place with a name.
    pub fn mark(&self, at: Nanos, text: &str) {
        lock(&self.shared).add(&Record::Mark { at, text });
    }

    /// Ends the log; what the device does later is not in it.
    pub fn finish(self) -> Result<()> {
        let mut shared = lock(&self.shared);
        let ended = shared.writer.finish();
        match shared.error.replace(closed()) {
            Some(error) => Err(error),
            None => ended,
        }
    }
}

/// The name of a lie in settings.
fn lie(lie: Lie) -> String {
    serde_json::to_value(lie).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

/// What keeps later records out of a log that has ended.
fn closed() -> Error {
    Error::new(emmclab_base::Kind::Io, "the log has ended")
}

fn write_base(stack: &Stack, writer: &mut LogWriter) -> Result<()> {
    let Some(media) = stack.media() else { return Ok(()) };
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
            writer.add(&Record::Base { sector, data: &buffer })?;
            sector += sectors;
        }
    }
    Ok(())
}

impl Tap for DevicePort {
    fn command(&mut self, number: u64, command: &Command, packed_after: u16, data: &[u8]) {
        lock(&self.0).add(&Record::of(Port::Device, number, command, packed_after, data));
    }

    fn completed(&mut self, number: u64, at: Nanos) {
        lock(&self.0).add(&Record::Complete { port: Port::Device, number, at });
    }

    fn programmed(&mut self, number: u64, (sector, sectors): (u64, u32), begin: Nanos, end: Nanos) {
        lock(&self.0).add(&Record::Programmed { number, sector, sectors, begin, end });
    }

    fn discarded(&mut self, number: u64, (sector, sectors): (u64, u64), at: Nanos) {
        lock(&self.0).add(&Record::Discarded { number, sector, sectors, at });
    }
}
