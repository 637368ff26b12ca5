//! A batch of requests, which is shared with Arrow libraries by the [Arrow PyCapsule interface]: structures of its C data interface in
//! capsules.
//!
//! [Arrow PyCapsule interface]: https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html

use std::ffi::CStr;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{Array, RecordBatch, RecordBatchIterator, RecordBatchReader, StructArray};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use emmclab_trace::{Batch, BlockNote, RequestFlags, TraceColumn};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

use crate::errors::run;

/// A batch of requests in order of arrival, which any Arrow library can use without a copy.
#[pyclass(name = "Batch", module = "emmclab._core", frozen)]
pub(crate) struct PyBatch(pub(crate) Batch);

#[pymethods]
impl PyBatch {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        export_schema(py, &Batch::schema(self.0.has_notes()))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self, py: Python<'py>, requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let record = run(py, || self.0.to_record_batch(self.0.has_notes()))?;
        // The Arrow interface permits ignoring the requested schema, because the consumer can convert the types itself.
        drop(requested_schema);
        export_batch(py, record)
    }
    /// Returns the first `limit` requests for display: dictionaries with the columns of the schema as keys, and flags as names. Whole
    /// traces are passed through Arrow instead.
    fn rows<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Vec<Bound<'py, PyDict>>> {
        (0..self.0.len().min(limit)).map(|i| self.row(py, i)).collect()
    }
}

impl PyBatch {
    fn row<'py>(&self, py: Python<'py>, i: usize) -> PyResult<Bound<'py, PyDict>> {
        let request = self.0.get(i);
        let flags: Vec<&str> = RequestFlags::NAMES
            .into_iter()
            .enumerate()
            .filter(|(bit, _)| request.flags.0 & (1 << bit) != 0)
            .map(|(_, name)| name)
            .collect();
        let out = PyDict::new(py);
        out.set_item("arrival_ns", request.arrival.0)?;
        out.set_item("start_ns", request.start.map(|time| time.0))?;
        out.set_item("issue_ns", request.issue.map(|time| time.0))?;
        out.set_item("served_ns", request.served.map(|time| time.0))?;
        out.set_item("complete_ns", request.complete.map(|time| time.0))?;
        out.set_item("sector", request.sector.0)?;
        out.set_item("sectors", request.sectors)?;
        out.set_item("op", request.op.name())?;
        out.set_item("flags", flags)?;
        out.set_item("pid", request.pid)?;
        out.set_item("process", request.process.and_then(|name| self.0.processes().get(name)))?;
        out.set_item("device", request.device.and_then(|name| self.0.devices().get(name)))?;
        if self.0.has_notes() {
            let notes = self.0.notes(i);
            let column = |of: fn(&BlockNote) -> Option<u64>| -> Vec<_> { notes.iter().map(of).collect() };
            let roles: Vec<&str> = notes.iter().map(|note| note.role.name()).collect();
            out.set_item(TraceColumn::Role.name(), roles)?;
            out.set_item(TraceColumn::RoleSectors.name(), column(|note| Some(note.sectors.into())))?;
            out.set_item(TraceColumn::HomeSector.name(), column(|note| note.home))?;
            let changed = column(|note| note.changed.map(|changed| changed.len().into()));
            out.set_item(TraceColumn::ChangedSectors.name(), changed)?;
            out.set_item(TraceColumn::Transaction.name(), column(|note| note.transaction.map(u64::from)))?;
        }
        Ok(out)
    }
}

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";
const STREAM: &CStr = c"arrow_array_stream";

/// Exports a schema, for `__arrow_c_schema__`.
/// Errors: `ValueError` if the C interface of Arrow cannot express the schema.
pub(crate) fn export_schema<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema).map_err(value_error)?;
    PyCapsule::new_with_value(py, schema, SCHEMA)
}

/// Exports a record batch as a struct array, for `__arrow_c_array__`: its schema and its data.
/// Errors: `ValueError` if the C interface of Arrow cannot express the schema.
pub(crate) fn export_batch(py: Python<'_>, record: RecordBatch) -> PyResult<Bound<'_, PyTuple>> {
    let array = StructArray::from(record);
    let field = Field::new("", array.data_type().clone(), false);
    let schema = FFI_ArrowSchema::try_from(&field).map_err(value_error)?;
    let data = FFI_ArrowArray::new(&array.to_data());
    let capsules = [PyCapsule::new_with_value(py, schema, SCHEMA)?, PyCapsule::new_with_value(py, data, ARRAY)?];
    PyTuple::new(py, capsules)
}

/// Record batches of an object with `__arrow_c_stream__` or `__arrow_c_array__`.
pub(crate) struct ArrowRecordSource(pub(crate) Box<dyn RecordBatchReader + Send>);

impl<'py> FromPyObject<'_, 'py> for ArrowRecordSource {
    type Error = PyErr;

    fn extract(table: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = table.py();
        if let Some(stream) = table.getattr_opt(intern!(py, "__arrow_c_stream__"))? {
            let reader = ArrowArrayStreamReader::try_new(import_stream(&capsule(&stream.call0()?)?)?);
            return Ok(Self(Box::new(reader.map_err(value_error)?)));
        }
        let Some(array) = table.getattr_opt(intern!(py, "__arrow_c_array__"))? else {
            return Err(PyTypeError::new_err(
                "expected a table with __arrow_c_stream__ or __arrow_c_array__, such as a table of pyarrow, polars or pandas",
            ));
        };
        let (schema, data): (Bound<'py, PyAny>, Bound<'py, PyAny>) = array.call0()?.extract()?;
        let record = import_batch(&capsule(&schema)?, &capsule(&data)?)?;
        let schema = record.schema();
        Ok(Self(Box::new(RecordBatchIterator::new([Ok(record)], schema))))
    }
}

fn capsule<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyCapsule>> {
    Ok(object.cast::<PyCapsule>()?.clone())
}

fn import_stream(capsule: &Bound<'_, PyCapsule>) -> PyResult<FFI_ArrowArrayStream> {
    let at = capsule.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
    #[expect(unsafe_code, reason = "the capsule's name promises a stream, which is moved out and marked as released")]
    Ok(unsafe { FFI_ArrowArrayStream::from_raw(at.as_ptr()) })
}

fn import_batch(schema: &Bound<'_, PyCapsule>, data: &Bound<'_, PyCapsule>) -> PyResult<RecordBatch> {
    let schema_at = schema.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
    let data_at = data.pointer_checked(Some(ARRAY))?.cast::<FFI_ArrowArray>();
    #[expect(
        unsafe_code,
        reason = "the capsules' names promise a schema and an array of it, which is moved out and marked as released"
    )]
    let data = unsafe { from_ffi(FFI_ArrowArray::from_raw(data_at.as_ptr()), schema_at.as_ref()) };
    let data = data.map_err(value_error)?;
    if !matches!(data.data_type(), DataType::Struct(_)) {
        return Err(PyValueError::new_err(format!("expected a table, got one column of type {}", data.data_type())));
    }
    let columns = StructArray::from(data);
    if columns.null_count() > 0 {
        return Err(PyValueError::new_err("expected a table, got a struct array with missing rows"));
    }
    Ok(RecordBatch::from(columns))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn value_error(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}
