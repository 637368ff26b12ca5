//! A writer of journals, based on Linux `fs/jbd2/commit.c` and `revoke.c`. It shares no code with the reader.

use std::path::Path;
use std::sync::OnceLock;

use super::Images;
use proptest::prelude::*;

/// Number of home blocks in the tests: the last blocks of the image, which are free.
pub const HOMES: u64 = 48;
pub const MAGIC: u32 = 0xC03B_3998;
const UUID: [u8; 16] = *b"journal of tests";

/// An image into which journals are written.
pub struct Base {
    pub bytes: Vec<u8>,
    pub block_size: usize,
    pub map: Vec<usize>,
}

/// An image with a journal of 1,024 blocks of 1,024, 4,096 or 65,536 bytes, or of 2,048 blocks (number 3), which has space for fast
/// commits. Each image is created once. `None` skips the test, as in [`Images::if_possible`].
pub fn base(number: usize) -> Option<&'static Base> {
    static BASES: [OnceLock<Base>; 4] = [const { OnceLock::new() }; 4];
    let images = Images::if_possible(false, &[])?;
    Some(BASES[number].get_or_init(|| {
        let (block_size, blocks) = [(1024, 1024), (4096, 1024), (65_536, 1024), (1024, 2048)][number];
        let size = format!("size={}", (block_size * blocks) >> 20);
        let bytes = 2 * (block_size * blocks) as u64 + (2 << 20);
        let path = images.make("base", bytes, &["-b", &block_size.to_string(), "-N", "64", "-J", &size]);
        Base { bytes: std::fs::read(&path).unwrap(), block_size, map: journal_blocks(&path) }
    }))
}

impl Base {
    pub fn home(&self, number: u64) -> u64 {
        (self.bytes.len() / self.block_size) as u64 - 1 - number % HOMES
    }

    pub fn writer(&self, form: Form, start: usize, sequence: u32) -> Writer {
        Writer::new(self.bytes.clone(), self.block_size, self.map.clone(), form, start, sequence)
    }
}

/// The format of the journal that is written.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Version of the checksums; 0 for none.
    pub checksums: u8,
    pub wide: bool,
    pub is_async: bool,
    pub fast_commit: bool,
}

impl Form {
    fn per_block(self) -> bool {
        self.checksums >= 2
    }
}

/// Formats without fast commits.
pub fn form() -> impl Strategy<Value = Form> {
    (0_u8..4, any::<bool>(), any::<bool>()).prop_map(|(checksums, wide, is_async)| Form {
        checksums,
        wide,
        is_async,
        fast_commit: false,
    })
}

/// What is wrong with a transaction on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// The commit block is missing.
    Torn,
    Commit,
    Descriptor,
    Revoke,
    /// A logged block is damaged.
    Block(usize),
}

#[derive(Clone, Debug)]
pub struct Transaction {
    /// Home blocks, and the byte with which each is filled.
    pub blocks: Vec<(u64, Fill)>,
    pub revokes: Vec<u64>,
    pub seconds: u64,
    pub fault: Fault,
    /// Whether a UUID follows every tag rather than only the first one.
    pub uuids: bool,
}

/// The contents of a logged block.
#[derive(Clone, Copy, Debug)]
pub enum Fill {
    Byte(u8),
    /// The block starts with the journal's magic number, so that it must be escaped.
    Escaped(u8),
    /// The sectors whose bit in the second byte is set contain a different byte.
    Sectors(u8, u8),
}

impl Fill {
    /// The block as it is written to its home.
    pub fn block(self, size: usize) -> Vec<u8> {
        match self {
            Self::Byte(byte) => vec![byte; size],
            Self::Escaped(byte) => [&MAGIC.to_be_bytes()[..], &vec![byte; size - 4]].concat(),
            Self::Sectors(byte, odd) => {
                let sector = |at: usize| byte.wrapping_add(odd >> (at % 8) & 1);
                (0..size).map(|at| sector(at / 512)).collect()
            }
        }
    }
}

/// The role of a block of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Descriptor,
    Revoke,
    Commit,
    /// A logged block: its home block, and whether it is escaped.
    Logged(u64, bool),
}

/// A block that was written to the journal.
#[derive(Clone, Debug)]
pub struct Wrote {
    /// The location as a block of the image.
    pub block: usize,
    pub bytes: Vec<u8>,
    pub part: Part,
    pub transaction: u32,
}

pub struct Writer {
    pub image: Vec<u8>,
    form: Form,
    block_size: usize,
    /// The location of each journal block, as a block of the image.
    map: Vec<usize>,
    end: usize,
    at: usize,
    sequence: u32,
    start: usize,
    first_sequence: u32,
    /// The blocks written since this list was last taken.
    pub writes: Vec<Wrote>,
}

/// CRC-32C computed bit by bit, with the seed of the kernel.
pub fn crc32c(state: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(state, |state, byte| {
        (0..8).fold(state ^ u32::from(*byte), |state, _| (state >> 1) ^ (0x82F6_3B78 & (state & 1).wrapping_neg()))
    })
}

/// CRC-32 computed bit by bit, beginning with the high bit.
fn crc32_be(state: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(state, |state, byte| {
        (0..8).fold(state ^ (u32::from(*byte) << 24), |state, _| (state << 1) ^ (0x04C1_1DB7 & (state >> 31).wrapping_neg()))
    })
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// The blocks of the journal's inode, according to debugfs.
pub fn journal_blocks(image: &Path) -> Vec<usize> {
    let output = super::run("debugfs", &["-R", "blocks <8>", super::text(image)]);
    output.split_whitespace().map(|block| block.parse().unwrap()).collect()
}

impl Writer {
    /// A journal in an image of mke2fs. The first transaction starts at block `start` of the log.
    pub fn new(image: Vec<u8>, block_size: usize, map: Vec<usize>, form: Form, start: usize, sequence: u32) -> Self {
        let end = map.len() - if form.fast_commit { 256 } else { 0 };
        let start = 1 + start % (end - 1);
        Self { image, form, block_size, map, end, at: start, sequence, start, first_sequence: sequence, writes: Vec::new() }
    }

    /// Number of blocks of the log that have been written.
    pub fn used(&self) -> usize {
        (self.at + self.end - 1 - self.start) % (self.end - 1)
    }

    fn block(&mut self, block: usize) -> &mut [u8] {
        let at = self.map[block] * self.block_size;
        &mut self.image[at..at + self.block_size]
    }

    fn next(&mut self, bytes: &[u8], part: Part) -> usize {
        let at = self.at;
        let (block, transaction) = (self.map[at], self.sequence);
        self.writes.push(Wrote { block, bytes: bytes.to_vec(), part, transaction });
        self.block(at).copy_from_slice(bytes);
        self.at = if at + 1 == self.end { 1 } else { at + 1 };
        at
    }

    fn header(&self, kind: u32) -> Vec<u8> {
        let mut out = vec![0; self.block_size];
        put(&mut out, 0, &MAGIC.to_be_bytes());
        put(&mut out, 4, &kind.to_be_bytes());
        put(&mut out, 8, &self.sequence.to_be_bytes());
        out
    }

    fn seed() -> u32 {
        crc32c(!0, &UUID)
    }

    fn seal_tail(&self, block: &mut [u8]) {
        if self.form.per_block() {
            let at = block.len() - 4;
            let sum = crc32c(Self::seed(), block);
            put(block, at, &sum.to_be_bytes());
        }
    }

    fn spoil(&mut self, block: usize, byte: usize) {
        self.block(block)[byte] ^= 0x10;
    }

    /// Writes a block with the number of this transaction that does not belong to it, as a fuzzer would.
    pub fn raw(&mut self, kind: u32) {
        let block = self.header(kind);
        self.next(&block, Part::Revoke);
    }

    pub fn transaction(&mut self, transaction: &Transaction) {
        let mut v1 = !0;
        let each = if self.form.wide { 8 } else { 4 };
        let tail = if self.form.per_block() { 4 } else { 0 };
        for part in transaction.revokes.chunks((self.block_size - 16 - tail) / each) {
            let mut block = self.header(5);
            put(&mut block, 12, &((16 + each * part.len()) as u32).to_be_bytes());
            for (number, revoked) in part.iter().enumerate() {
                let bytes = revoked.to_be_bytes();
                put(&mut block, 16 + each * number, &bytes[8 - each..]);
            }
            self.seal_tail(&mut block);
            let at = self.next(&block, Part::Revoke);
            if transaction.fault == Fault::Revoke && self.form.per_block() {
                self.spoil(at, self.block_size - 1);
            }
        }
        let tag_bytes = match (self.form.checksums, self.form.wide) {
            (3, _) => 16,
            (2, true) => 14,
            (2, false) => 10,
            (_, true) => 12,
            (_, false) => 8,
        };
        let behind = |first: bool| if first || transaction.uuids { 16 } else { 0 };
        let room = self.block_size - 12 - tail;
        let per_descriptor = if transaction.uuids { room / (tag_bytes + 16) } else { (room - 16) / tag_bytes };
        for part in transaction.blocks.chunks(per_descriptor) {
            let mut descriptor = self.header(1);
            let mut at = 12;
            let mut logged = Vec::new();
            for (number, (home, fill)) in part.iter().enumerate() {
                let mut flags: u16 = if number + 1 == part.len() { 8 } else { 0 };
                if behind(number == 0) == 0 {
                    flags |= 2;
                }
                let mut block = fill.block(self.block_size);
                if matches!(fill, Fill::Escaped(_)) {
                    flags |= 1;
                    put(&mut block, 0, &[0; 4]);
                }
                let state = crc32c(Self::seed(), &self.sequence.to_be_bytes());
                let sum = crc32c(state, &block);
                put(&mut descriptor, at, &(*home as u32).to_be_bytes());
                if self.form.checksums == 2 {
                    put(&mut descriptor, at + 4, &(sum as u16).to_be_bytes());
                }
                put(&mut descriptor, at + 6, &flags.to_be_bytes());
                if self.form.wide {
                    put(&mut descriptor, at + 8, &((home >> 32) as u32).to_be_bytes());
                }
                if self.form.checksums == 3 {
                    put(&mut descriptor, at + 12, &sum.to_be_bytes());
                }
                at += tag_bytes;
                if flags & 2 == 0 {
                    put(&mut descriptor, at, &UUID);
                    at += 16;
                }
                logged.push(block);
            }
            self.seal_tail(&mut descriptor);
            v1 = crc32_be(v1, &descriptor);
            let place = self.next(&descriptor, Part::Descriptor);
            // Without a checksum the descriptor would refer to other home blocks, some outside of the disk, where e2fsck continues but
            // Linux stops.
            if transaction.fault == Fault::Descriptor && self.form.per_block() {
                self.spoil(place, self.block_size - 1);
            }
            for (number, block) in logged.iter().enumerate() {
                v1 = crc32_be(v1, block);
                let (home, fill) = part[number];
                let place = self.next(block, Part::Logged(home, matches!(fill, Fill::Escaped(_))));
                if transaction.fault == Fault::Block(number) {
                    self.spoil(place, self.block_size / 2);
                }
            }
        }
        if transaction.fault == Fault::Torn {
            return;
        }
        let mut commit = self.header(2);
        put(&mut commit, 0x30, &transaction.seconds.to_be_bytes());
        if self.form.checksums == 1 {
            put(&mut commit, 0xC, &[1, 4]);
            put(&mut commit, 0x10, &v1.to_be_bytes());
        } else if self.form.per_block() {
            let sum = crc32c(Self::seed(), &commit);
            put(&mut commit, 0x10, &sum.to_be_bytes());
        }
        let at = self.next(&commit, Part::Commit);
        if transaction.fault == Fault::Commit {
            self.spoil(at, 0x11);
        }
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// Moves the tail after all written blocks, as after a checkpoint.
    pub fn move_tail(&mut self) {
        (self.start, self.first_sequence) = (self.at, self.sequence);
    }

    /// Writes the journal superblock and the flag that requests recovery. Returns the image.
    pub fn finish(mut self) -> Vec<u8> {
        let form = self.form;
        let (start, sequence) = (self.start as u32, self.first_sequence);
        let block = self.block(0);
        let mut incompat = 1_u32;
        for (on, bit) in
            [(form.wide, 2), (form.is_async, 4), (form.checksums == 2, 8), (form.checksums == 3, 0x10), (form.fast_commit, 0x20)]
        {
            incompat |= if on { bit } else { 0 };
        }
        put(block, 0x18, &sequence.to_be_bytes());
        put(block, 0x1C, &start.to_be_bytes());
        put(block, 0x24, &u32::from(form.checksums == 1).to_be_bytes());
        put(block, 0x28, &incompat.to_be_bytes());
        put(block, 0x30, &UUID);
        if form.per_block() {
            block[0x50] = 4;
            put(block, 0xFC, &[0; 4]);
            let sum = crc32c(!0, &block[..1024]);
            put(block, 0xFC, &sum.to_be_bytes());
        }
        set_recovery(&mut self.image);
        self.image
    }
}

/// Sets the flag by which a file system requests a replay of its journal.
pub fn set_recovery(image: &mut [u8]) {
    let superblock = &mut image[1024..2048];
    superblock[0x60] |= 4;
    let sum = crc32c(!0, &superblock[..0x3FC]);
    // Bit 0x400 of the read-only features: checksums.
    if superblock[0x65] & 4 != 0 {
        put(superblock, 0x3FC, &sum.to_le_bytes());
    }
}
