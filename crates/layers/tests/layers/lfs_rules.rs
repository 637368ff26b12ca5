//! Properties of a log apart from its data: its cost, the log that a block goes to, and the effect of a damaged checkpoint.

use crate::support::{MemDisk, SECTOR, count, stamp, started, version};
use emmclab_base::Op;
use emmclab_layers::{DisksBelow, ImmediateStack, LayerConfig, build_stack};
use emmclab_testing::SeededRandom;

/// A disk of 16 MB in segments of 128 KB.
const BELOW: DisksBelow = DisksBelow::new(1 << 15, None);
const BLOCK: usize = 8 * SECTOR;

fn config() -> LayerConfig {
    LayerConfig::named("lfs").with("segment", "128KB").with("checkpoint", "1MB")
}

/// A layer, and the expected contents of its blocks.
struct Log {
    executor: ImmediateStack<MemDisk>,
    config: LayerConfig,
    model: Vec<u64>,
    clock: u64,
}

impl Log {
    fn new(config: LayerConfig) -> Self {
        let executor = started(std::slice::from_ref(&config), &BELOW);
        let blocks = executor.layer(0).capacity() as usize / 8;
        Self { executor, config, model: vec![0; blocks], clock: 0 }
    }

    fn write(&mut self, block: usize) {
        self.clock += 1;
        self.model[block] = self.clock;
        let mut data = [0; BLOCK];
        stamp(block as u64 * 8, self.clock, &mut data);
        self.executor.submit(Op::Write, block as u64 * 8, &mut data).unwrap();
        self.executor.background(0).unwrap();
    }

    /// Writes random blocks.
    fn scatter(&mut self, writes: usize, seed: u64) {
        let mut die = SeededRandom::new(seed);
        (0..writes).for_each(|_| self.write(die.below(self.model.len())));
    }

    fn flush(&mut self) {
        self.executor.submit_bare(Op::Flush, 0, 0).unwrap();
    }

    fn count(&self, name: &str) -> u64 {
        count(&self.executor, name)
    }

    /// Restarts on the disk after `damage` was applied to it, and reads all blocks.
    fn again(self, damage: impl FnOnce(&mut [u8])) -> std::io::Result<Self> {
        let Self { executor, config, model, clock } = self;
        let mut disk = executor.into_disks().remove(0);
        damage(&mut disk.data);
        let layers = build_stack(std::slice::from_ref(&config), &BELOW).unwrap();
        let mut executor = ImmediateStack::start(layers, vec![disk], true)?;
        let mut data = [0; BLOCK];
        for (block, wanted) in model.iter().enumerate() {
            executor.submit(Op::Read, block as u64 * 8, &mut data).unwrap();
            assert_eq!(version(block as u64 * 8, &data[..SECTOR]), Some(*wanted), "block {block}");
        }
        Ok(Self { executor, config, model, clock })
    }
}

#[test]
fn writes_in_order_cost_no_more_than_themselves() {
    let mut log = Log::new(config().with("checkpoint", "4MB"));
    for _ in 0..3 {
        (0..log.model.len()).for_each(|block| log.write(block));
    }
    assert_eq!(log.count("cleaned_blocks"), 0, "segments die as a whole");
    let (host, all) = (log.count("host_blocks"), log.count("log_blocks"));
    assert_eq!(host, all, "neither records nor filling up");
    assert!(log.count("write_amplification_pct") <= 102, "{}", log.count("write_amplification_pct"));
}

#[test]
fn random_writes_are_cleaned_for_and_none_is_lost() {
    let mut log = Log::new(config());
    log.scatter(20_000, 3);
    let all = log.count("log_blocks");
    assert_eq!(
        all,
        log.count("host_blocks") + log.count("cleaned_blocks") + log.count("record_blocks") + log.count("padded_blocks")
    );
    assert!(log.count("cleaned_blocks") > 0 && log.count("resets") > 100);
    log.flush();
    let log = log.again(|_| {}).unwrap();
    assert_eq!(log.count("mapped_blocks"), log.model.iter().filter(|version| **version > 0).count() as u64);
}

#[test]
fn blocks_that_are_rewritten_apart_from_the_others_are_cheaper_to_clean() {
    let cleaned = |logs: &str| {
        let mut log = Log::new(config().with("logs", logs));
        let mut die = SeededRandom::new(5);
        let blocks = log.model.len();
        // Nine of ten writes go to a tenth of the blocks, which are interleaved with the others.
        (0..blocks).for_each(|block| log.write(block));
        for _ in 0..30_000 {
            let block = if die.below(10) > 0 { die.below(blocks / 10) * 10 } else { die.below(blocks) };
            log.write(block);
        }
        log.count("cleaned_blocks")
    };
    let (together, apart) = (cleaned("2"), cleaned("3"));
    assert!(apart < together, "{apart} blocks are moved, {together} without a log for rewritten ones");
}

#[test]
fn flushes_without_a_change_write_nothing_and_one_record_holds_a_burst() {
    let mut log = Log::new(config());
    (0..200).for_each(|block| log.write(block));
    let before = log.count("log_blocks");
    log.flush();
    // Each write is a run, and 178 runs fit into a record.
    assert_eq!(log.count("log_blocks"), before + 2);
    log.flush();
    assert_eq!(log.count("log_blocks"), before + 2);
}

#[test]
fn a_damaged_pack_is_made_good_by_the_other_and_a_damaged_map_is_an_error() {
    let filled = || {
        let mut log = Log::new(config());
        log.scatter(3000, 9);
        log.flush();
        log
    };
    for slot in 0..2 {
        for at in [0, 30, 520] {
            filled().again(|disk| disk[slot * BLOCK + at] ^= 1).unwrap();
        }
    }
    let error = filled().again(|disk| (2 * BLOCK..64 * BLOCK).step_by(BLOCK).for_each(|page| disk[page + 99] ^= 1));
    assert!(error.err().unwrap().to_string().contains("of the map is damaged"));
}
