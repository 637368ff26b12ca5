//! A run of requests, shared with Arrow.

use std::sync::Arc;

use arrow::array::StructArray;
use arrow::datatypes::{DataType, Field};
use emmclab_trace::Batch;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use pyo3_arrow::ffi::{to_array_pycapsules, to_schema_pycapsule};

use crate::errors::run;

/// A run of requests in order of arrival; any Arrow library takes it without a copy.
#[pyclass(name = "Batch", module = "emmclab._core", frozen)]
pub(crate) struct PyBatch(pub(crate) Batch);

#[pymethods]
impl PyBatch {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        Ok(to_schema_pycapsule(py, Batch::schema().as_ref())?)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let record = run(py, || self.0.to_record_batch())?;
        let field = Field::new("", DataType::Struct(Batch::schema().fields().clone()), false);
        Ok(to_array_pycapsules(py, Arc::new(field), &StructArray::from(record), requested_schema)?)
    }
}
