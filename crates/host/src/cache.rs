//! The page cache: pages of files in memory. Clean pages are in a list in the order of their last use.

use std::collections::{BTreeSet, VecDeque};

use emmclab_base::Nanos;

use crate::block::{BioId, NONE};
use crate::core::TaskId;
use crate::operation::{FileClass, FolderId};

pub(crate) const PAGE_SECTORS: u64 = 8;
pub(crate) const PAGE_BYTES: u64 = 4096;

const DIRTY: u8 = 1;
const WRITEBACK: u8 = 1 << 1;
const READING: u8 = 1 << 2;
/// Space on the device is reserved for the page, but not yet allocated (delayed allocation).
const DELAYED: u8 = 1 << 3;
/// When the page is used, the next read-ahead window is read.
const MARKER: u8 = 1 << 4;
/// States in which a page must not be evicted.
const BUSY: u8 = DIRTY | WRITEBACK | READING;

#[derive(Debug)]
struct CachedPage {
    inode: u32,
    index: u32,
    previous: u32,
    next: u32,
    state: u8,
    bio: BioId,
}

/// A file in the cache.
#[derive(Debug)]
pub(crate) struct CachedInode {
    pub mount: u16,
    pub folder: FolderId,
    pub class: FileClass,
    /// Length in bytes.
    pub size: u64,
    /// Length in bytes after all writes in progress.
    pub end: u64,
    pub opens: u32,
    /// Number of operations in progress on the file.
    pub uses: u32,
    /// Whether a path refers to the file.
    pub linked: bool,
    /// Whether the file is being created.
    pub making: bool,
    /// Whether the file was opened since the mount.
    pub found: bool,
    /// The task that has the lock of the file.
    pub lock: Option<TaskId>,
    pub ahead: FileReadAhead,
    pages: PageTree,
    dirty: u32,
    writeback: u32,
    dirtied: Nanos,
}

/// The result of looking up a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageLookup {
    Missing,
    Reading(BioId),
    /// The page is in memory. If the value is true, use of the page starts the read of the next read-ahead window.
    Present(bool),
}

#[derive(Debug)]
pub(crate) struct PageCache {
    pages: Vec<CachedPage>,
    free: Vec<u32>,
    inodes: Vec<CachedInode>,
    free_inodes: Vec<u32>,
    /// The most recently used clean page.
    newest: u32,
    /// The clean page that is evicted next.
    oldest: u32,
    capacity: u64,
    resident: u64,
    dirty: u64,
    writeback: u64,
    /// Files with dirty pages, ordered by the time at which their first page became dirty.
    dirty_inodes: BTreeSet<(Nanos, u32)>,
    /// Files with pages that are being written.
    writing_inodes: BTreeSet<u32>,
}

impl PageCache {
    pub fn new(capacity: u64) -> Self {
        Self {
            pages: Vec::new(),
            free: Vec::new(),
            inodes: Vec::new(),
            free_inodes: Vec::new(),
            newest: NONE,
            oldest: NONE,
            capacity,
            resident: 0,
            dirty: 0,
            writeback: 0,
            dirty_inodes: BTreeSet::new(),
            writing_inodes: BTreeSet::new(),
        }
    }

    /// Adds a file, and returns its number.
    pub fn add_inode(&mut self, mount: u16, folder: FolderId, class: FileClass) -> u32 {
        let inode = CachedInode {
            mount,
            folder,
            class,
            size: 0,
            end: 0,
            opens: 0,
            uses: 0,
            linked: true,
            making: false,
            found: false,
            lock: None,
            ahead: FileReadAhead::default(),
            pages: PageTree::default(),
            dirty: 0,
            writeback: 0,
            dirtied: Nanos::ZERO,
        };
        if let Some(free) = self.free_inodes.pop() {
            self.inodes[free as usize] = inode;
            return free;
        }
        self.inodes.push(inode);
        self.inodes.len() as u32 - 1
    }

    /// Removes a file that has no pages left.
    pub fn remove_inode(&mut self, inode: u32) {
        self.free_inodes.push(inode);
    }

    pub fn inode(&self, inode: u32) -> &CachedInode {
        &self.inodes[inode as usize]
    }

    pub fn inode_mut(&mut self, inode: u32) -> &mut CachedInode {
        &mut self.inodes[inode as usize]
    }

    /// Number of pages that are dirty or being written.
    pub fn unwritten(&self) -> u64 {
        self.dirty + self.writeback
    }

    /// Number of dirty pages.
    pub fn dirty(&self) -> u64 {
        self.dirty
    }

    /// The files whose first page became dirty at or before `until`, the oldest first.
    pub fn dirty_before(&self, until: Nanos, out: &mut VecDeque<u32>) {
        out.extend(self.dirty_inodes.iter().take_while(|(at, _)| *at <= until).map(|(_, inode)| *inode));
    }

    /// The files with pages that are dirty or being written.
    pub fn unwritten_files(&self, out: &mut VecDeque<u32>) {
        self.dirty_before(Nanos::MAX, out);
        out.extend(&self.writing_inodes);
    }

    /// The time at which the oldest dirty page became dirty.
    pub fn oldest_dirty(&self) -> Option<Nanos> {
        self.dirty_inodes.first().map(|(at, _)| *at)
    }

    /// Looks up a page, and marks it as most recently used.
    pub fn find(&mut self, inode: u32, index: u32) -> PageLookup {
        let Some(slot) = self.inodes[inode as usize].pages.get(index) else { return PageLookup::Missing };
        let page = &mut self.pages[slot as usize];
        if page.state & READING != 0 {
            return PageLookup::Reading(page.bio);
        }
        let marker = page.state & MARKER != 0;
        page.state &= !MARKER;
        if page.state & BUSY == 0 && self.newest != slot {
            self.unlink(slot);
            self.link(slot);
        }
        PageLookup::Present(marker)
    }

    /// Whether a page is in memory or being read.
    pub fn has(&self, inode: u32, index: u32) -> bool {
        self.inodes[inode as usize].pages.get(index).is_some()
    }

    /// Whether a page is dirty and has no block on the device.
    pub fn is_delayed(&self, inode: u32, index: u32) -> bool {
        let slot = self.inodes[inode as usize].pages.get(index);
        slot.is_some_and(|slot| self.pages[slot as usize].state & DELAYED != 0)
    }

    /// Inserts a page that the bio `reading` is reading; `None` inserts a page of zeros.
    pub fn insert(&mut self, inode: u32, index: u32, reading: Option<BioId>) {
        if self.resident >= self.capacity && self.oldest != NONE {
            self.evict(self.oldest);
        }
        self.resident += 1;
        let state = if reading.is_some() { READING } else { 0 };
        let bio = reading.unwrap_or(BioId::NONE);
        let page = CachedPage { inode, index, previous: NONE, next: NONE, state, bio };
        let slot = if let Some(free) = self.free.pop() {
            self.pages[free as usize] = page;
            free
        } else {
            self.pages.push(page);
            self.pages.len() as u32 - 1
        };
        self.inodes[inode as usize].pages.set(index, slot);
        if state == 0 {
            self.link(slot);
        }
    }

    /// Marks a page in memory so that its use starts the read of the next window.
    pub fn mark(&mut self, inode: u32, index: u32) {
        if let Some(slot) = self.inodes[inode as usize].pages.get(index) {
            self.pages[slot as usize].state |= MARKER;
        }
    }

    /// Marks a page in memory as dirty, and as delayed if it has no block on the device. Returns whether it became delayed.
    pub fn dirty_page(&mut self, inode: u32, index: u32, delayed: bool, now: Nanos) -> bool {
        let Some(slot) = self.inodes[inode as usize].pages.get(index) else { return false };
        let state = self.pages[slot as usize].state;
        if state & BUSY == 0 {
            self.unlink(slot);
        }
        let page = &mut self.pages[slot as usize];
        let newly = delayed && state & DELAYED == 0;
        page.state |= DIRTY | if delayed { DELAYED } else { 0 };
        if state & DIRTY == 0 {
            self.dirty += 1;
            let file = &mut self.inodes[inode as usize];
            file.pages.tag(index, PageTag::Dirty, true);
            if file.dirty == 0 {
                file.dirtied = now;
                self.dirty_inodes.insert((now, inode));
            }
            file.dirty += 1;
        }
        newly
    }

    /// The first dirty page with at least this index.
    pub fn next_dirty(&self, inode: u32, from: u32) -> Option<u32> {
        let file = &self.inodes[inode as usize];
        if file.dirty == 0 { None } else { file.pages.next_tagged(from, PageTag::Dirty) }
    }

    /// The first dirty page that has no block on the device.
    pub fn next_delayed(&self, inode: u32) -> Option<u32> {
        let mut at = 0;
        while let Some(page) = self.next_dirty(inode, at) {
            if self.is_delayed(inode, page) {
                return Some(page);
            }
            at = page + 1;
        }
        None
    }

    /// Whether a page is dirty and not being written.
    pub fn is_writable(&self, inode: u32, index: u32) -> bool {
        let slot = self.inodes[inode as usize].pages.get(index);
        slot.is_some_and(|slot| self.pages[slot as usize].state & (DIRTY | WRITEBACK) == DIRTY)
    }

    /// Marks a dirty page as being written by a bio.
    pub fn begin_write(&mut self, inode: u32, index: u32, bio: BioId) {
        let Some(slot) = self.inodes[inode as usize].pages.get(index) else { return };
        let page = &mut self.pages[slot as usize];
        page.state = page.state & !(DIRTY | DELAYED) | WRITEBACK;
        page.bio = bio;
        self.dirty -= 1;
        self.writeback += 1;
        let file = &mut self.inodes[inode as usize];
        file.pages.tag(index, PageTag::Dirty, false);
        file.pages.tag(index, PageTag::Writing, true);
        if file.writeback == 0 {
            self.writing_inodes.insert(inode);
        }
        file.writeback += 1;
        file.dirty -= 1;
        if file.dirty == 0 {
            self.dirty_inodes.remove(&(file.dirtied, inode));
        }
    }

    /// Marks the pages of a completed bio as clean after a write, or as present after a read.
    pub fn complete(&mut self, inode: u32, first: u32, pages: u32, written: bool) {
        for index in first..first + pages {
            let Some(slot) = self.inodes[inode as usize].pages.get(index) else { continue };
            let page = &mut self.pages[slot as usize];
            page.state &= if written { !WRITEBACK } else { !READING };
            page.bio = BioId::NONE;
            if written {
                self.writeback -= 1;
                let file = &mut self.inodes[inode as usize];
                file.writeback -= 1;
                if file.writeback == 0 {
                    self.writing_inodes.remove(&inode);
                }
                file.pages.tag(index, PageTag::Writing, false);
            }
            if page.state & BUSY == 0 {
                self.link(slot);
            }
        }
    }

    /// Calls `each` with each bio that reads or writes pages of the file from `from` on.
    pub fn under_way(&self, inode: u32, from: u32, mut each: impl FnMut(BioId)) {
        let file = &self.inodes[inode as usize];
        let (mut at, mut last) = (from, BioId::NONE);
        while let Some((index, slot)) = file.pages.next(at) {
            let page = &self.pages[slot as usize];
            if page.state & (WRITEBACK | READING) != 0 && page.bio != last {
                last = page.bio;
                each(last);
            }
            let Some(next) = index.checked_add(1) else { return };
            at = next;
        }
    }

    /// Calls `each` with each bio that writes pages of the file.
    pub fn writing(&self, inode: u32, mut each: impl FnMut(BioId)) {
        let file = &self.inodes[inode as usize];
        if file.writeback == 0 {
            return;
        }
        let (mut at, mut last) = (0, BioId::NONE);
        while let Some(index) = file.pages.next_tagged(at, PageTag::Writing) {
            if let Some(slot) = file.pages.get(index)
                && self.pages[slot as usize].bio != last
            {
                last = self.pages[slot as usize].bio;
                each(last);
            }
            at = index + 1;
        }
    }

    /// Drops the pages of a file from `from` on; none of them may be in use by a bio. Returns the number of dropped pages whose allocation
    /// was delayed.
    pub fn truncate(&mut self, inode: u32, from: u32) -> u64 {
        let (mut at, mut delayed) = (from, 0);
        while let Some((index, slot)) = self.inodes[inode as usize].pages.next(at) {
            let state = self.pages[slot as usize].state;
            delayed += u64::from(state & DELAYED != 0);
            if state & DIRTY != 0 {
                self.dirty -= 1;
                let file = &mut self.inodes[inode as usize];
                file.dirty -= 1;
                if file.dirty == 0 {
                    self.dirty_inodes.remove(&(file.dirtied, inode));
                }
                self.drop_page(slot);
            } else {
                self.evict(slot);
            }
            let Some(next) = index.checked_add(1) else { break };
            at = next;
        }
        delayed
    }

    fn evict(&mut self, slot: u32) {
        self.unlink(slot);
        self.drop_page(slot);
    }

    fn drop_page(&mut self, slot: u32) {
        let CachedPage { inode, index, .. } = self.pages[slot as usize];
        self.inodes[inode as usize].pages.remove(index);
        self.free.push(slot);
        self.resident -= 1;
    }

    fn link(&mut self, slot: u32) {
        let newest = self.newest;
        let page = &mut self.pages[slot as usize];
        (page.previous, page.next) = (NONE, newest);
        if newest == NONE {
            self.oldest = slot;
        } else {
            self.pages[newest as usize].previous = slot;
        }
        self.newest = slot;
    }

    fn unlink(&mut self, slot: u32) {
        let CachedPage { previous, next, .. } = self.pages[slot as usize];
        if previous == NONE {
            self.newest = next;
        } else {
            self.pages[previous as usize].next = next;
        }
        if next == NONE {
            self.oldest = previous;
        } else {
            self.pages[next as usize].previous = previous;
        }
    }
}

/// The window of pages that are read ahead of their use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileReadAhead {
    start: u64,
    size: u64,
    /// Number of unused pages in the current read-ahead window at which the next window is read.
    left: u64,
    previous: Option<u64>,
}

/// A run of pages that are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadAheadWindow {
    pub first: u64,
    pub pages: u64,
    /// The page whose use starts the read of the next window; `None` if none does.
    pub marker: Option<u64>,
}

impl FileReadAhead {
    /// Returns the window to read for a page that is not in memory. The reader requests `requested` pages, beginning with this page;
    /// `history` pages directly before this page are in memory; `most` is the maximum size of a window in pages. If `continues`, a page that
    /// the last window leads to continues it.
    pub fn window_for_missing(&mut self, page: u64, requested: u64, history: u64, most: u64, continues: bool) -> ReadAheadWindow {
        let sequential = page == 0 || self.previous.is_some_and(|previous| page == previous || page == previous + 1);
        let expected = self.size > 0 && (page == self.start + self.size - self.left || page == self.start + self.size);
        if continues && expected && page != 0 {
            return self.next(most);
        }
        if !sequential && requested <= most {
            if history <= requested {
                // The page is read at random, so nothing is read ahead.
                return ReadAheadWindow { first: page, pages: requested.max(1), marker: None };
            }
            // The pages directly before the missing page are in memory, which suggests a sequential reader. They count twice if they start
            // at the beginning of the file.
            let history = if history >= page { 2 * history } else { history };
            (self.start, self.size, self.left) = (page, (history + requested).min(most).max(1), 1);
            return self.window();
        }
        let size = initial(requested.max(1), most);
        (self.start, self.size) = (page, size);
        self.left = if size > requested { size - requested } else { size >> u32::from(!continues) };
        self.window()
    }

    /// Returns the next window after a marked page was used. If readers are interleaved, the mark may belong to an older window. The window
    /// then starts at `missing`, the first page after the mark that is not in memory.
    pub fn window_for_marked(&mut self, page: u64, missing: u64, most: u64) -> ReadAheadWindow {
        if page == self.start + self.size - self.left {
            return self.next(most);
        }
        (self.start, self.size) = (missing, grown(missing - page + 1, most));
        self.left = self.size;
        self.window()
    }

    fn next(&mut self, most: u64) -> ReadAheadWindow {
        self.start += self.size;
        self.size = grown(self.size, most);
        self.left = self.size;
        self.window()
    }

    pub fn record_use(&mut self, page: u64) {
        self.previous = Some(page);
    }

    fn window(&self) -> ReadAheadWindow {
        let marker = (self.left > 0).then(|| self.start + self.size - self.left);
        ReadAheadWindow { first: self.start, pages: self.size, marker }
    }
}

fn initial(requested: u64, most: u64) -> u64 {
    let size = requested.next_power_of_two();
    let size = if size <= most / 32 {
        size * 4
    } else if size <= most / 4 {
        size * 2
    } else {
        most
    };
    size.max(1)
}

fn grown(size: u64, most: u64) -> u64 {
    if size < most / 16 {
        size * 4
    } else if size <= most / 2 {
        size * 2
    } else {
        most.max(1)
    }
}

const CHUNK: usize = 512;

#[derive(Debug)]
struct PageChunk {
    slots: [u32; CHUNK],
    bits: [[u64; CHUNK / 64]; 2],
}

#[derive(Clone, Copy, Debug)]
enum PageTag {
    Dirty,
    Writing,
}

/// The cached pages of a file, as a tree.
#[derive(Debug, Default)]
struct PageTree {
    chunks: Vec<Option<Box<PageChunk>>>,
}

fn split(page: u32) -> (usize, usize) {
    (page as usize / CHUNK, page as usize % CHUNK)
}

impl PageTree {
    /// The slot of a page; `None` if it is not cached.
    #[inline]
    pub fn get(&self, page: u32) -> Option<u32> {
        let (chunk, at) = split(page);
        let slot = self.chunks.get(chunk)?.as_ref()?.slots[at];
        (slot != NONE).then_some(slot)
    }

    pub fn set(&mut self, page: u32, slot: u32) {
        let (chunk, at) = split(page);
        if chunk >= self.chunks.len() {
            self.chunks.resize_with(chunk + 1, || None);
        }
        let new = || Box::new(PageChunk { slots: [NONE; CHUNK], bits: [[0; CHUNK / 64]; 2] });
        self.chunks[chunk].get_or_insert_with(new).slots[at] = slot;
    }

    pub fn remove(&mut self, page: u32) {
        let (chunk, at) = split(page);
        if let Some(Some(chunk)) = self.chunks.get_mut(chunk) {
            chunk.slots[at] = NONE;
            for bits in &mut chunk.bits {
                bits[at / 64] &= !(1 << (at % 64));
            }
        }
    }

    pub fn tag(&mut self, page: u32, tag: PageTag, set: bool) {
        let (chunk, at) = split(page);
        if let Some(Some(chunk)) = self.chunks.get_mut(chunk) {
            let bit = 1 << (at % 64);
            let word = &mut chunk.bits[tag as usize][at / 64];
            *word = if set { *word | bit } else { *word & !bit };
        }
    }

    /// The first page at or after `from` that has a tag: dirty, or being written.
    pub fn next_tagged(&self, from: u32, tag: PageTag) -> Option<u32> {
        let (first, mut at) = split(from);
        for (number, chunk) in self.chunks.iter().enumerate().skip(first) {
            if let Some(chunk) = chunk {
                while at < CHUNK {
                    let bits = chunk.bits[tag as usize][at / 64] >> (at % 64);
                    if bits != 0 {
                        return Some((number * CHUNK + at) as u32 + bits.trailing_zeros());
                    }
                    at = (at / 64 + 1) * 64;
                }
            }
            at = 0;
        }
        None
    }

    /// The first cached page at or after `from`, with its slot.
    pub fn next(&self, from: u32) -> Option<(u32, u32)> {
        let (first, mut at) = split(from);
        for (number, chunk) in self.chunks.iter().enumerate().skip(first) {
            if let Some(chunk) = chunk
                && let Some(index) = (at..CHUNK).find(|at| chunk.slots[*at] != NONE)
            {
                return Some(((number * CHUNK + index) as u32, chunk.slots[index]));
            }
            at = 0;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_a_sequential_reader_grow_from_16_kb_to_the_largest() {
        let mut ahead = FileReadAhead::default();
        let first = ahead.window_for_missing(0, 1, 0, 32, true);
        assert_eq!(first, ReadAheadWindow { first: 0, pages: 4, marker: Some(1) });
        let (mut sizes, mut marker) = (Vec::new(), first.marker);
        for _ in 0..5 {
            let window = ahead.window_for_marked(marker.unwrap(), 0, 32);
            sizes.push(window.pages);
            marker = window.marker;
        }
        assert_eq!(sizes, [8, 16, 32, 32, 32]);
    }

    #[test]
    fn a_page_at_random_is_read_alone() {
        let mut ahead = FileReadAhead::default();
        ahead.record_use(3);
        assert_eq!(ahead.window_for_missing(100, 2, 2, 32, true), ReadAheadWindow { first: 100, pages: 2, marker: None });
    }

    #[test]
    fn a_page_behind_others_in_memory_is_read_with_as_many_more() {
        let mut ahead = FileReadAhead::default();
        ahead.record_use(3);
        assert_eq!(ahead.window_for_missing(100, 1, 2, 32, true), ReadAheadWindow { first: 100, pages: 3, marker: Some(102) });
        ahead.record_use(500);
        assert_eq!(ahead.window_for_missing(8, 1, 8, 32, true).pages, 17);
    }

    #[test]
    fn a_mark_of_an_older_window_reads_on_behind_what_is_in_memory() {
        let mut ahead = FileReadAhead::default();
        ahead.window_for_missing(0, 1, 0, 32, true);
        assert_eq!(ahead.window_for_marked(100, 103, 32), ReadAheadWindow { first: 103, pages: 8, marker: Some(103) });
    }

    #[test]
    fn without_read_ahead_a_window_has_what_was_asked() {
        let mut ahead = FileReadAhead::default();
        assert_eq!(ahead.window_for_missing(0, 1, 0, 0, true).pages, 1);
        assert_eq!(ahead.window_for_missing(9, 1, 0, 0, true).pages, 1);
    }
}
