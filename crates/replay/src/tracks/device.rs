//! The tracks of a device: power, write buffer, and for each channel its bus and its planes.
//!
//! Events have the time that a way spent on an operation; it is drawn in the row of the plane. A read that belongs to a move has the times
//! of the whole move, and is drawn together with its program.

use std::io::{self, Write};

use emmclab_device::{
    BlockErased, BlockId, CacheFlushed, CollectionPurpose, Device, GcFinished, GcStarted, IdleInterrupted,
    OperationCause, PageProgrammed, PageRead, PlaneId, UnitCached, UnplacedRead, WokeUp,
};
use emmclab_perfetto::{ArgumentValue, SliceRow, StepCounter, ThroughputCounter, TrackSlice, TrackWriter};
use emmclab_trace::Nanos;

/// Category of events that are not flash operations.
const POWER: &str = "power";
const BUFFER: &str = "write buffer";
const COLLECTION: &str = "collection";

/// Draws the operations of a device.
pub(super) struct DeviceTracks {
    blocks_per_plane: u32,
    planes_per_channel: u32,
    unit_bytes: i64,
    power: SliceRow,
    buffer: SliceRow,
    fill_level: Option<StepCounter>,
    buses: Vec<ThroughputCounter>,
    planes: Vec<PlaneRows>,
    /// Collections in progress, at most one in each pool.
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

    /// Draws an operation on a plane; its bytes have passed the bus at `through`.
    fn operation<W: Write>(
        &mut self,
        tracks: &mut TrackWriter<W>,
        plane: PlaneId,
        slice: &TrackSlice<'_>,
        (through, bytes): (Nanos, u64),
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

    pub fn page_programmed<W: Write>(
        &mut self,
        tracks: &mut TrackWriter<W>,
        event: &PageProgrammed<'_>,
    ) -> io::Result<()> {
        let &PageProgrammed { block, page, pages, bus_bytes, cause, begin, end, .. } = event;
        let name = match cause {
            OperationCause::Host | OperationCause::ReadModifyWrite => "program",
            OperationCause::Gc => "move",
            OperationCause::Wear => "move (wear levelling)",
            OperationCause::Map => "program map",
        };
        let arguments = &of_pages(block, page, pages);
        let slice = TrackSlice { name, category: cause.name(), begin, end, arguments };
        let through = if cause.moves() { end } else { begin };
        self.operation(tracks, self.plane_of(block), &slice, (through, bus_bytes))
    }

    pub fn block_erased<W: Write>(&mut self, tracks: &mut TrackWriter<W>, event: &BlockErased) -> io::Result<()> {
        let &BlockErased { block, erases, begin, end, .. } = event;
        let arguments =
            &[("block", ArgumentValue::Count(block.0.into())), ("erases", ArgumentValue::Count(erases.into()))];
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
        };
        let arguments =
            &[("block", ArgumentValue::Count(block.0.into())), ("valid_units", ArgumentValue::Count(valid.into()))];
        let slice = TrackSlice { name, category: COLLECTION, begin, end, arguments };
        let plane = self.plane_of(block);
        self.planes[plane.index()].collection.slice(tracks, &slice)
    }

    pub fn idle_interrupted<W: Write>(
        &mut self,
        tracks: &mut TrackWriter<W>,
        event: IdleInterrupted,
    ) -> io::Result<()> {
        self.power.instant(tracks, event.at, ("collection in idle time interrupted", COLLECTION), &[])
    }

    pub fn unit_cached<W: Write>(&mut self, tracks: &mut TrackWriter<W>, event: &UnitCached) -> io::Result<()> {
        let bytes = i64::from(event.units) * self.unit_bytes;
        self.fill_level.as_mut().map_or(Ok(()), |held| held.set(tracks, event.at, bytes))
    }

    pub fn cache_flushed<W: Write>(&mut self, tracks: &mut TrackWriter<W>, event: &CacheFlushed) -> io::Result<()> {
        let bytes = u64::from(event.units) * self.unit_bytes.unsigned_abs();
        self.buffer.instant(tracks, event.at, ("flush", BUFFER), &[("bytes", ArgumentValue::Count(bytes))])?;
        // All of it is being written to the flash.
        self.fill_level.as_mut().map_or(Ok(()), |held| held.set(tracks, event.at, 0))
    }

    pub fn woke_up<W: Write>(&mut self, tracks: &mut TrackWriter<W>, event: &WokeUp) -> io::Result<()> {
        let &WokeUp { at, asleep, took } = event;
        let parts = [("asleep", at.saturating_sub(asleep), at), ("waking up", at, at + took)];
        parts.into_iter().try_for_each(|(name, begin, end)| {
            self.power.slice(tracks, &TrackSlice { name, category: POWER, begin, end, arguments: &[] })
        })
    }

    /// Ends all tracks. A collection that is still in progress is drawn up to the last operation of its plane.
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

/// Name of a read that does not belong to a move.
fn read_name(cause: OperationCause) -> &'static str {
    match cause {
        OperationCause::ReadModifyWrite => "read for a partial write",
        OperationCause::Map => "read map",
        OperationCause::Host | OperationCause::Gc | OperationCause::Wear => "read",
    }
}

fn of_pages(block: BlockId, page: u32, pages: u32) -> [(&'static str, ArgumentValue<'static>); 3] {
    [("block", block.0), ("page", page), ("pages", pages)]
        .map(|(name, value)| (name, ArgumentValue::Count(value.into())))
}
