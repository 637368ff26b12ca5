//! Runs a program on a described host, with a simulated device or with real files on this machine.

use std::path::PathBuf;
use std::sync::Arc;

use emmclab_base::{Error, ErrorClass, Nanos, Result};
use emmclab_host::{Mount, SimulatedHost};
use emmclab_replay::{ClosedLoop, SimulationResult};

use crate::block_device::SimulatedBlockDevice;
use crate::engine::{ProgramEngine, RunConstants};
use crate::files::ProgramFiles;
use crate::hosts::{HostSetup, PeriodicWork, mount_of};
use crate::program::AppProgram;
use crate::result::{AppResult, TimeAttribution, WhatIfTarget};
use crate::storage::{FileStore, RealFiles, RealStorage, SimulatedStorage, StorageBackend};
use crate::thread_code::ProgramCode;
use crate::timeline::ThreadTimes;

/// Options of a run of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramRunOptions {
    /// The network that the run uses, by its name in the host description.
    pub network: String,
    /// Seed of the random draws.
    pub seed: u64,
    /// Maximum simulated or real duration of the run. A longer run is an error.
    pub limit: Nanos,
    /// Parts of the storage that are infinitely fast; only for simulated runs.
    pub what_if: Vec<WhatIfTarget>,
}

impl Default for ProgramRunOptions {
    fn default() -> Self {
        Self { network: "wifi".to_owned(), seed: 1, limit: Nanos::from_secs(86_400), what_if: Vec::new() }
    }
}

/// Runs a program until the end of the thread that its user waits for. The device keeps its state from before the run. Files that exist at
/// the beginning are on the device, but not in the page cache.
/// Errors: [`ErrorClass::Config`] for partitions that do not fit the device, files that do not fit a partition, an unknown network, a
/// deadlock (with each thread and what it waits for), and a run that exceeds its time limit. Also for errors of the device.
pub fn run<D: SimulatedBlockDevice>(
    program: &AppProgram, setup: &HostSetup, device: &mut D, options: &ProgramRunOptions,
) -> Result<AppResult> {
    run_in_detail(program, setup, device, options).map(|(result, _)| result)
}

/// Runs a program on a simulated device with its layers, then ends the simulation of the device. Returns the results of the program and of
/// the device. If the device's recorder writes a timeline, the timeline also shows the threads; `about` is JSON that describes the run in
/// the timeline.
/// Errors: as [`run`], and if the recorder cannot write.
pub fn run_simulated(
    program: &AppProgram, setup: &HostSetup, mut device: ClosedLoop, options: &ProgramRunOptions, about: Option<&str>,
) -> Result<(AppResult, SimulationResult)> {
    let (app, threads) = run_in_detail(program, setup, &mut device, options)?;
    let (mut result, mut recorder) = device.finish()?;
    if let Some(tracks) = &mut recorder.tracks {
        tracks.draw(|tracks| threads.draw(tracks));
    }
    recorder.finish(&mut result, about)?;
    Ok((app, result))
}

fn run_in_detail<D: SimulatedBlockDevice>(
    program: &AppProgram, setup: &HostSetup, device: &mut D, options: &ProgramRunOptions,
) -> Result<(AppResult, ThreadTimes)> {
    let named = setup.mounts(device.sectors())?;
    let partitions: Vec<&str> = named.iter().map(|(name, _)| *name).collect();
    for part in &options.what_if {
        if let WhatIfTarget::Partition(name) = part
            && !partitions.contains(&name.as_str())
        {
            return Err(Error::new(ErrorClass::Config, "the host has no partition of this name")
                .of_field("partition", 0, name.as_bytes())
                .hint(format!("the partitions of this host are: {}", partitions.join(", "))));
        }
    }
    let mounts: Vec<Mount> = named.iter().map(|(_, mount)| *mount).collect();
    let mut host = SimulatedHost::new(setup.kernel()?, &mounts)?;
    let files = files_of(program, options.seed, &named, &mut host)?;
    let mut storage = SimulatedStorage::new(host, device, partitions.clone(), &options.what_if);
    let (result, times) = run_on(program, &setup.periodic, setup, options, &partitions, files, &mut storage)?;
    let kernel_cpu = storage.kernel_cpu_ns() * millionths(setup.cpu_factor) / 1_000_000;
    let names = program.files.iter().map(|set| set.name.as_str());
    let names: Vec<_> = names.chain(program.databases.iter().map(|database| database.name.as_str())).collect();
    let result = AppResult { kernel_cpu_ns: Some(kernel_cpu), requests: Some(storage.counts(&names)), ..result };
    Ok((result, times))
}

/// Writes the initial files of a program to this machine, with one folder for each mounted partition of the host, in order.
/// Errors: as [`run`], and if a file cannot be written.
pub fn prepare_live(program: &AppProgram, setup: &HostSetup, sectors: u64, folders: &[PathBuf], seed: u64) -> Result<()> {
    let named = setup.mounts(sectors)?;
    check_folders(&named, folders)?;
    files_of(program, seed, &named, &mut RealFiles::new(folders.to_vec(), true)).map(drop)
}

/// Runs a program on this machine, with real file operations in the folders that [`prepare_live`] wrote for the same program, host and
/// seed. Each thread of the program becomes a thread of this machine. CPU work and network transfers only wait for their simulated
/// duration.
///
/// The result has no block requests and no kernel work, which only the simulation knows. The duration of a file operation counts as
/// waiting.
/// Errors: as [`run`], and if a file operation fails.
pub fn run_live(
    program: &AppProgram, setup: &HostSetup, sectors: u64, folders: &[PathBuf], options: &ProgramRunOptions,
) -> Result<AppResult> {
    let named = setup.mounts(sectors)?;
    check_folders(&named, folders)?;
    if !options.what_if.is_empty() {
        return Err(Error::new(ErrorClass::Config, "a live run cannot make parts of the storage infinitely fast")
            .in_field("what_if")
            .hint("leave out `what_if`, or simulate the program: `emmclab apps run`"));
    }
    let partitions: Vec<&str> = named.iter().map(|(name, _)| *name).collect();
    let mut store = RealFiles::new(folders.to_vec(), false);
    let files = files_of(program, options.seed, &named, &mut store)?;
    let mut storage = RealStorage::start(&Arc::new(store), program.threads.len() as u32)?;
    // No periodic background work is simulated, because the real machine has background threads of its own.
    let (mut result, _) = run_on(program, &[], setup, options, &partitions, files, &mut storage)?;
    // On a real machine the causes of a wait inside a call are unknown, so each call counts as a single wait.
    result.spent.iter_mut().filter(|part| part.wait.is_some()).for_each(|part| part.wait = Some(part.state.name()));
    Ok(result)
}

fn check_folders(named: &[(&str, Mount)], folders: &[PathBuf]) -> Result<()> {
    if named.len() == folders.len() {
        return Ok(());
    }
    let names: Vec<_> = named.iter().map(|(name, _)| *name).collect();
    Err(Error::new(ErrorClass::Config, format!("{} folders are given for the partitions {}", folders.len(), names.join(", ")))
        .hint("give one folder for each mounted partition"))
}

fn files_of(program: &AppProgram, seed: u64, named: &[(&str, Mount)], store: &mut impl FileStore) -> Result<ProgramFiles> {
    ProgramFiles::new(program, seed, |name| mount_of(named, name), store)
}

/// Runs a program on a storage backend, with the periodic work of a host. The result has no block requests and no CPU work of the kernel.
fn run_on<S: StorageBackend>(
    program: &AppProgram, periodic: &[PeriodicWork], setup: &HostSetup, options: &ProgramRunOptions, partitions: &[&str],
    files: ProgramFiles, storage: &mut S,
) -> Result<(AppResult, ThreadTimes)> {
    let own_threads = program.threads.len() as u32;
    let mut program = program.clone();
    program.threads.extend(periodic.iter().map(PeriodicWork::thread));
    program.check("")?;
    let program = &program;
    let code = ProgramCode::of(program)?;
    let network = setup.network(&options.network)?;
    let names: Vec<&str> = program.threads.iter().map(|thread| thread.name.as_str()).collect();
    let waited = names.iter().position(|name| *name == program.user_waits_for).unwrap_or_default() as u32;
    let fixed = RunConstants {
        program,
        code: &code,
        cores: setup.cores,
        quantum: Nanos((setup.quantum_ms * 1e6) as i64),
        switch: Nanos((setup.switch_us * 1e3 * setup.cpu_factor) as i64),
        factor: millionths(setup.cpu_factor),
        bits_per_s: (network.rate_mbit_s * 1e6).round() as u64,
        round_trip: Nanos((network.round_trip_ms * 1e6).round() as i64),
        limit: options.limit,
        seed: options.seed,
        awaited_thread: waited,
        own_threads,
    };
    let outcome = ProgramEngine::new(fixed, storage, files).run()?;
    let attribution = TimeAttribution::of(&outcome.timelines, &names, waited, outcome.end);
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
        spent: attribution.user_wait_parts(partitions),
        threads: attribution.thread_results(&names),
        cpu_ns: outcome.cpu.0,
        kernel_cpu_ns: None,
        network_bytes: outcome.network_bytes,
        file_operations: outcome.operations,
        file_syncs: outcome.syncs,
        requests: None,
        over_time: attribution.over_time,
    };
    let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let times = ThreadTimes {
        program: program.name.clone(),
        timelines: outcome.timelines,
        names: owned(&names),
        partitions: owned(partitions),
        awaited_thread: waited,
        end: outcome.end,
    };
    Ok((result, times))
}

fn millionths(factor: f64) -> u64 {
    (factor * 1e6).round() as u64
}
