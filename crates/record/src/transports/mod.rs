//! Connections to the ring buffers of the recorded machine.

mod local;
mod remote;

use std::time::Duration;

use emmclab_trace::Result;
use remote::RemoteTransport;
pub use remote::helper_command;

use crate::disks::TargetDisks;
use crate::kernel_format::Files;
use crate::recorder::RecordTarget;

/// What to record and how, derived from the texts of the recorded machine.
#[derive(Clone, Debug)]
pub(crate) struct RecordSetup {
    /// Events by their folder (`block/block_rq_issue`).
    pub(crate) events: Vec<String>,
    /// The kernel's filter expression for the block events; empty for no filter.
    pub(crate) filter: String,
    /// Size of the ring buffer of each CPU, in KB.
    pub(crate) buffer_kb: u32,
    pub(crate) page_bytes: usize,
    pub(crate) events_per_page: usize,
    /// Pause between two rounds of reading all CPUs.
    pub(crate) interval: Duration,
    /// Shell commands that print the registers of the devices.
    pub(crate) registers: String,
}

impl RecordSetup {
    /// Whether the filter applies to this event. Filters apply only to block events.
    fn filters(&self, event: &str) -> bool {
        !self.filter.is_empty() && event.starts_with("block/")
    }
}

/// The result of one round of reading all CPUs.
#[derive(Debug, Default)]
pub(crate) struct ReadRound {
    /// CPUs that still have pages to read.
    pub(crate) behind: Vec<usize>,
    /// Whether this was the last round of reading.
    pub(crate) ended: bool,
}

/// A connection to the ring buffers of one machine. Dropping the connection removes the tracefs instance on that machine.
pub(crate) trait RecordTransport: Send {
    /// Texts from the recorded machine, for [`crate::KernelFormat::from_files`] and [`crate::TargetDisks::parse`].
    fn files(&self) -> &Files;

    /// Reads the registers of the devices, then starts recording. Returns the texts of [`crate::registers`].
    fn begin(&mut self, setup: &RecordSetup) -> Result<Files>;

    /// Reads every CPU once and calls `page` with each page and its CPU. Pauses first if the last call read everything.
    fn round(&mut self, page: &mut dyn FnMut(usize, &[u8])) -> Result<ReadRound>;

    /// Stops recording. The caller then continues to call `round` until the last round has ended.
    fn stop(&mut self);

    /// Returns the `stats` text of each CPU, after the last round of reading.
    fn counters(&self) -> Vec<(usize, String)>;

    /// Returns the kernel's list of tasks as lines `PID NAME`, after the last round of reading; empty if it is not available.
    fn saved_names(&self) -> String;

    /// The disks that exist now; `None` if the transport reports them only at the end of the recording or not at all.
    fn disks_now(&self) -> Option<TargetDisks>;

    /// Whether this task belongs to the recorder.
    fn is_own(&self, task: i32) -> bool;
}

/// Connects to a machine and creates the tracefs instance there.
pub(crate) fn open(target: &RecordTarget) -> Result<Box<dyn RecordTransport>> {
    Ok(match target {
        RecordTarget::Local => Box::new(local::LocalTransport::open()?),
        RecordTarget::Ssh { destination, options } => {
            // The ssh client of this host, with the user's configuration, keys and agent. `--` prevents it from parsing the destination
            // as an option.
            let mut command =
                ["ssh", "-T", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"].map(str::to_owned).to_vec();
            command.extend_from_slice(options);
            command.extend(["--".to_owned(), destination.to_owned(), helper_command()]);
            Box::new(RemoteTransport::spawn(&command)?)
        }
        RecordTarget::Adb { serial, port } => Box::new(remote::open_adb(serial.as_deref(), *port)?),
        RecordTarget::Command(command) => Box::new(remote::RemoteTransport::spawn(command)?),
    })
}
