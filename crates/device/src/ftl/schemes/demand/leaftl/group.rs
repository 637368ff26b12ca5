//! The map of `LeaFTL` for a group of 256 units: learned segments in levels, the newest level first, and a table of the units that
//! approximate segments describe.

use std::ops::Range;

use super::segment::{Bits, GROUP, LearnedSegment, Point, ends, learn, set, without};

/// The conflict resolution buffer (CRB): the approximate segment that describes each unit. A segment is identified by its first unit.
#[derive(Clone)]
struct ConflictResolutionBuffer {
    owned: Bits,
    first: [u8; GROUP as usize],
}

/// Memory that is reused by the compaction of groups.
#[derive(Clone, Default)]
pub struct CompactionScratch {
    merged: Vec<(LearnedSegment, u16)>,
}

/// The location of a unit as the segments of its group describe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentLookup {
    /// Number of the location. If it is not exact, it differs from the true number by at most the error bound.
    pub number: u32,
    pub exact: bool,
}

/// A group of 256 units with its learned segments. A unit's location is determined by the uppermost segment that contains it.
#[derive(Clone, Default)]
pub struct SegmentGroup {
    /// The learned segments by level; within a level, in order of units.
    segments: SegmentVec,
    /// For each level, the index in `segments` after its last segment.
    levels: Vec<u16>,
    owners: Option<Box<ConflictResolutionBuffer>>,
    approximate: u16,
    /// Number of segments that were learned since the levels were last merged.
    pub learned: u16,
}

impl SegmentGroup {
    /// Bytes of RAM for the segments and for the table of approximate segments. The table has a list of units for each segment, which ends
    /// with a zero byte.
    pub fn bytes(&self) -> u64 {
        let owned: u32 = self.owners.as_ref().map_or(0, |owners| owners.owned.iter().map(|word| word.count_ones()).sum());
        self.segments.len() as u64 * LearnedSegment::BYTES + u64::from(owned) + u64::from(self.approximate)
    }

    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Number of mapped units that the segments describe.
    pub fn units(&self) -> u64 {
        let (mut seen, mut count) = ([0; 4], 0);
        for segment in self.segments.iter() {
            let own = self.units_of(segment);
            if !segment.is_discard() {
                count += without(own, seen).iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
            }
            (0..4).for_each(|word| seen[word] |= own[word]);
        }
        count
    }

    /// Whether some locations in the group are approximate.
    pub fn is_approximate(&self) -> bool {
        self.approximate > 0
    }

    /// The units that a segment describes. Newer segments may describe some of them, too.
    fn units_of(&self, segment: LearnedSegment) -> Bits {
        if segment.is_approximate() { self.owned_by(segment.start) } else { segment.units() }
    }

    fn level(&self, level: usize) -> std::ops::Range<usize> {
        let from = level.checked_sub(1).map_or(0, |above| self.levels[above]);
        usize::from(from)..usize::from(self.levels[level])
    }

    /// Returns the location of a unit; `None` if no segment contains the unit.
    #[inline]
    pub fn find(&self, unit: u8) -> Option<SegmentLookup> {
        let mut from = 0;
        for to in &self.levels {
            let level = from..usize::from(*to);
            let after = self.segments.partition_point(level, |segment| segment.start <= unit);
            let first = std::mem::replace(&mut from, usize::from(*to));
            if after == first {
                continue;
            }
            let segment = self.segments.get(after - 1);
            if self.describes(segment, unit) {
                return Some(SegmentLookup { number: segment.place(unit), exact: !segment.is_approximate() });
            }
        }
        None
    }

    #[inline]
    fn describes(&self, segment: LearnedSegment, unit: u8) -> bool {
        if !segment.is_approximate() {
            return segment.has(unit);
        }
        self.owner(unit) == Some(segment.start)
    }

    fn owner(&self, unit: u8) -> Option<u8> {
        let owners = self.owners.as_ref()?;
        let owned = owners.owned[usize::from(unit >> 6)] & (1 << (unit & 63)) != 0;
        owned.then_some(owners.first[usize::from(unit)])
    }

    /// The units of the approximate segment whose first unit is `first`.
    fn owned_by(&self, first: u8) -> Bits {
        let mut own = [0; 4];
        let Some(owners) = &self.owners else { return own };
        let named = |unit: &u8| owners.first[usize::from(*unit)] == first;
        bits(owners.owned).filter(named).for_each(|unit| set(&mut own, unit));
        own
    }

    /// Learns the new locations of units and inserts the segments that describe them. `points` are in order of units.
    pub fn learn(&mut self, mut points: &[Point], gamma: u32) {
        while !points.is_empty() {
            let (segment, count) = learn(points, gamma);
            let mut units = [0; 4];
            points[..count].iter().for_each(|(unit, _)| set(&mut units, *unit));
            self.insert(segment, units);
            points = &points[count..];
            self.learned = self.learned.saturating_add(1);
        }
    }

    /// Inserts a segment that describes a run of consecutive locations.
    pub fn learn_run(&mut self, run: LearnedSegment) {
        self.insert(run, run.units());
        self.learned = self.learned.saturating_add(1);
    }

    /// Inserts a learned segment, which describes the given units.
    fn insert(&mut self, mut segment: LearnedSegment, units: Bits) {
        self.release(units);
        if segment.is_approximate() {
            let none = ConflictResolutionBuffer { owned: [0; 4], first: [0; GROUP as usize] };
            let owners = self.owners.get_or_insert_with(|| Box::new(none));
            for unit in bits(units) {
                set(&mut owners.owned, unit);
                owners.first[usize::from(unit)] = segment.start;
            }
            self.approximate += 1;
        }
        if self.levels.is_empty() {
            self.levels.push(0);
        }
        // If the new segment continues an existing one, both are merged.
        let after = self.segments.partition_point(self.level(0), |other| other.start < segment.start);
        if let Some(before) = after.checked_sub(1)
            && self.segments.get(before).continues(segment)
        {
            let start = self.remove(0, before).start;
            segment.trim(start, segment.end());
        }
        self.push_down(segment, units);
        self.add(0, segment);
    }

    /// Makes room for a new segment in the uppermost level: removes its units from overlapping segments. Segments that still overlap move
    /// to the level below.
    fn push_down(&mut self, segment: LearnedSegment, units: Bits) {
        let mut at = self.segments.partition_point(self.level(0), |other| other.end() < segment.start);
        while at < self.level(0).end && self.segments.get(at).start <= segment.end() {
            let mut older = self.remove(0, at);
            if !older.is_approximate() {
                let Some((first, last)) = ends(without(older.units(), units)) else { continue };
                older.trim(first, last);
            }
            if older.start > segment.end() || older.end() < segment.start {
                self.add(0, older);
                at += usize::from(older.end() < segment.start);
                if older.start > segment.end() {
                    break;
                }
            } else {
                self.add_below(older);
            }
        }
    }

    /// Inserts a segment below the first level. The segment goes to the second level if it overlaps no segment there. Otherwise, a new
    /// second level is inserted for it.
    fn add_below(&mut self, segment: LearnedSegment) {
        let fits = self.levels.len() > 1 && {
            let level = self.level(1);
            let after = self.segments.partition_point(level.clone(), |other| other.end() < segment.start);
            after == level.end || self.segments.get(after).start > segment.end()
        };
        if !fits {
            self.levels.insert(1, self.levels[0]);
        }
        self.add(1, segment);
    }

    fn add(&mut self, level: usize, segment: LearnedSegment) {
        let at = self.segments.partition_point(self.level(level), |other| other.start < segment.start);
        self.segments.insert(at, segment);
        self.levels[level..].iter_mut().for_each(|end| *end += 1);
    }

    fn remove(&mut self, level: usize, at: usize) -> LearnedSegment {
        self.levels[level..].iter_mut().for_each(|end| *end -= 1);
        self.segments.remove(at)
    }

    /// Removes units from the table of approximate segments, because newer segments describe these units now.
    fn release(&mut self, units: Bits) {
        let Some(owners) = &mut self.owners else { return };
        let mut losers = [0; 4];
        for unit in bits(std::array::from_fn(|word| units[word] & owners.owned[word])) {
            set(&mut losers, owners.first[usize::from(unit)]);
        }
        owners.owned = without(owners.owned, units);
        for first in bits(losers) {
            self.rename(first);
        }
    }

    /// Updates start and length of an approximate segment that has lost units, so that it begins and ends with remaining units.
    fn rename(&mut self, first: u8) {
        let named = |segment: LearnedSegment| segment.is_approximate() && segment.start == first;
        let Some(at) = self.segments.iter().position(named) else { return };
        let left = self.owned_by(first);
        let Some((start, end)) = ends(left) else {
            let level = self.levels.partition_point(|end| usize::from(*end) <= at);
            self.remove(level, at);
            self.approximate -= 1;
            return;
        };
        self.segments.trim(at, start, end);
        if let Some(owners) = &mut self.owners {
            bits(left).for_each(|unit| owners.first[usize::from(unit)] = start);
        }
    }

    /// Merges the levels: removes what newer segments hide, and puts the rest into as few levels as possible. `place` returns the true
    /// location of a unit. An approximate segment with a single unit is replaced by an exact one, which is shorter.
    pub fn compact(&mut self, place: impl Fn(u8) -> u32, scratch: &mut CompactionScratch) {
        self.learned = 0;
        // A group with one level, without approximate segments and without discards cannot become smaller.
        let discards = || self.segments.iter().any(LearnedSegment::is_discard);
        if self.levels.len() != 1 || self.segments.is_empty() || self.approximate > 0 || discards() {
            self.merge(place, scratch);
        }
        self.segments.tighten();
        if self.approximate == 0 {
            self.owners = None;
        }
    }

    fn merge(&mut self, place: impl Fn(u8) -> u32, scratch: &mut CompactionScratch) {
        let kept = &mut scratch.merged;
        kept.clear();
        let mut seen = [0; 4];
        for i in 0..self.segments.len() {
            let mut segment = self.segments.get(i);
            if segment.is_approximate() && segment.length == 0 {
                self.approximate = self.approximate.saturating_sub(1);
                if let Some(owners) = &mut self.owners {
                    owners.owned[usize::from(segment.start >> 6)] &= !(1 << (segment.start & 63));
                }
                segment = LearnedSegment::point((segment.start, place(segment.start)));
            }
            let own = self.units_of(segment);
            let fresh = without(own, seen);
            if !segment.is_approximate() {
                let Some((first, last)) = ends(fresh) else { continue };
                segment.trim(first, last);
            }
            (0..4).for_each(|word| seen[word] |= own[word]);
            kept.push((segment, 0));
        }
        self.drop_discards(kept);
        stack(kept);
        self.segments.replace(kept.iter().map(|(segment, _)| *segment));
        self.levels.clear();
        for (end, (_, level)) in (1..).zip(kept.iter()) {
            while self.levels.len() <= usize::from(*level) {
                self.levels.push(end - 1);
            }
            self.levels[usize::from(*level)] = end;
        }
    }

    /// Removes segments of discarded units if no older segment describes these units.
    fn drop_discards(&self, kept: &mut Vec<(LearnedSegment, u16)>) {
        if !kept.iter().any(|(segment, _)| segment.is_discard()) {
            return;
        }
        let mut under = [0; 4];
        for (segment, mark) in kept.iter_mut().rev() {
            let own = self.units_of(*segment);
            if segment.is_discard() && (0..4).all(|word| own[word] & under[word] == 0) {
                *mark = 1;
                continue;
            }
            (0..4).for_each(|word| under[word] |= own[word]);
        }
        kept.retain(|(_, mark)| *mark == 0);
    }

    /// Encodes the group as words of a device image, and appends them to `out`.
    pub fn words(&self, out: &mut Vec<u32>) {
        out.push(self.segments.len() as u32 | (self.levels.len() as u32) << 16);
        if self.segments.is_empty() {
            return;
        }
        out.push(u32::from(self.learned));
        out.extend(self.levels.iter().map(|end| u32::from(*end)));
        out.extend(self.segments.iter().flat_map(LearnedSegment::words));
        if let Some(owners) = self.owners.as_ref().filter(|_| self.approximate > 0) {
            out.extend(owners.owned.iter().flat_map(|word| [*word as u32, (*word >> 32) as u32]));
            out.extend(owners.first.chunks(4).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]])));
        }
    }

    /// Reads a group from the words of a device image; `None` if they are invalid.
    pub fn of_words(words: &mut dyn Iterator<Item = u32>) -> Option<Self> {
        let mut group = Self::default();
        let counts = words.next()?;
        let (segments, levels) = (counts & 0xFFFF, counts >> 16);
        if segments == 0 {
            return Some(group);
        }
        group.learned = u16::try_from(words.next()?).ok()?;
        for _ in 0..levels {
            group.levels.push(u16::try_from(words.next()?).ok()?);
        }
        for _ in 0..segments {
            group.segments.push(LearnedSegment::of_words(words.next()?, words.next()?)?);
        }
        group.approximate = group.segments.iter().filter(|segment| segment.is_approximate()).count() as u16;
        if group.approximate > 0 {
            let mut owners = Box::new(ConflictResolutionBuffer { owned: [0; 4], first: [0; GROUP as usize] });
            for word in &mut owners.owned {
                *word = u64::from(words.next()?) | u64::from(words.next()?) << 32;
            }
            for four in owners.first.chunks_mut(4) {
                four.copy_from_slice(&words.next()?.to_le_bytes());
            }
            group.owners = Some(owners);
        }
        group.is_whole().then_some(group)
    }

    /// Checks the structure of a restored group: levels follow each other up to the last segment, segments of a level do not overlap, and
    /// the table of units matches the approximate segments.
    fn is_whole(&self) -> bool {
        let mut from = 0;
        let ordered = self.levels.iter().all(|to| {
            let level = from..usize::from(*to);
            from = usize::from(*to);
            let disjoint = |at: usize| self.segments.get(at - 1).end() < self.segments.get(at).start;
            level.start <= level.end && level.end <= self.segments.len() && (level.start + 1..level.end).all(disjoint)
        });
        let named = |unit: u8| {
            let first = self.owner(unit);
            first.is_none_or(|first| self.segments.iter().any(|s| s.is_approximate() && s.start == first))
        };
        let fits = |segment: LearnedSegment| {
            !segment.is_approximate() || ends(self.owned_by(segment.start)) == Some((segment.start, segment.end()))
        };
        ordered && from == self.segments.len() && (0..=u8::MAX).all(named) && self.segments.iter().all(fits)
    }
}

/// The numbers of the units in a set, in order.
fn bits(set: Bits) -> impl Iterator<Item = u8> {
    let (mut word, mut left) = (0, set[0]);
    std::iter::from_fn(move || {
        while left == 0 {
            word += 1;
            left = *set.get(word)?;
        }
        let unit = (word as u32 * 64 + left.trailing_zeros()) as u8;
        left &= left - 1;
        Some(unit)
    })
}

/// Assigns levels to segments, which are ordered from the newest to the oldest. Each segment gets the uppermost level below all newer
/// segments that it overlaps. Then sorts the segments by level.
fn stack(kept: &mut [(LearnedSegment, u16)]) {
    let mut taken = [0u16; GROUP as usize];
    for (segment, level) in kept.iter_mut() {
        let range = &mut taken[usize::from(segment.start)..=usize::from(segment.end())];
        *level = range.iter().copied().max().unwrap_or(0);
        range.fill(*level + 1);
    }
    kept.sort_unstable_by_key(|(segment, level)| (*level, segment.start));
}

/// Number of segments up to which the capacity of the vector doubles. Above it, the capacity grows by a smaller fraction, because most
/// groups of a device with random overwrites have a segment for nearly every unit.
const FEW: usize = 16;
const SPARE: usize = 16;

/// A segment of one unit in compact form: the unit, and its location number.
type Packed = [u8; 5];

/// A vector of segments. Each segment takes five bytes while all of them describe one unit, as in nearly all groups of a device with random
/// overwrites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SegmentVec {
    OfOneUnit(Vec<Packed>),
    Any(Vec<LearnedSegment>),
}

impl Default for SegmentVec {
    fn default() -> Self {
        Self::OfOneUnit(Vec::new())
    }
}

/// A segment in compact form (five bytes); `None` if it describes more than one unit.
#[inline]
fn packed(segment: LearnedSegment) -> Option<Packed> {
    let place = segment.place(segment.start);
    let [a, b, c, d] = place.to_le_bytes();
    (segment.length == 0 && segment == LearnedSegment::point((segment.start, place))).then_some([segment.start, a, b, c, d])
}

#[inline]
fn unpacked([unit, a, b, c, d]: Packed) -> LearnedSegment {
    LearnedSegment::point((unit, u32::from_le_bytes([a, b, c, d])))
}

impl SegmentVec {
    pub fn len(&self) -> usize {
        match self {
            Self::OfOneUnit(segments) => segments.len(),
            Self::Any(segments) => segments.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub fn get(&self, at: usize) -> LearnedSegment {
        match self {
            Self::OfOneUnit(segments) => unpacked(segments[at]),
            Self::Any(segments) => segments[at],
        }
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = LearnedSegment> + ExactSizeIterator + '_ {
        (0..self.len()).map(|at| self.get(at))
    }

    /// Index of the first segment in a range for which `before` is false. All segments for which it is true must come first.
    #[inline]
    pub fn partition_point(&self, range: Range<usize>, before: impl Fn(LearnedSegment) -> bool) -> usize {
        let first = range.start;
        first
            + match self {
                Self::OfOneUnit(segments) => segments[range].partition_point(|segment| before(unpacked(*segment))),
                Self::Any(segments) => segments[range].partition_point(|segment| before(*segment)),
            }
    }

    pub fn push(&mut self, segment: LearnedSegment) {
        self.insert(self.len(), segment);
    }

    pub fn insert(&mut self, at: usize, segment: LearnedSegment) {
        match (&mut *self, packed(segment)) {
            (Self::OfOneUnit(segments), Some(packed)) => {
                make_room(segments);
                segments.insert(at, packed);
            }
            (Self::OfOneUnit(segments), None) => {
                let mut all: Vec<LearnedSegment> = segments.iter().copied().map(unpacked).collect();
                make_room(&mut all);
                all.insert(at, segment);
                *self = Self::Any(all);
            }
            (Self::Any(segments), _) => {
                make_room(segments);
                segments.insert(at, segment);
            }
        }
    }

    pub fn remove(&mut self, at: usize) -> LearnedSegment {
        match self {
            Self::OfOneUnit(segments) => unpacked(segments.remove(at)),
            Self::Any(segments) => segments.remove(at),
        }
    }

    /// Shortens the segment at index `at` to the units from `first` to `last`.
    pub fn trim(&mut self, at: usize, first: u8, last: u8) {
        match self {
            // A segment of one unit cannot be shortened.
            Self::OfOneUnit(_) => {}
            Self::Any(segments) => segments[at].trim(first, last),
        }
    }

    pub fn replace(&mut self, others: impl ExactSizeIterator<Item = LearnedSegment> + Clone) {
        if others.clone().all(|segment| packed(segment).is_some()) {
            if !matches!(self, Self::OfOneUnit(_)) {
                *self = Self::OfOneUnit(Vec::with_capacity(others.len()));
            }
        } else if !matches!(self, Self::Any(_)) {
            *self = Self::Any(Vec::with_capacity(others.len()));
        }
        match self {
            Self::OfOneUnit(segments) => {
                segments.clear();
                segments.extend(others.filter_map(packed));
            }
            Self::Any(segments) => {
                segments.clear();
                segments.extend(others);
            }
        }
    }

    /// Releases capacity of the vector that is probably not needed soon.
    pub fn tighten(&mut self) {
        match self {
            Self::OfOneUnit(segments) => tighten(segments),
            Self::Any(segments) => tighten(segments),
        }
    }
}

fn make_room<T>(segments: &mut Vec<T>) {
    let (len, room) = (segments.len(), segments.capacity());
    if len == room && len >= FEW {
        segments.reserve_exact(len / SPARE);
    }
}

fn tighten<T>(segments: &mut Vec<T>) {
    if segments.capacity() > FEW.max(segments.len() + 2 * segments.len() / SPARE) {
        segments.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ftl::schemes::demand::cache::NOWHERE;

    proptest! {
        #[test]
        fn a_group_gives_the_newest_place_of_every_unit_within_the_bound(
            gamma in prop::sample::select(vec![0u32, 1, 4]),
            // Each step: first unit, number of units, gap between units, step between locations, and whether levels are merged afterwards.
            steps in prop::collection::vec((any::<u8>(), 1u8..40, 1u8..5, 0u32..6, any::<bool>()), 1..60),
        ) {
            let mut group = SegmentGroup::default();
            let mut truth = [None; 256];
            let mut scratch = CompactionScratch::default();
            let mut place = 1000u32;
            for (first, count, gap, step, merges) in steps {
                let mut points = Vec::new();
                for i in 0..u32::from(count) {
                    // With a gap above 2, the distances between the units vary. A step of 0 stands for a discard.
                    let unit = u32::from(first) + i * u32::from(gap) + i * i % 3 * u32::from(gap > 2);
                    if unit > 255 || points.last().is_some_and(|(last, _)| u32::from(*last) >= unit) {
                        continue;
                    }
                    place += step + 5 * u32::from(i % 11 == 10);
                    points.push((unit as u8, if step == 0 { NOWHERE } else { place }));
                }
                group.learn(&points, gamma);
                for (unit, place) in &points {
                    truth[usize::from(*unit)] = Some(*place);
                }
                if merges {
                    group.compact(|unit| truth[usize::from(unit)].unwrap(), &mut scratch);
                    prop_assert!(group.bytes() <= 8 * 256);
                }
                prop_assert!(group.is_whole());
                for unit in 0..=255u8 {
                    let wanted = truth[usize::from(unit)].unwrap_or(NOWHERE);
                    let lookup = group.find(unit).unwrap_or(SegmentLookup { number: NOWHERE, exact: true });
                    let off = (lookup.number as i32).wrapping_sub(wanted as i32).unsigned_abs();
                    prop_assert!(off <= if lookup.exact { 0 } else { gamma }, "unit {unit}: {lookup:?}, not {wanted}");
                }
                let mut words = Vec::new();
                group.words(&mut words);
                let mut copy = Vec::new();
                let mut input = words.iter().copied();
                SegmentGroup::of_words(&mut input).unwrap().words(&mut copy);
                prop_assert_eq!(input.next(), None);
                prop_assert_eq!(copy, words);
            }
        }

        #[test]
        fn segments_are_those_of_a_vector(
            steps in prop::collection::vec((0u8..6, any::<prop::sample::Index>(), segment()), 1..200),
        ) {
            let (mut segments, mut model) = (SegmentVec::default(), Vec::new());
            for (step, at, segment) in steps {
                match step {
                    0..3 => {
                        let at = at.index(model.len() + 1);
                        segments.insert(at, segment);
                        model.insert(at, segment);
                    }
                    3 if !model.is_empty() => {
                        let at = at.index(model.len());
                        prop_assert_eq!(segments.remove(at), model.remove(at));
                    }
                    4 if !model.is_empty() => {
                        let at = at.index(model.len());
                        let (first, last) = (model[at].start, model[at].start + model[at].length / 2);
                        segments.trim(at, first, last);
                        model[at].trim(first, last);
                    }
                    _ => {
                        model.retain(|segment: &LearnedSegment| segment.length == 0 || !segment.start.is_multiple_of(3));
                        segments.replace(model.clone().into_iter());
                        segments.tighten();
                        let all = model.iter().all(|segment| packed(*segment).is_some());
                        prop_assert_eq!(matches!(segments, SegmentVec::OfOneUnit(_)), all);
                    }
                }
                prop_assert_eq!(segments.iter().collect::<Vec<_>>(), model.clone());
            }
        }
    }

    #[test]
    fn a_run_is_learned_as_its_points_are() {
        let (mut runs, mut points) = (SegmentGroup::default(), SegmentGroup::default());
        for (first, count, place) in [(0u8, 256u32, 1000u32), (40, 8, 5000), (44, 1, 7000), (48, 4, 5008)] {
            runs.learn_run(LearnedSegment::run(first, count, place));
            let units = (0..count).map(|i| (first + i as u8, place + i));
            points.learn(&units.collect::<Vec<_>>(), 0);
            assert_eq!((&runs.segments, &runs.levels), (&points.segments, &points.levels));
        }
    }

    #[test]
    fn what_a_newer_segment_hides_is_given_up_when_levels_are_merged() {
        let run = |first: u8, count: u8, base: u32| -> Vec<Point> {
            (first..first + count).map(|unit| (unit, base + u32::from(unit))).collect()
        };
        let mut group = SegmentGroup::default();
        group.learn(&run(0, 100, 1000), 0);
        group.learn(&run(10, 5, 5000), 0);
        assert_eq!((group.segments(), group.levels.len()), (2, 2));
        group.learn(&run(0, 100, 9000), 0);
        assert_eq!(group.segments(), 2);
        group.compact(|_| 0, &mut CompactionScratch::default());
        assert_eq!((group.segments(), group.levels.len(), group.bytes()), (1, 1, 8));
    }

    /// A random segment for a step of the property test: first unit, length and location.
    fn segment() -> impl Strategy<Value = LearnedSegment> {
        let place = prop_oneof![0u32..1000, Just(NOWHERE), any::<u32>()];
        (any::<u8>(), prop_oneof![9 => Just(1u32), 1 => 1u32..20], place).prop_map(|(start, count, place)| {
            let start = start.min(235);
            if count == 1 { LearnedSegment::point((start, place)) } else { LearnedSegment::run(start, count, place) }
        })
    }
}
