//! The command log of a live run, for exploring the states after power cuts. It also contains the lines that the workload prints.
//!
//! A line that was printed before a write must precede this write in the log. Therefore, before the device logs a request, it reads the
//! lines itself, from the other end of the workload's terminal or pipe: everything that a program has printed can be read there, whichever
//! thread is running. (Linux moves data in transit between the ends of a terminal when one end is read.)

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use emmclab_base::{CommandFlags, Error, Nanos, Op, Result, SECTOR_BYTES};
use emmclab_crash::log::{CommandPort, CrashLogHeader, CrashLogRecord, CrashLogWriter, DeviceFacts};
use emmclab_device::contract::ContractRules;
use emmclab_device::{CacheLie, DeviceCommand, DeviceConfig};
use emmclab_layers::LayerConfig;
use emmclab_media::DeviceContents;
use emmclab_replay::{DeviceEventSink, LiveStack};
use rustix::io::{Errno, ioctl_fionbio, read, write};

/// Number of sectors of the initial contents that are written in one step.
const BASE_SECTORS: u64 = 1 << 11;

/// The log writer that the ports of all devices share. After its first error, nothing more is logged.
struct SharedLogWriter {
    writer: CrashLogWriter,
    error: Option<Error>,
    numbers: Option<LoggedCommandNumbers>,
}

/// Numbers the commands to two devices in one sequence, because the log treats the two as one device.
#[derive(Default)]
struct LoggedCommandNumbers {
    next: u64,
    /// For each device, a map from the number of a command on the device to its number in the log.
    log_numbers: [BTreeMap<u64, u64>; 2],
}

/// Maximum number of commands that are kept for a device, because data may be programmed long after its command is complete.
const MOST_KNOWN: usize = 1 << 16;

impl LoggedCommandNumbers {
    fn add(&mut self, device: usize, number: u64) -> u64 {
        let known = &mut self.log_numbers[device];
        known.insert(number, self.next);
        if known.len() > MOST_KNOWN {
            known.pop_first();
        }
        self.next += 1;
        self.next - 1
    }
}

impl SharedLogWriter {
    fn add(&mut self, record: &CrashLogRecord<'_>) {
        if self.error.is_none() {
            self.error = self.writer.add(record).err();
        }
    }
}

/// A log that is being written.
pub(crate) struct RunLog {
    shared: Arc<Mutex<SharedLogWriter>>,
    /// Whether there are no layers above the device. In this case, requests of the host are commands of the device, so only the
    /// `LoggingPort` of the device logs them.
    plain: bool,
}

/// Logs the commands and events of one device.
struct LoggingPort {
    shared: Arc<Mutex<SharedLogWriter>>,
    /// Number of the device: 0 or 1.
    device: usize,
    /// First sector of the device in the address space of the log.
    first: u64,
}

fn lock(shared: &Mutex<SharedLogWriter>) -> MutexGuard<'_, SharedLogWriter> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RunLog {
    /// Starts a log with the current contents, and attaches the ports to the devices.
    pub fn create(path: &Path, config: &DeviceConfig, layers: &[LayerConfig], stack: &mut LiveStack) -> Result<Self> {
        let settings = config.settings();
        if settings.timing.suspend_limit > 0 {
            let problem = "a device with `timing.suspend_limit` cannot be logged: a log has the planned ends of programs";
            return Err(Error::new(emmclab_base::ErrorClass::Config, problem).hint("set timing.suspend_limit = 0"));
        }
        let device = stack.device();
        let rules = ContractRules::of(device);
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
            Some(second) if !ContractRules::of(second).write_through => {
                return Err(not_loggable("the second device has a cache", "name one without, for example --device2 pcm-16mb"));
            }
            Some(_) if rules.fifo => {
                return Err(not_loggable("the device has a cache that keeps the order of writes", "name another device"));
            }
            second => second.map_or(0, |second| second.geometry().sectors()),
        };
        let header = CrashLogHeader {
            second_sectors,
            device: facts,
            layers: layers.to_vec(),
            sectors: stack.capacity(),
            cells: true,
            writer: format!("emmclab {}", env!("CARGO_PKG_VERSION")),
        };
        let mut writer = CrashLogWriter::create(path, &header)?;
        let first = header.device.sectors;
        for (media, first) in [(stack.media(), 0), (stack.second_media(), first)] {
            let Some(media) = media else { continue };
            write_base(media, first, &mut writer).map_err(|error| error.in_file(path))?;
        }
        let numbers = (second_sectors > 0).then(LoggedCommandNumbers::default);
        let shared = Arc::new(Mutex::new(SharedLogWriter { writer, error: None, numbers }));
        let port = |device, first| Box::new(LoggingPort { shared: shared.clone(), device, first });
        stack.tap(port(0, 0));
        stack.tap_second(port(1, first));
        Ok(Self { shared, plain: stack.is_plain() })
    }

    /// Logs the arrival of a request, which will have this number.
    pub fn arrives(&self, number: u64, command: &DeviceCommand, data: &[u8]) {
        if !self.plain {
            lock(&self.shared).add(&CrashLogRecord::of(CommandPort::Host, number, command, 0, data));
        }
    }

    /// Logs the completion of a request.
    pub fn completes(&self, number: u64, at: Nanos) {
        if !self.plain {
            lock(&self.shared).add(&CrashLogRecord::Complete { port: CommandPort::Host, number, at });
        }
    }

    /// Logs a line by which the workload acknowledges data.
    pub fn acknowledge(&self, at: Nanos, text: &str) {
        lock(&self.shared).add(&CrashLogRecord::Acknowledged { at, text });
    }

    /// Logs a mark with this name.
    pub fn mark(&self, at: Nanos, text: &str) {
        lock(&self.shared).add(&CrashLogRecord::Mark { at, text });
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

/// Returns the name of a [`CacheLie`] as it is written in the settings.
fn lie(lie: CacheLie) -> String {
    serde_json::to_value(lie).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

/// The error that is stored at the end of the log, so that later records are not logged.
fn closed() -> Error {
    Error::new(emmclab_base::ErrorClass::Io, "the log has ended")
}

fn not_loggable(problem: &str, hint: &str) -> Error {
    Error::new(emmclab_base::ErrorClass::Config, format!("two devices cannot be logged: {problem}")).hint(hint)
}

/// Logs the contents of a device, with sector numbers shifted by `shift`.
fn write_base(media: &DeviceContents, shift: u64, writer: &mut CrashLogWriter) -> Result<()> {
    let fail = |error| Error::io(&std::env::temp_dir(), error);
    let (mut at, mut runs) = (0, Vec::new());
    media
        .runs(0, media.image().sectors(), |run| {
            if run.data {
                runs.push((at, at + run.sectors));
            }
            at += run.sectors;
            true
        })
        .map_err(fail)?;
    let mut buffer = Vec::new();
    for (first, end) in runs {
        let mut sector = first;
        while sector < end {
            let sectors = (end - sector).min(BASE_SECTORS);
            buffer.resize((sectors * SECTOR_BYTES) as usize, 0);
            media.read(sector, &mut buffer).map_err(fail)?;
            writer.add(&CrashLogRecord::Base { sector: shift + sector, data: &buffer })?;
            sector += sectors;
        }
    }
    Ok(())
}

impl LoggingPort {
    /// Adds a record about a command to the log. The record contains the command's number in the log. Does nothing if this number is no
    /// longer stored.
    fn add<'a>(&self, number: u64, record: impl FnOnce(u64) -> CrashLogRecord<'a>) {
        let mut shared = lock(&self.shared);
        let known =
            shared.numbers.as_ref().map_or(Some(number), |numbers| numbers.log_numbers[self.device].get(&number).copied());
        if let Some(number) = known {
            shared.add(&record(number));
        }
    }
}

impl DeviceEventSink for LoggingPort {
    fn command(&mut self, number: u64, command: &DeviceCommand, packed_after: u16, data: &[u8]) {
        let mut shared = lock(&self.shared);
        let mut command = *command;
        command.sector += self.first;
        if self.device == 1 {
            // The second device has no cache: a write is durable when it is complete, and a flush has no effect.
            if command.op == Op::Flush {
                return;
            }
            if command.op == Op::Write {
                command.modifiers |= CommandFlags::FORCED;
            }
        }
        let device = self.device;
        let number = shared.numbers.as_mut().map_or(number, |numbers| numbers.add(device, number));
        shared.add(&CrashLogRecord::of(CommandPort::Device, number, &command, packed_after, data));
    }

    fn completed(&mut self, number: u64, at: Nanos) {
        self.add(number, |number| CrashLogRecord::Complete { port: CommandPort::Device, number, at });
    }

    fn programmed(&mut self, number: u64, (sector, sectors): (u64, u32), begin: Nanos, end: Nanos) {
        let sector = self.first + sector;
        self.add(number, |number| CrashLogRecord::Programmed { number, sector, sectors, begin, end });
    }

    fn discarded(&mut self, number: u64, (sector, sectors): (u64, u64), at: Nanos) {
        let sector = self.first + sector;
        self.add(number, |number| CrashLogRecord::Discarded { number, sector, sectors, at });
    }

    fn endangered(&mut self, (sector, sectors): (u64, u64), begin: Nanos, end: Nanos) {
        let sector = self.first + sector;
        lock(&self.shared).add(&CrashLogRecord::Endangered { sector, sectors, begin, end });
    }
}

/// Maximum length of a logged line in bytes; the rest of a longer line is not logged.
const MOST_BYTES: usize = 4096;
/// Maximum number of lines that are logged.
const MOST_LINES: u64 = 1_000_000;
/// Maximum number of reads from the terminal or pipe in one call. The limit prevents a workload that prints endlessly from delaying a
/// request.
const MOST_READS: usize = 256;

pub(crate) struct WorkloadLines {
    input: OwnedFd,
    answers: Option<OwnedFd>,
    /// The beginning of a line whose end is not read yet.
    partial_line: Vec<u8>,
    lines: u64,
    /// The lines that [`WorkloadLines::take_new`] has not returned yet.
    new: Vec<String>,
}

impl WorkloadLines {
    /// Returns a reader for the lines of `input`; it writes a byte to `answers` for each line.
    pub fn new(input: OwnedFd, answers: Option<OwnedFd>) -> std::io::Result<Self> {
        ioctl_fionbio(input.as_fd(), true)?;
        Ok(Self { input, answers, partial_line: Vec::new(), lines: 0, new: Vec::new() })
    }

    /// Reads everything that is available; calls `log` with each line.
    pub fn read(&mut self, mut log: impl FnMut(&str)) {
        let mut buffer = [0; 4096];
        for _ in 0..MOST_READS {
            match read(&self.input, &mut buffer) {
                Ok(0) => return,
                Ok(bytes) => self.add(&buffer[..bytes], &mut log),
                Err(Errno::INTR) => {}
                // No data is available, or the writing end is closed.
                Err(_) => return,
            }
        }
    }

    fn add(&mut self, bytes: &[u8], log: &mut impl FnMut(&str)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = piece.strip_suffix(b"\n");
            let part = text.unwrap_or(piece);
            self.partial_line.extend(&part[..part.len().min(MOST_BYTES - self.partial_line.len())]);
            if text.is_none() {
                continue;
            }
            let line = String::from_utf8_lossy(&self.partial_line).trim().to_owned();
            self.partial_line.clear();
            if !line.is_empty() && self.lines < MOST_LINES {
                self.lines += 1;
                log(&line);
                self.new.push(line);
            }
            if let Some(answers) = &self.answers {
                // An error means that the workload has ended.
                let _ = write(answers, b".");
            }
        }
    }

    /// Removes and returns the lines that were read since the last call.
    pub fn take_new(&mut self) -> Vec<String> {
        std::mem::take(&mut self.new)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn lines_are_read_when_they_end_without_blanks_and_cut_off_at_the_longest() {
        let (input, mut output) = std::io::pipe().unwrap();
        let mut lines = WorkloadLines::new(input.into(), None).unwrap();
        let mut read = |text: &[u8]| {
            output.write_all(text).unwrap();
            let mut logged = Vec::new();
            lines.read(|line| logged.push(line.to_owned()));
            assert_eq!(lines.take_new(), logged);
            logged
        };
        assert_eq!(read(b""), [""; 0]);
        assert_eq!(read(b"one\r\n\n  two \nthr"), ["one", "two"]);
        assert_eq!(read(b"ee\n\xff\n"), ["three", "\u{fffd}"]);
        let long = [b'a'; MOST_BYTES + 7];
        assert_eq!(read(&long), [""; 0]);
        let logged = read(b"b\nnext\n");
        assert_eq!((logged[0].len(), &*logged[1]), (MOST_BYTES, "next"));
    }
}
