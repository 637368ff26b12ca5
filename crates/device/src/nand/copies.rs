//! Pages that collection moves one after the other, from one plane to one plane.
#![expect(clippy::inline_always, reason = "the hottest path; what is handed on stays in registers")]

use super::channel::REMEMBERED;
use super::flash::Flash;
use super::lane::{Kind, Lane};
use crate::geometry::Group;

/// A run of moves. What they share is looked up once.
pub(crate) enum Copies<'a> {
    /// Inside a plane, where nothing can come between the parts of a move.
    Whole(Whole<'a>),
    /// One operation of the flash after the other.
    Stepwise(Stepwise<'a>),
}

pub(crate) struct Whole<'a> {
    pub(super) lane: Lane<'a>,
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
        let mut take = |at, time| if time > 0 { self.lane.channel.reserve(at, time) + time } else { at };
        let begin = self.end;
        let mut at = begin;
        for _ in 0..reads {
            let sensed = take(at, self.command) + self.read_ns;
            at = take(sensed, self.out);
        }
        self.end = take(at, self.back) + self.program_ns;
        (begin, self.end)
    }

    /// Moves so many pages, each of which has to be read. Behind all that is known of the bus, one takes as long as the
    /// other, and the bus remembers only the last ones, each of which leaves a gap while the array works.
    pub fn pages(&mut self, count: u32) {
        let (bus, array) = (self.command + self.out + self.back, self.read_ns + self.program_ns);
        let mut left = count;
        while left > 0 {
            self.page(1);
            left -= 1;
            if left > REMEMBERED && array > 0 && self.lane.channel.is_free(self.end) {
                let skipped = i64::from(left - REMEMBERED);
                self.lane.channel.busy += (skipped * bus) as u64;
                self.end += skipped * (bus + array);
                left = REMEMBERED;
            }
        }
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
            // Planes that work together are not copied as a whole: of what kind this is, nobody asks.
            self.lane.book(Kind::Program, 0, (begin, end, end));
            self.lane.unit.register = end - self.program_ns;
            self.lane.unit.note_gc(begin, end);
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::DeviceConfig;
    use crate::geometry::Geometry;

    proptest! {
        #[test]
        fn many_pages_at_once_are_as_one_after_the_other(
            (command, bus, read, program) in (0..3u32, 0..3u32, 0..3u32, 0..3u32),
            // Programs on two planes that share a bus, and runs of moves on either.
            steps in prop::collection::vec((0..2u32, 0..3u32, 0..400_000i64, 1..120u32), 1..40),
        ) {
            let mut config = DeviceConfig::preset("small-1gb").unwrap();
            config.set_all(&[
                ("timing.command_ns", &(command * 100).to_string()),
                ("timing.bus_ns_per_byte", &bus.to_string()),
                ("geometry.block_groups.0.read_us", &(read * 3).to_string()),
                ("geometry.block_groups.0.program_us", &(program * 20).to_string()),
            ]).unwrap();
            let geometry = Geometry::new(config.settings());
            let kind = &geometry.groups[0];
            let mut flash = Flash::new(config.settings(), &geometry);
            let mut plain = flash.clone();
            for (plane, what, ready, pages) in steps {
                if what == 0 {
                    let op = flash.program(plane, kind, 0, ready, kind.page_bytes);
                    prop_assert_eq!(plain.program(plane, kind, 0, ready, kind.page_bytes).end, op.end);
                    continue;
                }
                for (flash, at_once) in [(&mut flash, true), (&mut plain, false)] {
                    let Copies::Whole(mut copies) = flash.copies((plane, plane), (kind, kind), ready) else {
                        return Err(TestCaseError::fail("moves inside a plane are whole"));
                    };
                    if at_once {
                        copies.pages(pages);
                    } else {
                        for _ in 0..pages {
                            copies.page(1);
                        }
                    }
                }
                prop_assert_eq!(flash.plane_free(plane), plain.plane_free(plane));
            }
            prop_assert_eq!(flash.load(), plain.load());
        }
    }
}
