//! The state that the host shares with its file systems: page cache, block layer, tasks and time.

use emmclab_base::{BlockNote, BlockRole, Nanos, Op, RequestFlags};

use crate::block::{BioContents, BioId, BioRequest, BlockLayer, CompletedRequest};
use crate::cache::{PAGE_SECTORS, PageCache};
use crate::config::HostConfig;
use crate::request::IoCause;
use crate::task::{FilesystemJob, TaskId, TaskTable, TaskWork};

/// The shared state of the host and its file systems.
#[derive(Debug)]
pub(crate) struct HostCore {
    pub config: HostConfig,
    pub now: Nanos,
    pub cache: PageCache,
    pub queue: BlockLayer,
    pub tasks: TaskTable,
}

impl HostCore {
    /// Submits a bio.
    pub fn submit(&mut self, bio: BioRequest) -> BioId {
        self.queue.submit(bio, self.now)
    }

    /// Submits a bio and makes a task wait for it.
    pub fn submit_for(&mut self, bio: BioRequest, task: TaskId) -> BioId {
        let id = self.submit(bio);
        self.await_bio(id, task);
        id
    }

    /// Makes a task wait for a bio if that is still in progress; returns whether it is.
    pub fn await_bio(&mut self, bio: BioId, task: TaskId) -> bool {
        self.queue.await_bio(bio, task, &mut self.tasks)
    }

    /// The cause of the requests that a task submits.
    pub fn cause(&self, task: TaskId) -> IoCause {
        match self.tasks[task].work {
            TaskWork::Operation(caller, _) => IoCause::Caller(caller),
            TaskWork::Filesystem(_, FilesystemJob::Commit) => IoCause::Commit,
            TaskWork::Filesystem(_, FilesystemJob::Checkpoint) => IoCause::Checkpoint,
            TaskWork::Filesystem(_, FilesystemJob::Clean) => IoCause::Cleaning,
            TaskWork::Flusher | TaskWork::Idle => IoCause::WriteBack,
        }
    }

    /// Applies the completion of a request to its bios and pages.
    pub fn finish(&mut self, mut completed: CompletedRequest) {
        while let Some(bio) = self.queue.next_bio(&mut completed, &mut self.tasks) {
            if let BioContents::Pages { inode, page } = bio.content {
                let pages = (u64::from(bio.sectors) / PAGE_SECTORS) as u32;
                self.cache.complete(inode, page, pages, bio.op == Op::Write);
            }
        }
    }

    /// A bio for pages of a file, starting with page `first`, that are stored from `sector` on.
    pub fn page_bio(&self, op: Op, (inode, first): (u32, u64), sector: u64, pages: u64, cause: IoCause) -> BioRequest {
        let file = self.cache.inode(inode);
        let sectors = (pages * PAGE_SECTORS) as u32;
        BioRequest {
            op,
            flags: RequestFlags::empty(),
            sector,
            sectors,
            mount: file.mount,
            class: file.class,
            cause,
            content: BioContents::Pages { inode, page: first as u32 },
            note: (op == Op::Write).then(|| BlockNote::new(BlockRole::Data, sectors)),
        }
    }
}
