//! Conversion between batches and Arrow record batches without a copy of the values.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Int64Array, PrimitiveArray, RecordBatch, StringArray, UInt16Array, UInt32Array,
    UInt64Array,
};
use arrow_buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::batch_notes::BatchNotes;
use crate::batch_rows::{NO_NAME, NO_PID, NO_TIME};
use crate::{BATCH_ROWS, Batch, Error, ErrorClass, GrowingNameTable, NameId, NameTable, Op, Result, TraceColumn};

/// Maximum length of the name of a process or device, in bytes; paths have at most 4,096.
pub(crate) const MOST_NAME_BYTES: usize = 1 << 16;

impl Batch {
    /// The Arrow and Parquet schema of a trace: the columns of [`TraceColumn::ALL`], with those of block notes if `notes`.
    pub fn schema(notes: bool) -> SchemaRef {
        let field = |column: TraceColumn| {
            // Flags may be missing from a file, but are never null.
            let nullable = column.optional() && column != TraceColumn::Flags;
            Field::new(column.name(), column.data_type(), nullable)
        };
        let columns = TraceColumn::ALL.into_iter().filter(|column| notes || !column.of_notes());
        Arc::new(Schema::new(columns.map(field).collect::<Vec<_>>()))
    }

    /// The batch as Arrow columns in [`Batch::schema`], with those of block notes if `notes`. Values are shared; only validity
    /// bits and lists of notes are created.
    ///
    /// # Errors
    /// Never for a batch of this crate; an error of Arrow's own check is returned.
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

    /// A batch from Arrow columns in [`Batch::schema`]; `before` is the number of rows of the trace before it. New names are
    /// added to `processes` and `devices`; ids stay the same over the batches of one trace.
    ///
    /// # Errors
    /// [`ErrorClass::Syntax`] if a column is missing or of another type, [`ErrorClass::Value`] if an operation or role is unknown or the
    /// lists of notes of a row differ in length.
    pub fn from_record_batch(
        record: &RecordBatch,
        before: u64,
        processes: &mut GrowingNameTable,
        devices: &mut GrowingNameTable,
    ) -> Result<Self> {
        // Other tools give a column without values a type of their own: pandas writes numbers as Float64 and names as Null.
        let has_values = |array: &ArrayRef| array.logical_null_count() < array.len();
        let found = |column: TraceColumn| {
            let array = record.column_by_name(column.name());
            array.filter(|array| *array.data_type() == column.data_type() || has_values(array))
        };
        for column in TraceColumn::ALL.into_iter().filter(|column| !column.of_notes()) {
            let Some(array) = found(column) else {
                if column.optional() {
                    continue;
                }
                return Err(Error::new(ErrorClass::Syntax, format!("there is no column `{}`", column.name()))
                    .hint("compare with `emmclab.read(emmclab.bundled()[0]).to_arrow().schema`"));
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
        let flags = match found(TraceColumn::Flags) {
            Some(array) => from_arrow::<UInt16Type>(Some(array), 0),
            None => vec![0; rows].into(),
        };
        Ok(Self {
            arrival: from_arrow::<Int64Type>(found(TraceColumn::Arrival), NO_TIME),
            start: from_arrow::<Int64Type>(found(TraceColumn::Start), NO_TIME),
            issue: from_arrow::<Int64Type>(found(TraceColumn::Issue), NO_TIME),
            served: from_arrow::<Int64Type>(found(TraceColumn::Served), NO_TIME),
            complete: from_arrow::<Int64Type>(found(TraceColumn::Complete), NO_TIME),
            sector: from_arrow::<UInt64Type>(found(TraceColumn::Sector), 0),
            sectors: from_arrow::<UInt32Type>(found(TraceColumn::Sectors), 0),
            op: found(TraceColumn::Op).map_or_else(|| Ok(Vec::new().into()), ops_from_arrow)?,
            flags,
            pid: from_arrow::<Int32Type>(found(TraceColumn::Pid), NO_PID),
            process: names_from_arrow(TraceColumn::Process, found(TraceColumn::Process), processes)?,
            device: names_from_arrow(TraceColumn::Device, found(TraceColumn::Device), devices)?,
            notes: BatchNotes::from_arrow(record, before)?.map(Arc::new),
            processes: processes.shared().clone(),
            devices: devices.shared().clone(),
        })
    }
}

#[allow(clippy::needless_pass_by_value)] // `map_err` hands it over.
pub(crate) fn arrow_error(error: arrow_schema::ArrowError) -> Error {
    Error::new(ErrorClass::Syntax, error.to_string())
}

pub(crate) fn wrong_type(name: &str, found: &DataType) -> Error {
    Error::new(ErrorClass::Syntax, format!("column `{name}` is of type {found}"))
        .hint("compare with `emmclab.read(emmclab.bundled()[0]).to_arrow().schema`")
}

fn to_arrow<T>(column: &ScalarBuffer<T::Native>, rows: usize, none: T::Native) -> ArrayRef
where
    T: arrow_array::ArrowPrimitiveType,
{
    if column.is_empty() && rows > 0 {
        return arrow_array::new_null_array(&T::DATA_TYPE, rows);
    }
    let valid = BooleanBuffer::collect_bool(column.len(), |i| column[i] != none);
    let nulls = Some(NullBuffer::new(valid)).filter(|nulls| nulls.null_count() > 0);
    Arc::new(PrimitiveArray::<T>::new(column.clone(), nulls))
}

/// The values of an array whose type has been checked; empty if the column is missing or has only nulls.
fn from_arrow<T>(array: Option<&ArrayRef>, none: T::Native) -> ScalarBuffer<T::Native>
where
    T: arrow_array::ArrowPrimitiveType,
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

/// The names that a column refers to, in order of appearance, and the column with indices into them. Used if the table of all
/// names of a trace is larger than the batch.
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

fn names_from_arrow(
    column: TraceColumn,
    array: Option<&ArrayRef>,
    names: &mut GrowingNameTable,
) -> Result<ScalarBuffer<u32>> {
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
            let problem = format!("is a name of {} bytes, more than {MOST_NAME_BYTES}", name.len());
            return Err(Error::new(ErrorClass::Value, problem).of_field(column.name(), 0, name.as_bytes()));
        }
        Ok(if names.names().get(NameId(key)) == Some(name) { key } else { names.intern(name).0 })
    };
    let keys = dictionary.keys();
    if values.len() > keys.len().max(BATCH_ROWS) {
        // Slices of a table share its dictionary: only the names that this slice refers to are looked up.
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
    let codes =
        values
            .iter()
            .map(|value| {
                let value = value.unwrap_or("");
                Op::ALL.into_iter().find(|op| op.name() == value).map(|op| op as u8).ok_or_else(|| {
                    Error::new(ErrorClass::Value, "is not an operation").of_field("op", 0, value.as_bytes())
                })
            })
            .collect::<Result<Vec<u8>>>()?;
    if codes.iter().enumerate().all(|(key, code)| key == *code as usize) {
        return Ok(dictionary.keys().values().clone());
    }
    Ok(dictionary.keys().values().iter().map(|key| codes[*key as usize]).collect::<Vec<_>>().into())
}
