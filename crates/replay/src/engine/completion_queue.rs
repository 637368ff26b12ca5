//! Completions for callers that wait for them, each as soon as it is known, in any order.

use emmclab_device::{Observer, RequestCompleted};
use emmclab_trace::{Nanos, Result};
use rustc_hash::FxHashMap;

use super::ReplayEngine;
use crate::disk_pair::DiskPair;
use crate::simulated_stack::{SimulatedStack, WorkloadCompletion};

/// Completions that are known, but not yet returned to the caller.
#[derive(Default)]
pub(super) struct CompletionQueue {
    /// Numbers of requests, counted from 0, by the number that the layers gave them.
    numbers: FxHashMap<u64, u64>,
    next_number: u64,
    completions: Vec<(u64, Nanos)>,
    workload_completions: Vec<WorkloadCompletion>,
}

impl CompletionQueue {
    /// Records the number that the layers gave the next request.
    pub fn map_number(&mut self, id: u64) {
        self.numbers.insert(id, self.next_number);
        self.next_number += 1;
    }

    /// Adds a completion of the device; its time may be in the future.
    pub fn add_completion(&mut self, event: &RequestCompleted) {
        self.completions.push((event.id, event.complete));
    }

    /// Moves the completions of the layers here.
    pub fn take_from_layers(&mut self, layers: &mut SimulatedStack) {
        layers.take_done(&mut self.workload_completions);
        for WorkloadCompletion { id, event, .. } in self.workload_completions.drain(..) {
            if let Some(number) = self.numbers.remove(&id) {
                self.completions.push((number, event.complete));
            }
        }
    }
}

impl ReplayEngine {
    /// Returns the engine with completions enabled for [`ReplayEngine::take_completions`].
    pub fn with_completion_queue(mut self) -> Self {
        self.bare = false;
        self.completion_queue = Some(Box::default());
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
    /// As [`ReplayEngine::submit`].
    pub fn advance<O: Observer>(&mut self, until: Nanos, observer: &mut O) -> Result<()> {
        if let Some(layers) = &mut self.layers {
            let second = self.second.as_deref_mut();
            layers.advance(until, &mut DiskPair { main: &mut self.main, second, observer })?;
            if let Some(watched) = &mut self.completion_queue {
                watched.take_from_layers(layers);
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
    pub fn take_completions(&mut self, out: &mut Vec<(u64, Nanos)>) {
        if let Some(watched) = &mut self.completion_queue {
            out.append(&mut watched.completions);
        }
    }
}
