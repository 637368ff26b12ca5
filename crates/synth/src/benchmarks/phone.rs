//! Sessions of several applications, one after the other, with the mixture of writes that the papers state.
//!
//! Published about Kim & Kim's `Phone_6H`: a section fills when 2,266 writes have gone to the original area (V-E). A new section
//! logs 22,938 writes of 4 KB (70 % of 128 MB), which is about ten logged writes for each one to the original area; the IISWC
//! 2015 models have about as many of both. Published about web browsing (`WebBench` of Kim et al., FAST 2012): about twice as
//! many sequential as random writes, interpreted here as a ratio of bytes, because the model already has that ratio by count
//! (1.8), but only 6 % of its bytes are in small random writes.
//!
//! Assumed, because nothing is published: which applications ran and in what order; sizes and places, from models of another
//! phone; `reused_starts_pct = 20`, and that requests to an earlier address are mostly small (both determine how much logged
//! data is overwritten before it is moved); that the writes left out are evenly spread. docs/papers/advil12.md gives the
//! effect of each.

use emmclab_trace::{Nanos, Request, Result};

use super::Stream;
use super::mixture::{MixtureUnit, WriteMixture};
use crate::{SynthOptions, Synthesizer, presets};

/// Applications that a script can drive.
pub(super) const APPLICATIONS: &[&str] = &[
    "Facebook",
    "WebBrowsing",
    "Twitter",
    "GoogleMaps",
    "Email",
    "AngryBirds",
    "Messaging",
    "CameraVideo",
    "Amazon",
    "Installing",
];
/// Web browsing alone, for so long that small random writes fill the reserved area of 256 MB of Kim & Kim nearly twice: logged data is
/// moved several times.
pub(super) const BROWSING: &[&str] = &["WebBrowsing"; 240];

/// The mixture of `Phone_6H` (Kim & Kim, V-E).
pub(super) const PHONE_6H: WriteMixture = WriteMixture { others: 2_266, small: 22_938, by: MixtureUnit::Writes };
/// The mixture of web browsing (Kim et al., FAST 2012, slide 21).
pub(super) const BROWSING_MIXTURE: WriteMixture = WriteMixture { others: 2, small: 1, by: MixtureUnit::Bytes };

/// Duration of each application's turn, s.
const TURN_S: i64 = 6 * 3600 / 10;

/// The traces of the models, each for its turn, one after the other, with their writes thinned to a mixture.
pub(super) fn session(names: &'static [&'static str], mixture: WriteMixture, seed: u64) -> Result<Stream> {
    // Faults of a model are reported before the first request.
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
        // A second of rest, so that the last requests of a turn are complete before the next.
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
