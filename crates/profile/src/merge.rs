//! How two profiles belong together.

/// The relation of a profile to the one that it is merged into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// The next piece of the same recording: what stands on both sides of the boundary is brought together.
    Consecutive,
    /// Another recording (of a fleet): its own device, its own clock, its own addresses; durations add up.
    Separate,
}
