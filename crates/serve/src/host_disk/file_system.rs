//! File systems that can be made and mounted, and the Debian packages of their tools.

use std::ffi::OsString;
use std::path::Path;

use emmclab_base::{Error, ErrorClass, Result};

use crate::host_programs;

/// A file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinuxFileSystem {
    /// ext4.
    Ext4,
    /// XFS; at least 300 MB.
    Xfs,
    /// Btrfs; at least 109 MiB.
    Btrfs,
    /// F2FS; mounting it needs support in the kernel.
    F2fs,
    /// FAT; mounting it needs support in the kernel.
    Vfat,
}

impl LinuxFileSystem {
    /// All file systems.
    pub const ALL: [Self; 5] = [Self::Ext4, Self::Xfs, Self::Btrfs, Self::F2fs, Self::Vfat];

    /// The name, as in `mount -t`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::F2fs => "f2fs",
            Self::Vfat => "vfat",
        }
    }

    /// The file system with this name.
    ///
    /// # Errors
    /// If there is no file system of this name; the error lists the names.
    pub fn named(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::new(ErrorClass::Config, format!("no file system is named `{name}`"))
                .hint(format!("choose one of: {names}"))
        })
    }

    const fn package(self) -> &'static str {
        match self {
            Self::Ext4 => "e2fsprogs",
            Self::Xfs => "xfsprogs",
            Self::Btrfs => "btrfs-progs",
            Self::F2fs => "f2fs-tools",
            Self::Vfat => "dosfstools",
        }
    }

    /// Arguments that keep the tool quiet.
    const fn quiet(self) -> &'static [&'static str] {
        match self {
            Self::Vfat => &[],
            _ => &["-q"],
        }
    }

    /// Arguments that let the tool overwrite existing data and use a whole disk.
    const fn overwrite(self) -> &'static [&'static str] {
        match self {
            Self::Ext4 => &["-F"],
            Self::Xfs | Self::Btrfs | Self::F2fs => &["-f"],
            Self::Vfat => &["-I"],
        }
    }
}

/// A file system to make.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// The file system.
    pub file_system: LinuxFileSystem,
    /// More arguments of its `mkfs` tool.
    pub options: Vec<OsString>,
    /// Whether an existing file system or partition table may be overwritten.
    pub overwrite: bool,
    /// The partition, counted from 1; the whole device by default.
    pub partition: Option<u32>,
}

impl MkfsOptions {
    /// A file system with the tool's defaults, on the whole device; existing data is not overwritten.
    pub const fn new(file_system: LinuxFileSystem) -> Self {
        Self { file_system, options: Vec::new(), overwrite: false, partition: None }
    }

    /// Makes the file system on a block device.
    pub(super) fn make(&self, device: &Path) -> Result<()> {
        let kind = self.file_system;
        let mut command = host_programs::tool(&format!("mkfs.{}", kind.name()), kind.package())?;
        if !self.overwrite
            && let Some(found) = existing_signature(device)?
        {
            let problem = format!("the device holds {found}, which a new {} would overwrite", kind.name());
            return Err(Error::new(ErrorClass::Config, problem)
                .in_file(device)
                .hint("allow it to be overwritten (--overwrite)"));
        }
        command.args(kind.quiet()).args(kind.overwrite()).args(&self.options).arg(device);
        host_programs::run_as_asked(command).map(drop)
    }
}

/// What a device contains, by its signature; `None` without one.
fn existing_signature(device: &Path) -> Result<Option<String>> {
    let mut command = host_programs::tool("blkid", "util-linux")?;
    command.args(["--probe", "--output", "export"]).arg(device);
    let found = match host_programs::run(command) {
        Ok(found) => found,
        // The exit status of blkid for a device without a signature.
        Err(error) if error.to_string().contains("exit status: 2") => return Ok(None),
        Err(error) => return Err(error),
    };
    let value = |key: &str| found.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned);
    let table = value("PTTYPE=").map(|kind| format!("a partition table ({kind})"));
    Ok(value("TYPE=").or(table).or_else(|| Some("several signatures".to_owned())))
}
