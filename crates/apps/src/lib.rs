//! Applications in closed loop over a simulated device.
//!
//! A [`Program`] is threads with steps: work on cores, transfers, file operations, SQLite transactions, waits for each other. [`run`]
//! lets it run on a [`HostSetup`] above a [`BlockDevice`] and says where the time went that its user waited for.

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
