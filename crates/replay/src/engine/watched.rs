//! Completions for callers that wait for them: each as soon as it is known, in whatever order.

use emmclab_device::{Observer, RequestCompleted};
use emmclab_trace::{Nanos, Result};
use rustc_hash::FxHashMap;

use super::Engine;
use crate::disks::Disks;
use crate::layered::{Done, Layered};

/// Completions that are known and not taken.
#[derive(Default)]
pub(super) struct Watched {
    /// Numbers of requests, from 0 on, by those that the layers gave them.
    numbers: FxHashMap<u64, u64>,
    next: u64,
    known: Vec<(u64, Nanos)>,
    done: Vec<Done>,
}

impl Watched {
    /// The next request has this number among the layers.
    pub fn submitted(&mut self, id: u64) {
        self.numbers.insert(id, self.next);
        self.next += 1;
    }

    /// A request of the device is or will be complete.
    pub fn known(&mut self, event: &RequestCompleted) {
        self.known.push((event.id, event.complete));
    }

    /// Takes what the layers have completed.
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
    /// The same, with completions to be taken from [`Engine::take_known`].
    pub fn watched(mut self) -> Self {
        self.bare = false;
        self.watched = Some(Box::default());
        if let Some(layers) = &mut self.layers {
            layers.keep_done();
        }
        self
    }

    /// When something next happens that may complete a command.
    pub fn next_event(&self) -> Option<Nanos> {
        match &self.layers {
            Some(layers) => layers.next_event(&self.main, self.second.as_deref()),
            None => self.main.next_event(),
        }
    }

    /// Does everything that happens up to `until`, that time included.
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

    /// Adds the completions that have become known, by the numbers of their commands, from 0 on; times may lie ahead.
    pub fn take_known(&mut self, out: &mut Vec<(u64, Nanos)>) {
        if let Some(watched) = &mut self.watched {
            out.append(&mut watched.known);
        }
    }
}
