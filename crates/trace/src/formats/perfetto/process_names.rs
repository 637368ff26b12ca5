//! Names of processes, from the process tree, or otherwise from the task that the event names. Source:
//! `protos/perfetto/trace/ps/process_tree.proto` of Perfetto.

use std::collections::HashMap;

use super::wire::WireFields;
use crate::formats::line_format::text;
use crate::{NameId, NameTable, Result};

/// The kernel does not assign larger ids (`PID_MAX_LIMIT`).
const LARGEST_ID: u64 = 1 << 22;
/// Maximum length of a name, in bytes; the rest of a command line is cut.
const LONGEST_NAME: usize = 256;

/// Processes and threads that the trace has named so far.
#[derive(Debug, Default)]
pub(super) struct ProcessNames {
    /// Process of each thread.
    process_of: HashMap<i32, i32>,
    /// Name of each process: the first word of its command line.
    names: HashMap<i32, Box<[u8]>>,
    /// The last lookup, because successive events are often of the same task.
    last: Option<(i32, [u8; 16], Option<NameId>)>,
}

impl ProcessNames {
    /// Reads a `ProcessTree`.
    pub(super) fn tree(&mut self, message: &[u8]) -> Result<()> {
        self.last = None;
        for field in WireFields::of(message) {
            let (number, value) = field?;
            match number {
                1 => self.process(value.bytes())?,
                2 => self.thread(value.bytes())?,
                _ => {}
            }
        }
        Ok(())
    }

    fn process(&mut self, message: &[u8]) -> Result<()> {
        let (mut id, mut name) = (0, None);
        for field in WireFields::of(message) {
            match field? {
                (1, value) => id = value.number(),
                // The first of the command line's words.
                (3, value) => {
                    name.get_or_insert(value.bytes());
                }
                _ => {}
            }
        }
        if let Some(name) = name.filter(|name| id <= LARGEST_ID && !name.is_empty()) {
            self.names.insert(id as i32, name[..name.len().min(LONGEST_NAME)].into());
        }
        Ok(())
    }

    fn thread(&mut self, message: &[u8]) -> Result<()> {
        let (mut id, mut process) = (0, 0);
        for field in WireFields::of(message) {
            match field? {
                (1, value) => id = value.number(),
                (3, value) => process = value.number(),
                _ => {}
            }
        }
        if id <= LARGEST_ID && process <= LARGEST_ID {
            self.process_of.insert(id as i32, process as i32);
        }
        Ok(())
    }

    /// The name of a thread's process; `None` if the tree does not name it.
    pub(super) fn process_name(&self, pid: i32) -> Option<String> {
        let process = self.process_of.get(&pid).unwrap_or(&pid);
        self.names.get(process).map(|name| text(name).into_owned())
    }

    /// The id of the name of a thread's process, or if it is unknown, of `task`, the name in the event (padded with zeros).
    #[inline]
    pub(super) fn name(&mut self, pid: i32, task: [u8; 16], names: &mut NameTable) -> Option<NameId> {
        match self.last {
            Some((last_pid, last_task, id)) if (last_pid, last_task) == (pid, task) => id,
            _ => {
                let process = self.process_of.get(&pid).unwrap_or(&pid);
                let end = task.iter().position(|byte| *byte == 0).unwrap_or(task.len());
                let name = self.names.get(process).map_or(&task[..end], |name| name);
                let id = (!name.is_empty()).then(|| names.intern(&text(name)));
                self.last = Some((pid, task, id));
                id
            }
        }
    }
}
