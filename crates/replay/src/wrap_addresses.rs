//! Requests beyond the end of the device: refused, or their addresses are wrapped.

use emmclab_device::DeviceCommand;
use emmclab_trace::{ByteCount, Error, ErrorClass, Nanos, Request, Result, SECTOR_BYTES};

/// Creates commands from requests, and counts them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandBuilder {
    /// Number of sectors that commands can address.
    capacity: u64,
    wrap: bool,
    /// Number of commands so far, and of those with a wrapped address.
    pub count: u64,
    pub wrapped: u64,
}

impl CommandBuilder {
    /// For `capacity` sectors. Requests beyond them are wrapped if `wrap`, else refused.
    pub fn new(capacity: u64, wrap: bool) -> Self {
        Self { capacity, wrap, count: 0, wrapped: 0 }
    }

    /// The command for a request that arrives at `arrival` in simulated time.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for each request, whose fields are in registers")]
    pub fn command(&mut self, request: &Request, arrival: Nanos) -> Result<DeviceCommand> {
        // Counted first, so that an error has the number of its request.
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

/// The address and length of a request on a device of `capacity` sectors. A request that does not fit is wrapped: its address is taken
/// modulo the capacity, and moved down if its end is still beyond.
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
        .hint(format!("take a device of at least {needed} (--capacity; more under a layer that reserves a part of the device for its own log), or wrap the addresses into this one (--wrap-addresses; the ledger counts them)"))
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
