//! Reads the registers of the recorded devices at the start of the recording: the files in sysfs and debugfs with the registers
//! of an eMMC or the descriptors of a UFS device. `emmclab-registers` decodes them.
//!
//! The recorded machine prints a text `registers/DISK` for each disk:
//!
//! ```text
//! emmc /sys/devices/...     `emmc` or `ufs`, and the folder of the device
//! + NAME VALUE              a file of that folder with its line
//! - NAME REASON             a file or folder that could not be read, and why
//! ```

use std::collections::BTreeMap;

use serde::Serialize;

use crate::disks::TargetDisk;
use crate::kernel_format::Files;

/// Prefix of the name of a text with registers; the name of the disk follows.
const PREFIX: &str = "registers/";
/// The reason and remedy if the `EXT_CSD` of an eMMC cannot be read.
const NO_DEBUGFS: &str = "is not there (as root: `mount -t debugfs nodev /sys/kernel/debug`)";

/// Returns commands for a POSIX shell that print the registers of the disks as texts.
pub(crate) fn script(disks: &[TargetDisk]) -> String {
    let is_plain = |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-!.".contains(&byte));
    let names: Vec<_> = disks.iter().map(|disk| &*disk.name).filter(is_plain).collect();
    let lines = include_str!("transports/registers.sh").lines().filter(|line| !line.starts_with('#'));
    let lines: Vec<_> = lines.collect();
    format!("N='{}'\n{}\n", names.join(" "), lines.join("\n"))
}

/// A device and its register files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeviceRegisters {
    /// The recorded disks on this device.
    pub disks: Vec<String>,
    /// `emmc` or `ufs`.
    pub kind: String,
    /// The device's folder on the recorded machine.
    pub folder: String,
    /// The files that could be read: path in the device's folder, and content.
    pub files: BTreeMap<String, String>,
    /// The files that could not be read, each with the reason.
    pub gaps: Vec<String>,
}

/// Parses the texts printed by the recorded machine into devices.
pub(crate) fn devices(texts: &Files) -> Vec<DeviceRegisters> {
    let mut devices: Vec<DeviceRegisters> = Vec::new();
    for (name, text) in texts {
        let Some(disk) = name.strip_prefix(PREFIX) else { continue };
        let mut lines = text.lines();
        let Some((kind, folder)) = lines.next().and_then(|line| line.split_once(' ')) else { continue };
        let at = devices.iter().position(|device| device.folder == folder).unwrap_or_else(|| {
            let (kind, folder) = (kind.to_owned(), folder.to_owned());
            devices.push(DeviceRegisters { kind, folder, ..DeviceRegisters::default() });
            devices.len() - 1
        });
        let device = &mut devices[at];
        device.disks.push(disk.to_owned());
        let mut missing: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        for line in lines {
            let mut words = line.splitn(3, ' ');
            match (words.next(), words.next(), words.next()) {
                (Some("+"), Some(file), Some(value)) => {
                    device.files.insert(file.to_owned(), value.trim().to_owned());
                }
                (Some("-"), Some(file), Some(why)) => {
                    let (folder, file) = file.rsplit_once('/').unwrap_or(("", file));
                    let why = if (folder, file, why) == ("", "ext_csd", "is not there") { NO_DEBUGFS } else { why };
                    missing.entry((folder, why)).or_default().push(file);
                }
                _ => {}
            }
        }
        device.gaps.extend(missing.iter().map(|((folder, why), files)| match *folder {
            "" => format!("{} {why}", files.join(", ")),
            folder => format!("{folder}: {} {why}", files.join(", ")),
        }));
    }
    devices
}

/// Remarks for users about files that could not be read.
pub(crate) fn remarks(devices: &[DeviceRegisters]) -> Vec<String> {
    let of = |device: &DeviceRegisters| {
        let lack = if device.files.is_empty() { "no registers" } else { "registers incomplete" };
        (!device.gaps.is_empty()).then(|| format!("{}: {lack}: {}", device.disks.join(", "), device.gaps.join("; ")))
    };
    devices.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[(&str, &str)]) -> Files {
        texts.iter().map(|(name, text)| (format!("registers/{name}"), (*text).to_owned())).collect()
    }

    #[test]
    fn logical_units_of_a_ufs_are_one_device_and_what_lacks_is_named_by_its_folder() {
        let parsed = devices(&texts(&[
            (
                "sda",
                "ufs /sys/x/1.ufshc\n+ flags/wb_enable true\n- flags/hpb cannot be read\n- flags/a cannot be read\n\
                     - health_descriptor is not there\n",
            ),
            ("sdb", "ufs /sys/x/1.ufshc\n"),
        ]));
        let [device] = &parsed[..] else { panic!("{parsed:?}") };
        assert_eq!(device.disks, ["sda", "sdb"]);
        assert_eq!(device.files["flags/wb_enable"], "true");
        assert_eq!(device.gaps, ["health_descriptor is not there", "flags: hpb, a cannot be read"]);
        assert!(remarks(&parsed)[0].starts_with("sda, sdb: registers incomplete: health"), "{:?}", remarks(&parsed));
    }

    #[test]
    fn a_register_without_debugfs_is_a_gap_that_says_what_helps() {
        let parsed = devices(&texts(&[("mmcblk0", "emmc /sys/x/mmc0:0001\n+ cid 150100\n- ext_csd is not there\n")]));
        assert!(parsed[0].gaps[0].contains("mount -t debugfs"), "{:?}", parsed[0].gaps);
        assert_eq!(devices(&texts(&[("vda", "")])), []);
    }

    #[test]
    fn a_name_that_a_shell_would_take_for_more_is_not_asked_for() {
        let disk = |name: &str| TargetDisk { name: name.to_owned(), ..TargetDisk::default() };
        let text = script(&[disk("mmcblk0"), disk("a'; reboot; '"), disk("sda")]);
        assert!(text.starts_with("N='mmcblk0 sda'\n") && !text.contains("# Prints"), "{text}");
    }
}
