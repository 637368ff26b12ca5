//! The simulated machine that runs a program: cores, networks, partitions with file systems, and kernel settings. Read from TOML.

use std::path::Path;

use emmclab_base::{ByteSize, Error, ErrorClass, Nanos, Result};
use emmclab_host::{
    BarrierMode, ElevatorKind, FileClass, FilesystemKind, HostConfig, Mount, MountId, MountOptions, SyncedClasses,
};
use emmclab_replay::FioHostCost;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::program::{ProgramStep, ThreadProgram};
use crate::random_draws::Amount;
use crate::toml_files;

/// A host: the simulated machine that runs a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostSetup {
    /// Name of the host.
    pub name: String,
    /// One line that describes which phone or computer the host represents.
    pub about: String,
    /// Where the figures come from, and which assumptions were made.
    pub source: String,
    /// Number of cores.
    pub cores: u32,
    /// Factor on the duration of all work on the host's cores. A core with factor 1 is as fast as the core for which programs specify work:
    /// a 1 GHz core of 2010.
    #[serde(default = "default_cpu_factor")]
    pub cpu_factor: f64,
    /// Time after which a thread leaves its core if another thread is ready, in ms.
    #[serde(default = "quantum")]
    pub quantum_ms: f64,
    /// Time for which a core is busy when it switches to another thread, in µs.
    #[serde(default)]
    pub switch_us: f64,
    /// Lowest clock of the cores as a share of their highest clock, in percent; 0 if the clock does not change with the load. It affects fio
    /// jobs; programs run at the highest clock.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lowest_clock_pct: f64,
    /// Processor time of direct I/O as fio measures it; without it, the costs of `kernel` and `cpu_factor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct_io: Option<DirectIoCosts>,
    /// The kernel: `linux-2.6.35` or `linux-6`.
    pub era: String,
    /// Kernel settings that override the defaults of `era`.
    #[serde(default)]
    #[schemars(with = "std::collections::BTreeMap<String, serde_json::Value>")]
    pub kernel: toml::Table,
    /// Partitions, in their order on the device.
    #[serde(rename = "partition")]
    pub partitions: Vec<HostPartition>,
    /// Networks of the host. Each run uses one of them.
    #[serde(rename = "network")]
    pub networks: Vec<NetworkSettings>,
    /// Work that the phone repeats while the user waits. It uses the same cores as the program, and only exists in simulated runs.
    #[serde(default)]
    pub periodic: Vec<PeriodicWork>,
    /// Published figures and claims from which the settings were derived.
    #[serde(default)]
    pub made_from: Vec<String>,
}

/// Processor time that a request of direct I/O needs on a core of the host at its highest clock, with file system, encryption, block layer
/// and driver.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "each name states its unit, as in all settings")]
pub struct DirectIoCosts {
    /// Time from the system call until the driver has the request, in µs.
    pub submit_us: f64,
    /// Additional time for each 4 KB of the request, in µs.
    pub page_us: f64,
    /// Time from the interrupt until the thread has the result, in µs.
    pub complete_us: f64,
}

/// Work that is repeated while the user waits, such as a progress indicator, an event loop or a timer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PeriodicWork {
    /// Name of the work; in results its thread is `host: NAME`.
    pub name: String,
    /// Time from the end of one repetition to the beginning of the next, in ms.
    pub every_ms: f64,
    /// CPU work of each repetition on a core of CPU factor 1, in ms.
    pub cpu_ms: f64,
}

impl PeriodicWork {
    pub(crate) fn thread(&self) -> ThreadProgram {
        let steps =
            vec![ProgramStep::Think { ms: Amount::Fixed(self.every_ms) }, ProgramStep::Cpu { ms: Amount::Fixed(self.cpu_ms) }];
        ThreadProgram {
            name: format!("host: {}", self.name),
            at_begin: true,
            steps: vec![ProgramStep::Repeat { times: None, steps }],
        }
    }
}

/// A partition of the host's device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostPartition {
    /// Name of the partition.
    pub name: String,
    /// Size of the partition. The last partition may omit the size and then gets the rest of the device.
    pub size: Option<ByteSize>,
    /// File system of the partition; without one, the partition only occupies space.
    pub filesystem: Option<FilesystemKind>,
    /// Mount options of the file system.
    #[serde(default)]
    pub options: MountOptions,
}

/// The location of a mounted partition on the device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartitionExtent {
    /// Name of the partition.
    pub partition: String,
    /// Kind of file system.
    pub filesystem: FilesystemKind,
    /// First sector of the partition on the device.
    pub first_sector: u64,
    /// Length of the partition in sectors.
    pub sectors: u64,
}

/// A network of the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkSettings {
    /// Name of the network.
    pub name: String,
    /// Data rate in both directions together, in Mbit/s of 10^6 bits.
    pub rate_mbit_s: f64,
    /// Round-trip time, in ms.
    pub round_trip_ms: f64,
}

/// Alignment of partitions in sectors, as in partitioning tools. The first partition begins at this sector.
const ALIGNMENT: u64 = 2048;

macro_rules! presets {
    ($($name:literal,)*) => {
        /// Names and contents of the files in `presets/hosts`.
        const PRESETS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../presets/hosts/", $name, ".toml"))),)*];
    };
}

presets! {
    "nexusone",
    "nexusone-fast-core",
    "phone-2020",
    "phone-2020-ext4",
    "pixel4",
}

impl HostSetup {
    /// The names of the built-in hosts.
    pub fn preset_names() -> impl ExactSizeIterator<Item = &'static str> {
        PRESETS.iter().map(|(name, _)| *name)
    }

    /// Returns a built-in host.
    /// Errors: [`ErrorClass::Config`] if there is no such host; the hint lists them.
    pub fn preset(name: &str) -> Result<Self> {
        Self::from_toml(toml_files::preset("host", PRESETS, name)?)
    }

    /// Parses a host from the text of a TOML file.
    /// Errors: [`ErrorClass::Config`] with line and hint for a syntax error, an unknown key or an impossible value.
    pub fn from_toml(text: &str) -> Result<Self> {
        let host: Self = toml_files::from_toml(text, "see presets/hosts for the form")?;
        host.check()?;
        Ok(host)
    }

    /// Reads a host from a TOML file.
    /// Errors: as [`HostSetup::from_toml`], and if the file cannot be read.
    pub fn from_file(path: &Path) -> Result<Self> {
        let text = emmclab_base::read_settings(path)?;
        Self::from_toml(&text).map_err(|error| error.in_file(path))
    }

    fn check(&self) -> Result<()> {
        let positive = |key: &str, value: f64, least: f64, most: f64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(Error::new(ErrorClass::Config, format!("the setting must be {least} to {most}"))
                .of_field(key, 0, value.to_string().as_bytes())
                .hint("give the setting a value in the allowed range"))
        };
        positive("cores", f64::from(self.cores), 1.0, 1024.0)?;
        positive("cpu_factor", self.cpu_factor, 0.0, 1e3)?;
        positive("quantum_ms", self.quantum_ms, 0.001, 1e4)?;
        positive("switch_us", self.switch_us, 0.0, 1e4)?;
        positive("lowest_clock_pct", self.lowest_clock_pct, 0.0, 100.0)?;
        if let Some(cost) = &self.direct_io {
            positive("direct_io.submit_us", cost.submit_us, 0.0, 1e5)?;
            positive("direct_io.page_us", cost.page_us, 0.0, 1e4)?;
            positive("direct_io.complete_us", cost.complete_us, 0.0, 1e5)?;
        }
        for network in &self.networks {
            positive("rate_mbit_s", network.rate_mbit_s, 1e-3, 1e6)?;
            positive("round_trip_ms", network.round_trip_ms, 0.0, 1e5)?;
        }
        for periodic in &self.periodic {
            positive("periodic.every_ms", periodic.every_ms, 0.1, 1e7)?;
            positive("periodic.cpu_ms", periodic.cpu_ms, 0.001, 1e5)?;
        }
        unique("periodic.name", self.periodic.iter().map(|periodic| periodic.name.as_str()))?;
        unique("network.name", self.networks.iter().map(|network| network.name.as_str()))?;
        unique("partition.name", self.partitions.iter().map(|partition| partition.name.as_str()))?;
        let last = self.partitions.len().saturating_sub(1);
        if let Some(open) = self.partitions.iter().take(last).find(|partition| partition.size.is_none()) {
            return Err(Error::new(ErrorClass::Config, "only the last partition may leave out its size")
                .of_field("partition.name", 0, open.name.as_bytes())
                .hint("give every partition except the last a `size`"));
        }
        self.kernel()?.validate()
    }

    /// Whether the host's kernel sends cache flushes to the device. If not, a sync does not make data in the device's cache durable.
    /// Errors: as [`HostSetup::kernel`].
    pub fn sends_flushes(&self) -> Result<bool> {
        Ok(self.kernel()?.barrier == BarrierMode::Flush)
    }

    /// The cost of fio's requests on this host.
    /// Errors: as [`HostSetup::kernel`].
    pub fn fio_cost(&self) -> Result<FioHostCost> {
        let kernel = self.kernel()?;
        let cpu = kernel.cpu;
        let on_core = |ns: f64| Nanos((ns * self.cpu_factor) as i64);
        let cost = FioHostCost {
            cores: self.cores,
            lowest_clock: self.lowest_clock_pct / 100.0,
            cfq_requests: (kernel.elevator == ElevatorKind::Cfq).then_some(kernel.nr_requests),
            ..FioHostCost::default()
        };
        Ok(match self.direct_io {
            Some(DirectIoCosts { submit_us, page_us, complete_us }) => {
                let us = |us: f64| Nanos((us * 1e3) as i64);
                FioHostCost { submit: us(submit_us), page: us(page_us), complete: us(complete_us), ..cost }
            }
            None => FioHostCost {
                call: on_core(cpu.operation_ns as f64),
                submit: on_core(cpu.request_ns as f64),
                switch: on_core(self.switch_us * 1e3),
                ..cost
            },
        })
    }

    /// The settings of the kernel: the defaults of its era, overridden by the settings of the host.
    /// Errors: [`ErrorClass::Config`] for an unknown era or an unknown setting.
    pub fn kernel(&self) -> Result<HostConfig> {
        fn put(into: &mut toml::Table, from: &toml::Table) {
            for (key, value) in from {
                match (into.get_mut(key), value) {
                    (Some(toml::Value::Table(inner)), toml::Value::Table(value)) => put(inner, value),
                    _ => {
                        into.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        let config = HostConfig::era(&self.era)?;
        if self.kernel.is_empty() {
            return Ok(config);
        }
        let unreadable = |problem: String| {
            Error::new(ErrorClass::Config, problem).in_field("kernel").hint("see presets/hosts for the settings of a kernel")
        };
        let mut table = toml::Table::try_from(&config).map_err(|error| unreadable(error.to_string()))?;
        put(&mut table, &self.kernel);
        table.try_into().map_err(|error: toml::de::Error| unreadable(error.message().to_owned()))
    }

    /// Returns the network with this name.
    /// Errors: [`ErrorClass::Config`] if there is no such network. The hint lists the networks of this host.
    pub fn network(&self, name: &str) -> Result<&NetworkSettings> {
        self.networks.iter().find(|network| network.name == name).ok_or_else(|| {
            let known: Vec<_> = self.networks.iter().map(|network| network.name.as_str()).collect();
            Error::new(ErrorClass::Config, format!("the host `{}` has no network `{name}`", self.name))
                .hint(format!("the networks of this host are: {}", known.join(", ")))
        })
    }

    /// Names and locations of the mounted partitions on a device with this number of sectors, in order.
    /// Errors: [`ErrorClass::Config`] if the partitions do not fit on the device.
    pub fn partition_extents(&self, sectors: u64) -> Result<Vec<PartitionExtent>> {
        let mounts = self.mounts(sectors)?;
        let place = |(name, mount): (&str, Mount)| PartitionExtent {
            partition: name.to_owned(),
            filesystem: mount.filesystem,
            first_sector: mount.first_sector,
            sectors: mount.sectors,
        };
        Ok(mounts.into_iter().map(place).collect())
    }

    /// Changes the file system of one partition (`data=lfs`) or of all mounted partitions (`lfs`). Mount options are reset to the defaults
    /// of the file system's tools.
    /// Errors: [`ErrorClass::Config`] for an unknown file system, or a partition that does not exist or is not mounted.
    pub fn set_filesystem(&mut self, choice: &str) -> Result<()> {
        let refused = |problem: &str, hint: String| {
            Err(Error::new(ErrorClass::Config, problem).of_field("filesystem", 0, choice.as_bytes()).hint(hint))
        };
        let (partition, name) = choice.split_once('=').map_or((None, choice), |(partition, name)| (Some(partition), name));
        let kind = serde_json::from_value::<FilesystemKind>(name.into());
        let Ok(kind) = kind else {
            return refused("unknown file system", "use ext4, fat32 or lfs, for example data=lfs".to_owned());
        };
        let mut mounted: Vec<&mut HostPartition> =
            self.partitions.iter_mut().filter(|known| known.filesystem.is_some()).collect();
        if partition.is_some_and(|name| mounted.iter().all(|known| known.name != name)) {
            let known: Vec<_> = mounted.iter().map(|known| known.name.as_str()).collect();
            let hint = format!("the mounted partitions are: {}", known.join(", "));
            return refused("the option refers to a partition that is not mounted", hint);
        }
        for known in mounted.iter_mut().filter(|known| partition.is_none_or(|name| known.name == name)) {
            if known.filesystem != Some(kind) {
                known.filesystem = Some(kind);
                let MountOptions { no_barrier, no_sync, discard, .. } = known.options;
                known.options = MountOptions { no_barrier, no_sync, discard, ..MountOptions::default() };
            }
        }
        Ok(())
    }

    /// Configures the host to execute syncs only for files of the given classes; with `none`, it executes no syncs at all.
    /// Errors: [`ErrorClass::Config`] for an unknown class of files.
    pub fn keep_syncs(&mut self, names: &[String]) -> Result<()> {
        let mut classes = Vec::new();
        for name in names.iter().filter(|_| names != ["none"]) {
            let known = FileClass::ALL.into_iter().take(4).find(|class| class.name() == name);
            let Some(class) = known else {
                return Err(Error::new(ErrorClass::Config, "unknown class of files")
                    .of_field("sync", 0, name.as_bytes())
                    .hint("name one or more of the classes database, database_journal, cache and other, or `none`"));
            };
            classes.push(class);
        }
        let kept = toml::Value::try_from(SyncedClasses::only(&classes))
            .map_err(|error| Error::new(ErrorClass::Config, error.to_string()))?;
        self.kernel.insert("synced".to_owned(), kept);
        Ok(())
    }

    /// Names and mounts of the mounted partitions on a device with this number of sectors, in order.
    /// Errors: [`ErrorClass::Config`] if the partitions do not fit on the device.
    pub(crate) fn mounts(&self, sectors: u64) -> Result<Vec<(&str, Mount)>> {
        let mut out = Vec::new();
        let mut at = ALIGNMENT;
        for partition in &self.partitions {
            let left = sectors.saturating_sub(at) / 8 * 8;
            let length = partition.size.map_or(left, |size| size.sectors().div_ceil(8) * 8);
            if length == 0 || length > left {
                return Err(Error::new(
                    ErrorClass::Config,
                    format!(
                        "the device is too small: partition `{}` needs {}, but {} remain",
                        partition.name,
                        partition.size.map_or_else(|| "a part".to_owned(), |size| size.to_string()),
                        ByteSize(left * emmclab_base::SECTOR_BYTES),
                    ),
                )
                .hint("use a larger device, or set `--capacity`"));
            }
            if let Some(filesystem) = partition.filesystem {
                let options = partition.options;
                out.push((partition.name.as_str(), Mount { filesystem, first_sector: at, sectors: length, options }));
            }
            at = (at + length).next_multiple_of(ALIGNMENT);
        }
        if out.len() > usize::from(u16::MAX) {
            return Err(Error::new(ErrorClass::Config, "the host has more than 65,535 mounted partitions")
                .in_field("partition")
                .hint("remove some partitions"));
        }
        Ok(out)
    }
}

pub(crate) fn mount_of(mounts: &[(&str, Mount)], name: &str) -> Option<MountId> {
    mounts.iter().position(|(known, _)| *known == name).map(|at| MountId(at as u16))
}

fn unique<'a>(key: &str, names: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Error::new(ErrorClass::Config, "the settings of the host have two entries of the same name")
                .of_field(key, 0, name.as_bytes())
                .hint("give each entry its own name"));
        }
    }
    Ok(())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

fn default_cpu_factor() -> f64 {
    1.0
}

/// Default quantum in ms: the time slice of the CFS scheduler for two threads that share a core, which is half of the scheduling latency of
/// 6 ms.
fn quantum() -> f64 {
    3.0
}
