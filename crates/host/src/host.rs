//! The host.

use emmclab_base::{Flags, Nanos, Op, Request, Result, Sector};

use crate::config::HostConfig;
use crate::finished::{Finished, FinishedOps, Wait, Waited};
use crate::mount::Mount;
use crate::operation::{CallerId, FileClass, FileId, FileOp, FileSpec, MountId};
use crate::request::{BlockRequest, BlockRequestId, BlockRequests, Cause};

/// The host: see the crate's documentation.
pub struct Host {
    config: HostConfig,
    next: u64,
    requests: BlockRequests,
    waiting: Vec<(BlockRequestId, CallerId, Nanos)>,
    finished: FinishedOps,
}

impl Host {
    /// A host with empty memory and fresh file systems.
    ///
    /// # Errors
    /// For settings or mounts that cannot be.
    pub fn new(config: HostConfig, mounts: &[Mount]) -> Result<Self> {
        config.validate()?;
        let _ = mounts;
        Ok(Self {
            config,
            next: 0,
            requests: BlockRequests::default(),
            waiting: Vec::new(),
            finished: FinishedOps::default(),
        })
    }

    /// Says where a path lies and what it holds; the file need not exist.
    ///
    /// # Errors
    /// For an unknown mount, and a path that was declared before.
    pub fn declare(&mut self, file: FileId, spec: FileSpec) -> Result<()> {
        let _ = (file, spec);
        Ok(())
    }

    /// Makes a declared file exist beforehand, with this many bytes, on the device and not in memory.
    ///
    /// # Errors
    /// For an undeclared path, one that exists, and a full file system.
    pub fn preload(&mut self, file: FileId, bytes: u64) -> Result<()> {
        let _ = (file, bytes);
        Ok(())
    }

    /// Begins an operation of a caller. It may have ended when this returns.
    ///
    /// # Errors
    /// For a caller that has an operation under way, a file that is undeclared or missing, and a full file system. Nothing has
    /// happened then.
    pub fn begin(&mut self, caller: CallerId, now: Nanos, operation: &FileOp) -> Result<()> {
        if matches!(operation, FileOp::Fsync { .. }) {
            let id = BlockRequestId(self.next);
            self.next += 1;
            let mut request = Request::new(now, Op::Flush, Sector(0), 0);
            request.flags = Flags::SYNC;
            let cause = Cause::Caller(caller);
            self.requests.requests.push(BlockRequest {
                id,
                request,
                mount: MountId(0),
                class: FileClass::Other,
                cause,
                notes: 0..0,
            });
            self.waiting.push((id, caller, now));
        } else {
            self.finish(caller, now, now, Waited::default());
        }
        Ok(())
    }

    fn finish(&mut self, caller: CallerId, begun: Nanos, at: Nanos, waited: Waited) {
        let cpu_ns = self.config.cpu.operation_ns;
        self.finished.operations.push(Finished { caller, begun, at, cpu_ns, bytes: 0, waited, requests: 0..0 });
    }

    /// When [`Host::advance`] has something to do by itself: commit, write-back, expiry.
    pub fn next_event(&self) -> Option<Nanos> {
        None
    }

    /// Runs the timers that are due. Times never go back, from one call of any method to the next.
    pub fn advance(&mut self, now: Nanos) {
        let _ = now;
    }

    /// Appends what goes to the device now.
    pub fn take_requests(&mut self, out: &mut BlockRequests) {
        let base = out.notes.len() as u32;
        for mut request in self.requests.requests.drain(..) {
            request.notes = request.notes.start + base..request.notes.end + base;
            out.requests.push(request);
        }
        out.notes.append(&mut self.requests.notes);
    }

    /// A request is complete.
    ///
    /// # Panics
    /// For a request that is not under way.
    pub fn completed(&mut self, id: BlockRequestId, now: Nanos) {
        if let Some(at) = self.waiting.iter().position(|(request, ..)| *request == id) {
            let (_, caller, begun) = self.waiting.swap_remove(at);
            let mut waited = Waited::default();
            waited[Wait::SyncCommit] = now - begun;
            self.finish(caller, begun, now, waited);
        }
    }

    /// Appends the operations that ended.
    pub fn take_finished(&mut self, out: &mut FinishedOps) {
        out.operations.append(&mut self.finished.operations);
        out.requests.append(&mut self.finished.requests);
    }

    /// Processor time of the host's own threads (write-back, commits, read-ahead) so far, in ns.
    pub fn kernel_cpu_ns(&self) -> u64 {
        0
    }
}
