//! Published tables that come with emmclab and that Python reads.

use pyo3::prelude::*;
use pyo3::types::PyDict;

macro_rules! texts {
    ($folder:literal, $ending:literal, $($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../presets/", $folder, "/", $name, $ending)))),*]
    };
}

const PUBLISHED: &[(&str, &str)] = texts!(
    "published",
    ".csv",
    "advil12_table1_devices",
    "advil12_table2_bandwidth",
    "fast12_axes",
    "fast12_sdcards",
    "hunter23_command_times",
    "iiswc15_table1_workloads",
    "iiswc15_table3_size",
    "iiswc15_table4_timing",
    "iiswc15_table5_devices",
    "samsung13_emmc50",
    "unisoc22_fua_bandwidth",
);

fn to_python<'py>(py: Python<'py>, texts: &[(&str, &str)]) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    for (name, text) in texts {
        out.set_item(name, text)?;
    }
    Ok(out)
}

/// Published tables, as CSV by name.
#[pyfunction]
pub(crate) fn published_csv(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    to_python(py, PUBLISHED)
}
