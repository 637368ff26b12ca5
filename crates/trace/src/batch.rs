//! A run of requests in columns, shared with Arrow without a copy.

use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, Int64Array, PrimitiveArray, RecordBatch, StringArray,
    UInt16Array, UInt32Array, UInt64Array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{
    DataType, Field, Int32Type, Int64Type, Schema, SchemaRef, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use emmclab_base::{Error, Kind, NameId, Op, Request, Result};

use crate::columns::Column;
use crate::names::Names;
use crate::rows::{NO_NAME, NO_PID, NO_TIME, Requests, Rows};

/// Rows in a full batch: large enough to amortise per-batch work, small enough to stay in the second-level cache, and for
/// the allocator to hand the memory of one that is done to the next.
pub const BATCH_ROWS: usize = 1 << 13;

/// An immutable run of requests in columns. A column that no request has takes no memory; cloning shares all.
#[derive(Clone, Debug)]
pub struct Batch {
    arrival: ScalarBuffer<i64>,
    start: ScalarBuffer<i64>,
    issue: ScalarBuffer<i64>,
    complete: ScalarBuffer<i64>,
    sector: ScalarBuffer<u64>,
    sectors: ScalarBuffer<u32>,
    op: ScalarBuffer<u8>,
    flags: ScalarBuffer<u16>,
    pid: ScalarBuffer<i32>,
    process: ScalarBuffer<u32>,
    device: ScalarBuffer<u32>,
    processes: Arc<Names>,
    devices: Arc<Names>,
}

impl Batch {
    /// How many requests there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.arrival.len()
    }

    /// True without requests.
    pub fn is_empty(&self) -> bool {
        self.arrival.is_empty()
    }

    /// The request in row `i`. Panics where there is no such row.
    #[inline]
    pub fn get(&self, i: usize) -> Request {
        self.rows().get(i)
    }

    /// The requests in order.
    #[inline]
    pub fn iter(&self) -> Requests<'_> {
        self.rows().iter()
    }

    /// The requests in these rows, in order. Panics where there are no such rows.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a loop then knows that the columns are of one length")]
    pub fn range(&self, rows: Range<usize>) -> Requests<'_> {
        self.rows().range(rows)
    }

    /// First sectors.
    #[inline]
    pub fn first_sectors(&self) -> &[u64] {
        &self.sector
    }

    /// Brings into the cache what every replay asks of these rows beside their sectors: a batch comes from another processor,
    /// and in a loop that does nothing else its lines come together. Panics where there are no such rows.
    #[inline]
    pub fn fetch(&self, rows: Range<usize>) {
        fn lines<T: Copy>(column: &[T], bits: impl Fn(T) -> u64) -> u64 {
            column.iter().step_by(64 / size_of::<T>()).fold(0, |all, value| all ^ bits(*value))
        }
        let mut all = lines(&self.arrival[rows.clone()], |at| at as u64);
        all ^= lines(&self.sectors[rows.clone()], u64::from);
        all ^= lines(&self.op[rows.clone()], u64::from);
        all ^= lines(&self.flags[rows], u64::from);
        black_box(all);
    }

    /// The columns.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a loop then knows that the columns are of one length")]
    pub(crate) fn rows(&self) -> Rows<'_> {
        // One length, so that a place is checked once for all columns that are always there.
        let rows = self.arrival.len();
        Rows {
            arrival: &self.arrival[..rows],
            start: &self.start,
            issue: &self.issue,
            complete: &self.complete,
            sector: &self.sector[..rows],
            sectors: &self.sectors[..rows],
            op: &self.op[..rows],
            flags: &self.flags[..rows],
            pid: &self.pid,
            process: &self.process,
            device: &self.device,
        }
    }

    /// Names of the processes that [`Request::process`] points to.
    pub fn processes(&self) -> &Names {
        &self.processes
    }

    /// Names of the devices that [`Request::device`] points to.
    pub fn devices(&self) -> &Names {
        &self.devices
    }

    pub(crate) fn processes_shared(&self) -> &Arc<Names> {
        &self.processes
    }

    pub(crate) fn devices_shared(&self) -> &Arc<Names> {
        &self.devices
    }

    /// The Arrow and Parquet schema of a trace: the columns of [`Column::ALL`].
    pub fn schema() -> SchemaRef {
        let field = |column: Column| {
            // Flags may be missing from a file, but are never null.
            let nullable = column.optional() && column != Column::Flags;
            Field::new(column.name(), column.data_type(), nullable)
        };
        Arc::new(Schema::new(Column::ALL.map(field).to_vec()))
    }

    /// The batch as Arrow columns in [`Batch::schema`]; values are shared, only validity bits are made.
    ///
    /// # Errors
    /// Never for a batch of this crate; Arrow's own check is passed on.
    pub fn to_record_batch(&self) -> Result<RecordBatch> {
        let rows = self.len();
        let ops = StringArray::from_iter_values(Op::ALL.map(Op::name));
        let op =
            DictionaryArray::<UInt8Type>::try_new(PrimitiveArray::new(self.op.clone(), None), Arc::new(ops));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::new(self.arrival.clone(), None)),
            to_arrow::<Int64Type>(&self.start, rows, NO_TIME),
            to_arrow::<Int64Type>(&self.issue, rows, NO_TIME),
            to_arrow::<Int64Type>(&self.complete, rows, NO_TIME),
            Arc::new(UInt64Array::new(self.sector.clone(), None)),
            Arc::new(UInt32Array::new(self.sectors.clone(), None)),
            Arc::new(op.map_err(arrow_error)?),
            Arc::new(UInt16Array::new(self.flags.clone(), None)),
            to_arrow::<Int32Type>(&self.pid, rows, NO_PID),
            names_to_arrow(&self.process, rows, &self.processes)?,
            names_to_arrow(&self.device, rows, &self.devices)?,
        ];
        RecordBatch::try_new(Self::schema(), columns).map_err(arrow_error)
    }

    /// A batch from Arrow columns in [`Batch::schema`]. `processes` and `devices` grow by the names found; ids stay
    /// stable over the batches of one trace.
    ///
    /// # Errors
    /// [`Kind::Syntax`] where a column is missing or of another type, [`Kind::Value`] where an operation is unknown.
    pub fn from_record_batch(
        record: &RecordBatch,
        processes: &mut Arc<Names>,
        devices: &mut Arc<Names>,
    ) -> Result<Self> {
        let found = |column: Column| record.column_by_name(column.name());
        for column in Column::ALL {
            let Some(array) = found(column) else {
                if column.optional() {
                    continue;
                }
                return Err(Error::new(Kind::Syntax, format!("there is no column `{}`", column.name()))
                    .hint("the schema of a trace is in docs/reference"));
            };
            if array.data_type() != &column.data_type() {
                return Err(wrong_type(column.name(), array.data_type()));
            }
            if array.null_count() > 0 && (!column.optional() || column == Column::Flags) {
                let message = format!("column `{}` has {} empty values", column.name(), array.null_count());
                return Err(Error::new(Kind::Value, message));
            }
        }
        let rows = record.num_rows();
        let flags = match found(Column::Flags) {
            Some(array) => from_arrow::<UInt16Type>(Some(array), 0),
            None => vec![0; rows].into(),
        };
        Ok(Self {
            arrival: from_arrow::<Int64Type>(found(Column::Arrival), NO_TIME),
            start: from_arrow::<Int64Type>(found(Column::Start), NO_TIME),
            issue: from_arrow::<Int64Type>(found(Column::Issue), NO_TIME),
            complete: from_arrow::<Int64Type>(found(Column::Complete), NO_TIME),
            sector: from_arrow::<UInt64Type>(found(Column::Sector), 0),
            sectors: from_arrow::<UInt32Type>(found(Column::Sectors), 0),
            op: found(Column::Op).map_or_else(|| Ok(Vec::new().into()), ops_from_arrow)?,
            flags,
            pid: from_arrow::<Int32Type>(found(Column::Pid), NO_PID),
            process: names_from_arrow(found(Column::Process), processes),
            device: names_from_arrow(found(Column::Device), devices),
            processes: processes.clone(),
            devices: devices.clone(),
        })
    }

    /// Checks that arrivals never go back, from `last` on, which moves along.
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
        Err(Error::new(Kind::Order, "a request stands after its place in time")
            .of_field("arrival_ns", 1, b"")
            .hint("rows must stand in order of `arrival_ns`"))
    }

    /// The first row that is no request, counted from 0: one without data, or with a time before an earlier one.
    pub(crate) fn first_fault(&self) -> Option<(usize, Error)> {
        // Whole columns first, which is quick. A missing time is less than any.
        #[allow(clippy::needless_bitwise_bool, reason = "without branches it is done many rows at a time")]
        let goes_back = |earlier: &[i64], later: &[i64]| {
            earlier.iter().zip(later).fold(false, |bad, (a, b)| bad | ((*b < *a) & (*b != NO_TIME)))
        };
        let times = [&self.arrival, &self.start, &self.issue, &self.complete];
        let early = (0..times.len()).any(|i| times[i + 1..].iter().any(|later| goes_back(times[i], later)));
        let flush = Op::Flush as u8;
        let empty =
            self.sectors.iter().zip(self.op.iter()).any(|(sectors, op)| *sectors == 0 && *op != flush);
        if !early && !empty {
            return None;
        }
        self.iter().enumerate().find_map(|(row, request)| Some((row, fault(&request)?)))
    }

    /// The rows that are requests.
    pub(crate) fn sound(&self) -> Batch {
        let mut builder = BatchBuilder::default();
        self.iter().filter(|request| fault(request).is_none()).for_each(|request| builder.push(&request));
        builder.finish(&self.processes, &self.devices)
    }
}

impl<'a> IntoIterator for &'a Batch {
    type Item = Request;
    type IntoIter = Requests<'a>;

    fn into_iter(self) -> Requests<'a> {
        self.iter()
    }
}

/// What makes a row no request.
fn fault(request: &Request) -> Option<Error> {
    if request.sectors == 0 && request.op != Op::Flush {
        return Some(Error::new(Kind::Value, "is a request without data").of_field("sectors", 6, b"0"));
    }
    let (name, time) = request.early_time()?;
    let column = Column::ALL.into_iter().zip(1..).find(|(column, _)| column.name().starts_with(name));
    let (name, at) = column.map_or((name, 0), |(column, at)| (column.name(), at));
    let value = time.0.to_string();
    Some(Error::new(Kind::Value, "is earlier than the time before it").of_field(name, at, value.as_bytes()))
}

#[allow(clippy::needless_pass_by_value)] // `map_err` hands it over.
fn arrow_error(error: arrow::error::ArrowError) -> Error {
    Error::new(Kind::Syntax, error.to_string())
}

fn wrong_type(name: &str, found: &DataType) -> Error {
    Error::new(Kind::Syntax, format!("column `{name}` is of type {found}"))
        .hint("the schema of a trace is in docs/reference")
}

fn to_arrow<T>(column: &ScalarBuffer<T::Native>, rows: usize, none: T::Native) -> ArrayRef
where
    T: arrow::datatypes::ArrowPrimitiveType,
{
    if column.is_empty() && rows > 0 {
        return arrow::array::new_null_array(&T::DATA_TYPE, rows);
    }
    let valid = BooleanBuffer::collect_bool(column.len(), |i| column[i] != none);
    let nulls = Some(NullBuffer::new(valid)).filter(|nulls| nulls.null_count() > 0);
    Arc::new(PrimitiveArray::<T>::new(column.clone(), nulls))
}

/// The values of an array whose type has been checked; empty where the column is missing or holds nothing.
fn from_arrow<T>(array: Option<&ArrayRef>, none: T::Native) -> ScalarBuffer<T::Native>
where
    T: arrow::datatypes::ArrowPrimitiveType,
{
    let Some(array) = array.and_then(|array| array.as_primitive_opt::<T>()) else { return Vec::new().into() };
    match array.nulls() {
        None => array.values().clone(),
        Some(nulls) if nulls.null_count() == array.len() => Vec::new().into(),
        Some(nulls) => {
            let value = |(value, valid): (&T::Native, bool)| if valid { *value } else { none };
            array.values().iter().zip(nulls.iter()).map(value).collect::<Vec<_>>().into()
        }
    }
}

fn names_to_arrow(column: &ScalarBuffer<u32>, rows: usize, names: &Names) -> Result<ArrayRef> {
    let keys = if column.is_empty() {
        UInt32Array::new_null(rows)
    } else {
        to_arrow::<UInt32Type>(column, rows, NO_NAME).as_primitive::<UInt32Type>().clone()
    };
    Ok(Arc::new(DictionaryArray::try_new(keys, Arc::new(names.to_arrow())).map_err(arrow_error)?))
}

fn names_from_arrow(array: Option<&ArrayRef>, names: &mut Arc<Names>) -> ScalarBuffer<u32> {
    let Some(dictionary) = array.and_then(|array| array.as_dictionary_opt::<UInt32Type>()) else {
        return Vec::new().into();
    };
    let Some(values) = dictionary.values().as_string_opt::<i32>() else { return Vec::new().into() };
    if dictionary.null_count() == dictionary.len() {
        return Vec::new().into();
    }
    let mut same = true;
    let ids: Vec<u32> = values
        .iter()
        .enumerate()
        .map(|(key, value)| {
            let value = value.unwrap_or("");
            let id = if names.get(NameId(key as u32)) == Some(value) {
                key as u32
            } else {
                Arc::make_mut(names).intern(value).0
            };
            same &= id == key as u32;
            id
        })
        .collect();
    let keys = dictionary.keys();
    match keys.nulls() {
        None if same => keys.values().clone(),
        None => keys.values().iter().map(|key| ids[*key as usize]).collect::<Vec<_>>().into(),
        Some(nulls) => {
            let id = |(key, valid): (&u32, bool)| if valid { ids[*key as usize] } else { NO_NAME };
            keys.values().iter().zip(nulls.iter()).map(id).collect::<Vec<_>>().into()
        }
    }
}

fn ops_from_arrow(array: &ArrayRef) -> Result<ScalarBuffer<u8>> {
    let dictionary =
        array.as_dictionary_opt::<UInt8Type>().ok_or_else(|| wrong_type("op", array.data_type()))?;
    let values = dictionary.values();
    let values = values.as_string_opt::<i32>().ok_or_else(|| wrong_type("op", values.data_type()))?;
    let codes =
        values
            .iter()
            .map(|value| {
                let value = value.unwrap_or("");
                Op::ALL.into_iter().find(|op| op.name() == value).map(|op| op as u8).ok_or_else(|| {
                    Error::new(Kind::Value, "is no operation").of_field("op", 0, value.as_bytes())
                })
            })
            .collect::<Result<Vec<u8>>>()?;
    if codes.iter().enumerate().all(|(key, code)| key == *code as usize) {
        return Ok(dictionary.keys().values().clone());
    }
    Ok(dictionary.keys().values().iter().map(|key| codes[*key as usize]).collect::<Vec<_>>().into())
}

/// Collects requests into a [`Batch`].
#[derive(Debug, Default)]
pub struct BatchBuilder {
    arrival: Vec<i64>,
    start: Vec<i64>,
    issue: Vec<i64>,
    complete: Vec<i64>,
    sector: Vec<u64>,
    sectors: Vec<u32>,
    op: Vec<u8>,
    flags: Vec<u16>,
    pid: Vec<i32>,
    process: Vec<u32>,
    device: Vec<u32>,
}

/// Appends to a column that stays empty until its first value; `rows` is the length before this one.
#[inline]
fn push<T: Copy>(column: &mut Vec<T>, rows: usize, value: Option<T>, none: T) {
    if value.is_some() && column.is_empty() {
        column.resize(rows, none);
    }
    if value.is_some() || !column.is_empty() {
        column.push(value.unwrap_or(none));
    }
}

/// The same for many rows at once.
#[inline]
fn extend<T: Copy>(
    column: &mut Vec<T>,
    rows: usize,
    requests: &[Request],
    value: impl Fn(&Request) -> Option<T>,
    none: T,
) {
    if column.is_empty() {
        // To the end, without a branch for each.
        if !requests.iter().fold(false, |any, request| any | value(request).is_some()) {
            return;
        }
        column.resize(rows, none);
    }
    column.extend(requests.iter().map(|request| value(request).unwrap_or(none)));
}

/// What was added to a column since it had `rows` rows.
fn since<T>(column: &[T], rows: usize) -> &[T] {
    column.get(rows..).unwrap_or(&[])
}

impl BatchBuilder {
    /// Requests so far.
    pub fn len(&self) -> usize {
        self.arrival.len()
    }

    /// True without requests.
    pub fn is_empty(&self) -> bool {
        self.arrival.is_empty()
    }

    /// Adds a request. Names must come from the tables later given to [`BatchBuilder::finish`].
    #[inline]
    pub fn push(&mut self, request: &Request) {
        let rows = self.arrival.len();
        push(&mut self.start, rows, request.start.map(|time| time.0), NO_TIME);
        push(&mut self.issue, rows, request.issue.map(|time| time.0), NO_TIME);
        push(&mut self.complete, rows, request.complete.map(|time| time.0), NO_TIME);
        push(&mut self.pid, rows, request.pid, NO_PID);
        push(&mut self.process, rows, request.process.map(|name| name.0), NO_NAME);
        push(&mut self.device, rows, request.device.map(|name| name.0), NO_NAME);
        self.arrival.push(request.arrival.0);
        self.sector.push(request.sector.0);
        self.sectors.push(request.sectors);
        self.op.push(request.op as u8);
        self.flags.push(request.flags.0);
    }

    /// Adds requests, column by column.
    pub(crate) fn extend(&mut self, requests: &[Request]) {
        let rows = self.arrival.len();
        extend(&mut self.start, rows, requests, |request| request.start.map(|time| time.0), NO_TIME);
        extend(&mut self.issue, rows, requests, |request| request.issue.map(|time| time.0), NO_TIME);
        extend(&mut self.complete, rows, requests, |request| request.complete.map(|time| time.0), NO_TIME);
        extend(&mut self.pid, rows, requests, |request| request.pid, NO_PID);
        extend(&mut self.process, rows, requests, |request| request.process.map(|name| name.0), NO_NAME);
        extend(&mut self.device, rows, requests, |request| request.device.map(|name| name.0), NO_NAME);
        self.arrival.extend(requests.iter().map(|request| request.arrival.0));
        self.sector.extend(requests.iter().map(|request| request.sector.0));
        self.sectors.extend(requests.iter().map(|request| request.sectors));
        self.op.extend(requests.iter().map(|request| request.op as u8));
        self.flags.extend(requests.iter().map(|request| request.flags.0));
    }

    /// The requests from row `from` on.
    pub(crate) fn rows(&self, from: usize) -> Rows<'_> {
        Rows {
            arrival: since(&self.arrival, from),
            start: since(&self.start, from),
            issue: since(&self.issue, from),
            complete: since(&self.complete, from),
            sector: since(&self.sector, from),
            sectors: since(&self.sectors, from),
            op: since(&self.op, from),
            flags: since(&self.flags, from),
            pid: since(&self.pid, from),
            process: since(&self.process, from),
            device: since(&self.device, from),
        }
    }

    /// Takes what was collected and starts anew. A first row whose optional value is missing and a later one whose
    /// value is there are told apart because the column is filled up on the first value.
    #[must_use]
    pub fn finish(&mut self, processes: &Arc<Names>, devices: &Arc<Names>) -> Batch {
        // The next batch is most likely as long and has the same columns.
        let next = Self {
            arrival: Vec::with_capacity(self.arrival.len()),
            start: Vec::with_capacity(self.start.len()),
            issue: Vec::with_capacity(self.issue.len()),
            complete: Vec::with_capacity(self.complete.len()),
            sector: Vec::with_capacity(self.sector.len()),
            sectors: Vec::with_capacity(self.sectors.len()),
            op: Vec::with_capacity(self.op.len()),
            flags: Vec::with_capacity(self.flags.len()),
            pid: Vec::with_capacity(self.pid.len()),
            process: Vec::with_capacity(self.process.len()),
            device: Vec::with_capacity(self.device.len()),
        };
        let taken = std::mem::replace(self, next);
        Batch {
            arrival: taken.arrival.into(),
            start: taken.start.into(),
            issue: taken.issue.into(),
            complete: taken.complete.into(),
            sector: taken.sector.into(),
            sectors: taken.sectors.into(),
            op: taken.op.into(),
            flags: taken.flags.into(),
            pid: taken.pid.into(),
            process: taken.process.into(),
            device: taken.device.into(),
            processes: processes.clone(),
            devices: devices.clone(),
        }
    }
}
