//! Layers between the workload and the disks, in simulated time.
//!
//! Plans run stage by stage: the commands of a stage are sent together, and an event at the end of the last one starts the next stage.
//! Events are handled in order of time, so disks see arrivals in order. On a live stack, data is passed with the commands. In a replay
//! there is no data, and overlapping requests are not serialised, since only their times count.
//!
//! A completion may become known after its time: a device that reports in order of arrival reports a read that passed a write only with
//! that write. The request gets its true completion time, but later stages of its plan start only when the completion is known.
//!
//! Layers are above the host's queue, as device mapper is in Linux: their commands are merged and packed. Flags that a layer does not
//! accept become flushes at its level, as in Linux above a disk without FUA: a preflush before the request, FUA after it.

mod executor;
mod level;
mod requests;
mod run_plans;
mod task;

pub(crate) use executor::{SimulatedStack, WorkloadCompletion, build_layers};
