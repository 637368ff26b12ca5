//! DiskSim's default ASCII format (Bucy et al., "The DiskSim Simulation Environment Version 4.0 Reference Manual",
//! CMU-PDL-08-101).
//!
//! Arrival time in milliseconds with a fraction, device, first block (512 bytes), blocks, and flags, whose lowest bit is 1 for
//! a read. The record is that of SSDsim with another unit of time.

use super::ssdsim;
use super::time_unit::TimeUnit;
use super::trace_format::{FormatOrigin, FormatTimes, TraceFormat};
use crate::{RecordedFeatures, TraceColumn};

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "disksim",
    about: "DiskSim ASCII trace (arrival in ms, device, block, blocks, 1 = read)",
    known_by: "five numbers, the last 0 or 1, and decimal times",
    origin: FormatOrigin {
        from: "DiskSim's traces in ASCII",
        gives: &[TraceColumn::Device],
        unknown: "response times, processes, flags",
    },
    extensions: &[],
    recorded: RecordedFeatures::NONE,
    times: FormatTimes::Open(TimeUnit::Millis),
    sniff: |head, _| ssdsim::is_record(head),
    open: |input, options| ssdsim::open(input, options, TimeUnit::Millis, FORMAT.name),
    writes: None,
};
