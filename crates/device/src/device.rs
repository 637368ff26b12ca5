//! The simulated device, which accepts requests in order of arrival and returns when each of them completes.

use emmclab_base::{CommandFlags, DeviceHealth, Error, ErrorClass, Nanos, Op, Request, Result};
use emmclab_settings::{CellMode, DeviceSettings, InterfaceKind, SlcMode};

use crate::controller::{DeviceController, LowerLayers, ZoneTable};
use crate::counters::DeviceCounters;
use crate::events::{AnyObserver, CompletionObserver, DynObserver, NullObserver, Observer, RequestCompleted};
use crate::ftl::gc::VictimPolicy;
use crate::ftl::{Ftl, MapCacheSummary, StopReason};
use crate::geometry::Geometry;
use crate::ids::{BlockId, Lpn, PlaneId, PoolId, Ppn};
use crate::image;
use crate::load::DeviceConfig;
use crate::nand::{BlockState, FlashBusyTimes, Nand};
use crate::zones::{ZoneAction, ZoneDescriptor};

/// A simulated eMMC or UFS: a controller above an FTL above flash. Memory is allocated at its first use, so a device of any size is created
/// at once.
#[derive(Clone)]
pub struct Device {
    pub(crate) controller: DeviceController,
    pub(crate) ftl: Ftl,
    pub(crate) nand: Nand,
    counters: DeviceCounters,
}

/// The current state of an erase block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EraseBlockSummary {
    /// Number of valid map units.
    pub valid: u32,
    /// Number of programmed pages, which is also the index of the next page to program.
    pub written: u32,
    /// Number of erases so far.
    pub erases: u32,
    /// Plane of the block.
    pub plane: PlaneId,
    /// Block group of the block.
    pub group: u8,
    /// State of the block.
    pub state: BlockState,
}

/// An operation that `Device::act` executes.
#[derive(Clone, Copy)]
enum DeviceOperation<'a> {
    Submit(&'a DeviceCommand),
    Packed(&'a [DeviceCommand]),
    Zone(u32, ZoneAction),
    Advance(Nanos),
    Settle,
    PowerOff,
    FoldCache,
}

impl Device {
    /// Creates a device without data.
    pub fn new(config: &DeviceConfig) -> Self {
        let settings = config.settings();
        let geometry = Geometry::new(settings);
        let nand = Nand::new(settings, &geometry);
        let ftl = Ftl::new(settings, &geometry, &nand);
        let controller = DeviceController::new(settings, &ftl);
        Self { controller, ftl, nand, counters: DeviceCounters::new(geometry.groups.len()) }
    }

    /// Restores a device from an image ([`Device::to_image`]).
    /// Errors: [`ErrorClass::Truncated`](emmclab_base::ErrorClass::Truncated) if the image is damaged or belongs to another device.
    pub fn from_image(config: &DeviceConfig, image: &[u8]) -> Result<Self> {
        let mut device = Self::new(config);
        image::restore(&mut device.ftl, &mut device.nand, image)?;
        device.controller.restore_zones(&device.ftl);
        Ok(device)
    }

    /// Returns an image of the device as bytes: its data and the state of its blocks, without times, counters and requests in flight.
    pub fn to_image(&self) -> Vec<u8> {
        image::save(&self.ftl, &self.nand)
    }

    /// Executes an operation and reports its events to the counters and `observer`. Returns the completion time if the operation has one.
    /// Observers are called through a pointer, because compiling the device for each of them takes long.
    #[inline]
    fn act<O: Observer>(&mut self, work: DeviceOperation<'_>, observer: &mut O) -> Result<Option<Nanos>> {
        if O::EVENTS {
            self.act_observed(work, observer, O::UNITS)
        } else {
            self.act_unobserved(work, &mut |event| observer.request_completed(event))
        }
    }

    /// Executes an operation for an observer that needs only completions. Test builds use the path of the other observers, because
    /// compiling another copy of the device takes long.
    #[inline(never)]
    fn act_unobserved(
        &mut self, work: DeviceOperation<'_>, completed: &mut dyn FnMut(&RequestCompleted),
    ) -> Result<Option<Nanos>> {
        let mut completions = CompletionObserver(completed);
        if cfg!(debug_assertions) {
            self.act_observed(work, &mut completions, false)
        } else {
            self.act_with(work, &mut completions)
        }
    }

    #[inline(never)]
    fn act_observed(&mut self, work: DeviceOperation<'_>, observer: &mut dyn AnyObserver, units: bool) -> Result<Option<Nanos>> {
        if units {
            self.act_with(work, &mut DynObserver::<true>(observer))
        } else {
            self.act_with(work, &mut DynObserver::<false>(observer))
        }
    }

    #[inline(always)]
    fn act_with<O: Observer>(&mut self, work: DeviceOperation<'_>, observer: &mut O) -> Result<Option<Nanos>> {
        let Self { controller, ftl, nand, counters } = self;
        if let DeviceOperation::Submit(command) = work {
            controller.accept(command, &ftl.core.geometry)?;
        }
        let below = &mut LowerLayers { ftl, nand, log: &mut (counters, observer) };
        match work {
            DeviceOperation::Submit(command) => return Ok(controller.submit(command, below)),
            DeviceOperation::Packed(entries) => {
                controller.accept_packed(entries, below)?;
                return Ok(controller.submit_packed(entries, below));
            }
            DeviceOperation::Zone(zone, action) => controller.manage_zone(zone, action, below)?,
            DeviceOperation::Advance(until) => controller.advance(until, below),
            DeviceOperation::Settle => controller.settle(below),
            DeviceOperation::PowerOff => controller.power_off(below),
            DeviceOperation::FoldCache => below.ftl.fold_cache(below.nand, controller.idle_from(), below.log),
        }
        Ok(None)
    }

    /// Current number of blocks per plane that belong to `WriteBooster` or the SLC cache.
    pub fn booster_blocks(&self) -> u32 {
        self.ftl.core.slc_blocks()
    }

    /// Submits a request. Returns its completion time, or `None` if that is not known yet (a write waits because reads have priority) or
    /// the device has stopped ([`Device::stop`]).
    /// Errors: [`ErrorClass::Value`](emmclab_base::ErrorClass::Value) for a request beyond the end of the device,
    /// [`ErrorClass::Order`](emmclab_base::ErrorClass::Order) for one that arrives before its predecessor.
    #[inline]
    pub fn submit<O: Observer>(&mut self, command: &DeviceCommand, observer: &mut O) -> Result<Option<Nanos>> {
        self.act(DeviceOperation::Submit(command), observer)
    }

    /// Submits a request without an observer and executes all work until it is complete. Returns the completion time. It is meant for many
    /// consecutive writes, such as filling a device.
    /// Errors: as [`Device::submit`].
    pub fn complete(&mut self, command: &DeviceCommand) -> Result<Nanos> {
        self.submit(command, &mut NullObserver)?;
        Ok(self.settle(&mut NullObserver))
    }

    /// Executes all work that begins before `until`, as [`Device::advance`], without an observer.
    pub fn idle_until(&mut self, until: Nanos) {
        self.advance(until, &mut NullObserver);
    }

    /// Completes all accepted requests, idles for the time `idle`, powers the device off in an orderly way, and folds the full blocks of its
    /// SLC cache, without an observer. Data that `WriteBooster` keeps after a flush (`slc.partial_flush`) stays there.
    pub fn switch_off(&mut self, idle: Nanos) {
        self.settle(&mut NullObserver);
        if idle > Nanos::ZERO {
            self.advance(self.idle_from() + idle, &mut NullObserver);
        }
        self.power_off(&mut NullObserver);
        let _ = self.act(DeviceOperation::FoldCache, &mut NullObserver);
    }

    /// Submits a packed command: requests of one operation, read or write, that all arrive at the same time. A single request is submitted
    /// as an ordinary command. Returns the completion time of the whole command, or `None` if the device has stopped.
    /// Errors: as [`Device::submit`]; [`ErrorClass::Value`](emmclab_base::ErrorClass::Value) also for entries that
    /// cannot be packed.
    pub fn submit_packed<O: Observer>(&mut self, entries: &[DeviceCommand], observer: &mut O) -> Result<Option<Nanos>> {
        if let [single] = entries {
            return self.submit(single, observer);
        }
        self.act(DeviceOperation::Packed(entries), observer)
    }

    /// Opens, closes or finishes a zone at the arrival time of the last command. The action takes no time. To reset a zone, discard its
    /// sectors.
    /// Errors: [`ErrorClass::Value`](emmclab_base::ErrorClass::Value) if there is no such zone, or if its state or the limits of open and
    /// active zones do not allow the action.
    pub fn manage_zone<O: Observer>(&mut self, zone: u32, action: ZoneAction, observer: &mut O) -> Result<()> {
        self.act(DeviceOperation::Zone(zone, action), observer).map(|_| ())
    }

    /// The error with which [`Device::submit`] would reject a command because of the state of its zone; `None` if it would accept it.
    pub fn zone_refusal(&self, command: &DeviceCommand) -> Option<Error> {
        self.controller.zones.as_deref()?.check(command).err()
    }

    /// The sequential zones in their current state.
    pub fn zones(&self) -> impl Iterator<Item = ZoneDescriptor> {
        let zones = self.controller.zones.as_deref();
        (0..).map_while(move |zone| zones?.report(zone))
    }

    /// Maximum number of open zones, and of active zones (open or closed); 0 = no limit.
    pub fn zone_limits(&self) -> (u32, u32) {
        self.controller.zones.as_deref().map_or((0, 0), ZoneTable::limits)
    }

    /// Executes all work that begins before `until` without a command: waiting pages, write-back, folding, idle collection. Several calls
    /// have the same events, counters and times as the last of them alone. The next command must not arrive before `until`.
    pub fn advance<O: Observer>(&mut self, until: Nanos, observer: &mut O) {
        let _ = self.act(DeviceOperation::Advance(until), observer);
    }

    /// The next time at which the device executes a step that may complete a request in flight; `None` if no request is in flight.
    pub fn next_event(&self) -> Option<Nanos> {
        self.controller.next_event(&self.nand)
    }

    /// Dispatches all waiting requests and returns the completion time of the last one.
    pub fn settle<O: Observer>(&mut self, observer: &mut O) -> Nanos {
        let _ = self.act(DeviceOperation::Settle, observer);
        self.controller.clock.last_complete
    }

    /// Executes an orderly power-off: writes all data in the write buffer to the flash (power-off notification, `EXT_CSD`
    /// `POWER_OFF_NOTIFICATION`).
    pub fn power_off<O: Observer>(&mut self, observer: &mut O) {
        let _ = self.act(DeviceOperation::PowerOff, observer);
    }

    /// Returns this device, which has its whole map in RAM ([`DeviceConfig::with_whole_map`]), with the mapping scheme of `config`, whose
    /// map is on the flash: all data stays where it is, and the map is written. Nothing of the map is cached. Time starts again.
    #[must_use]
    pub fn with_map_on_flash(mut self, config: &DeviceConfig) -> Self {
        self.rewind();
        self.ftl.write_map(config.settings(), &mut self.nand, &mut NullObserver);
        self.controller = DeviceController::new(config.settings(), &self.ftl);
        self.rewind();
        self
    }

    /// Writes the write buffer to the flash, keeps the data, and resets everything else: time, counters and request numbers start again.
    pub fn rewind(&mut self) {
        self.power_off(&mut NullObserver);
        self.nand.rewind();
        self.ftl.rewind();
        self.controller.rewind();
        self.controller.restore_zones(&self.ftl);
        self.begin_counting();
    }

    /// Resets the counters and busy times to 0; data, wear and clock stay.
    pub fn clear_counters(&mut self) {
        self.begin_counting();
        self.nand.timelines.clear_load();
    }

    fn begin_counting(&mut self) {
        let groups = self.geometry().groups.len();
        let valid = (0..groups).map(|group| self.valid_units(group)).collect();
        self.counters = DeviceCounters { group_valid_before: valid, ..DeviceCounters::new(groups) };
    }

    /// Number of valid map units in the blocks of a block group.
    pub fn valid_units(&self, group: usize) -> u64 {
        let own = self.blocks().filter(|block| usize::from(block.group) == group);
        own.map(|block| u64::from(block.valid)).sum()
    }

    /// Replaces the garbage collection victim policy of the settings. On a device with data, the full blocks are sorted into the order that
    /// the policy needs. An image of the device does not contain the policy.
    /// Errors: [`ErrorClass::Config`](emmclab_base::ErrorClass::Config) if the device has no garbage collection or a block-mapped scheme.
    pub fn set_victim_policy(&mut self, policy: Box<dyn VictimPolicy>) -> Result<()> {
        self.ftl.set_victim_policy(policy)
    }

    /// Prefetches the mapping table entries for these sectors into the CPU cache, for at most [`PREFETCHED`](crate::PREFETCHED) of the next
    /// commands. The state of the device does not change.
    #[inline]
    pub fn prefetch(&mut self, sectors: &[u64]) {
        self.ftl.prefetch(sectors);
    }

    /// Structure of the flash, and its address arithmetic.
    #[inline]
    pub fn geometry(&self) -> &Geometry {
        &self.ftl.core.geometry
    }

    /// Number of planes of a way. They have consecutive numbers and together execute one operation at a time.
    pub fn planes_per_way(&self) -> u32 {
        self.nand.timelines.planes_per_way
    }

    /// Counters since the device was created or they were last cleared.
    pub fn counters(&self) -> &DeviceCounters {
        &self.counters
    }

    /// Busy times of the device's channels, dies and planes.
    pub fn load(&self) -> FlashBusyTimes {
        self.nand.timelines.load()
    }

    /// The current state of an erase block.
    pub fn block(&self, block: BlockId) -> EraseBlockSummary {
        let view = self.nand.block(block);
        EraseBlockSummary {
            valid: self.ftl.core.tables.valid(block),
            written: view.written,
            erases: view.erases,
            plane: view.plane,
            group: view.group,
            state: view.state,
        }
    }

    /// The current states of all erase blocks, in order of planes.
    pub fn blocks(&self) -> impl Iterator<Item = EraseBlockSummary> + Clone {
        (0..self.nand.block_count() as u32).map(|block| self.block(BlockId(block)))
    }

    /// The reason why the device has stopped and refuses writes; `None` if it accepts them.
    #[inline]
    pub fn stop(&self) -> Option<StopReason> {
        self.ftl.core.stop
    }

    /// The physical location of a unit; `None` if it is not mapped.
    #[inline]
    pub fn lookup(&self, lpn: Lpn) -> Option<Ppn> {
        self.ftl.core.tables.lookup(lpn)
    }

    /// Bytes of device RAM that the mapping table needs.
    pub fn map_ram_bytes(&self) -> u64 {
        self.ftl.map_ram_bytes()
    }

    /// State of the cached part of the mapping table, for schemes that store the table on the flash; `None` for other schemes.
    pub fn map_figures(&self) -> Option<MapCacheSummary> {
        self.ftl.map_figures()
    }

    /// Whether all accepted commands have been dispatched to the flash.
    pub fn all_dispatched(&self) -> bool {
        self.controller.all_dispatched()
    }

    /// Whether a plain write is durable when it is complete.
    pub fn promises_on_completion(&self) -> bool {
        !self.ftl.core.transferred && self.controller.write_buffer.is_none()
    }

    /// Number of sectors of written data that fit into the volatile cache; 0 without a cache.
    pub fn cache_sectors(&self) -> u64 {
        u64::from(self.controller.write_buffer.as_ref().map_or(0, |buffer| buffer.room)) * u64::from(self.geometry().unit_sectors)
    }

    /// Interface of the device.
    pub fn interface(&self) -> InterfaceKind {
        self.controller.interface
    }

    /// Whether a single write can be durable on completion despite a cache: by a reliable write, or by FUA.
    pub fn has_reliable_writes(&self) -> bool {
        self.controller.reliable_writes
    }

    /// Whether writes become durable in order, as with a FIFO cache.
    pub fn promises_write_order(&self) -> bool {
        self.controller.promises_write_order
    }

    /// Number of the next command ([`RequestCompleted::id`](crate::RequestCompleted::id)).
    #[inline]
    pub fn next_command(&self) -> u64 {
        self.controller.clock.next_id
    }

    /// Time at which all accepted requests are complete.
    #[inline]
    pub fn idle_from(&self) -> Nanos {
        self.controller.idle_from()
    }

    /// Ages the device: distributes `erases[g]` erases evenly over the used blocks of each block group `g`. A workload wears the blocks
    /// evenly in the long run, unless data stays in place for ever.
    /// Errors: [`ErrorClass::Config`] if a block would reach its erase limit; the device is then unchanged.
    pub fn wear_on(&mut self, erases: &[u64]) -> Result<()> {
        let mut worn: Vec<(BlockId, u32)> = Vec::new();
        for (group, more) in erases.iter().enumerate().filter(|(_, more)| **more > 0) {
            let limit = self.geometry().groups[group].erase_limit;
            let blocks = self.ftl.used_blocks(&self.nand, group as u8);
            let mode = if self.ftl.core.slc.holds(group as u8) { " in SLC mode" } else { "" };
            // Rounds the cumulative number of erases instead of the number of each block, so that the sum is exact.
            let due = |blocks_so_far: usize| more * blocks_so_far as u64 / blocks.len() as u64;
            for (at, block) in blocks.iter().enumerate() {
                let erases = u64::from(self.nand.block(*block).erases) + due(at + 1) - due(at);
                if limit > 0 && erases >= u64::from(limit) {
                    return Err(Error::new(
                        ErrorClass::Config,
                        format!(
                            "the device would be worn out: a block{mode} would have {erases} erases, and its limit is {limit}"
                        ),
                    ));
                }
                worn.push((*block, u32::try_from(erases).unwrap_or(u32::MAX)));
            }
        }
        for (block, erases) in worn {
            self.nand.set_erases(block, erases);
        }
        self.ftl.note_wear(&self.nand);
        Ok(())
    }

    /// Returns the health of the device under the settings with which it was created.
    pub fn health(&self, settings: &DeviceSettings) -> DeviceHealth {
        let groups = &self.geometry().groups;
        let block_groups = &settings.geometry.block_groups;
        let in_slc_mode = |group: usize| match block_groups.get(group) {
            Some(group) => group.cell_mode == CellMode::Slc,
            None => settings.slc.mode != SlcMode::Off,
        };
        let mut erases = vec![(0_u64, 0_u64); groups.len()];
        for block in self.blocks() {
            let (done, most) = &mut erases[usize::from(block.group)];
            *done += u64::from(block.erases);
            *most += u64::from(groups[usize::from(block.group)].erase_limit);
        }
        let used = |slc: bool| {
            let of_kind = erases.iter().enumerate().filter(|(group, _)| in_slc_mode(*group) == slc);
            let (done, most) = of_kind.fold((0, 0), |(done, most), (_, sum)| (done + sum.0, most + sum.1));
            (most > 0).then(|| done as f64 / most as f64)
        };
        let spares: u64 = groups.iter().map(|group| u64::from(group.spare_blocks)).sum();
        let spares = spares * u64::from(self.geometry().planes);
        DeviceHealth {
            slc_life_used: used(true),
            life_used: used(false),
            spares_used: (spares > 0).then(|| self.counters().bad_blocks as f64 / spares as f64),
            background: self.background_work(settings),
        }
    }

    fn background_work(&self, settings: &DeviceSettings) -> u8 {
        let gc = &settings.gc;
        if gc.idle_after_us == 0.0 {
            return 0;
        }
        let idle = if gc.idle_free_blocks == 0 { gc.high_watermark } else { gc.idle_free_blocks };
        let levels = [(gc.urgent_free_blocks, 3), (gc.low_watermark, 2), (idle, 1)];
        // The pool with the fewest free blocks determines the urgency level. Pools for whose collection no write waits are not considered.
        let collected = (0..self.ftl.pools()).map(PoolId).filter(|pool| !self.ftl.core.is_skipped(*pool));
        let free = collected.map(|pool| self.ftl.free_blocks(pool)).min().unwrap_or(u32::MAX);
        levels.into_iter().find(|(most, _)| free <= *most && *most > 0).map_or(0, |(_, level)| level)
    }
}

/// A command to a device: the part of a [`Request`] that the device uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceCommand {
    /// Arrival time of the command, which must not be before that of the previous command.
    pub arrival: Nanos,
    /// Operation of the command.
    pub op: Op,
    /// First sector of the command.
    pub sector: u64,
    /// Length in sectors; 0 only for a flush.
    pub sectors: u32,
    /// Flags of the command.
    pub modifiers: CommandFlags,
}

impl DeviceCommand {
    /// A command without flags.
    pub const fn new(arrival: Nanos, op: Op, sector: u64, sectors: u32) -> Self {
        Self { arrival, op, sector, sectors, modifiers: CommandFlags::empty() }
    }
}

impl From<&Request> for DeviceCommand {
    #[inline]
    fn from(request: &Request) -> Self {
        Self {
            arrival: request.arrival,
            op: request.op,
            sector: request.sector.0,
            sectors: request.sectors,
            modifiers: request.flags.into(),
        }
    }
}
