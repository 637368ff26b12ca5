//! Traces that other recorders wrote, of the formats that need a decoder of ring-buffer pages.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use emmclab_trace::{Error, ReadOptions, Result, TraceReader};

use crate::trace_dat::{MAGIC, TraceDat};

/// Opens a trace of any format: `trace.dat` of trace-cmd, or what [`TraceReader::open`] knows.
///
/// # Errors
/// As [`TraceReader::open`].
pub fn open_trace(path: &Path, options: &ReadOptions) -> Result<TraceReader> {
    let mut start = [0; MAGIC.len()];
    // A file that cannot be read is reported below, with all that is to be said about it.
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    let asked = options.format.as_deref();
    if asked == Some("trace-cmd") || asked.is_none() && read.is_ok() && start == MAGIC {
        let source = TraceDat::open(path).map_err(|error: Error| error.in_file(path))?;
        return TraceReader::from_sorted(path, Box::new(source));
    }
    TraceReader::open(path, options)
}
