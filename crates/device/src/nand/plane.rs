//! The timelines that an operation on a plane uses: plane, way, channel, die and multi-plane group.

use emmclab_base::Nanos;

use super::channel::BusTimeline;

/// Flash commands that occupy the array.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FlashCommand {
    Read,
    Program,
    Erase,
}

/// Planes that work in parallel only on the same command. They belong to a chip without interleaving, or to a die whose multi-plane
/// commands require equal page offsets.
#[derive(Clone, Debug)]
pub(super) struct MultiPlaneGroup {
    die: u32,
    command: u64,
    start: Nanos,
    until: Nanos,
}

impl MultiPlaneGroup {
    pub const NEW: Self = Self { die: 0, command: 0, start: Nanos::MIN, until: Nanos::MIN };

    /// Earliest start of a command on a die, if the command is ready at time `at`. Its page is not known yet, so the actual start may be
    /// later.
    pub fn free(&self, die: u32, same_offset: bool, at: Nanos) -> Nanos {
        let joins = self.die == die && (!same_offset || at <= self.start);
        if at >= self.until || joins { at } else { self.until }
    }

    /// Returns the earliest start of a command on a die, if the command is ready at time `at`. With `same_offset`, planes work at the same
    /// time only if they execute the same command.
    fn gate(&self, die: u32, same_offset: bool, command: u64, at: Nanos) -> Nanos {
        let at = self.free(die, same_offset, at);
        if !same_offset || at >= self.until {
            return at;
        }
        if self.command == command { self.start } else { self.until }
    }

    fn book(&mut self, die: u32, command: u64, begin: Nanos, end: Nanos) {
        if begin >= self.until {
            *self = Self { die, command, start: begin, until: end };
        } else {
            self.until = self.until.max(end);
        }
    }
}

/// A time before every simulated time. Its difference from a simulated time does not overflow.
const LONG_AGO: Nanos = Nanos(i64::MIN / 2);

/// A way, which executes one operation at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct WayTimeline {
    pub free: Nanos,
    /// Time at which the page register is free for other data.
    pub register: Nanos,
    /// Start of the last interval that the way spent on garbage collection.
    gc_begin: Nanos,
    gc_end: Nanos,
}

impl WayTimeline {
    pub const NEW: Self = Self { free: Nanos::MIN, register: Nanos::MIN, gc_begin: LONG_AGO, gc_end: LONG_AGO };

    /// Records that the way collects garbage from `begin` to `end`. Adjacent intervals are merged.
    #[inline(always)]
    pub fn note_gc(&mut self, begin: Nanos, end: Nanos) {
        if begin > self.gc_end {
            self.gc_begin = begin;
        }
        self.gc_end = end;
    }

    /// Delays the last operations by `delay` for a read that begins at `at`, before or within the first of them.
    pub fn delay(&mut self, at: Nanos, delay: Nanos) {
        self.free += delay;
        if self.register >= at {
            self.register += delay;
        }
        if self.gc_end > at {
            self.gc_end += delay;
        }
    }

    /// Returns the time within `ready..begin` that the way spent on garbage collection.
    #[inline(always)]
    pub fn gc_share(&self, ready: Nanos, begin: Nanos) -> Nanos {
        Nanos((self.gc_end.0.min(begin.0) - self.gc_begin.0.max(ready.0)).max(0))
    }
}

/// A plane with its way, channel, die and multi-plane group, and its busy time.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlaneTimeline {
    /// Position of the way in the striping order.
    pub way: u32,
    pub channel: u32,
    pub die: u32,
    pub group: u32,
    /// Busy time in ns.
    pub busy: u64,
}

/// Busy time of a die, which is the time with at least one busy plane.
#[derive(Clone, Copy, Debug)]
pub(super) struct DieBusyTime {
    until: Nanos,
    /// Busy time in ns.
    pub busy: u64,
}

impl DieBusyTime {
    pub const NEW: Self = Self { until: Nanos::MIN, busy: 0 };

    /// Cancels operations in progress after a power loss.
    pub fn cut(&mut self) {
        self.until = Nanos::MIN;
    }

    #[inline(always)]
    pub fn book(&mut self, begin: Nanos, end: Nanos) {
        let until = self.until.max(end);
        self.busy += (until.0 - begin.0.max(self.until.0)) as u64;
        self.until = until;
    }
}

/// The timelines of one plane, looked up once for an operation.
pub(super) struct PlaneResources<'a> {
    pub plane: &'a mut PlaneTimeline,
    pub way: &'a mut WayTimeline,
    pub channel: &'a mut BusTimeline,
    pub die: &'a mut DieBusyTime,
    /// The multi-plane group, and whether its planes must use the same page offset; `None` if there are no groups.
    pub group: Option<(&'a mut MultiPlaneGroup, bool)>,
}

impl PlaneResources<'_> {
    /// Earliest start of an operation that is `ready`.
    #[inline(always)]
    pub fn gate(&self, kind: FlashCommand, offset: u32, ready: Nanos) -> Nanos {
        let at = ready.max(self.way.free);
        match &self.group {
            None => at,
            Some((group, same_offset)) => group.gate(self.plane.die, *same_offset, command(kind, offset), at),
        }
    }

    /// Marks the plane as busy in `begin..end`. Its way is free from `free` on.
    #[inline(always)]
    pub fn book(&mut self, kind: FlashCommand, offset: u32, (begin, end, free): (Nanos, Nanos, Nanos)) {
        self.plane.busy += (end.0 - begin.0) as u64;
        self.way.free = free;
        self.die.book(begin, end);
        if let Some((group, _)) = &mut self.group {
            group.book(self.plane.die, command(kind, offset), begin, end);
        }
    }
}

fn command(kind: FlashCommand, offset: u32) -> u64 {
    (kind as u64) << 32 | u64::from(offset)
}

/// State of a block. A block is free, open, full, collecting and then free again; at its erase limit it becomes bad.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum BlockState {
    /// Erased.
    #[default]
    Free = 0,
    /// Being programmed, page by page.
    Open = 1,
    /// All pages are programmed.
    Full = 2,
    /// Its valid data is being moved away.
    Collecting = 3,
    /// No longer used.
    Bad = 4,
}

impl BlockState {
    /// The state with a code, the inverse of `state as u8`.
    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Free),
            1 => Some(Self::Open),
            2 => Some(Self::Full),
            3 => Some(Self::Collecting),
            4 => Some(Self::Bad),
            _ => None,
        }
    }
}

/// An erase block: its location, wear and write position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EraseBlock {
    /// Number of programmed pages, which is also the index of the next page to program.
    pub written: u32,
    /// Number of erases so far.
    pub erases: u32,
    pub plane: u16,
    pub group: u8,
    pub state: BlockState,
}
