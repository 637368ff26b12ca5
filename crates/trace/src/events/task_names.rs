//! Names of tasks by their ids, for events that only state ids.

use std::collections::HashMap;

use crate::{fixed, unfilled};

/// Maximum number of tasks; if there are more, all names are dropped and learned again.
const MOST_TASKS: usize = 1 << 16;

/// Names of tasks, learned from events and from the kernel's own list.
#[derive(Debug, Default)]
pub(super) struct TaskNames {
    names: HashMap<i32, [u8; 16]>,
    /// The last name learned, because successive events are often of the same task.
    last: (i32, [u8; 16]),
}

impl TaskNames {
    /// Stores the name of a task, from an event.
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

    /// Reads the lines `PID NAME` of `saved_cmdlines`, for tasks that no event named.
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

    /// All tasks with their names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (i32, &[u8])> {
        self.names.iter().map(|(pid, name)| (*pid, unfilled(name)))
    }

    /// The name of a task; `None` if it is unknown.
    pub(super) fn name(&self, pid: i32) -> Option<&str> {
        self.names.get(&pid).and_then(|name| std::str::from_utf8(unfilled(name)).ok())
    }
}
