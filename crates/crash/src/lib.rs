//! Power cuts: a log of a run, the states that a cut may leave, and the level whose promise a state violates.
//!
//! A live device writes a [log](mod@log) of every command with its data, of the contents of its cells over time, and of what was
//! reported to the workload as safe. A [`Run`] is such a log in the order of time. An [`Explorer`] moves along it. For each moment
//! at which power may be cut, it produces the state that this device would have left, and a selection of the states that any device
//! may leave that keeps the contract ([`emmclab_device::contract`]). A [`View`] reads such a disk without a copy.

mod annotate;
mod choice;
mod closure;
mod contents;
mod cuts;
mod durable;
mod explorer;
mod judge;
mod layered;
mod legal;
pub mod log;
mod ordered;
mod reads;
mod rules;
mod run;
mod spool;
mod tear;
mod view;
mod zoned;

pub use annotate::annotate;
pub use choice::{Way, Ways};
pub use cuts::Lines;
pub use durable::{Broken, Promise};
pub use explorer::{Covered, ExploreOptions, Explorer, Omitted, State};
pub use judge::{Judge, Level, Problem, Recovered};
pub use layered::HostView;
pub use reads::KnownReads;
pub use rules::{RuleBreak, journal_rules};
pub use run::{Logged, Moment, Run, What};
pub use spool::{Source, Spool};
pub use tear::Tear;
pub use view::View;
