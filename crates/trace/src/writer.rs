//! Writes a trace in any writable format.

use std::path::Path;

use crate::formats::{self, FormatCapabilities};
use crate::{AtomicFile, Batch, BatchBuilder, Error, ErrorClass, Ledger, OutputCompression, Result, TraceColumn, TraceHeader};

/// Options for writing a trace.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Name of a format, possibly with an extension for compression (`csv.gz`); `None` to derive it from the extension of the file name.
    pub format: Option<String>,
}

/// Counts of the values that the format cannot represent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteLosses {
    /// Number of requests that were not written because the format does not have their operation.
    pub requests: u64,
    /// Number of values that were lost from written requests, by column in the order of the schema. It includes times that were
    /// rounded down because the times of the format are coarser.
    pub values: Vec<(&'static str, u64)>,
}

/// A trace that is being written; the file exists under its name only after [`TraceWriter::finish`].
pub struct TraceWriter {
    sink: Box<dyn TraceSink>,
    holds: FormatCapabilities,
    left_out: u64,
    values: [u64; TraceColumn::ALL.len()],
}

impl TraceWriter {
    /// Starts a trace at `path`; `-` is the standard output. The output is compressed if the name ends in `.gz`, `.zst` or `.xz`.
    /// Fails if the format is unknown or cannot be written, or the folder is not writable.
    pub fn create(path: &Path, header: &TraceHeader, options: &WriteOptions) -> Result<Self> {
        let (_, by_path) = OutputCompression::split(&path.to_string_lossy());
        let (format, compression) = match &options.format {
            Some(name) => {
                let (name, by_name) = OutputCompression::split(name);
                (formats::by_name(name, &[])?, by_name.or(by_path))
            }
            None => (formats::by_extension(path)?, by_path),
        };
        let Some((holds, create)) = &format.writes else {
            let names: Vec<_> = formats::writable().map(|format| format.name).collect();
            return Err(Error::new(ErrorClass::Unsupported, format!("the format `{}` can only be read", format.name))
                .hint(format!("choose one of the formats: {}", names.join(", "))));
        };
        if compression.is_some() && formats::compresses_itself(format) {
            let message = format!("`{}` is already compressed", format.name);
            return Err(Error::new(ErrorClass::Unsupported, message).in_file(path).hint("remove the second file extension"));
        }
        let file = if path == Path::new("-") { AtomicFile::stdout() } else { AtomicFile::create(path) };
        let sink = create(file?.compressed(compression)?, header)?;
        Ok(Self { sink, holds: *holds, left_out: 0, values: Default::default() })
    }

    /// Adds a batch; batches must be in order of arrival. Values that the format cannot represent are counted, see
    /// [`TraceWriter::losses`]. Fails if the disk is full or the format cannot represent a value that every trace has.
    pub fn write(&mut self, batch: &Batch) -> Result<()> {
        if self.holds.is_everything(batch.has_notes()) {
            return self.sink.write(batch);
        }
        let mut fitting = BatchBuilder::default();
        for (row, request) in batch.iter().enumerate() {
            if self.holds.ops.contains(&request.op) {
                for (count, column) in self.values.iter_mut().zip(TraceColumn::ALL) {
                    *count += u64::from(self.holds.loses(column, &request, batch.notes(row)));
                }
                fitting.push(&request);
            } else {
                self.left_out += 1;
            }
        }
        self.sink.write(&fitting.finish(batch.processes(), batch.devices()))
    }

    /// Counts of the values lost so far because the format cannot represent them. The caller must print them.
    pub fn losses(&self) -> WriteLosses {
        let values = TraceColumn::ALL.into_iter().zip(self.values).filter(|(_, count)| *count > 0);
        WriteLosses { requests: self.left_out, values: values.map(|(column, count)| (column.name(), count)).collect() }
    }

    /// Completes the file and renames it to its final name. Fails if the disk is full; then no file remains.
    pub fn finish(self, ledger: &Ledger, header: &TraceHeader) -> Result<()> {
        self.sink.finish(ledger, header)?.commit()
    }
}

/// Encodes batches; each writable format implements it.
pub trait TraceSink: Send {
    /// Adds a batch. All its operations must be in the format's [`crate::formats::FormatCapabilities`]. Fails if the
    /// disk is full or the format cannot represent a request.
    fn write(&mut self, batch: &Batch) -> Result<()>;
    /// Writes the end of the file with the header and the final record counts (`ledger`). Returns the file, which the caller commits. Fails
    /// if the disk is full.
    fn finish(self: Box<Self>, ledger: &Ledger, header: &TraceHeader) -> Result<AtomicFile>;
}
