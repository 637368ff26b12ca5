//! Reads the rows of a batch as requests.
#![expect(clippy::inline_always, reason = "columns that a loop does not use are not read")]

use std::convert::identity;
use std::ops::Range;

use crate::columns::each_column;
use crate::{NameId, Nanos, Op, Request, RequestFlags, Sector};

pub(crate) const NO_TIME: i64 = i64::MIN;
pub(crate) const NO_PID: i32 = i32::MIN;
pub(crate) const NO_NAME: u32 = u32::MAX;

macro_rules! rows {
    (
        always { $($field:ident: $type:ty, $request:ident => $value:expr, $wrap:path;)* }
        optional { $($some:ident: $some_type:ty, $none:ident, $of:ident => $some_value:expr, $some_wrap:path;)* }
    ) => {
        /// The columns as plain slices. A missing value is `NO_TIME`, `NO_PID` or `NO_NAME`, or its whole column is empty.
        #[derive(Clone, Copy)]
        pub(crate) struct BatchRows<'a> {
            $(pub $field: &'a [$type],)*
            $(pub $some: &'a [$some_type],)*
        }

        impl BatchRows<'_> {
            #[inline(always)]
            pub fn get(&self, i: usize) -> Request {
                Request {
                    $($field: $wrap(self.$field[i]),)*
                    $($some: optional(self.$some, i, $none).map($some_wrap),)*
                }
            }
        }
    };
}

each_column!(rows);

/// The operation with this code; codes were checked when the batch was made.
#[inline(always)]
fn operation(code: u8) -> Op {
    Op::from_code(code).unwrap_or(Op::Read)
}

/// The value at `i` of a column that may be absent (empty) or hold `none` there.
#[inline]
fn optional<T: Copy + PartialEq>(column: &[T], i: usize, none: T) -> Option<T> {
    column.get(i).copied().filter(|value| *value != none)
}

impl<'a> BatchRows<'a> {
    /// The requests in order.
    #[inline]
    pub fn iter(self) -> RequestIter<'a> {
        self.range(0..self.arrival.len())
    }

    /// The requests in these rows, in order. Panics if there are no such rows.
    #[inline(always)]
    pub fn range(self, rows: Range<usize>) -> RequestIter<'a> {
        assert!(rows.end <= self.arrival.len(), "rows up to {} of {}", rows.end, self.arrival.len());
        RequestIter { rows: self, remaining_rows: rows }
    }

    /// The known response times, in nanoseconds.
    pub fn responses(&self) -> impl Iterator<Item = i64> + 'a {
        let known = self.arrival.iter().zip(self.complete).filter(|(_, end)| **end != NO_TIME);
        known.map(|(arrival, end)| end.saturating_sub(*arrival))
    }

    /// Sizes in sectors; 0 for operations without data.
    pub fn data_sectors(&self) -> impl Iterator<Item = u32> + 'a {
        let has_data = |op: u8| op == Op::Read as u8 || op == Op::Write as u8;
        self.sectors.iter().zip(self.op).map(move |(sectors, op)| if has_data(*op) { *sectors } else { 0 })
    }
}

/// An iterator over the requests of a range of rows, in order.
#[derive(Clone)]
pub struct RequestIter<'a> {
    rows: BatchRows<'a>,
    remaining_rows: Range<usize>,
}

impl Iterator for RequestIter<'_> {
    type Item = Request;

    #[inline(always)]
    fn next(&mut self) -> Option<Request> {
        let row = self.remaining_rows.next()?;
        Some(self.rows.get(row))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.remaining_rows.size_hint()
    }
}

impl ExactSizeIterator for RequestIter<'_> {}
