//! Suspension of programs and erases by reads of the host (Wu and He, "Reducing SSD read latency via NAND flash program and erase
//! suspension", FAST 2012).
//!
//! The end of an operation is known when it is planned. It can still become later as long as neither the host nor another operation depends
//! on it. Each way therefore lists its last operations of this kind: erases, moves of pages by collection, and programs of data that the
//! write buffer writes back. A read of the host goes before the first of them that has not begun or can be suspended, and then this one and
//! all later ones end later by the same time. Any other operation of the way makes the times of all operations before it final, and
//! [`FlashTimelines::fix`] those that a request waits for. Transfers of delayed programs keep their places on the bus.

use std::collections::VecDeque;

use emmclab_base::Nanos;
use emmclab_settings::TimingSettings;

use super::plane::PlaneResources;
use super::timelines::{FlashTimelines, PageOperationTimes};
use crate::events::{OperationsDelayed, SuspendableOperation};
use crate::geometry::nanos;
use crate::ids::{BlockId, PlaneId};

/// A program or erase whose end may still become later.
#[derive(Clone, Copy, Debug)]
struct DelayableOperation {
    kind: SuspendableOperation,
    plane: PlaneId,
    /// The page that is programmed, if reads of its data wait for the program.
    page: Option<(BlockId, u32)>,
    /// Earliest time at which a read can go before this operation: the previous operation, and reads that went before this one, have ended.
    free: Nanos,
    /// The array works on the operation, or on the rest of it, from `begin` to `end`.
    begin: Nanos,
    end: Nanos,
    /// Whether it is suspended at `free` and resumes then.
    resumes: bool,
    /// Number of reads that went before this operation or suspended it.
    reads: u32,
    /// End of the last transfer of these reads.
    transferred: Nanos,
}

/// The latest ends of operations that became later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DelayedEnds {
    pub program: Nanos,
    pub write_back: Nanos,
    /// Erases and moves.
    pub collection: Nanos,
}

/// Settings of suspension, and the operations of each way that may be suspended.
#[derive(Clone, Debug)]
pub(super) struct OperationSuspender {
    suspend: Nanos,
    resume: Nanos,
    /// Maximum number of reads that go before an operation or suspend it.
    most_reads: u32,
    /// The last operations of each way, in order, and the time at which the operations before them end.
    ways: Vec<(VecDeque<DelayableOperation>, Nanos)>,
    /// Whether programs are those of the write buffer, for which no request waits.
    writes_back: bool,
    event: Option<OperationsDelayed>,
    ends: Option<DelayedEnds>,
}

impl OperationSuspender {
    /// Creates the lists of operations for a number of ways; `None` if operations are not suspended.
    pub fn new(timing: &TimingSettings, ways: usize) -> Option<Box<Self>> {
        let (suspend, resume, most_reads) = (nanos(timing.suspend_us), nanos(timing.resume_us), timing.suspend_limit);
        let ways = vec![(VecDeque::new(), Nanos::MIN); ways];
        (most_reads > 0)
            .then(|| Box::new(Self { suspend, resume, most_reads, ways, writes_back: false, event: None, ends: None }))
    }

    /// Removes all operations, because the timelines become idle.
    pub fn clear(&mut self) {
        self.ways.fill((VecDeque::new(), Nanos::MIN));
    }

    /// Returns the position of the operation before or within which a read begins that is ready at `ready`, the begin of the read, and
    /// whether the read suspends the operation. `None` if it waits for all operations.
    fn place(&self, way: usize, page: Option<(BlockId, u32)>, ready: Nanos) -> Option<(usize, Nanos, bool)> {
        let (operations, _) = &self.ways[way];
        // Data of the write buffer can be read only after it was programmed.
        let from = operations.iter().position(|operation| page.is_some() && operation.page == page).map_or(0, |own| own + 1);
        let mut later = operations.iter().enumerate().skip(from).filter(|(_, operation)| operation.reads < self.most_reads);
        later.find_map(|(i, operation)| {
            let &DelayableOperation { free, begin, end, resumes, .. } = operation;
            if ready <= if resumes { free } else { begin } {
                return Some((i, ready.max(free), false));
            }
            let at = ready.max(begin);
            (end - at > self.suspend).then_some((i, at + self.suspend, true))
        })
    }

    /// Delays the operation at `place` of a way and all later ones for a read that occupies the way in `begin..free` and whose transfer
    /// ends at `transferred`. The operations before it are final, because the read waited for them.
    fn delay(&mut self, way: usize, place: (usize, Nanos, bool), free: Nanos, transferred: Nanos) -> Nanos {
        let (position, begin, suspends) = place;
        let (operations, _) = &mut self.ways[way];
        operations.drain(..position);
        let Some(first) = operations.front_mut() else { return Nanos::ZERO };
        let left = first.end - if suspends { begin - self.suspend } else { first.begin };
        first.resumes |= suspends;
        first.begin = if first.resumes { free + self.resume } else { first.begin.max(free) };
        let delay = first.begin + left - first.end;
        (first.end, first.free, first.transferred) = (first.end + delay, free, transferred);
        first.reads += 1;
        let ends = self.ends.get_or_insert(DelayedEnds { program: Nanos::MIN, write_back: Nanos::MIN, collection: Nanos::MIN });
        for (i, operation) in operations.iter_mut().enumerate() {
            if i > 0 {
                for time in [&mut operation.free, &mut operation.begin, &mut operation.end] {
                    *time += delay;
                }
            }
            let kind =
                if operation.kind == SuspendableOperation::WriteBack { &mut ends.write_back } else { &mut ends.collection };
            *kind = operation.end.max(*kind);
            if operation.kind != SuspendableOperation::Erase {
                ends.program = operation.end.max(ends.program);
            }
        }
        delay
    }
}

impl FlashTimelines {
    /// Whether reads of the host suspend programs and erases.
    #[inline(always)]
    pub fn suspends(&self) -> bool {
        self.suspender.is_some()
    }

    /// Whether one of the last operations of a plane programs a page of this block for which reads wait.
    pub(super) fn programs(&self, plane: PlaneId, block: BlockId) -> bool {
        let way = self.planes[plane.index()].way as usize;
        let mut operations = self.suspender.iter().flat_map(|suspender| &suspender.ways[way].0);
        operations.any(|operation| operation.page.is_some_and(|(own, _)| own == block))
    }

    /// Sets whether the next programs are those of the write buffer, for which no request waits.
    pub fn write_back(&mut self, writes_back: bool) {
        if let Some(suspender) = &mut self.suspender {
            suspender.writes_back = writes_back;
        }
    }

    /// Notes a program of the host or of the write buffer.
    #[inline(always)]
    pub(super) fn note_program(&mut self, plane: PlaneId, page: (BlockId, u32), ready: Nanos, op: &PageOperationTimes) {
        if let Some(suspender) = &self.suspender {
            let kind = suspender.writes_back.then_some(SuspendableOperation::WriteBack);
            self.note(kind, (plane, Some(page)), ready, (op.end - op.array, op.end));
        }
    }

    /// Notes the last operation of a way, which was ready at `ready`, and on which the array works from `begin` to `end`. Its times may
    /// still change if its `kind` is given; otherwise the times of all operations of the way are final.
    #[cold]
    pub(super) fn note(
        &mut self, kind: Option<SuspendableOperation>, (plane, page): (PlaneId, Option<(BlockId, u32)>), ready: Nanos,
        (begin, end): (Nanos, Nanos),
    ) {
        let (way, Some(suspender)) = (self.planes[plane.index()].way as usize, &mut self.suspender) else { return };
        let (operations, before) = &mut suspender.ways[way];
        while operations.front().is_some_and(|first| first.end <= ready) {
            *before = operations.pop_front().map_or(*before, |first| first.end);
        }
        let Some(kind) = kind.filter(|_| begin < end) else {
            operations.clear();
            *before = self.ways[way].free;
            return;
        };
        let free = operations.back().map_or(*before, |last| last.end);
        let (resumes, reads, transferred) = (false, 0, Nanos::MIN);
        operations.push_back(DelayableOperation { kind, plane, page, free, begin, end, resumes, reads, transferred });
    }

    /// Makes the times of all operations final that end by `end`, because a request or later data waits for them.
    #[inline]
    pub fn fix(&mut self, end: Nanos) {
        for (operations, before) in self.suspender.iter_mut().flat_map(|suspender| &mut suspender.ways) {
            while operations.front().is_some_and(|first| first.end <= end) {
                *before = operations.pop_front().map_or(*before, |first| first.end);
            }
        }
    }

    /// The effect of the last read on operations, for observers.
    #[inline(always)]
    pub fn take_delay(&mut self) -> Option<OperationsDelayed> {
        self.suspender.as_mut()?.event.take()
    }

    /// The latest ends of the operations that became later since the last call.
    #[inline(always)]
    pub fn take_delayed_ends(&mut self) -> Option<DelayedEnds> {
        self.suspender.as_mut()?.ends.take()
    }

    /// Reads a page of a plane, and notes the read. A read for the host may go before other operations; `page` is `None` if no simulated
    /// block contains the page.
    #[cold]
    pub(super) fn read_and_note(
        &mut self, (plane, page, for_host): (PlaneId, Option<(BlockId, u32)>, bool), array: Nanos, ready: Nanos, bytes: u32,
    ) -> PageOperationTimes {
        let before = if for_host { self.read_before(plane, page, array, ready, bytes) } else { None };
        before.unwrap_or_else(|| {
            let op = self.read(plane, page.map_or(0, |(_, page)| page), array, ready, bytes);
            self.note(None, (plane, None), ready, (op.begin, op.end));
            op
        })
    }

    /// Reads a page for the host, before or within one of the last operations of its way; `None` if the read has to wait for all of them.
    fn read_before(
        &mut self, plane: PlaneId, page: Option<(BlockId, u32)>, array: Nanos, ready: Nanos, bytes: u32,
    ) -> Option<PageOperationTimes> {
        let number = self.planes[plane.index()].way as usize;
        let suspender = self.suspender.as_ref()?;
        let place = suspender.place(number, page, ready)?;
        let (operations, overhead) = (&suspender.ways[number].0, suspender.suspend + suspender.resume);
        let (first, last) = (operations[place.0], *operations.back()?);
        let (_, begin, suspends) = place;
        let (bus, command, cache) = (self.interface.read_time(bytes), self.interface.command, self.interface.cache_read);
        let PlaneResources { plane: entry, way, channel, die, .. } = self.resources(plane);
        let sensed = if command > Nanos::ZERO { channel.reserve(begin, command) + command } else { begin } + array;
        let end = if bus > Nanos::ZERO { channel.reserve(sensed.max(first.transferred), bus) + bus } else { sensed };
        let free = if cache { sensed } else { end };
        let gc = way.gc_share(ready, begin);
        entry.busy += (free - begin).0 as u64;
        die.book(begin, free);
        let delay = self.suspender.as_mut()?.delay(number, place, free, end);
        self.ways[number].delay(begin, delay);
        let overhead = if suspends { overhead } else { Nanos::ZERO };
        self.planes[first.plane.index()].busy += overhead.0 as u64;
        let die = self.planes[last.plane.index()].die;
        self.dies[die as usize].book(last.end, last.end + delay);
        let planes = (PlaneId(self.order[number].0 * self.planes_per_way), self.planes_per_way);
        let kind = suspends.then_some(first.kind);
        self.suspender.as_mut()?.event = Some(OperationsDelayed { planes, at: begin, delay, kind, overhead });
        Some(PageOperationTimes { begin, transferred: end, end, gc, array })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::geometry::Geometry;
    use crate::load::DeviceConfig;
    use crate::nand::{Nand, SourcePages};

    const US: i64 = 1000;

    /// A device of one plane: 3 us read, 10 us program, 50 us erase.
    fn nand(suspend: u32, resume: u32, limit: u32) -> Nand {
        let mut config = DeviceConfig::from_toml(emmclab_testing::SMALL_DEVICE).unwrap();
        let numbers = [suspend, resume, limit].map(|number| number.to_string());
        config
            .set_all(&[
                ("geometry.channels", "1"),
                ("geometry.planes_per_die", "1"),
                ("geometry.block_groups.0.read_us", "3"),
                ("geometry.block_groups.0.program_us", "10"),
                ("geometry.block_groups.0.erase_us", "50"),
                ("timing.suspend_us", &numbers[0]),
                ("timing.resume_us", &numbers[1]),
                ("timing.suspend_limit", &numbers[2]),
            ])
            .unwrap();
        Nand::new(config.settings(), &Geometry::new(config.settings()))
    }

    /// Reads a page of another block for the host. Returns begin and end in us.
    fn read(nand: &mut Nand, at: i64) -> (i64, i64) {
        let op = nand.read((BlockId(1), 0), Nanos(at * US), 0, Nanos::ZERO, true);
        (op.begin.0 / US, op.end.0 / US)
    }

    #[test]
    fn reads_that_meet_an_erase_take_the_times_calculated_by_hand() {
        let mut nand = nand(5, 7, 3);
        assert_eq!(nand.erase(BlockId(0), Nanos(0)).op.end, Nanos(50 * US));
        // The erase stops after 10 us; 40 us are left. It would go on at 18 us, after 7 us for the resumption.
        assert_eq!(read(&mut nand, 10), (15, 18));
        // It is still suspended, so that the second read only waits for the first.
        assert_eq!(read(&mut nand, 16), (18, 21));
        // It resumes until 28 us, and stops again at once; 40 us are left.
        assert_eq!(read(&mut nand, 25), (33, 36));
        // After three reads, the erase is not suspended again. It resumes until 43 us.
        assert_eq!(read(&mut nand, 40), (83, 86));
        assert_eq!(nand.timelines.load().planes, [50 + 4 * 3 + 2 * (5 + 7)].map(|us| us * US as u64));
    }

    #[test]
    fn data_that_is_moved_is_read_from_its_old_page_before_the_end_of_the_move() {
        let mut nand = nand(5, 7, 3);
        let mut reads = SourcePages::default();
        reads.add(&nand.groups[0], 0);
        let mut copies = nand.copies(BlockId(0), (BlockId(2), 0), Nanos(20 * US));
        assert_eq!(copies.page(reads, Nanos::ZERO), (Nanos(20 * US), Nanos(33 * US)));
        copies.finish();
        let op = nand.read((BlockId(2), 0), Nanos(21 * US), 0, Nanos::ZERO, true);
        assert_eq!((op.begin, op.end), (Nanos(26 * US), Nanos(29 * US)));
        assert_eq!(nand.timelines.plane_free(PlaneId(0)), Nanos((29 + 7 + 12) * US));
    }

    /// An operation or a read, simulated us by us.
    #[derive(Clone, Debug)]
    struct Task {
        number: usize,
        /// Time until it works, and time of its work.
        before: i64,
        left: i64,
        /// Whether time has been spent on it since it was planned or suspended.
        touched: bool,
        may_wait_for: u32,
    }

    /// A plane that executes tasks in order, and plans a read at its arrival.
    #[derive(Default)]
    struct PlaneByTheClock {
        now: i64,
        tasks: VecDeque<Task>,
        /// End of each task, and the time that the plane was busy.
        ends: Vec<i64>,
        busy: i64,
    }

    impl PlaneByTheClock {
        fn run_until(&mut self, until: i64) {
            while self.now < until {
                if let Some(task) = self.tasks.front_mut() {
                    task.touched = true;
                    *if task.before > 0 { &mut task.before } else { &mut task.left } -= 1;
                    self.busy += 1;
                    if task.before + task.left == 0 {
                        self.ends[task.number] = self.now + 1;
                        self.tasks.pop_front();
                    }
                }
                self.now += 1;
            }
        }

        fn read(&mut self, number: usize, (suspend, resume): (i64, i64)) {
            let read = Task { number, before: 0, left: 3, touched: false, may_wait_for: 0 };
            for i in 0..self.tasks.len() {
                let task = &mut self.tasks[i];
                if task.may_wait_for == 0 || task.touched && task.left <= suspend {
                    continue;
                }
                task.may_wait_for -= 1;
                // What is left of a resumption ends before the operation is suspended.
                let before = if task.touched { std::mem::replace(&mut task.before, resume) + suspend } else { 0 };
                task.touched = false;
                self.tasks.insert(i, Task { before, ..read });
                return;
            }
            self.tasks.push_back(read);
        }
    }

    proptest! {
        #[test]
        fn reads_and_operations_end_as_on_a_plane_that_is_simulated_us_by_us(
            (suspend, resume, limit) in (0..8u32, 0..8u32, 1..4u32),
            steps in prop::collection::vec((0..20i64, 0..8u8), 1..60),
        ) {
            let (mut nand, mut plane) = (nand(suspend, resume, limit), PlaneByTheClock::default());
            let (mut now, mut ends) = (0, Vec::new());
            for (number, (gap, step)) in steps.into_iter().enumerate() {
                now += gap;
                plane.run_until(now);
                plane.ends.push(0);
                if step > 3 {
                    let (_, end) = read(&mut nand, now);
                    if let Some(delay) = nand.timelines.take_delay() {
                        let affected = ends.iter_mut().filter(|end| delay.affects(PlaneId(0), Nanos(**end * US)));
                        affected.for_each(|end| *end += delay.delay.0 / US);
                    }
                    ends.push(end);
                    plane.read(number, (suspend.into(), resume.into()));
                    continue;
                }
                // An erase, a program of the write buffer, or one of the host, after which nothing before it changes.
                nand.timelines.write_back(step != 3);
                let (left, end) = if step == 0 {
                    (50, nand.erase(BlockId(0), Nanos(now * US)).op.end)
                } else {
                    nand.open(BlockId(2), Nanos(now * US));
                    (10, nand.program_next(BlockId(2), Nanos(now * US), 0).op.end)
                };
                ends.push(end.0 / US);
                if step == 3 {
                    plane.tasks.iter_mut().for_each(|task| task.may_wait_for = 0);
                }
                let may_wait_for = if step == 3 { 0 } else { limit };
                plane.tasks.push_back(Task { number, before: 0, left, touched: false, may_wait_for });
            }
            plane.run_until(now + 100_000);
            prop_assert_eq!(&ends, &plane.ends);
            prop_assert_eq!(nand.timelines.load().planes[0], (plane.busy * US) as u64);
            prop_assert_eq!(nand.timelines.load().dies[0], (plane.busy * US) as u64);
        }
    }
}
