//! The layer below a journal keeps the promise of the journal. After a power cut at any moment, with any loss or tearing of data that was
//! not durable, a replay yields the state after some transaction that is not older than the last acknowledged one, and the data of that
//! transaction. The unsafe modes are detected.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::rc::Rc;

use crate::support::{CutDisk, SECTOR};
use emmclab_base::{BlockNote, BlockRole, CommandFlags, Op, SectorSet};
use emmclab_layers::{DisksBelow, ImmediateStack, LayerConfig, build_stack};
use emmclab_testing::SeededRandom;
use proptest::prelude::*;

const BLOCK: usize = 8 * SECTOR;
/// Numbers of blocks: home blocks, the superblock of the journal, the log of the journal, data.
const HOMES: u64 = 24;
const SUPERBLOCK: u64 = 32;
const LOG: std::ops::Range<u64> = 33..97;
const DATA: std::ops::Range<u64> = 128..256;
/// Number of sectors of the device, without the log of the layer.
const SECTORS: u64 = 4096;

type Block = Vec<u8>;

/// How the file system requests that a commit is durable.
#[derive(Clone, Copy, Debug)]
enum Road {
    /// One request: preflush, commit, FUA.
    Fua,
    /// Flush, commit, flush, as through a loop device.
    Flushes,
}

/// A file system with a journal: its contents in memory, and its acknowledged state.
struct Model {
    die: SeededRandom,
    road: Road,
    homes: Vec<Block>,
    /// Contents of each home block in its last logged copy, as known to the annotator.
    copies: BTreeMap<u64, (u32, Block)>,
    data: BTreeMap<u64, Block>,
    transaction: u32,
    /// Next block of the journal's log, and transactions in the log: number, first block, home blocks with their contents.
    head: u64,
    live: VecDeque<(u32, u64, BTreeMap<u64, Block>)>,
    /// State of home blocks and data after each transaction, from 0.
    states: Vec<(Vec<Block>, BTreeMap<u64, Block>)>,
    acknowledged: usize,
    used: u64,
    /// Whether the mode has a journal that can be read back.
    reads_back: bool,
    /// Whether the layer is drained from time to time.
    drains: bool,
}

/// A journal block with a transaction and home blocks, in the format of this test, or a superblock of JBD2.
fn descriptor(kind: [u8; 4], transaction: u32, homes: &[u64]) -> Block {
    let mut block = vec![0; BLOCK];
    block[..4].copy_from_slice(&kind);
    block[4..8].copy_from_slice(&transaction.to_be_bytes());
    block[8..12].copy_from_slice(&(homes.len() as u32).to_be_bytes());
    for (i, home) in homes.iter().enumerate() {
        block[16 + i * 8..24 + i * 8].copy_from_slice(&home.to_be_bytes());
    }
    block
}

fn superblock(transaction: u32, start: u32) -> Block {
    let mut block = vec![0; BLOCK];
    block[..8].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 4]);
    block[0x18..0x1C].copy_from_slice(&transaction.to_be_bytes());
    block[0x1C..0x20].copy_from_slice(&start.to_be_bytes());
    block
}

fn changed(one: &[u8], other: &[u8]) -> SectorSet {
    let sectors = one.chunks(SECTOR).zip(other.chunks(SECTOR)).enumerate();
    SectorSet(sectors.fold(0, |all, (i, (one, other))| all | u128::from(one != other) << i))
}

impl Model {
    fn new(seed: u64, road: Road) -> Self {
        let homes = vec![vec![0; BLOCK]; HOMES as usize];
        Self {
            die: SeededRandom::new(seed),
            road,
            states: vec![(homes.clone(), BTreeMap::new())],
            homes,
            copies: BTreeMap::new(),
            data: BTreeMap::new(),
            transaction: 1 + (seed as u32 % 3) * (u32::MAX / 2),
            head: LOG.start,
            live: VecDeque::new(),
            acknowledged: 0,
            used: 0,
            reads_back: true,
            drains: true,
        }
    }

    /// Works until the power is cut or all transactions are complete.
    fn run(&mut self, disk: &mut ImmediateStack<CutDisk>, transactions: usize) -> io::Result<()> {
        self.write_superblock(disk, 0)?;
        for _ in 0..transactions {
            self.transact(disk)?;
            if self.drains && self.die.below(20) == 0 {
                disk.drain()?;
            }
            while self.used > LOG.end - LOG.start - 16 || (!self.live.is_empty() && self.die.below(6) == 0) {
                let all = self.die.below(4) == 0;
                self.checkpoint(disk, all)?;
            }
        }
        Ok(())
    }

    fn write(
        disk: &mut ImmediateStack<CutDisk>, block: u64, modifiers: CommandFlags, parts: &[(BlockNote, Block)],
    ) -> io::Result<()> {
        let notes: Vec<BlockNote> = parts.iter().map(|(note, _)| *note).collect();
        let mut data: Vec<u8> = parts.iter().flat_map(|(_, data)| data.iter().copied()).collect();
        disk.write_noted(block * 8, modifiers, &notes, &mut data)
    }

    /// Takes the next block of the log, which wraps around.
    fn take_block(&mut self) -> u64 {
        let block = self.head;
        self.head = if block + 1 == LOG.end { LOG.start } else { block + 1 };
        self.used += 1;
        block
    }

    fn transact(&mut self, disk: &mut ImmediateStack<CutDisk>) -> io::Result<()> {
        let transaction = self.transaction;
        self.transaction = transaction.wrapping_add(1);
        for _ in 0..self.die.below(4) {
            let block = DATA.start + self.die.below(DATA.end as usize - DATA.start as usize) as u64;
            // A block is never written twice with the same contents.
            let data: Block = (0..BLOCK / 8).flat_map(|_| self.die.below(usize::MAX).to_le_bytes()).collect();
            self.data.insert(block, data.clone());
            Self::write(disk, block, CommandFlags::empty(), &[(BlockNote::new(BlockRole::Data, 8), data)])?;
        }
        let mut homes: Vec<u64> = (0..=self.die.below(6)).map(|_| self.die.below(HOMES as usize) as u64).collect();
        homes.sort_unstable();
        homes.dedup();
        for home in &homes {
            let (sector, byte) = (self.die.below(8), self.die.below(256) as u8);
            self.homes[*home as usize][sector * SECTOR..][..SECTOR].fill(byte);
        }
        let first = self.head;
        let mut blocks = Vec::new();
        let note =
            |role, changed| BlockNote { transaction: Some(transaction), changed: Some(changed), ..BlockNote::new(role, 8) };
        let named = descriptor(*b"DESC", transaction, &homes);
        blocks.push((self.take_block(), note(BlockRole::Descriptor, changed(&named, &vec![0; BLOCK])), named));
        for home in &homes {
            let contents = self.homes[*home as usize].clone();
            let before = self.copies.insert(*home, (transaction, contents.clone()));
            let note = BlockNote {
                home: Some(home * 8),
                changed: before.map(|(_, before)| changed(&contents, &before)),
                ..note(BlockRole::Logged, SectorSet(0))
            };
            blocks.push((self.take_block(), note, contents));
        }
        // Adjacent blocks are sent as one request or as several.
        let mut at = 0;
        while at < blocks.len() {
            let together = blocks[at..].iter().zip(blocks[at].0..).take_while(|(block, wanted)| block.0 == *wanted).count();
            let together = 1 + self.die.below(together);
            let parts: Vec<_> = blocks[at..at + together].iter().map(|(_, note, data)| (*note, data.clone())).collect();
            let block = blocks[at].0;
            Self::write(disk, block, CommandFlags::empty(), &parts)?;
            at += together;
        }
        let commit = descriptor(*b"COMM", transaction, &[]);
        let parts = [(note(BlockRole::Commit, changed(&commit, &vec![0; BLOCK])), commit)];
        let place = self.take_block();
        if self.live.is_empty() {
            self.write_superblock(disk, first as u32)?;
        }
        let contents = homes.iter().map(|home| (*home, self.homes[*home as usize].clone())).collect();
        self.live.push_back((transaction, first, contents));
        self.states.push((self.homes.clone(), self.data.clone()));
        match self.road {
            Road::Fua => {
                Self::write(disk, place, CommandFlags::PREFLUSH | CommandFlags::RELIABLE, &parts)?;
            }
            Road::Flushes => {
                disk.submit_bare(Op::Flush, 0, 0)?;
                Self::write(disk, place, CommandFlags::empty(), &parts)?;
                disk.submit_bare(Op::Flush, 0, 0)?;
            }
        }
        self.acknowledged = self.states.len() - 1;
        // The contents of the journal can be read back at any time.
        for (block, _, wanted) in blocks.iter().filter(|_| self.reads_back) {
            let mut read = vec![0; BLOCK];
            disk.submit(Op::Read, block * 8, &mut read)?;
            assert!(read == *wanted, "block {block} of transaction {transaction}");
        }
        Ok(())
    }

    /// Writes home blocks from the oldest transaction on, and the journal releases this transaction, or all.
    fn checkpoint(&mut self, disk: &mut ImmediateStack<CutDisk>, all: bool) -> io::Result<()> {
        let count = if all { self.live.len() } else { 1 };
        let gone: Vec<_> = self.live.iter().take(count).cloned().collect();
        for (transaction, _, homes) in &gone {
            for (home, contents) in homes {
                let (last, copy) = &self.copies[home];
                // A block that a later transaction has changed is written by that transaction.
                if last != transaction {
                    continue;
                }
                let note = BlockNote {
                    transaction: Some(*last),
                    changed: Some(changed(contents, copy)),
                    ..BlockNote::new(BlockRole::InodeTable, 8)
                };
                Self::write(disk, *home, CommandFlags::empty(), &[(note, contents.clone())])?;
            }
        }
        // A home block that a later transaction has changed must be in the blocks of that transaction before this one is released.
        disk.submit_bare(Op::Flush, 0, 0)?;
        self.live.drain(..count);
        let start = self.live.front().map_or(0, |(_, first, _)| *first as u32);
        self.write_superblock(disk, start)?;
        let left = self.live.front().map_or(0, |(_, first, _)| (self.head + LOG.end - LOG.start - first) % (LOG.end - LOG.start));
        self.used = left;
        if left == 0 && !self.live.is_empty() {
            self.used = LOG.end - LOG.start;
        }
        Ok(())
    }

    fn write_superblock(&mut self, disk: &mut ImmediateStack<CutDisk>, start: u32) -> io::Result<()> {
        let tail = self.live.front().map_or(self.transaction, |(transaction, ..)| *transaction);
        // After the log was empty, the first superblock contains the transaction that is being written.
        let tail = if start != 0 && self.live.is_empty() { self.transaction.wrapping_sub(1) } else { tail };
        let note = BlockNote {
            transaction: Some(tail),
            home: (start != 0).then_some(u64::from(start) * 8),
            ..BlockNote::new(BlockRole::JournalSuperblock, 8)
        };
        let modifiers = CommandFlags::PREFLUSH | CommandFlags::RELIABLE;
        Self::write(disk, SUPERBLOCK, modifiers, &[(note, superblock(tail, start))])
    }

    /// The possible states of the file system after a replay; empty if there is none.
    fn replay(disk: &mut ImmediateStack<CutDisk>) -> io::Result<Vec<Block>> {
        let mut read = |block: u64| {
            let mut data = vec![0; BLOCK];
            disk.submit(Op::Read, block * 8, &mut data).map(|()| data)
        };
        let mut homes: Vec<Block> = (0..HOMES).map(&mut read).collect::<io::Result<_>>()?;
        let word = |block: &[u8], at: usize| u32::from_be_bytes(block[at..at + 4].try_into().unwrap());
        let journal = read(SUPERBLOCK)?;
        let (mut transaction, mut at) = (word(&journal, 0x18), u64::from(word(&journal, 0x1C)));
        let next = |at: u64| if at + 1 == LOG.end { LOG.start } else { at + 1 };
        while at != 0 {
            let named = read(at)?;
            if !named.starts_with(b"DESC") || word(&named, 4) != transaction {
                break;
            }
            let count = word(&named, 8) as usize;
            let mut copies = Vec::new();
            for i in 0..count {
                at = next(at);
                let home = u64::from_be_bytes(named[16 + i * 8..24 + i * 8].try_into().unwrap());
                copies.push((home, read(at)?));
            }
            at = next(at);
            let commit = read(at)?;
            if !commit.starts_with(b"COMM") || word(&commit, 4) != transaction {
                break;
            }
            for (home, contents) in copies {
                homes[home as usize] = contents;
            }
            at = next(at);
            transaction = transaction.wrapping_add(1);
        }
        Ok(homes)
    }

    /// Returns the lost data, if any: the recovered state must be that after a transaction that is not older than the last acknowledged
    /// one.
    fn lost(&self, disk: &mut ImmediateStack<CutDisk>) -> Option<String> {
        let homes = Self::replay(disk).unwrap();
        let mut reason = "the homes are those of no transaction that may be".to_owned();
        for (number, (wanted, data)) in self.states.iter().enumerate().skip(self.acknowledged).rev() {
            if *wanted != homes {
                continue;
            }
            // Data that the transaction made reachable contains what was written before the transaction, or later.
            let wrong = data.iter().find(|(block, wanted)| {
                let mut read = vec![0; BLOCK];
                disk.submit(Op::Read, **block * 8, &mut read).unwrap();
                let later = self.data.get(block).is_some_and(|later| later != *wanted);
                !later && read != **wanted
            });
            match wrong {
                None => return None,
                Some((block, _)) => reason = format!("data of block {block} of transaction {number}"),
            }
        }
        Some(reason)
    }
}

/// Executes a mode with power cuts. Returns the lost data, if any. Adds the layer's counters until the first cut to `counters`.
fn explore(mode: &str, seed: u64, road: Road, log_kb: u32, counters: &mut BTreeMap<&'static str, u64>) -> Option<String> {
    let config = LayerConfig::named("journal").with("mode", mode).with("log", &format!("{log_kb}KB"));
    let sectors = SECTORS + u64::from(log_kb) * 2;
    // With few sectors per program, writes are forced; with many, they wait for flushes.
    let program_sectors = [2, 8, 32, 256][seed as usize % 4];
    let below = DisksBelow { program_sectors, ..DisksBelow::new(sectors, None) };
    let layers = || build_stack(std::slice::from_ref(&config), &below).unwrap();
    let left = Rc::new(Cell::new(u64::MAX));
    let disk = CutDisk::new(vec![0; sectors as usize * SECTOR], left.clone());
    let mut executor = ImmediateStack::start(layers(), vec![disk], false).unwrap();
    let mut model = Model::new(seed, road);
    model.reads_back = mode != "no_journal";
    model.drains = log_kb < 4096;
    left.set(20 + SeededRandom::new(seed ^ 0xabc).below(600) as u64);
    if model.run(&mut executor, 60).is_ok() {
        left.set(0);
    }
    for (name, count) in executor.layer(0).counters() {
        *counters.entry(name).or_default() += count;
    }
    let mut die = SeededRandom::new(seed ^ 0x1234);
    let mut data = executor.into_disks().remove(0).after(&mut |sides| die.below(sides));
    // The power is also cut while the layer recovers.
    for cuts in 0..3 {
        left.set(if cuts == 2 { u64::MAX } else { die.below(12) as u64 });
        let disk = data.again(left.clone());
        let mut executor = ImmediateStack::stopped(layers(), vec![disk]);
        if executor.wake(true).is_ok() {
            return model.lost(&mut executor);
        }
        data = executor.into_disks().remove(0).after(&mut |sides| die.below(sides));
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(emmclab_testing::cases(200)))]

    #[test]
    fn safe_modes_lose_no_transaction(
        seed: u64,
        mode in prop::sample::select(vec!["legacy", "ordered_fua", "delta", "packed", "aware"]),
        road in prop::sample::select(vec![Road::Fua, Road::Flushes]),
        log_kb in prop::sample::select(vec![128, 512, 4096]),
    ) {
        prop_assert_eq!(explore(mode, seed, road, log_kb, &mut BTreeMap::new()), None);
    }
}

#[test]
fn a_mode_without_barriers_or_journal_is_caught() {
    for mode in ["no_barrier", "no_journal"] {
        let caught = (0..200).filter(|seed| explore(mode, *seed, Road::Fua, 1024, &mut BTreeMap::new()).is_some()).count();
        assert!(caught > 50, "{mode}: {caught} of 200");
    }
}

#[test]
fn each_mode_saves_what_it_is_made_for() {
    let counters = |mode: &str, road| {
        let mut counters = BTreeMap::new();
        let log_kb = if mode == "packed" { 128 } else { 4096 };
        for seed in 0..40 {
            explore(mode, seed, road, log_kb, &mut counters);
        }
        move |name: &str| counters[name]
    };
    for road in [Road::Fua, Road::Flushes] {
        let legacy = counters("legacy", road);
        assert_eq!((legacy("flushes_saved"), legacy("log_records")), (0, 0));
        let fua = counters("ordered_fua", road);
        assert!(fua("flushes_saved") * 3 > fua("flushes"), "{} of {}", fua("flushes_saved"), fua("flushes"));
        let (delta, packed) = (counters("delta", road), counters("packed", road));
        let share = |counter: &dyn Fn(&str) -> u64| counter("log_sectors") * 100 / counter("journal_sectors_logged");
        assert!(share(&delta) < 75, "{} %", share(&delta));
        assert!(delta("log_records") > delta("commits") && packed("log_records") <= packed("commits"));
        assert!(packed("commits_in_place") > 0, "a log of 128 KB is full now and then");
        let aware = counters("aware", road);
        assert!(aware("log_records") <= aware("commits") && aware("flushes_saved") * 3 > aware("flushes"));
        assert!(aware("home_blocks_left") > 0 && share(&aware) < 60, "{} %", share(&aware));
    }
}

#[test]
fn a_disk_without_durable_writes_is_flushed_and_the_layer_says_so() {
    let layer = |mode: &str, durable_writes| {
        let below = DisksBelow { durable_writes, ..DisksBelow::new(1 << 20, None) };
        let config = LayerConfig::named("journal").with("mode", mode);
        build_stack(&[config], &below).unwrap().remove(0)
    };
    for mode in ["ordered_fua", "aware"] {
        assert_eq!(layer(mode, false).left_out(), ["durable writes in place of flushes"]);
        assert!(layer(mode, true).left_out().is_empty());
    }
    assert!(layer("delta", false).left_out().is_empty());
}

/// A request that no file system would send.
#[derive(Clone, Debug)]
enum Event {
    Write(u64, Vec<(usize, u32, Option<u64>, u32)>),
    Read(u64, u32),
    Discard(u64, u32),
    Flush,
    Drain,
}

fn event() -> impl Strategy<Value = Event> {
    let block = 0_u64..40;
    let note = (0..BlockRole::ALL.len(), 0_u32..5, prop::option::of(0_u64..12), 1_u32..9);
    prop_oneof![
        8 => (block.clone(), prop::collection::vec(note, 1..6)).prop_map(|(block, notes)| Event::Write(block, notes)),
        4 => (block.clone(), 1_u32..60).prop_map(|(block, sectors)| Event::Read(block, sectors)),
        1 => (block, 1_u32..30).prop_map(|(block, sectors)| Event::Discard(block, sectors)),
        1 => Just(Event::Flush),
        1 => Just(Event::Drain),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(emmclab_testing::cases(200)))]

    /// Notes of a damaged or foreign journal may contain anything except changed sectors, which are derived from the contents, and releases
    /// of transactions.
    #[test]
    fn what_was_written_is_read_whatever_the_notes_say(
        events in prop::collection::vec(event(), 1..80),
        mode in prop::sample::select(vec!["legacy", "no_barrier", "ordered_fua", "delta", "packed", "aware"]),
    ) {
        let config = LayerConfig::named("journal").with("mode", mode).with("log", "128KB");
        let layers = build_stack(&[config], &DisksBelow::new(4096, None)).unwrap();
        let disk = CutDisk::new(vec![0; 4096 * SECTOR], Rc::new(Cell::new(u64::MAX)));
        let mut executor = ImmediateStack::start(layers, vec![disk], false).unwrap();
        let mut model = vec![0_u8; 1024 * SECTOR];
        for (number, event) in events.into_iter().enumerate() {
            match event {
                Event::Write(block, parts) => {
                    let notes: Vec<BlockNote> = parts
                        .iter()
                        .map(|(role, transaction, home, sectors)| BlockNote {
                            // Blocks that the journal releases may contain anything.
                            transaction: transaction
                                .checked_sub(1)
                                .filter(|_| BlockRole::ALL[*role] != BlockRole::JournalSuperblock),
                            home: home.map(|home| home * 8),
                            ..BlockNote::new(BlockRole::ALL[*role], *sectors)
                        })
                        .collect();
                    let sectors: u32 = notes.iter().map(|note| note.sectors).sum();
                    let at = block as usize * BLOCK;
                    let mut data: Vec<u8> = (0..sectors as usize * SECTOR).map(|i| (i / 512 + number * 7) as u8).collect();
                    model[at..at + data.len()].copy_from_slice(&data);
                    executor.write_noted(block * 8, CommandFlags::empty(), &notes, &mut data).unwrap();
                }
                Event::Read(block, sectors) => {
                    let at = block as usize * BLOCK;
                    let mut data = vec![0xEE; sectors as usize * SECTOR];
                    executor.submit(Op::Read, block * 8, &mut data).unwrap();
                    prop_assert!(data == model[at..at + data.len()], "block {} after event {}", block, number);
                }
                Event::Discard(block, sectors) => {
                    // A discarded range may contain anything, so it is written again.
                    executor.submit_bare(Op::Discard, block * 8, sectors).unwrap();
                    let at = block as usize * BLOCK;
                    let mut data = vec![number as u8; sectors as usize * SECTOR];
                    model[at..at + data.len()].copy_from_slice(&data);
                    executor.submit(Op::Write, block * 8, &mut data).unwrap();
                }
                Event::Flush => executor.submit_bare(Op::Flush, 0, 0).unwrap(),
                Event::Drain => executor.drain().unwrap(),
            }
        }
    }
}
