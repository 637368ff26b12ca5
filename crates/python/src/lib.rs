//! The Python binding: converts and delegates; nothing is decided here.

mod batch;
mod errors;
mod reader;
mod writer;

use pyo3::prelude::*;

/// The compiled core of emmclab.
#[pymodule]
mod _core {
    #[pymodule_export]
    use crate::batch::PyBatch;
    #[pymodule_export]
    use crate::reader::{PyReader, formats, ledger_labels};
    #[pymodule_export]
    use crate::writer::PyWriter;

    use super::{Bound, PyModule, PyModuleMethods, PyResult};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
