//! Executes file operations by the host model, on a device in simulated time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use emmclab_base::{Nanos, Result};
use emmclab_host::{
    BlockRequestId, CallerId, FileId, FileOp, FileSpec, FinishedOperations, HostBlockRequests, SimulatedHost,
};
use rustc_hash::FxHashMap;

use super::{FileStore, StorageBackend};
use crate::block_device::SimulatedBlockDevice;
use crate::requests::{CountedRequest, RequestCounter, RequestCounts};
use crate::what_if::WhatIfTarget;

impl FileStore for SimulatedHost {
    fn declare(&mut self, file: FileId, spec: FileSpec) -> Result<()> {
        Self::declare(self, file, spec)
    }

    fn preload(&mut self, file: FileId, bytes: u64) -> Result<()> {
        Self::preload(self, file, bytes)
    }
}

/// A host, and the device that completes its block requests.
pub(crate) struct SimulatedStorage<'a, D> {
    host: SimulatedHost,
    device: &'a mut D,
    /// Names of the mounts.
    partitions: Vec<&'a str>,
    what_if: &'a [WhatIfTarget],
    now: Nanos,
    /// Requests in the device, by number.
    under_way: FxHashMap<u64, CountedRequest>,
    /// Known future completions, ordered by time, then by the order in which they became known.
    completions: BinaryHeap<Reverse<(Nanos, u64, u64)>>,
    completions_known: u64,
    counter: RequestCounter,
    /// Buffers that are reused.
    blocks: HostBlockRequests,
    known_completions: Vec<(u64, Nanos)>,
    free: Vec<(BlockRequestId, CountedRequest)>,
}

impl<'a, D: SimulatedBlockDevice> SimulatedStorage<'a, D> {
    pub fn new(host: SimulatedHost, device: &'a mut D, partitions: Vec<&'a str>, what_if: &'a [WhatIfTarget]) -> Self {
        Self {
            host,
            device,
            partitions,
            what_if,
            now: Nanos::ZERO,
            under_way: FxHashMap::default(),
            completions: BinaryHeap::new(),
            completions_known: 0,
            counter: RequestCounter::default(),
            blocks: HostBlockRequests::default(),
            known_completions: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Counts of the requests to the device.
    pub fn counts(&self) -> RequestCounts {
        self.counter.counts()
    }

    /// Work of the kernel's own threads, in ns on a core of CPU factor 1.
    pub fn kernel_cpu_ns(&self) -> u64 {
        self.host.kernel_cpu_ns()
    }

    /// Passes requests of the host to the device until there are no more. Those of an infinitely fast part are completed at once.
    fn pump(&mut self) -> Result<()> {
        loop {
            let mut blocks = std::mem::take(&mut self.blocks);
            self.host.take_requests(&mut blocks);
            let sent = blocks.requests.iter().try_for_each(|block| {
                let counted = self.counter.submit(block, blocks.notes(block), self.now);
                let partition = self.partitions[usize::from(block.mount.0)];
                if self.what_if.iter().any(|part| part.takes(block, partition)) {
                    self.free.push((block.id, counted));
                    return Ok(());
                }
                self.under_way.insert(block.id.0, counted);
                self.device.submit(self.now, block.id.0, &block.request, blocks.notes(block))
            });
            blocks.clear();
            self.blocks = blocks;
            sent?;
            self.learn();
            if self.free.is_empty() {
                return Ok(());
            }
            let mut free = std::mem::take(&mut self.free);
            for (id, counted) in free.drain(..) {
                self.counter.complete(counted, self.now);
                self.host.completed(id, self.now);
            }
            self.free = free;
        }
    }

    /// Collects completions that have become known.
    fn learn(&mut self) {
        self.device.take_completed(&mut self.known_completions);
        for (number, at) in self.known_completions.drain(..) {
            self.completions_known += 1;
            self.completions.push(Reverse((at.max(self.now), self.completions_known, number)));
        }
    }
}

impl<D: SimulatedBlockDevice> StorageBackend for SimulatedStorage<'_, D> {
    fn begin(&mut self, caller: CallerId, now: Nanos, operation: &FileOp) -> Result<()> {
        self.now = now;
        self.host.begin(caller, now, operation)?;
        self.pump()
    }

    fn next_event(&self) -> Option<Nanos> {
        let completion = self.completions.peek().map(|Reverse((at, ..))| *at);
        [completion, self.host.next_event(), self.device.next_event()].into_iter().flatten().min()
    }

    fn wait(&mut self, next: Option<Nanos>) -> Result<Option<Nanos>> {
        Ok(next)
    }

    fn advance(&mut self, now: Nanos) -> Result<()> {
        self.now = now;
        self.device.advance(now)?;
        self.learn();
        while let Some(Reverse((at, _, number))) = self.completions.peek().copied()
            && at <= now
        {
            self.completions.pop();
            if let Some(counted) = self.under_way.remove(&number) {
                self.counter.complete(counted, now);
                self.host.completed(BlockRequestId(number), now);
                self.pump()?;
            }
        }
        if self.host.next_event().is_some_and(|at| at <= now) {
            self.host.advance(now);
            self.pump()?;
        }
        Ok(())
    }

    fn take_finished(&mut self, out: &mut FinishedOperations) {
        self.host.take_finished(out);
    }
}
