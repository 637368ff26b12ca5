//! Classifies requests in the order of the file: in order, out of order, or after the clock was set back.

/// This many successive requests before the latest arrival show that the clock was set back; fewer are out of order.
const BACK_REQUESTS: usize = 256;
/// Each of them arrives at least this many nanoseconds before the latest arrival.
const BACK_NS: i64 = 1_000_000_000;

/// The class of a request, compared with those before it in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrderClass {
    /// The first request of the file.
    First,
    /// In order; this many nanoseconds after the latest arrival.
    Gap(u64),
    /// Less than a second before the latest arrival: out of order.
    Late,
    /// A second or more before the latest arrival, but too few such requests to show a jump.
    Stray,
    /// The first request after a backward jump, with the latest arrival before it, in nanoseconds.
    Back(i64),
}

/// A request, or its arrival alone.
pub(super) trait HasArrival {
    fn arrival(&self) -> i64;
}

/// Classifies requests in the order of the file. Fewer than 256 requests that cannot be classified yet are held back.
#[derive(Debug)]
pub(super) struct FileOrderClassifier<R> {
    /// Whether to search for backward jumps.
    looks_back: bool,
    /// Latest arrival since the last backward jump; `None` before the first request.
    latest: Option<i64>,
    /// Requests that may be the first after a jump.
    run: Vec<R>,
}

impl<R: HasArrival> FileOrderClassifier<R> {
    pub fn new(looks_back: bool) -> Self {
        Self { looks_back, latest: None, run: Vec::new() }
    }

    /// Adds the next request; calls `each` with the requests that are now classified, in the order of the file.
    pub fn take(&mut self, request: R, each: &mut impl FnMut(R, OrderClass)) {
        let arrival = request.arrival();
        let Some(latest) = self.latest else {
            self.latest = Some(arrival);
            return each(request, OrderClass::First);
        };
        if self.looks_back && arrival <= latest.saturating_sub(BACK_NS) {
            self.run.push(request);
            if self.run.len() == BACK_REQUESTS {
                self.jump_back(each);
            }
            return;
        }
        self.run.drain(..).for_each(|stray| each(stray, OrderClass::Stray));
        if arrival < latest {
            each(request, OrderClass::Late);
        } else {
            self.latest = Some(arrival);
            each(request, OrderClass::Gap(arrival.wrapping_sub(latest).cast_unsigned()));
        }
    }

    /// Skips requests that the caller has classified: they are in order, and arrive after those added before. `latest` is the
    /// arrival of the last one.
    pub fn skip_to(&mut self, latest: i64) {
        self.latest = Some(latest);
    }

    /// Classifies the requests held back; there are no further ones.
    pub fn finish(&mut self, each: &mut impl FnMut(R, OrderClass)) {
        while !self.run.is_empty() {
            self.jump_back(each);
        }
    }

    fn jump_back(&mut self, each: &mut impl FnMut(R, OrderClass)) {
        let Some(before) = self.latest else { return };
        let mut run = std::mem::take(&mut self.run).into_iter();
        if let Some(first) = run.next() {
            self.latest = Some(first.arrival());
            each(first, OrderClass::Back(before));
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
