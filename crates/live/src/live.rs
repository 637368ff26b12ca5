//! A live device: what exports and the command line hold.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use emmclab_base::{Error, Health, Kind, Result};
use emmclab_device::DeviceConfig;
use emmclab_layers::LayerConfig;
use emmclab_replay::{ImageStore, ReplayOptions, SimulationResult};
use emmclab_serve::{BlockDevice, BlockRequest, Completions, Extent, Limits};
use rustix::thread::set_current_timer_slack;

use crate::clock::{Clock, Pace};
use crate::core::{Core, Deliveries};
use crate::log::RunLog;
use crate::state::{self, Found};
use crate::status::Status;
use crate::trace::Recording;

/// Time between two looks at a device that has nothing to complete.
const IDLE: Duration = Duration::from_millis(200);

/// Options of a live device.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// Layers above it, the first on top.
    pub layers: Vec<LayerConfig>,
    /// A device beside it, for layers that use one.
    pub second: Option<DeviceConfig>,
    /// The way of simulated time.
    pub pace: Pace,
    /// On a free clock, whether the host's time between requests counts.
    pub think: bool,
    /// The file of the contents, kept with the device's state beside it; without, both are gone at the end.
    pub image: Option<PathBuf>,
    /// The same of the second device.
    pub second_image: Option<PathBuf>,
    /// The device's state before its first use, and the seed of that.
    pub replay: ReplayOptions,
    /// Check the device's invariants after every command.
    pub check: bool,
    /// A trace to record.
    pub record: Option<PathBuf>,
    /// A log of every command with its data, for the exploration of power cuts.
    pub log: Option<PathBuf>,
}

/// The state that the exports and the thread of the clock share.
struct Shared {
    core: Mutex<Core>,
    /// Wakes the thread of the clock: something is in progress, or the end has come.
    wake: Condvar,
    limits: Limits,
}

/// A simulated device, with its layers, as a block device. Requests come from any thread.
pub struct LiveDevice {
    shared: Arc<Shared>,
    clock: Mutex<Option<JoinHandle<()>>>,
    ending: Arc<std::sync::atomic::AtomicBool>,
    images: [Option<PathBuf>; 2],
    /// The state that an earlier run left.
    found: Found,
}

impl LiveDevice {
    /// A device as its image and options say: as it was left, else new or preconditioned (kept in `store`, where given).
    ///
    /// # Errors
    /// For an impossible device, layer or preconditioning; for an image of another device or layers, of another size, or in use; and
    /// where a file cannot be made.
    pub fn new(config: &DeviceConfig, options: &LiveOptions, store: Option<&ImageStore>) -> Result<Self> {
        let layers = state::recoverable(&options.layers)?;
        let (mut stack, found) = state::open(config, &layers, options, store)?;
        let recording =
            options.record.as_deref().map(|path| Recording::create(path, config.name())).transpose()?;
        let log = options.log.as_deref();
        let log = log.map(|path| RunLog::create(path, config, &layers, &mut stack)).transpose()?;
        let clock = Clock::new(options.pace, options.think);
        let core = Core::new((config, options.second.as_ref()), &layers, stack, clock, (recording, log))?;
        let shared = Arc::new(Shared { limits: core.limits(), core: Mutex::new(core), wake: Condvar::new() });
        let ending = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let thread = {
            let (shared, ending) = (shared.clone(), ending.clone());
            std::thread::Builder::new()
                .name("emmclab-clock".to_owned())
                .spawn(move || shared.follow_the_clock(&ending))
                .map_err(|error| Error::new(Kind::Io, format!("a thread cannot be started: {error}")))?
        };
        let images = [options.image.clone(), options.second_image.clone()];
        Ok(Self { shared, clock: Mutex::new(Some(thread)), ending, images, found })
    }

    /// The state that an earlier run of the image left.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// Cuts the power: requests in progress fail, and all that come until [`LiveDevice::restore`]; what was not programmed is lost.
    ///
    /// # Errors
    /// Where the image cannot be written, or a layer cannot recover.
    pub fn cut(&self) -> Result<()> {
        self.changed(Core::cut)
    }

    /// The workload says what it was told is safe: the line goes into the log, after every completion that was sent.
    pub fn acknowledge(&self, text: &str) {
        self.shared.core().acknowledge(text);
    }

    /// Gives this place in the log a name.
    pub fn mark(&self, text: &str) {
        self.shared.core().mark(text);
    }

    /// Ends the log, where there is one; the device goes on.
    ///
    /// # Errors
    /// Where the log cannot be written, now or before.
    pub fn end_log(&self) -> Result<()> {
        self.shared.core().end_log()
    }

    /// Power is back.
    pub fn restore(&self) {
        self.shared.core().restore();
    }

    /// Simulated time goes on in another way.
    pub fn set_pace(&self, pace: Pace) {
        self.shared.core().clock.set_pace(pace);
        self.shared.wake.notify_all();
    }

    /// Goes on with another value of a setting of the device; the change is noted in figures, result and state.
    ///
    /// # Errors
    /// As [`emmclab_device::Device::reconfigure`], and for settings of layers.
    pub fn set(&self, key: &str, value: &str) -> Result<()> {
        self.changed(|core| core.set(key, value))
    }

    /// Figures of the run begin now; what was served before counts no more.
    pub fn clear_counters(&self) {
        self.shared.core().clear_counters();
    }

    /// Has the layers move all data that they keep aside to its place; sums up the run with the time that this took.
    ///
    /// A later [`LiveDevice::result`] has that time only if no request came in between.
    ///
    /// # Errors
    /// On a clock that follows the host's, and with requests in progress.
    pub fn drain(&self) -> Result<SimulationResult> {
        self.changed(Core::drain)
    }

    /// Has the layers move all data to its place, for an image that is served without them from now on; nothing is to come but
    /// [`LiveDevice::stop`].
    ///
    /// # Errors
    /// As [`LiveDevice::drain`].
    pub fn make_plain(&self) -> Result<()> {
        self.changed(Core::make_plain)
    }

    /// Does `work` on the core and sends what it completes.
    fn changed<T>(&self, work: impl FnOnce(&mut Core) -> Result<T>) -> Result<T> {
        let mut core = self.shared.core();
        let done = work(&mut core);
        let deliveries = core.take_deliveries();
        drop(core);
        self.shared.wake.notify_all();
        deliver(deliveries);
        done
    }

    /// Figures now, and since the last call.
    pub fn status(&self) -> Status {
        self.shared.core().status()
    }

    /// The run so far, as a replay sums one up.
    pub fn result(&self) -> SimulationResult {
        self.shared.core().result()
    }

    /// The error that ended the service, if any. Requests fail from then on.
    pub fn broken(&self) -> Option<Error> {
        self.shared.core().broken.take()
    }

    /// Ends in good order: requests in progress are finished, the device programs what it holds, image and state are saved, the
    /// trace is put in place. Returns the sum of the run. Requests that come later fail.
    ///
    /// # Errors
    /// For a broken invariant, and where a file cannot be written.
    pub fn stop(&self) -> Result<SimulationResult> {
        self.ending.store(true, std::sync::atomic::Ordering::Relaxed);
        self.shared.wake.notify_all();
        let thread = self.clock.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // Its panic, if any, poisons nothing that is used here.
            let _ = thread.join();
        }
        let mut core = self.shared.core();
        let off = core.power_off();
        let deliveries = core.take_deliveries();
        let saved = off.and_then(|()| state::save(&self.images, &core));
        let result = core.result();
        for media in [core.stack.media(), core.stack.second_media()].into_iter().flatten() {
            media.image().release();
        }
        drop(core);
        deliver(deliveries);
        saved.map(|()| result)
    }
}

impl Shared {
    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes requests at their times, and lets an idle device work, until the end.
    fn follow_the_clock(&self, ending: &std::sync::atomic::AtomicBool) {
        // Waits end within microseconds of their time, not the usual 50. Without the permission, completions are later.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let mut core = self.core();
        let mut idle_at = Instant::now() + IDLE;
        while !ending.load(std::sync::atomic::Ordering::Relaxed) {
            if core.clock.pace() == Pace::Free {
                core = self.wake.wait_timeout(core, IDLE).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            core.go_on();
            let now = Instant::now();
            if now >= idle_at {
                core.idle();
                idle_at = now + IDLE;
            }
            let deliveries = core.take_deliveries();
            if !deliveries.is_empty() {
                drop(core);
                deliver(deliveries);
                core = self.core();
                continue;
            }
            let due = core.next_due().unwrap_or(idle_at).min(idle_at);
            let wait = due.saturating_duration_since(Instant::now());
            if !wait.is_zero() {
                core = self.wake.wait_timeout(core, wait).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

fn deliver(deliveries: Deliveries) {
    for (to, mut completed) in deliveries {
        to.complete(&mut completed);
    }
}

impl BlockDevice for LiveDevice {
    fn limits(&self) -> Limits {
        self.shared.limits
    }

    fn health(&self) -> Health {
        self.shared.core().health()
    }

    fn submit(&self, requests: &mut Vec<BlockRequest>, completions: &Arc<dyn Completions>) {
        let mut core = self.shared.core();
        let due = core.next_due();
        core.take(requests, completions);
        let deliveries = core.take_deliveries();
        let earlier = match (core.next_due(), due) {
            (Some(now), Some(before)) => now < before,
            (now, _) => now.is_some(),
        };
        drop(core);
        if earlier {
            self.shared.wake.notify_all();
        }
        deliver(deliveries);
    }

    fn extents(&self, sector: u64, sectors: u64, most: usize, found: &mut Vec<Extent>) {
        let core = self.shared.core();
        let end = sector.saturating_add(sectors).min(self.shared.limits.sectors);
        let start = found.len();
        let whole = Extent { sectors: end.saturating_sub(sector), allocated: true };
        let Some(media) = core.stack.media().filter(|_| core.stack.is_plain()) else {
            // A layer may keep a sector anywhere.
            return found.push(whole);
        };
        let read = media.runs(sector, end, |run| {
            if let Some(last) = found[start..].last_mut().filter(|last| last.allocated == run.data) {
                last.sectors += run.sectors;
                return true;
            }
            if found.len() - start < most {
                found.push(Extent { sectors: run.sectors, allocated: run.data });
                return true;
            }
            false
        });
        if read.is_err() {
            found.truncate(start);
            found.push(whole);
        }
    }
}

impl Drop for LiveDevice {
    fn drop(&mut self) {
        self.ending.store(true, std::sync::atomic::Ordering::Relaxed);
        self.shared.wake.notify_all();
        if let Some(thread) = self.clock.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}
