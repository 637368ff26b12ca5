//! The file operations of a program, done by the host model above a simulated device or by the kernel of this machine.

mod real;
mod simulated;

use emmclab_base::{Nanos, Result};
use emmclab_host::{CallerId, FileId, FileOp, FileSpec, FinishedOps, Wait};

pub(crate) use real::{RealFiles, RealStorage};
pub(crate) use simulated::Simulated;

/// The files that a program begins with.
pub(crate) trait FileStore {
    /// Says where a path lies and what it holds; the file need not exist.
    ///
    /// # Errors
    /// For an unknown mount.
    fn declare(&mut self, file: FileId, spec: FileSpec) -> Result<()>;

    /// Makes a declared file exist beforehand, with this many bytes.
    ///
    /// # Errors
    /// For a full file system.
    fn preload(&mut self, file: FileId, bytes: u64) -> Result<()>;
}

/// Does file operations, with a clock of its own.
pub(crate) trait Storage {
    /// Begins an operation of a caller. It may have ended when this returns.
    ///
    /// # Errors
    /// For an operation that cannot be done.
    fn begin(&mut self, caller: CallerId, now: Nanos, operation: &FileOp) -> Result<()>;

    /// The time of its next event, where that is known beforehand.
    fn next_event(&self) -> Option<Nanos>;

    /// The time of what happens next in a run whose next known event is at `next`; none if nothing will ever happen.
    ///
    /// # Errors
    /// Where its caller wants the work to end.
    fn wait(&mut self, next: Option<Nanos>) -> Result<Option<Nanos>>;

    /// Does everything that happens up to a time, that time included.
    ///
    /// # Errors
    /// For an operation that failed, and a device that stops.
    fn advance(&mut self, now: Nanos) -> Result<()>;

    /// Appends operations that have ended. What each waited for adds up to the time from its begin until now.
    fn take_finished(&mut self, out: &mut FinishedOps);
}

/// The likely wait of an operation, for storages that cannot tell.
pub(crate) const fn likely_wait(operation: &FileOp) -> Wait {
    match operation {
        FileOp::Read { .. } => Wait::Read,
        _ if operation.is_sync() => Wait::SyncData,
        _ => Wait::DirtyLimit,
    }
}
