//! Readers of traces from files, and from the memory of other libraries through the Arrow C interfaces.

use std::io::Read;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, PoisonError};

use emmclab_trace::formats::{CSV_COLUMNS, FORMATS, TraceFormat};
use emmclab_trace::{
    DecompressedInput, Error, Ledger, MendClock, Nanos, ReadOptions, ReissueWindow, RequestFilter, TraceColumn, TraceCombiner,
    TraceHeader, TraceInput, TraceReader, TraceSlice,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::batch::{ArrowRecordSource, PyBatch};
use crate::errors::run;

/// The formats of other crates than `emmclab_trace`.
static FURTHER_FORMATS: LazyLock<Vec<&TraceFormat>> =
    LazyLock::new(|| emmclab_record::FORMATS.iter().copied().chain([&emmclab_synth::fio::FORMAT]).collect());

/// A file that is decompressed while it is read, within the limits for traces.
#[pyclass(name = "Unpacked", module = "emmclab._core")]
pub(crate) struct PyUnpacked {
    path: PathBuf,
    /// Content of the decompressed file. The mutex only makes the class shareable, and is never contended.
    content: Mutex<Box<dyn Read + Send>>,
}

#[pymethods]
impl PyUnpacked {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let input = run(py, || DecompressedInput::open(&path))?;
        Ok(Self { path, content: Mutex::new(Box::new(input.into_reader())) })
    }

    /// Returns up to `size` bytes, and fewer only at the end.
    fn read<'py>(&mut self, py: Python<'py>, size: u64) -> PyResult<Bound<'py, PyBytes>> {
        let (path, content) = (&self.path, self.content.get_mut().unwrap_or_else(PoisonError::into_inner));
        let mut bytes = Vec::new();
        run(py, || content.take(size).read_to_end(&mut bytes).map_err(|error| Error::io(path, error)))?;
        Ok(PyBytes::new(py, &bytes))
    }
}

/// A trace of any format, or several traces on one clock, as a stream of batches in order of arrival.
#[pyclass(name = "Reader", module = "emmclab._core")]
pub(crate) struct PyReader {
    inputs: Vec<TraceInput>,
    passes: u32,
    /// The combined trace. The mutex only makes the class shareable, and is never contended.
    stream: Mutex<TraceCombiner>,
}

/// The first arrival of the whole trace, and the range of row groups to read of a Parquet file (end excluded).
type PySlice = (i64, Option<(usize, usize)>);

impl PyReader {
    fn open(py: Python<'_>, inputs: Vec<TraceInput>, passes: u32) -> PyResult<Self> {
        let stream = run(py, || TraceCombiner::open(inputs.clone(), passes))?;
        Ok(Self { inputs, passes, stream: Mutex::new(stream) })
    }

    /// Returns the traces of these readers as inputs.
    pub(crate) fn inputs(readers: &[PyRef<'_, PyReader>]) -> Vec<TraceInput> {
        readers.iter().flat_map(|reader| reader.inputs.clone()).collect()
    }

    /// Returns the traces of these readers as inputs. A trace of several devices is then an error.
    pub(crate) fn inputs_of_one_device(readers: &[PyRef<'_, PyReader>]) -> Vec<TraceInput> {
        let mut inputs = Self::inputs(readers);
        for input in &mut inputs {
            input.options.one_device = true;
        }
        inputs
    }

    pub(crate) fn inner(&mut self) -> &mut TraceCombiner {
        self.stream.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyReader {
    #[new]
    #[pyo3(signature = (path, *, format=None, lenient=false, columns=None, time_unit=None, size_unit=None, reorder_window=None, mend_clock=None, reissue_window=None, drop_reissued=false, only=None, slice=None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments in Python")]
    fn new(
        py: Python<'_>, path: PathBuf, format: Option<String>, lenient: bool, columns: Option<String>, time_unit: Option<String>,
        size_unit: Option<String>, reorder_window: Option<usize>, mend_clock: Option<String>, reissue_window: Option<String>,
        drop_reissued: bool, only: Option<Vec<String>>, slice: Option<PySlice>,
    ) -> PyResult<Self> {
        let mend_clock = run(py, || mend_clock.as_deref().map(MendClock::parse).transpose())?;
        let reissue_window = run(py, || reissue_window.as_deref().map(ReissueWindow::parse).transpose())?;
        let only = run(py, || only.as_deref().map(RequestFilter::parse).transpose())?;
        let options = ReadOptions {
            format,
            lenient,
            columns,
            time_unit,
            size_unit,
            reorder_window,
            mend_clock,
            reissue_window,
            drop_reissued,
            only,
            one_device: false,
            slice: slice
                .map(|(origin_ns, groups)| TraceSlice { origin: Nanos(origin_ns), groups: groups.map(|(from, to)| from..to) }),
            further: &FURTHER_FORMATS,
        };
        Self::open(py, vec![TraceInput { path, options, ..TraceInput::default() }], 1)
    }

    /// Creates a reader that interleaves the traces of others as if all had started together, or with the given offsets in nanoseconds.
    #[staticmethod]
    #[pyo3(signature = (readers, offsets_ns=None))]
    fn combine(py: Python<'_>, readers: Vec<PyRef<'_, PyReader>>, offsets_ns: Option<Vec<i64>>) -> PyResult<Self> {
        let offsets = offsets_ns.unwrap_or_default().into_iter().map(Nanos).chain(std::iter::repeat(Nanos::ZERO));
        let moved = readers.iter().zip(offsets).flat_map(|(reader, offset)| {
            reader.inputs.iter().cloned().map(move |mut input| {
                input.start_offset += offset;
                input
            })
        });
        Self::open(py, moved.collect(), 1)
    }

    /// Creates a reader that reads the same traces several times, one pass after another.
    fn repeat(&self, py: Python<'_>, passes: u32) -> PyResult<Self> {
        Self::open(py, self.inputs.clone(), self.passes.saturating_mul(passes))
    }

    /// Makes a trace of several devices an error. It must be called before reading.
    fn refuse_several_devices(&mut self, py: Python<'_>) -> PyResult<()> {
        self.inputs.iter_mut().for_each(|input| input.options.one_device = true);
        run(py, || self.inner().require_one_device())
    }

    /// Returns the devices with their number of requests so far, in descending order. Of several passes, only the last is counted.
    fn devices(&mut self) -> Vec<(String, u64)> {
        self.inner().devices()
    }

    /// The next batch, or None at the end.
    fn next(&mut self, py: Python<'_>) -> PyResult<Option<PyBatch>> {
        py.check_signals()?;
        Ok(run(py, || self.inner().next_batch())?.map(PyBatch))
    }

    /// Records seen, kept, skipped and changed so far.
    fn ledger<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        ledger_to_python(py, &self.inner().ledger())
    }

    /// Returns the trace's header, which describes its origin.
    fn header<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        header_to_python(py, &self.inner().header())
    }

    /// Returns the path of each file. For blktrace, these are the files of all processors.
    fn files(&self) -> Vec<PathBuf> {
        self.inputs.iter().flat_map(|input| emmclab_trace::formats::files(&input.path)).collect()
    }

    /// For each trace, the format of its file and how it was recognised: `content`, `--format` or `--columns`.
    fn recognised(&mut self) -> Vec<(&'static str, &'static str)> {
        self.inner().recognised().map(|recognised| (recognised.format, recognised.by)).collect()
    }

    /// Number of requests of the whole trace, if the reader reads a single file that is marked as a part of a trace.
    fn whole(&mut self) -> Option<u64> {
        self.inner().requests_of_whole_trace()
    }

    /// Bytes of the file read so far, and the total if known.
    fn progress(&mut self) -> (u64, Option<u64>) {
        let progress = self.inner().progress();
        (progress.done, progress.total)
    }
}

/// Converts the counts of a ledger to a Python dictionary, in the order of declaration.
pub(crate) fn ledger_to_python<'py>(py: Python<'py>, ledger: &Ledger) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    for (field, _, value) in ledger.entries() {
        out.set_item(field, value)?;
    }
    Ok(out)
}

/// Converts the fields of a trace header to a Python dictionary.
pub(crate) fn header_to_python<'py>(py: Python<'py>, header: &TraceHeader) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("source", &header.source)?;
    out.set_item("format", &header.format)?;
    out.set_item("recognised", &header.recognised)?;
    out.set_item("recorded", header.recorded.map(|recorded| recorded.to_string()))?;
    out.set_item("device", &header.device)?;
    out.set_item("clock", &header.clock)?;
    out.set_item("note", &header.note)?;
    out.set_item("clock_jumps", &header.clock_jumps)?;
    out.set_item("coarse_clock", &header.coarse_clock)?;
    out.set_item("reissue_window", &header.reissue_window)?;
    out.set_item("block_notes", &header.block_notes)?;
    out.set_item("activity", &header.activity)?;
    out.set_item("registers", &header.registers)?;
    Ok(out)
}

/// Descriptions of all trace formats, with `name`, `about`, `known_by`, `from`, `gives`, `unknown`, `reads` and `writes`.
#[pyfunction]
pub(crate) fn formats(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    FORMATS
        .iter()
        .chain(FURTHER_FORMATS.iter())
        .map(|format| {
            let out = PyDict::new(py);
            out.set_item("name", format.name)?;
            out.set_item("about", format.about)?;
            out.set_item("known_by", format.known_by)?;
            out.set_item("from", format.from)?;
            let gives: Vec<_> = format.gives.iter().map(|column| column.name()).collect();
            out.set_item("gives", gives)?;
            out.set_item("unknown", format.unknown)?;
            out.set_item("reads", true)?;
            out.set_item("writes", format.writes.is_some())?;
            Ok(out)
        })
        .collect()
}

/// Checks all bytes of a Parquet file that emmclab wrote.
#[pyfunction]
pub(crate) fn check_parquet(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    run(py, || emmclab_trace::check_parquet(&path))
}

/// Number of requests in each row group of a Parquet file.
#[pyfunction]
pub(crate) fn row_groups(py: Python<'_>, path: PathBuf) -> PyResult<Vec<u64>> {
    run(py, || emmclab_trace::row_groups(&path))
}

/// Returns the permitted names of columns of a CSV file, as dictionaries with name, units, whether the column is needed, and description.
#[pyfunction]
pub(crate) fn csv_columns(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    CSV_COLUMNS
        .iter()
        .map(|column| {
            let out = PyDict::new(py);
            out.set_item("name", column.name)?;
            out.set_item("units", column.units)?;
            out.set_item("needed", column.needed)?;
            out.set_item("about", column.about)?;
            Ok(out)
        })
        .collect()
}

/// Labels of the counts of a trace's ledger, by field name.
#[pyfunction]
pub(crate) fn ledger_labels(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let out = PyDict::new(py);
    for (field, label, _) in Ledger::default().entries() {
        out.set_item(field, label)?;
    }
    Ok(out)
}

/// Kinds of files that are no traces and are refused by their name, as (description, hint).
#[pyfunction]
pub(crate) fn file_kinds() -> Vec<(&'static str, &'static str)> {
    emmclab_trace::formats::file_kinds().collect()
}

/// Returns the columns of a trace as dictionaries: name, type, unit, whether the column is optional, and description.
#[pyfunction]
pub(crate) fn trace_columns(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    TraceColumn::ALL
        .into_iter()
        .map(|column| {
            let out = PyDict::new(py);
            out.set_item("name", column.name())?;
            out.set_item("type", column.data_type().to_string())?;
            out.set_item("unit", column.unit())?;
            out.set_item("optional", column.optional())?;
            out.set_item("about", column.about())?;
            Ok(out)
        })
        .collect()
}

/// A table of requests in memory, as a stream of batches.
#[pyclass(name = "Frame", module = "emmclab._core")]
pub(crate) struct PyFrame(Mutex<TraceReader>);

impl PyFrame {
    /// Returns the reader of the table. The mutex only makes the class shareable, and is never contended.
    fn inner(&mut self) -> &mut TraceReader {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyFrame {
    /// Creates a stream. `table` has `__arrow_c_stream__` or `__arrow_c_array__`; `name` is used in the header and in errors.
    #[new]
    fn new(py: Python<'_>, table: ArrowRecordSource, name: String) -> PyResult<Self> {
        run(py, || TraceReader::of_arrow(table.0, &name)).map(|reader| Self(Mutex::new(reader)))
    }

    /// Returns the trace's header, which describes its origin.
    fn header<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        header_to_python(py, &self.inner().header())
    }

    /// The next batch, or None at the end.
    fn next(&mut self, py: Python<'_>) -> PyResult<Option<PyBatch>> {
        py.check_signals()?;
        Ok(run(py, || self.inner().next_batch())?.map(PyBatch))
    }

    /// Returns the progress of reading: always 0 and `None`, because there is no file.
    fn progress(&self) -> (u64, Option<u64>) {
        (0, None)
    }

    /// Number of requests seen and kept so far.
    fn ledger<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        ledger_to_python(py, &self.inner().ledger())
    }
}
