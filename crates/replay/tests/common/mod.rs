//! Shared by the tests of this crate.

pub use emmclab_testing::real_trace;
