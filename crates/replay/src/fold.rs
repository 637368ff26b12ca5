//! Requests beyond the device: refused, or folded into it.

use emmclab_trace::{Error, Kind, Request, Result};

/// The address and length of `request` on a device of `capacity` sectors, and whether it was folded. A folded request
/// keeps its address modulo the capacity, moved down where its end would stick out.
#[inline]
pub(crate) fn place(request: &Request, capacity: u64, fold: bool) -> Result<(u64, u32, bool)> {
    let (sector, sectors) = (request.sector.0, request.sectors);
    if sector.saturating_add(u64::from(sectors)) <= capacity {
        return Ok((sector, sectors, false));
    }
    if !fold {
        return Err(beyond(request.end().0, capacity));
    }
    let sectors = u64::from(sectors).min(capacity);
    Ok(((sector % capacity).min(capacity - sectors), sectors as u32, true))
}

#[cold]
fn beyond(end: u64, capacity: u64) -> Error {
    Error::new(Kind::Value, format!("a request ends behind the last sector ({capacity}) of the device"))
        .of_field("sector", 0, end.to_string().as_bytes())
        .hint("take a larger device, or fold the addresses into this one (--fold; the ledger counts them)")
}

#[cfg(test)]
mod tests {
    use emmclab_trace::{Nanos, Op, Sector};

    use super::*;

    #[test]
    fn folded_requests_fit_and_others_are_untouched() {
        let request = |sector, sectors| Request::new(Nanos(0), Op::Write, Sector(sector), sectors);
        assert_eq!(place(&request(92, 8), 100, false).unwrap(), (92, 8, false));
        assert!(place(&request(93, 8), 100, false).is_err());
        assert_eq!(place(&request(93, 8), 100, true).unwrap(), (92, 8, true));
        assert_eq!(place(&request(250, 8), 100, true).unwrap(), (50, 8, true));
        assert_eq!(place(&request(u64::MAX, 800), 100, true).unwrap(), (0, 100, true));
    }
}
