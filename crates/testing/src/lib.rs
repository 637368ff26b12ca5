//! For the tests of all crates: the path of the real traces, which are no part of the project, the tools of the machine, a small
//! device, and a seeded die.

use std::path::{Path, PathBuf};

/// Settings of a device of some 10 MB, small enough that a test fills it and has it collect: two channels, pages of 8 KB.
pub const SMALL_DEVICE: &str = "gc.policy = \"greedy\"
[capacity]
over_provisioning_pct = 60
[geometry]
channels = 2
[[geometry.block_groups]]
page_kb = 8
blocks = 40
pages_per_block = 16
read_us = 100
program_us = 1000
erase_us = 5000
";

/// A seeded die for tests that would rather roll than draw from a strategy: splitmix64, the same everywhere.
pub struct Die(u64);

impl Die {
    /// A die of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `sides`.
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % sides as u64) as usize
    }
}

/// A real trace in the folder that `EMMCLAB_TRACES` names, or else in `../shared/traces` beside the repository.
/// Without it `None`, for the test to be skipped with a word on stderr; a failure where `CI=true`.
pub fn real_trace(name: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let path = std::env::var_os("EMMCLAB_TRACES").map_or(beside, PathBuf::from).join(name);
    if path.exists() {
        return Some(path);
    }
    assert!(
        std::env::var_os("CI").is_none_or(|ci| ci != "true"),
        "{} is missing, and CI=true",
        path.display()
    );
    eprintln!("skipped: {} is missing (EMMCLAB_TRACES names the folder of real traces)", path.display());
    None
}

/// Whether a program can be found; those of the administrator count, too.
pub fn has_tool(name: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').chain(["/usr/sbin", "/sbin"]).any(|folder| Path::new(folder).join(name).exists())
}

/// Says why a test is skipped; a failure where `CI=true`.
pub fn skip(reason: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{reason}");
    eprintln!("skipped: {reason}");
}
