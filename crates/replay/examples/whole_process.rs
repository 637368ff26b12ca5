//! A whole process that drives a device with a trace and does nothing else, as `benches/whole_process.py` takes its time:
//! `cargo run --release -p emmclab-replay --example whole_process TRACE DEVICE [KEY=VALUE]...`.

use emmclab_device::{DeviceConfig, NullObserver};
use emmclab_replay::{ReplayOptions, simulate};
use emmclab_trace::{Result, TraceCombiner, TraceInput};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path = arguments.first().map(Into::into).unwrap_or_default();
    let mut config = DeviceConfig::preset(arguments.get(1).map_or("", String::as_str))?;
    let settings: Vec<_> = arguments.iter().skip(2).filter_map(|pair| pair.split_once('=')).collect();
    config.set_all(&settings)?;
    let mut traces = TraceCombiner::open(vec![TraceInput { path, ..TraceInput::default() }], 1)?;
    let options = ReplayOptions { wrap_addresses: true, ..ReplayOptions::default() };
    let result = simulate(&config, &mut traces, &options, &mut NullObserver)?;
    println!(
        "{} requests on {}, mean response {:.6} ms, WAF {:.4}: {:.4} s, {:.2} million page operations/s",
        result.requests.total,
        result.device,
        result.response.mean_response_ms,
        result.write_amplification.waf,
        result.computing.wall_s,
        result.computing.page_operations_per_s / 1e6
    );
    Ok(())
}
