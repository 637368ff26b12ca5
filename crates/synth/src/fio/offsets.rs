//! Draws the blocks of a random job: each block once, with equal probability, or from a skewed distribution.

use emmclab_trace::{Error, ErrorClass, Result};

use crate::distribute::SynthesisRng;

/// How random blocks are drawn.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum OffsetDistribution {
    /// All blocks with equal probability; with fio's random map, each block once in a pass.
    Even,
    /// The block of rank r has a weight of `1 / r^theta`.
    Zipf(f64),
    /// A share `1 - h` of the draws selects a share `h` of the blocks.
    Pareto(f64),
    /// A normal distribution around the middle of the file, broadened by a uniform offset within this percentage of all blocks.
    Normal(f64),
    /// Consecutive parts of the file, each with its share of the accesses.
    Zoned(Vec<DistributionZone>),
}

/// A part of a file, in percent of its blocks, with its percentage of the accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DistributionZone {
    pub accesses: u64,
    pub blocks: u64,
}

/// Whether a pass may draw a block again before it has drawn all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockCoverage {
    /// Any block may be drawn again.
    Any,
    /// Each block is drawn once in a pass, by requests of one size.
    OneSize,
    /// Each block is drawn once in a pass, by requests of several sizes.
    Sizes,
}

/// Draws blocks of a file.
pub(super) struct OffsetSampler {
    distribution: OffsetDistribution,
    blocks: u64,
    cover: CoverageState,
    ranks: Option<ZipfRanks>,
}

/// The blocks that have been drawn in this pass.
enum CoverageState {
    Any,
    /// The blocks in the order of a random permutation: the next position, and the keys of the permutation.
    Permutation {
        next: u64,
        keys: [u64; ROUNDS],
    },
    Map(RandomMap),
}

const ROUNDS: usize = 4;
/// Maximum number of blocks of a random map: 512 MB of memory.
const MOST_MAPPED: u64 = 1 << 32;

impl OffsetSampler {
    /// Errors: [`ErrorClass::Config`] if a random map would have too many blocks.
    pub fn new(distribution: &OffsetDistribution, blocks: u64, coverage: BlockCoverage, dice: &mut SynthesisRng) -> Result<Self> {
        let blocks = blocks.max(1);
        let ranks = match *distribution {
            OffsetDistribution::Zipf(theta) => Some(ZipfRanks::new(theta, blocks)),
            _ => None,
        };
        let cover = match coverage {
            BlockCoverage::Any => CoverageState::Any,
            BlockCoverage::OneSize => CoverageState::Permutation { next: 0, keys: keys(dice) },
            BlockCoverage::Sizes if blocks > MOST_MAPPED => {
                return Err(Error::new(ErrorClass::Config, format!("a fio random map of {blocks} blocks is too large"))
                    .hint("add the option norandommap to the job, or give it a smaller size="));
            }
            BlockCoverage::Sizes => CoverageState::Map(RandomMap::new(blocks)),
        };
        Ok(Self { distribution: distribution.clone(), blocks, cover, ranks })
    }

    /// Begins a new pass over the blocks.
    pub fn begin_pass(&mut self, dice: &mut SynthesisRng) {
        match &mut self.cover {
            CoverageState::Any => {}
            CoverageState::Permutation { next, keys: of } => (*next, *of) = (0, keys(dice)),
            CoverageState::Map(map) => *map = RandomMap::new(self.blocks),
        }
    }

    /// The next block; `None` at the end of the pass.
    pub fn next(&mut self, dice: &mut SynthesisRng) -> Option<u64> {
        match &mut self.cover {
            CoverageState::Any => Some(self.drawn(dice)),
            CoverageState::Permutation { next, keys } => {
                let place = *next;
                *next += 1;
                (place < self.blocks).then(|| permuted(place, self.blocks, keys))
            }
            CoverageState::Map(map) => map.free_from(dice.below(self.blocks)),
        }
    }

    /// Takes up to `most` blocks from `block` on and returns their number. It is smaller than `most` if the range contains a block that was
    /// already issued in this pass.
    pub fn take(&mut self, block: u64, most: u64) -> u64 {
        match &mut self.cover {
            CoverageState::Map(map) => map.take(block, most),
            _ => most,
        }
    }

    fn drawn(&self, dice: &mut SynthesisRng) -> u64 {
        let blocks = self.blocks;
        match &self.distribution {
            OffsetDistribution::Even => dice.below(blocks),
            OffsetDistribution::Zipf(_) => scattered(self.ranks.as_ref().map_or(0, |ranks| ranks.draw(dice)), blocks),
            OffsetDistribution::Pareto(h) => {
                let power = h.ln() / (1.0 - h).ln();
                scattered(((blocks - 1) as f64 * unit(dice).powf(power)) as u64, blocks)
            }
            OffsetDistribution::Normal(deviation) => scattered(bell(*deviation, blocks, dice), blocks),
            OffsetDistribution::Zoned(zones) => {
                let (mut access, mut before) = (dice.below(100), 0);
                for zone in zones {
                    if access < zone.accesses {
                        let first = part(blocks, before);
                        let room = part(blocks, before + zone.blocks).saturating_sub(first).max(1);
                        return (first + dice.below(room)).min(blocks - 1);
                    }
                    (access, before) = (access - zone.accesses, before + zone.blocks);
                }
                dice.below(blocks)
            }
        }
    }
}

/// Draws ranks of a Zipf distribution exactly and in constant time, by rejection-inversion (Hörmann and Derflinger, "Rejection-inversion
/// to generate variates from monotone discrete distributions", ACM TOMACS 6(3), 1996). fio draws by the approximation of Gray et al.
/// (SIGMOD 1994), in which ranks 3 to 6 are 6 to 20 % too frequent.
struct ZipfRanks {
    theta: f64,
    blocks: f64,
    /// Integral of the weight function at the lower end of rank 1.
    from: f64,
    /// The integral of the weight function up to the upper end of the interval of the last rank.
    to: f64,
    /// A random real number is rounded to a rank. If it is smaller than the rank by at most this amount, the rank is accepted without a
    /// further comparison.
    accepted: f64,
}

impl ZipfRanks {
    fn new(theta: f64, blocks: u64) -> Self {
        let mut ranks = Self { theta, blocks: blocks as f64, from: 0.0, to: 0.0, accepted: 0.0 };
        ranks.from = ranks.integral(1.5) - 1.0;
        ranks.to = ranks.integral(ranks.blocks + 0.5);
        ranks.accepted = 2.0 - ranks.inverse(ranks.integral(2.5) - 2.0_f64.powf(-theta));
        ranks
    }

    /// The integral of `x^-theta` from 1 to `x`, computed precisely also for theta equal or close to 1.
    fn integral(&self, x: f64) -> f64 {
        let (log, power) = (x.ln(), (1.0 - self.theta) * x.ln());
        if power.abs() < 1e-8 { log * (1.0 + power / 2.0) } else { log * power.exp_m1() / power }
    }

    /// The inverse of [`Self::integral`].
    fn inverse(&self, area: f64) -> f64 {
        let power = (area * (1.0 - self.theta)).max(-1.0);
        let log = if power.abs() < 1e-8 { area * (1.0 - power / 2.0) } else { area * power.ln_1p() / power };
        log.exp()
    }

    /// Draws a rank, counted from 0.
    fn draw(&self, dice: &mut SynthesisRng) -> u64 {
        loop {
            let area = self.to + unit(dice) * (self.from - self.to);
            let x = self.inverse(area);
            let rank = x.round().clamp(1.0, self.blocks);
            if rank - x <= self.accepted || area >= self.integral(rank + 0.5) - rank.powf(-self.theta) {
                return rank as u64 - 1;
            }
        }
    }
}

fn keys(dice: &mut SynthesisRng) -> [u64; ROUNDS] {
    std::array::from_fn(|_| dice.below(u64::MAX))
}

/// Draws a block from a bell curve around the middle block. The curve is the mean of twelve uniform draws. A uniform offset then moves the
/// result within a range of `deviation` percent of all blocks.
fn bell(deviation: f64, blocks: u64, dice: &mut SynthesisRng) -> u64 {
    let mean = (0..12).map(|_| unit(dice)).sum::<f64>() / 12.0;
    let moved = mean + (unit(dice) - 0.5) * (deviation / 100.0).min(0.5);
    ((moved.max(0.0) * blocks as f64) as u64).min(blocks - 1)
}

/// The number of blocks in `percent` of all blocks.
fn part(blocks: u64, percent: u64) -> u64 {
    (u128::from(blocks) * u128::from(percent) / 100) as u64
}

/// Spreads ranks over the blocks by multiplication, so that hot blocks are not adjacent. As in fio, two ranks may be mapped to one block
/// unless the number of blocks is a power of two.
fn scattered(rank: u64, blocks: u64) -> u64 {
    rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks
}

/// Permutes the blocks without a table: a Feistel network over the bits of the number, repeated until the result is a valid block.
fn permuted(place: u64, blocks: u64, keys: &[u64; ROUNDS]) -> u64 {
    let half = (64 - (blocks - 1).leading_zeros()).div_ceil(2).max(1);
    let mask = (1_u64 << half) - 1;
    let mut value = place;
    loop {
        let (mut high, mut low) = (value >> half, value & mask);
        for key in keys {
            let mixed = (low ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (high, low) = (low, high ^ (mixed >> 32 ^ mixed) & mask);
        }
        value = high << half | low;
        if value < blocks {
            return value;
        }
    }
}

/// Draws a random number in [0, 1).
pub(super) fn unit(dice: &mut SynthesisRng) -> f64 {
    dice.below(1 << 53) as f64 / (1_u64 << 53) as f64
}

/// A bitmap with a bit for each block, set if the block was issued in this pass.
#[derive(Debug)]
pub(super) struct RandomMap {
    words: Vec<u64>,
    blocks: u64,
    free: u64,
}

impl RandomMap {
    pub fn new(blocks: u64) -> Self {
        let words = usize::try_from(blocks.div_ceil(64)).unwrap_or(0);
        Self { words: vec![0; words], blocks, free: blocks }
    }

    fn is_set(&self, block: u64) -> bool {
        self.words[(block / 64) as usize] >> (block % 64) & 1 == 1
    }

    /// The first free block at or after `block`, continuing at the beginning of the file; `None` if all blocks have been issued.
    pub fn free_from(&self, block: u64) -> Option<u64> {
        if self.free == 0 {
            return None;
        }
        self.free_in(block, self.blocks).or_else(|| self.free_in(0, block))
    }

    fn free_in(&self, from: u64, to: u64) -> Option<u64> {
        let mut block = from;
        while block < to {
            let taken = self.words[(block / 64) as usize] >> (block % 64);
            let skip = u64::from(taken.trailing_ones()).min(64 - block % 64);
            if skip == 0 {
                return Some(block);
            }
            block += skip;
        }
        None
    }

    /// Marks up to `most` free blocks from `block` on as issued, up to the next issued block. Returns their number, at least 1.
    pub fn take(&mut self, block: u64, most: u64) -> u64 {
        let end = block.saturating_add(most).min(self.blocks);
        let mut at = block;
        while at < end && !self.is_set(at) {
            self.words[(at / 64) as usize] |= 1 << (at % 64);
            at += 1;
        }
        self.free -= at - block;
        at - block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_comes_once_in_a_pass() {
        for coverage in [BlockCoverage::OneSize, BlockCoverage::Sizes] {
            for blocks in [1, 2, 3, 7, 64, 1_000, 4_097] {
                let mut dice = SynthesisRng::new(blocks);
                let mut draw = OffsetSampler::new(&OffsetDistribution::Even, blocks, coverage, &mut dice).unwrap();
                for _ in 0..2 {
                    let mut drawn = Vec::new();
                    while let Some(block) = draw.next(&mut dice) {
                        assert_eq!(draw.take(block, 1), 1);
                        drawn.push(block);
                    }
                    draw.begin_pass(&mut dice);
                    assert!(blocks < 64 || drawn.windows(2).filter(|pair| pair[1] == pair[0] + 1).count() < 64);
                    drawn.sort_unstable();
                    assert!(drawn.into_iter().eq(0..blocks), "{blocks}");
                }
            }
        }
    }

    /// Chi-square of the counts of the first 50 ranks and of all others. By chance, the bound is exceeded once in 10,000 tests (89.6 for 50
    /// degrees of freedom).
    #[test]
    fn ranks_have_the_weights_of_a_zipf_distribution() {
        const DRAWS: u32 = 400_000;
        for theta in [0.2, 0.8, 0.99, 1.0, 1.1, 2.0, 5.0] {
            for blocks in [60, 4_096, 100_000] {
                let ranks = ZipfRanks::new(theta, blocks);
                let mut dice = SynthesisRng::new(7);
                let mut counts = [0_u32; 51];
                for _ in 0..DRAWS {
                    let rank = ranks.draw(&mut dice);
                    assert!(rank < blocks);
                    counts[rank.min(50) as usize] += 1;
                }
                let weight = |rank: u64| (rank as f64).powf(-theta);
                let sum: f64 = (1..=blocks).map(weight).sum();
                let expected = (1..=50).map(weight).chain([(51..=blocks).map(weight).sum()]);
                let chi_square: f64 = expected
                    .map(|weight| weight / sum * f64::from(DRAWS))
                    .zip(counts)
                    .filter(|(expected, _)| *expected >= 5.0)
                    .map(|(expected, count)| (f64::from(count) - expected).powi(2) / expected)
                    .sum();
                assert!(chi_square < 89.6, "theta {theta}, {blocks} blocks: {chi_square}");
            }
        }
    }

    #[test]
    fn skewed_draws_have_the_shares_of_their_distribution() {
        let counts = |distribution: &OffsetDistribution| {
            let mut dice = SynthesisRng::new(5);
            let mut draw = OffsetSampler::new(distribution, 1_024, BlockCoverage::Any, &mut dice).unwrap();
            let mut counts = vec![0_u32; 1_024];
            (0..200_000).for_each(|_| counts[draw.next(&mut dice).unwrap() as usize] += 1);
            counts
        };
        let share = |counts: &[u32]| f64::from(counts.iter().sum::<u32>()) / 200_000.0;
        let hottest = |distribution: &OffsetDistribution, blocks: usize| {
            let mut counts = counts(distribution);
            counts.sort_unstable_by(|one, other| other.cmp(one));
            share(&counts[..blocks])
        };
        for h in [0.2, 0.8] {
            let pareto = hottest(&OffsetDistribution::Pareto(h), 205);
            assert!((pareto - 0.8).abs() < 0.03, "{pareto}");
        }
        assert!((hottest(&OffsetDistribution::Even, 205) - 0.2).abs() < 0.05);
        // The standard deviation is n / 12, so the middle third of the n blocks (two deviations on each side) gets 95 % of the draws.
        assert!((hottest(&OffsetDistribution::Normal(0.0), 341) - 0.95).abs() < 0.03);
        let zones = vec![DistributionZone { accesses: 90, blocks: 10 }, DistributionZone { accesses: 10, blocks: 90 }];
        assert!((share(&counts(&OffsetDistribution::Zoned(zones))[..102]) - 0.9).abs() < 0.01);
    }

    #[test]
    fn each_block_is_free_until_it_is_taken_and_long_requests_end_at_a_taken_one() {
        let mut map = RandomMap::new(200);
        assert_eq!((map.take(100, 10), map.take(95, 20), map.take(199, 20)), (10, 5, 1));
        assert_eq!([map.free_from(95), map.free_from(199), map.free_from(0)], [Some(110), Some(0), Some(0)]);
        let mut taken = 16;
        while let Some(block) = map.free_from(64) {
            taken += map.take(block, 7);
        }
        assert_eq!((taken, map.free_from(3)), (200, None));
    }
}
