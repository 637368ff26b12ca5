//! Two devices beside each other: the internal one and an external card (Implication 1 of IISWC 2015).
//!
//! A router decides for each request, or part of one, which device it goes to; the two work independently, and a request
//! is complete when all its parts are. Addresses are packed, so that each device sees a range without holes.

use emmclab_device::{Command, Device, DeviceConfig, Observer, RequestCompleted};
use emmclab_trace::{Error, Kind, Nanos, Op, Request, Result};
use serde::{Deserialize, Serialize};

use crate::measure::{Kinds, Measure};
use crate::result::Times;

/// How requests are shared between the two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// Everything goes to the internal device.
    Internal,
    /// Stripes of so many KB take turns (RAID 0).
    Striping {
        /// Length of a stripe, a multiple of 4 KB.
        chunk_kb: u32,
    },
    /// Addresses from here on are files on the card.
    ByFile {
        /// Where the card's part begins, in MB.
        from_mb: u64,
    },
    /// Requests larger than this go to the card. Each device holds the whole address space.
    BySize {
        /// Largest request for the internal device.
        max_kb: u32,
    },
}

/// What came out of a run on two devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PairResult {
    /// Requests complete.
    pub requests: u64,
    /// Response time of all of them.
    pub response: Times,
    /// Requests of which the internal device had a part.
    pub internal_requests: u64,
    /// Requests of which the card had a part.
    pub card_requests: u64,
    /// Bytes to and from the internal device.
    pub internal_bytes: u64,
    /// Bytes to and from the card.
    pub card_bytes: u64,
    /// Why the run ended early, where it did.
    pub stopped: Option<String>,
}

/// The completion of a part.
#[derive(Default)]
struct Last(Option<RequestCompleted>);

impl Observer for Last {
    const UNITS: bool = false;

    fn request_completed(&mut self, event: &RequestCompleted) {
        self.0 = Some(*event);
    }
}

/// An internal device and a card.
pub struct Pair {
    devices: [Device; 2],
    routing: Routing,
    measure: Measure,
    result: PairResult,
}

/// Part of a request: device, first sector, sectors.
type Part = (usize, u64, u32);

impl Pair {
    /// Two new devices.
    ///
    /// # Errors
    /// [`Kind::Config`] for stripes that are no multiple of 4 KB, or a device whose reads pass writes.
    pub fn new(internal: &DeviceConfig, card: &DeviceConfig, routing: Routing) -> Result<Self> {
        if let Routing::Striping { chunk_kb } = routing
            && (chunk_kb == 0 || chunk_kb % 4 != 0)
        {
            return Err(Error::new(Kind::Config, format!("stripes of {chunk_kb} KB are impossible"))
                .hint("give a multiple of 4, as 64"));
        }
        for config in [internal, card] {
            if config.settings().controller.scheduling == emmclab_device::Scheduling::ReadFirst {
                return Err(Error::new(Kind::Config, "a pair needs devices that work in order of arrival")
                    .hint("set controller.scheduling = \"fifo\""));
            }
        }
        Ok(Self {
            devices: [Device::new(internal), Device::new(card)],
            routing,
            measure: Measure::default(),
            result: PairResult::default(),
        })
    }

    /// Drives one request at its recorded time; false once a device has stopped. Addresses beyond a device are folded.
    ///
    /// # Errors
    /// For a request that comes before its predecessor.
    pub fn push(&mut self, request: &Request, observer: &mut impl Observer) -> Result<bool> {
        let mut event: Option<RequestCompleted> = None;
        let mut had = [false; 2];
        let (mut sector, mut left) = (request.sector.0, request.sectors);
        loop {
            let (device, first, sectors) = self.part(sector, left, request.sectors);
            had[device] = true;
            let done = self.submit(device, request, first, sectors)?;
            let Some(done) = done else { return Ok(false) };
            if event.is_none_or(|event| done.complete > event.complete) {
                event = Some(done);
            }
            sector = sector.saturating_add(u64::from(sectors));
            left -= sectors;
            if left == 0 {
                break;
            }
        }
        if request.op == Op::Flush && self.routing != Routing::Internal {
            // Both caches have to be empty.
            if let Some(other) = self.submit(1, request, 0, 0)? {
                event = event.filter(|event| event.complete >= other.complete).or(Some(other));
            }
        }
        if let Some(event) = event {
            let whole = RequestCompleted {
                id: self.measure.requests(),
                sector: request.sector.0,
                sectors: request.sectors,
                ..event
            };
            self.result.internal_requests += u64::from(had[0]);
            self.result.card_requests += u64::from(had[1]);
            self.measure.request_completed(&whole);
            observer.request_completed(&whole);
        }
        Ok(true)
    }

    /// The first part of `left` sectors from `sector` on, of a request of `all`.
    fn part(&self, sector: u64, left: u32, all: u32) -> Part {
        match self.routing {
            Routing::Internal => (0, sector, left),
            Routing::Striping { chunk_kb } => {
                let chunk = u64::from(chunk_kb) * 2;
                let (stripe, offset) = (sector / chunk, sector % chunk);
                let sectors = u64::from(left).min(chunk - offset) as u32;
                ((stripe % 2) as usize, stripe / 2 * chunk + offset, sectors)
            }
            Routing::ByFile { from_mb } => {
                let border = from_mb.saturating_mul(2048);
                if sector >= border {
                    (1, sector - border, left)
                } else {
                    (0, sector, (border - sector).min(u64::from(left)) as u32)
                }
            }
            Routing::BySize { max_kb } => (usize::from(all > max_kb.saturating_mul(2)), sector, left),
        }
    }

    fn submit(
        &mut self,
        to: usize,
        request: &Request,
        sector: u64,
        sectors: u32,
    ) -> Result<Option<RequestCompleted>> {
        let device = &mut self.devices[to];
        let geometry = device.geometry();
        let capacity = geometry.sectors();
        let (sector, sectors) = crate::fold::place(sector, sectors, capacity, true)?;
        let mut last = Last::default();
        let arrival = Nanos(request.arrival.0);
        device.submit(&Command { arrival, sector, sectors, ..Command::from(request) }, &mut last)?;
        if let Some(stop) = device.stop() {
            self.result.stopped = Some(stop.reason().to_owned());
            return Ok(None);
        }
        let bytes = u64::from(sectors) * 512;
        *[&mut self.result.internal_bytes, &mut self.result.card_bytes][to] += bytes;
        Ok(last.0)
    }

    /// Sums the run up.
    pub fn finish(mut self) -> PairResult {
        self.result.requests = self.measure.requests();
        self.result.response = Kinds::response(&self.measure.timed());
        self.result
    }
}
