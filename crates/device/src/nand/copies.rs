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
    pub(super) unit: &'a mut Unit,
    pub(super) die: &'a mut DieLoad,
    pub(super) plane_busy: &'a mut u64,
    pub(super) channel: &'a mut Channel,
    /// When the first move begins, and when the last one so far was done: no time passes between them.
    pub(super) begin: i64,
    pub(super) end: i64,
    /// Times of a command, and of the bus for the data of a read and of a program with its command, ns.
    pub(super) command: i64,
    pub(super) out: i64,
    pub(super) back: i64,
    pub(super) read_ns: i64,
    pub(super) program_ns: i64,
}

pub(crate) struct Stepwise<'a> {
    pub flash: &'a mut Flash,
    pub planes: (u32, u32),
    pub groups: (&'a Group, &'a Group),
    pub ready: i64,
    /// Time of the moves so far, ns.
    pub took: i64,
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

    /// The time that the moves took so far, ns.
    #[inline]
    pub fn took(&self) -> i64 {
        match self {
            Copies::Whole(whole) => whole.end - whole.begin,
            Copies::Stepwise(stepwise) => stepwise.took,
        }
    }
}

impl Whole<'_> {
    #[inline(always)]
    pub fn page(&mut self, reads: u32) -> (i64, i64) {
        let mut take = |at, time| if time > 0 { self.channel.reserve(at, time) + time } else { at };
        let begin = self.end;
        let mut at = begin;
        for _ in 0..reads {
            let sensed = take(at, self.command) + self.read_ns;
            at = take(sensed, self.out);
        }
        self.end = take(at, self.back) + self.program_ns;
        (begin, self.end)
    }

    /// When the last move was done.
    #[inline]
    pub fn end(&self) -> i64 {
        self.end
    }
}

/// All moves are booked at once.
impl Drop for Whole<'_> {
    #[inline]
    fn drop(&mut self) {
        let (begin, end) = (self.begin, self.end);
        if end > begin {
            *self.plane_busy += (end - begin) as u64;
            self.die.book(begin, end);
            self.unit.free = end;
            self.unit.register = end - self.program_ns;
            self.unit.note_gc(begin, end);
        }
    }
}

impl Stepwise<'_> {
    #[inline(never)]
    fn page(&mut self, reads: u32, page: u32) -> (i64, i64) {
        let (before, end) =
            if self.planes.0 == self.planes.1 { self.inside(reads, page) } else { self.across(reads, page) };
        self.took += end - before;
        (before, end)
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
