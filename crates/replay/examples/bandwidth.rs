//! Prints the bandwidths of device files beside Table II of the paper on Advil:
//! `cargo run --release -p emmclab-replay --example bandwidth -- presets/devices/galaxys2.toml 4 32 4096`.

use emmclab_device::DeviceConfig;
use emmclab_replay::bandwidth;
use emmclab_trace::Result;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let Some(path) = args.next() else { return Ok(()) };
    let config = DeviceConfig::from_file(path.as_ref())?;
    let units: Vec<u64> = args.filter_map(|arg| arg.parse().ok()).collect();
    for row in bandwidth(&config, &units)? {
        println!(
            "{:5} KB  read {:6.2} write {:6.2} MB/s in order, {:6.2} and {:6.2} at random",
            row.unit_kb, row.seq_read_mb_s, row.seq_write_mb_s, row.random_read_mb_s, row.random_write_mb_s
        );
    }
    Ok(())
}
