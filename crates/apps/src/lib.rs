//! Applications that run in a closed loop on a simulated device.
//!
//! An [`AppProgram`] consists of threads with steps: work on cores, transfers, file operations, SQLite transactions, waits for each other.
//! [`run()`] executes it on a [`HostSetup`] with a [`SimulatedBlockDevice`], and reports how the time that the user waited for was spent.

mod block_device;
mod engine;
mod files;
mod hosts;
mod learn;
mod network;
mod program;
mod random_draws;
mod result;
mod run;
mod sqlite;
mod storage;
mod thread_code;
mod timeline;
mod toml_files;

pub use block_device::{FileWrites, ReadWriteCounts, RequestCounts, RequestGroup, RoleBytes, SimulatedBlockDevice};
pub use hosts::{HostPartition, HostSetup, NetworkSettings, PartitionExtent as PartitionPlace, PeriodicWork};
pub use learn::{
    CallTimes, LearnOptions, LearnedProgram, RecordedArgument, RecordedSystemCall, UserThreadTime, learn, strace_calls,
};
pub use program::{
    AccessPattern, AppProgram, FileAccess, FilePickOrder, FileSelection, FileSet, ProgramStep, SqliteDatabase, SqliteJournalMode,
    SqliteSyncCall, SqliteSynchronous, StepProcedure, ThreadProgram, preset_names, preset_text,
};
pub use random_draws::{Amount, ValueDistribution};
pub use result::{
    AppResult, RequestPurpose, StateTimes, StatesOverTime, ThreadResult, ThreadStateLane, UserWaitPart, WhatIfTarget,
};
pub use run::{ProgramRunOptions, prepare_live, run, run_live, run_simulated};
pub use timeline::ThreadState;
