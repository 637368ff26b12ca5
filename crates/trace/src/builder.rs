//! Collects requests into a batch, column by column.

use std::sync::Arc;

use crate::batch_notes::{BatchNotes, fault};
use crate::batch_rows::{BatchRows, NO_NAME, NO_PID, NO_TIME};
use crate::columns::each_column;
use crate::{Batch, BlockNote, NameTable, Request};

/// Appends to a column that stays empty until its first value; `rows` is the number of rows before this one.
#[inline]
fn push<T: Copy>(column: &mut Vec<T>, rows: usize, value: Option<T>, none: T) {
    if value.is_some() && column.is_empty() {
        column.resize(rows, none);
    }
    if value.is_some() || !column.is_empty() {
        column.push(value.unwrap_or(none));
    }
}

/// As [`push`], for many rows at once.
#[inline]
fn extend<T: Copy>(
    column: &mut Vec<T>,
    rows: usize,
    requests: &[Request],
    value: impl Fn(&Request) -> Option<T>,
    none: T,
) {
    if column.is_empty() {
        // The fold has no branch per request.
        if !requests.iter().fold(false, |any, request| any | value(request).is_some()) {
            return;
        }
        column.resize(rows, none);
    }
    column.extend(requests.iter().map(|request| value(request).unwrap_or(none)));
}

/// The values of a column from row `rows` on; empty if it has no such rows.
fn since<T>(column: &[T], rows: usize) -> &[T] {
    column.get(rows..).unwrap_or(&[])
}

macro_rules! builder {
    (
        always { $($field:ident: $type:ty, $request:ident => $value:expr, $wrap:path;)* }
        optional { $($some:ident: $some_type:ty, $none:ident, $of:ident => $some_value:expr, $some_wrap:path;)* }
    ) => {
        /// Collects requests into a [`Batch`].
        #[derive(Debug, Default)]
        pub struct BatchBuilder {
            $($field: Vec<$type>,)*
            $($some: Vec<$some_type>,)*
            /// `None` until the first note, unless the trace is known to have notes.
            notes: Option<BatchNotes>,
            /// Whether the trace has notes.
            noted: bool,
        }

        impl BatchBuilder {
            /// Adds a request. Its name ids must be of the tables that are later passed to [`BatchBuilder::finish`].
            #[inline]
            pub fn push(&mut self, request: &Request) {
                let rows = self.len();
                $({
                    let $of = request;
                    push(&mut self.$some, rows, $some_value, $none);
                })*
                $({
                    let $request = request;
                    self.$field.push($value);
                })*
            }

            /// Adds requests, column by column.
            pub(crate) fn extend(&mut self, requests: &[Request]) {
                let rows = self.len();
                $(extend(&mut self.$some, rows, requests, |$of| $some_value, $none);)*
                $(self.$field.extend(requests.iter().map(|$request| $value));)*
            }

            /// The rows from `from` to the end.
            pub(crate) fn rows(&self, from: usize) -> BatchRows<'_> {
                BatchRows { $($field: since(&self.$field, from),)* $($some: since(&self.$some, from),)* }
            }

            /// Returns the collected requests as a batch and empties the builder. An optional column is filled up with missing
            /// values when its first value arrives.
            #[must_use]
            pub fn finish(&mut self, processes: &Arc<NameTable>, devices: &Arc<NameTable>) -> Batch {
                // The next batch is expected to have the same length and columns.
                let notes = self.noted.then(BatchNotes::default);
                let next = Self {
                    $($field: Vec::with_capacity(self.$field.len()),)*
                    $($some: Vec::with_capacity(self.$some.len()),)*
                    notes,
                    noted: self.noted,
                };
                let taken = std::mem::replace(self, next);
                Batch {
                    $($field: taken.$field.into(),)*
                    $($some: taken.$some.into(),)*
                    notes: taken.notes.map(Arc::new),
                    processes: processes.clone(),
                    devices: devices.clone(),
                }
            }
        }
    };
}

each_column!(builder);

impl BatchBuilder {
    /// An empty builder. If `noted`, the trace has block notes, and each batch is marked so, even if its requests have none.
    pub fn of_noted(noted: bool) -> Self {
        Self { notes: noted.then(BatchNotes::default), noted, ..Self::default() }
    }

    /// Adds a request with its block notes. They cover it from its first sector on; empty if they are not known.
    #[inline]
    pub fn push_noted(&mut self, request: &Request, notes: &[BlockNote]) {
        debug_assert!(fault(request, notes).is_none(), "{notes:?} are no notes of {request:?}");
        if !notes.is_empty() {
            let row = self.len();
            self.notes.get_or_insert_default().push(row, notes);
        }
        self.push(request);
    }

    /// Number of requests so far.
    pub fn len(&self) -> usize {
        self.arrival.len()
    }

    /// True if there are no requests.
    pub fn is_empty(&self) -> bool {
        self.arrival.is_empty()
    }
}
