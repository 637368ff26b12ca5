//! Layers between the workload and the disks, in simulated time.
//!
//! Plans run stage by stage: the commands of a stage go out together, and an event at the end of the last one starts the
//! next stage. Events come in order of time, so disks see arrivals in order. On a live stack data goes with the commands; in a
//! replay there is none, and requests that overlap are not kept apart, since only their times count.
//!
//! A completion may become known after its time: a device that reports in order of arrival reports a read that
//! passed a write only with that write. The request has its true completion; later stages of its plan start when the
//! completion is known.
//!
//! Layers stand above the host's queue, as device mapper does in Linux: what they send is merged and packed. Flags that a layer
//! does not accept become flushes at its level, as Linux does above a disk without FUA: a preflush before the request, FUA
//! after it.

mod ask;
mod executor;
mod level;
mod run;
mod task;

pub(crate) use executor::{Done, Layered, stacked};
