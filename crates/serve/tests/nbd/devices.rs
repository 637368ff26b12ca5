//! Devices that complete late.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use emmclab_serve::{
    AllocationExtent, BlockDevice, BlockDeviceLimits, CompletionReceiver, MemoryDevice, ServedCompletion, ServedRequest,
};

/// Completions of one request list, caught.
#[derive(Default)]
struct Caught(Mutex<Vec<ServedCompletion>>);

impl CompletionReceiver for Caught {
    fn complete(&self, completed: &mut Vec<ServedCompletion>) {
        self.0.lock().unwrap().append(completed);
    }
}

/// The completions of a request list on `memory`.
fn caught(memory: &MemoryDevice, requests: &mut Vec<ServedRequest>) -> Vec<ServedCompletion> {
    let catcher = Arc::new(Caught::default());
    memory.submit(requests, &(Arc::clone(&catcher) as Arc<dyn CompletionReceiver>));
    std::mem::take(&mut *catcher.0.lock().unwrap())
}

type Finished = (ServedCompletion, Arc<dyn CompletionReceiver>);

/// A device whose completions come from another thread, late and out of order.
pub struct Late {
    memory: MemoryDevice,
    limits: BlockDeviceLimits,
    queue: Sender<Finished>,
}

impl Late {
    /// A device of `sectors` sectors that takes requests of up to `max_sectors`.
    pub fn new(sectors: u64, max_sectors: u32) -> Self {
        let memory = MemoryDevice::new(sectors);
        let limits = BlockDeviceLimits { max_sectors, ..memory.limits() };
        let (queue, finished) = channel::<Finished>();
        thread::spawn(move || {
            let mut state = 1_u64;
            while let Ok(first) = finished.recv() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                thread::sleep(Duration::from_micros(state >> 56));
                let mut waiting: Vec<Finished> = std::iter::once(first).chain(finished.try_iter()).collect();
                while !waiting.is_empty() {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let (completion, completions) = waiting.swap_remove((state >> 33) as usize % waiting.len());
                    completions.complete(&mut vec![completion]);
                }
            }
        });
        Self { memory, limits, queue }
    }
}

impl BlockDevice for Late {
    fn limits(&self) -> BlockDeviceLimits {
        self.limits
    }

    fn submit(&self, requests: &mut Vec<ServedRequest>, completions: &Arc<dyn CompletionReceiver>) {
        assert!(requests.iter().all(|request| request.sectors <= self.limits.max_sectors));
        for completion in caught(&self.memory, requests) {
            self.queue.send((completion, Arc::clone(completions))).unwrap();
        }
    }

    fn extents(&self, sector: u64, sectors: u64, most: usize, found: &mut Vec<AllocationExtent>) {
        self.memory.extents(sector, sectors, most, found);
    }
}

/// A device that keeps its completions until they are released.
pub struct Held {
    memory: MemoryDevice,
    kept: Mutex<Vec<Finished>>,
    seen: Mutex<Vec<ServedRequest>>,
}

impl Held {
    pub fn new(sectors: u64) -> Self {
        Self { memory: MemoryDevice::new(sectors), kept: Mutex::default(), seen: Mutex::default() }
    }

    /// Requests that are not complete.
    pub fn count(&self) -> usize {
        self.kept.lock().unwrap().len()
    }

    /// All requests that came.
    pub fn seen(&self) -> Vec<ServedRequest> {
        self.seen.lock().unwrap().clone()
    }

    pub fn release(&self) {
        let kept = std::mem::take(&mut *self.kept.lock().unwrap());
        for (completion, completions) in kept {
            completions.complete(&mut vec![completion]);
        }
    }
}

impl BlockDevice for Held {
    fn limits(&self) -> BlockDeviceLimits {
        self.memory.limits()
    }

    fn submit(&self, requests: &mut Vec<ServedRequest>, completions: &Arc<dyn CompletionReceiver>) {
        self.seen.lock().unwrap().extend_from_slice(requests);
        let finished = caught(&self.memory, requests);
        let finished = finished.into_iter().map(|completion| (completion, Arc::clone(completions)));
        self.kept.lock().unwrap().extend(finished);
    }

    fn extents(&self, sector: u64, sectors: u64, most: usize, found: &mut Vec<AllocationExtent>) {
        self.memory.extents(sector, sectors, most, found);
    }
}

/// A device that fails every request, with other limits than [`MemoryDevice`]'s.
pub struct Failing(pub emmclab_serve::RequestFailure, pub BlockDeviceLimits);

impl BlockDevice for Failing {
    fn limits(&self) -> BlockDeviceLimits {
        self.1
    }

    fn submit(&self, requests: &mut Vec<ServedRequest>, completions: &Arc<dyn CompletionReceiver>) {
        let failed = |request: ServedRequest| ServedCompletion { tag: request.tag, outcome: Err(self.0) };
        completions.complete(&mut requests.drain(..).map(failed).collect());
    }

    fn extents(&self, _: u64, _: u64, _: usize, _: &mut Vec<AllocationExtent>) {}
}
