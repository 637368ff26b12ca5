//! What is recorded: the disks, the MMC hosts of these disks, and the file systems on them, by name.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use emmclab_trace::{CommandEvent, GrowingNameTable, NameId, NameTable, dev_t_label, fixed};

/// The watched disks by `dev_t`; if there are none, everything is watched.
#[derive(Default)]
pub(crate) struct WatchedDevices {
    disks: BTreeMap<u32, String>,
    /// The disk of each MMC host: `mmcblkN` belongs to `mmcN`.
    hosts: BTreeMap<[u8; 16], u32>,
    /// Mounted devices whose file systems are watched; `None` for all.
    mounted: Option<BTreeMap<u32, String>>,
    names: GrowingNameTable,
    ids: BTreeMap<u32, NameId>,
}

impl WatchedDevices {
    /// Watches the disks with these names, by `dev_t`; other disks are named `MAJOR,MINOR`.
    pub(crate) fn new(disks: BTreeMap<u32, String>) -> Self {
        let host = |(device, name): (&u32, &String)| {
            let number = name.strip_prefix("mmcblk")?;
            let whole = number.bytes().all(|byte| byte.is_ascii_digit());
            whole.then(|| (fixed(format!("mmc{number}").as_bytes()), *device))
        };
        let hosts = disks.iter().filter_map(host).collect();
        Self { disks, hosts, ..Self::default() }
    }

    /// Watches file systems only on these devices (names by `dev_t`).
    pub(crate) fn mounted_on(&mut self, mounted: BTreeMap<u32, String>) {
        self.mounted = Some(mounted);
    }

    /// The name of a device whose file system is watched; `None` if it is not watched.
    pub(crate) fn file_system(&self, device: u32) -> Option<Cow<'_, str>> {
        match &self.mounted {
            Some(mounted) => mounted.get(&device).map(Into::into),
            None => Some(dev_t_label(device).into()),
        }
    }

    /// Whether a driver's event belongs to a watched disk. The kernel cannot filter these events by disk, and MMC hosts also drive other
    /// cards and wireless chips.
    pub(crate) fn is_recorded(&self, event: &CommandEvent) -> bool {
        if self.disks.is_empty() {
            return true;
        }
        if event.host.starts_with(b"mmc") {
            // `mmc_blk_rw_start` does not name its host.
            let is_any = event.host == fixed(b"mmc") && !self.hosts.is_empty();
            return is_any || self.hosts.contains_key(&event.host);
        }
        // Events of a UFS controller do not name the disk; UFS disks are SCSI disks.
        self.disks.values().any(|name| name.starts_with("sd"))
    }

    /// The disk of a host; `None` if it is not known by name.
    pub(crate) fn disk_of(&mut self, event: &CommandEvent) -> Option<NameId> {
        let device = *self.hosts.get(&event.host)?;
        Some(self.disk(device).0)
    }

    /// The id of a disk's name, and whether it is new.
    pub(crate) fn disk(&mut self, device: u32) -> (NameId, bool) {
        if let Some(id) = self.ids.get(&device) {
            return (*id, false);
        }
        let name = self.disks.get(&device).cloned().unwrap_or_else(|| dev_t_label(device));
        let id = self.names.intern(&name);
        self.ids.insert(device, id);
        (id, true)
    }

    /// Names of the disks, to which names of hosts can be added.
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
