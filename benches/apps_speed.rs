//! How fast programs run, on one core: operations of files a second in simulated closed loop.
//!
//! ```text
//! cargo run --release -p emmclab-apps --example apps_speed
//! ```
//!
//! Reads and writes that memory serves, transactions of SQLite on the preset nexus5, four threads that take turns on two cores, and each
//! application that comes with emmclab on nexus5 over wifi: file operations, block requests, seconds, and operations a second.

use std::error::Error;
use std::time::Instant;

use emmclab_apps::{AppProgram, HostSetup, ProgramRunOptions, preset_names, run};
use emmclab_device::DeviceConfig;
use emmclab_replay::{ClosedLoop, Precondition, ReplayOptions, Simulation};

const HEAD: &str = "about = \"\"\nsource = \"\"\nuser_waits_for = \"t\"\n\
    [[file]]\nname = \"f\"\npartition = \"data\"\nsize = \"32MB\"\n\
    [[database]]\nname = \"d\"\npartition = \"data\"\nsize = \"4MB\"\n";

const MADE: [(&str, &str); 3] = [
    (
        "reads of memory",
        "[[thread]]\nname = \"t\"\nsteps = [{ read = { file = \"f\", size = \"4KB\", count = 4000000, place = \"random\" } }]",
    ),
    (
        "turns of threads",
        "[[thread]]\nname = \"t\"\nsteps = [{ repeat = { times = 1000000, steps = [{ signal = { name = \"a\" } }, { wait = { name = \"b\" } }, \
         { overwrite = { file = \"f\", size = \"4KB\" } }] } }]\n\
         [[thread]]\nname = \"u\"\nsteps = [{ repeat = { steps = [{ wait = { name = \"a\" } }, { cpu = { ms = 0.01 } }, { signal = { name = \"b\" } }] } }]",
    ),
    (
        "transactions",
        "[[thread]]\nname = \"t\"\nsteps = [{ transaction = { database = \"d\", pages = 4, count = 50000 } }]",
    ),
];

fn main() -> Result<(), Box<dyn Error>> {
    let host = HostSetup::preset("phone-2020")?;
    println!("{:>18} {:>12} {:>10} {:>8} {:>14}", "program", "operations", "requests", "s", "operations/s");
    for (name, text) in MADE {
        let program = AppProgram::from_toml(&format!("name = \"{name}\"\n{HEAD}{text}"))?;
        measure(&program, &host)?;
    }
    let host = HostSetup::preset("nexusone")?;
    for name in preset_names() {
        measure(&AppProgram::preset(name)?, &host)?;
    }
    Ok(())
}

fn measure(program: &AppProgram, host: &HostSetup) -> Result<(), Box<dyn Error>> {
    let options = ReplayOptions { precondition: Precondition::Sequential(10.0), ..ReplayOptions::default() };
    let simulation = Simulation::new(&DeviceConfig::preset("nexus5")?, &options, None)?;
    let mut device = ClosedLoop::new(simulation);
    let begun = Instant::now();
    let result = run(program, host, &mut device, &ProgramRunOptions::default())?;
    let took = begun.elapsed().as_secs_f64();
    let all = result.requests.map(|counts| counts.all).unwrap_or_default();
    let requests = all.read.requests + all.write.requests;
    let rate = result.file_operations as f64 / took;
    println!("{:>18} {:>12} {requests:>10} {took:>8.2} {rate:>14.0}", program.name, result.file_operations);
    Ok(())
}
