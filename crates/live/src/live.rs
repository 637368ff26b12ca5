//! The live device that exports and the command line use.

use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use emmclab_base::{DeviceHealth, Error, ErrorClass, Result};
use emmclab_device::DeviceConfig;
use emmclab_layers::{LayerConfig, recoverable};
use emmclab_replay::{ImageStore, ReplayOptions, SimulationResult};
use emmclab_serve::{AllocationExtent, BlockDevice, BlockDeviceLimits, CompletionReceiver, ServedRequest};
use rustix::thread::set_current_timer_slack;

use crate::clock::{ClockPace, LiveClock};
use crate::core::{Deliveries, LiveCore};
use crate::log::{RunLog, WorkloadLines};
use crate::state::{self, ImageBackups, PreviousRun};
use crate::status::LiveStatus;
use crate::trace_recording::LiveRecording;

/// Interval at which an idle device does background work.
const IDLE: Duration = Duration::from_millis(200);

/// Options of a live device.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// Layers above the device, the top one first.
    pub layers: Vec<LayerConfig>,
    /// Configuration of the second device, for layers that use two.
    pub second: Option<DeviceConfig>,
    /// How simulated time advances.
    pub pace: ClockPace,
    /// With [`ClockPace::Free`]: whether the host time between requests is added to simulated time.
    pub think: bool,
    /// The image file with the contents. The state of the device is stored in a file next to it. Without an image, both are lost at the end.
    pub image: Option<PathBuf>,
    /// The image of the second device.
    pub second_image: Option<PathBuf>,
    /// Options of a replay that also apply to a served device: the preconditioning before the first use and its seed.
    pub replay: ReplayOptions,
    /// Whether the invariants of the device model are checked after every command.
    pub check: bool,
    /// Path of the trace file to record; `None` for no recording.
    pub record: Option<PathBuf>,
    /// Path of the log with every command and its data, for the exploration of power cuts.
    pub log: Option<PathBuf>,
}

/// The state that the exports and the clock thread share.
struct LiveSharedState {
    core: Mutex<LiveCore>,
    /// Wakes the clock thread when a request is in progress or the device stops.
    wake: Condvar,
    ending: AtomicBool,
    limits: BlockDeviceLimits,
}

/// A simulated device with its layers as a block device. Any thread may submit requests.
pub struct LiveDevice {
    shared: Arc<LiveSharedState>,
    clock: Mutex<Option<JoinHandle<()>>>,
    images: [Option<PathBuf>; 2],
    /// State of the image at the start of this run, as earlier runs have left it.
    previous_run: PreviousRun,
    /// The state of the images before the run.
    image_backups: Mutex<ImageBackups>,
}

impl LiveDevice {
    /// Opens a device in the state of its image. Without an image, the device is new or preconditioned; `store` caches preconditioned
    /// states.
    /// Errors: an invalid device, layer or preconditioning; an image of another device, layers or size, or in use by another process; a
    /// file that cannot be created.
    pub fn new(config: &DeviceConfig, options: &LiveOptions, store: Option<&ImageStore>) -> Result<Self> {
        let layers = recoverable(&options.layers)?;
        let (mut stack, previous, mut former) = state::open(config, &layers, options, store)?;
        let recording = options.record.as_deref().map(|path| LiveRecording::create(path, config.name())).transpose()?;
        let log = options.log.as_deref();
        let log = log.map(|path| RunLog::create(path, config, &layers, &mut stack)).transpose()?;
        let clock = LiveClock::new(options.pace, options.think);
        let core = LiveCore::new((config, options.second.as_ref()), &layers, stack, clock, (recording, log))?;
        let (limits, ending) = (core.limits, AtomicBool::new(false));
        let shared = Arc::new(LiveSharedState { limits, core: Mutex::new(core), wake: Condvar::new(), ending });
        let thread = {
            let shared = shared.clone();
            std::thread::Builder::new()
                .name("emmclab-clock".to_owned())
                .spawn(move || shared.follow_the_clock())
                .map_err(|error| Error::new(ErrorClass::Io, format!("a thread cannot be started: {error}")))?
        };
        let images = [options.image.clone(), options.second_image.clone()];
        former.is_needed = false;
        let (clock, former) = (Mutex::new(Some(thread)), Mutex::new(former));
        Ok(Self { shared, clock, images, previous_run: previous, image_backups: former })
    }

    /// Returns the state of the image at the start of this run, as earlier runs have left it.
    pub fn previous_run(&self) -> &PreviousRun {
        &self.previous_run
    }

    /// Cuts the power: requests in progress fail, and so do all later ones until [`LiveDevice::restore`]. Data that is not
    /// programmed is lost.
    /// Errors: if the image cannot be written, or a layer cannot recover.
    pub fn cut(&self) -> Result<()> {
        self.with_core(LiveCore::cut)
    }

    /// Adds a line of the workload to the command log, after the completions that were delivered before. With this line, the workload
    /// states that its data is safe.
    pub fn acknowledge(&self, text: &str) {
        self.shared.core().acknowledge(text);
    }

    /// Reads lines from `input` by which a workload states that its data is safe. Adds each line to the log before the next request of the
    /// device, and writes one byte to `answers` for each line.
    /// Errors: if `input` cannot be set to non-blocking reads.
    pub fn follow(&self, input: OwnedFd, answers: Option<OwnedFd>) -> Result<()> {
        let lines = WorkloadLines::new(input, answers)
            .map_err(|error| Error::new(ErrorClass::Io, format!("the lines of the workload cannot be read: {error}")))?;
        self.shared.core().follow(lines);
        Ok(())
    }

    /// Returns the output lines of the workload that were logged since the last call.
    pub fn new_lines(&self) -> Vec<String> {
        self.shared.core().new_lines()
    }

    /// Adds a mark with this name to the command log at the current position.
    pub fn mark(&self, text: &str) {
        self.shared.core().mark(text);
    }

    /// Completes the command log, if there is one; the device continues without a log.
    /// Errors: if the log cannot be written now or could not be written before.
    pub fn end_log(&self) -> Result<()> {
        self.shared.core().end_log()
    }

    /// Restores the power.
    pub fn restore(&self) {
        self.shared.core().restore();
    }

    /// Changes how simulated time advances.
    pub fn set_pace(&self, pace: ClockPace) {
        self.shared.core().clock.set_pace(pace);
        self.shared.wake.notify_all();
    }

    /// Changes a setting of the device; the change is recorded in status, result and state.
    /// Errors: as [`emmclab_device::Device::reconfigure`], and for settings of layers.
    pub fn set(&self, key: &str, value: &str) -> Result<()> {
        self.with_core(|core| core.set(key, value))
    }

    /// Resets the statistics of the run.
    pub fn clear_counters(&self) {
        self.shared.core().clear_counters();
    }

    /// Makes the layers move all data to its final location. Returns the result of the run, including the time that the layers need.
    ///
    /// A later [`LiveDevice::result`] includes that time only if no request arrived in between.
    /// Errors: if the clock is not free ([`ClockPace::Free`]), or requests are in progress.
    pub fn drain(&self) -> Result<SimulationResult> {
        self.with_core(LiveCore::drain)
    }

    /// Makes the layers move all data to its final location, for an image that will be served without layers. Afterwards only
    /// [`LiveDevice::stop`] may be called.
    /// Errors: as [`LiveDevice::drain`].
    pub fn make_plain(&self) -> Result<()> {
        self.with_core(LiveCore::make_plain)
    }

    /// Calls `work` with the locked state of the device, then delivers the completions.
    fn with_core<T>(&self, work: impl FnOnce(&mut LiveCore) -> Result<T>) -> Result<T> {
        let mut core = self.shared.core();
        let done = work(&mut core);
        let deliveries = core.take_deliveries();
        drop(core);
        self.shared.wake.notify_all();
        deliver(deliveries);
        done
    }

    /// The current status, with figures for the interval since the last call.
    pub fn status(&self) -> LiveStatus {
        self.shared.core().status()
    }

    /// Returns the result of the run until now, in the same form as the result of a replay.
    pub fn result(&self) -> SimulationResult {
        self.shared.core().result()
    }

    /// The error that ended the service, if there was one; all later requests fail.
    pub fn broken(&self) -> Option<Error> {
        self.shared.core().broken.take()
    }

    /// Ends a run whose start failed. The file of an existing trace is not replaced; images that no request has changed are
    /// restored, and new ones are removed.
    /// Errors: if a changed image or its state cannot be written.
    pub fn abort(&self) -> Result<()> {
        self.end_clock();
        let mut core = self.shared.core();
        core.recording = None;
        let keep = core.changing_requests > 0 && self.previous_run.image;
        drop(core);
        let ended = self.end(keep);
        if !keep {
            self.image_backups.lock().unwrap_or_else(PoisonError::into_inner).restore();
        }
        ended.map(drop)
    }

    /// Whether the trace of the run was written; valid after [`LiveDevice::stop`]. A trace without requests does not replace an
    /// existing file.
    pub fn is_recorded(&self) -> bool {
        self.shared.core().is_recorded
    }

    /// Shuts the device down: completes the requests in progress, programs cached data, saves image and state, and completes the
    /// trace. Returns the result of the run. Later requests fail.
    /// Errors: a violated invariant, or a file that cannot be written.
    pub fn stop(&self) -> Result<SimulationResult> {
        self.end_clock();
        self.end(true)
    }

    fn end_clock(&self) {
        self.shared.ending.store(true, Ordering::Relaxed);
        self.shared.wake.notify_all();
        let thread = self.clock.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of the clock thread is ignored. The state that is needed to end the device remains valid.
            let _ = thread.join();
        }
    }

    /// Ends all requests, and saves the images if `keep` is set.
    fn end(&self, keep: bool) -> Result<SimulationResult> {
        let mut core = self.shared.core();
        let off = core.power_off();
        let deliveries = core.take_deliveries();
        let saved = off.and_then(|()| if keep { state::save(&self.images, &core) } else { Ok(()) });
        let result = core.result();
        for media in [core.stack.media(), core.stack.second_media()].into_iter().flatten() {
            media.image().release();
        }
        drop(core);
        deliver(deliveries);
        saved.map(|()| result)
    }
}

impl LiveSharedState {
    fn core(&self) -> MutexGuard<'_, LiveCore> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The work of the clock thread until the device stops: completes requests at their times, and makes an idle device do background work.
    fn follow_the_clock(&self) {
        // With a timer slack of 1 ns, the thread wakes up within microseconds of its deadline instead of the usual 50 us. If this is not
        // permitted, completions are later.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let mut core = self.core();
        let mut idle_at = Instant::now() + IDLE;
        while !self.ending.load(Ordering::Relaxed) {
            if core.clock.pace() == ClockPace::Free {
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
    fn limits(&self) -> BlockDeviceLimits {
        self.shared.limits
    }

    fn health(&self) -> DeviceHealth {
        self.shared.core().health()
    }

    fn submit(&self, requests: &mut Vec<ServedRequest>, completions: &Arc<dyn CompletionReceiver>) {
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

    fn extents(&self, sector: u64, sectors: u64, most: usize, extents: &mut Vec<AllocationExtent>) {
        let core = self.shared.core();
        let end = sector.saturating_add(sectors).min(self.shared.limits.sectors);
        let start = extents.len();
        let whole = AllocationExtent { sectors: end.saturating_sub(sector), allocated: true };
        let Some(media) = core.stack.media().filter(|_| core.stack.is_plain()) else {
            // A layer may store a sector anywhere, so the whole range is reported as allocated.
            return extents.push(whole);
        };
        let read = media.runs(sector, end, |run| {
            if let Some(last) = extents[start..].last_mut().filter(|last| last.allocated == run.data) {
                last.sectors += run.sectors;
                return true;
            }
            if extents.len() - start < most {
                extents.push(AllocationExtent { sectors: run.sectors, allocated: run.data });
                return true;
            }
            false
        });
        if read.is_err() {
            extents.truncate(start);
            extents.push(whole);
        }
    }
}

impl Drop for LiveDevice {
    fn drop(&mut self) {
        self.end_clock();
    }
}
