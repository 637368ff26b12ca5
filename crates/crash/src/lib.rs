//! Power-cut testing: logs a run, generates the disk states that a power cut may leave, and finds the level of the storage stack that
//! breaks a promise.
//!
//! A live device writes a [log](mod@log) of all commands with their data, of the contents of its flash cells over time, and of the data
//! that the workload acknowledged as safe. A [`CrashLogIndex`] has the events of such a log in order of time. An [`Explorer`] steps through
//! it. For each moment at which power may be cut, it generates the state that the simulated device would have left, and a selection of the
//! states that the durability contract permits ([`emmclab_device::contract`]). A [`CrashDiskView`] reads the disk in such a state without a
//! copy.

mod annotate;
mod disk_contents;
mod explorer;
mod journal_rules;
mod legal_states;
pub mod log;
mod log_index;
mod recovery;
mod state_choice;

pub use annotate::annotate;
pub use disk_contents::{CrashDiskView, DevicePromise, PromiseViolation};
pub use explorer::{CrashState, CutLines, ExplorationCoverage, ExploreOptions, Explorer, OmittedWrite};
pub use journal_rules::{RuleViolation, journal_rules};
pub use legal_states::TearMode;
pub use log_index::{CrashLogIndex, LoggedCommand, RunEvent, RunMoment, SectorSource, Spool};
pub use recovery::{HostView, PromiseLevel, RecoveredState, RecoveryReadCache, StateJudge, StateViolation};
pub use state_choice::{ChoiceMethod, ChoiceMethods};
