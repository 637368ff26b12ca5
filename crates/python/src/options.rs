//! Converts options that Python passes as a dictionary, and converts results of the core to Python objects.

use emmclab_trace::{Error, ErrorClass};
use pyo3::prelude::*;
use pythonize::{depythonize, pythonize};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::errors::{run, to_python};

/// Options of the core by field name. A wrong name or value is a configuration error.
pub(crate) struct OptionsFromPython<T>(pub(crate) T);

impl<'a, 'py, T: DeserializeOwned> FromPyObject<'a, 'py> for OptionsFromPython<T> {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        depythonize(&value)
            .map(Self)
            .map_err(|error| to_python(value.py(), &Error::new(ErrorClass::Config, format!("an option is invalid: {error}"))))
    }
}

/// The word that is most similar to `word`; `None` if none is similar enough.
#[pyfunction]
pub(crate) fn closest(word: &str, words: Vec<String>) -> Option<String> {
    emmclab_trace::closest(word, words.iter().map(String::as_str)).map(str::to_owned)
}

/// Runs core code like [`run`], and converts its result into dictionaries, lists, numbers and texts of Python.
pub(crate) fn run_to_python<T: Serialize + Send>(
    py: Python<'_>, work: impl FnOnce() -> Result<T, Error> + Send,
) -> PyResult<Bound<'_, PyAny>> {
    Ok(pythonize(py, &run(py, work)?)?)
}
