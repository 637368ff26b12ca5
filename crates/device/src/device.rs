//! The device: takes requests in order of arrival, says when each completes.

use emmclab_base::{Error, Nanos, Result};

use crate::command::Command;
use crate::controller::{Below, Controller, Zones};
use crate::counters::Counters;
use crate::events::{AnyObserver, Observer, Quiet, Shared};
use crate::ftl::gc::VictimPolicy;
use crate::ftl::{Ftl, MapFigures, Stop};
use crate::geometry::Geometry;
use crate::ids::{BlockId, Lpn, PlaneId, PoolId, Ppn};
use crate::image;
use crate::load::DeviceConfig;
use crate::nand::{BlockState, Load, Nand};
use crate::zones::{Zone, ZoneAction};
use emmclab_settings::InterfaceKind;

/// A simulated eMMC or UFS: a controller above an FTL above flash, and counters, which are the first listener. Memory is taken as it is
/// used: a new device of any size is there at once.
#[derive(Clone)]
pub struct Device {
    pub(crate) controller: Controller,
    pub(crate) ftl: Ftl,
    pub(crate) nand: Nand,
    counters: Counters,
}

/// A block as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Valid map units.
    pub valid: u32,
    /// Pages programmed; the next page to program.
    pub written: u32,
    /// Erases so far.
    pub erases: u32,
    /// Its plane.
    pub plane: PlaneId,
    /// Its block group.
    pub group: u8,
    /// Its state.
    pub state: BlockState,
}

/// What a device is asked to do.
#[derive(Clone, Copy)]
enum Work<'a> {
    Submit(&'a Command),
    Packed(&'a [Command]),
    Zone(u32, ZoneAction),
    Advance(Nanos),
    Settle,
    PowerOff,
}

impl Device {
    /// A brand new device.
    pub fn new(config: &DeviceConfig) -> Self {
        let settings = config.settings();
        let geometry = Geometry::new(settings);
        let nand = Nand::new(settings, &geometry);
        let ftl = Ftl::new(settings, &geometry, &nand);
        let controller = Controller::new(settings, &ftl);
        Self { controller, ftl, nand, counters: Counters::new(geometry.groups.len()) }
    }

    /// The device that an image was made of.
    ///
    /// # Errors
    /// [`Kind::Truncated`](emmclab_base::Kind::Truncated) where the image is damaged or of another device.
    pub fn from_image(config: &DeviceConfig, image: &[u8]) -> Result<Self> {
        let mut device = Self::new(config);
        image::restore(&mut device.ftl, &mut device.nand, image)?;
        device.controller.restore_zones(&device.ftl);
        Ok(device)
    }

    /// The data that the device holds and the state of its blocks, without times, counters and requests in flight.
    pub fn to_image(&self) -> Vec<u8> {
        image::save(&self.ftl, &self.nand)
    }

    /// Does some work with the counters and `observer` listening; returns the completion, where the work has one. Observers that are rare,
    /// and all observers in a build for tests, are called through a pointer: compiling the device for each of them takes long.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "in a loop, fields of the device are then found without a pointer"
    )]
    fn act<O: Observer>(&mut self, work: Work<'_>, observer: &mut O) -> Result<Option<Nanos>> {
        if O::RARE || cfg!(debug_assertions) {
            return self.act_through_pointer(work, observer, O::UNITS);
        }
        self.act_directly(work, observer)
    }

    #[inline(never)]
    fn act_through_pointer(
        &mut self,
        work: Work<'_>,
        observer: &mut dyn AnyObserver,
        units: bool,
    ) -> Result<Option<Nanos>> {
        if units {
            self.act_directly(work, &mut Shared::<true>(observer))
        } else {
            self.act_directly(work, &mut Shared::<false>(observer))
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn act_directly<O: Observer>(&mut self, work: Work<'_>, observer: &mut O) -> Result<Option<Nanos>> {
        let Self { controller, ftl, nand, counters } = self;
        if let Work::Submit(command) = work {
            controller.accept(command, ftl.geometry())?;
        }
        let below = &mut Below { ftl, nand, log: &mut (counters, observer) };
        match work {
            Work::Submit(command) => return Ok(controller.submit(command, below)),
            Work::Packed(entries) => {
                controller.accept_packed(entries, below)?;
                return Ok(controller.submit_packed(entries, below));
            }
            Work::Zone(zone, action) => controller.manage_zone(zone, action, below)?,
            Work::Advance(until) => controller.advance(until, below),
            Work::Settle => controller.settle(below),
            Work::PowerOff => controller.power_off(below),
        }
        Ok(None)
    }

    /// Blocks of each plane that `WriteBooster`, or an SLC cache, has at present.
    pub fn booster_blocks(&self) -> u32 {
        self.ftl.slc_blocks()
    }

    /// Takes a request. Returns its completion, or `None` if that is not known yet (reads go first and it is a write)
    /// or the device has stopped ([`Device::stop`]).
    ///
    /// # Errors
    /// [`Kind::Value`](emmclab_base::Kind::Value) for a request beyond the device, [`Kind::Order`](emmclab_base::Kind::Order)
    /// for one that comes before its predecessor.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "in a loop, fields of the device are then found without a pointer"
    )]
    pub fn submit<O: Observer>(&mut self, command: &Command, observer: &mut O) -> Result<Option<Nanos>> {
        self.act(Work::Submit(command), observer)
    }

    /// Takes a request that no one listens to and completes it: for many writes one after the other, as when a device is filled. Returns the
    /// completion. Compiled here, once.
    ///
    /// # Errors
    /// As [`Device::submit`].
    #[inline(never)]
    pub fn complete(&mut self, command: &Command) -> Result<Nanos> {
        self.submit(command, &mut Quiet)?;
        Ok(self.settle(&mut Quiet))
    }

    /// As [`Device::advance`], with no one listening. Compiled here, once.
    #[inline(never)]
    pub fn idle_until(&mut self, until: Nanos) {
        self.advance(until, &mut Quiet);
    }

    /// Completes all that was taken, idles for `idle`, and is switched off in good order, with no one listening. Compiled here, once.
    #[inline(never)]
    pub fn switch_off(&mut self, idle: Nanos) {
        self.settle(&mut Quiet);
        if idle > Nanos::ZERO {
            self.advance(self.idle_from() + idle, &mut Quiet);
        }
        self.power_off(&mut Quiet);
    }

    /// Takes a packed command: requests of one operation, read or write, that all come at the same time. A single one is
    /// taken as a command of its own. Returns the completion of all, or `None` if the device has stopped.
    ///
    /// # Errors
    /// As [`Device::submit`]; [`Kind::Value`](emmclab_base::Kind::Value) also for entries that cannot be packed.
    pub fn submit_packed<O: Observer>(
        &mut self,
        entries: &[Command],
        observer: &mut O,
    ) -> Result<Option<Nanos>> {
        if let [single] = entries {
            return self.submit(single, observer);
        }
        self.act(Work::Packed(entries), observer)
    }

    /// Opens, closes or finishes a zone when the last command came; it takes no time. A discard of its sectors resets it.
    ///
    /// # Errors
    /// [`Kind::Value`](emmclab_base::Kind::Value) where there is no such zone, or its state or the limits of open and active zones do not
    /// allow it.
    pub fn manage_zone<O: Observer>(
        &mut self,
        zone: u32,
        action: ZoneAction,
        observer: &mut O,
    ) -> Result<()> {
        self.act(Work::Zone(zone, action), observer).map(|_| ())
    }

    /// Why the zones refuse a command that comes now, if so, as [`Device::submit`] would.
    pub fn zone_refusal(&self, command: &Command) -> Option<Error> {
        self.controller.zones()?.check(command).err()
    }

    /// The zones that are written in order, as they are.
    pub fn zones(&self) -> impl Iterator<Item = Zone> {
        let zones = self.controller.zones();
        (0..).map_while(move |zone| zones?.report(zone))
    }

    /// Zones that may be open at once, and open or closed; 0 = no limit.
    pub fn zone_limits(&self) -> (u32, u32) {
        self.controller.zones().map_or((0, 0), Zones::limits)
    }

    /// Does everything that begins before `until` without a command: waiting pages, write-back, folding, idle collection. Any series
    /// of calls gives the same events, counters and times as its last one alone. The next command must not come before `until`.
    pub fn advance<O: Observer>(&mut self, until: Nanos, observer: &mut O) {
        let _ = self.act(Work::Advance(until), observer);
    }

    /// When the device will next do something that may complete a request that it holds; `None` if it holds none.
    pub fn next_event(&self) -> Option<Nanos> {
        self.controller.next_event(&self.nand)
    }

    /// Dispatches all that waits, and returns the completion of the last request.
    pub fn settle<O: Observer>(&mut self, observer: &mut O) -> Nanos {
        let _ = self.act(Work::Settle, observer);
        self.controller.last_complete()
    }

    /// An orderly end: all that is in the write buffer is written (power-off notification, `EXT_CSD` `POWER_OFF_NOTIFICATION`).
    pub fn power_off<O: Observer>(&mut self, observer: &mut O) {
        let _ = self.act(Work::PowerOff, observer);
    }

    /// Makes the data stay and everything else new: time, counters and numbers start again. The write buffer is written first.
    pub fn rewind(&mut self) {
        self.power_off(&mut Quiet);
        self.nand.rewind();
        self.ftl.rewind();
        self.controller.rewind();
        self.controller.restore_zones(&self.ftl);
        self.begin_counting();
    }

    /// Counts of work and busy times start from 0; data, wear and times stay.
    pub fn clear_counters(&mut self) {
        self.begin_counting();
        self.nand.clear_load();
    }

    fn begin_counting(&mut self) {
        let groups = self.geometry().groups.len();
        let valid = (0..groups).map(|group| self.valid_units(group)).collect();
        self.counters = Counters { group_valid_before: valid, ..Counters::new(groups) };
    }

    /// Valid map units in the blocks of a group.
    pub fn valid_units(&self, group: usize) -> u64 {
        let own = self.blocks().filter(|block| usize::from(block.group) == group);
        own.map(|block| u64::from(block.valid)).sum()
    }

    /// Has victims of collection chosen by `policy` from now on, in place of the policy of the settings; on a device with data, the
    /// full blocks are put into the order that it needs. An image of the device does not keep the policy.
    ///
    /// # Errors
    /// [`Kind::Config`](emmclab_base::Kind::Config) where the device does not collect or its mapping scheme maps blocks.
    pub fn set_victim_policy(&mut self, policy: Box<dyn VictimPolicy>) -> Result<()> {
        self.ftl.set_victim_policy(policy)
    }

    /// Reads into the processor's cache what the tables hold of the units at these sectors, for at most
    /// [`PREFETCHED`](crate::PREFETCHED) commands that come next. Nothing else changes.
    #[inline]
    pub fn prefetch(&mut self, sectors: &[u64]) {
        self.ftl.prefetch(sectors);
    }

    /// Counts and addresses.
    #[inline]
    pub fn geometry(&self) -> &Geometry {
        self.ftl.geometry()
    }

    /// Planes of a way: those that do one thing at a time, numbered one after the other.
    pub fn planes_per_way(&self) -> u32 {
        self.nand.planes_per_way()
    }

    /// Counts of its work.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Busy times of its parts.
    pub fn load(&self) -> Load {
        self.nand.load()
    }

    /// A block.
    pub fn block(&self, block: BlockId) -> Block {
        let view = self.nand.block(block);
        Block {
            valid: self.ftl.valid(block),
            written: view.written,
            erases: view.erases,
            plane: view.plane,
            group: view.group,
            state: view.state,
        }
    }

    /// Free blocks of the pool that has the fewest, of those that are collected.
    pub(crate) fn fewest_free_blocks(&self) -> u32 {
        let collected = (0..self.ftl.pools()).map(PoolId).filter(|pool| !self.ftl.is_passed_by(*pool));
        collected.map(|pool| self.ftl.free_blocks(pool)).min().unwrap_or(u32::MAX)
    }

    /// Its blocks, plane by plane.
    pub fn blocks(&self) -> impl Iterator<Item = Block> + Clone {
        (0..self.nand.block_count() as u32).map(|block| self.block(BlockId(block)))
    }

    /// The reason for taking no more writes, if there is one.
    #[inline]
    pub fn stop(&self) -> Option<Stop> {
        self.ftl.stop()
    }

    /// The place of a unit.
    #[inline]
    pub fn lookup(&self, lpn: Lpn) -> Option<Ppn> {
        self.ftl.lookup(lpn)
    }

    /// Bytes of memory that the map takes inside the device, by its scheme.
    pub fn map_ram_bytes(&self) -> u64 {
        self.ftl.map_ram_bytes()
    }

    /// What a map on the flash has in memory; `None` for other schemes.
    pub fn map_figures(&self) -> Option<MapFigures> {
        self.ftl.map_figures()
    }

    /// Whether all that was taken has been dispatched to the flash.
    pub fn all_dispatched(&self) -> bool {
        self.controller.all_dispatched()
    }

    /// Whether a plain write is durable when it is complete.
    pub fn promises_on_completion(&self) -> bool {
        self.ftl.completes_when_programmed() && !self.controller.buffers_writes()
    }

    /// Sectors of written data that the volatile cache has room for; 0 without one.
    pub fn cache_sectors(&self) -> u64 {
        u64::from(self.controller.buffered_units()) * u64::from(self.geometry().unit_sectors)
    }

    /// Its kind of interface.
    pub fn interface(&self) -> InterfaceKind {
        self.controller.interface()
    }

    /// Whether a single write can be made durable on completion, past a cache: by a reliable write, or by FUA.
    pub fn has_reliable_writes(&self) -> bool {
        self.controller.has_reliable_writes()
    }

    /// Whether writes become durable in their order, as those of a FIFO cache do.
    pub fn promises_write_order(&self) -> bool {
        self.controller.promises_write_order()
    }

    /// Number that the next command gets ([`RequestCompleted::id`](crate::RequestCompleted::id)).
    #[inline]
    pub fn next_command(&self) -> u64 {
        self.controller.next_command()
    }

    /// When everything taken so far is complete.
    #[inline]
    pub fn idle_from(&self) -> Nanos {
        self.controller.idle_from()
    }
}
