//! A log of segments, for file systems that never write in place: the location of each page, live pages per segment, and cleaning.

use std::collections::{BTreeMap, VecDeque};

use emmclab_base::{BlockNote, BlockRole, CleaningCandidate, CleaningPolicy, Error, ErrorClass, Result, SectorRangeMap};

use crate::block::{BioRequest, NONE};
use crate::cache::PAGE_SECTORS;
use crate::config::Mount;
use crate::core::HostCore;
use crate::core::TaskId;

/// Bit in the index of a page owner that marks a node.
const NODE: u32 = 1 << 31;
/// Number of segments that stay free in addition to those for one round of write-back: one for each head, and two for cleaning.
const SPARE: u64 = 5;
/// Number of sectors of the largest supported partition, 128 GB. The size is limited because the owner of each page is in memory.
const LARGEST: u64 = 1 << 28;
/// Number of pages that are allocated between two checks for free segments.
const TURN: u64 = 1024;

/// Bit in a file number that marks an object of the file system itself, such as a folder or a checkpoint.
pub(super) const OWN: u32 = 1 << 31;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogHead {
    Data,
    Node,
    /// The head for pages that cleaning moves.
    Cold,
}

/// The owner of a page of the log: a page of a file, or one of the file's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PageOwner {
    inode: u32,
    index: u32,
}

const NOBODY: PageOwner = PageOwner { inode: NONE, index: NONE };

#[derive(Clone, Copy, Debug, Default)]
struct LogSegment {
    live: u32,
    written: u32,
    open: bool,
    /// Whether the segment is empty, but cannot be reused yet.
    retired: bool,
}

/// The pages of a file in the log.
#[derive(Debug, Default)]
struct LoggedFile {
    /// Extents of the file, by page number. The value of an extent is its page in the log minus its page in the file.
    data: SectorRangeMap<i64>,
    nodes: BTreeMap<u32, u64>,
}

#[derive(Debug)]
pub(super) struct SegmentLog {
    mount: u16,
    /// First page of the log on the partition.
    first: u64,
    /// Number of pages per segment.
    pages: u64,
    all: Vec<LogSegment>,
    owners: Vec<PageOwner>,
    free: VecDeque<u32>,
    heads: [Option<u32>; 3],
    files: Vec<LoggedFile>,
    internal_files: Vec<LoggedFile>,
    live: u64,
    /// Whether cleaning has found no segment that is worth cleaning. Reset when a segment becomes empty.
    exhausted: bool,
    /// The segment that is being cleaned. `moving` contains the pages that were live when cleaning began.
    victim: Option<u32>,
    moving: Vec<(u64, PageOwner)>,
}

impl SegmentLog {
    /// Creates a log of segments of `pages` pages each, which begins at page `first` of the partition.
    /// Errors: if the partition is too small or too large.
    pub fn new(number: u16, mount: &Mount, first: u64, pages: u64) -> Result<Self> {
        let count = (mount.sectors / PAGE_SECTORS).saturating_sub(first) / pages;
        let least = 4 * (SPARE + TURN.div_ceil(pages));
        if mount.sectors > LARGEST {
            return Err(Error::new(ErrorClass::Config, "the partition is too large for a log-structured file system")
                .of_field("sectors", 0, mount.sectors.to_string().as_bytes())
                .hint(format!("use a partition of at most {LARGEST} sectors")));
        }
        if count < least {
            return Err(Error::new(ErrorClass::Config, "the partition is too small for a log-structured file system")
                .of_field("sectors", 0, mount.sectors.to_string().as_bytes())
                .hint(format!("use a partition of {} sectors or more", (first + least * pages) * PAGE_SECTORS)));
        }
        Ok(Self {
            mount: number,
            first,
            pages,
            all: vec![LogSegment::default(); count as usize],
            owners: vec![NOBODY; (count * pages) as usize],
            free: (0..count as u32).collect(),
            heads: [None; 3],
            files: Vec::new(),
            internal_files: Vec::new(),
            live: 0,
            exhausted: false,
            victim: None,
            moving: Vec::new(),
        })
    }

    /// Number of segments.
    pub fn len(&self) -> u64 {
        self.all.len() as u64
    }

    /// Number of live pages that can be added. It is lower than the number of free pages, so that cleaning always has space.
    pub fn room(&self) -> u64 {
        let kept = 2 * (SPARE + TURN.div_ceil(self.pages)) + self.len() / 20;
        ((self.len() - kept) * self.pages).saturating_sub(self.live)
    }

    /// Whether there are enough free segments to write back a batch of pages and `nodes` blocks of metadata. Also true if cleaning cannot
    /// free any segment.
    pub fn has_free(&self, nodes: u64) -> bool {
        self.exhausted || self.free.len() as u64 >= SPARE + (TURN + nodes).div_ceil(self.pages)
    }

    fn file(&mut self, inode: u32) -> &mut LoggedFile {
        let (files, at) = if inode & OWN == 0 {
            (&mut self.files, inode as usize)
        } else {
            (&mut self.internal_files, (inode & !OWN) as usize)
        };
        if files.len() <= at {
            files.resize_with(at + 1, LoggedFile::default);
        }
        &mut files[at]
    }

    fn existing_file(&self, inode: u32) -> Option<&LoggedFile> {
        if inode & OWN == 0 { self.files.get(inode as usize) } else { self.internal_files.get((inode & !OWN) as usize) }
    }

    /// The sector of a page of a file, and the number of contiguous pages from it on.
    pub fn map(&self, inode: u32, page: u64) -> Option<(u64, u64)> {
        let (from, to, delta) = self.existing_file(inode)?.data.find(page, u64::MAX).next()?;
        (from == page).then(|| (self.sector((page as i64 + delta) as u64), to - from))
    }

    fn sector(&self, page: u64) -> u64 {
        (self.first + page) * PAGE_SECTORS
    }

    /// Allocates up to `count` pages at a head. Returns the first page and the number of pages.
    fn append(&mut self, head: LogHead, count: u64) -> (u64, u64) {
        let open = self.heads[head as usize].filter(|at| u64::from(self.all[*at as usize].written) < self.pages);
        let at = open.unwrap_or_else(|| {
            if let Some(full) = self.heads[head as usize] {
                self.all[full as usize].open = false;
            }
            let next = self.free.pop_front();
            assert!(next.is_some(), "segments are kept free for every turn of write-back");
            let next = next.unwrap_or(0);
            self.all[next as usize] = LogSegment { open: true, ..LogSegment::default() };
            self.heads[head as usize] = Some(next);
            next
        });
        let segment = &mut self.all[at as usize];
        let taken = count.min(self.pages - u64::from(segment.written));
        let from = u64::from(at) * self.pages + u64::from(segment.written);
        segment.written += taken as u32;
        segment.live += taken as u32;
        self.live += taken;
        (from, taken)
    }

    /// Marks a page of the log as not live.
    fn drop_page(&mut self, page: u64) {
        self.owners[page as usize] = NOBODY;
        self.all[(page / self.pages) as usize].live -= 1;
        self.live -= 1;
    }

    fn drop_data(&mut self, inode: u32, from: u64, to: u64) {
        let pages: Vec<(u64, u64)> = {
            let at = |page: u64, delta: i64| (page as i64 + delta) as u64;
            let extents = self.file(inode).data.find(from, to);
            extents.map(|(from, to, delta)| (at(from, *delta), at(to, *delta))).collect()
        };
        for (from, to) in pages {
            for page in from..to {
                self.drop_page(page);
            }
        }
    }

    /// Appends pages of a file. Returns their first sector and their number.
    pub fn place(&mut self, head: LogHead, inode: u32, page: u64, count: u64) -> (u64, u64) {
        let (at, taken) = self.append(head, count);
        self.drop_data(inode, page, page + taken);
        self.file(inode).data.set(page, page + taken, at as i64 - page as i64);
        for step in 0..taken {
            self.owners[(at + step) as usize] = PageOwner { inode, index: (page + step) as u32 };
        }
        (self.sector(at), taken)
    }

    /// Appends a node of a file. Returns its sector.
    pub fn place_node(&mut self, head: LogHead, inode: u32, node: u32) -> u64 {
        let (at, _) = self.append(head, 1);
        if let Some(old) = self.file(inode).nodes.insert(node, at) {
            self.drop_page(old);
        }
        self.owners[at as usize] = PageOwner { inode, index: node | NODE };
        self.sector(at)
    }

    pub fn node(&self, inode: u32, node: u32) -> Option<u64> {
        self.existing_file(inode)?.nodes.get(&node).map(|page| self.sector(*page))
    }

    /// Drops the pages of a file from `page` on.
    pub fn truncate(&mut self, inode: u32, page: u64) {
        self.drop_data(inode, page, u64::MAX);
        self.file(inode).data.remove(page, u64::MAX);
    }

    /// Drops all pages and nodes of a file.
    pub fn remove(&mut self, inode: u32) {
        self.truncate(inode, 0);
        for page in std::mem::take(&mut self.file(inode).nodes).into_values() {
            self.drop_page(page);
        }
    }

    /// Returns the bio that writes a page with metadata of the file system itself.
    pub fn own_write(&self, core: &HostCore, task: TaskId, sector: u64) -> BioRequest {
        BioRequest::write(self.mount, sector, PAGE_SECTORS as u32, BlockRole::Metadata, core.cause(task))
    }

    /// Selects the segment with the fewest live pages and reads these pages. Returns false if no segment is worth cleaning.
    pub fn begin_clean(&mut self, core: &mut HostCore, task: TaskId) -> bool {
        let full = |segment: &LogSegment| !segment.open && !segment.retired && u64::from(segment.written) == self.pages;
        let candidates = (0..).zip(&self.all).filter(|(_, segment)| full(segment));
        let candidates = candidates.map(|(at, segment)| CleaningCandidate { segment: at, live: segment.live, age: 0 });
        let Some(victim) = CleaningPolicy::Greedy.choose(candidates, self.pages as u32) else {
            self.exhausted = true;
            return false;
        };
        self.victim = Some(victim);
        let from = u64::from(victim) * self.pages;
        self.moving.clear();
        for page in from..from + self.pages {
            let owner = self.owners[page as usize];
            if owner != NOBODY {
                self.moving.push((page, owner));
                // Pages in the page cache need no read.
                if (owner.index | owner.inode) & NODE == 0 && core.cache.has(owner.inode, owner.index) {
                    continue;
                }
                let cause = core.cause(task);
                core.submit_for(BioRequest::read(self.mount, self.sector(page), PAGE_SECTORS as u32, cause), task);
            }
        }
        true
    }

    /// Appends the live pages of the segment that is being cleaned to the log for cold data. Returns the data pages among the live pages,
    /// as object and page.
    pub fn move_live(&mut self, core: &mut HostCore, task: TaskId) -> Vec<(u32, u64)> {
        let mut moved = Vec::new();
        for (page, owner) in std::mem::take(&mut self.moving) {
            if self.owners[page as usize] != owner {
                continue;
            }
            let (sector, role) = if owner.index & NODE == 0 {
                moved.push((owner.inode, u64::from(owner.index)));
                (self.place(LogHead::Cold, owner.inode, u64::from(owner.index), 1).0, BlockRole::Data)
            } else {
                (self.place_node(LogHead::Cold, owner.inode, owner.index & !NODE), BlockRole::Metadata)
            };
            let mut write = self.own_write(core, task, sector);
            write.note = Some(BlockNote::new(role, PAGE_SECTORS as u32));
            if role == BlockRole::Data && owner.inode & OWN == 0 {
                write.class = core.cache.inode(owner.inode).class;
            }
            core.submit_for(write, task);
        }
        moved
    }

    /// Retires the cleaned segment and all others without live pages. Returns their first sectors and lengths.
    pub fn retire(&mut self) -> Vec<(u64, u32)> {
        self.victim = None;
        let mut retired = Vec::new();
        for at in 0..self.all.len() {
            let segment = &mut self.all[at];
            if segment.live == 0 && u64::from(segment.written) == self.pages && !segment.open && !segment.retired {
                segment.retired = true;
                self.exhausted = false;
                retired.push((self.sector(at as u64 * self.pages), (self.pages * PAGE_SECTORS) as u32));
            }
        }
        retired
    }

    /// Makes retired segments available for reuse.
    pub fn release(&mut self) {
        for (at, segment) in self.all.iter_mut().enumerate() {
            if segment.retired {
                *segment = LogSegment::default();
                self.free.push_back(at as u32);
            }
        }
    }
}

/// Appends pages of a file to the data head. Pages that had no location in the log before use up reserved space.
pub(super) fn place_counted(log: &mut SegmentLog, reserved: &mut u64, inode: u32, page: u64, count: u64) -> (u64, u64) {
    let live = log.live;
    let placed = log.place(LogHead::Data, inode, page, count);
    *reserved = reserved.saturating_sub(log.live - live);
    placed
}
