//! A program on a host above a device.

use emmclab_base::{Error, Kind, Nanos, Result};
use emmclab_host::{Host, Mount};

use crate::block_device::BlockDevice;
use crate::code::Code;
use crate::engine::{Engine, Fixed};
use crate::files::Files;
use crate::hosts::{HostSetup, mount_of};
use crate::program::Program;
use crate::result::{AppResult, Attribution};
use crate::tracks::ThreadTimes;
use crate::what_if::WhatIf;

/// How a program is run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOptions {
    /// The network, by its name on the host.
    pub network: String,
    /// Seed of the draws.
    pub seed: u64,
    /// Simulated time after which the run is an error.
    pub limit: Nanos,
    /// Parts of the storage that are infinitely fast.
    pub what_if: Vec<WhatIf>,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { network: "wifi".to_owned(), seed: 1, limit: Nanos::from_secs(86_400), what_if: Vec::new() }
    }
}

/// Runs a program up to the end of the thread that its user waits for. The device begins as it is; files that exist beforehand lie on it
/// and not in memory.
///
/// # Errors
/// [`Kind::Config`] for partitions that do not fit the device, files that do not fit a partition, an unknown network, a deadlock
/// (with the threads and what each waits for) and a run beyond its limit; and as the device.
pub fn run<D: BlockDevice>(
    program: &Program,
    setup: &HostSetup,
    device: &mut D,
    options: &RunOptions,
) -> Result<AppResult> {
    run_in_detail(program, setup, device, options).map(|(result, _)| result)
}

/// The same, with what each thread did.
///
/// # Errors
/// As [`run`].
pub fn run_in_detail<D: BlockDevice>(
    program: &Program,
    setup: &HostSetup,
    device: &mut D,
    options: &RunOptions,
) -> Result<(AppResult, ThreadTimes)> {
    let code = Code::of(program)?;
    let network = setup.network(&options.network)?;
    let named = setup.mounts(device.sectors())?;
    let partitions: Vec<&str> = named.iter().map(|(name, _)| *name).collect();
    for part in &options.what_if {
        if let WhatIf::Partition(name) = part
            && !partitions.contains(&name.as_str())
        {
            return Err(Error::new(Kind::Config, "the host has no such partition")
                .of_field("partition", 0, name.as_bytes())
                .hint(format!("there are: {}", partitions.join(", "))));
        }
    }
    let mounts: Vec<Mount> = named.iter().map(|(_, mount)| *mount).collect();
    let mut host = Host::new(setup.kernel()?, &mounts)?;
    let files = Files::new(program, options.seed, |name| mount_of(&named, name), &mut host)?;
    let names: Vec<&str> = program.threads.iter().map(|thread| thread.name.as_str()).collect();
    let waited = names.iter().position(|name| *name == program.user_waits_for).unwrap_or_default() as u32;
    let fixed = Fixed {
        program,
        code: &code,
        partitions: partitions.clone(),
        cores: setup.cores,
        quantum: Nanos((setup.quantum_ms * 1e6) as i64),
        switch: Nanos((setup.switch_us * 1e3 * setup.cpu_factor) as i64),
        factor: (setup.cpu_factor * 1e6).round() as u64,
        bits_per_s: (network.rate_mbit_s * 1e6).round() as u64,
        round_trip: Nanos((network.round_trip_ms * 1e6).round() as i64),
        limit: options.limit,
        what_if: &options.what_if,
        seed: options.seed,
        waited,
    };
    let outcome = Engine::new(fixed, device, host, files).run()?;
    let attribution = Attribution::of(&outcome.timelines, &names, waited, outcome.end);
    let result = AppResult {
        program: program.name.clone(),
        host: setup.name.clone(),
        era: setup.era.clone(),
        network: network.name.clone(),
        seed: options.seed,
        what_if: options.what_if.iter().map(ToString::to_string).collect(),
        runtime_ns: outcome.end.0,
        user_waits_for: program.user_waits_for.clone(),
        states: attribution.states(),
        spent: attribution.spent(&partitions),
        threads: attribution.thread_results(&names),
        cpu_ns: outcome.cpu.0,
        kernel_cpu_ns: outcome.kernel_cpu.0,
        network_bytes: outcome.network_bytes,
        file_operations: outcome.operations,
        file_syncs: outcome.syncs,
        requests: outcome.counter.counts(),
        over_time: attribution.over_time,
    };
    let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let times = ThreadTimes {
        program: program.name.clone(),
        timelines: outcome.timelines,
        names: owned(&names),
        partitions: owned(&partitions),
        waited,
        end: outcome.end,
    };
    Ok((result, times))
}
