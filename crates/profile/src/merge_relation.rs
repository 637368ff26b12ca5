//! The relation of two profiles that are merged.

/// The relation of a profile to the one that it is merged into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeRelation {
    /// The next piece of the same recording: runs and gaps continue across the boundary.
    Consecutive,
    /// Another recording (of a fleet) with its own device, clock and addresses; durations are added.
    Separate,
}
