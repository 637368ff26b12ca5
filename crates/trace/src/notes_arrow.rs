//! Block notes as Arrow columns. Each column has a list for every request, with an entry for each of its notes.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, DictionaryArray, ListArray, PrimitiveArray, RecordBatch, StringArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::Field;

use crate::arrow_batch::{arrow_error, wrong_type};
use crate::batch_notes::BatchNotes;
use crate::{BlockNote, BlockRole, Error, ErrorClass, Result, SectorSet, TraceColumn};

/// Maximum number of sectors of a block, which has at most 64 KiB.
const MOST_CHANGED: u16 = 128;

impl BatchNotes {
    /// Returns the five columns of block notes, in the order of the schema, for a batch of `rows` rows.
    ///
    /// # Errors
    /// Never; an error of Arrow's own check is returned.
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

    /// Reads the notes from these columns; `None` if the columns are missing. `before` is the number of rows of the trace
    /// before them.
    ///
    /// # Errors
    /// [`ErrorClass::Syntax`] if a column is missing or of another type, [`ErrorClass::Value`] if the lists of a row differ in length or an
    /// entry is not a valid note.
    pub fn from_arrow(record: &RecordBatch, before: u64) -> Result<Option<Self>> {
        let roles = RoleColumn::find(record)?;
        let sectors =
            NumberListColumn::<UInt32Type>::find(record, TraceColumn::RoleSectors, AsArray::as_primitive_opt)?;
        let home = NumberListColumn::<UInt64Type>::find(record, TraceColumn::HomeSector, AsArray::as_primitive_opt)?;
        let changed =
            NumberListColumn::<UInt16Type>::find(record, TraceColumn::ChangedSectors, AsArray::as_primitive_opt)?;
        let transaction =
            NumberListColumn::<UInt32Type>::find(record, TraceColumn::Transaction, AsArray::as_primitive_opt)?;
        let (Some(roles), Some(sectors)) = (&roles, &sectors) else {
            if TraceColumn::ALL.into_iter().all(|column| !column.of_notes() || column_of(record, column).is_none()) {
                return Ok(None);
            }
            let missing = if roles.is_none() { TraceColumn::Role } else { TraceColumn::RoleSectors };
            let error = Error::new(ErrorClass::Syntax, "this column is missing").in_field(missing.name());
            return Err(error.hint("give `role` and `role_sectors`, or no column of block notes"));
        };
        let mut notes = Self::default();
        let mut entries = Vec::new();
        for row in 0..record.num_rows() {
            let here = |error: Error| error.at_line(before + row as u64 + 1);
            let at = roles.lists.range(row);
            let same_length = |column, found: Range<usize>| {
                if found.len() == at.len() {
                    return Ok(found.start);
                }
                let what = format!("has {} entries in a row in which `role` has {}", found.len(), at.len());
                let error = Error::new(ErrorClass::Value, what).in_field(TraceColumn::name(column));
                Err(here(error.hint("give the lists of a row an entry for each of its notes")))
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
    Error::new(ErrorClass::Value, "has a list with a missing entry")
        .in_field(column.name())
        .hint("give each note a role and a length; only the other columns may lack an entry")
}

/// A set of `count` sectors: the first ones, because the file does not store which sectors changed.
fn changed_sectors(count: u16) -> Result<SectorSet> {
    if count > MOST_CHANGED {
        let error = Error::new(ErrorClass::Value, format!("is more than the {MOST_CHANGED} sectors that a block has"));
        return Err(error.of_field(TraceColumn::ChangedSectors.name(), 0, count.to_string().as_bytes()));
    }
    Ok(SectorSet::first(count.into()))
}

/// A column whose values are lists of numbers.
struct NumberListColumn<'a, T: ArrowPrimitiveType> {
    lists: &'a ListArray,
    values: &'a PrimitiveArray<T>,
}

impl<'a, T: ArrowPrimitiveType> NumberListColumn<'a, T> {
    /// Finds the column; `None` if it is missing. `numbers` returns the values of the lists as numbers; `None` if they are of
    /// another type.
    fn find(
        record: &'a RecordBatch,
        column: TraceColumn,
        numbers: impl FnOnce(&'a dyn Array) -> Option<&'a PrimitiveArray<T>>,
    ) -> Result<Option<Self>> {
        let Some(array) = column_of(record, column) else { return Ok(None) };
        let lists = array.as_list_opt::<i32>();
        let both = lists.and_then(|lists| Some(Self { lists, values: numbers(lists.values().as_ref())? }));
        both.map(Some).ok_or_else(|| wrong_type(column.name(), array.data_type()))
    }

    /// The range of a row's values; empty if the list is null.
    fn range(&self, row: usize) -> Range<usize> {
        if self.lists.is_null(row) {
            return 0..0;
        }
        let offsets = self.lists.value_offsets();
        offsets[row] as usize..offsets[row + 1] as usize
    }

    /// The value at an index; `None` if it is null.
    fn get(&self, at: usize) -> Option<T::Native> {
        self.values.is_valid(at).then(|| self.values.value(at))
    }
}

/// The column of roles.
struct RoleColumn<'a> {
    lists: NumberListColumn<'a, UInt8Type>,
    names: &'a StringArray,
    /// The role of each name; `None` if there is no such role.
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

    /// The role at an index.
    fn get(&self, at: usize) -> Result<BlockRole> {
        let key = usize::from(self.lists.get(at).ok_or_else(|| no_entry(TraceColumn::Role))?);
        self.by_key[key].ok_or_else(|| {
            if self.names.is_null(key) {
                return no_entry(TraceColumn::Role);
            }
            let names = BlockRole::ALL.map(BlockRole::name).join(", ");
            let error = Error::new(ErrorClass::Value, "is not a role of a block");
            error
                .of_field(TraceColumn::Role.name(), 0, self.names.value(key).as_bytes())
                .hint(format!("write one of: {names}"))
        })
    }
}
