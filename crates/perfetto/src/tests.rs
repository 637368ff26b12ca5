//! Decodes written packets, and checks the rules of Perfetto and that the packets contain what was drawn.

#![expect(clippy::float_cmp, reason = "counts are whole, and a counter ends with 0 itself")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use emmclab_base::{Nanos, Op};
use proptest::prelude::*;
use prost::Message;

use crate::messages::{CounterValue, TracePacket, TrackDescriptor, TrackEventType};
use crate::{ArgumentValue, DrawnRequest, MOST_LANES, RequestTracks, SliceRow, ThroughputCounter, TrackSlice, TrackWriter};

#[derive(Clone, PartialEq, Message)]
struct EncodedTrace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<TracePacket>,
}

#[derive(Debug, Default)]
struct TraceContents {
    tracks: BTreeMap<u64, TrackDescriptor>,
    /// For each track, the begin and the end of its slices.
    slices: BTreeMap<u64, Vec<(u64, u64)>>,
    instants: Vec<u64>,
    counters: BTreeMap<u64, Vec<(u64, f64)>>,
}

impl TraceContents {
    /// Decodes a trace and checks the rules that hold for every trace.
    fn of(bytes: &[u8]) -> Self {
        let mut shown = Self::default();
        let (mut open, mut last) = (BTreeMap::new(), BTreeMap::new());
        let mut names = [BTreeSet::new(), BTreeSet::new(), BTreeSet::new()];
        for (index, packet) in EncodedTrace::decode(bytes).unwrap().packet.into_iter().enumerate() {
            assert_eq!(packet.trusted_packet_sequence_id, Some(1));
            assert_eq!(packet.sequence_flags == Some(1), index == 0, "the state is cleared once");
            if let Some(new) = packet.interned_data {
                let lists = [new.event_categories, new.event_names, new.debug_annotation_names];
                for (known, list) in names.iter_mut().zip(lists) {
                    for name in list {
                        assert!(known.insert(name.iid.unwrap()), "{name:?}");
                    }
                }
            }
            if let Some(track) = packet.track_descriptor {
                assert!(track.parent_uuid.is_none_or(|parent| shown.tracks.contains_key(&parent)));
                assert!(shown.tracks.insert(track.uuid.unwrap(), track).is_none());
            }
            let Some(event) = packet.track_event else { continue };
            let (track, at) = (event.track_uuid.unwrap(), packet.timestamp.unwrap());
            assert!(shown.tracks.contains_key(&track), "a track is described before its events");
            let before = last.insert(track, at);
            assert!(before.is_none_or(|before| before <= at), "the time of a track goes back");
            let kind = event.r#type.unwrap();
            if kind == TrackEventType::SliceBegin as i32 || kind == TrackEventType::Instant as i32 {
                assert!(event.category_iids.iter().all(|name| names[0].contains(name)));
                assert!(names[1].contains(&event.name_iid.unwrap()));
                assert!(event.debug_annotations.iter().all(|annotation| names[2].contains(&annotation.name_iid.unwrap())));
            }
            match TrackEventType::try_from(kind).unwrap() {
                TrackEventType::SliceBegin => {
                    assert!(open.insert(track, at).is_none(), "a slice within a slice");
                }
                TrackEventType::SliceEnd => {
                    let begin = open.remove(&track).expect("an end without a beginning");
                    shown.slices.entry(track).or_default().push((begin, at));
                }
                TrackEventType::Instant => shown.instants.push(at),
                TrackEventType::Counter => {
                    let value = match event.counter.unwrap() {
                        CounterValue::Whole(value) => value as f64,
                        CounterValue::Real(value) => value,
                    };
                    shown.counters.entry(track).or_default().push((at, value));
                }
                TrackEventType::Unspecified => panic!("an event without a type"),
            }
        }
        assert!(open.is_empty(), "slices without an end");
        shown
    }

    fn all_slices(&self) -> Vec<(u64, u64)> {
        let mut all: Vec<_> = self.slices.values().flatten().copied().collect();
        all.sort_unstable();
        all
    }

    fn counter(&self, name: &str) -> &[(u64, f64)] {
        let track = self.tracks.values().find(|track| track.name.as_deref() == Some(name)).unwrap();
        self.counters.get(&track.uuid.unwrap()).map_or(&[], Vec::as_slice)
    }
}

fn draw(drawn: impl FnOnce(&mut TrackWriter<Vec<u8>>) -> io::Result<()>) -> TraceContents {
    let mut tracks = TrackWriter::new(Vec::new()).unwrap();
    drawn(&mut tracks).unwrap();
    TraceContents::of(&tracks.finish().unwrap())
}

fn slice(begin: i64, end: i64) -> TrackSlice<'static> {
    let arguments = &[("sector", ArgumentValue::Count(8)), ("flags", ArgumentValue::Text("sync|meta"))];
    TrackSlice { name: "read", category: "host", begin: Nanos(begin), end: Nanos(end), arguments }
}

proptest! {
    /// Draws slices in any order of time, because devices may report an event before its time.
    #[test]
    fn slices_of_a_row_that_overlap_stand_side_by_side(
        drawn in prop::collection::vec((0i64..1_000, 0i64..200), 0..200),
    ) {
        let shown = draw(|tracks| {
            let group = tracks.group(None, "group")?;
            let mut row = SliceRow::new(tracks, group, "row");
            drawn.iter().try_for_each(|(begin, length)| row.slice(tracks, &slice(*begin, begin + length)))
        });
        for slices in shown.slices.values() {
            prop_assert!(slices.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        }
        let mut all = shown.all_slices();
        prop_assert!(shown.slices.len() <= MOST_LANES);
        prop_assert_eq!(all.len() + shown.instants.len(), drawn.len());
        if shown.instants.is_empty() {
            let mut expected: Vec<_> = drawn.iter().map(|(at, length)| (*at as u64, (at + length) as u64)).collect();
            expected.sort_unstable();
            all.sort_unstable();
            prop_assert_eq!(all, expected);
        }
        let keys: BTreeSet<_> = shown.slices.keys().map(|track| shown.tracks[track].sibling_merge_key_int).collect();
        prop_assert!(keys.len() <= 1, "lanes are shown as one");
    }

    #[test]
    fn queue_depth_and_throughput_are_those_of_the_requests(
        steps in prop::collection::vec((0i64..40_000_000, 0i64..900_000_000, 1u32..64, any::<bool>()), 1..120),
    ) {
        let mut at = 0;
        let requests: Vec<_> = steps.into_iter().map(|(gap, took, sectors, write)| {
            at += gap;
            (at, at + took, sectors, if write { Op::Write } else { Op::Read })
        }).collect();
        let shown = draw(|tracks| {
            let mut drawn = RequestTracks::new(tracks, "requests")?;
            for (arrival, complete, sectors, op) in requests.iter().copied() {
                let (arrival, complete) = (Nanos(arrival), Some(Nanos(complete)));
                let request = DrawnRequest { op, sectors, arrival, complete, arguments: &[] };
                drawn.draw(tracks, 7, || "browser".to_owned(), &request)?;
            }
            drawn.finish(tracks)
        });
        let depth = shown.counter("queue depth");
        for (index, (time, value)) in depth.iter().enumerate() {
            let under_way = requests.iter().filter(|(begin, end, ..)| {
                *begin as u64 <= *time && *time < *end as u64
            });
            prop_assert_eq!(under_way.count() as f64, *value);
            prop_assert!(index == 0 || depth[index - 1].0 < *time, "one value at a time");
        }
        prop_assert_eq!(depth.last().map_or(0.0, |(_, value)| *value), 0.0);
        for (name, op) in [("read throughput", Op::Read), ("write throughput", Op::Write)] {
            let bytes: u64 =
                requests.iter().filter(|request| request.3 == op).map(|request| u64::from(request.2) * 512).sum();
            // A counter value is valid until the next one.
            let points = shown.counter(name);
            let flown: f64 = points.windows(2).map(|pair| pair[0].1 * (pair[1].0 - pair[0].0) as f64 / 1e9).sum();
            prop_assert!((flown * f64::from(1 << 20) - bytes as f64).abs() < 1.0, "{} of {}", flown, bytes);
            prop_assert_eq!(points.last().map_or(0.0, |(_, value)| *value), 0.0);
        }
    }
}

#[test]
fn more_at_a_time_than_there_are_lanes_become_instants_with_their_length() {
    let count = MOST_LANES + 3;
    let shown = draw(|tracks| {
        let group = tracks.group(None, "group")?;
        let mut row = SliceRow::new(tracks, group, "row");
        (0..count as i64).try_for_each(|at| row.slice(tracks, &slice(at, 1_000_000)))
    });
    assert_eq!((shown.all_slices().len(), shown.instants.len()), (MOST_LANES, 3));
}

#[test]
fn bytes_after_a_long_pause_and_from_long_ago_are_not_lost() {
    let day = 86_400_000;
    let shown = draw(|tracks| {
        let group = tracks.group(None, "group")?;
        let mut flow = ThroughputCounter::new(tracks.counter(group, "flow", ThroughputCounter::UNIT)?);
        for at_ms in [50, 7 * day, 10, 7 * day + 250] {
            flow.add(tracks, Nanos::from_millis(at_ms), 1 << 20)?;
        }
        flow.finish(tracks)
    });
    let (week, tenth) = (7 * day as u64 * 1_000_000, 100_000_000);
    let expected =
        [(0, 10.0), (tenth, 0.0), (week, 20.0), (week + tenth, 0.0), (week + 2 * tenth, 10.0), (week + 3 * tenth, 0.0)];
    assert_eq!(shown.counter("flow"), expected);
}

#[test]
fn what_lies_before_the_origin_is_cut_off() {
    let shown = draw(|tracks| {
        tracks.set_origin(Nanos(-100));
        let group = tracks.group(None, "group")?;
        let mut row = SliceRow::new(tracks, group, "row");
        for (begin, end) in [(i64::MIN, i64::MIN + 5), (-300, -200), (-150, -50), (-20, 7)] {
            row.slice(tracks, &slice(begin, end))?;
        }
        row.instant(tracks, Nanos(-101), ("interrupted", "power"), &[])
    });
    assert_eq!(shown.all_slices(), [(0, 50), (80, 107)]);
    assert!(shown.instants.is_empty());
}

#[test]
fn the_same_calls_give_the_same_bytes() {
    let bytes = || {
        let mut tracks = TrackWriter::new(Vec::new()).unwrap();
        let mut drawn = RequestTracks::new(&mut tracks, "requests").unwrap();
        for sender in [3, 1, 2, 1] {
            let (arrival, complete) = (Nanos(5), Some(Nanos(9)));
            let request = DrawnRequest { op: Op::Write, sectors: 8, arrival, complete, arguments: &[] };
            drawn.draw(&mut tracks, sender, || sender.to_string(), &request).unwrap();
        }
        drawn.finish(&mut tracks).unwrap();
        tracks.finish().unwrap()
    };
    assert_eq!(bytes(), bytes());
}

#[test]
fn a_full_disk_is_an_error_of_the_call_that_meets_it() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let fits = bytes.len().min(self.0);
            self.0 -= fits;
            if fits == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(fits) }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut tracks = TrackWriter::new(Full(100_000)).unwrap();
    let group = tracks.group(None, "group").unwrap();
    let mut row = SliceRow::new(&mut tracks, group, "row");
    let failed = (0..100_000).find_map(|at| row.slice(&mut tracks, &slice(at, at + 1)).err());
    assert_eq!(failed.map(|error| error.kind()), Some(io::ErrorKind::StorageFull));
}
