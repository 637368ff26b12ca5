//! Power cuts: a log of a run, the states that a cut may leave, and the level whose promise a state violates.
//!
//! A live device writes a [log](mod@log) of every command with its data, of the contents of its cells over time, and of what was
//! reported to the workload as safe. A [`CrashLogIndex`] is such a log in the order of time. An [`Explorer`] moves along it. For each moment
//! at which power may be cut, it produces the state that this device would have left, and a selection of the states that any device
//! may leave that keeps the contract ([`emmclab_device::contract`]). A [`CrashDiskView`] reads such a disk without a copy.

mod annotate;
mod cut_plan;
mod disk_contents;
mod disk_view;
mod durable_cells;
mod explorer;
mod host_view;
mod journal_rules;
mod legal_states;
pub mod log;
mod log_index;
mod ordered_data;
mod ordering_rules;
mod recovery_reads;
mod spool;
mod state_choice;
mod state_judge;
mod tear_mode;
mod zoned;

pub use annotate::annotate;
pub use cut_plan::CutLines;
pub use disk_view::CrashDiskView;
pub use durable_cells::{DevicePromise, PromiseViolation};
pub use explorer::{CrashState, ExplorationCoverage, ExploreOptions, Explorer, OmittedWrite};
pub use host_view::HostView;
pub use journal_rules::{RuleViolation, journal_rules};
pub use log_index::{CrashLogIndex, LoggedCommand, RunEvent, RunMoment};
pub use recovery_reads::RecoveryReadCache;
pub use spool::{SectorSource, Spool};
pub use state_choice::{ChoiceMethod, ChoiceMethods};
pub use state_judge::{PromiseLevel, RecoveredState, StateJudge, StateViolation};
pub use tear_mode::TearMode;
