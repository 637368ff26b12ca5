//! How fast writes of ext4 are named, on one core: a stream of journal blocks (transactions of a descriptor, 64 logged blocks with one
//! sector changed, and a commit), home blocks as they were logged, and data; with as many metadata blocks as are given.
//!
//! ```text
//! cargo run --release -p emmclab-ext4 --example annotate_speed [-- SECONDS of each]
//! ```
//!
//! The file system is made by mke2fs with blocks of 4 KB; the journal is written here, and goes around in its log.

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use emmclab_base::{BlockNote, Role};
use emmclab_ext4::{Annotator, Filesystem, JOURNAL_MAGIC, Location, Status};

const BLOCK: usize = 4096;
const SECTORS: u64 = 8;
const IMAGE_BYTES: u64 = 1 << 30;
const LOGGED: usize = 64;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn make(folder: &Path) -> Outcome<std::fs::File> {
    let path = folder.join("image");
    std::fs::File::create(&path)?.set_len(IMAGE_BYTES)?;
    let tools = format!("{}:/usr/sbin:/sbin", std::env::var("PATH")?);
    let options = ["-q", "-F", "-b", "4096", "-J", "size=64", "-O", "^metadata_csum"];
    let made = Command::new("mkfs.ext4").args(options).arg(&path).env("PATH", tools).status()?;
    if !made.success() {
        return Err("mkfs.ext4 failed".into());
    }
    Ok(std::fs::File::open(&path)?)
}

/// Transactions that go around in a log, each as one request, or two where the log wraps.
struct Log {
    /// First block of the journal on the disk; its blocks follow each other.
    start: u64,
    blocks: u64,
    at: u64,
    sequence: u32,
    request: Vec<u8>,
}

impl Log {
    fn header(block: &mut [u8], kind: u32, sequence: u32) {
        block[..4].copy_from_slice(&JOURNAL_MAGIC.to_be_bytes());
        block[4..8].copy_from_slice(&kind.to_be_bytes());
        block[8..12].copy_from_slice(&sequence.to_be_bytes());
    }

    /// A transaction that logs `homes`, one sector of each with other bytes than before.
    fn fill(&mut self, homes: impl Iterator<Item = u64>) {
        self.sequence += 1;
        self.request.clear();
        self.request.resize((LOGGED + 2) * BLOCK, 0);
        let (descriptor, rest) = self.request.split_at_mut(BLOCK);
        Self::header(descriptor, 1, self.sequence);
        let mut at = 12;
        for (number, (home, block)) in homes.zip(rest.chunks_mut(BLOCK)).enumerate() {
            let last = if number + 1 == LOGGED { 8_u16 } else { 0 };
            let flags = last | if number > 0 { 2 } else { 0 };
            descriptor[at..at + 4].copy_from_slice(&(home as u32).to_be_bytes());
            descriptor[at + 6..at + 8].copy_from_slice(&flags.to_be_bytes());
            at += if number == 0 { 24 } else { 8 };
            block.fill(home as u8 | 1);
            block[512 * (self.sequence as usize % 8)..][..4].copy_from_slice(&self.sequence.to_le_bytes());
        }
        Self::header(&mut rest[LOGGED * BLOCK..], 2, self.sequence);
    }

    /// Names the transaction; the blocks of it.
    fn write(&mut self, annotator: &mut Annotator, notes: &mut Vec<BlockNote>) -> u64 {
        let blocks = (self.request.len() / BLOCK) as u64;
        let first = blocks.min(self.blocks - self.at);
        let (before, after) = self.request.split_at(first as usize * BLOCK);
        annotator.write((self.start + self.at) * SECTORS, before, notes);
        self.at += first;
        if self.at == self.blocks {
            self.at = 1;
        }
        if !after.is_empty() {
            annotator.write((self.start + self.at) * SECTORS, after, notes);
            self.at += (after.len() / BLOCK) as u64;
        }
        blocks
    }
}

fn report(what: &str, blocks: u64, seconds: f64) {
    let gigabytes = (blocks * BLOCK as u64) as f64 / 1e9;
    println!("{what:<44} {:>8.2} GB/s {:>9.0} ns/block", gigabytes / seconds, seconds * 1e9 / blocks as f64);
}

fn main() -> Outcome<()> {
    let seconds: f64 = std::env::args().nth(1).map_or(Ok(2.0), |text| text.parse())?;
    let folder = tempfile::tempdir()?;
    let image = make(folder.path())?;
    let filesystem = Filesystem::open(&image)?;
    let location = Location::inside(&filesystem)?.ok_or("no journal")?;
    let start = location.offset(0).ok_or("an empty journal")? / BLOCK as u64;
    let superblock = location.superblock(&image)?;
    let mut notes = Vec::new();
    for metadata in [64, 4096, 65_536] {
        let mut annotator = Annotator::new();
        annotator.attach(&image)?;
        // The journal's superblock with a log that is not empty.
        let mut block = vec![0; BLOCK];
        std::os::unix::fs::FileExt::read_exact_at(&image, &mut block, start * BLOCK as u64)?;
        block[0x1C..0x20].copy_from_slice(&1_u32.to_be_bytes());
        annotator.write(start * SECTORS, &block, &mut notes);
        if annotator.status() != Status::Following {
            return Err(annotator.status().to_string().into());
        }
        let blocks = u64::from(superblock.blocks);
        let mut log = Log { start, blocks, at: 1, sequence: superblock.sequence, request: Vec::new() };
        let first = IMAGE_BYTES / BLOCK as u64 - metadata;
        let homes =
            |round: u64| (0..LOGGED as u64).map(move |at| first + (round * LOGGED as u64 + at) % metadata);
        for round in 0..=metadata / LOGGED as u64 {
            log.fill(homes(round));
            log.write(&mut annotator, &mut notes);
        }
        let (mut named, mut spent, mut round) = (0, 0.0, 0);
        while spent < seconds {
            log.fill(homes(round));
            let begin = Instant::now();
            named += log.write(&mut annotator, &mut notes);
            spent += begin.elapsed().as_secs_f64();
            round += 1;
        }
        if notes.iter().any(|note| note.role == Role::Data) {
            return Err("a block of the journal was not named".into());
        }
        report(&format!("journal, {metadata} metadata blocks"), named, spent);
        let (mut named, mut spent) = (0, 0.0);
        let home = vec![5; BLOCK];
        while spent < seconds / 4.0 {
            let begin = Instant::now();
            for at in 0..64_u64 {
                annotator.write((first + (named + at * 7) % metadata) * SECTORS, &home, &mut notes);
            }
            spent += begin.elapsed().as_secs_f64();
            named += 64;
        }
        if notes.iter().any(|note| note.transaction.is_none()) {
            return Err("a home block was not named".into());
        }
        report(&format!("home blocks, {metadata} metadata blocks"), named, spent);
        for blocks in [1, 128] {
            let data = vec![9; blocks * BLOCK];
            let (mut named, mut spent) = (0, 0.0);
            // Before the journal, which mke2fs places in the middle, and the metadata, which is at the end.
            let place = 100_000 * SECTORS;
            while spent < seconds / 4.0 {
                let begin = Instant::now();
                for at in 0..64_u64 {
                    annotator.write(place + at * SECTORS * 128 % 8192, &data, &mut notes);
                }
                spent += begin.elapsed().as_secs_f64();
                named += 64 * blocks as u64;
            }
            report(&format!("data in requests of {} KB", blocks * 4), named, spent);
        }
    }
    // Writes are kept while no file system is known.
    let mut annotator = Annotator::new();
    let data = vec![9; 128 * BLOCK];
    let (mut named, begin) = (0, Instant::now());
    while begin.elapsed().as_secs_f64() < seconds / 4.0 {
        annotator.write(2048 + named * SECTORS % (1 << 21), &data, &mut notes);
        named += 128;
    }
    report("data in requests of 512 KB, no file system", named, begin.elapsed().as_secs_f64());
    Ok(())
}
