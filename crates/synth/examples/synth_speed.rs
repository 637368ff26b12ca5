//! Measures how fast a workload is made and how much memory that needs.
//!
//! ```text
//! cargo run --release -p emmclab-synth --example synth_speed
//! ```
//!
//! Makes ten million requests of the Messaging model. Prints the requests per second of processor time and the process's
//! peak resident memory.

use std::error::Error;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use emmclab_synth::{SynthOptions, Synthesizer, presets};

const REQUESTS: u64 = 10_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let options = SynthOptions { requests: Some(REQUESTS), ..SynthOptions::default() };
    let start = cpu_time();
    let batches = Synthesizer::new(&presets::model("Messaging")?, &options)?;
    let requests: usize = batches.map(|batch| batch.len()).sum();
    let spent_s = cpu_time().saturating_sub(start).as_secs_f64();
    let per_s = requests as f64 / spent_s;
    println!("{:<10} {:>12} {:>9} {:>14} {:>10}", "model", "requests", "CPU s", "requests/s", "peak MB");
    println!("{:<10} {requests:>12} {spent_s:>9.2} {per_s:>14.0} {:>10.1}", "Messaging", peak_mb());
    Ok(())
}

/// Processor time of this thread on Linux, which depends less on other load than wall-clock time; elsewhere wall-clock time.
fn cpu_time() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = statistics.split_whitespace().next().and_then(|ns| ns.parse().ok());
    ns.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

/// The process's peak resident memory so far, from Linux; 0 elsewhere.
fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}
