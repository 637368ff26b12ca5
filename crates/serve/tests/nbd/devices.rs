//! Devices that complete late.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use emmclab_serve::{BlockDevice, BlockRequest, Completion, Completions, Extent, Limits, MemoryDevice};

/// Completions of one request list, caught.
#[derive(Default)]
struct Caught(Mutex<Vec<Completion>>);

impl Completions for Caught {
    fn complete(&self, completed: &mut Vec<Completion>) {
        self.0.lock().unwrap().append(completed);
    }
}

/// The completions of a request list on `memory`.
fn caught(memory: &MemoryDevice, requests: &mut Vec<BlockRequest>) -> Vec<Completion> {
    let catcher = Arc::new(Caught::default());
    memory.submit(requests, &(Arc::clone(&catcher) as Arc<dyn Completions>));
    std::mem::take(&mut *catcher.0.lock().unwrap())
}

type Finished = (Completion, Arc<dyn Completions>);

/// A device whose completions come from another thread, late and out of order.
pub struct Late {
    memory: MemoryDevice,
    limits: Limits,
    queue: Sender<Finished>,
}

impl Late {
    /// A device of `sectors` sectors that takes requests of up to `max_sectors`.
    pub fn new(sectors: u64, max_sectors: u32) -> Self {
        let memory = MemoryDevice::new(sectors);
        let limits = Limits { max_sectors, ..memory.limits() };
        let (queue, finished) = channel::<Finished>();
        thread::spawn(move || {
            let mut state = 1_u64;
            while let Ok(first) = finished.recv() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                thread::sleep(Duration::from_micros(state >> 56));
                let mut waiting: Vec<Finished> = std::iter::once(first).chain(finished.try_iter()).collect();
                while !waiting.is_empty() {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let (completion, completions) =
                        waiting.swap_remove((state >> 33) as usize % waiting.len());
                    completions.complete(&mut vec![completion]);
                }
            }
        });
        Self { memory, limits, queue }
    }
}

impl BlockDevice for Late {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn submit(&self, requests: &mut Vec<BlockRequest>, completions: &Arc<dyn Completions>) {
        assert!(requests.iter().all(|request| request.sectors <= self.limits.max_sectors));
        for completion in caught(&self.memory, requests) {
            self.queue.send((completion, Arc::clone(completions))).unwrap();
        }
    }

    fn extents(&self, sector: u64, sectors: u64, most: usize, found: &mut Vec<Extent>) {
        self.memory.extents(sector, sectors, most, found);
    }
}

/// A device that keeps its completions until they are released.
pub struct Held {
    memory: MemoryDevice,
    kept: Mutex<Vec<Finished>>,
    seen: Mutex<Vec<BlockRequest>>,
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
    pub fn seen(&self) -> Vec<BlockRequest> {
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
    fn limits(&self) -> Limits {
        self.memory.limits()
    }

    fn submit(&self, requests: &mut Vec<BlockRequest>, completions: &Arc<dyn Completions>) {
        self.seen.lock().unwrap().extend_from_slice(requests);
        let finished = caught(&self.memory, requests);
        let finished = finished.into_iter().map(|completion| (completion, Arc::clone(completions)));
        self.kept.lock().unwrap().extend(finished);
    }

    fn extents(&self, sector: u64, sectors: u64, most: usize, found: &mut Vec<Extent>) {
        self.memory.extents(sector, sectors, most, found);
    }
}

/// A device that fails every request, with other limits than [`MemoryDevice`]'s.
pub struct Failing(pub emmclab_serve::Failure, pub Limits);

impl BlockDevice for Failing {
    fn limits(&self) -> Limits {
        self.1
    }

    fn submit(&self, requests: &mut Vec<BlockRequest>, completions: &Arc<dyn Completions>) {
        let failed = |request: BlockRequest| Completion { tag: request.tag, outcome: Err(self.0) };
        completions.complete(&mut requests.drain(..).map(failed).collect());
    }

    fn extents(&self, _: u64, _: u64, _: usize, _: &mut Vec<Extent>) {}
}
