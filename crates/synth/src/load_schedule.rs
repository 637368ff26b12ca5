//! The load over time: periods of a workload, each with its share of requests, data and bursts.

use crate::distribute::{SynthesisRng, WeightedSampler, fraction, strata_counts};
use crate::model::{LoadModel, WorkloadModel};
use crate::synthesizer::SynthesisTotals;

/// Maximum number of requests in a chapter, which is generated as one batch.
const CHAPTER: u64 = 1 << 16;
/// Maximum number of draws per request to reach the planned amount of data of a period.
const TRIES: usize = 32;
/// Difference from the planned amount of data that is accepted, in sectors.
const CLOSE: u64 = 8;

/// Numbers of requests, sectors and bursts, and times. They apply to one period of the generated trace, or are sums over several periods.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoadPiece {
    /// Number of reads and of writes.
    pub requests: [u64; 2],
    /// Number of sectors read and written.
    pub sectors: [u64; 2],
    /// Number of requests that open a burst.
    pub bursts: u64,
    /// Length of the period, ns.
    pub duration: u64,
    /// Idle time within bursts, ns.
    pub think: u64,
}

impl LoadPiece {
    pub(crate) fn all(&self) -> u64 {
        self.requests[0] + self.requests[1]
    }

    /// The totals since `before`; `self` and `before` are sums from the start of the synthesis.
    fn since(&self, before: &Self) -> Self {
        Self {
            requests: [0, 1].map(|op| self.requests[op] - before.requests[op]),
            sectors: [0, 1].map(|op| self.sectors[op] - before.sectors[op]),
            bursts: self.bursts - before.bursts,
            duration: self.duration - before.duration,
            think: self.think - before.think,
        }
    }
}

/// Divides a synthetic trace into pieces, which are periods with their own load. Without a load curve, the load is constant over time.
pub(crate) struct LoadSchedule {
    /// For each row of the load curve, the sums over all rows before it; the last element has the sums over all rows.
    before: Vec<LoadPiece>,
    total: LoadPiece,
    /// Number of times that the load curve is repeated.
    passes: u64,
    next: u64,
    completed: LoadPiece,
    /// Sizes in sectors with their counts in the model, for reads and for writes.
    sizes: [Vec<(u64, u64)>; 2],
    /// For reads and for writes: the sizes in sectors, with their counts, that each row of the load curve has in the current repetition of
    /// the curve.
    dealt: [Vec<Vec<(u64, u64)>>; 2],
}

/// Consecutive pieces of the load. `sizes` contains the sizes of the reads and writes of each piece, in sectors and in ascending order.
pub(crate) struct LoadChapter {
    pub pieces: Vec<LoadPiece>,
    pub sizes: Vec<[Vec<u64>; 2]>,
    /// Totals of the load from the start of the synthesis to the beginning of the chapter, which is one generated batch.
    pub from: LoadPiece,
    /// Totals of the load from the start of the synthesis to the end of the chapter.
    pub to: LoadPiece,
    /// Whether the model has a load curve of several rows.
    pub follows_curve: bool,
}

impl LoadSchedule {
    pub(crate) fn new(model: &WorkloadModel, totals: &SynthesisTotals) -> Self {
        let sizes = [&model.reads, &model.writes]
            .map(|of| of.sizes_kb.iter().map(|(kb, count)| ((kb * 2.0).round() as u64, *count)).collect::<Vec<_>>());
        let mut sum = LoadPiece::default();
        let mut before = vec![sum];
        let rows = model.load.as_ref().map_or(&[][..], |load| &load.curve);
        for [us, think_us, bursts, reads, read_kb, writes, write_kb] in rows {
            sum.duration += us;
            sum.think += think_us.min(us);
            sum.bursts += bursts;
            sum.requests = [sum.requests[0] + reads, sum.requests[1] + writes];
            sum.sectors = [sum.sectors[0] + 2 * read_kb, sum.sectors[1] + 2 * write_kb];
            before.push(sum);
        }
        let own = model.requests();
        let passes = if rows.is_empty() {
            before.push(LoadPiece { requests: [1; 2], sectors: [1; 2], bursts: 1, duration: 1, think: 0 });
            totals.requests().div_ceil(CHAPTER)
        } else {
            (totals.requests().saturating_add(own / 2) / own).max(1)
        };
        let amount = |op: usize| {
            let sectors = |list: &[(u64, u64)]| -> u128 {
                list.iter().map(|(sectors, count)| u128::from(*sectors) * u128::from(*count)).sum()
            };
            let of = [&model.reads, &model.writes][op].requests();
            let requests = [totals.reads, totals.writes][op];
            (sectors(&sizes[op]) * u128::from(requests) / u128::from(of.max(1))).min(u128::from(u64::MAX)) as u64
        };
        let whole = LoadPiece {
            requests: [totals.reads, totals.writes],
            sectors: [amount(0), amount(1)],
            bursts: totals.bursts,
            duration: totals.duration,
            think: fraction(sum.think.saturating_mul(1_000), totals.requests(), own),
        };
        let dealt = Default::default();
        Self { before, total: whole, passes, next: 0, completed: LoadPiece::default(), sizes, dealt }
    }

    /// Distributes the sizes of one repetition of the load curve over its rows. Rows with a larger mean size choose their sizes first.
    fn deal(&self, op: usize, pass: u64, dice: &mut SynthesisRng) -> Vec<Vec<(u64, u64)>> {
        let mut pool = strata_counts(&self.sizes[op], self.total.requests[op], pass, self.passes);
        let begin = pass * self.rows();
        let rows: Vec<LoadPiece> =
            (begin..begin + self.rows()).map(|piece| self.upto(piece + 1).since(&self.upto(piece))).collect();
        let mut order: Vec<usize> = (0..rows.len()).collect();
        let mean = |row: &usize| rows[*row].sectors[op] / rows[*row].requests[op].max(1);
        order.sort_by_key(|row| (std::cmp::Reverse(mean(row)), *row));
        let mut dealt = vec![Vec::new(); rows.len()];
        for row in order {
            dealt[row] = draw(&mut pool, rows[row].requests[op], rows[row].sectors[op], dice);
        }
        dealt
    }

    fn rows(&self) -> u64 {
        self.before.len() as u64 - 1
    }

    /// Totals of the load from the start of the synthesis to the beginning of piece number `piece`.
    fn upto(&self, piece: u64) -> LoadPiece {
        let (pass, row) = (piece / self.rows(), (piece % self.rows()) as usize);
        let (part, all) = (&self.before[row], &self.before[self.before.len() - 1]);
        let passes = self.passes;
        // Each pass gets an equal part of the total. The remainder is divided among the first passes.
        let passed = |total: u64, pass: u64| total / passes * pass + (total % passes).min(pass);
        let at = |total: u64, part: u64, all: u64| {
            let before = passed(total, pass);
            if row == 0 { before } else { before + fraction(passed(total, pass + 1) - before, part, all) }
        };
        let whole = &self.total;
        LoadPiece {
            requests: [0, 1].map(|op| at(whole.requests[op], part.requests[op], all.requests[op])),
            sectors: [0, 1].map(|op| at(whole.sectors[op], part.sectors[op], all.sectors[op])),
            bursts: at(whole.bursts, part.bursts, all.bursts),
            duration: at(whole.duration, part.duration, all.duration),
            think: at(whole.think, part.think, all.think),
        }
    }

    /// Generates the next pieces of the load, with at most a batch of requests in total.
    pub(crate) fn next(&mut self, dice: &mut SynthesisRng) -> Option<LoadChapter> {
        let from = self.completed;
        let follows_curve = self.rows() > 1;
        let (mut pieces, mut sizes) = (Vec::new(), Vec::new());
        while self.next < self.rows() * self.passes {
            let to = self.upto(self.next + 1);
            let piece = to.since(&self.completed);
            let generated = self.completed.since(&from).all();
            if generated > 0 && (generated + piece.all() > CHAPTER || !follows_curve) {
                break;
            }
            let (pass, row) = (self.next / self.rows(), self.next % self.rows());
            if row == 0 {
                self.dealt = [0, 1].map(|op| self.deal(op, pass, dice));
            }
            self.next += 1;
            // The duration of a piece of the load curve without requests is added to the next piece.
            if piece.all() > 0 {
                sizes.push([0, 1].map(|op| {
                    let counts = self.dealt[op][row as usize].iter();
                    counts.flat_map(|(size, count)| std::iter::repeat_n(*size, *count as usize)).collect()
                }));
                pieces.push(piece);
                self.completed = to;
            }
        }
        let to = self.completed;
        (!pieces.is_empty()).then_some(LoadChapter { pieces, sizes, from, to, follows_curve })
    }
}

/// Takes `count` sizes from `pool` that add up to about `sectors`. Returns the sizes with their counts, ascending. If the pool has at most
/// `count` sizes, all of them are taken.
fn draw(pool: &mut [(u64, u64)], count: u64, sectors: u64, dice: &mut SynthesisRng) -> Vec<(u64, u64)> {
    let left: u64 = pool.iter().map(|(_, left)| left).sum();
    if count >= left {
        let all = pool.iter_mut().map(|(size, left)| (*size, std::mem::take(left)));
        return all.filter(|(_, count)| *count > 0).collect();
    }
    let mut drawn: Vec<usize> = Vec::with_capacity(count as usize);
    let draws = SizeSampler::new(pool);
    let mut sum = 0;
    while (drawn.len() as u64) < count {
        // The next draw aims at the mean size that the remaining requests should have.
        let rest = count - drawn.len() as u64;
        let class = draws.draw(sectors.saturating_sub(sum) / rest, dice);
        if pool[class].1 > 0 {
            pool[class].1 -= 1;
            sum += pool[class].0;
            drawn.push(class);
        }
    }
    for _ in 0..TRIES * (drawn.len() + 8) {
        if drawn.is_empty() || sum.abs_diff(sectors) < CLOSE {
            break;
        }
        let at = dice.below(count) as usize;
        let others = sum - pool[drawn[at]].0;
        let class = draws.draw(sectors.saturating_sub(others), dice);
        let swapped = others + pool[class].0;
        if pool[class].1 > 0 && swapped.abs_diff(sectors) < sum.abs_diff(sectors) {
            pool[class].1 -= 1;
            pool[drawn[at]].1 += 1;
            drawn[at] = class;
            sum = swapped;
        }
    }
    drawn.sort_unstable();
    drawn.chunk_by(|a, b| a == b).map(|same| (pool[same[0]].0, same.len() as u64)).collect()
}

/// Draws size classes. The weights are those of the pool of sizes at the beginning, and do not change later. If the drawn class has run
/// out, the caller draws again.
struct SizeSampler {
    /// Sampler of the size classes, weighted by their count.
    plain: WeightedSampler,
    /// Sampler of the size classes, weighted by count times size.
    larger: WeightedSampler,
    smaller: WeightedSampler,
    /// Mean sizes of `smaller`, `plain` and `larger`, sectors.
    means: [u64; 3],
}

impl SizeSampler {
    fn new(pool: &[(u64, u64)]) -> Self {
        let list = |weight: fn(u64) -> u64| {
            let pairs = (0..).zip(pool.iter().map(|(size, left)| left.saturating_mul(weight(*size))));
            let pairs: Vec<(u64, u64)> = pairs.collect();
            let all: u128 = pairs.iter().map(|pair| u128::from(pair.1)).sum();
            let sum: u128 = pairs.iter().zip(pool).map(|(pair, (size, _))| u128::from(pair.1) * u128::from(*size)).sum();
            (WeightedSampler::new(&pairs), (sum / all.max(1)) as u64)
        };
        let ((plain, mean), (larger, high), (smaller, low)) =
            (list(|_| 1), list(|size| size), list(|size| ((1 << 20) / size).max(1)));
        Self { plain, larger, smaller, means: [low, mean, high] }
    }

    /// Draws a size class such that sizes are about `wanted` sectors on average.
    fn draw(&self, wanted: u64, dice: &mut SynthesisRng) -> usize {
        let [low, mean, high] = self.means;
        let tilted = if wanted > mean {
            dice.chance(wanted - mean, high - mean).then_some(&self.larger)
        } else {
            dice.chance(mean - wanted, mean - low).then_some(&self.smaller)
        };
        tilted.unwrap_or(&self.plain).draw(dice) as usize
    }
}

impl LoadModel {
    /// Maximum number of requests in a row of a load curve, so that a generated batch that consists of a single row is not too large.
    pub(crate) const MOST_REQUESTS: u64 = CHAPTER / 2;
}

#[cfg(test)]
mod tests {
    use super::{SynthesisRng, draw};

    #[test]
    fn sizes_drawn_from_a_pool_amount_to_what_is_wanted_and_leave_the_rest() {
        let mut pool = vec![(8, 500), (16, 200), (64, 100), (1_024, 20)];
        let mut dice = SynthesisRng::new(1);
        let sum = |list: &[(u64, u64)]| list.iter().map(|(size, count)| size * count).sum::<u64>();
        let large = draw(&mut pool, 30, 10_000, &mut dice);
        assert_eq!(large.iter().map(|pair| pair.1).sum::<u64>(), 30);
        assert!(sum(&large).abs_diff(10_000) < 64, "{large:?}");
        let small = draw(&mut pool, 300, 2_600, &mut dice);
        assert!(sum(&small).abs_diff(2_600) < 64, "{small:?}");
        let rest = draw(&mut pool, 490, 0, &mut dice);
        let all = [large, small, rest].concat();
        let counts = [8, 16, 64, 1_024].map(|size| all.iter().filter(|pair| pair.0 == size).map(|pair| pair.1).sum::<u64>());
        assert_eq!(counts, [500, 200, 100, 20]);
    }
}
