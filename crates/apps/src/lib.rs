//! Applications that run in a closed loop on a simulated device.
//!
//! A [`Program`] consists of threads with steps: work on cores, transfers, file operations, SQLite transactions, waits for each other.
//! [`run`] executes it on a [`HostSetup`] with a [`BlockDevice`], and reports how the time that the user waited for was spent.

mod block_device;
mod code;
mod draw;
mod engine;
mod files;
mod hosts;
mod learn;
mod network;
mod program;
mod replayed;
mod requests;
mod result;
mod run;
mod sqlite;
mod storage;
mod text;
mod timeline;
mod tracks;
mod what_if;

pub use block_device::BlockDevice;
pub use draw::{Amount, Distribution};
pub use hosts::{HostSetup, Network, Partition, Periodic, Place as PartitionPlace};
pub use learn::{Known, LearnOptions, Learned, UserTime, learn};
pub use program::{
    Access, Database, FileSet, JournalMode, Pick, Picked, Place, Procedure, Program, Step, SyncCall,
    Synchronous, Thread, preset_names, preset_text,
};
pub use requests::{Group, ReadsWrites, RequestCounts, Written};
pub use result::{AppResult, Lane, OverTime, Spent, StateTimes, ThreadResult};
pub use run::{RunOptions, prepare_live, run, run_live, run_simulated};
pub use timeline::State;
pub use what_if::{Operation, WhatIf};
