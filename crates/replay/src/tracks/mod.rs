//! A picture of a run in Perfetto's trace format: requests by process, and below them the operations of the device.

mod device;

use std::io;
use std::path::PathBuf;

use emmclab_device::{
    BlockErased, CacheFlushed, Device, GcFinished, GcStarted, IdleInterrupted, Observer, PageProgrammed, PageRead,
    RequestCompleted, UnitCached, UnplacedRead, WokeUp,
};
use emmclab_perfetto::{Argument, ArgumentValue, DrawnRequest, RequestTracks, TrackWriter};
use emmclab_trace::{AtomicFile, Batch, Error, NameTable, Nanos, RequestSender, Result, SECTOR_BYTES, picture_file};

use crate::reorder_buffer::ReorderBuffer;
use crate::sequence_map::SequenceMap;
use device::DeviceTracks;

/// Draws a run. The file appears only when complete, at [`RunTracks::finish`]. A second device is not drawn.
pub struct RunTracks {
    path: PathBuf,
    tracks: TrackWriter<AtomicFile>,
    state: Option<RunTrackState>,
    /// The first error; an observer cannot return it, so [`RunTracks::check`] does.
    failed: Option<io::Error>,
}

/// The tracks of a run.
struct RunTrackState {
    requests: RequestTracks,
    device: DeviceTracks,
    /// Senders of requests, by the number of the request.
    senders: SequenceMap<RequestSender>,
    names: NameTable,
    in_order: ReorderBuffer,
}

impl RunTracks {
    /// Creates a file at `path`, before the run is prepared.
    ///
    /// # Errors
    /// As [`picture_file`].
    pub fn create(path: PathBuf) -> Result<Self> {
        Ok(Self { tracks: picture_file(&path)?, path, state: None, failed: None })
    }

    /// Creates the tracks of a device, whose run begins at `origin` or at 0, whichever is earlier.
    ///
    /// # Errors
    /// If writing failed.
    pub fn begin(&mut self, name: &str, device: &Device, origin: Nanos) -> Result<()> {
        let tracks = &mut self.tracks;
        tracks.set_origin(origin.min(Nanos::ZERO));
        let mut lay_out = || {
            Ok(RunTrackState {
                requests: RequestTracks::new(tracks, "requests")?,
                device: DeviceTracks::new(tracks, name, device)?,
                senders: SequenceMap::default(),
                names: NameTable::default(),
                in_order: ReorderBuffer::default(),
            })
        };
        self.state = Some(lay_out().map_err(|error| Error::io(&self.path, error))?);
        Ok(())
    }

    /// Records the senders of the requests of the next batch. Without this, all requests are in one row.
    pub fn expect(&mut self, batch: &Batch) {
        if let Some(picture) = &mut self.state {
            let known = picture.names.len();
            batch.processes().from(known).for_each(|name| {
                picture.names.intern(name);
            });
            batch.iter().for_each(|request| {
                picture.senders.push(RequestSender::of(&request));
            });
        }
    }

    /// Draws additional tracks into the same file.
    pub fn draw(&mut self, more: impl FnOnce(&mut TrackWriter<AtomicFile>) -> io::Result<()>) {
        let drawn = more(&mut self.tracks);
        self.note(drawn);
    }

    /// Returns the first error of writing, once, so that a run can stop early.
    ///
    /// # Errors
    /// If writing has failed.
    pub fn check(&mut self) -> Result<()> {
        self.failed.take().map_or(Ok(()), |error| Err(Error::io(&self.path, error)))
    }

    /// Draws what is left and moves the file into place.
    ///
    /// # Errors
    /// If writing failed at any time; then no file is left.
    pub fn finish(mut self) -> Result<()> {
        self.check()?;
        let Self { path, mut tracks, state: picture, .. } = self;
        let drawn = picture.map_or(Ok(()), |picture| picture.finish(&mut tracks));
        let file = drawn.and_then(|()| tracks.finish()).map_err(|error| Error::io(&path, error))?;
        file.commit()
    }

    fn note(&mut self, drawn: io::Result<()>) {
        if let Err(error) = drawn {
            self.failed.get_or_insert(error);
        }
    }

    /// Draws an event of the device.
    fn device(&mut self, drawn: impl FnOnce(&mut DeviceTracks, &mut TrackWriter<AtomicFile>) -> io::Result<()>) {
        if let Some(picture) = &mut self.state {
            let drawn = drawn(&mut picture.device, &mut self.tracks);
            self.note(drawn);
        }
    }
}

impl RunTrackState {
    fn completed(&mut self, tracks: &mut TrackWriter<AtomicFile>, event: RequestCompleted) -> io::Result<()> {
        self.in_order.insert(event);
        while let Some(event) = self.in_order.pop() {
            self.request(tracks, &event)?;
        }
        Ok(())
    }

    fn request(&mut self, tracks: &mut TrackWriter<AtomicFile>, event: &RequestCompleted) -> io::Result<()> {
        let &RequestCompleted { op, sectors, arrival, complete, waits, .. } = event;
        let bytes = u64::from(sectors) * SECTOR_BYTES;
        let mut arguments: [Argument<'_>; 9] = [("", ArgumentValue::Count(0)); 9];
        let parts = ["queue_ns", "controller_ns", "bus_ns", "array_ns", "gc_ns", "wake_up_ns"];
        let parts = parts.into_iter().zip(waits.parts()).filter(|(_, part)| *part != Nanos::ZERO);
        let known = [
            ("sector", ArgumentValue::Count(event.sector)),
            ("bytes", ArgumentValue::Count(bytes)),
            ("subrequests", ArgumentValue::Count(event.subrequests.into())),
        ];
        let mut count = 0;
        for argument in known.into_iter().chain(parts.map(|(name, part)| (name, ArgumentValue::Time(part)))) {
            arguments[count] = argument;
            count += 1;
        }
        let sender = self.senders.take(event.id).unwrap_or(RequestSender::UNKNOWN);
        let arguments = &arguments[..count];
        let drawn = DrawnRequest { op, sectors, arrival, complete: Some(complete), arguments };
        self.requests.draw(tracks, sender.0, || sender.name(&self.names), &drawn)
    }

    fn finish(mut self, tracks: &mut TrackWriter<AtomicFile>) -> io::Result<()> {
        for event in std::mem::take(&mut self.in_order).into_remaining() {
            self.request(tracks, &event)?;
        }
        self.requests.finish(tracks)?;
        self.device.finish(tracks)
    }
}

impl Observer for RunTracks {
    const UNITS: bool = false;

    fn request_completed(&mut self, event: &RequestCompleted) {
        if let Some(picture) = &mut self.state {
            let drawn = picture.completed(&mut self.tracks, *event);
            self.note(drawn);
        }
    }

    fn page_read(&mut self, event: &PageRead) {
        self.device(|device, tracks| device.page_read(tracks, event));
    }

    fn unplaced_read(&mut self, event: &UnplacedRead) {
        self.device(|device, tracks| device.unplaced_read(tracks, event));
    }

    fn page_programmed(&mut self, event: &PageProgrammed<'_>) {
        self.device(|device, tracks| device.page_programmed(tracks, event));
    }

    fn block_erased(&mut self, event: &BlockErased) {
        self.device(|device, tracks| device.block_erased(tracks, event));
    }

    fn gc_started(&mut self, event: &GcStarted) {
        self.device(|device, _| {
            device.gc_started(event);
            Ok(())
        });
    }

    fn gc_finished(&mut self, event: &GcFinished) {
        self.device(|device, tracks| device.gc_finished(tracks, event));
    }

    fn idle_interrupted(&mut self, event: &IdleInterrupted) {
        self.device(|device, tracks| device.idle_interrupted(tracks, *event));
    }

    fn unit_cached(&mut self, event: &UnitCached) {
        self.device(|device, tracks| device.unit_cached(tracks, event));
    }

    fn cache_flushed(&mut self, event: &CacheFlushed) {
        self.device(|device, tracks| device.cache_flushed(tracks, event));
    }

    fn woke_up(&mut self, event: &WokeUp) {
        self.device(|device, tracks| device.woke_up(tracks, event));
    }
}
