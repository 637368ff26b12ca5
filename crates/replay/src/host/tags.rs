//! Tags of the hardware queue: a command holds one while it is in the device, as in Linux' blk-mq.

use emmclab_trace::Nanos;

/// One place in the device's command queue.
#[derive(Clone, Copy, Debug)]
struct QueueTag {
    /// When the commands that held it are complete, as far as that is known.
    free: Nanos,
    /// Number of commands that hold it and are not known to be complete; more than one for the entries of a packed command.
    commands: u32,
}

/// All tags; empty if the device accepts commands without limit.
#[derive(Debug)]
pub(super) struct TagSet(Vec<QueueTag>);

impl TagSet {
    pub fn new(queue_depth: u32) -> Self {
        Self(vec![QueueTag { free: Nanos::MIN, commands: 0 }; queue_depth as usize])
    }

    /// When a command that arrives at `arrival` can be sent; `None` if every tag is held by a command of unknown completion.
    pub fn free_from(&self, arrival: Nanos) -> Option<Nanos> {
        if self.0.is_empty() {
            return Some(arrival);
        }
        self.first_free().map(|tag| arrival.max(self.0[tag].free))
    }

    /// The free tag that has been free longest.
    pub fn first_free(&self) -> Option<usize> {
        let idle = self.0.iter().enumerate().filter(|(_, tag)| tag.commands == 0);
        idle.min_by_key(|(_, tag)| tag.free).map(|(index, _)| index)
    }

    /// Marks a tag as held by one more command.
    pub fn occupy(&mut self, tag: Option<usize>) {
        if let Some(tag) = tag {
            self.0[tag].commands += 1;
        }
    }

    /// Marks a command that holds the tag as complete.
    pub fn release(&mut self, tag: Option<usize>, complete: Nanos) {
        if let Some(tag) = tag {
            self.0[tag].commands -= 1;
            self.0[tag].free = self.0[tag].free.max(complete);
        }
    }
}
