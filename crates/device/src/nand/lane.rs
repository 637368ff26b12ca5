//! What an operation touches: its plane, unit of parallelism, channel, die and gang, each with its timeline.
#![expect(clippy::inline_always, reason = "the hottest path; what is handed on stays in registers")]

use super::channel::Channel;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Program,
    Erase,
}

/// Planes that may only work together on the same command: a chip without interleaving, or a die under the
/// same-offset rule.
#[derive(Clone, Debug)]
pub(super) struct Gang {
    die: u32,
    command: u64,
    start: i64,
    until: i64,
}

impl Gang {
    pub const NEW: Self = Self { die: 0, command: 0, start: i64::MIN, until: i64::MIN };

    /// When a command of a die that could be given `at` may begin, as far as can be told before its page is known.
    pub fn free(&self, die: u32, same_offset: bool, at: i64) -> i64 {
        let joins = self.die == die && (!same_offset || at <= self.start);
        if at >= self.until || joins { at } else { self.until }
    }

    /// When a command of a die that could be given `at` may begin.
    fn gate(&self, die: u32, same_offset: bool, command: u64, at: i64) -> i64 {
        let at = self.free(die, same_offset, at);
        if !same_offset || at >= self.until {
            return at;
        }
        if self.command == command { self.start } else { self.until }
    }

    fn book(&mut self, die: u32, command: u64, begin: i64, end: i64) {
        if begin >= self.until {
            *self = Gang { die, command, start: begin, until: end };
        } else {
            self.until = self.until.max(end);
        }
    }
}

/// Before every run, and not so far that a difference to a time of a run would overflow.
const LONG_AGO: i64 = i64::MIN / 2;

/// A unit of parallelism.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    /// When it is free.
    pub free: i64,
    /// When its page register is free: the array took over what the bus brought.
    pub register: i64,
    /// The last run of collection on it.
    gc_begin: i64,
    gc_end: i64,
}

impl Unit {
    pub const NEW: Self = Self { free: i64::MIN, register: i64::MIN, gc_begin: LONG_AGO, gc_end: LONG_AGO };

    /// Collection from `begin` to `end`; runs that touch become one.
    #[inline(always)]
    pub fn note_gc(&mut self, begin: i64, end: i64) {
        if begin > self.gc_end {
            self.gc_begin = begin;
        }
        self.gc_end = end;
    }

    /// How much of `ready..begin` it spent on collection.
    #[inline(always)]
    pub fn gc_share(&self, ready: i64, begin: i64) -> i64 {
        (self.gc_end.min(begin) - self.gc_begin.max(ready)).max(0)
    }
}

/// A plane: what it belongs to, and how long it was busy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plane {
    /// Place of its unit in the striping order.
    pub place: u32,
    pub channel: u32,
    pub die: u32,
    pub gang: u32,
    pub busy: u64,
}

/// How long a die was busy with any of its planes.
#[derive(Clone, Copy, Debug)]
pub(super) struct DieLoad {
    until: i64,
    pub busy: u64,
}

impl DieLoad {
    pub const NEW: Self = Self { until: i64::MIN, busy: 0 };

    #[inline(always)]
    pub fn book(&mut self, begin: i64, end: i64) {
        let until = self.until.max(end);
        self.busy += (until - begin.max(self.until)) as u64;
        self.until = until;
    }
}

/// All that an operation on a plane moves on, looked up once.
pub(super) struct Lane<'a> {
    pub plane: &'a mut Plane,
    pub unit: &'a mut Unit,
    pub channel: &'a mut Channel,
    pub die: &'a mut DieLoad,
    /// With the rule that a gang works on one page offset; `None` where planes do not work together.
    pub gang: Option<(&'a mut Gang, bool)>,
}

impl Lane<'_> {
    /// When an operation that is `ready` may begin.
    #[inline(always)]
    pub fn gate(&self, kind: Kind, offset: u32, ready: i64) -> i64 {
        let at = ready.max(self.unit.free);
        match &self.gang {
            None => at,
            Some((gang, same_offset)) => gang.gate(self.plane.die, *same_offset, command(kind, offset), at),
        }
    }

    /// Books the plane for `begin..end`; its unit is free from `free` on.
    #[inline(always)]
    pub fn book(&mut self, kind: Kind, offset: u32, (begin, end, free): (i64, i64, i64)) {
        self.plane.busy += (end - begin) as u64;
        self.unit.free = free;
        self.die.book(begin, end);
        if let Some((gang, _)) = &mut self.gang {
            gang.book(self.plane.die, command(kind, offset), begin, end);
        }
    }
}

fn command(kind: Kind, offset: u32) -> u64 {
    (kind as u64) << 32 | u64::from(offset)
}
