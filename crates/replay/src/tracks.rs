//! Writes a Perfetto trace of a run: requests by process, and below them the operations of the device.

use std::io::{self, Write};
use std::path::PathBuf;

use emmclab_device::{
    BlockErased, BlockId, CacheFlushed, CollectionPurpose, Device, GcFinished, GcStarted, IdleInterrupted, Observer,
    OperationCause, OperationsDelayed, PageProgrammed, PageRead, PlaneId, RequestCompleted, SuspendableOperation, UnitCached,
    UnplacedRead, WokeUp,
};
use emmclab_perfetto::{
    Argument, ArgumentValue, DrawnRequest, RequestTracks, SliceRow, StepCounter, ThroughputCounter, TrackSlice, TrackWriter,
};
use emmclab_trace::{AtomicFile, Batch, Error, NameTable, Nanos, RequestSender, Result, SECTOR_BYTES, picture_file};

use crate::sequence_map::{ReorderBuffer, SequenceMap};

/// Writes a Perfetto trace of a run. The file appears only when it is complete, at [`RunTracks::finish`]. A second device is not drawn.
pub struct RunTracks {
    path: PathBuf,
    tracks: TrackWriter<AtomicFile>,
    state: Option<RunTrackState>,
    /// The first write error. An observer cannot return it, so [`RunTracks::check`] does.
    failed: Option<io::Error>,
}

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
    pub fn create(path: PathBuf) -> Result<Self> {
        Ok(Self { tracks: picture_file(&path)?, path, state: None, failed: None })
    }

    /// Creates the tracks of a device. The time axis begins at `origin` or at 0, whichever is earlier.
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

    /// Adds the senders of the requests in the next batch, so that requests are drawn in a row for each sender. Without senders, all
    /// requests are drawn in one row.
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

    /// Draws additional tracks into the file.
    pub fn draw(&mut self, more: impl FnOnce(&mut TrackWriter<AtomicFile>) -> io::Result<()>) {
        let drawn = more(&mut self.tracks);
        self.note(drawn);
    }

    /// Returns the first write error, once, so that a run can stop early.
    pub fn check(&mut self) -> Result<()> {
        self.failed.take().map_or(Ok(()), |error| Err(Error::io(&self.path, error)))
    }

    /// Draws the remaining events and moves the file to its path.
    /// Errors: if a write failed at any time. No file is left in this case.
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

    /// Draws an event of the device with `drawn`.
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

    fn operations_delayed(&mut self, event: &OperationsDelayed) {
        self.device(|device, tracks| device.operations_delayed(tracks, event));
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

/// Category of events that are not flash operations.
const POWER: &str = "power";
const BUFFER: &str = "write buffer";
const COLLECTION: &str = "collection";

/// Draws the operations of a device: power, write buffer, and for each channel its bus and its planes. An operation is drawn in the row of
/// its plane. The event lasts until the plane, or the die or chip that works as one with it, is free again. A page move is a single event:
/// only its program is drawn, with the times of the whole move.
pub(super) struct DeviceTracks {
    blocks_per_plane: u32,
    planes_per_channel: u32,
    unit_bytes: i64,
    power: SliceRow,
    buffer: SliceRow,
    fill_level: Option<StepCounter>,
    buses: Vec<ThroughputCounter>,
    planes: Vec<PlaneRows>,
    /// Garbage collections in progress, at most one in each pool of blocks.
    collecting: Vec<GcStarted>,
}

struct PlaneRows {
    operations: SliceRow,
    collection: SliceRow,
}

impl DeviceTracks {
    pub fn new<W: Write>(tracks: &mut TrackWriter<W>, name: &str, device: &Device) -> io::Result<Self> {
        let geometry = device.geometry();
        let group = tracks.group(None, &format!("device {name}"))?;
        let power = SliceRow::new(tracks, group, "power");
        let held = match device.cache_sectors() {
            0 => None,
            _ => Some(StepCounter::new(tracks.counter(group, "write buffer", "bytes")?)),
        };
        let buffer = SliceRow::new(tracks, group, "flushes");
        let (mut buses, mut planes) = (Vec::new(), Vec::new());
        let per_way = device.planes_per_way();
        for channel in 0..geometry.channels {
            let channel_group = tracks.group(Some(group), &format!("channel {channel}"))?;
            let bus = tracks.counter(channel_group, "bus", ThroughputCounter::UNIT)?;
            buses.push(ThroughputCounter::new(bus));
            let mut way_group = channel_group;
            for plane in channel * geometry.planes_per_channel..(channel + 1) * geometry.planes_per_channel {
                let way = plane / per_way;
                let name = if per_way == 1 {
                    format!("way {way} (plane {plane})")
                } else {
                    if plane % per_way == 0 {
                        way_group = tracks.group(Some(channel_group), &format!("way {way}"))?;
                    }
                    format!("plane {plane}")
                };
                let operations = SliceRow::new(tracks, way_group, &name);
                let collection = SliceRow::new(tracks, way_group, &format!("{name}: collection"));
                planes.push(PlaneRows { operations, collection });
            }
        }
        Ok(Self {
            blocks_per_plane: geometry.blocks_per_plane,
            planes_per_channel: geometry.planes_per_channel,
            unit_bytes: geometry.unit_bytes.into(),
            power,
            buffer,
            fill_level: held,
            buses,
            planes,
            collecting: Vec::new(),
        })
    }

    fn plane_of(&self, block: BlockId) -> PlaneId {
        PlaneId(block.0 / self.blocks_per_plane)
    }

    /// Draws an operation on a plane. The transfer of its data over the bus ends at `through`.
    fn operation<W: Write>(
        &mut self, tracks: &mut TrackWriter<W>, plane: PlaneId, slice: &TrackSlice<'_>, (through, bytes): (Nanos, u64),
    ) -> io::Result<()> {
        if bytes > 0 {
            let bus = &mut self.buses[(plane.0 / self.planes_per_channel) as usize];
            bus.add(tracks, through, bytes)?;
        }
        self.planes[plane.index()].operations.slice(tracks, slice)
    }

    pub fn page_read<W: Write>(&mut self, tracks: &mut TrackWriter<W>, event: &PageRead) -> io::Result<()> {
        let &PageRead { block, page, pages, bus_bytes, cause, begin, end, .. } = event;
        let plane = self.plane_of(block);
        if cause.moves() {
            let bus = &mut self.buses[(plane.0 / self.planes_per_channel) as usize];
            return bus.add(tracks, end, bus_bytes);
        }
        let arguments = &of_pages(block, page, pages);
        let slice = TrackSlice { name: read_name(cause), category: cause.name(), begin, end, arguments };
        self.operation(tracks, plane, &slice, (end, bus_bytes))
    }

    pub fn unplaced_read<W: Write>(&mut self, tracks: &mut TrackWriter<W>, event: &UnplacedRead) -> io::Result<()> {
        let &UnplacedRead { plane, bus_bytes, cause, begin, end, .. } = event;
        let slice = TrackSlice { name: read_name(cause), category: cause.name(), begin, end, arguments: &[] };
        self.operation(tracks, plane, &slice, (end, bus_bytes))
    }

    pub fn page_programmed<W: Write>(&mut self, tracks: &mut TrackWriter<W>, event: &PageProgrammed<'_>) -> io::Result<()> {
        let &PageProgrammed { block, page, pages, bus_bytes, cause, begin, end, .. } = event;
        let name = match cause {
            OperationCause::Host | OperationCause::ReadModifyWrite => "program",
            OperationCause::Gc => "move",
            OperationCause::Wear => "move (wear levelling)",
            OperationCause::Refresh => "move (refresh)",
            OperationCause::Map => "program map",
        };
        let arguments = &of_pages(block, page, pages);
        let slice = TrackSlice { name, category: cause.name(), begin, end, arguments };
        let through = if cause.moves() { end } else { begin };
        self.operation(tracks, self.plane_of(block), &slice, (through, bus_bytes))
    }

    /// Draws the time by which operations end later. The operations themselves are drawn where they were planned.
    pub fn operations_delayed<W: Write>(&mut self, tracks: &mut TrackWriter<W>, event: &OperationsDelayed) -> io::Result<()> {
        let &OperationsDelayed { planes: (plane, _), at, delay, kind, .. } = event;
        let name = match kind {
            Some(SuspendableOperation::Erase) => "suspended erase",
            Some(SuspendableOperation::Move) => "suspended move",
            Some(SuspendableOperation::WriteBack) => "suspended program",
            None => "delayed operations",
        };
        let slice = TrackSlice { name, category: OperationCause::Host.name(), begin: at, end: at + delay, arguments: &[] };
        self.planes[plane.index()].operations.slice(tracks, &slice)
    }

    pub fn block_erased<W: Write>(&mut self, tracks: &mut TrackWriter<W>, event: &BlockErased) -> io::Result<()> {
        let &BlockErased { block, erases, begin, end, .. } = event;
        let arguments = &[("block", ArgumentValue::Count(block.0.into())), ("erases", ArgumentValue::Count(erases.into()))];
        let slice = TrackSlice { name: "erase", category: COLLECTION, begin, end, arguments };
        self.operation(tracks, self.plane_of(block), &slice, (end, 0))
    }

    pub fn gc_started(&mut self, event: &GcStarted) {
        match self.collecting.iter_mut().find(|begun| begun.block == event.block) {
            Some(begun) => *begun = *event,
            None => self.collecting.push(*event),
        }
    }

    pub fn gc_finished<W: Write>(&mut self, tracks: &mut TrackWriter<W>, event: &GcFinished) -> io::Result<()> {
        let Some(begun) = self.collecting.iter().position(|begun| begun.block == event.block) else {
            return Ok(());
        };
        let begun = self.collecting.swap_remove(begun);
        self.collection(tracks, &begun, event.at)
    }

    fn collection<W: Write>(&mut self, tracks: &mut TrackWriter<W>, begun: &GcStarted, end: Nanos) -> io::Result<()> {
        let &GcStarted { block, valid, collection, at: begin } = begun;
        let name = match collection {
            CollectionPurpose::Space => "garbage collection",
            CollectionPurpose::Fold => "SLC folding",
            CollectionPurpose::Wear => "wear levelling",
            CollectionPurpose::Refresh => "refresh",
        };
        let arguments = &[("block", ArgumentValue::Count(block.0.into())), ("valid_units", ArgumentValue::Count(valid.into()))];
        let slice = TrackSlice { name, category: COLLECTION, begin, end, arguments };
        let plane = self.plane_of(block);
        self.planes[plane.index()].collection.slice(tracks, &slice)
    }

    pub fn idle_interrupted<W: Write>(&mut self, tracks: &mut TrackWriter<W>, event: IdleInterrupted) -> io::Result<()> {
        self.power.instant(tracks, event.at, ("collection in idle time interrupted", COLLECTION), &[])
    }

    pub fn unit_cached<W: Write>(&mut self, tracks: &mut TrackWriter<W>, event: &UnitCached) -> io::Result<()> {
        let bytes = i64::from(event.units) * self.unit_bytes;
        self.fill_level.as_mut().map_or(Ok(()), |held| held.set(tracks, event.at, bytes))
    }

    pub fn cache_flushed<W: Write>(&mut self, tracks: &mut TrackWriter<W>, event: &CacheFlushed) -> io::Result<()> {
        let bytes = u64::from(event.units) * self.unit_bytes.unsigned_abs();
        self.buffer.instant(tracks, event.at, ("flush", BUFFER), &[("bytes", ArgumentValue::Count(bytes))])?;
        // The flush writes all data in the buffer to the flash, so the fill level becomes 0.
        self.fill_level.as_mut().map_or(Ok(()), |held| held.set(tracks, event.at, 0))
    }

    pub fn woke_up<W: Write>(&mut self, tracks: &mut TrackWriter<W>, event: &WokeUp) -> io::Result<()> {
        let &WokeUp { at, asleep, took, .. } = event;
        let parts = [("asleep", at.saturating_sub(asleep), at), ("waking up", at, at + took)];
        parts.into_iter().try_for_each(|(name, begin, end)| {
            self.power.slice(tracks, &TrackSlice { name, category: POWER, begin, end, arguments: &[] })
        })
    }

    /// Ends all tracks. A garbage collection in progress is drawn up to the last operation of its plane.
    pub fn finish<W: Write>(mut self, tracks: &mut TrackWriter<W>) -> io::Result<()> {
        for begun in std::mem::take(&mut self.collecting) {
            let plane = self.plane_of(begun.block);
            let end = self.planes[plane.index()].operations.end().max(begun.at);
            self.collection(tracks, &begun, end)?;
        }
        if let Some(held) = &mut self.fill_level {
            held.write(tracks)?;
        }
        self.buses.into_iter().try_for_each(|bus| bus.finish(tracks))
    }
}

/// Returns the name of a read that is not part of a page move.
fn read_name(cause: OperationCause) -> &'static str {
    match cause {
        OperationCause::ReadModifyWrite => "read for a partial write",
        OperationCause::Map => "read map",
        OperationCause::Host | OperationCause::Gc | OperationCause::Wear | OperationCause::Refresh => "read",
    }
}

fn of_pages(block: BlockId, page: u32, pages: u32) -> [(&'static str, ArgumentValue<'static>); 3] {
    [("block", block.0), ("page", page), ("pages", pages)].map(|(name, value)| (name, ArgumentValue::Count(value.into())))
}
