//! Traces that other recorders wrote, of the formats that need a decoder of ring-buffer pages.

use std::path::Path;

use emmclab_trace::formats::Format;
use emmclab_trace::{ReadOptions, Result, TraceReader};

use crate::trace_dat;

/// The formats read here, for [`ReadOptions::further`].
pub static FORMATS: &[&Format] = &[&trace_dat::FORMAT];

/// Opens a trace of any format: one of [`FORMATS`], or what [`TraceReader::open`] knows by itself.
///
/// # Errors
/// As [`TraceReader::open`].
pub fn open_trace(path: &Path, options: &ReadOptions) -> Result<TraceReader> {
    TraceReader::open(path, &ReadOptions { further: FORMATS, ..options.clone() })
}
