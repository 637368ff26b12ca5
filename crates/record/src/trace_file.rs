//! Trace formats of other recorders that contain ring-buffer pages.

use std::path::Path;

use emmclab_trace::formats::TraceFormat;
use emmclab_trace::{ReadOptions, Result, TraceReader};

use crate::trace_dat;

/// The formats that are supported here, for [`ReadOptions::further`].
pub static FORMATS: &[&TraceFormat] = &[&trace_dat::FORMAT];

/// Opens a trace of any format: one of [`FORMATS`], or one that [`TraceReader::open`] supports by itself.
///
/// # Errors
/// As [`TraceReader::open`].
pub fn open_trace(path: &Path, options: &ReadOptions) -> Result<TraceReader> {
    TraceReader::open(path, &ReadOptions { further: FORMATS, ..options.clone() })
}
