//! The Python binding of the Rust crates, which only converts values and delegates calls.

#![allow(
    clippy::needless_pass_by_value,
    clippy::unused_self,
    reason = "Python passes arguments by value, and its protocols determine which methods have a self"
)]

mod apps;
mod batch;
mod calibrate;
mod crash;
mod disk;
mod errors;
mod live;
mod options;
mod profile;
mod reader;
mod record;
mod registers;
mod schemas;
mod simulate;
mod synth;
mod victim_policy;
mod writer;

use pyo3::prelude::*;

/// The compiled core of emmclab.
#[pymodule]
mod _core {
    #[pymodule_export]
    use crate::apps::{
        PyHostSetup, PyProgram, app_presets, app_schema, app_states, app_text, host_presets, learn_app, prepare_app,
        read_strace_calls, run_app, run_app_live,
    };
    #[pymodule_export]
    use crate::batch::PyBatch;
    #[pymodule_export]
    use crate::calibrate::{calibrate_fio, calibrate_trace};
    #[pymodule_export]
    use crate::crash::{PyCrashRun, PyExplorer, crash_ways, read_ext4, read_ext4_tree};
    #[pymodule_export]
    use crate::disk::{PyDiskReplay, PyLayeredDisk};
    #[pymodule_export]
    use crate::errors::PyInterruption;
    #[pymodule_export]
    use crate::live::{PyExports, PyLive, delete_left};
    #[pymodule_export]
    use crate::options::closest;
    #[pymodule_export]
    use crate::profile::{PyJournalProfiler, PyProfiler, published_csv, published_tables};
    #[pymodule_export]
    use crate::reader::{
        PyFrame, PyReader, PyUnpacked, check_parquet, csv_columns, file_kinds, formats, ledger_labels, row_groups, trace_columns,
    };
    #[pymodule_export]
    use crate::record::PyRecorder;
    #[pymodule_export]
    use crate::registers::{are_registers, health_formats, is_register_file, read_health, read_registers};
    #[pymodule_export]
    use crate::schemas::schemas;
    #[pymodule_export]
    use crate::simulate::{
        PyDeviceConfig, PyDirectIo, PyFioRun, PyPrecondition, PySimulation, bandwidths, check_traces, device_presets,
        device_schema, fitted_figures, layer_kinds, precondition, preconditioned_bytes, replay_defaults,
        sources_without_single_reads,
    };
    #[pymodule_export]
    use crate::synth::{PyFitter, PyGeneratedTrace, PyWorkloadModel, benchmark_names, workload_presets};
    #[pymodule_export]
    use crate::victim_policy::PyVictimView;
    #[pymodule_export]
    use crate::writer::{PyWriter, sweep, write_whole};

    use super::{Bound, PyModule, PyModuleMethods, PyResult};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        // Prefix of the names of temporary files and folders.
        module.add("ASIDE_PREFIX", emmclab_trace::ASIDE_PREFIX)?;
        // Names of the bits of the column `flags`, from the lowest.
        module.add("FLAG_NAMES", emmclab_trace::RequestFlags::NAMES.to_vec())
    }
}
