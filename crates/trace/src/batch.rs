//! A batch of requests, stored by column.
#![expect(clippy::inline_always, reason = "columns that a loop does not use are not read")]

use std::convert::identity;
use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;

use arrow_buffer::ScalarBuffer;

use crate::{
    BlockNote, Error, ErrorClass, NameId, NameTable, Nanos, Op, Request, RequestFlags, Result, Sector, TraceColumn,
    columns::each_column, formats::FARTHEST_NS,
};

/// Rows of a full batch: enough to amortise the work for each batch, and so few that a batch fits into the second-level cache and
/// the allocator reuses its memory for the next one.
pub const BATCH_ROWS: usize = 1 << 13;

macro_rules! batch {
    (
        always { $($field:ident: $type:ty, $request:ident => $value:expr, $wrap:path;)* }
        optional { $($some:ident: $some_type:ty, $none:ident, $of:ident => $some_value:expr, $some_wrap:path;)* }
    ) => {
        /// An immutable batch of requests, stored by column. A column without a value uses no memory; clones share all columns.
        #[derive(Clone, Debug)]
        pub struct Batch {
            $(pub(crate) $field: ScalarBuffer<$type>,)*
            $(pub(crate) $some: ScalarBuffer<$some_type>,)*
            /// Notes on the roles of the blocks of writes; `None` if the trace has no such notes.
            pub(crate) notes: Option<Arc<BatchNotes>>,
            pub(crate) processes: Arc<NameTable>,
            pub(crate) devices: Arc<NameTable>,
        }

        impl Batch {
            /// The columns as slices. Always inlined, so that the compiler knows that all have the same length.
            #[inline(always)]
            pub(crate) fn rows(&self) -> BatchRows<'_> {
                // All required columns are sliced to the same length, so that the compiler checks an index only once for all of them.
                let rows = self.arrival.len();
                BatchRows { $($field: &self.$field[..rows],)* $($some: &self.$some,)* }
            }
        }
    };
}

each_column!(batch);

impl Batch {
    /// Number of requests.
    #[inline]
    pub fn len(&self) -> usize {
        self.arrival.len()
    }

    /// True if there are no requests.
    pub fn is_empty(&self) -> bool {
        self.arrival.is_empty()
    }

    /// Whether a request may have a recorded completion.
    #[inline]
    pub fn has_completions(&self) -> bool {
        !self.complete.is_empty()
    }

    /// The request in row `i`. Panics if there is no such row.
    #[inline]
    pub fn get(&self, i: usize) -> Request {
        self.rows().get(i)
    }

    /// The requests in order.
    #[inline]
    pub fn iter(&self) -> RequestIter<'_> {
        self.rows().iter()
    }

    /// The requests in these rows, in order. Panics if there are no such rows.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a loop then knows that the columns are of one length")]
    pub fn range(&self, rows: Range<usize>) -> RequestIter<'_> {
        self.rows().range(rows)
    }

    /// The notes on the blocks of the request in row `i`; empty if the request has no notes or there is no such row.
    #[inline]
    pub fn notes(&self, i: usize) -> &[BlockNote] {
        self.notes.as_ref().map_or(&[], |notes| notes.of(i))
    }

    /// Whether the trace of the batch has block notes (roles of the blocks of a write); the requests of the batch may have none.
    #[inline]
    pub fn has_notes(&self) -> bool {
        self.notes.is_some()
    }

    /// Number of requests that have notes on the roles of their blocks.
    pub fn rows_with_notes(&self) -> u64 {
        self.notes.as_ref().map_or(0, |notes| notes.rows() as u64)
    }

    /// The first sector of each request.
    #[inline]
    pub fn first_sectors(&self) -> &[u64] {
        &self.sector
    }

    /// The arrival of each request in nanoseconds, in order.
    #[inline]
    pub fn arrivals(&self) -> &[i64] {
        &self.arrival
    }

    /// Loads these rows into the CPU cache, for the columns that every replay reads, except the first sectors. Another CPU wrote the batch;
    /// in a loop that only loads, the cache misses overlap. Panics if there are no such rows.
    #[inline]
    pub fn prefetch(&self, rows: Range<usize>) {
        fn lines<T: Copy>(column: &[T], bits: impl Fn(T) -> u64) -> u64 {
            column.iter().step_by(64 / size_of::<T>()).fold(0, |all, value| all ^ bits(*value))
        }
        let mut all = lines(&self.arrival[rows.clone()], |at| at as u64);
        all ^= lines(&self.sectors[rows.clone()], u64::from);
        all ^= lines(&self.op[rows.clone()], u64::from);
        all ^= lines(&self.flags[rows], u64::from);
        black_box(all);
    }

    /// Names of processes; [`Request::process`] is an id in this table.
    pub fn processes(&self) -> &Arc<NameTable> {
        &self.processes
    }

    /// Names of devices; [`Request::device`] is an id in this table.
    pub fn devices(&self) -> &Arc<NameTable> {
        &self.devices
    }
}

impl<'a> IntoIterator for &'a Batch {
    type Item = Request;
    type IntoIter = RequestIter<'a>;

    fn into_iter(self) -> RequestIter<'a> {
        self.iter()
    }
}

pub(crate) const NO_TIME: i64 = i64::MIN;
pub(crate) const NO_PID: i32 = i32::MIN;
pub(crate) const NO_NAME: u32 = u32::MAX;

macro_rules! rows {
    (
        always { $($field:ident: $type:ty, $request:ident => $value:expr, $wrap:path;)* }
        optional { $($some:ident: $some_type:ty, $none:ident, $of:ident => $some_value:expr, $some_wrap:path;)* }
    ) => {
        /// The columns as slices. A missing value is `NO_TIME`, `NO_PID` or `NO_NAME`; a column without values may be empty.
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

#[inline(always)]
fn operation(code: u8) -> Op {
    Op::from_code(code).unwrap_or(Op::Read)
}

/// The value at `i` of a column; `None` if it is `none` or the column is empty.
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

/// Appends a value to a column that stays empty until its first value; `rows` is the number of rows before this value.
#[inline]
fn push<T: Copy>(column: &mut Vec<T>, rows: usize, value: Option<T>, none: T) {
    if value.is_some() && column.is_empty() {
        column.resize(rows, none);
    }
    if value.is_some() || !column.is_empty() {
        column.push(value.unwrap_or(none));
    }
}

/// Like [`push`], for many rows.
#[inline]
fn extend<T: Copy>(column: &mut Vec<T>, rows: usize, requests: &[Request], value: impl Fn(&Request) -> Option<T>, none: T) {
    if column.is_empty() {
        // A fold has no branch for each request, unlike `any`.
        if !requests.iter().fold(false, |any, request| any | value(request).is_some()) {
            return;
        }
        column.resize(rows, none);
    }
    column.extend(requests.iter().map(|request| value(request).unwrap_or(none)));
}

/// The values of a column from row `rows` on; empty if the column has no values.
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
            /// Notes on the roles of the blocks of writes. `None` until the first note, unless the trace is known to have notes.
            notes: Option<BatchNotes>,
            /// Whether the trace has block notes.
            noted: bool,
        }

        impl BatchBuilder {
            /// Adds a request. The ids of its names must refer to the tables that [`BatchBuilder::finish`] receives.
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

            /// Returns the collected requests as a batch and empties the builder. Rows before the first value of an optional
            /// column have missing values.
            #[must_use]
            pub fn finish(&mut self, processes: &Arc<NameTable>, devices: &Arc<NameTable>) -> Batch {
                // The next batch will probably have the same length and columns, so memory for them is reserved.
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
    /// An empty builder. If `noted` is true, the trace has block notes, and each batch is marked as having notes even if none of its
    /// requests has any.
    pub fn of_noted(noted: bool) -> Self {
        Self { notes: noted.then(BatchNotes::default), noted, ..Self::default() }
    }

    /// Adds a request with notes on the roles of its blocks, which cover all its sectors; an empty slice means that the roles are not
    /// known.
    #[inline]
    pub fn push_noted(&mut self, request: &Request, notes: &[BlockNote]) {
        debug_assert!(fault_of_notes(request, notes).is_none(), "{notes:?} do not fit {request:?}");
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

impl Batch {
    /// Checks that arrivals do not decrease, and that none is before `last`, the last arrival before the batch; updates `last`.
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
        Err(Error::new(ErrorClass::Order, "a request is out of order: it arrives before the previous request")
            .of_field("arrival_ns", 1, b"")
            .hint("sort the rows by `arrival_ns`"))
    }

    /// The first row with an invalid request, counted from 0, and its fault: no data, times in the wrong order, a time more than
    /// [`FARTHEST_NS`] from 0, or block notes that do not fit the request.
    pub(crate) fn first_fault(&self) -> Option<(usize, Error)> {
        // Fast path over whole columns, without branches. A missing time (`NO_TIME`) is smaller than any other time.
        #[allow(clippy::needless_bitwise_bool, reason = "without branches it is done many rows at a time")]
        let goes_back = |earlier: &[i64], later: &[i64]| {
            earlier.iter().zip(later).fold(false, |bad, (a, b)| bad | ((*b < *a) & (*b != NO_TIME)))
        };
        let times = [&self.arrival, &self.start, &self.issue, &self.served, &self.complete];
        let early = (0..times.len()).any(|i| times[i + 1..].iter().any(|later| goes_back(times[i], later)));
        let flush = Op::Flush as u8;
        let empty = self.sectors.iter().zip(self.op.iter()).any(|(sectors, op)| *sectors == 0 && *op != flush);
        // A missing time (`NO_TIME`) does not count as too far from 0.
        #[allow(clippy::needless_bitwise_bool, reason = "as above")]
        let is_far = |time: &i64| (time.unsigned_abs() > FARTHEST_NS) & (*time != NO_TIME);
        let far =
            times.iter().any(|times| times.iter().fold(false, |far, time| far | is_far(time))) || self.arrival.contains(&NO_TIME);
        if !early && !empty && !far && !self.has_notes() {
            return None;
        }
        (0..self.len()).find_map(|row| Some((row, self.fault(row)?)))
    }

    /// Returns the batch without its invalid requests.
    pub(crate) fn sound(self) -> Batch {
        let rows: Vec<_> = (0..self.len()).filter(|row| self.fault(*row).is_none()).collect();
        self.chosen(&rows)
    }

    fn fault(&self, row: usize) -> Option<Error> {
        let request = self.get(row);
        fault(&request).or_else(|| fault_of_notes(&request, self.notes(row)))
    }
}

/// Returns the first fault of a request, without a check of its block notes.
fn fault(request: &Request) -> Option<Error> {
    if request.sectors == 0 && request.op != Op::Flush {
        return Some(Error::new(ErrorClass::Value, "the request transfers no data").of_field(
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
        "the time is more than 146 years from the zero of the clock, so that differences of times could overflow"
    } else {
        "the time is earlier than the time before it"
    };
    Some(Error::new(ErrorClass::Value, problem).of_field(name, at, value.as_bytes()))
}

/// The block notes of all requests of a batch. They state the roles of the blocks that a write contains.
#[derive(Debug, Default)]
pub(crate) struct BatchNotes {
    /// For each row of the batch, the index in `all` at which its block notes end. Rows after the last entry have no block notes.
    ends: Vec<usize>,
    all: Vec<BlockNote>,
}

impl BatchNotes {
    /// The block notes of a row.
    #[inline]
    pub fn of(&self, row: usize) -> &[BlockNote] {
        let Some(end) = self.ends.get(row) else { return &[] };
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.all[start..*end]
    }

    /// Adds notes on the roles of the blocks of the request in row `row`. Rows must be added in ascending order.
    pub fn push(&mut self, row: usize, notes: &[BlockNote]) {
        self.ends.resize(row, self.all.len());
        self.all.extend_from_slice(notes);
        self.ends.push(self.all.len());
    }

    /// The block notes of all rows, in order of the rows.
    pub fn all(&self) -> &[BlockNote] {
        &self.all
    }

    /// Number of rows with block notes.
    pub fn rows(&self) -> usize {
        (0..self.ends.len()).filter(|row| !self.of(*row).is_empty()).count()
    }
}

/// The error for block notes that do not fit the request; `None` if they fit. Only writes have block notes, which cover the request without
/// gaps.
pub(crate) fn fault_of_notes(request: &Request, notes: &[BlockNote]) -> Option<Error> {
    let wrong = |column: TraceColumn, value: u64, what: &str| {
        let error = Error::new(ErrorClass::Value, what);
        Some(error.of_field(column.name(), column as u64 + 1, value.to_string().as_bytes()))
    };
    if notes.is_empty() {
        return None;
    }
    if request.op != Op::Write {
        let error = Error::new(ErrorClass::Value, "only a write can have block notes, but this request is not a write");
        let error = error.of_field(TraceColumn::Role.name(), TraceColumn::Role as u64 + 1, notes[0].role.name().as_bytes());
        return Some(error.hint("only writes can have block notes; all other requests need empty lists of block notes"));
    }
    for note in notes {
        if note.sectors == 0 {
            return wrong(TraceColumn::RoleSectors, 0, "the run has no sectors");
        }
        if let Some(changed) = note.changed.filter(|changed| changed.len() > note.sectors) {
            let what = format!("the number is more than the {} sectors of its run", note.sectors);
            return wrong(TraceColumn::ChangedSectors, u64::from(changed.len()), &what);
        }
    }
    let covered = notes.iter().map(|note| u64::from(note.sectors)).sum();
    if covered != u64::from(request.sectors) {
        let what = format!("this is the length of all notes of a request of {} sectors", request.sectors);
        return wrong(TraceColumn::RoleSectors, covered, &what);
    }
    None
}
