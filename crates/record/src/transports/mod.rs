//! Ways to the ring buffers of the recorded machine.

mod adb;
mod local;
mod remote;
mod ssh;

use std::time::Duration;

use emmclab_trace::Result;

use crate::disks::Disks;
use crate::kernel::Files;
use crate::target::Target;

/// The targets of a recording, worked out from the texts of the recorded machine.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Events by their folder (`block/block_rq_issue`).
    pub(crate) events: Vec<String>,
    /// The kernel's filter expression for the block events; empty for none.
    pub(crate) filter: String,
    /// Ring buffer of each CPU.
    pub(crate) buffer_kb: u32,
    /// Bytes of one page.
    pub(crate) page_bytes: usize,
    /// The most events that a page can hold.
    pub(crate) events_per_page: usize,
    /// Pause between rounds.
    pub(crate) interval: Duration,
    /// Commands for a shell that print the registers of the devices.
    pub(crate) registers: String,
}

impl Setup {
    /// Whether the filter is for this event: those of other systems have no field `dev`.
    fn filters(&self, event: &str) -> bool {
        !self.filter.is_empty() && event.starts_with("block/")
    }
}

/// How a round over all CPUs ended.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// CPUs that have more to read.
    pub(crate) behind: Vec<usize>,
    /// Whether this was the last round.
    pub(crate) ended: bool,
}

/// A way to the ring buffers of one machine. Dropping it removes the tracefs instance there.
pub(crate) trait Transport: Send {
    /// The texts of the machine: see [`crate::Kernel::from_files`] and [`crate::Disks::parse`].
    fn files(&self) -> &Files;

    /// Reads the registers of the devices, then starts recording; the texts of [`crate::registers`].
    fn begin(&mut self, setup: &Setup) -> Result<Files>;

    /// Reads every CPU once, pausing first where nothing is urgent, and gives each page with its CPU to `page`.
    fn round(&mut self, page: &mut dyn FnMut(usize, &[u8])) -> Result<Round>;

    /// Stops recording; rounds go on until one says that it was the last.
    fn stop(&mut self);

    /// After the last round: the `stats` text of each CPU.
    fn counters(&self) -> Vec<(usize, String)>;

    /// After the last round: the kernel's own list of tasks, in lines `PID NAME`; empty if it cannot be had.
    fn saved_names(&self) -> String;

    /// The disks present now; `None` if the transport reports them only after the last round, or never.
    fn disks_now(&self) -> Option<Disks>;

    /// Whether this task is one of the recorder's own.
    fn is_own(&self, task: i32) -> bool;
}

/// See [`crate::helper_command`].
pub(crate) fn helper_command() -> String {
    remote::command_line()
}

/// Opens the way to a machine and makes the instance there.
pub(crate) fn open(target: &Target) -> Result<Box<dyn Transport>> {
    Ok(match target {
        Target::Local => Box::new(local::Local::open()?),
        Target::Ssh { destination, options } => Box::new(ssh::open(destination, options)?),
        Target::Adb { serial, port } => Box::new(adb::open(serial.as_deref(), *port)?),
        Target::Command(command) => Box::new(remote::Remote::spawn(command)?),
    })
}
