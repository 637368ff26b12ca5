//! What a page operation costs against the size of the device and the length of the run, as a line of JSON:
//! `device_cost size GB` (a full device under random 4 KB writes) and `device_cost length REQUESTS` (a streamed run,
//! the requests made as they are needed). One case a process, so that the peak memory is its own; times are the
//! processor's. `benches/plot_cost.py` runs them all and draws the picture.

use std::process::ExitCode;

use emmclab_device::{Device, DeviceCommand, DeviceConfig, NullObserver, PREFETCHED};
use emmclab_replay::{ReplayOptions, Simulation};
use emmclab_trace::{Error, Nanos, Op, Request, Result, Sector};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;
use rustix::time::{ClockId, clock_gettime};

/// Writes that are timed; whole runs of those that are fetched together.
const TIMED: u64 = 4_000_000 / PREFETCHED as u64 * PREFETCHED as u64;

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = arguments.get(1).and_then(|number| number.parse::<u64>().ok());
    match (arguments.first().map(String::as_str), number) {
        (Some("size"), Some(gb)) => size(gb)?,
        (Some("length"), Some(requests)) => length(requests)?,
        _ => {
            eprintln!("usage: device_cost size GB | length REQUESTS");
            return Ok(ExitCode::from(2));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Seconds that this process had the processor.
fn processor_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Peak resident memory in MB.
fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").trim().parse::<f64>().unwrap_or(0.0) / 1024.0
}

/// A device of `gb` and 7 %, in four planes of blocks of 1,024 pages of 4 KB.
fn sized(gb: u64) -> Result<DeviceConfig> {
    let mut config = DeviceConfig::preset("small-1gb")?;
    let blocks = (gb * 274).div_ceil(4).to_string();
    config.set_all(&[
        ("geometry.block_groups.0.pages_per_block", "1024"),
        ("geometry.block_groups.0.blocks", &blocks),
    ])?;
    Ok(config)
}

fn write(device: &mut Device, unit: u64, units: u32) -> Result<()> {
    let sectors = device.geometry().unit_sectors;
    let arrival = Nanos(device.idle_from().0.max(0));
    let command = DeviceCommand::new(arrival, Op::Write, unit * u64::from(sectors), units * sectors);
    device.submit(&command, &mut NullObserver)?;
    Ok(())
}

/// Fills the device, writes at random until the spare blocks are used up and some more, then takes the time.
fn size(gb: u64) -> Result<()> {
    let mut device = Device::new(&sized(gb)?);
    let units = u64::from(device.geometry().logical_units);
    let mut at = 0;
    while at < units {
        let count = (units - at).min(128);
        write(&mut device, at, count as u32)?;
        at += count;
    }
    let mut random = Pcg64::new(1, 2);
    let unit_sectors = u64::from(device.geometry().unit_sectors);
    // As a run does it, with an eye on the requests that come next.
    let mut random_writes = |device: &mut Device, count: u64| {
        for _ in 0..count.div_ceil(PREFETCHED as u64) {
            let next: [u64; PREFETCHED] = std::array::from_fn(|_| ((random.next_u64() >> 32) * units) >> 32);
            device.prefetch(&next.map(|unit| unit * unit_sectors));
            next.iter().try_for_each(|unit| write(device, *unit, 1))?;
        }
        Ok::<(), Error>(())
    };
    let spare = device.geometry().raw().0 / 4096 - units;
    random_writes(&mut device, spare + spare / 4)?;
    device.rewind();
    let begin = processor_s();
    random_writes(&mut device, TIMED)?;
    let seconds = processor_s() - begin;
    let counters = device.counters();
    let operations = counters.all_page_programs() + counters.all_page_reads();
    println!(
        "{{\"case\": \"size\", \"gb\": {gb}, \"page_operations\": {operations}, \"waf\": {:.3}, \
         \"ns_per_page_operation\": {:.2}, \"ns_per_request\": {:.2}, \"peak_mb\": {:.1}}}",
        counters.waf(),
        seconds * 1e9 / operations as f64,
        seconds * 1e9 / TIMED as f64,
        peak_mb()
    );
    Ok(())
}

/// A phone-like stream on a working set of 64 MB: three writes to one read, 4 to 16 KB.
fn length(requests: u64) -> Result<()> {
    let config = DeviceConfig::preset("small-1gb")?;
    let mut simulation = Simulation::new(&config, &ReplayOptions::default(), None)?;
    let mut random = Pcg64::new(1, 2);
    let begin = processor_s();
    for number in 0..requests {
        let dice = random.next_u64();
        let op = if dice.is_multiple_of(4) { Op::Read } else { Op::Write };
        let sectors = [8, 8, 8, 16, 8, 8, 24, 32][(dice >> 2) as usize % 8];
        let sector = (dice >> 32) % 16_380 * 8;
        let request = Request::new(Nanos(number as i64 * 1_000_000), op, Sector(sector), sectors);
        simulation.push(&request, &mut NullObserver)?;
    }
    let result = simulation.finish(None, &mut NullObserver)?;
    let seconds = processor_s() - begin;
    let operations = result.flash.page_operations();
    println!(
        "{{\"case\": \"length\", \"requests\": {}, \"page_operations\": {operations}, \"waf\": {:.3}, \
         \"mean_response_ms\": {:.4}, \"ns_per_page_operation\": {:.2}, \"ns_per_request\": {:.2}, \"peak_mb\": {:.1}}}",
        result.requests.total,
        result.write_amplification.waf,
        result.response.mean_response_ms,
        seconds * 1e9 / operations as f64,
        seconds * 1e9 / requests as f64,
        peak_mb()
    );
    Ok(())
}
