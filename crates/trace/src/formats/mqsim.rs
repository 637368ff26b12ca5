//! MQSim (Tavakkol et al., FAST 2018): trace-based workloads.
//!
//! The record of SSDsim: arrival time, device, first sector, sectors, and type, 1 = read and 0 = write. MQSim's own workload
//! file states the unit of time (`Time_Unit`); here it is nanoseconds unless `--time-unit` is given. Nothing in the file
//! distinguishes the two simulators, so the extension `.mqsim` or `--format` does.

use super::ssdsim;
use super::time_unit::TimeUnit;
use super::trace_format::{FormatOrigin, FormatTimes, TraceFormat};
use crate::{RecordedFeatures, TraceColumn};

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "mqsim",
    about: "MQSim ASCII trace (arrival, device, sector, sectors, 1 = read)",
    known_by: "five numbers, the last 0 or 1, in a file that ends in .mqsim",
    origin: FormatOrigin {
        from: "MQSim's traces",
        gives: &[TraceColumn::Device],
        unknown: "response times, processes, flags",
    },
    extensions: &["mqsim"],
    recorded: RecordedFeatures::NONE,
    times: FormatTimes::Open(TimeUnit::Nanos),
    sniff: |head, path| path.extension().is_some_and(|ending| ending == "mqsim") && ssdsim::is_record(head),
    open: |input, options| ssdsim::open(input, options, TimeUnit::Nanos, FORMAT.name),
    writes: Some((ssdsim::HOLDS, ssdsim::create)),
};
