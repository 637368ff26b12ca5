//! Reads a trace from Arrow record batches in memory, which another library provides.
//!
//! The columns are those of [`TraceColumn`]. Text may be plain, large, a view or a dictionary; integers may have any width that fits the
//! values. Other columns are omitted and listed in the note of the header. Values of the types in [`Batch::schema`] are shared, not copied.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{Array, ArrayRef, DictionaryArray, RecordBatch, RecordBatchReader, UInt8Array};
use arrow_schema::{DataType, Schema};

use crate::arrow_batch::{UnconvertibleRow, converted};
use crate::formats::{FormatTimes, UnitGuard};
use crate::{
    BATCH_ROWS, Batch, Error, ErrorClass, GrowingNameTable, Ledger, NameTable, Op, ReadOptions, ReadProgress, RecognisedFormat,
    RecordedFeatures, Request, Result, TraceColumn, TraceHeader, TraceReader, TraceSource,
};

/// Name of the format in the headers of traces that come from Arrow. It is not the name of a file format.
const FORMAT: &str = "arrow";
/// Prefix of the names of the columns in which pandas stores its index.
const PANDAS_INDEX: &str = "__index_level_";

impl TraceReader {
    /// A trace from record batches, whose rows must be in order of arrival; `name` is used in the header and in errors. Fails
    /// with [`ErrorClass::Syntax`] if a column is missing or its type cannot be converted.
    pub fn of_arrow(records: Box<dyn RecordBatchReader + Send>, name: &str) -> Result<Self> {
        let path = Path::new(name);
        let source = ArrowSource::new(records, name).map_err(|error| error.in_file(path))?;
        let guard = UnitGuard::new(FormatTimes::Stored, &ReadOptions::default())?;
        let recognised = RecognisedFormat { format: FORMAT, by: "its columns" };
        let options = ReadOptions::default();
        Ok(Self::of_source(path, Box::new(source), guard, (recognised, RecordedFeatures::NONE), &options))
    }
}

struct ArrowSource {
    records: Box<dyn RecordBatchReader + Send>,
    /// Parts of the last record batch that are not returned yet.
    parts: VecDeque<RecordBatch>,
    header: TraceHeader,
    processes: GrowingNameTable,
    devices: GrowingNameTable,
    last_arrival: i64,
    rows: u64,
    /// Number of rows whose notes on the roles of blocks were dropped.
    notes_left_out: u64,
}

impl ArrowSource {
    fn new(records: Box<dyn RecordBatchReader + Send>, name: &str) -> Result<Self> {
        let left_out = check_columns(&records.schema())?;
        let header = TraceHeader {
            source: name.to_owned(),
            format: FORMAT.to_owned(),
            clock: "relative".to_owned(),
            block_notes: records.schema().field_with_name(TraceColumn::Role.name()).ok().map(|_| TraceHeader::EXT4.to_owned()),
            note: (!left_out.is_empty()).then(|| format!("columns left out: {}", left_out.join(", "))),
            ..TraceHeader::default()
        };
        Ok(Self {
            records,
            parts: VecDeque::new(),
            header,
            processes: GrowingNameTable::default(),
            devices: GrowingNameTable::default(),
            last_arrival: i64::MIN,
            rows: 0,
            notes_left_out: 0,
        })
    }

    fn next(&mut self) -> Result<Option<Batch>> {
        let part = loop {
            if let Some(part) = self.parts.pop_front() {
                break part;
            }
            let Some(record) = self.records.next() else { return Ok(None) };
            let record = record.map_err(|error| Error::new(ErrorClass::Syntax, error.to_string()))?;
            let rows = record.num_rows();
            let starts = (0..rows).step_by(BATCH_ROWS);
            self.parts.extend(starts.map(|at| record.slice(at, BATCH_ROWS.min(rows - at))));
        };
        let before = self.rows;
        let record = conform(&part).map_err(|(row, error)| error.at_line(before + row as u64 + 1))?;
        let batch = Batch::from_record_batch(&record, before, &mut self.processes, &mut self.devices)?;
        let last = self.last_arrival;
        batch.check_order(&mut self.last_arrival).map_err(|error| {
            // The first row that is earlier than the row before it, or than the rows before the batch.
            let arrivals = batch.arrivals();
            let row = std::iter::once(&last).chain(arrivals).zip(arrivals).position(|(before, now)| now < before);
            error.at_line(before + row.map_or(0, |row| row as u64 + 1))
        })?;
        if let Some((row, error)) = batch.first_fault() {
            return Err(error.at_line(before + row as u64 + 1));
        }
        self.rows += batch.len() as u64;
        Ok(Some(batch))
    }
}

/// Checks that each column of a trace can be read; returns the names of the other columns.
fn check_columns(schema: &Schema) -> Result<Vec<String>> {
    let names = || schema.fields().iter().map(|field| field.name().as_str());
    let unknown: Vec<&str> =
        names().filter(|name| TraceColumn::by_name(name).is_none() && !name.starts_with(PANDAS_INDEX)).collect();
    for column in TraceColumn::ALL {
        let Ok(field) = schema.field_with_name(column.name()) else {
            if let Some(near) = unknown.iter().find(|name| is_meant(name, column)) {
                return Err(Error::new(
                    ErrorClass::Syntax,
                    format!("traces have a column `{}`, but none of this name", column.name()),
                )
                .in_field(near)
                .hint(format!("rename the column to `{}`: {}", column.name(), meaning(column))));
            }
            if column.optional() {
                continue;
            }
            let columns: Vec<&str> = names().collect();
            return Err(Error::new(ErrorClass::Syntax, "the column is missing").in_field(column.name()).hint(format!(
                "add the missing column ({}); every trace needs arrival_ns, sector, sectors and op, and the table has only: {}",
                meaning(column),
                columns.join(", ")
            )));
        };
        if !takes(column, field.data_type()) {
            let data_type = field.data_type().to_string();
            return Err(Error::new(ErrorClass::Syntax, "the column cannot have this type")
                .of_field(column.name(), 0, data_type.as_bytes())
                .hint(format!("the column must contain {}", meaning(column))));
        }
    }
    Ok(unknown.into_iter().map(str::to_owned).collect())
}

/// Whether an unknown column name probably means this column, but lacks its unit or has another unit.
fn is_meant(name: &str, column: TraceColumn) -> bool {
    let word = column.name().trim_end_matches("_ns");
    let name = name.to_ascii_lowercase();
    name == word || (column.name() != word && ["_s", "_ms", "_us", "_time"].iter().any(|unit| name == format!("{word}{unit}")))
}

/// The expected values of a column, for hints.
fn meaning(column: TraceColumn) -> String {
    let kind = match (column.of_notes(), is_text(&item(&column.data_type()))) {
        (false, true) => "text",
        (false, false) => "whole numbers",
        (true, true) => "lists of text",
        (true, false) => "lists of whole numbers",
    };
    let unit = column.unit();
    let unit = if unit.is_empty() { String::new() } else { format!(" in {unit}") };
    format!("{kind}{unit}, {}", column.about())
}

fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, value) => is_text(value),
        data_type => matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View),
    }
}

/// Whether values of this type can be converted to those of the column. Floating-point numbers cannot, because they round nanoseconds.
fn takes(column: TraceColumn, data_type: &DataType) -> bool {
    // A column that contains only nulls has the type Null.
    let empty = column.optional() && column != TraceColumn::Flags && *data_type == DataType::Null;
    let is_list = *data_type != item(data_type);
    let fits = |wanted: &DataType, data_type: &DataType| {
        // If all lists of a column are empty, their item type is Null.
        let nothing = column.of_notes() && *data_type == DataType::Null;
        nothing || if is_text(wanted) { is_text(data_type) } else { data_type.is_integer() }
    };
    empty || (is_list == column.of_notes() && fits(&item(&column.data_type()), &item(data_type)))
}

/// The item type of a list type; for other types, the type itself.
fn item(data_type: &DataType) -> DataType {
    match data_type {
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::FixedSizeList(field, _)
        | DataType::ListView(field)
        | DataType::LargeListView(field) => field.data_type().clone(),
        data_type => data_type.clone(),
    }
}

/// Converts the columns to the types of [`Batch::schema`]; an error comes with the number of its row.
fn conform(record: &RecordBatch) -> std::result::Result<RecordBatch, (usize, Error)> {
    let wanted = Batch::schema(true);
    let mut fields = Vec::new();
    let mut columns: Vec<ArrayRef> = Vec::new();
    for column in TraceColumn::ALL {
        let Some(array) = record.column_by_name(column.name()) else { continue };
        let needed = !column.optional() || column == TraceColumn::Flags;
        let nulls = if needed { array.null_count() } else { 0 };
        if let Some(row) = (0..array.len()).find(|row| nulls > 0 && array.is_null(*row)) {
            let error = Error::new(ErrorClass::Value, "the column has no value in this row").in_field(column.name());
            return Err((row, error.hint("fill in the missing values, or drop the rows without a value")));
        }
        let array = match column {
            TraceColumn::Op => operations(array)?,
            column => cast(array, column)?,
        };
        fields.push(wanted.field(column as usize).clone());
        columns.push(array);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(|error| (0, refused(&error)))
}

fn refused(error: &arrow_schema::ArrowError) -> Error {
    Error::new(ErrorClass::Value, error.to_string())
}

fn cast(array: &ArrayRef, column: TraceColumn) -> std::result::Result<ArrayRef, (usize, Error)> {
    let wanted = column.data_type();
    converted(array, &wanted).map_err(|UnconvertibleRow(row)| {
        let error = Error::new(ErrorClass::Value, format!("the column has a value that is not of type {wanted}"));
        (row, error.in_field(column.name()).hint(format!("the column must contain {}", meaning(column))))
    })
}

/// Converts names of operations to their codes. Unknown names are ignored if no row uses them, for example unused categories.
fn operations(array: &ArrayRef) -> std::result::Result<ArrayRef, (usize, Error)> {
    let by_number = DataType::Dictionary(Box::new(DataType::UInt32), Box::new(DataType::Utf8));
    let not_text = |row: usize| (row, Error::new(ErrorClass::Syntax, "the column must contain text").in_field("op"));
    let named = converted(array, &by_number).map_err(|UnconvertibleRow(row)| not_text(row))?;
    let (Some(named), Some(values)) = (
        named.as_dictionary_opt::<UInt32Type>(),
        named.as_dictionary_opt::<UInt32Type>().and_then(|named| named.values().as_string_opt::<i32>()),
    ) else {
        return Err(not_text(0));
    };
    let code = |key: u32| {
        let name = values.value(key as usize);
        Op::ALL.into_iter().find(|op| op.name() == name).map(|op| op as u8)
    };
    let codes: Vec<Option<u8>> = (0..values.len() as u32).map(code).collect();
    let keys = named.keys().values();
    let codes = keys.iter().enumerate().map(|(row, key)| {
        codes[*key as usize].ok_or_else(|| {
            let names = Op::ALL.map(Op::name).join(", ");
            let error = Error::new(ErrorClass::Value, "unknown operation");
            (row, error.of_field("op", 0, values.value(*key as usize).as_bytes()).hint(format!("the operations are: {names}")))
        })
    });
    let codes = UInt8Array::from(codes.collect::<std::result::Result<Vec<u8>, _>>()?);
    let names = arrow_array::StringArray::from_iter_values(Op::ALL.map(Op::name));
    let coded = DictionaryArray::try_new(codes, Arc::new(names)).map_err(|error| (0, refused(&error)))?;
    Ok(Arc::new(coded))
}

impl TraceSource for ArrowSource {
    fn fill(&mut self, out: &mut Vec<Request>) -> Result<bool> {
        let batch = self.next()?;
        self.notes_left_out += batch.as_ref().map_or(0, Batch::rows_with_notes);
        out.extend(batch.iter().flat_map(Batch::iter));
        Ok(batch.is_some())
    }

    fn next_sorted(&mut self) -> Option<Result<Option<Batch>>> {
        Some(self.next())
    }

    fn names(&self) -> (&NameTable, &NameTable) {
        (self.processes.names(), self.devices.names())
    }

    fn ledger(&self) -> Ledger {
        Ledger { seen: self.rows, kept: self.rows, notes_left_out: self.notes_left_out, ..Ledger::default() }
    }

    fn header(&self) -> TraceHeader {
        self.header.clone()
    }

    fn progress(&self) -> ReadProgress {
        ReadProgress::default()
    }
}
