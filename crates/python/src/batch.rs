//! A run of requests, shared with Arrow.

use emmclab_trace::{Batch, BlockNote, RequestFlags, TraceColumn};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

use crate::capsules::{export_batch, export_schema};
use crate::errors::run;

/// A run of requests in order of arrival; any Arrow library can use it without a copy.
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
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let record = run(py, || self.0.to_record_batch(self.0.has_notes()))?;
        // The interface lets the consumer convert to the types that it prefers.
        drop(requested_schema);
        export_batch(py, record)
    }
    /// The first `limit` requests as dictionaries in the columns of the schema, for people to look at; flags are
    /// names. Whole traces go through Arrow.
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
