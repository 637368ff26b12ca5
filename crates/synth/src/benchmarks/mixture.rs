//! A mixture of writes as a paper states it: the share of small random writes among all.
//!
//! Small random writes are those that Kim & Kim's router logs: smaller than 8 KB, and not starting where the previous request
//! ended. All of them are kept, so that their sizes, places and repetitions stay those of the model. Of the other writes,
//! whole runs (requests that continue each other) are left out until the share is right.

use emmclab_trace::{Op, Request, Sector};

/// Writes below this are small: 8 KB in sectors.
const SMALL: u32 = 16;

/// How the writes are to be mixed.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteMixture {
    /// Other writes for this many small random ones.
    pub others: u64,
    /// Small random writes that go with them.
    pub small: u64,
    /// The quantity that is counted.
    pub by: MixtureUnit,
}

/// The quantity that the shares of a mixture count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MixtureUnit {
    Writes,
    Bytes,
}

impl WriteMixture {
    /// Leaves out the other writes that are too many. If there are fewer of them than the mixture has, all are kept.
    pub fn thin(self, requests: impl Iterator<Item = Request>) -> impl Iterator<Item = Request> {
        let mut state =
            ThinnedStream { mixture: self, small: 0, others: 0, end: None, in_run: false, dropped_end: None };
        requests.filter(move |request| state.keeps(request))
    }
}

struct ThinnedStream {
    mixture: WriteMixture,
    /// Writes kept so far: their number, or their sectors if the mixture counts bytes.
    small: u64,
    others: u64,
    /// End of the last request that was kept.
    end: Option<Sector>,
    /// Whether that request is one of the other writes.
    in_run: bool,
    /// End of the run that is being left out.
    dropped_end: Option<Sector>,
}

impl ThinnedStream {
    fn keeps(&mut self, request: &Request) -> bool {
        let end = Some(Sector(request.sector.0 + u64::from(request.sectors)));
        if request.op != Op::Write {
            // The router compares a request only with the end of reads and writes.
            if request.op == Op::Read {
                (self.end, self.in_run, self.dropped_end) = (end, false, None);
            }
            return true;
        }
        let count = if self.mixture.by == MixtureUnit::Bytes { u64::from(request.sectors) } else { 1 };
        let goes_on = self.end == Some(request.sector);
        let left_out = self.dropped_end == Some(request.sector);
        let small = request.sectors < SMALL && !goes_on && !left_out;
        if small {
            self.small += count;
        } else {
            // A request that continues a run is kept or left out with the run.
            let enough = self.others * self.mixture.small >= self.small * self.mixture.others;
            if left_out || (enough && !(goes_on && self.in_run)) {
                self.dropped_end = end;
                return false;
            }
            self.others += count;
        }
        (self.end, self.in_run, self.dropped_end) = (end, !small, None);
        true
    }
}

#[cfg(test)]
mod tests {
    use emmclab_trace::Nanos;

    use super::*;

    fn write(sector: u64, sectors: u32) -> Request {
        Request::new(Nanos(0), Op::Write, Sector(sector), sectors)
    }

    #[test]
    fn runs_of_other_writes_are_left_out_whole_until_the_mixture_is_right() {
        // Each round: a small random write, then a run of two large writes and a small one that continues them.
        let round = |i: u64| {
            [write(i * 1000, 8), write(i * 1000 + 300, 64), write(i * 1000 + 364, 64), write(i * 1000 + 428, 8)]
        };
        let all: Vec<_> = (0..1000).flat_map(round).collect();
        for (mixture, wanted) in [
            (WriteMixture { others: 1, small: 10, by: MixtureUnit::Writes }, 0.1),
            (WriteMixture { others: 2, small: 1, by: MixtureUnit::Bytes }, 2.0),
        ] {
            let kept: Vec<_> = mixture.thin(all.iter().copied()).collect();
            let count = |request: &Request| {
                if mixture.by == MixtureUnit::Bytes { u64::from(request.sectors) } else { 1 }
            };
            let is_small = |request: &&Request| request.sector.0.is_multiple_of(1000);
            let small: u64 = kept.iter().filter(is_small).map(count).sum();
            let others: u64 = kept.iter().filter(|request| !is_small(request)).map(count).sum();
            assert_eq!(small, (0..1000).map(|i| count(&round(i)[0])).sum::<u64>(), "all small ones stay");
            let share = others as f64 / small as f64;
            assert!((share / wanted - 1.0).abs() < 0.05, "{share} instead of {wanted}");
            let lone = kept.iter().filter(|request| request.sector.0 % 1000 == 428).count();
            assert_eq!(lone, kept.iter().filter(|request| request.sector.0 % 1000 == 300).count(), "runs are whole");
        }
    }

    #[test]
    fn a_model_with_fewer_other_writes_than_the_mixture_keeps_all() {
        let all = [write(0, 8), write(500, 64), write(2000, 8)];
        let mixture = WriteMixture { others: 9, small: 1, by: MixtureUnit::Writes };
        assert_eq!(mixture.thin(all.into_iter()).count(), 3);
    }
}
