//! The places of the device's command queue, as the driver sees them.

/// One place.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// When the commands that were in it are complete, as far as that is known.
    free: i64,
    /// Commands in it that are not known to be complete; several where they are the entries of one packed command.
    commands: u32,
}

/// All places; none where the device takes commands without limit.
#[derive(Debug)]
pub(super) struct Slots(Vec<Slot>);

impl Slots {
    pub fn new(queue_depth: u32) -> Self {
        Self(vec![Slot { free: i64::MIN, commands: 0 }; queue_depth as usize])
    }

    /// When a command that arrives at `arrival` can be sent; `None` until a completion has become known.
    pub fn free_from(&self, arrival: i64) -> Option<i64> {
        if self.0.is_empty() {
            return Some(arrival);
        }
        self.first_free().map(|slot| arrival.max(self.0[slot].free))
    }

    /// The place that is or was free first.
    pub fn first_free(&self) -> Option<usize> {
        let idle = self.0.iter().enumerate().filter(|(_, slot)| slot.commands == 0);
        idle.min_by_key(|(_, slot)| slot.free).map(|(index, _)| index)
    }

    /// A command goes into a place.
    pub fn occupy(&mut self, slot: Option<usize>) {
        if let Some(slot) = slot {
            self.0[slot].commands += 1;
        }
    }

    /// A command of a place is complete.
    pub fn release(&mut self, slot: Option<usize>, complete: i64) {
        if let Some(slot) = slot {
            self.0[slot].commands -= 1;
            self.0[slot].free = self.0[slot].free.max(complete);
        }
    }
}
