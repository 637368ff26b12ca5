//! A compact vector for the segments of a group.

use std::ops::Range;

use super::segment::LearnedSegment;

/// Number of segments up to which the capacity doubles as usual. Above it, the capacity grows by a fraction, because most groups of a
/// device with random overwrites have a segment for nearly every unit.
const FEW: usize = 16;
const SPARE: usize = 16;

/// A segment of one unit: the unit, and the number of its location.
type Packed = [u8; 5];

/// A vector of segments. Each takes five bytes as long as all of them describe one unit, as nearly all do on a device with random
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

/// A segment in five bytes; `None` if it describes more than one unit.
#[inline]
fn packed(segment: LearnedSegment) -> Option<Packed> {
    let place = segment.place(segment.start);
    let [a, b, c, d] = place.to_le_bytes();
    (segment.length == 0 && segment == LearnedSegment::point((segment.start, place))).then_some([
        segment.start,
        a,
        b,
        c,
        d,
    ])
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

    /// Index of the first segment in a range for which `before` is false. The range must begin with those for which it is true.
    #[inline]
    pub fn partition_point(&self, range: Range<usize>, before: impl Fn(LearnedSegment) -> bool) -> usize {
        let first = range.start;
        first
            + match self {
                Self::OfOneUnit(segments) => segments[range].partition_point(|one| before(unpacked(*one))),
                Self::Any(segments) => segments[range].partition_point(|one| before(*one)),
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

    /// Shortens a segment to the units from `first` to `last`.
    pub fn trim(&mut self, at: usize, first: u8, last: u8) {
        match self {
            // A segment of one unit cannot become shorter.
            Self::OfOneUnit(_) => {}
            Self::Any(segments) => segments[at].trim(first, last),
        }
    }

    /// Replaces all segments by others.
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

    /// Releases memory that is not expected to be needed soon.
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
    use super::super::super::location_numbering::NOWHERE;
    use super::*;
    use proptest::prelude::*;

    /// A random segment for a step of the model: by first unit, length and location.
    fn segment() -> impl Strategy<Value = LearnedSegment> {
        let place = prop_oneof![0u32..1000, Just(NOWHERE), any::<u32>()];
        (any::<u8>(), prop_oneof![9 => Just(1u32), 1 => 1u32..20], place).prop_map(|(start, count, place)| {
            let start = start.min(235);
            if count == 1 { LearnedSegment::point((start, place)) } else { LearnedSegment::run(start, count, place) }
        })
    }

    proptest! {
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
                        model.retain(|one: &LearnedSegment| one.length == 0 || !one.start.is_multiple_of(3));
                        segments.replace(model.clone().into_iter());
                        segments.tighten();
                        let all = model.iter().all(|one| packed(*one).is_some());
                        prop_assert_eq!(matches!(segments, SegmentVec::OfOneUnit(_)), all);
                    }
                }
                prop_assert_eq!(segments.iter().collect::<Vec<_>>(), model.clone());
            }
        }
    }
}
