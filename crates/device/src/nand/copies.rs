//! Pages that collection moves one after the other, from one plane to one plane.
#![expect(clippy::inline_always, reason = "the hottest path; what is handed on stays in registers")]

use super::channel::Channel;
use super::flash::{DieLoad, Flash, Unit};
use crate::geometry::Group;

/// A run of moves. What they share is looked up once.
pub(crate) enum Copies<'a> {
    /// Inside a plane, where nothing can come between the parts of a move.
    Whole(Whole<'a>),
    /// One operation of the flash after the other.
    Stepwise(Stepwise<'a>),
}

pub(crate) struct Whole<'a> {
    pub free: &'a mut i64,
    pub(super) unit: &'a mut Unit,
    pub(super) die: &'a mut DieLoad,
    pub plane_busy: &'a mut u64,
    pub channel: &'a mut Channel,
    pub ready: i64,
    /// Times of a command, and of the bus for the data of a read and of a program with its command, ns.
    pub command: i64,
    pub out: i64,
    pub back: i64,
    pub read_ns: i64,
    pub program_ns: i64,
}

pub(crate) struct Stepwise<'a> {
    pub flash: &'a mut Flash,
    pub planes: (u32, u32),
    pub groups: (&'a Group, &'a Group),
    pub ready: i64,
}

impl Copies<'_> {
    /// Moves a page: reads `reads` pages (none where the register holds the data) and programs one. Returns when the unit
    /// was free for it, and when it was done.
    #[inline(always)]
    pub fn page(&mut self, reads: u32, page: u32) -> (i64, i64) {
        match self {
            Copies::Whole(whole) => whole.page(reads),
            Copies::Stepwise(stepwise) => stepwise.page(reads, page),
        }
    }
}

impl Whole<'_> {
    /// One look at the unit, one booking.
    #[inline(always)]
    fn page(&mut self, reads: u32) -> (i64, i64) {
        let begin = self.ready.max(*self.free);
        let mut take = |at, time| if time > 0 { self.channel.reserve(at, time) + time } else { at };
        let mut at = begin;
        for _ in 0..reads {
            let sensed = take(at, self.command) + self.read_ns;
            at = take(sensed, self.out);
        }
        let transferred = take(at, self.back);
        let end = transferred + self.program_ns;
        *self.plane_busy += (end - begin) as u64;
        self.die.book(begin, end);
        *self.free = end;
        self.unit.register = transferred;
        self.unit.note_gc(begin, end);
        (begin, end)
    }
}

impl Stepwise<'_> {
    #[inline(never)]
    fn page(&mut self, reads: u32, page: u32) -> (i64, i64) {
        if self.planes.0 == self.planes.1 { self.inside(reads, page) } else { self.across(reads, page) }
    }

    fn inside(&mut self, reads: u32, page: u32) -> (i64, i64) {
        let (plane, (from, to)) = (self.planes.0, self.groups);
        let (out, back) = self.flash.copied_bytes(from, to);
        let before = self.flash.plane_free(plane).max(self.ready);
        let mut at = self.ready;
        for _ in 0..reads {
            at = self.flash.read(plane, from, page, at, out).end;
        }
        let end = self.flash.program(plane, to, page, at, back).end;
        self.flash.note_gc(plane, before, end);
        (before, end)
    }

    /// The other plane collects from the beginning of the program on.
    fn across(&mut self, reads: u32, page: u32) -> (i64, i64) {
        let ((plane, to_plane), (from, to)) = (self.planes, self.groups);
        let mut at = self.ready;
        for _ in 0..reads {
            at = self.flash.read(plane, from, 0, at, from.page_bytes).end;
        }
        let op = self.flash.program(to_plane, to, page, at, to.page_bytes);
        self.flash.note_gc(to_plane, op.begin, op.end);
        (op.begin, op.end)
    }
}
