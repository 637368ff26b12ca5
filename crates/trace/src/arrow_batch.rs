//! Converts between batches and Arrow record batches without copying the values.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowDictionaryKeyType, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, DictionaryArray, Int64Array, ListArray, PrimitiveArray, RecordBatch, StringArray,
    UInt16Array, UInt32Array, UInt64Array, downcast_dictionary_array, downcast_integer_array, new_null_array,
};
use arrow_buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::take::take;

use crate::batch::{BatchNotes, NO_NAME, NO_PID, NO_TIME};
use crate::{
    BATCH_ROWS, Batch, BlockNote, BlockRole, Error, ErrorClass, GrowingNameTable, NameId, NameTable, Op, Result, SectorSet,
    TraceColumn,
};

/// Maximum length of a process or device name in bytes; a path has at most 4,096.
pub(crate) const MOST_NAME_BYTES: usize = 1 << 16;

impl Batch {
    /// The Arrow and Parquet schema of a trace: the columns of [`TraceColumn::ALL`]. The columns of block notes (roles of the blocks of a
    /// write) are included only if `notes` is true.
    pub fn schema(notes: bool) -> SchemaRef {
        let field = |column: TraceColumn| {
            // Flags may be missing from a file, but are never null.
            let nullable = column.optional() && column != TraceColumn::Flags;
            Field::new(column.name(), column.data_type(), nullable)
        };
        let columns = TraceColumn::ALL.into_iter().filter(|column| notes || !column.of_notes());
        Arc::new(Schema::new(columns.map(field).collect::<Vec<_>>()))
    }

    /// The batch as Arrow columns of [`Batch::schema`], with the columns of block notes (roles of the blocks of a write) if `notes` is
    /// true. Values are shared; only validity bits and lists of notes are created.
    pub fn to_record_batch(&self, notes: bool) -> Result<RecordBatch> {
        let rows = self.len();
        let ops = StringArray::from_iter_values(Op::ALL.map(Op::name));
        let op = DictionaryArray::<UInt8Type>::try_new(PrimitiveArray::new(self.op.clone(), None), Arc::new(ops));
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::new(self.arrival.clone(), None)),
            to_arrow::<Int64Type>(&self.start, rows, NO_TIME),
            to_arrow::<Int64Type>(&self.issue, rows, NO_TIME),
            to_arrow::<Int64Type>(&self.served, rows, NO_TIME),
            to_arrow::<Int64Type>(&self.complete, rows, NO_TIME),
            Arc::new(UInt64Array::new(self.sector.clone(), None)),
            Arc::new(UInt32Array::new(self.sectors.clone(), None)),
            Arc::new(op.map_err(arrow_error)?),
            Arc::new(UInt16Array::new(self.flags.clone(), None)),
            to_arrow::<Int32Type>(&self.pid, rows, NO_PID),
            names_to_arrow(&self.process, rows, &self.processes)?,
            names_to_arrow(&self.device, rows, &self.devices)?,
        ];
        if notes {
            let none = BatchNotes::default();
            columns.extend(self.notes.as_deref().unwrap_or(&none).to_arrow(rows)?);
        }
        RecordBatch::try_new(Self::schema(notes), columns).map_err(arrow_error)
    }

    /// A batch from Arrow columns of [`Batch::schema`]; `before` is the number of earlier rows of the trace. New names are added to
    /// `processes` and `devices`; ids are stable over the batches of a trace. Fails with [`ErrorClass::Syntax`] if a column is missing or has
    /// another type, [`ErrorClass::Value`] if an operation or role is unknown or the lists of notes in a row differ in length.
    pub fn from_record_batch(
        record: &RecordBatch, before: u64, processes: &mut GrowingNameTable, devices: &mut GrowingNameTable,
    ) -> Result<Self> {
        // For a column without values, other tools choose another type: pandas stores empty columns of numbers as Float64 and of names as
        // Null.
        let has_values = |array: &ArrayRef| array.logical_null_count() < array.len();
        let array_of = |column: TraceColumn| {
            let array = record.column_by_name(column.name());
            array.filter(|array| *array.data_type() == column.data_type() || has_values(array))
        };
        for column in TraceColumn::ALL.into_iter().filter(|column| !column.of_notes()) {
            let Some(array) = array_of(column) else {
                if column.optional() {
                    continue;
                }
                return Err(Error::new(ErrorClass::Syntax, format!("there is no column `{}`", column.name()))
                    .hint("compare the columns with those of `emmclab.read(emmclab.bundled()[0]).to_arrow().schema`"));
            };
            if array.data_type() != &column.data_type() {
                return Err(wrong_type(column.name(), array.data_type()));
            }
            if array.null_count() > 0 && (!column.optional() || column == TraceColumn::Flags) {
                let message = format!("column `{}` has {} empty values", column.name(), array.null_count());
                return Err(Error::new(ErrorClass::Value, message));
            }
        }
        let rows = record.num_rows();
        let flags = match array_of(TraceColumn::Flags) {
            Some(array) => from_arrow::<UInt16Type>(Some(array), 0),
            None => vec![0; rows].into(),
        };
        Ok(Self {
            arrival: from_arrow::<Int64Type>(array_of(TraceColumn::Arrival), NO_TIME),
            start: from_arrow::<Int64Type>(array_of(TraceColumn::Start), NO_TIME),
            issue: from_arrow::<Int64Type>(array_of(TraceColumn::Issue), NO_TIME),
            served: from_arrow::<Int64Type>(array_of(TraceColumn::Served), NO_TIME),
            complete: from_arrow::<Int64Type>(array_of(TraceColumn::Complete), NO_TIME),
            sector: from_arrow::<UInt64Type>(array_of(TraceColumn::Sector), 0),
            sectors: from_arrow::<UInt32Type>(array_of(TraceColumn::Sectors), 0),
            op: array_of(TraceColumn::Op).map_or_else(|| Ok(Vec::new().into()), ops_from_arrow)?,
            flags,
            pid: from_arrow::<Int32Type>(array_of(TraceColumn::Pid), NO_PID),
            process: names_from_arrow(TraceColumn::Process, array_of(TraceColumn::Process), processes)?,
            device: names_from_arrow(TraceColumn::Device, array_of(TraceColumn::Device), devices)?,
            notes: BatchNotes::from_arrow(record, before)?.map(Arc::new),
            processes: processes.shared().clone(),
            devices: devices.shared().clone(),
        })
    }
}

#[allow(clippy::needless_pass_by_value)] // `map_err` passes it by value.
pub(crate) fn arrow_error(error: arrow_schema::ArrowError) -> Error {
    Error::new(ErrorClass::Syntax, error.to_string())
}

pub(crate) fn wrong_type(name: &str, data_type: &DataType) -> Error {
    Error::new(ErrorClass::Syntax, format!("column `{name}` has the wrong type {data_type}"))
        .hint("compare the columns with those of `emmclab.read(emmclab.bundled()[0]).to_arrow().schema`")
}

fn to_arrow<T: ArrowPrimitiveType>(column: &ScalarBuffer<T::Native>, rows: usize, none: T::Native) -> ArrayRef {
    if column.is_empty() && rows > 0 {
        return new_null_array(&T::DATA_TYPE, rows);
    }
    let valid = BooleanBuffer::collect_bool(column.len(), |i| column[i] != none);
    let nulls = Some(NullBuffer::new(valid)).filter(|nulls| nulls.null_count() > 0);
    Arc::new(PrimitiveArray::<T>::new(column.clone(), nulls))
}

/// The values of an array whose type has been checked; empty if the column is missing or all values are null.
fn from_arrow<T: ArrowPrimitiveType>(array: Option<&ArrayRef>, none: T::Native) -> ScalarBuffer<T::Native> {
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

fn names_to_arrow(column: &ScalarBuffer<u32>, rows: usize, names: &NameTable) -> Result<ArrayRef> {
    let is_large = names.len() > rows.max(BATCH_ROWS);
    let (column, values) = if is_large { used(column, names) } else { (column.clone(), names.to_arrow()) };
    let keys = if column.is_empty() {
        UInt32Array::new_null(rows)
    } else {
        to_arrow::<UInt32Type>(&column, rows, NO_NAME).as_primitive::<UInt32Type>().clone()
    };
    Ok(Arc::new(DictionaryArray::try_new(keys, Arc::new(values)).map_err(arrow_error)?))
}

/// Returns the names that a column uses, in order of appearance, and the column with indices into these names. This is worthwhile if a
/// batch has fewer rows than the trace has names.
fn used(column: &ScalarBuffer<u32>, names: &NameTable) -> (ScalarBuffer<u32>, StringArray) {
    let mut places: HashMap<u32, u32> = HashMap::new();
    let mut values = Vec::new();
    let place = |id: &u32| {
        let name = names.get(NameId(*id)).filter(|_| *id != NO_NAME);
        name.map_or(NO_NAME, |name| {
            *places.entry(*id).or_insert_with(|| {
                values.push(name);
                values.len() as u32 - 1
            })
        })
    };
    let column: Vec<u32> = column.iter().map(place).collect();
    (column.into(), StringArray::from_iter_values(values))
}

fn names_from_arrow(column: TraceColumn, array: Option<&ArrayRef>, names: &mut GrowingNameTable) -> Result<ScalarBuffer<u32>> {
    let Some(dictionary) = array.and_then(|array| array.as_dictionary_opt::<UInt32Type>()) else {
        return Ok(Vec::new().into());
    };
    let Some(values) = dictionary.values().as_string_opt::<i32>() else { return Ok(Vec::new().into()) };
    if dictionary.null_count() == dictionary.len() {
        return Ok(Vec::new().into());
    }
    let mut id_of = |key: u32| {
        let place = key as usize;
        let name = if values.is_null(place) { "" } else { values.value(place) };
        if name.len() > MOST_NAME_BYTES {
            let problem = format!("the name has {} bytes, more than {MOST_NAME_BYTES}", name.len());
            return Err(Error::new(ErrorClass::Value, problem).of_field(column.name(), 0, name.as_bytes()));
        }
        Ok(if names.names().get(NameId(key)) == Some(name) { key } else { names.intern(name).0 })
    };
    let keys = dictionary.keys();
    if values.len() > keys.len().max(BATCH_ROWS) {
        // A slice of a table contains the dictionary of the whole table. Only the names that the slice uses are looked up.
        return keys.iter().map(|key| key.map_or(Ok(NO_NAME), &mut id_of)).collect::<Result<Vec<_>>>().map(Into::into);
    }
    let ids = (0..values.len() as u32).map(id_of).collect::<Result<Vec<u32>>>()?;
    let same = ids.iter().zip(0..).all(|(id, key)| *id == key);
    Ok(match keys.nulls() {
        None if same => keys.values().clone(),
        None => keys.values().iter().map(|key| ids[*key as usize]).collect::<Vec<_>>().into(),
        Some(nulls) => {
            let id = |(key, valid): (&u32, bool)| if valid { ids[*key as usize] } else { NO_NAME };
            keys.values().iter().zip(nulls.iter()).map(id).collect::<Vec<_>>().into()
        }
    })
}

fn ops_from_arrow(array: &ArrayRef) -> Result<ScalarBuffer<u8>> {
    let dictionary = array.as_dictionary_opt::<UInt8Type>().ok_or_else(|| wrong_type("op", array.data_type()))?;
    let values = dictionary.values();
    let values = values.as_string_opt::<i32>().ok_or_else(|| wrong_type("op", values.data_type()))?;
    let codes = values
        .iter()
        .map(|value| {
            let value = value.unwrap_or("");
            Op::ALL
                .into_iter()
                .find(|op| op.name() == value)
                .map(|op| op as u8)
                .ok_or_else(|| Error::new(ErrorClass::Value, "unknown operation").of_field("op", 0, value.as_bytes()))
        })
        .collect::<Result<Vec<u8>>>()?;
    if codes.iter().enumerate().all(|(key, code)| key == *code as usize) {
        return Ok(dictionary.keys().values().clone());
    }
    Ok(dictionary.keys().values().iter().map(|key| codes[*key as usize]).collect::<Vec<_>>().into())
}

/// The row that contains a value which cannot be converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnconvertibleRow(pub usize);

/// Converts the column to `wanted`, a type of the schema. A column that already has this type is shared, not copied.
pub(crate) fn converted(array: &ArrayRef, wanted: &DataType) -> std::result::Result<ArrayRef, UnconvertibleRow> {
    if array.data_type() == wanted {
        return Ok(array.clone());
    }
    match wanted {
        _ if *array.data_type() == DataType::Null => Ok(new_null_array(wanted, array.len())),
        DataType::UInt16 => integers::<UInt16Type>(array),
        DataType::UInt32 => integers::<UInt32Type>(array),
        DataType::UInt64 => integers::<UInt64Type>(array),
        DataType::Int32 => integers::<Int32Type>(array),
        DataType::Int64 => integers::<Int64Type>(array),
        DataType::Dictionary(key, _) if **key == DataType::UInt8 => names::<UInt8Type>(array),
        DataType::Dictionary(..) => names::<UInt32Type>(array),
        DataType::List(item) => lists(array, item),
        _ => Err(UnconvertibleRow(0)),
    }
}

fn integers<T: ArrowPrimitiveType>(array: &ArrayRef) -> std::result::Result<ArrayRef, UnconvertibleRow>
where
    T::Native: TryFrom<i128>,
{
    let array: &dyn Array = array;
    downcast_integer_array! {
        array => {
            let value = |row: usize| {
                // The value that is stored for a null is undefined, so 0 is used.
                let valid = array.is_valid(row);
                let value = if valid { i128::from(array.value(row)) } else { 0 };
                T::Native::try_from(value).map_err(|_| UnconvertibleRow(row))
            };
            let values = (0..array.len()).map(value).collect::<std::result::Result<Vec<_>, _>>()?;
            Ok(Arc::new(PrimitiveArray::<T>::new(values.into(), array.nulls().cloned())))
        }
        _ => Err(UnconvertibleRow(0)),
    }
}

fn names<K: ArrowDictionaryKeyType>(array: &ArrayRef) -> std::result::Result<ArrayRef, UnconvertibleRow> {
    let mut out = StringDictionaryBuilder::<K>::new();
    for row in 0..array.len() {
        match text(array, row).map_err(|_| UnconvertibleRow(row))? {
            Some(name) => drop(out.append(name).map_err(|_| UnconvertibleRow(row))?),
            None => out.append_null(),
        }
    }
    Ok(Arc::new(out.finish()))
}

/// The text in a row; `None` if it is null. Fails if the column does not contain text.
fn text(array: &dyn Array, row: usize) -> std::result::Result<Option<&str>, UnconvertibleRow> {
    if array.is_null(row) {
        return Ok(None);
    }
    match array.data_type() {
        DataType::Utf8 => Ok(Some(array.as_string::<i32>().value(row))),
        DataType::LargeUtf8 => Ok(Some(array.as_string::<i64>().value(row))),
        DataType::Utf8View => Ok(Some(array.as_string_view().value(row))),
        DataType::Dictionary(..) => downcast_dictionary_array! {
            array => text(array.values(), array.key(row).ok_or(UnconvertibleRow(row))?),
            _ => Err(UnconvertibleRow(row)),
        },
        _ => Err(UnconvertibleRow(row)),
    }
}

/// Function that returns, for a row, the range of the items in its list.
type ItemRange<'a> = Box<dyn Fn(usize) -> Range<usize> + 'a>;

fn lists(array: &ArrayRef, item: &Arc<Field>) -> std::result::Result<ArrayRef, UnconvertibleRow> {
    let (items, range): (&ArrayRef, ItemRange<'_>) = match array.data_type() {
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            let offsets = lists.value_offsets();
            (lists.values(), Box::new(|row| offsets[row] as usize..offsets[row + 1] as usize))
        }
        DataType::LargeList(_) => {
            let lists = array.as_list::<i64>();
            let offsets = lists.value_offsets();
            (lists.values(), Box::new(|row| offsets[row] as usize..offsets[row + 1] as usize))
        }
        DataType::FixedSizeList(..) => {
            let lists = array.as_fixed_size_list();
            let length = lists.value_length() as usize;
            (lists.values(), Box::new(move |row| row * length..(row + 1) * length))
        }
        DataType::ListView(_) => {
            let lists = array.as_list_view::<i32>();
            let (offsets, sizes) = (lists.value_offsets(), lists.value_sizes());
            (lists.values(), Box::new(|row| offsets[row] as usize..(offsets[row] + sizes[row]) as usize))
        }
        DataType::LargeListView(_) => {
            let lists = array.as_list_view::<i64>();
            let (offsets, sizes) = (lists.value_offsets(), lists.value_sizes());
            (lists.values(), Box::new(|row| offsets[row] as usize..(offsets[row] + sizes[row]) as usize))
        }
        _ => return Err(UnconvertibleRow(0)),
    };
    // The range stored for a null list is undefined.
    let ranges = (0..array.len()).map(|row| if array.is_null(row) { 0..0 } else { range(row) });
    let ranges: Vec<Range<usize>> = ranges.collect();
    let chosen: UInt64Array = ranges.iter().cloned().flatten().map(|place| place as u64).collect::<Vec<_>>().into();
    let chosen = take(items, &chosen, None).map_err(|_| UnconvertibleRow(0))?;
    let offsets = OffsetBuffer::from_lengths(ranges.iter().map(ExactSizeIterator::len));
    let chosen = converted(&chosen, item.data_type()).map_err(|UnconvertibleRow(place)| {
        UnconvertibleRow(offsets.iter().rposition(|from| *from as usize <= place).unwrap_or(0))
    })?;
    let nulls: Option<NullBuffer> = array.nulls().cloned();
    ListArray::try_new(item.clone(), offsets, chosen, nulls)
        .map(|lists| Arc::new(lists) as ArrayRef)
        .map_err(|_| UnconvertibleRow(0))
}

/// Maximum number of sectors of a block, which has at most 64 KiB.
const MOST_CHANGED: u16 = 128;

impl BatchNotes {
    /// Returns the five columns of block notes (roles of the blocks of a write), in the order of the schema, for a batch of `rows` rows.
    pub fn to_arrow(&self, rows: usize) -> Result<[ArrayRef; 5]> {
        let lengths = || (0..rows).map(|row| self.of(row).len());
        let offsets = OffsetBuffer::from_lengths(lengths());
        let nulls = Some(lengths().map(|length| length > 0).collect::<NullBuffer>());
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
        let list = |values: ArrayRef| -> Result<ArrayRef> {
            let item = Arc::new(Field::new_list_field(values.data_type().clone(), true));
            let list = ListArray::try_new(item, offsets.clone(), values, nulls.clone());
            Ok(Arc::new(list.map_err(arrow_error)?))
        };
        let all = self.all();
        let keys = PrimitiveArray::<UInt8Type>::from_iter_values(all.iter().map(|note| note.role as u8));
        let names = Arc::new(StringArray::from_iter_values(BlockRole::ALL.map(BlockRole::name)));
        let roles = DictionaryArray::<UInt8Type>::try_new(keys, names).map_err(arrow_error)?;
        let sectors = all.iter().map(|note| note.sectors);
        let changed = all.iter().map(|note| note.changed.map(|changed| changed.len() as u16));
        Ok([
            list(Arc::new(roles))?,
            list(Arc::new(PrimitiveArray::<UInt32Type>::from_iter_values(sectors)))?,
            list(Arc::new(all.iter().map(|note| note.home).collect::<PrimitiveArray<UInt64Type>>()))?,
            list(Arc::new(changed.collect::<PrimitiveArray<UInt16Type>>()))?,
            list(Arc::new(all.iter().map(|note| note.transaction).collect::<PrimitiveArray<UInt32Type>>()))?,
        ])
    }

    /// Reads the block notes from these columns; `None` if there are no such columns. `before` is the number of earlier rows of
    /// the trace. Fails with [`ErrorClass::Syntax`] if a column is missing or has another type, [`ErrorClass::Value`] if the
    /// lists of a row differ in length or an entry is invalid.
    pub fn from_arrow(record: &RecordBatch, before: u64) -> Result<Option<Self>> {
        let roles = RoleColumn::find(record)?;
        let sectors = NumberListColumn::<UInt32Type>::find(record, TraceColumn::RoleSectors, AsArray::as_primitive_opt)?;
        let home = NumberListColumn::<UInt64Type>::find(record, TraceColumn::HomeSector, AsArray::as_primitive_opt)?;
        let changed = NumberListColumn::<UInt16Type>::find(record, TraceColumn::ChangedSectors, AsArray::as_primitive_opt)?;
        let transaction = NumberListColumn::<UInt32Type>::find(record, TraceColumn::Transaction, AsArray::as_primitive_opt)?;
        let (Some(roles), Some(sectors)) = (&roles, &sectors) else {
            if TraceColumn::ALL.into_iter().all(|column| !column.of_notes() || column_of(record, column).is_none()) {
                return Ok(None);
            }
            let missing = if roles.is_none() { TraceColumn::Role } else { TraceColumn::RoleSectors };
            let error = Error::new(ErrorClass::Syntax, "this column of the block notes is missing").in_field(missing.name());
            return Err(error.hint("give both columns `role` and `role_sectors`, or remove all columns of block notes"));
        };
        let mut notes = Self::default();
        let mut entries = Vec::new();
        for row in 0..record.num_rows() {
            let here = |error: Error| error.at_line(before + row as u64 + 1);
            let at = roles.lists.range(row);
            let same_length = |column, range: Range<usize>| {
                if range.len() == at.len() {
                    return Ok(range.start);
                }
                let what = format!("the list has {} entries in a row in which `role` has {}", range.len(), at.len());
                let error = Error::new(ErrorClass::Value, what).in_field(TraceColumn::name(column));
                Err(here(error.hint("in each row, all lists of block notes must have the same length: one entry for each note")))
            };
            let sectors_at = same_length(TraceColumn::RoleSectors, sectors.range(row))?;
            let start = |column, range: Option<Range<usize>>| range.map_or(Ok(0), |range| same_length(column, range));
            let home_at = start(TraceColumn::HomeSector, home.as_ref().map(|lists| lists.range(row)))?;
            let changed_at = start(TraceColumn::ChangedSectors, changed.as_ref().map(|lists| lists.range(row)))?;
            let transaction_at = start(TraceColumn::Transaction, transaction.as_ref().map(|lists| lists.range(row)))?;
            entries.clear();
            for i in 0..at.len() {
                entries.push(BlockNote {
                    role: roles.get(at.start + i).map_err(here)?,
                    sectors: sectors.get(sectors_at + i).ok_or_else(|| here(no_entry(TraceColumn::RoleSectors)))?,
                    home: home.as_ref().and_then(|lists| lists.get(home_at + i)),
                    transaction: transaction.as_ref().and_then(|lists| lists.get(transaction_at + i)),
                    changed: changed
                        .as_ref()
                        .and_then(|lists| lists.get(changed_at + i))
                        .map(|count| changed_sectors(count).map_err(here))
                        .transpose()?,
                });
            }
            if !entries.is_empty() {
                notes.push(row, &entries);
            }
        }
        Ok(Some(notes))
    }
}

fn column_of(record: &RecordBatch, column: TraceColumn) -> Option<&ArrayRef> {
    record.column_by_name(column.name())
}

fn no_entry(column: TraceColumn) -> Error {
    Error::new(ErrorClass::Value, "a list in this column has a missing entry")
        .in_field(column.name())
        .hint("each block note needs an entry in `role` and in `role_sectors`; the other columns can have missing entries")
}

/// A set of the first `count` sectors of a block. The file stores only the number of changed sectors, not their positions.
fn changed_sectors(count: u16) -> Result<SectorSet> {
    if count > MOST_CHANGED {
        let error = Error::new(ErrorClass::Value, format!("a block can have at most {MOST_CHANGED} changed sectors"));
        return Err(error.of_field(TraceColumn::ChangedSectors.name(), 0, count.to_string().as_bytes()));
    }
    Ok(SectorSet::first(count.into()))
}

struct NumberListColumn<'a, T: ArrowPrimitiveType> {
    lists: &'a ListArray,
    values: &'a PrimitiveArray<T>,
}

impl<'a, T: ArrowPrimitiveType> NumberListColumn<'a, T> {
    /// Looks the column up; `None` if it is missing. `numbers` returns the values of the lists as numbers, or `None` if they have
    /// another type.
    fn find(
        record: &'a RecordBatch, column: TraceColumn, numbers: impl FnOnce(&'a dyn Array) -> Option<&'a PrimitiveArray<T>>,
    ) -> Result<Option<Self>> {
        let Some(array) = column_of(record, column) else { return Ok(None) };
        let lists = array.as_list_opt::<i32>();
        let both = lists.and_then(|lists| Some(Self { lists, values: numbers(lists.values().as_ref())? }));
        both.map(Some).ok_or_else(|| wrong_type(column.name(), array.data_type()))
    }

    /// The range of the values of a row; empty if its list is null.
    fn range(&self, row: usize) -> Range<usize> {
        if self.lists.is_null(row) {
            return 0..0;
        }
        let offsets = self.lists.value_offsets();
        offsets[row] as usize..offsets[row + 1] as usize
    }

    fn get(&self, at: usize) -> Option<T::Native> {
        self.values.is_valid(at).then(|| self.values.value(at))
    }
}

struct RoleColumn<'a> {
    lists: NumberListColumn<'a, UInt8Type>,
    names: &'a StringArray,
    /// The role for each key of the dictionary; `None` if its name is not a role.
    by_key: Vec<Option<BlockRole>>,
}

impl<'a> RoleColumn<'a> {
    fn find(record: &'a RecordBatch) -> Result<Option<Self>> {
        let mut names = None;
        let lists = NumberListColumn::find(record, TraceColumn::Role, |values| {
            let dictionary = values.as_dictionary_opt::<UInt8Type>()?;
            names = dictionary.values().as_string_opt::<i32>();
            names.map(|_| dictionary.keys())
        })?;
        Ok(lists.zip(names).map(|(lists, names)| {
            let by_key = names.iter().map(|name| BlockRole::by_name(name?)).collect();
            Self { lists, names, by_key }
        }))
    }

    /// The role of the note at this index.
    fn get(&self, at: usize) -> Result<BlockRole> {
        let key = usize::from(self.lists.get(at).ok_or_else(|| no_entry(TraceColumn::Role))?);
        self.by_key[key].ok_or_else(|| {
            if self.names.is_null(key) {
                return no_entry(TraceColumn::Role);
            }
            let names = BlockRole::ALL.map(BlockRole::name).join(", ");
            let error = Error::new(ErrorClass::Value, "unknown role of a block");
            error.of_field(TraceColumn::Role.name(), 0, self.names.value(key).as_bytes()).hint(format!("the roles are: {names}"))
        })
    }
}
