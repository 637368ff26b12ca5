//! The records of a file, of version 7 or 8, in either byte order.

use std::io::{BufReader, Read};
use std::path::PathBuf;

use crate::formats::input::damaged;
use crate::{DecompressedInput, Error, ErrorClass, Result};

const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
const RECORD_BYTES: usize = 48;
/// `struct blk_io_trace2` of Linux 6.19.
const WIDE_VERSION: u32 = 8;
const WIDE_RECORD_BYTES: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BlktraceByteOrder {
    Little,
    Big,
}

pub(super) fn byte_order(head: &[u8]) -> Option<BlktraceByteOrder> {
    let word: [u8; 4] = head.get(..4)?.try_into().ok()?;
    if u32::from_le_bytes(word) & !0xff == MAGIC {
        Some(BlktraceByteOrder::Little)
    } else if u32::from_be_bytes(word) & !0xff == MAGIC {
        Some(BlktraceByteOrder::Big)
    } else {
        None
    }
}

/// One record.
pub(super) struct BlktraceRecord {
    pub offset: u64,
    pub sequence: u32,
    pub time: u64,
    pub sector: u64,
    pub bytes: u32,
    /// The action in the lower 16 bits, categories above them.
    pub action: u64,
    pub pid: u32,
    pub device: u32,
    pub cpu: u32,
    /// For a completion, the lower 16 bits of the negative error code; 0 if it succeeded.
    pub error: u16,
    pub payload: Vec<u8>,
}

/// Reads the records of one file, one record ahead.
pub(super) struct BlktraceFileReader {
    path: PathBuf,
    reader: BufReader<Box<dyn Read + Send>>,
    pub order: BlktraceByteOrder,
    offset: u64,
    record_bytes: usize,
    pub next: Option<BlktraceRecord>,
}

impl BlktraceFileReader {
    pub fn open(input: DecompressedInput) -> Result<Self> {
        let path = input.path().to_owned();
        let order = byte_order(input.head()).ok_or_else(|| {
            Error::new(ErrorClass::Syntax, "does not begin with a blktrace record").in_file(&path).at_offset(0)
        })?;
        let reader: Box<dyn Read + Send> = Box::new(input.into_reader());
        let mut records = Self {
            path,
            reader: BufReader::with_capacity(1 << 18, reader),
            order,
            offset: 0,
            record_bytes: RECORD_BYTES,
            next: None,
        };
        records.advance()?;
        Ok(records)
    }

    /// Returns the next record, and reads the one after it.
    pub fn advance(&mut self) -> Result<Option<BlktraceRecord>> {
        let next = self.read().map_err(|error| error.in_file(&self.path).at_offset(self.offset))?;
        if let Some(record) = &next {
            self.offset += (self.record_bytes + record.payload.len()) as u64;
        }
        Ok(std::mem::replace(&mut self.next, next))
    }

    fn read(&mut self) -> Result<Option<BlktraceRecord>> {
        let mut raw = [0; WIDE_RECORD_BYTES];
        let got = self.read_some(&mut raw[..RECORD_BYTES])?;
        if got == 0 {
            return Ok(None);
        }
        if got < RECORD_BYTES {
            return Err(cut("the file ends in the middle of a record"));
        }
        let version = self.version(&raw)?;
        self.record_bytes = RECORD_BYTES;
        if version == WIDE_VERSION {
            self.record_bytes = WIDE_RECORD_BYTES;
            if self.read_some(&mut raw[RECORD_BYTES..])? < WIDE_RECORD_BYTES - RECORD_BYTES {
                return Err(cut("the file ends in the middle of a record"));
            }
        }
        let order = self.order;
        let short = |at: usize| {
            let word = [raw[at], raw[at + 1]];
            if order == BlktraceByteOrder::Little { u16::from_le_bytes(word) } else { u16::from_be_bytes(word) }
        };
        let word = |at: usize| match order {
            BlktraceByteOrder::Little => u32::from(short(at)) | u32::from(short(at + 2)) << 16,
            BlktraceByteOrder::Big => u32::from(short(at)) << 16 | u32::from(short(at + 2)),
        };
        let long = |at: usize| match order {
            BlktraceByteOrder::Little => u64::from(word(at)) | u64::from(word(at + 4)) << 32,
            BlktraceByteOrder::Big => u64::from(word(at)) << 32 | u64::from(word(at + 4)),
        };
        // In version 8 the action has 64 bits, and the process id is before it.
        let wide = version == WIDE_VERSION;
        let [pid, device, cpu, error, length] = if wide { [28, 40, 44, 48, 50] } else { [32, 36, 40, 44, 46] };
        let action = if wide { long(32) } else { u64::from(word(28)) };
        let mut payload = vec![0; usize::from(short(length))];
        if self.read_some(&mut payload)? < payload.len() {
            return Err(cut("the file ends in the middle of a payload"));
        }
        Ok(Some(BlktraceRecord {
            offset: self.offset,
            sequence: word(4),
            time: long(8),
            sector: long(16),
            bytes: word(24),
            action,
            pid: word(pid),
            device: word(device),
            cpu: word(cpu),
            error: short(error),
            payload,
        }))
    }

    /// The version of a record.
    fn version(&self, raw: &[u8; WIDE_RECORD_BYTES]) -> Result<u32> {
        let word = [raw[0], raw[1], raw[2], raw[3]];
        let magic =
            if self.order == BlktraceByteOrder::Little { u32::from_le_bytes(word) } else { u32::from_be_bytes(word) };
        if magic & !0xff != MAGIC {
            return Err(Error::new(ErrorClass::Syntax, "a record does not begin with its magic number")
                .of_field("magic", 0, format!("{magic:#010x}").as_bytes())
                .hint("copy it again, as binary: the file is damaged, or was copied as text"));
        }
        let version = magic & 0xff;
        if ![VERSION, WIDE_VERSION].contains(&version) {
            return Err(Error::new(
                ErrorClass::Unsupported,
                format!("is neither version {VERSION} nor {WIDE_VERSION}"),
            )
            .of_field("version", 0, version.to_string().as_bytes()));
        }
        Ok(version)
    }

    /// Fills the buffer, less at the end of the file; returns the number of bytes.
    fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut got = 0;
        while got < buffer.len() {
            match self.reader.read(&mut buffer[got..]) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(damaged(&self.path, error)),
            }
        }
        Ok(got)
    }
}

fn cut(problem: &str) -> Error {
    Error::new(ErrorClass::Truncated, problem).hint("give --lenient to read up to there: the recording was cut short")
}
