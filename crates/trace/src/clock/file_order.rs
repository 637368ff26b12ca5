//! Requests in the order of the file: which follow, which stand out of order, and where the clock was set back.

/// Successive requests before the latest arrival that show a clock set back; fewer stand out of order.
const BACK_REQUESTS: usize = 256;
/// They arrive at least so much before it.
const BACK_NS: i64 = 1_000_000_000;

/// The place of a request in time, by those before it in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The first of all.
    First,
    /// So many nanoseconds behind the latest arrival.
    Gap(u64),
    /// Less than a second before the latest arrival: out of order.
    Late,
    /// A second or more before it, but too few to show a jump.
    Stray,
    /// The first one after a backward jump, from this latest arrival, in nanoseconds.
    Back(i64),
}

/// A request, or what is needed of one.
pub(super) trait Arrives {
    fn arrival(&self) -> i64;
}

/// Judges requests in the order of the file, and holds those back that are not judged yet: fewer than 256.
#[derive(Debug)]
pub(super) struct FileOrder<R> {
    /// Whether a jump is looked for at all.
    looks_back: bool,
    /// Latest arrival since the last backward jump; `None` before the first request.
    latest: Option<i64>,
    /// Requests that may be the first after a jump.
    run: Vec<R>,
}

impl<R: Arrives> FileOrder<R> {
    pub fn new(looks_back: bool) -> Self {
        Self { looks_back, latest: None, run: Vec::new() }
    }

    /// Takes the next request; `each` receives those that are judged, in the order of the file.
    pub fn take(&mut self, request: R, each: &mut impl FnMut(R, Step)) {
        let arrival = request.arrival();
        let Some(latest) = self.latest else {
            self.latest = Some(arrival);
            return each(request, Step::First);
        };
        if self.looks_back && arrival <= latest.saturating_sub(BACK_NS) {
            self.run.push(request);
            if self.run.len() == BACK_REQUESTS {
                self.jump_back(each);
            }
            return;
        }
        self.run.drain(..).for_each(|stray| each(stray, Step::Stray));
        if arrival < latest {
            each(request, Step::Late);
        } else {
            self.latest = Some(arrival);
            each(request, Step::Gap(arrival.wrapping_sub(latest).cast_unsigned()));
        }
    }

    /// Notes requests that were taken elsewhere: in order, and none of them before those here.
    pub fn skip_to(&mut self, latest: i64) {
        self.latest = Some(latest);
    }

    /// Judges those that are held back: no more come.
    pub fn finish(&mut self, each: &mut impl FnMut(R, Step)) {
        while !self.run.is_empty() {
            self.jump_back(each);
        }
    }

    fn jump_back(&mut self, each: &mut impl FnMut(R, Step)) {
        let Some(before) = self.latest else { return };
        let mut run = std::mem::take(&mut self.run).into_iter();
        if let Some(first) = run.next() {
            self.latest = Some(first.arrival());
            each(first, Step::Back(before));
        }
        run.for_each(|request| self.take(request, each));
    }

    /// The latest arrival since the last backward jump.
    pub fn latest(&self) -> Option<i64> {
        self.latest
    }

    /// Whether requests are held back.
    pub fn is_undecided(&self) -> bool {
        !self.run.is_empty()
    }
}
