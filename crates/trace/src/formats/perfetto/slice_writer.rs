//! Writes each request as a slice for Perfetto's UI, from arrival to completion, in the row of its process.

use std::io;
use std::path::PathBuf;

use emmclab_perfetto::{Argument, ArgumentValue, DrawnRequest, RequestTracks, TrackWriter};
use rustc_hash::FxHashMap;

use crate::formats::prelude::*;
use crate::{NameId, OutputCompression};

/// File-name extensions; the UI accepts both.
pub(super) const EXTENSIONS: &[&str] = &["pftrace", "perfetto-trace"];

pub(super) const HOLDS: FormatCapabilities = FormatCapabilities::ALL_BUT_NOTES;

/// The sender of a request, which has its own row in the UI: a process by name, or by id if it has no name. Requests with neither
/// share a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestSender(pub u32);

impl RequestSender {
    /// Bit that marks the number of a sender without a name. The other bits are the process id.
    const NAMELESS: u32 = 1 << 31;
    /// The sender of requests with neither name nor process id.
    pub const UNKNOWN: Self = Self(u32::MAX);

    /// The sender of a request.
    pub fn of(request: &Request) -> Self {
        match (request.process, request.pid) {
            (Some(process), _) => Self(process.0),
            (None, Some(pid)) => Self(pid.unsigned_abs() | Self::NAMELESS),
            (None, None) => Self::UNKNOWN,
        }
    }

    /// The name of the sender; `processes` is the table of the trace's process names.
    pub fn name(self, processes: &NameTable) -> String {
        if self == Self::UNKNOWN {
            return "all processes".to_owned();
        }
        let name = processes.get(NameId(self.0)).map(ToOwned::to_owned);
        name.unwrap_or_else(|| format!("process {}", self.0 & !Self::NAMELESS))
    }
}

/// Creates a file for Perfetto's UI; it is compressed if its name also has the extension of a compression. Fails with
/// [`ErrorClass::Config`] if the name has another extension; also fails if the folder is not writable.
pub fn picture_file(path: &Path) -> Result<TrackWriter<AtomicFile>> {
    let name = path.to_string_lossy();
    let (name, compression) = OutputCompression::split(&name);
    let ending = Path::new(name).extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    if !ending.is_some_and(|ending| EXTENSIONS.contains(&ending.as_str())) {
        return Err(Error::new(ErrorClass::Config, "the name does not have the extension of a Perfetto trace")
            .in_file(path)
            .hint("use the extension .pftrace or .perfetto-trace; .gz after it compresses the file"));
    }
    let file = AtomicFile::create(path)?.compressed(compression)?;
    TrackWriter::new(file).map_err(|error| Error::io(path, error))
}

pub(super) fn create(file: AtomicFile, header: &TraceHeader) -> Result<Box<dyn TraceSink>> {
    let path = file.path().to_owned();
    let tracks = TrackWriter::new(file).map_err(|error| Error::io(&path, error))?;
    let unix = header.clock == "unix";
    Ok(Box::new(PerfettoSink { path, unix, tracks, begun: false, devices: FxHashMap::default() }))
}

struct PerfettoSink {
    path: PathBuf,
    unix: bool,
    tracks: TrackWriter<AtomicFile>,
    begun: bool,
    devices: FxHashMap<Option<NameId>, RequestTracks>,
}

impl PerfettoSink {
    fn draw(&mut self, request: &Request, batch: &Batch) -> io::Result<()> {
        let tracks = &mut self.tracks;
        if !self.begun {
            self.begun = true;
            tracks.set_origin(request.arrival.min(Nanos::ZERO));
            if self.unix {
                tracks.unix_clock(request.arrival)?;
            }
        }
        let device = match self.devices.entry(request.device) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => {
                let name = request.device.and_then(|device| batch.devices().get(device));
                let name = name.map_or("requests".to_owned(), |name| format!("requests of {name}"));
                new.insert(RequestTracks::new(tracks, &name)?)
            }
        };
        let mut arguments: Vec<Argument<'_>> = Vec::with_capacity(7);
        arguments.push(("sector", ArgumentValue::Count(request.sector.0)));
        arguments.push(("bytes", ArgumentValue::Count(u64::from(request.sectors) * SECTOR_BYTES)));
        let since = |time: Option<Nanos>, from: Option<Nanos>| Some(ArgumentValue::Time(time? - from?));
        let pid = request.pid.map(|pid| ArgumentValue::Count(u64::from(pid.unsigned_abs())));
        let flags = names_of(request.flags);
        let times = [
            ("wait_ns", since(request.start, Some(request.arrival))),
            ("issued_after_ns", since(request.issue, Some(request.arrival))),
            ("service_ns", request.service().map(ArgumentValue::Time)),
            ("pid", pid),
            ("flags", (!flags.is_empty()).then_some(ArgumentValue::Text(&flags))),
        ];
        arguments.extend(times.into_iter().filter_map(|(name, value)| Some((name, value?))));
        let sender = RequestSender::of(request);
        let &Request { op, sectors, arrival, complete, .. } = request;
        let drawn = DrawnRequest { op, sectors, arrival, complete, arguments: &arguments };
        device.draw(tracks, sender.0, || sender.name(batch.processes()), &drawn)
    }
}

fn names_of(flags: RequestFlags) -> String {
    let set = RequestFlags::NAMES.iter().enumerate().filter(|(bit, _)| flags.0 >> bit & 1 == 1);
    set.map(|(_, name)| *name).collect::<Vec<_>>().join("|")
}

impl TraceSink for PerfettoSink {
    fn write(&mut self, batch: &Batch) -> Result<()> {
        batch.iter().try_for_each(|request| self.draw(&request, batch)).map_err(|error| Error::io(&self.path, error))
    }

    fn finish(self: Box<Self>, _ledger: &Ledger, _header: &TraceHeader) -> Result<AtomicFile> {
        let Self { path, mut tracks, devices, .. } = *self;
        let mut devices: Vec<_> = devices.into_iter().collect();
        devices.sort_by_key(|(device, _)| *device);
        let drawn = devices.into_iter().try_for_each(|(_, device)| device.finish(&mut tracks));
        drawn.and_then(|()| tracks.finish()).map_err(|error| Error::io(&path, error))
    }
}
