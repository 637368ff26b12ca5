//! Converts columns of other libraries to the types of a trace: integers of any width, text of any Arrow type, and lists of
//! both.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowDictionaryKeyType, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, ListArray, PrimitiveArray, UInt64Array, downcast_dictionary_array,
    downcast_integer_array, new_null_array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field};
use arrow_select::take::take;

/// A row whose value cannot be converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnconvertibleRow(pub usize);

/// Converts the column to `wanted`, a type of the schema; a column that already has this type is shared.
pub(crate) fn converted(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, UnconvertibleRow> {
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

fn integers<T: ArrowPrimitiveType>(array: &ArrayRef) -> Result<ArrayRef, UnconvertibleRow>
where
    T::Native: TryFrom<i128>,
{
    let array: &dyn Array = array;
    downcast_integer_array! {
        array => {
            let value = |row: usize| {
                // The value stored for a null is undefined.
                let valid = array.is_valid(row);
                let value = if valid { i128::from(array.value(row)) } else { 0 };
                T::Native::try_from(value).map_err(|_| UnconvertibleRow(row))
            };
            let values = (0..array.len()).map(value).collect::<Result<Vec<_>, _>>()?;
            Ok(Arc::new(PrimitiveArray::<T>::new(values.into(), array.nulls().cloned())))
        }
        _ => Err(UnconvertibleRow(0)),
    }
}

fn names<K: ArrowDictionaryKeyType>(array: &ArrayRef) -> Result<ArrayRef, UnconvertibleRow> {
    let mut out = StringDictionaryBuilder::<K>::new();
    for row in 0..array.len() {
        match text(array, row).map_err(|_| UnconvertibleRow(row))? {
            Some(name) => drop(out.append(name).map_err(|_| UnconvertibleRow(row))?),
            None => out.append_null(),
        }
    }
    Ok(Arc::new(out.finish()))
}

/// The text of a row; `None` if it is null.
///
/// # Errors
/// If the column is not of text.
fn text(array: &dyn Array, row: usize) -> Result<Option<&str>, UnconvertibleRow> {
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

/// Returns the range of the items of a row's list.
type ItemRange<'a> = Box<dyn Fn(usize) -> Range<usize> + 'a>;

fn lists(array: &ArrayRef, item: &Arc<Field>) -> Result<ArrayRef, UnconvertibleRow> {
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
