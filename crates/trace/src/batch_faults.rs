//! Checks of a batch from a file: rows out of order, and rows that are not valid requests.

use crate::batch_notes;
use crate::batch_rows::NO_TIME;
use crate::formats::FARTHEST_NS;
use crate::{Batch, Error, ErrorClass, Op, Request, Result, TraceColumn};

impl Batch {
    /// Checks that arrivals do not decrease, also from `last`, the last arrival before the batch; updates `last`.
    pub(crate) fn check_order(&self, last: &mut i64) -> Result<()> {
        let mut before = *last;
        let mut sorted = true;
        for &arrival in &self.arrival {
            sorted &= before <= arrival;
            before = arrival;
        }
        *last = before;
        if sorted {
            return Ok(());
        }
        Err(Error::new(ErrorClass::Order, "a request is out of order: it arrives before the request in front of it")
            .of_field("arrival_ns", 1, b"")
            .hint("sort the rows by `arrival_ns`"))
    }

    /// The first row that is not a valid request, counted from 0, with its fault: no data, times in the wrong order, a time
    /// more than [`FARTHEST_NS`] from 0, or notes that do not fit.
    pub(crate) fn first_fault(&self) -> Option<(usize, Error)> {
        // Fast path over whole columns, without branches. A missing time is less than any other.
        #[allow(clippy::needless_bitwise_bool, reason = "without branches it is done many rows at a time")]
        let goes_back = |earlier: &[i64], later: &[i64]| {
            earlier.iter().zip(later).fold(false, |bad, (a, b)| bad | ((*b < *a) & (*b != NO_TIME)))
        };
        let times = [&self.arrival, &self.start, &self.issue, &self.served, &self.complete];
        let early = (0..times.len()).any(|i| times[i + 1..].iter().any(|later| goes_back(times[i], later)));
        let flush = Op::Flush as u8;
        let empty = self.sectors.iter().zip(self.op.iter()).any(|(sectors, op)| *sectors == 0 && *op != flush);
        // A missing time is not far.
        #[allow(clippy::needless_bitwise_bool, reason = "as above")]
        let is_far = |time: &i64| (time.unsigned_abs() > FARTHEST_NS) & (*time != NO_TIME);
        let far = times.iter().any(|times| times.iter().fold(false, |far, time| far | is_far(time)))
            || self.arrival.contains(&NO_TIME);
        if !early && !empty && !far && !self.has_notes() {
            return None;
        }
        (0..self.len()).find_map(|row| Some((row, self.fault(row)?)))
    }

    /// The batch without the rows that are not valid requests.
    pub(crate) fn sound(self) -> Batch {
        let rows: Vec<_> = (0..self.len()).filter(|row| self.fault(*row).is_none()).collect();
        self.chosen(&rows)
    }

    fn fault(&self, row: usize) -> Option<Error> {
        let request = self.get(row);
        fault(&request).or_else(|| batch_notes::fault(&request, self.notes(row)))
    }
}

/// The first fault of a row, except those of its notes.
fn fault(request: &Request) -> Option<Error> {
    if request.sectors == 0 && request.op != Op::Flush {
        return Some(Error::new(ErrorClass::Value, "is a request without data").of_field(
            TraceColumn::Sectors.name(),
            TraceColumn::Sectors as u64 + 1,
            b"0",
        ));
    }
    let far = [Some(request.arrival), request.complete]
        .into_iter()
        .flatten()
        .find(|time| time.0.unsigned_abs() > FARTHEST_NS)
        .map(|time| if time == request.arrival { ("arrival", time) } else { ("complete", time) });
    let is_far = far.is_some();
    let (name, time) = far.or_else(|| request.early_time())?;
    let column = TraceColumn::ALL.into_iter().zip(1..).find(|(column, _)| column.name().starts_with(name));
    let (name, at) = column.map_or((name, 0), |(column, at)| (column.name(), at));
    let value = time.0.to_string();
    let problem = if is_far {
        "is more than 146 years from the zero of the clock, so that differences of times could overflow"
    } else {
        "is earlier than the time before it"
    };
    Some(Error::new(ErrorClass::Value, problem).of_field(name, at, value.as_bytes()))
}
