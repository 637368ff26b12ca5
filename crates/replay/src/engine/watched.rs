//! Completions for callers that wait for them, each as soon as it is known, in any order.

use emmclab_device::{Observer, RequestCompleted};
use emmclab_trace::{Nanos, Result};
use rustc_hash::FxHashMap;

use super::Engine;
use crate::disks::Disks;
use crate::layered::{Done, Layered};

/// Completions that are known, but not yet returned to the caller.
#[derive(Default)]
pub(super) struct Watched {
    /// Numbers of requests, counted from 0, by the number that the layers gave them.
    numbers: FxHashMap<u64, u64>,
    next: u64,
    known: Vec<(u64, Nanos)>,
    done: Vec<Done>,
}

impl Watched {
    /// Records the number that the layers gave the next request.
    pub fn submitted(&mut self, id: u64) {
        self.numbers.insert(id, self.next);
        self.next += 1;
    }

    /// Adds a completion of the device; its time may be in the future.
    pub fn known(&mut self, event: &RequestCompleted) {
        self.known.push((event.id, event.complete));
    }

    /// Moves the completions of the layers here.
    pub fn take(&mut self, layers: &mut Layered) {
        layers.take_done(&mut self.done);
        for Done { id, event, .. } in self.done.drain(..) {
            if let Some(number) = self.numbers.remove(&id) {
                self.known.push((number, event.complete));
            }
        }
    }
}

impl Engine {
    /// Returns the engine with completions enabled for [`Engine::take_known`].
    pub fn watched(mut self) -> Self {
        self.bare = false;
        self.watched = Some(Box::default());
        if let Some(layers) = &mut self.layers {
            layers.keep_done();
        }
        self
    }

    /// Time of the next event that may complete a command.
    pub fn next_event(&self) -> Option<Nanos> {
        match &self.layers {
            Some(layers) => layers.next_event(&self.main, self.second.as_deref()),
            None => self.main.next_event(),
        }
    }

    /// Simulates up to and including `until`.
    ///
    /// # Errors
    /// As [`Engine::submit`].
    pub fn advance<O: Observer>(&mut self, until: Nanos, observer: &mut O) -> Result<()> {
        if let Some(layers) = &mut self.layers {
            let second = self.second.as_deref_mut();
            layers.advance(until, &mut Disks { main: &mut self.main, second, observer })?;
            if let Some(watched) = &mut self.watched {
                watched.take(layers);
            }
            return Ok(());
        }
        while self.main.next_event().is_some_and(|at| at <= until) {
            self.main.step(observer)?;
        }
        self.report(observer);
        Ok(())
    }

    /// Appends newly known completions, each with the number of its command, counted from 0. Their times may be in the future.
    pub fn take_known(&mut self, out: &mut Vec<(u64, Nanos)>) {
        if let Some(watched) = &mut self.watched {
            out.append(&mut watched.known);
        }
    }
}
