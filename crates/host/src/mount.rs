//! A partition with a file system on it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The modelled file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FilesystemKind {
    /// ext4 in ordered mode, with its journal (JBD2).
    Ext4,
    /// FAT32: tables and folders written in place, no journal.
    Fat32,
    /// A log of segments with node blocks, as F2FS writes it.
    Lfs,
}

/// How a file system was made and mounted. An option that is not given has the default of the tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MountOptions {
    /// Whether no flush is sent (`barrier=0`, `nobarrier`).
    pub no_barrier: bool,
    /// Whether syncs of files and folders return at once; write-back sends the data to the device later.
    pub no_sync: bool,
    /// Whether freed space is discarded at once.
    pub discard: bool,
    /// Size of the journal in MB; by default as mke2fs chooses it. Only for ext4.
    pub journal_mb: Option<u32>,
    /// Size of a cluster in KB; by default as mkfs.fat chooses it. Only for FAT32.
    pub cluster_kb: Option<u32>,
    /// Size of a segment in KB, by default 2048. Only for `lfs`.
    pub segment_kb: Option<u32>,
}

/// A partition with a file system on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// The file system.
    pub filesystem: FilesystemKind,
    /// First sector on the device; a multiple of 8.
    pub first_sector: u64,
    /// Length in sectors.
    pub sectors: u64,
    /// Options.
    #[serde(default)]
    pub options: MountOptions,
}

/// A run of 4 KB pages of a file, and its location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// First page of the file.
    pub page: u64,
    /// First sector on the device.
    pub sector: u64,
    /// Number of pages.
    pub pages: u64,
}
