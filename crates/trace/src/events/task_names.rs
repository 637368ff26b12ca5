//! Names of tasks by id, for events that contain only ids.
//!
//! Also identifies kernel threads that write for a file system, by name. Source: the kernel's `fs/jbd2/journal.c`
//! (`jbd2/DEVICE-INODE`), `fs/f2fs/checkpoint.c` (`f2fs_ckpt-MAJOR:MINOR`) and `fs/f2fs/segment.c` (`f2fs_flush-MAJOR:MINOR`).

use std::collections::HashMap;

use crate::{dev_t_label, fixed, unfilled};

/// Maximum number of tasks; when it is exceeded, all names are dropped and learned again.
const MOST_TASKS: usize = 1 << 16;

/// Names of tasks, from events and from the list that the kernel saves.
#[derive(Debug, Default)]
pub(super) struct TaskNames {
    names: HashMap<i32, [u8; 16]>,
    /// Id and name of the last task, because consecutive events are often of the same task.
    last: (i32, [u8; 16]),
}

impl TaskNames {
    #[inline]
    pub(super) fn learn(&mut self, pid: i32, name: &[u8]) {
        let name = fixed(name);
        if name[0] == 0 || self.last == (pid, name) {
            return;
        }
        self.last = (pid, name);
        if self.names.len() >= MOST_TASKS && !self.names.contains_key(&pid) {
            self.names.clear();
        }
        self.names.insert(pid, name);
    }

    /// Reads the lines `PID NAME` of `saved_cmdlines`, for tasks whose names no event contains.
    pub(super) fn learn_list(&mut self, text: &str) {
        for line in text.lines() {
            let Some((pid, name)) = line.trim_start().split_once(' ') else { continue };
            if let Ok(pid) = pid.parse::<i32>()
                && !self.names.contains_key(&pid)
            {
                self.learn(pid, name.as_bytes());
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (i32, &[u8])> {
        self.names.iter().map(|(pid, name)| (*pid, unfilled(name)))
    }

    pub(super) fn name(&self, pid: i32) -> Option<&str> {
        self.names.get(&pid).and_then(|name| std::str::from_utf8(unfilled(name)).ok())
    }
}

/// Number of bytes of a task name that the kernel stores.
const LONGEST_NAME: usize = 15;

pub(super) const JOURNAL_THREAD: &[u8] = b"jbd2/";

/// Ids of the threads that write for the file system on a device. The name of a journal thread contains the name of its device. If only the
/// number of the device is known, as in the kernel's text, the thread is returned only if the recording has a single one.
pub(super) fn writers_of(system: &str, number: u32, device: &str, tasks: &[(i32, &[u8])]) -> Vec<i32> {
    let named = |is_name: &dyn Fn(&[u8]) -> bool| -> Vec<i32> {
        let mut pids: Vec<_> = tasks.iter().filter(|(_, task)| is_name(task)).map(|(pid, _)| *pid).collect();
        pids.sort_unstable();
        pids
    };
    match system {
        "ext4" if device == dev_t_label(number) => {
            let journals = named(&|task| task.starts_with(JOURNAL_THREAD));
            if journals.len() == 1 { journals } else { Vec::new() }
        }
        "ext4" => {
            let begin = format!("jbd2/{device}-");
            named(&|task| task.starts_with(stored(&begin)))
        }
        "f2fs" => {
            let of_device = format!("{}:{}", number >> 20, number & 0xf_ffff);
            let names = [format!("f2fs_ckpt-{of_device}"), format!("f2fs_flush-{of_device}")];
            named(&|task| names.iter().any(|name| task == stored(name)))
        }
        _ => Vec::new(),
    }
}

/// The part of a task name that the kernel stores.
fn stored(name: &str) -> &[u8] {
    &name.as_bytes()[..name.len().min(LONGEST_NAME)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASKS: [(i32, &[u8]); 5] =
        [(1, b"jbd2/dm-5-8"), (2, b"jbd2/mmcblk0p30"), (3, b"f2fs_ckpt-254:5"), (4, b"f2fs_flush-254:"), (5, b"jbd2/dm-51-8")];

    #[test]
    fn threads_belong_to_a_device_by_their_names_also_where_the_kernel_cuts_them() {
        for (system, (major, minor), device, pids) in [
            ("ext4", (254, 5), "dm-5", &[1][..]),
            ("ext4", (179, 30), "mmcblk0p30", &[2]),
            ("ext4", (179, 3), "mmcblk0p3", &[]),
            ("ext4", (254, 6), "dm-6", &[]),
            ("ext4", (254, 5), "254,5", &[]),
            ("f2fs", (254, 5), "254,5", &[3, 4]),
            ("f2fs", (254, 6), "dm-6", &[4]),
            ("f2fs", (8, 0), "sda", &[]),
        ] {
            assert_eq!(writers_of(system, major << 20 | minor, device, &TASKS), pids, "{system} {device}");
        }
    }

    #[test]
    fn a_device_without_a_name_has_the_only_journal() {
        assert_eq!(writers_of("ext4", (254 << 20) + 5, "254,5", &TASKS[..1]), [1]);
    }
}
