//! Shared by the tests: images created by mke2fs, the tools that check them, and a small writer of journals.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod journal;
pub mod tree;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// Runs a program until it ends, with any exit status.
pub fn try_run(program: &str, arguments: &[&str]) -> Output {
    let path = emmclab_testing::find_tool(program).unwrap_or_else(|| panic!("{program} is not installed"));
    Command::new(path).args(arguments).env("LC_ALL", "C").output().unwrap()
}

/// Runs a program that must succeed. Returns its output.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = try_run(program, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {}: {errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Checks with these options of e2fsck that an image needs no further repair.
pub fn repair(options: &[&str], image: &Path) {
    let output = try_run("e2fsck", &[options, &[text(image)]].concat());
    assert!(matches!(output.status.code(), Some(0..=3)), "{}", String::from_utf8_lossy(&output.stdout));
}

/// A small random number generator with a fixed sequence.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Returns a path as text.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Images in a temporary folder.
pub struct Images {
    folder: TempDir,
}

impl Images {
    pub fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    /// Images for a test that needs e2fsprogs, these tools and, if `root`, root rights; `None` skips the test.
    pub fn if_possible(root: bool, tools: &[&str]) -> Option<Self> {
        let e2fsprogs = emmclab_testing::has_tools(&["mkfs.ext4", "e2fsck", "debugfs", "tune2fs"]);
        let possible = e2fsprogs && emmclab_testing::has_tools(tools) && (!root || emmclab_testing::has_root());
        possible.then(Self::new)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// An empty file of this number of bytes.
    pub fn blank(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.path(name);
        std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        path
    }

    /// An image that mke2fs creates, which is the same each time.
    pub fn make(&self, name: &str, bytes: u64, options: &[&str]) -> PathBuf {
        let path = self.blank(name, bytes);
        let fixed = ["-q", "-F", "-U", "01234567-89ab-cdef-0123-456789abcdef"];
        let seed = ["-E", "hash_seed=01234567-89ab-cdef-0123-456789abcdef,lazy_itable_init=0,lazy_journal_init=0"];
        run("mkfs.ext4", &[&fixed, &seed[..], options, &[text(&path)]].concat());
        path
    }
}
