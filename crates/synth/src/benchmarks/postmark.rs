//! Postmark (Katcher, "`PostMark`: A New File System Benchmark", 1997) as configured in Kim & Kim, V-A, on an ext4 model.
//!
//! The load of the device: each commit (every 5 s on a phone, here after a number of operations) writes the data of the changed files, file
//! by file, then the journal: descriptor, changed metadata blocks, commit block. Metadata is written to its home location some commits
//! later, in order of address. Reads of recently used files are served from the page cache.

use std::collections::{BTreeSet, VecDeque};

use emmclab_trace::{Nanos, Op, Request, Sector};

use super::ext4::{Block, JOURNAL, ModelInode, ModelVolume};
use crate::distribute::SynthesisRng;

const FILES: u64 = 160_000;
const DIRECTORIES: u64 = 20_000;
const TRANSACTIONS: u64 = 60_000;
const LEAST_BYTES: u64 = 4096;
const MOST_BYTES: u64 = 8192;
/// The 12 GB partition of the paper, in groups of 128 MB.
const GROUPS: usize = 96;
/// Number of operations between two commits. It assumes several hundred new files per second, as on a phone.
const PER_COMMIT: u64 = 1_000;
/// Number of commits after which metadata is written back: 30 s, at a commit every 5 s.
const WRITE_BACK: usize = 6;
/// Number of files that fit into the page cache, which has half of the phone's 1 GB of memory.
const CACHED: u64 = 64_000;
/// Longest request, in blocks: 512 KB.
const MOST_BLOCKS: u64 = 128;

struct PostmarkFile {
    inode: ModelInode,
    directory: u64,
    blocks: Vec<Block>,
    bytes: u64,
    touched: u64,
}

/// The benchmark as a stream of requests.
pub(super) struct Postmark {
    dice: SynthesisRng,
    volume: ModelVolume,
    /// Each directory, with the block that contains its entries.
    directories: Vec<(ModelInode, Block)>,
    files: Vec<PostmarkFile>,
    operations: u64,
    /// Data blocks written since the last commit, in the order of the files.
    data: Vec<Block>,
    metadata: BTreeSet<Block>,
    /// Metadata blocks of the last commits, which are not yet written back.
    waiting: VecDeque<BTreeSet<Block>>,
    journal_next: u64,
    out: VecDeque<Request>,
    ended: bool,
}

impl Postmark {
    pub fn new(seed: u64) -> Self {
        let mut postmark = Self {
            dice: SynthesisRng::new(seed),
            volume: ModelVolume::new(GROUPS),
            directories: Vec::new(),
            files: Vec::new(),
            operations: 0,
            data: Vec::new(),
            metadata: BTreeSet::new(),
            waiting: VecDeque::new(),
            journal_next: 0,
            out: VecDeque::new(),
            ended: false,
        };
        for i in 0..DIRECTORIES {
            let inode = postmark.volume.directory(i, DIRECTORIES);
            let block = postmark.volume.allocate(inode).unwrap_or_default();
            postmark.directories.push((inode, block));
            postmark.metadata.extend(ModelVolume::metadata(inode));
            postmark.metadata.insert(block);
        }
        postmark
    }

    /// Executes one operation, and a commit if it is due.
    fn operate(&mut self) {
        if self.operations < FILES {
            self.create();
        } else if self.operations < FILES + TRANSACTIONS {
            // A PostMark transaction creates or deletes a file, and reads or appends to another file.
            if self.dice.below(2) == 0 {
                self.create();
            } else {
                self.delete();
            }
            if self.dice.below(2) == 0 {
                self.read();
            } else {
                self.append();
            }
        } else {
            // At the end, all remaining blocks are written, including the last metadata.
            self.commit();
            while !self.waiting.is_empty() {
                self.write_back();
            }
            self.ended = true;
            return;
        }
        self.operations += 1;
        if self.operations.is_multiple_of(PER_COMMIT) {
            self.commit();
        }
    }

    fn mark_dirty(&mut self, inode: ModelInode, directory: u64) {
        self.metadata.extend(ModelVolume::metadata(inode));
        self.metadata.insert(self.directories[directory as usize].1);
    }

    fn create(&mut self) {
        let directory = self.dice.below(DIRECTORIES);
        let inode = self.volume.file(self.directories[directory as usize].0);
        let bytes = LEAST_BYTES + self.dice.below(MOST_BYTES - LEAST_BYTES + 1);
        let mut file = PostmarkFile { inode, directory, blocks: Vec::new(), bytes: 0, touched: self.operations };
        self.extend(&mut file, bytes);
        self.mark_dirty(inode, directory);
        self.files.push(file);
    }

    /// Appends bytes to a file. Its last block is written again if it was not full.
    fn extend(&mut self, file: &mut PostmarkFile, bytes: u64) {
        if !file.bytes.is_multiple_of(4096) {
            self.data.extend(file.blocks.last());
        }
        file.bytes += bytes;
        while (file.blocks.len() as u64) < file.bytes.div_ceil(4096) {
            let Some(block) = self.volume.allocate(file.inode) else { return };
            file.blocks.push(block);
            self.data.push(block);
        }
    }

    fn delete(&mut self) {
        let at = self.dice.below(self.files.len() as u64) as usize;
        let file = self.files.swap_remove(at);
        for block in file.blocks {
            self.volume.free(block);
        }
        self.mark_dirty(file.inode, file.directory);
    }

    fn read(&mut self) {
        let at = self.dice.below(self.files.len() as u64) as usize;
        let cached = self.files[at].touched + CACHED > self.operations;
        self.files[at].touched = self.operations;
        if !cached {
            let blocks = std::mem::take(&mut self.files[at].blocks);
            runs(&blocks, |first, count| self.out.push_back(request(Op::Read, first, count)));
            self.files[at].blocks = blocks;
        }
    }

    fn append(&mut self) {
        let at = self.dice.below(self.files.len() as u64) as usize;
        let bytes = 1 + self.dice.below(MOST_BYTES);
        let mut file = self.files.swap_remove(at);
        file.touched = self.operations;
        self.extend(&mut file, bytes);
        self.mark_dirty(file.inode, file.directory);
        self.files.push(file);
    }

    fn commit(&mut self) {
        let data = std::mem::take(&mut self.data);
        runs(&data, |first, count| self.out.push_back(request(Op::Write, first, count)));
        let metadata = std::mem::take(&mut self.metadata);
        // The descriptor and the metadata blocks of the transaction are written first. The commit block follows separately.
        let mut left = metadata.len() as u64 + 1;
        while left > 0 {
            let count = left.min(MOST_BLOCKS).min(JOURNAL - self.journal_next);
            self.write_journal(count);
            left -= count;
        }
        self.write_journal(1);
        self.out.push_back(Request::new(Nanos(0), Op::Flush, Sector(0), 0));
        self.waiting.push_back(metadata);
        if self.waiting.len() > WRITE_BACK {
            self.write_back();
        }
    }

    fn write_journal(&mut self, count: u64) {
        self.out.push_back(request(Op::Write, self.volume.journal() + self.journal_next, count));
        self.journal_next = (self.journal_next + count) % JOURNAL;
    }

    /// Writes back the metadata of the oldest commit, except the blocks that a later commit changed again.
    fn write_back(&mut self) {
        let Some(oldest) = self.waiting.pop_front() else { return };
        let due = oldest.into_iter().filter(|block| !self.waiting.iter().any(|later| later.contains(block)));
        let due: Vec<Block> = due.collect();
        runs(&due, |first, count| self.out.push_back(request(Op::Write, first, count)));
    }
}

fn request(op: Op, first: Block, count: u64) -> Request {
    Request::new(Nanos(0), op, Sector(first * 8), count as u32 * 8)
}

/// Calls `each` with each run of consecutive blocks: its first block and its length.
fn runs(blocks: &[Block], mut each: impl FnMut(Block, u64)) {
    let mut run: Option<(Block, u64)> = None;
    for &block in blocks {
        run = match run {
            Some((first, count)) if first + count == block && count < MOST_BLOCKS => Some((first, count + 1)),
            other => {
                if let Some((first, count)) = other {
                    each(first, count);
                }
                Some((block, 1))
            }
        };
    }
    if let Some((first, count)) = run {
        each(first, count);
    }
}

impl Iterator for Postmark {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        while self.out.is_empty() && !self.ended {
            self.operate();
        }
        self.out.pop_front()
    }
}
