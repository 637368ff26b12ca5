//! Shared by the tests of this crate.

use std::path::PathBuf;

/// A real trace, or `None` with a printed reason where traces are not installed. Under `CI=true` they must be.
pub fn real_trace(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("EMMCLAB_TRACES").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces"),
        PathBuf::from,
    );
    let path = folder.join(name);
    if path.exists() {
        return Some(path);
    }
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "{} is missing; set EMMCLAB_TRACES to the folder of the real traces",
        path.display()
    );
    eprintln!("skipped: {} is missing (EMMCLAB_TRACES names the folder)", path.display());
    None
}
