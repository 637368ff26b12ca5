//! Long sessions of several applications, one after another, with the share of small random writes that a paper states.
//!
//! Small random writes are those that the router of Kim & Kim logs: smaller than 8 KB, and not starting where the previous request ended.
//! All of them are kept, so their sizes, addresses and repetitions remain those of the model. Of the other writes, whole runs (requests
//! that continue each other) are left out until the share is reached.
//!
//! Published about `Phone_6H` of Kim & Kim: a section is full when 2,266 writes have gone to the original area (V-E). A new section logs
//! 22,938 writes of 4 KB (70 % of 128 MB), which is about ten logged writes for each write to the original area; the IISWC 2015 models have
//! about as many of both. Published about web browsing (`WebBench` of Kim et al., FAST 2012): about twice as many sequential as random
//! writes. This is interpreted as a ratio of bytes: by count the model already has that ratio (1.8), but only 6 % of its bytes are in small
//! random writes.
//!
//! Assumed, because nothing is published: which applications ran and in what order; sizes and addresses, taken from models of another
//! phone; `reused_starts_pct = 20`, and that requests to an earlier address are mostly small (both determine how much logged data is
//! overwritten before it is moved); that the writes left out are evenly spread. docs/papers/advil12.md states the effect of each
//! assumption.

use emmclab_trace::{Nanos, Op, Request, Result, Sector};

use super::Stream;
use crate::{SynthOptions, Synthesizer, presets};

/// Writes below this are small: 8 KB in sectors.
const SMALL: u32 = 16;

/// The ratio of small random writes to other writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteMixture {
    /// Number of writes other than small random writes, in the ratio `others` to `small`.
    pub others: u64,
    /// Term of the ratio for the small random writes.
    pub small: u64,
    /// Whether the ratio counts writes or bytes.
    pub by: MixtureUnit,
}

/// The quantity whose distribution a mixture of components describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MixtureUnit {
    Writes,
    Bytes,
}

impl WriteMixture {
    /// Drops writes that are not small random writes until the mixture has the specified ratio. If there are too few such writes, all are
    /// kept.
    pub fn thin(self, requests: impl Iterator<Item = Request>) -> impl Iterator<Item = Request> {
        let mut state = ThinnedStream { mixture: self, small: 0, others: 0, end: None, in_run: false, dropped_end: None };
        requests.filter(move |request| state.keeps(request))
    }
}

struct ThinnedStream {
    mixture: WriteMixture,
    /// Number of small random writes kept so far; their size in sectors if the ratio is one of bytes.
    small: u64,
    /// Writes kept so far that are not small random ones: their number, or their sectors if the mixture counts bytes.
    others: u64,
    /// Sector at which the last kept request ended.
    end: Option<Sector>,
    /// Whether the last kept request is a large write or a sequential write.
    in_run: bool,
    /// End of the last request in the sequential run that is being left out. A request that starts here belongs to the same run.
    dropped_end: Option<Sector>,
}

impl ThinnedStream {
    fn keeps(&mut self, request: &Request) -> bool {
        let end = Some(Sector(request.sector.0 + u64::from(request.sectors)));
        if request.op != Op::Write {
            // Sequential requests are recognised by the end of the previous read or write. Other requests are ignored.
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
            // If a request continues a sequential run, it is kept or dropped like the start of the run.
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

/// Applications of a session: those that a script can control.
pub(super) const APPLICATIONS: &[&str] = &[
    "Facebook", "WebBrowsing", "Twitter", "GoogleMaps", "Email", "AngryBirds", "Messaging", "CameraVideo", "Amazon", "Installing",
];
/// Web browsing only. The session is so long that small random writes fill the reserved area of 256 MB (Kim & Kim) nearly twice. Logged
/// data is therefore moved several times.
pub(super) const BROWSING: &[&str] = &["WebBrowsing"; 240];

/// The mixture of `Phone_6H` (Kim & Kim, V-E).
pub(super) const PHONE_6H: WriteMixture = WriteMixture { others: 2_266, small: 22_938, by: MixtureUnit::Writes };
/// The mixture of web browsing (Kim et al., FAST 2012, slide 21).
pub(super) const BROWSING_MIXTURE: WriteMixture = WriteMixture { others: 2, small: 1, by: MixtureUnit::Bytes };

/// Time for which each application runs, s.
const TURN_S: i64 = 6 * 3600 / 10;

/// The traces of the models, one after another. In each trace, writes are left out until the ratio of small random writes to other writes
/// is that of the mixture.
pub(super) fn session(names: &'static [&'static str], mixture: WriteMixture, seed: u64) -> Result<Stream> {
    // All models are checked before the first request is made.
    let mut turns = Vec::new();
    for (turn, name) in names.iter().enumerate() {
        let options = SynthOptions {
            seed: seed.wrapping_add(turn as u64),
            duration: Some(Nanos::from_secs(TURN_S)),
            ..SynthOptions::default()
        };
        turns.push(Synthesizer::new(&presets::model(name)?, &options)?);
    }
    let turns = turns.into_iter().enumerate().flat_map(|(turn, trace)| {
        // A second without requests, so that the last requests of one application complete before the next application begins.
        let begin = Nanos::from_secs(turn as i64 * (TURN_S + 1));
        trace.flat_map(move |batch| {
            let requests: Vec<Request> = batch.iter().map(|request| delayed(&request, begin)).collect();
            requests
        })
    });
    Ok(Box::new(mixture.thin(turns)))
}

fn delayed(request: &Request, by: Nanos) -> Request {
    let moved = |time: Option<Nanos>| time.map(|time| time + by);
    Request {
        arrival: request.arrival + by,
        start: moved(request.start),
        issue: moved(request.issue),
        served: moved(request.served),
        complete: moved(request.complete),
        process: None,
        device: None,
        ..*request
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emmclab_trace::Nanos;

    fn write(sector: u64, sectors: u32) -> Request {
        Request::new(Nanos(0), Op::Write, Sector(sector), sectors)
    }

    #[test]
    fn runs_of_other_writes_are_left_out_whole_until_the_mixture_is_right() {
        // Each element of the trace consists of a small random write and a run of three consecutive writes (two large ones and a small
        // one).
        let round = |i: u64| [write(i * 1000, 8), write(i * 1000 + 300, 64), write(i * 1000 + 364, 64), write(i * 1000 + 428, 8)];
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
