//! The mapping from errors of the core to the exceptions of `emmclab.errors`.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use emmclab_trace::interrupt::interruptible;
use emmclab_trace::{Error, ErrorClass};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The class in `emmclab.errors` for an error. Kinds that are added later map to the common base class.
fn class_name(kind: ErrorClass) -> &'static str {
    match kind {
        ErrorClass::Io => "InputError",
        ErrorClass::Empty
        | ErrorClass::Order
        | ErrorClass::Syntax
        | ErrorClass::Truncated
        | ErrorClass::UnknownFormat
        | ErrorClass::Value => "FormatError",
        ErrorClass::Unit => "UnitError",
        ErrorClass::Config => "ConfigError",
        ErrorClass::Unsupported => "UnsupportedError",
        _ => "EmmclabError",
    }
}

/// Returns the `errno` of an operating-system error. If the error has no number, because a library has wrapped it, the number is derived
/// from the kind of error.
fn errno(py: Python<'_>, cause: &std::io::Error) -> Option<i32> {
    let name = match cause.kind() {
        _ if cause.raw_os_error().is_some() => return cause.raw_os_error(),
        ErrorKind::StorageFull => "ENOSPC",
        ErrorKind::QuotaExceeded => "EDQUOT",
        ErrorKind::ReadOnlyFilesystem => "EROFS",
        ErrorKind::PermissionDenied => "EACCES",
        ErrorKind::NotFound => "ENOENT",
        _ => return None,
    };
    py.import("errno").and_then(|module| module.getattr(name)).and_then(|number| number.extract()).ok()
}

/// The Python exception for an error of the core.
pub(crate) fn to_python(py: Python<'_>, error: &Error) -> PyErr {
    let build = || -> PyResult<PyErr> {
        let details = PyDict::new(py);
        details.set_item("kind", format!("{:?}", error.kind()).to_lowercase())?;
        details.set_item("file", error.file().map(|file| file.display().to_string()))?;
        details.set_item("line", error.line())?;
        details.set_item("field", error.field())?;
        details.set_item("hint", error.hint_text())?;
        let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
        details.set_item("errno", cause.and_then(|cause| errno(py, cause)))?;
        let class = py.import("emmclab.errors")?.getattr(class_name(error.kind()))?;
        Ok(PyErr::from_value(class.call((error.to_string(),), Some(&details))?))
    };
    build().unwrap_or_else(|failure| failure)
}

thread_local! {
    /// The exception of a signal that arrived while core code ran on this thread.
    static SIGNAL: Cell<Option<PyErr>> = const { Cell::new(None) };
    /// The interruption flag that core code on this thread checks.
    static FOLLOWED: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// A flag that interrupts core code on several threads. When it is set, core code on each thread that checks it ends with
/// `KeyboardInterrupt`. Signals alone would reach only the main thread.
#[pyclass(name = "Interruption", module = "emmclab._core", frozen)]
pub(crate) struct PyInterruption(Arc<AtomicBool>);

#[pymethods]
impl PyInterruption {
    #[new]
    fn new() -> Self {
        Self(Arc::default())
    }

    /// Makes core code on the calling thread check this interruption flag.
    fn follow(&self) {
        FOLLOWED.set(Some(self.0.clone()));
    }

    /// Sets the interruption flag: core code ends on all threads that check the flag, now or later.
    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn interrupted() -> bool {
    FOLLOWED.with_borrow(|followed| followed.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)))
}

/// Whether Rust code on this thread must end. This is the case if a signal that raises an exception in Python (Ctrl-C) has arrived, or if
/// the interruption flag of the thread is set.
fn signalled() -> bool {
    if interrupted() {
        SIGNAL.set(Some(PyKeyboardInterrupt::new_err(())));
        return true;
    }
    let raised = Python::attach(|py| py.check_signals().err());
    let came = raised.is_some();
    if came {
        SIGNAL.set(raised);
    }
    came
}

/// Executes core code without the interpreter lock, and converts its error. A signal that raises an exception ends the code.
pub(crate) fn run<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T, Error> + Send) -> PyResult<T> {
    let result = py.detach(|| interruptible(signalled, work));
    match SIGNAL.take() {
        Some(raised) => Err(raised),
        None => result.map_err(|error| to_python(py, &error)),
    }
}
