//! Draws overlapping slices in parallel lanes.

use std::io::{self, Write};

use emmclab_base::Nanos;

use crate::messages::TrackEventType;
use crate::tracks::{Argument, TrackId, TrackWriter};

/// Maximum number of lanes (tracks) in a row. Slices that need another lane are shown as instants.
pub const MOST_LANES: usize = 64;

/// A slice to draw.
#[derive(Clone, Copy, Debug)]
pub struct TrackSlice<'a> {
    /// The name of the event.
    pub name: &'static str,
    /// The category of the event.
    pub category: &'static str,
    /// Time at which the slice begins.
    pub begin: Nanos,
    /// Time at which the slice ends; not before `begin`.
    pub end: Nanos,
    /// Additional values that the viewer shows.
    pub arguments: &'a [Argument<'a>],
}

/// A row of the trace. Each slice is drawn in the first free lane; the lanes are tracks that the viewer shows as one.
#[derive(Clone, Debug)]
pub struct SliceRow {
    parent: TrackId,
    name: String,
    number: u64,
    lanes: Vec<SliceLane>,
    instants: Option<SliceLane>,
}

#[derive(Clone, Copy, Debug)]
struct SliceLane {
    track: TrackId,
    free: Nanos,
}

impl SliceRow {
    /// Creates a row below `parent` and after the rows created before. The row is written when its first slice is drawn.
    pub fn new<W: Write>(tracks: &mut TrackWriter<W>, parent: TrackId, name: &str) -> Self {
        let number = tracks.next_number();
        Self { parent, name: name.to_owned(), number, lanes: Vec::new(), instants: None }
    }

    /// The row of a thread, whose slices do not overlap.
    pub fn of_thread<W: Write>(tracks: &mut TrackWriter<W>, thread: TrackId, name: &str) -> Self {
        let lanes = vec![SliceLane { track: thread, free: Nanos::MIN }];
        Self { lanes, ..Self::new(tracks, thread, name) }
    }

    /// The end of the last slice; [`Nanos::MIN`] if there is none.
    pub fn end(&self) -> Nanos {
        self.lanes.iter().map(|lane| lane.free).max().unwrap_or(Nanos::MIN)
    }

    /// Draws a slice in the first free lane (one of the parallel tracks of this row). The part before the origin of the trace is omitted.
    /// If no lane is free, the slice is drawn as an instant with its length as an argument.
    pub fn slice<W: Write>(&mut self, tracks: &mut TrackWriter<W>, slice: &TrackSlice<'_>) -> io::Result<()> {
        let (begin, end) = (slice.begin.max(tracks.origin()), slice.end.max(slice.begin));
        if end < begin {
            return Ok(());
        }
        let lane = match self.lanes.iter().position(|lane| lane.free <= begin) {
            Some(lane) => lane,
            None if self.lanes.len() < MOST_LANES => {
                let track = tracks.lane(self.parent, &self.name, self.number)?;
                self.lanes.push(SliceLane { track, free: Nanos::MIN });
                self.lanes.len() - 1
            }
            None => return self.crowded(tracks, slice, end - begin),
        };
        let lane = &mut self.lanes[lane];
        lane.free = end;
        let name = (slice.name, slice.category);
        tracks.named(lane.track, begin, TrackEventType::SliceBegin, name, slice.arguments)?;
        tracks.end(lane.track, end)
    }

    #[cold]
    fn crowded<W: Write>(&mut self, tracks: &mut TrackWriter<W>, slice: &TrackSlice<'_>, length: Nanos) -> io::Result<()> {
        let mut arguments = slice.arguments.to_vec();
        arguments.push(("duration_ns", crate::ArgumentValue::Time(length)));
        self.instant(tracks, slice.begin, (slice.name, slice.category), &arguments)
    }

    /// Draws an event without a length. An instant that is earlier than the last event of the row is drawn at the time of the last event.
    pub fn instant<W: Write>(
        &mut self, tracks: &mut TrackWriter<W>, at: Nanos, name: (&'static str, &'static str), arguments: &[Argument<'_>],
    ) -> io::Result<()> {
        let lane = if let Some(lane) = &mut self.instants {
            lane
        } else {
            let track = tracks.lane(self.parent, &self.name, self.number)?;
            self.instants.insert(SliceLane { track, free: Nanos::MIN })
        };
        lane.free = at.max(lane.free);
        tracks.named(lane.track, lane.free, TrackEventType::Instant, name, arguments)
    }
}
