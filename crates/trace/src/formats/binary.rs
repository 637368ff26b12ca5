//! Reads binary formats with records of fixed size; errors contain the offset.

use std::io::{BufReader, Read};
use std::path::PathBuf;

use super::input::{damaged, read_some};
use super::prelude::*;
use crate::BATCH_ROWS;

/// A format with records of fixed size.
pub(super) trait RecordFormat: Send {
    /// Appends the request of a record to `out`; appends nothing if the record is not a request.
    fn parse(&mut self, raw: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()>;
    /// Format name, clock and note for the header.
    fn header(&self) -> TraceHeader;
}

pub(super) struct RecordSource<F> {
    format: F,
    context: ParseContext,
    lenient: bool,
    name: String,
    path: PathBuf,
    reader: BufReader<Box<dyn Read + Send>>,
    meter: Box<dyn Fn() -> ReadProgress + Send>,
    raw: Vec<u8>,
    offset: u64,
}

impl<F: RecordFormat> RecordSource<F> {
    /// A source of records of `size` bytes, which follow `before` bytes at the start of the file.
    pub fn new(format: F, input: DecompressedInput, options: &ReadOptions, before: usize, size: usize) -> Result<Self> {
        let (name, path, meter) = (input.name(), input.path().to_owned(), Box::new(input.meter()));
        let reader: Box<dyn Read + Send> = Box::new(input.into_reader());
        let mut source = Self {
            format,
            context: ParseContext::default(),
            lenient: options.lenient,
            name,
            path,
            reader: BufReader::with_capacity(1 << 18, reader),
            meter,
            raw: vec![0; before],
            offset: 0,
        };
        source.read()?;
        source.raw.resize(size, 0);
        Ok(source)
    }

    /// Fills `raw` with the next record; returns false at the end of the file.
    fn read(&mut self) -> Result<bool> {
        let got = read_some(&mut self.reader, &mut self.raw)
            .map_err(|(got, error)| damaged(&self.path, error).at_offset(self.offset + got as u64))?;
        if got == self.raw.len() {
            self.offset += got as u64;
            return Ok(true);
        }
        if got > 0 && self.lenient {
            self.context.ledger.seen += 1;
            self.context.ledger.skipped += 1;
        } else if got > 0 {
            let problem = format!("the file ends after {got} of the {} bytes of a record", self.raw.len());
            return Err(Error::new(ErrorClass::Truncated, problem)
                .at_offset(self.offset)
                .hint("copy the trace file again, or use --lenient to read it up to the damaged place"));
        }
        Ok(false)
    }
}

impl<F: RecordFormat> TraceSource for RecordSource<F> {
    fn fill(&mut self, out: &mut Vec<Request>) -> Result<bool> {
        let goal = out.len() + BATCH_ROWS;
        while out.len() < goal {
            if !self.read()? {
                return Ok(false);
            }
            self.context.ledger.seen += 1;
            let (rows, begin) = (out.len(), self.offset - self.raw.len() as u64);
            match self.format.parse(&self.raw, &mut self.context, out) {
                Err(_) if self.lenient => {
                    out.truncate(rows);
                    self.context.ledger.skipped += 1;
                }
                result => result.map_err(|error| error.at_offset(begin).hint("use --lenient to skip and count bad records"))?,
            }
        }
        Ok(true)
    }

    fn names(&self) -> (&NameTable, &NameTable) {
        (&self.context.processes, &self.context.devices)
    }

    fn ledger(&self) -> Ledger {
        self.context.ledger.clone()
    }

    fn header(&self) -> TraceHeader {
        TraceHeader { source: self.name.clone(), ..self.format.header() }
    }

    fn progress(&self) -> ReadProgress {
        (self.meter)()
    }
}

/// The `N` bytes at `at`; zeros if the record is shorter.
pub(super) fn bytes<const N: usize>(raw: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(from) = raw.get(at..at + N) {
        out.copy_from_slice(from);
    }
    out
}

#[cold]
pub(super) fn refused(name: &str, value: impl ToString, problem: &str) -> Error {
    Error::new(ErrorClass::Value, problem).of_field(name, 0, value.to_string().as_bytes())
}
