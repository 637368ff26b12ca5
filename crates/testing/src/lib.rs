//! The path of the real traces, which are no part of the project, for the tests of all crates.

use std::path::{Path, PathBuf};

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
