//! Finds the disks of the recorded machine: lists all disks, looks up the disks below a partition, mapped device or mount point, and
//! selects the disks to record.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use emmclab_trace::{CommandEvent, Error, ErrorClass, GrowingNameTable, NameId, NameTable, Result, dev_t_label, fixed};

/// A disk of the recorded machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetDisk {
    /// The kernel's name (`mmcblk0`, `sda`, `loop0`).
    pub name: String,
    /// Device number as in the events (major << 20 | minor).
    pub device: u32,
    /// Length in sectors.
    pub sectors: u64,
    /// The model of the device, or the file of a loop device.
    pub about: Option<String>,
    /// Disk sequence number (`diskseq`, since Linux 5.15). The kernel assigns a new number when the medium of a disk or the file of a loop
    /// device changes.
    pub sequence: Option<u64>,
}

impl TargetDisk {
    /// Whether `now`, a disk with this name at a later time, is the same disk. The kernel reuses names and device numbers.
    pub(crate) fn is_same(&self, now: &Self) -> bool {
        let differ = match (self.sequence, now.sequence) {
            (Some(before), Some(now)) => before != now,
            // If the backing file of a loop device is deleted, ` (deleted)` is appended to its path, but it is still the same file.
            _ => matches!((&self.about, &now.about), (Some(before), Some(now))
                if before.trim_end_matches(" (deleted)") != now.trim_end_matches(" (deleted)")),
        };
        now.name == self.name && now.device == self.device && now.sectors > 0 && !differ
    }
}

/// All disks of a machine.
#[derive(Clone, Debug, Default)]
pub struct TargetDisks {
    by_name: BTreeMap<String, TargetDisk>,
    /// The disk of each partition, by the partition's name.
    partitions: BTreeMap<String, String>,
    /// For each mapped device: the devices on which it is stored.
    lower_disks: BTreeMap<String, Vec<String>>,
    /// From mount point to path of the mounted device.
    mounts: BTreeMap<String, String>,
    /// From `MAJOR:MINOR` to the name of a disk or partition.
    numbers: BTreeMap<String, String>,
}

/// Parses `MAJOR:MINOR` into a `dev_t`.
fn device_number(text: &str) -> Option<u32> {
    let (major, minor) = text.trim().split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    (major < 1 << 12 && minor < 1 << 20).then_some(major << 20 | minor)
}

impl TargetDisks {
    /// Parses lines `disk NAME MAJOR:MINOR SECTORS`, `part NAME MAJOR:MINOR DISK`, `slave NAME DISK-ABOVE`, `back NAME FILE`, `model NAME
    /// TEXT`, `seq NAME DISKSEQ`, and the text of `/proc/mounts`. Other lines are ignored.
    pub fn parse(disks: &str, mounts: &str) -> Self {
        let mut out = Self::default();
        for line in disks.lines() {
            let mut words = line.splitn(4, ' ');
            let (Some(kind), Some(name)) = (words.next(), words.next()) else { continue };
            let rest: Vec<&str> = words.collect();
            match (kind, &rest[..]) {
                ("disk", [number, sectors]) => {
                    let Some(device) = device_number(number) else { continue };
                    let sectors = sectors.trim().parse().unwrap_or(0);
                    let disk = TargetDisk { name: name.to_owned(), device, sectors, ..TargetDisk::default() };
                    out.numbers.insert((*number).to_owned(), name.to_owned());
                    out.by_name.insert(name.to_owned(), disk);
                }
                ("part", [number, disk]) => {
                    out.numbers.insert((*number).to_owned(), name.to_owned());
                    out.partitions.insert(name.to_owned(), (*disk).to_owned());
                }
                ("slave", [above]) => {
                    out.lower_disks.entry((*above).to_owned()).or_default().push(name.to_owned());
                }
                ("back" | "model", [_, ..]) => {
                    if let Some(disk) = out.by_name.get_mut(name) {
                        disk.about = Some(rest.join(" ").trim().to_owned());
                    }
                }
                ("seq", [sequence]) => {
                    if let Some(disk) = out.by_name.get_mut(name) {
                        disk.sequence = sequence.trim().parse().ok();
                    }
                }
                _ => {}
            }
        }
        for line in mounts.lines() {
            let mut words = line.split(' ');
            if let (Some(source), Some(point)) = (words.next(), words.next()) {
                // A later mount at the same mount point hides an earlier one.
                out.mounts.insert(point.to_owned(), source.to_owned());
            }
        }
        out
    }

    /// All disks, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &TargetDisk> {
        self.by_name.values()
    }

    /// Whether the disk `disk` still exists, with the same contents.
    pub(crate) fn hold(&self, disk: &TargetDisk) -> bool {
        self.by_name.get(&disk.name).is_some_and(|now| disk.is_same(now))
    }

    /// The disks that contain `name`, which is a disk, a partition, a mapped device (with or without `/dev/`), `MAJOR:MINOR`, or
    /// a mount point.
    /// Errors: [`ErrorClass::Config`] if there is no such device; the error lists the disks.
    pub fn resolve(&self, name: &str) -> Result<Vec<TargetDisk>> {
        let source = self.mounts.get(name).map_or(name, String::as_str);
        let short = source.rsplit('/').next().unwrap_or(source);
        let short = self.numbers.get(source).map_or(short, String::as_str);
        let mut below = BTreeSet::new();
        self.descend(short, &mut below, 0);
        if below.is_empty() {
            let names: Vec<_> = self.by_name.values().filter(|disk| disk.sectors > 0).map(|disk| &*disk.name).collect();
            return Err(Error::new(ErrorClass::Config, "the recorded machine has no such block device")
                .of_field("device", 0, name.as_bytes())
                .hint(format!("name one of the disks [{}], or one of their partitions or mount points", names.join(", "))));
        }
        Ok(below.iter().filter_map(|name| self.by_name.get(*name)).cloned().collect())
    }

    /// Returns the disks, partitions and mapped devices that are stored on one of these disks: names by device number.
    pub(crate) fn standing_on(&self, disks: &[TargetDisk]) -> BTreeMap<u32, String> {
        let reaches = |name: &str| {
            let mut below = BTreeSet::new();
            self.descend(name, &mut below, 0);
            disks.iter().any(|disk| below.contains(&*disk.name))
        };
        let named = self.numbers.iter().filter(|(_, name)| reaches(name));
        named.filter_map(|(number, name)| Some((device_number(number)?, name.clone()))).collect()
    }

    fn descend<'a>(&'a self, name: &'a str, disks: &mut BTreeSet<&'a str>, depth: u32) {
        // Devices are stacked only a few levels deep; the limit guards against cycles.
        if depth > 16 {
            return;
        }
        if let Some(disk) = self.partitions.get(name) {
            self.descend(disk, disks, depth + 1);
        } else if let Some(below) = self.lower_disks.get(name) {
            for name in below {
                self.descend(name, disks, depth + 1);
            }
        } else if let Some((name, _)) = self.by_name.get_key_value(name) {
            disks.insert(name);
        }
    }

    /// The disks that are recorded by default: the disk with Android's `/data` if there is one, otherwise every disk that has
    /// sectors, is not in memory, is not composed of other disks, and is not an unused loop device.
    pub fn default_disks(&self) -> Vec<TargetDisk> {
        if let Some(disks) = self.behind_data() {
            return disks;
        }
        let real = |disk: &&TargetDisk| {
            let memory = ["ram", "zram", "dm-", "md"].iter().any(|prefix| disk.name.starts_with(prefix));
            let idle_loop = disk.name.starts_with("loop") && !self.backs_something(&disk.name);
            disk.sectors > 0 && !memory && !idle_loop && !self.lower_disks.contains_key(&disk.name)
        };
        self.by_name.values().filter(real).cloned().collect()
    }

    /// The reason for the choice of [`TargetDisks::default_disks`], for users.
    pub fn default_reason(&self) -> String {
        if self.behind_data().is_some() {
            return "the disk behind /data".to_owned();
        }
        let taken = self.default_disks();
        let left = self.by_name.values().filter(|disk| disk.sectors > 0 && !taken.contains(disk));
        let left: Vec<_> = left.map(|disk| &*disk.name).collect();
        if left.is_empty() {
            return "every disk".to_owned();
        }
        format!("every disk but {}, which are memory, made of other disks, or unused loop devices", left.join(", "))
    }

    fn behind_data(&self) -> Option<Vec<TargetDisk>> {
        self.mounts.contains_key("/data").then(|| self.resolve("/data").ok()).flatten()
    }

    /// Whether the disk or one of its partitions is mounted or used by a mapped device.
    fn backs_something(&self, disk: &str) -> bool {
        let is_of_disk = |name: &str| name == disk || self.partitions.get(name).is_some_and(|of| of == disk);
        self.mounts.values().any(|source| is_of_disk(source.rsplit('/').next().unwrap_or(source)))
            || self.lower_disks.values().flatten().any(|name| is_of_disk(name))
    }
}

/// The disks whose events are recorded, by device number; if there are none, all events are recorded.
#[derive(Default)]
pub(crate) struct WatchedDevices {
    disks: BTreeMap<u32, String>,
    /// The disk of each MMC host: `mmcblkN` is on host `mmcN`.
    hosts: BTreeMap<[u8; 16], u32>,
    /// Mounted devices whose file-system events are recorded; `None` for all.
    mounted: Option<BTreeMap<u32, String>>,
    names: GrowingNameTable,
    ids: BTreeMap<u32, NameId>,
}

impl WatchedDevices {
    /// Creates a filter for the events of these disks (names by device number); other disks are named `MAJOR,MINOR`.
    pub(crate) fn new(disks: BTreeMap<u32, String>) -> Self {
        let host = |(device, name): (&u32, &String)| {
            let number = name.strip_prefix("mmcblk")?;
            let whole = number.bytes().all(|byte| byte.is_ascii_digit());
            whole.then(|| (fixed(format!("mmc{number}").as_bytes()), *device))
        };
        let hosts = disks.iter().filter_map(host).collect();
        Self { disks, hosts, ..Self::default() }
    }

    /// Restricts file-system events to these devices (names by device number).
    pub(crate) fn mounted_on(&mut self, mounted: BTreeMap<u32, String>) {
        self.mounted = Some(mounted);
    }

    /// The name of a device whose file-system events are recorded; `None` if they are not.
    pub(crate) fn file_system(&self, device: u32) -> Option<Cow<'_, str>> {
        match &self.mounted {
            Some(mounted) => mounted.get(&device).map(Into::into),
            None => Some(dev_t_label(device).into()),
        }
    }

    /// Whether a driver's event may belong to a recorded disk. The kernel cannot filter these events by disk, and MMC hosts also
    /// control other cards and wireless chips.
    pub(crate) fn is_recorded(&self, event: &CommandEvent) -> bool {
        if self.disks.is_empty() {
            return true;
        }
        if event.host.starts_with(b"mmc") {
            // The event `mmc_blk_rw_start` has no field for the host controller, so any MMC host may be meant.
            let is_any = event.host == fixed(b"mmc") && !self.hosts.is_empty();
            return is_any || self.hosts.contains_key(&event.host);
        }
        // Events of a UFS controller do not name a disk. UFS disks are SCSI disks, so any of the SCSI disks may be meant.
        self.disks.values().any(|name| name.starts_with("sd"))
    }

    /// Returns the name of the disk that is attached to the MMC or UFS host of a driver event; `None` if no disk is known for the host.
    pub(crate) fn disk_of(&mut self, event: &CommandEvent) -> Option<NameId> {
        let device = *self.hosts.get(&event.host)?;
        Some(self.disk(device).0)
    }

    /// Returns the id of a disk's name, and whether this call added the name.
    pub(crate) fn disk(&mut self, device: u32) -> (NameId, bool) {
        if let Some(id) = self.ids.get(&device) {
            return (*id, false);
        }
        let name = self.disks.get(&device).cloned().unwrap_or_else(|| dev_t_label(device));
        let id = self.names.intern(&name);
        self.ids.insert(device, id);
        (id, true)
    }

    /// Names of the disks, to which names of MMC and UFS hosts can be added.
    pub(crate) fn names_mut(&mut self) -> &mut NameTable {
        self.names.names_mut()
    }

    /// Names of the disks seen so far.
    pub(crate) fn names(&self) -> &NameTable {
        self.names.names()
    }

    /// Names of the disks seen so far, for sharing with a batch.
    pub(crate) fn shared_names(&mut self) -> &Arc<NameTable> {
        self.names.shared()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phone() -> TargetDisks {
        TargetDisks::parse(
            "disk mmcblk0 179:0 61071360\nmodel mmcblk0 HBG4a2 x\npart mmcblk0p1 179:1 mmcblk0\ndisk mmcblk0boot0 179:32 8192\n\
             disk dm-0 253:0 100\nslave mmcblk0p1 dm-0\ndisk dm-1 253:1 100\nslave dm-0 dm-1\ndisk zram0 252:0 100\n\
             disk loop0 7:0 0\ndisk loop1 7:8 64\nback loop1 /data/a b.img\nnonsense\ndisk broken 1 2\n",
            "/dev/block/dm-1 /data ext4 rw 0 0\nproc /proc proc rw 0 0\n",
        )
    }

    fn names(disks: &[TargetDisk]) -> Vec<&str> {
        disks.iter().map(|disk| &*disk.name).collect()
    }

    #[test]
    fn a_partition_a_mapping_and_a_mount_point_lead_to_their_disk() {
        let disks = phone();
        for name in ["mmcblk0", "/dev/block/mmcblk0p1", "dm-0", "/dev/dm-1", "179:1", "179:0", "/data"] {
            let resolved = disks.resolve(name).unwrap();
            assert_eq!(names(&resolved), ["mmcblk0"], "{name}");
            assert_eq!(resolved[0].device, 179 << 20);
        }
        let above = disks.standing_on(&disks.resolve("mmcblk0").unwrap());
        assert_eq!(above.values().collect::<Vec<_>>(), ["mmcblk0", "mmcblk0p1", "dm-0", "dm-1"]);
        assert_eq!(disks.resolve("loop1").unwrap()[0].about.as_deref(), Some("/data/a b.img"));
    }

    #[test]
    fn another_disk_of_the_same_name_and_number_is_not_the_one_that_was() {
        let look = |more: &str| TargetDisks::parse(&format!("disk loop0 7:0 64\n{more}\n"), "");
        let is_held = |before: &str, now: &str| look(now).hold(&look(before).by_name["loop0"]);
        assert!(is_held("seq loop0 7\nback loop0 /a", "seq loop0 7\nback loop0 /a (deleted)"));
        assert!(!is_held("seq loop0 7\nback loop0 /a", "seq loop0 9\nback loop0 /a"));
        // Kernels before 5.15 do not provide the sequence number of a disk (`diskseq`).
        assert!(is_held("back loop0 /a", "back loop0 /a (deleted)") && is_held("", ""));
        assert!(!is_held("back loop0 /a", "back loop0 /b"));
        assert!(!TargetDisks::parse("disk loop0 7:0 0\n", "").hold(&look("").by_name["loop0"]));
    }

    #[test]
    fn an_unknown_device_names_those_there_are() {
        let error = phone().resolve("/dev/sdz").unwrap_err();
        assert_eq!(error.kind(), ErrorClass::Config);
        assert!(error.hint_text().unwrap().contains("mmcblk0"));
    }

    #[test]
    fn without_a_name_a_phone_records_the_disk_behind_data_and_a_board_all_real_disks() {
        assert_eq!(names(&phone().default_disks()), ["mmcblk0"]);
        let board =
            TargetDisks::parse("disk sda 8:0 5\ndisk zram0 252:0 9\ndisk loop0 7:0 0\ndisk md0 9:0 5\nslave sda md0\n", "");
        assert_eq!(names(&board.default_disks()), ["sda"]);
    }

    #[test]
    fn a_loop_device_is_recorded_only_where_it_backs_something() {
        let disks = "disk sda 8:0 5\ndisk loop0 7:0 9\ndisk loop1 7:1 9\npart loop1p1 259:0 loop1\ndisk loop2 7:2 9\n\
                     disk loop3 7:3 9\ndisk dm-0 253:0 9\nslave loop3 dm-0\ndisk ram0 1:0 9\n";
        let parsed = TargetDisks::parse(disks, "/dev/loop0 /snap squashfs ro 0 0\n/dev/loop1p1 /mnt ext4 rw 0 0\n");
        assert_eq!(names(&parsed.default_disks()), ["loop0", "loop1", "loop3", "sda"]);
        let reason = parsed.default_reason();
        assert!(reason.starts_with("every disk but dm-0, loop2, ram0, which"), "{reason}");
        assert_eq!(TargetDisks::parse("disk sda 8:0 5\n", "").default_reason(), "every disk");
        assert_eq!(phone().default_reason(), "the disk behind /data");
    }
}
