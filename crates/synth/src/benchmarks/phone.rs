//! Sessions of several applications, one after the other.

use emmclab_trace::{Nanos, Request, Result};

use super::Stream;
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
/// Web browsing alone. The paper does not give the length of its recording; here, small random writes fill the paper's
/// reserved area of 256 MB nearly twice, so that logged data is moved several times.
pub(super) const BROWSING: &[&str] = &["WebBrowsing"; 240];

/// Each application has its turn.
const TURN_S: i64 = 6 * 3600 / 10;

/// The traces of the models, each for its turn, one behind the other.
pub(super) fn session(names: &'static [&'static str], seed: u64) -> Result<Stream> {
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
            let requests: Vec<Request> = batch.iter().map(|request| later(&request, begin)).collect();
            requests
        })
    });
    Ok(Box::new(turns))
}

fn later(request: &Request, by: Nanos) -> Request {
    let moved = |time: Option<Nanos>| time.map(|time| time + by);
    Request {
        arrival: request.arrival + by,
        start: moved(request.start),
        issue: moved(request.issue),
        complete: moved(request.complete),
        process: None,
        device: None,
        ..*request
    }
}
