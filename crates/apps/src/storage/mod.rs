//! Executes the file operations of a program, by the host model on a simulated device or by the kernel of this machine.

mod real;
mod simulated;

use emmclab_base::{Nanos, Result};
use emmclab_host::{CallerId, FileId, FileOp, FileSpec, FinishedOperations, WaitReason};

pub(crate) use real::{RealFiles, RealStorage};
pub(crate) use simulated::SimulatedStorage;

/// Creates the initial files of a program.
pub(crate) trait FileStore {
    /// Declares the location and the contents of a file; the file need not exist.
    ///
    /// # Errors
    /// For an unknown mount.
    fn declare(&mut self, file: FileId, spec: FileSpec) -> Result<()>;

    /// Creates a declared file with this many bytes.
    ///
    /// # Errors
    /// For a full file system.
    fn preload(&mut self, file: FileId, bytes: u64) -> Result<()>;
}

/// Executes file operations, with its own clock.
pub(crate) trait StorageBackend {
    /// Begins an operation of a caller. The operation may already have ended when this returns.
    ///
    /// # Errors
    /// For an operation that is not possible.
    fn begin(&mut self, caller: CallerId, now: Nanos, operation: &FileOp) -> Result<()>;

    /// The time of the next event, if it is known in advance.
    fn next_event(&self) -> Option<Nanos>;

    /// Waits for the next event; the engine's own next event is at `next`. Returns its time, or `None` if nothing will ever happen.
    ///
    /// # Errors
    /// If the caller is interrupted.
    fn wait(&mut self, next: Option<Nanos>) -> Result<Option<Nanos>>;

    /// Processes everything that happens up to and including this time.
    ///
    /// # Errors
    /// For an operation that failed, and if the device has stopped.
    fn advance(&mut self, now: Nanos) -> Result<()>;

    /// Appends operations that have ended. The sum of the waits of each is the time from its begin until now.
    fn take_finished(&mut self, out: &mut FinishedOperations);
}

/// The likely wait of an operation, for storages that do not know it.
pub(crate) const fn likely_wait(operation: &FileOp) -> WaitReason {
    match operation {
        FileOp::Read { .. } => WaitReason::Read,
        _ if operation.is_sync() => WaitReason::SyncData,
        _ => WaitReason::DirtyLimit,
    }
}
