//! A device for tests of exports.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use emmclab_serve::{
    AllocationExtent, BlockDevice, BlockDeviceLimits, CompletionReceiver, MemoryDevice, RequestFailure, ServedCompletion,
    ServedRequest,
};

type Finished = (ServedCompletion, Arc<dyn CompletionReceiver>);

/// Time at which completions are delivered.
enum Delivery {
    AtOnce,
    /// Later, from another thread and out of order.
    Late(Sender<Finished>),
    /// When the test releases them.
    Held(Mutex<Vec<Finished>>),
}

/// The result of a request.
pub enum Fate {
    Done,
    Fails(RequestFailure),
    /// It is never completed.
    Lost,
}

/// A device in memory that records its requests, and completes or fails them as the test specifies.
pub struct TestDevice {
    memory: MemoryDevice,
    pub limits: BlockDeviceLimits,
    /// All requests that were received.
    pub requests: Mutex<Vec<ServedRequest>>,
    fate: Box<dyn Fn(&ServedRequest) -> Fate + Send + Sync>,
    knows_extents: bool,
    delivery: Delivery,
}

impl TestDevice {
    fn with(sectors: u64, delivery: Delivery) -> Self {
        let memory = MemoryDevice::new(sectors);
        let (limits, fate) = (memory.limits(), Box::new(|_: &ServedRequest| Fate::Done));
        Self { memory, limits, requests: Mutex::default(), fate, knows_extents: true, delivery }
    }

    pub fn new(sectors: u64) -> Self {
        Self::with(sectors, Delivery::AtOnce)
    }

    /// A device that accepts requests of up to `max_sectors`, and completes them later and out of order from another thread.
    pub fn late(sectors: u64, max_sectors: u32) -> Self {
        let (queue, finished) = channel::<Finished>();
        thread::spawn(move || {
            let mut random = emmclab_testing::SeededRandom::new(1);
            while let Ok(first) = finished.recv() {
                thread::sleep(Duration::from_micros(random.below(256) as u64));
                let mut waiting: Vec<Finished> = std::iter::once(first).chain(finished.try_iter()).collect();
                while !waiting.is_empty() {
                    let (completion, completions) = waiting.swap_remove(random.below(waiting.len()));
                    completions.complete(&mut vec![completion]);
                }
            }
        });
        Self::with(sectors, Delivery::Late(queue)).with_limits(|limits| limits.max_sectors = max_sectors)
    }

    pub fn with_limits(mut self, change: impl FnOnce(&mut BlockDeviceLimits)) -> Self {
        change(&mut self.limits);
        self
    }

    /// A device that keeps completions back until they are released.
    pub fn held(sectors: u64) -> Arc<Self> {
        Arc::new(Self::with(sectors, Delivery::Held(Mutex::default())))
    }

    /// A device that fails every request and does not report extents.
    pub fn failing(failure: RequestFailure, limits: BlockDeviceLimits) -> Arc<Self> {
        let device = Self { limits, knows_extents: false, ..Self::new(0) };
        Arc::new(device.with_fate(move |_| Fate::Fails(failure)))
    }

    pub fn with_fate(mut self, fate: impl Fn(&ServedRequest) -> Fate + Send + Sync + 'static) -> Self {
        self.fate = Box::new(fate);
        self
    }

    /// The device with one sector that can be neither read nor written.
    pub fn with_bad_sector(self, bad: u64) -> Self {
        let is_bad = move |request: &ServedRequest| (request.sector..request.end()).contains(&bad);
        self.with_fate(move |request| if is_bad(request) { Fate::Fails(RequestFailure::Io) } else { Fate::Done })
    }

    /// The requests since the last call.
    pub fn take(&self) -> Vec<ServedRequest> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<Finished>> {
        let Delivery::Held(kept) = &self.delivery else { panic!("this device keeps no completions") };
        kept.lock().unwrap()
    }

    /// Waits until the device keeps `count` completions back.
    pub fn wait_for(&self, count: usize) {
        while self.kept().len() < count {
            thread::yield_now();
        }
    }

    /// Number of completions that are kept back.
    pub fn count(&self) -> usize {
        self.kept().len()
    }

    pub fn release(&self) {
        let kept = std::mem::take(&mut *self.kept());
        for (completion, completions) in kept {
            completions.complete(&mut vec![completion]);
        }
    }
}

impl BlockDevice for TestDevice {
    fn limits(&self) -> BlockDeviceLimits {
        self.limits
    }

    fn submit(&self, requests: &mut Vec<ServedRequest>, completions: &Arc<dyn CompletionReceiver>) {
        assert!(requests.iter().all(|request| request.sectors <= self.limits.max_sectors));
        self.requests.lock().unwrap().extend_from_slice(requests);
        let mut finished = Vec::new();
        for request in requests.drain(..) {
            match (self.fate)(&request) {
                Fate::Done => {
                    let caught = Arc::new(Mutex::<Vec<ServedCompletion>>::default());
                    self.memory.submit(&mut vec![request], &(Arc::clone(&caught) as Arc<dyn CompletionReceiver>));
                    finished.append(&mut caught.lock().unwrap());
                }
                Fate::Fails(failure) => finished.push(ServedCompletion { tag: request.tag, outcome: Err(failure) }),
                Fate::Lost => {}
            }
        }
        let address = |completion| (completion, Arc::clone(completions));
        match &self.delivery {
            Delivery::AtOnce => completions.complete(&mut finished),
            Delivery::Late(queue) => finished.into_iter().map(address).for_each(|completion| queue.send(completion).unwrap()),
            Delivery::Held(kept) => kept.lock().unwrap().extend(finished.into_iter().map(address)),
        }
    }

    fn extents(&self, sector: u64, sectors: u64, most: usize, extents: &mut Vec<AllocationExtent>) {
        if self.knows_extents {
            self.memory.extents(sector, sectors, most, extents);
        }
    }
}
