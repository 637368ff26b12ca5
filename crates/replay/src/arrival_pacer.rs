//! Creates commands from requests. Computes arrival times (as recorded, scaled, or relative to the predecessor), refuses or wraps addresses
//! beyond the end of the device, and adds flushes for traces that record none (`flush_every`).

use std::borrow::Cow;

use emmclab_device::DeviceCommand;
use emmclab_trace::{Batch, BatchBuilder, ByteCount, Error, ErrorClass, Nanos, Op, Request, Result, SECTOR_BYTES, Sector};

use crate::options::{ReplayMode, ReplayOptions};

/// Calculates the arrival times of requests, one request after another.
#[derive(Debug)]
pub struct ArrivalPacer {
    mode: ReplayMode,
    /// Whether the mode was chosen automatically. A missing completion is then no error.
    lenient: bool,
    rate: crate::RateFactor,
    start: Nanos,
    first: Option<Nanos>,
    previous: Option<PreviousRequest>,
}

#[derive(Clone, Copy, Debug)]
struct PreviousRequest {
    /// Recorded arrival of the previous request.
    arrival: Nanos,
    complete: Option<Nanos>,
    /// Simulated arrival of the previous request.
    at: Nanos,
}

impl ArrivalPacer {
    /// Creates a pacer before the first request, with mode, rate and start of these options.
    pub fn new(options: &ReplayOptions) -> Self {
        Self {
            mode: options.mode,
            lenient: options.mode == ReplayMode::Auto || options.mode_reason.is_some(),
            rate: options.rate,
            start: options.start_offset,
            first: None,
            previous: None,
        }
    }

    /// The mode; [`ReplayMode::Auto`] until [`ArrivalPacer::settle`].
    pub fn mode(&self) -> ReplayMode {
        self.mode
    }

    /// Chooses a mode if it is [`ReplayMode::Auto`]; `completions` is whether the trace records completions.
    pub fn settle(&mut self, completions: bool) {
        if self.mode == ReplayMode::Auto {
            self.mode = if completions { ReplayMode::Closed } else { ReplayMode::Open };
        }
    }

    /// Whether requests are replayed in open loop, so that no request waits for another.
    pub fn is_open(&self) -> bool {
        self.mode == ReplayMode::Open
    }

    /// Whether the request waits for the completion of its predecessor.
    pub fn needs_completion(&self, request: &Request) -> bool {
        let Some(previous) = self.previous else { return false };
        match self.mode {
            ReplayMode::Open | ReplayMode::Auto => false,
            ReplayMode::Closed => previous.complete.is_some_and(|end| request.arrival >= end),
            ReplayMode::BackToBack => true,
        }
    }

    /// The simulated arrival of a request in open loop.
    #[inline]
    pub fn open_arrival(&mut self, recorded: Nanos) -> Nanos {
        let first = *self.first.get_or_insert(recorded);
        self.start.saturating_add(self.rate.scale(recorded.saturating_sub(first)))
    }

    /// The simulated arrival of a request; `completed` is the simulated completion of its predecessor.
    /// Errors: in closed loop, if the completion of its predecessor was not recorded.
    pub fn arrival(&mut self, request: &Request, completed: Nanos) -> Result<Nanos> {
        let recorded = request.arrival;
        if self.is_open() {
            return Ok(self.open_arrival(recorded));
        }
        let at = match self.previous {
            None => self.start,
            Some(_) if self.mode == ReplayMode::BackToBack => completed,
            Some(PreviousRequest { complete: None, .. }) if !self.lenient => return Err(no_completions()),
            Some(PreviousRequest { complete: Some(end), .. }) if recorded >= end => {
                completed.saturating_add(self.rate.scale(recorded.saturating_sub(end)))
            }
            Some(previous) => previous.at.saturating_add(self.rate.scale(recorded.saturating_sub(previous.arrival))),
        };
        self.previous = Some(PreviousRequest { arrival: recorded, complete: request.complete, at });
        Ok(at)
    }
}

#[cold]
fn no_completions() -> Error {
    Error::new(ErrorClass::Config, "closed-loop replay needs the recorded completion of every request")
        .hint("use open-loop replay (--mode open), which needs only the arrival times")
}

/// Adds a flush after every `every` writes.
#[derive(Clone, Copy, Debug)]
pub struct PeriodicFlushes {
    /// Number of writes between two flushes; 0 for no flush.
    every: u32,
    /// Number of writes since the last flush.
    writes: u32,
}

impl PeriodicFlushes {
    /// Adds a flush after each `every` writes; 0 adds none.
    pub fn new(every: u32) -> Self {
        Self { every, writes: 0 }
    }

    /// Returns the batch with the added flushes. A flush arrives together with the preceding write, and waits for that write in the device.
    /// Its recorded completion is that of the write: requests that waited for the write in the recording now wait for the flush.
    pub fn insert<'a>(&mut self, batch: &'a Batch) -> Cow<'a, Batch> {
        if self.every == 0 {
            return Cow::Borrowed(batch);
        }
        let mut with = BatchBuilder::of_noted(batch.has_notes());
        for (row, request) in batch.iter().enumerate() {
            with.push_noted(&request, batch.notes(row));
            self.writes += u32::from(request.op == Op::Write);
            if self.writes == self.every {
                self.writes = 0;
                let Request { arrival, complete, .. } = request;
                with.push(&Request { complete, ..Request::new(arrival, Op::Flush, Sector(0), 0) });
            }
        }
        Cow::Owned(with.finish(batch.processes(), batch.devices()))
    }
}

/// Creates commands from requests, and counts them.
#[derive(Clone, Copy, Debug)]
pub struct CommandBuilder {
    /// Number of sectors of the device, or of the top layer.
    capacity: u64,
    wrap: bool,
    /// Number of commands so far.
    pub count: u64,
    /// Number of commands so far whose address was wrapped.
    pub wrapped: u64,
}

impl CommandBuilder {
    /// Creates a builder for a device of `capacity` sectors. Requests beyond its end are wrapped if `wrap` is set, otherwise refused.
    pub fn new(capacity: u64, wrap: bool) -> Self {
        Self { capacity, wrap, count: 0, wrapped: 0 }
    }

    /// Creates the command of a request that arrives at `arrival` in simulated time.
    /// Errors: if the request ends beyond the device and is not wrapped.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for each request, whose fields are in registers")]
    pub fn command(&mut self, request: &Request, arrival: Nanos) -> Result<DeviceCommand> {
        // The count is incremented first, so that an error message contains the number of this request.
        self.count += 1;
        let (mut sector, mut sectors) = (request.sector.0, request.sectors);
        if !fits(sector, sectors, self.capacity) {
            (sector, sectors) = wrap_address(sector, sectors, self.capacity, self.wrap)?;
            self.wrapped += 1;
        }
        Ok(DeviceCommand { arrival, sector, sectors, ..DeviceCommand::from(request) })
    }
}

/// Whether a request is within `capacity` sectors.
#[inline]
fn fits(sector: u64, sectors: u32, capacity: u64) -> bool {
    sector.saturating_add(u64::from(sectors)) <= capacity
}

/// Returns the address and length of a request on a device of `capacity` sectors. A request that does not fit is wrapped: its address is
/// taken modulo the capacity, and its length is reduced if its end is still beyond the device.
#[inline(never)]
pub(crate) fn wrap_address(sector: u64, sectors: u32, capacity: u64, wrap: bool) -> Result<(u64, u32)> {
    if fits(sector, sectors, capacity) {
        return Ok((sector, sectors));
    }
    if !wrap {
        return Err(beyond(sector.saturating_add(u64::from(sectors)), capacity));
    }
    let sectors = u64::from(sectors).min(capacity);
    Ok(((sector % capacity).min(capacity - sectors), sectors as u32))
}

#[cold]
fn beyond(end: u64, capacity: u64) -> Error {
    let needed = ByteCount(end.saturating_mul(SECTOR_BYTES));
    Error::new(ErrorClass::Value, format!("a request ends after the last sector ({capacity}) of the device"))
        .of_field("sector", 0, end.to_string().as_bytes())
        .hint(format!("use a device of at least {needed} (--capacity), and a larger one if a layer reserves a part of it; or wrap the addresses around at its capacity (--wrap-addresses)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapped_requests_fit_and_others_are_untouched() {
        assert!(fits(92, 8, 100));
        assert!(!fits(93, 8, 100));
        assert!(!fits(u64::MAX, 800, 100));
        assert_eq!(wrap_address(92, 8, 100, false).unwrap(), (92, 8));
        assert!(wrap_address(93, 8, 100, false).is_err());
        assert_eq!(wrap_address(93, 8, 100, true).unwrap(), (92, 8));
        assert_eq!(wrap_address(250, 8, 100, true).unwrap(), (50, 8));
        assert_eq!(wrap_address(u64::MAX, 800, 100, true).unwrap(), (0, 100));
    }
}
