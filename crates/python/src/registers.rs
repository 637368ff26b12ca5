//! Reports on the registers of a device.

use std::path::PathBuf;

use emmclab_registers::{HEALTH_FORMATS, RegisterSource, is_card_file, is_ext_csd, is_ufs, is_ufs_file};
use pyo3::prelude::*;

use crate::options::run_to_python;

/// Returns the report on the registers in these files: a single file, or the files of a folder tree with their paths.
#[pyfunction]
pub(crate) fn read_registers(py: Python<'_>, files: Vec<(PathBuf, Vec<u8>)>) -> PyResult<Bound<'_, PyAny>> {
    run_to_python(py, || {
        let sources: Vec<_> = files.iter().map(|(path, bytes)| RegisterSource { path, bytes }).collect();
        emmclab_registers::read(&sources)
    })
}

/// Returns what a vendor's health report states; `None` for a format that is recognised by its signature.
#[pyfunction]
pub(crate) fn read_health(py: Python<'_>, path: PathBuf, bytes: Vec<u8>, format: Option<String>) -> PyResult<Bound<'_, PyAny>> {
    run_to_python(py, || emmclab_registers::read_health(&RegisterSource { path: &path, bytes: &bytes }, format.as_deref()))
}

/// Returns the formats of health reports, and the commands that read them.
#[pyfunction]
pub(crate) fn health_formats(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    run_to_python(py, || Ok(HEALTH_FORMATS))
}

/// Whether the first bytes of a file belong to registers of a device.
#[pyfunction]
pub(crate) fn are_registers(head: &[u8]) -> bool {
    is_ext_csd(head) || is_ufs(head)
}

/// Whether a path is that of a file with registers of a device.
#[pyfunction]
pub(crate) fn is_register_file(path: PathBuf) -> bool {
    path.file_name().is_some_and(|name| name == "ext_csd") || is_ufs_file(&path) || is_card_file(&path)
}
