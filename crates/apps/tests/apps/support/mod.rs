//! A device with fixed service times, and programs that are built from a few lines.

use std::collections::VecDeque;

use emmclab_apps::{AppProgram, AppResult, HostSetup, ProgramRunOptions, SimulatedBlockDevice, run};
use emmclab_base::{BlockNote, Nanos, Op, Request, Result};

/// A device that serves one request after another, each in a fixed time.
pub struct FixedDevice {
    pub read: Nanos,
    pub write: Nanos,
    pub flush: Nanos,
    free: Nanos,
    known: VecDeque<(u64, Nanos)>,
    pub requests: Vec<Request>,
}

impl FixedDevice {
    pub fn new(read_us: i64, write_us: i64, flush_us: i64) -> Self {
        Self {
            read: Nanos::from_micros(read_us),
            write: Nanos::from_micros(write_us),
            flush: Nanos::from_micros(flush_us),
            free: Nanos::ZERO,
            known: VecDeque::new(),
            requests: Vec::new(),
        }
    }
}

impl SimulatedBlockDevice for FixedDevice {
    fn sectors(&self) -> u64 {
        4 << 21
    }

    fn submit(&mut self, at: Nanos, number: u64, request: &Request, _: &[BlockNote]) -> Result<()> {
        assert!(request.end().0 <= self.sectors());
        let took = match request.op {
            Op::Read => self.read,
            Op::Write => self.write,
            _ => self.flush,
        };
        self.free = self.free.max(at) + took;
        self.known.push_back((number, self.free));
        self.requests.push(*request);
        Ok(())
    }

    fn next_event(&self) -> Option<Nanos> {
        None
    }

    fn advance(&mut self, _: Nanos) -> Result<()> {
        Ok(())
    }

    fn take_completed(&mut self, out: &mut Vec<(u64, Nanos)>) {
        out.extend(self.known.drain(..));
    }
}

/// A program with these threads, of which the user waits for `ui`. Files and databases are in the format of a program file.
pub fn program(rest: &str) -> AppProgram {
    let head = "name = \"p\"\nabout = \"a\"\nsource = \"s\"\nuser_waits_for = \"ui\"\n";
    AppProgram::from_toml(&format!("{head}{rest}")).unwrap()
}

/// A host with this number of cores, a partition `data`, and a network of 8 Mbit/s with round trips of 10 ms. Its file operations take no
/// processor time.
pub fn host(cores: u32) -> HostSetup {
    HostSetup::from_toml(&format!(
        "name = \"h\"\nabout = \"a\"\nsource = \"s\"\ncores = {cores}\nquantum_ms = 2\nera = \"linux-6\"\n\
         [kernel.cpu]\noperation_ns = 0\npage_ns = 0\nrequest_ns = 0\n\
         [[partition]]\nname = \"data\"\nfilesystem = \"ext4\"\n\
         [[network]]\nname = \"wifi\"\nrate_mbit_s = 8.0\nround_trip_ms = 10.0\n"
    ))
    .unwrap()
}

/// Runs a program for at most a minute on a device that takes 1 ms for each request.
pub fn run_on(host: &HostSetup, rest: &str) -> Result<AppResult> {
    let mut device = FixedDevice::new(1000, 1000, 1000);
    let options = ProgramRunOptions { limit: Nanos::from_secs(60), ..ProgramRunOptions::default() };
    run(&program(rest), host, &mut device, &options)
}

/// The result of a run on a host with this number of cores.
pub fn outcome(rest: &str, cores: u32) -> AppResult {
    run_on(&host(cores), rest).unwrap()
}

/// Returns the error of a run.
pub fn failure(rest: &str) -> String {
    let error = run_on(&host(1), rest).unwrap_err();
    format!("{error}; {}", error.hint_text().unwrap_or_default())
}

/// A thread `ui` with these steps, in the format of a program file.
pub fn ui(steps: &str) -> String {
    thread("ui", steps)
}

/// A thread with these steps, in the format of a program file.
pub fn thread(name: &str, steps: &str) -> String {
    format!("[[thread]]\nname = \"{name}\"\nsteps = [{steps}]\n")
}
