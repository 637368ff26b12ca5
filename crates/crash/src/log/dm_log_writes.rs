//! Reads and writes logs of the kernel's device-mapper target `log-writes`, so that tools for either format can be used.
//!
//! Source: Linux `drivers/md/dm-log-writes.c` and `Documentation/admin-guide/device-mapper/log-writes.rst`. All numbers are little-endian.
//! Sector 0 contains magic, version, number of entries (`u64` each) and the sector size (`u32`). Each entry begins with a sector that
//! contains sector, number of sectors, flags and length of inline data (`u64` each), followed by the inline data. The data of the entry's
//! sectors comes next, except for a discard. The target logs completed writes; those that wait for a flush are logged before the flush.

use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::path::Path;

use emmclab_base::{Error, ErrorClass, InputFile, Nanos, Op, Result, SECTOR_BYTES};
use emmclab_device::CommandFlags;

use super::{CommandPort, CrashLogHeader, CrashLogRecord, DeviceFacts};
use crate::log_index::{CrashLogIndex, CrashLogIndexBuilder, RunEvent};

const MAGIC: u64 = 0x6a_7366_7773_6872;
const VERSION: u64 = 1;
const FLUSH: u64 = 1;
const FUA: u64 = 1 << 1;
const DISCARD: u64 = 1 << 2;
const MARK: u64 = 1 << 3;
const METADATA: u64 = 1 << 4;
/// Maximum number of sectors in an entry; the kernel's largest requests are far smaller.
const MOST_SECTORS: u64 = 1 << 20;

/// Whether the bytes are the beginning of a log of dm-log-writes.
pub(crate) fn recognizes(first: &[u8]) -> bool {
    first.starts_with(&MAGIC.to_le_bytes())
}

struct DmLogInput<'a> {
    file: BufReader<InputFile>,
    path: &'a Path,
    offset: u64,
}

impl DmLogInput<'_> {
    /// Fills the buffer from the file. Returns false if the file ends before the buffer is full.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<bool> {
        match self.file.read_exact(buffer) {
            Ok(()) => {
                self.offset += buffer.len() as u64;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(Error::io(self.path, error)),
        }
    }

    fn wrong(&self, problem: &str, field: &str, value: u64) -> Error {
        Error::new(ErrorClass::Value, problem)
            .in_file(self.path)
            .at_offset(self.offset)
            .of_field(field, 0, value.to_string().as_bytes())
            .hint("check that the file is a log of dm-log-writes, of version 1 and not damaged")
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Reads the log of a device with `sectors` sectors. Marks in the log also count as acknowledgements of the workload.
/// Errors: if the file cannot be read or is not a log of dm-log-writes.
pub(crate) fn read(path: &Path, sectors: u64, base: Option<&Path>) -> Result<CrashLogIndex> {
    let file = InputFile::open(path).map_err(|error| Error::io(path, error))?;
    let mut input = DmLogInput { file: BufReader::with_capacity(1 << 20, file), path, offset: 0 };
    let mut head = [0; SECTOR_BYTES as usize];
    let short = || {
        Error::new(ErrorClass::Truncated, "the log of dm-log-writes is cut short in its first sector")
            .in_file(path)
            .hint("copy or record the log again")
    };
    if !input.fill(&mut head)? {
        return Err(short());
    }
    let (version, entries) = (word(&head, 8), word(&head, 16));
    let sector_bytes = word(&head, 24) & 0xffff_ffff;
    if word(&head, 0) != MAGIC || version != VERSION {
        return Err(input.wrong("this version of a log of dm-log-writes is not supported", "version", version));
    }
    if !sector_bytes.is_power_of_two() || !(SECTOR_BYTES..=1 << 16).contains(&sector_bytes) {
        return Err(input.wrong("the sector size must be a power of two from 512 to 65,536 bytes", "sector size", sector_bytes));
    }
    if !input.fill(&mut vec![0; (sector_bytes - SECTOR_BYTES) as usize])? {
        return Err(short());
    }
    let device = DeviceFacts {
        name: "dm-log-writes".to_owned(),
        sectors,
        unit_sectors: 1,
        lies: "none".to_owned(),
        ..DeviceFacts::default()
    };
    let header = CrashLogHeader { device, sectors, writer: "dm-log-writes".to_owned(), ..CrashLogHeader::default() };
    let mut builder = CrashLogIndexBuilder::new(&header);
    if let Some(base) = base {
        read_base(base, sectors, &mut builder)?;
    }
    let scale = sector_bytes / SECTOR_BYTES;
    let (mut entry, mut data) = (vec![0; sector_bytes as usize], Vec::new());
    // The hash includes the data, because two runs of a program may send the same commands with different data.
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    hash.update(&sectors.to_le_bytes());
    let mut truncated = false;
    for number in 0..entries {
        if !input.fill(&mut entry)? {
            truncated = true;
            break;
        }
        hash.update(&entry);
        let (sector, length) = (word(&entry, 0).saturating_mul(scale), word(&entry, 8).saturating_mul(scale));
        let (flags, inline) = (word(&entry, 16), word(&entry, 24));
        if length > MOST_SECTORS && flags & DISCARD == 0 || length > u64::from(u32::MAX) {
            return Err(input.wrong("the length of a log entry is greater than the maximum", "sectors", length));
        }
        let at = Nanos::from_micros(2 * number as i64);
        let done = at + Nanos::from_micros(1);
        if flags & MARK != 0 {
            let most = entry.len() - 32;
            let text = &entry[32..32 + usize::try_from(inline).unwrap_or(most).min(most)];
            let text = String::from_utf8_lossy(text);
            let text = text.trim_end_matches('\0');
            builder.add(&CrashLogRecord::Mark { at, text })?;
            builder.add(&CrashLogRecord::Acknowledged { at, text })?;
        }
        let has_data = length > 0 && flags & DISCARD == 0;
        data.resize(if has_data { (length * SECTOR_BYTES) as usize } else { 0 }, 0);
        if has_data && !input.fill(&mut data)? {
            truncated = true;
            break;
        }
        hash.update(&data);
        let op = match (flags & DISCARD != 0, has_data, flags & FLUSH != 0) {
            (true, ..) => Op::Discard,
            (_, true, _) => Op::Write,
            (_, _, true) => Op::Flush,
            _ => continue,
        };
        let mut modifiers = CommandFlags::empty();
        modifiers.set(CommandFlags::PREFLUSH, has_data && flags & FLUSH != 0);
        modifiers.set(CommandFlags::RELIABLE, flags & FUA != 0 && has_data);
        modifiers.set(CommandFlags::META, flags & METADATA != 0 && has_data);
        let (port, flags) = (CommandPort::Device, modifiers.bits());
        let length = length as u32;
        builder
            .add(&CrashLogRecord::Command { port, number, at, op, sector, sectors: length, flags, packed_after: 0, data: &data })
            .map_err(|error| error.in_file(path).at_offset(input.offset))?;
        builder.add(&CrashLogRecord::Complete { port, number, at: done })?;
    }
    builder.finish(header, path, hash.digest(), truncated)
}

/// Reads the contents of the device at the start of the log.
fn read_base(path: &Path, sectors: u64, builder: &mut CrashLogIndexBuilder) -> Result<()> {
    const AT_ONCE: usize = 1 << 20;
    let fail = |error| Error::io(path, error);
    let mut file = InputFile::open(path).map_err(fail)?;
    let mut buffer = vec![0; AT_ONCE];
    let mut sector = 0;
    while sector < sectors {
        let mut have = 0;
        while have < AT_ONCE {
            match file.read(&mut buffer[have..]).map_err(fail)? {
                0 => break,
                read => have += read,
            }
        }
        let whole = have as u64 / SECTOR_BYTES;
        if whole == 0 {
            break;
        }
        let data = &buffer[..(whole.min(sectors - sector) * SECTOR_BYTES) as usize];
        if data.iter().any(|byte| *byte != 0) {
            builder.add(&CrashLogRecord::Base { sector, data })?;
        }
        sector += whole;
    }
    Ok(())
}

/// Whether a run event becomes an entry in a log of dm-log-writes.
fn is_entry(run: &CrashLogIndex, what: &RunEvent) -> bool {
    match *what {
        RunEvent::Completes(CommandPort::Device, command) => {
            run.commands(CommandPort::Device)[command as usize].command.op != Op::Read
        }
        RunEvent::Acknowledged(_) | RunEvent::Mark(_) => true,
        _ => false,
    }
}

/// Writes the commands of a run at its device in the format of dm-log-writes, in order of completion.
/// Errors: if the output cannot be written.
pub fn write(run: &CrashLogIndex, out: &mut impl Write) -> io::Result<()> {
    let entries = run.moments().iter().filter(|moment| is_entry(run, &moment.event)).count() as u64;
    let mut head = [MAGIC, VERSION, entries, SECTOR_BYTES].map(u64::to_le_bytes).concat();
    head.resize(SECTOR_BYTES as usize, 0);
    out.write_all(&head)?;
    let mut data = Vec::new();
    let mut put = |fields: [u64; 4], inline: &[u8], data: &[u8]| {
        let mut entry = [0; SECTOR_BYTES as usize];
        for (place, field) in entry.chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        entry[32..32 + inline.len()].copy_from_slice(inline);
        out.write_all(&entry).and_then(|()| out.write_all(data))
    };
    for moment in run.moments() {
        match moment.event {
            RunEvent::Completes(CommandPort::Device, command) => {
                let logged = &run.commands(CommandPort::Device)[command as usize];
                let asks = |modifier| logged.command.modifiers.contains(modifier);
                let flags = match logged.command.op {
                    Op::Write => {
                        let flag = |set: bool, flag: u64| if set { flag } else { 0 };
                        flag(asks(CommandFlags::PREFLUSH), FLUSH)
                            | flag(logged.command.modifiers.durable(), FUA)
                            | flag(asks(CommandFlags::META), METADATA)
                    }
                    Op::Discard | Op::SecureErase => DISCARD,
                    Op::Flush => FLUSH,
                    Op::Read => continue,
                };
                let sectors = u64::from(logged.command.sectors);
                data.clear();
                if logged.command.op == Op::Write {
                    data.resize((sectors * SECTOR_BYTES) as usize, 0);
                    let sources: Vec<_> = (0..sectors).map(|i| logged.source.plus(i)).collect();
                    run.spool().read(&sources, &mut data)?;
                }
                put([logged.command.sector, sectors, flags, 0], &[], &data)?;
            }
            RunEvent::Acknowledged(_) | RunEvent::Mark(_) => {
                let text = match moment.event {
                    RunEvent::Acknowledged(line) => run.acknowledgements()[line as usize].as_bytes(),
                    RunEvent::Mark(mark) => run.marks()[mark as usize].as_bytes(),
                    _ => continue,
                };
                let text = &text[..text.len().min(SECTOR_BYTES as usize - 32)];
                put([0, 0, MARK, text.len() as u64], text, &[])?;
            }
            _ => {}
        }
    }
    Ok(())
}
