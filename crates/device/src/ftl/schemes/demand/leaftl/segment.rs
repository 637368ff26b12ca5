//! Learned segments, each of which describes the locations of units of a group in eight bytes, and the functions that learn them.

use std::cmp::Ordering;

use crate::ftl::schemes::demand::cache::NOWHERE;

/// Number of units of a group.
pub const GROUP: u32 = 256;

/// A set of units of a group, as a bit mask.
pub type Bits = [u64; 4];

/// A unit of a group, and the number of its location.
pub type Point = (u8, u32);

/// Bit of [`LearnedSegment::slope`] that marks an approximate segment.
const APPROXIMATE: u16 = 1 << 15;
const STRIDE: u16 = 1 << 14;
/// Maximum slope of an approximate segment.
const MOST_SLOPE: i64 = (1 << 15) - 1;
const MOST_STEP: u32 = (1 << 14) - 1;
/// Number of fraction bits in the slope of an approximate segment.
const FRACTION: u32 = 11;

/// A linear piece of the mapping table: `start`, `length`, slope and intercept, as in the `LeaFTL` paper (S, L, K, I). The slope is one of
/// three values: the distance between the locations of consecutive units, the distance between units with consecutive locations or, for an
/// approximate segment, a fixed-point number. The intercept is the location number at the first unit of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnedSegment {
    pub start: u8,
    pub length: u8,
    slope: u16,
    intercept: u32,
}

impl LearnedSegment {
    /// Size of a segment in bytes.
    pub const BYTES: u64 = 8;

    pub fn end(self) -> u8 {
        self.start.saturating_add(self.length)
    }

    /// Whether the locations are approximate. The units of approximate segments are in the conflict resolution buffer.
    pub fn is_approximate(self) -> bool {
        self.slope & APPROXIMATE != 0
    }

    /// Whether the segment stands for units that are unmapped because of a discard.
    pub fn is_discard(self) -> bool {
        self.slope == 0
    }

    /// Whether an accurate segment contains a unit.
    #[inline]
    pub fn has(self, unit: u8) -> bool {
        self.start <= unit
            && unit <= self.end()
            && (self.slope & STRIDE == 0 || u16::from(unit - self.start) % self.stride() == 0)
    }

    #[inline]
    fn stride(self) -> u16 {
        if self.slope & STRIDE == 0 { 1 } else { (self.slope & !STRIDE).max(1) }
    }

    /// Returns the location number of a unit. For an approximate segment, it is only correct within the error bound.
    #[inline]
    pub fn place(self, unit: u8) -> u32 {
        let x = u32::from(unit);
        let way = if self.is_approximate() {
            (u32::from(self.slope & !APPROXIMATE) * x) >> FRACTION
        } else if self.slope & STRIDE != 0 {
            x / u32::from(self.stride())
        } else if self.is_discard() {
            return NOWHERE;
        } else {
            u32::from(self.slope) * x
        };
        self.intercept.wrapping_add(way)
    }

    /// The set of units that an accurate segment contains.
    #[inline]
    pub fn units(self) -> Bits {
        if self.stride() == 1 {
            return between(self.start, self.end());
        }
        let mut bits = [0; 4];
        let (mut unit, end) = (u16::from(self.start), u16::from(self.end()));
        while unit <= end {
            set(&mut bits, unit as u8);
            unit += self.stride();
        }
        bits
    }

    /// Shortens the segment to the units from `first` to `last`.
    pub fn trim(&mut self, first: u8, last: u8) {
        self.start = first;
        self.length = last.saturating_sub(first);
    }

    /// Whether `next` lies on the same line as this segment and begins with the unit after its last one.
    pub fn continues(self, next: Self) -> bool {
        let same = self.slope == next.slope && self.intercept == next.intercept;
        same && !self.is_approximate() && self.stride() == 1 && u32::from(self.end()) + 1 == u32::from(next.start)
    }

    fn accurate(start: u8, end: u8, slope: u16, place: u32) -> Self {
        let mut segment = Self { start, length: end - start, slope, intercept: 0 };
        if !segment.is_discard() {
            segment.intercept = place.wrapping_sub(segment.place(start));
        }
        segment
    }

    /// Creates a segment of `count` consecutive units at consecutive locations.
    pub fn run(start: u8, count: u32, place: u32) -> Self {
        Self::accurate(start, start + (count - 1) as u8, 1, place)
    }

    pub fn point((unit, place): Point) -> Self {
        Self::accurate(unit, unit, u16::from(place != NOWHERE), place)
    }

    /// The segment, encoded as words of a device image.
    pub fn words(self) -> [u32; 2] {
        [u32::from(self.start) | u32::from(self.length) << 8 | u32::from(self.slope) << 16, self.intercept]
    }

    /// Reads a segment from words of a device image; `None` if they are invalid.
    pub fn of_words(first: u32, intercept: u32) -> Option<Self> {
        let (start, length, slope) = (first as u8, (first >> 8) as u8, (first >> 16) as u16);
        start.checked_add(length).map(|_| Self { start, length, slope, intercept })
    }
}

#[inline]
pub fn set(bits: &mut Bits, unit: u8) {
    bits[usize::from(unit >> 6)] |= 1 << (unit & 63);
}

/// The set of the units from `first` to `last`, both included.
pub fn between(first: u8, last: u8) -> Bits {
    let upto = |word: u8| match (last >> 6).cmp(&word) {
        Ordering::Less => 0,
        Ordering::Equal => u64::MAX >> (63 - (last & 63)),
        Ordering::Greater => u64::MAX,
    };
    let from = |word: u8| match (first >> 6).cmp(&word) {
        Ordering::Less => u64::MAX,
        Ordering::Equal => u64::MAX << (first & 63),
        Ordering::Greater => 0,
    };
    [0, 1, 2, 3].map(|word| upto(word) & from(word))
}

pub fn without(bits: Bits, other: Bits) -> Bits {
    std::array::from_fn(|i| bits[i] & !other[i])
}

/// The first and the last unit of a set; `None` if it is empty.
pub fn ends(bits: Bits) -> Option<(u8, u8)> {
    let first = (0..4).find(|i| bits[*i] != 0)?;
    let last = (0..4).rfind(|i| bits[*i] != 0)?;
    Some(((first * 64) as u8 + bits[first].trailing_zeros() as u8, (last * 64 + 63) as u8 - bits[last].leading_zeros() as u8))
}

/// Learns a segment from the first of `points`, which are in order of units. The locations of the segment are exact, or off by at most
/// `gamma`. Returns the segment and the number of points that it describes.
pub fn learn(points: &[Point], gamma: u32) -> (LearnedSegment, usize) {
    let (exact, count) = accurate(points);
    if gamma > 0
        && count < points.len()
        && let Some((about, more)) = approximate(points, i64::from(gamma))
        && more > count
    {
        return (about, more);
    }
    (exact, count)
}

/// The longest accurate segment that begins with the first point, and the number of points that it describes.
fn accurate(points: &[Point]) -> (LearnedSegment, usize) {
    let (first, place) = points[0];
    if place == NOWHERE {
        let count = run(points, |(a, _), (b, place)| place == NOWHERE && b - a == 1);
        return (LearnedSegment::accurate(first, points[count - 1].0, 0, place), count);
    }
    let Some(&(next, then)) = points.get(1).filter(|(_, then)| *then != NOWHERE) else {
        return (LearnedSegment::point(points[0]), 1);
    };
    let (stride, step) = (next - first, then.wrapping_sub(place));
    let slope = match (stride, step) {
        (1, 1..=MOST_STEP) => step as u16,
        (_, 1) => STRIDE | u16::from(stride),
        _ => return (LearnedSegment::point(points[0]), 1),
    };
    let count = run(points, |(a, at), (b, then)| then != NOWHERE && b - a == stride && then.wrapping_sub(at) == step);
    (LearnedSegment::accurate(first, points[count - 1].0, slope, place), count)
}

/// Returns the length of the longest prefix of the points in which each point follows its predecessor according to `follows`.
#[inline]
fn run(points: &[Point], follows: impl Fn(Point, Point) -> bool) -> usize {
    1 + points.windows(2).take_while(|pair| follows(pair[0], pair[1])).count()
}

/// The longest approximate segment that begins with the first point (a unit and its location), and its number of points. `None` if the
/// segment would have only one unit.
fn approximate(points: &[Point], gamma: i64) -> Option<(LearnedSegment, usize)> {
    let (first, place) = points[0];
    if place == NOWHERE {
        return None;
    }
    let (mut least, mut most) = (0, MOST_SLOPE);
    let mut count = 1;
    for &(unit, at) in &points[1..] {
        let (dx, dy) = (i64::from(unit - first), i64::from(at) - i64::from(place));
        // `low` is rounded up and `high` is rounded down, so every slope between them keeps the locations within `gamma`.
        let low = -((gamma - dy) << FRACTION).div_euclid(dx);
        let high = ((dy + gamma) << FRACTION).div_euclid(dx);
        let (low, high) = (low.max(least), high.min(most));
        if at == NOWHERE || low > high {
            break;
        }
        (least, most) = (low, high);
        count += 1;
    }
    let (last, at) = points[count - 1];
    if count == 1 {
        return None;
    }
    let straight = ((i64::from(at) - i64::from(place)) << FRACTION) / i64::from(last - first);
    let slope = APPROXIMATE | straight.clamp(least, most) as u16;
    let mut segment = LearnedSegment { start: first, length: last - first, slope, intercept: 0 };
    segment.intercept = place.wrapping_sub(segment.place(first));
    Some((segment, count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_steps_strides_and_discards_are_accurate() {
        let of = |points: &[Point]| learn(points, 0);
        let run: Vec<Point> = (10..20).map(|unit| (unit, 990 + u32::from(unit))).collect();
        assert_eq!(of(&run).1, 10);
        let step: Vec<Point> = (10..20).map(|unit| (unit, 4 * u32::from(unit))).collect();
        assert_eq!((of(&step).1, of(&step).0.place(15)), (10, 60));
        let stride: Vec<Point> = (0..7).map(|i| (3 * i + 1, 500 + u32::from(i))).collect();
        let (segment, count) = of(&stride);
        assert_eq!((count, segment.place(7), segment.has(7), segment.has(8)), (7, 502, true, false));
        let gone: Vec<Point> = (5..9).map(|unit| (unit, NOWHERE)).collect();
        assert_eq!((of(&gone).1, of(&gone).0.is_discard()), (4, true));
        assert_eq!(std::mem::size_of::<LearnedSegment>() as u64, LearnedSegment::BYTES);
    }

    #[test]
    fn irregular_places_become_one_segment_within_the_bound() {
        let points = [(0, 100), (3, 101), (5, 102), (6, 103), (10, 104)];
        assert_eq!(learn(&points, 0).1, 2);
        let (segment, count) = learn(&points, 1);
        assert!(segment.is_approximate());
        assert_eq!(count, 5);
    }

    proptest! {
        #[test]
        fn units_between_two_are_those_of_one_by_one(first in any::<u8>(), last in any::<u8>()) {
            let mut bits = [0; 4];
            (first..=last).for_each(|unit| set(&mut bits, unit));
            prop_assert_eq!(if first <= last { between(first, last) } else { [0; 4] }, bits);
        }

        #[test]
        fn every_place_is_within_the_bound(
            units in prop::collection::btree_set(any::<u8>(), 1..256),
            steps in prop::collection::vec(prop::sample::select(vec![1i64, 1, 1, 2, 3, 40, -5]), 256),
            base in any::<u32>(),
            gamma in prop::sample::select(vec![0u32, 1, 4, 15]),
        ) {
            let mut place = i64::from(base % (u32::MAX - 100_000)) + 2000;
            let points: Vec<Point> = units.iter().zip(steps).map(|(unit, step)| {
                place += step;
                (*unit, place as u32)
            }).collect();
            let mut rest = &points[..];
            while !rest.is_empty() {
                let (segment, count) = learn(rest, gamma);
                for (unit, place) in &rest[..count] {
                    let off = segment.place(*unit).wrapping_sub(*place) as i32;
                    let bound = if segment.is_approximate() { gamma } else { 0 };
                    prop_assert!(off.unsigned_abs() <= bound, "{off} in {segment:?}");
                    prop_assert!(segment.is_approximate() || segment.has(*unit));
                    let [first, second] = segment.words();
                    prop_assert_eq!(LearnedSegment::of_words(first, second), Some(segment));
                }
                rest = &rest[count..];
            }
        }
    }
}
