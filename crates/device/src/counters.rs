//! Counters of the work of a device. They receive the events of the device before all other observers.

use emmclab_base::{Nanos, Op, SECTOR_BYTES};
use emmclab_settings::MOST_STAGES;

use crate::events::{
    BlockErased, BlockRetired, BoosterNotice, BoosterNoticeKind, CacheFlushed, CacheRead, CollectionPurpose, CommandFetched,
    DataMoved, GcStarted, IdleCollected, IdleInterrupted, LinkTransfer, LogMerged, MapConsulted, MapHinted, MapLookedUp,
    MapMispredicted, MapPrefetched, MergeKind, Observer, OperationCause, OperationsDelayed, PackedCommandArrived, PageProgrammed,
    PageRead, PartOverwritten, SuspendableOperation, UnitCached, UnitsFolded, UnitsPinned, UnitsTrimmed, UnplacedRead,
    UnwrittenUnits, WokeUp, ZoneBufferTaken, ZoneChanged,
};
use crate::zones::ZoneState;

/// Wake-ups from a stage of sleep, and their times in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SleepStageCounters {
    /// Number of wake-ups from this stage.
    pub wake_ups: u64,
    /// Time asleep before them, from the begin of the first stage.
    pub asleep_ns: u64,
    /// Time that they took.
    pub waking_ns: u64,
}

/// Counts of a device's work since it was created or the counters were last cleared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Bytes the host wrote.
    pub host_bytes_written: u64,
    /// Bytes the host read.
    pub host_bytes_read: u64,
    /// Reads of the host.
    pub host_reads: u64,
    /// Number of flash pages read, by [`OperationCause`].
    pub page_reads: [u64; OperationCause::ALL.len()],
    /// Number of flash pages programmed, by [`OperationCause`].
    pub page_programs: [u64; OperationCause::ALL.len()],
    /// Total size in bytes of the pages programmed, by [`OperationCause`].
    pub bytes_programmed: [u64; OperationCause::ALL.len()],
    /// Pages read, by block group.
    pub group_reads: Vec<u64>,
    /// Number of page reads that were retried.
    pub retried_reads: u64,
    /// Number of read retries, by block group.
    pub group_retries: Vec<u64>,
    /// Number of suspensions by reads, by [`SuspendableOperation`].
    pub suspensions: [u64; 3],
    /// Pages programmed, by block group.
    pub group_programs: Vec<u64>,
    /// Blocks erased, by block group.
    pub group_erases: Vec<u64>,
    /// Number of valid map units when counting started, by block group.
    pub group_valid_before: Vec<u64>,
    /// Bytes that the host read from flash pages, by block group.
    pub group_bytes_read: Vec<u64>,
    /// Bytes transferred over the flash bus.
    pub bus_bytes: u64,
    /// Number of blocks that garbage collection collected to free space.
    pub gc_count: u64,
    /// Blocks of `gc_count` that were collected while the device was idle.
    pub gc_idle_count: u64,
    /// Blocks folded from the SLC cache into other blocks.
    pub folds: u64,
    /// Activity of `WriteBooster`, and its notices to the host.
    pub booster: BoosterCounters,
    /// Number of requests that interrupted idle garbage collection.
    pub gc_interruptions: u64,
    /// Time that flash ways spent on idle garbage collection, in ns.
    pub gc_idle_ns: u64,
    /// Blocks moved by wear levelling.
    pub wear_moves: u64,
    /// Blocks whose data was refreshed because they were read often or were old.
    pub refreshes: u64,
    /// Time that flash ways spent on garbage collection, in ns.
    pub gc_ns: u64,
    /// Number of partial overwrites of a map unit (in block-mapped schemes: of a page) for which the rest was read first.
    pub read_modify_writes: u64,
    /// Number of switch merges: log blocks that became the data block without copies.
    pub switch_merges: u64,
    /// Number of partial merges: log blocks that became the data block after the rest of the data was copied to them.
    pub partial_merges: u64,
    /// Number of full merges: logical blocks copied to a fresh block.
    pub full_merges: u64,
    /// Number of lookups of mapping table entries that were in RAM.
    pub map_hits: u64,
    /// Number of lookups of mapping table entries that had to be read from the flash.
    pub map_misses: u64,
    /// Number of requests whose mapping table entries were looked up.
    pub map_requests: u64,
    /// Number of requests in `map_requests` for which a page of the mapping table was read from the flash.
    pub map_missed_requests: u64,
    /// Number of mapping table entries that the host sent along with reads (HPB).
    pub map_hints: u64,
    /// Number of mapping table entries that were loaded into RAM because a neighbouring entry was needed.
    pub map_prefetched: u64,
    /// Number of pages read in vain, because a mapping table entry did not point to the page of the unit.
    pub map_double_reads: u64,
    /// Units that the host read but never wrote.
    pub unwritten_reads: u64,
    /// Bytes that the host read of units that it never wrote.
    pub unwritten_bytes_read: u64,
    /// Reads of the host that touched units that it never wrote.
    pub unwritten_requests: u64,
    /// Part of `unwritten_bytes_read` that was read from pages, by block group.
    pub group_unwritten_bytes: Vec<u64>,
    /// Mapped units that were discarded.
    pub trimmed_units: u64,
    /// Blocks that became bad.
    pub bad_blocks: u64,
    /// Number of times the device woke up from sleep.
    pub wake_ups: u64,
    /// Time that the device was asleep, in ns.
    pub asleep_ns: u64,
    /// Time that the device spent waking up, in ns.
    pub waking_ns: u64,
    /// Wake-ups by the stage of sleep that the device left.
    pub sleep_stages: [SleepStageCounters; MOST_STAGES],
    /// Number of map units of written data that entered the cache.
    pub cache_written: u64,
    /// Number of units in `cache_written` that were already in the cache.
    pub cache_overwritten: u64,
    /// Number of map units that the host read; counted only if the device has RAM for data.
    pub cache_read: u64,
    /// Number of units in `cache_read` that were in RAM.
    pub cache_read_hits: u64,
    /// Number of flushes by the host while the cache contained written data.
    pub cache_flushes: u64,
    /// Number of packed commands executed.
    pub packs: u64,
    /// Traffic of a UFS link, by [`Direction`](crate::TransferDirection).
    pub link: [LinkCounters; 2],
    /// Commands of a UFS.
    pub commands: FetchCounters,
    /// State changes of the zones of a zoned UFS.
    pub zones: ZoneCounters,
}

/// Traffic of one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Number of transfers.
    pub transfers: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Time during which the direction was in use, in ns.
    pub busy_ns: u64,
    /// Total time for which transfers waited for other transfers, in ns.
    pub wait_ns: u64,
}

/// Commands that a UFS fetched from the queues of its host controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FetchCounters {
    /// Number of fetched commands.
    pub fetched: u64,
    /// Maximum number of commands with a tag at the same time.
    pub most_in_flight: u32,
    /// Total time for which commands waited for a tag, in ns.
    pub tag_wait_ns: u64,
    /// Total time for which commands with a tag waited for their queue while the link was awake, in ns.
    pub queue_wait_ns: u64,
}

/// Activity of `WriteBooster`, and its notices to the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BoosterCounters {
    /// Number of map units moved from the `WriteBooster` buffer to other blocks.
    pub folded_units: u64,
    /// Number of map units written to the pinned part of the `WriteBooster` buffer.
    pub pinned_units: u64,
    /// Number of notices that little free space is left in the `WriteBooster` buffer.
    pub flush_needed: u64,
    /// Number of notices that the `WriteBooster` buffer has no room for pinned data.
    pub pinned_full: u64,
    /// Number of times the `WriteBooster` buffer became larger.
    pub grown: u64,
    /// Number of times the `WriteBooster` buffer became smaller.
    pub shrunk: u64,
}

/// State changes of the zones of a zoned UFS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneCounters {
    /// Zones opened by a write or by the host.
    pub opened: u64,
    /// Zones closed by the host, or by the device to open another.
    pub closed: u64,
    /// Zones that became full: by writes, or because the host finished them.
    pub filled: u64,
    /// Zones that were reset.
    pub resets: u64,
    /// Maximum number of zones that were open at the same time.
    pub most_open: u32,
    /// Maximum number of zones that were open or closed at the same time.
    pub most_active: u32,
    /// Number of times a zone took the write buffer of another zone.
    pub buffer_conflicts: u64,
    /// Number of buffer conflicts in which the taken buffer still contained data of its previous zone. This data was written to the flash
    /// first.
    pub premature_flushes: u64,
    /// Number of map units that were written to the flash by premature flushes.
    pub premature_units: u64,
}

impl DeviceCounters {
    pub(crate) fn new(groups: usize) -> Self {
        Self {
            group_reads: vec![0; groups],
            group_retries: vec![0; groups],
            group_programs: vec![0; groups],
            group_erases: vec![0; groups],
            group_valid_before: vec![0; groups],
            group_bytes_read: vec![0; groups],
            group_unwritten_bytes: vec![0; groups],
            ..Self::default()
        }
    }

    /// Total number of pages programmed.
    pub fn all_page_programs(&self) -> u64 {
        self.page_programs.iter().sum()
    }

    /// Total number of blocks erased.
    pub fn block_erases(&self) -> u64 {
        self.group_erases.iter().sum()
    }

    /// Bytes programmed for a cause, divided by the bytes that the host wrote; 0 without writes.
    pub fn waf_of(&self, cause: OperationCause) -> f64 {
        if self.host_bytes_written == 0 {
            return 0.0;
        }
        self.bytes_programmed[cause as usize] as f64 / self.host_bytes_written as f64
    }

    /// Write amplification: bytes programmed, divided by the bytes that the host wrote; 0 without writes.
    pub fn waf(&self) -> f64 {
        OperationCause::ALL.iter().map(|cause| self.waf_of(*cause)).sum()
    }

    /// Bytes that the host wrote, divided by the bytes of the pages programmed for them; 0 without writes.
    pub fn space_utilisation(&self) -> f64 {
        let taken = self.bytes_programmed[OperationCause::Host as usize];
        if taken == 0 { 0.0 } else { self.host_bytes_written as f64 / taken as f64 }
    }
}

/// The counters of a device together with the observer of the caller. Both receive each event.
pub(crate) trait CountingObserver: Observer {
    /// Total time that flash ways have spent on garbage collection.
    fn gc_time(&self) -> Nanos;
}

impl<O: Observer> CountingObserver for (&mut DeviceCounters, &mut O) {
    fn gc_time(&self) -> Nanos {
        Nanos(self.0.gc_ns as i64)
    }
}

impl Observer for DeviceCounters {
    const UNITS: bool = false;

    #[inline]
    fn data_moved(&mut self, event: &DataMoved) {
        let bytes = u64::from(event.sectors) * SECTOR_BYTES;
        if event.op == Op::Write {
            self.host_bytes_written += bytes;
        } else {
            self.host_bytes_read += bytes;
            self.host_reads += 1;
        }
    }

    #[inline]
    fn page_read(&mut self, event: &PageRead) {
        let pages = u64::from(event.pages);
        self.page_reads[event.cause as usize] += pages;
        self.group_reads[usize::from(event.group)] += pages;
        self.bus_bytes += event.bus_bytes;
        if event.retries.pages > 0 {
            self.retried_reads += u64::from(event.retries.pages);
            self.group_retries[usize::from(event.group)] += u64::from(event.retries.steps);
        }
        if event.cause == OperationCause::Host {
            self.group_bytes_read[usize::from(event.group)] += event.bus_bytes;
        }
    }

    #[inline]
    fn unplaced_read(&mut self, event: &UnplacedRead) {
        self.page_reads[event.cause as usize] += 1;
        self.group_reads[usize::from(event.group)] += 1;
        self.bus_bytes += event.bus_bytes;
    }

    #[inline]
    fn page_programmed(&mut self, event: &PageProgrammed<'_>) {
        let pages = u64::from(event.pages);
        self.page_programs[event.cause as usize] += pages;
        self.bytes_programmed[event.cause as usize] += event.bytes;
        self.group_programs[usize::from(event.group)] += pages;
        self.bus_bytes += event.bus_bytes;
        if event.cause.moves() {
            self.gc_ns += (event.end - event.begin).0 as u64;
        }
    }

    fn operations_delayed(&mut self, event: &OperationsDelayed) {
        let Some(kind) = event.kind else { return };
        self.suspensions[kind as usize] += 1;
        if kind != SuspendableOperation::WriteBack {
            self.gc_ns += event.overhead.0 as u64;
        }
    }

    #[inline]
    fn block_erased(&mut self, event: &BlockErased) {
        self.group_erases[usize::from(event.group)] += 1;
        self.gc_ns += (event.end - event.ready).0 as u64;
    }

    fn block_retired(&mut self, _: &BlockRetired) {
        self.bad_blocks += 1;
    }

    #[inline]
    fn gc_started(&mut self, event: &GcStarted) {
        *match event.collection {
            CollectionPurpose::Space => &mut self.gc_count,
            CollectionPurpose::Fold => &mut self.folds,
            CollectionPurpose::Wear => &mut self.wear_moves,
            CollectionPurpose::Refresh => &mut self.refreshes,
        } += 1;
    }

    fn idle_collected(&mut self, event: &IdleCollected) {
        self.gc_idle_count += u64::from(event.blocks);
        self.gc_idle_ns += event.took.0 as u64;
    }

    fn idle_interrupted(&mut self, _: &IdleInterrupted) {
        self.gc_interruptions += 1;
    }

    fn units_folded(&mut self, event: &UnitsFolded) {
        self.booster.folded_units += u64::from(event.units);
    }

    #[inline]
    fn units_pinned(&mut self, event: &UnitsPinned) {
        self.booster.pinned_units += u64::from(event.units);
    }

    fn booster_notice(&mut self, event: &BoosterNotice) {
        *match event.notice {
            BoosterNoticeKind::FlushNeeded => &mut self.booster.flush_needed,
            BoosterNoticeKind::PinnedFull => &mut self.booster.pinned_full,
            BoosterNoticeKind::Grown => &mut self.booster.grown,
            BoosterNoticeKind::Shrunk => &mut self.booster.shrunk,
        } += 1;
    }

    fn zone_buffer_taken(&mut self, event: &ZoneBufferTaken) {
        self.zones.buffer_conflicts += 1;
        self.zones.premature_flushes += u64::from(event.units > 0);
        self.zones.premature_units += u64::from(event.units);
    }

    #[inline]
    fn trimmed(&mut self, event: &UnitsTrimmed) {
        self.trimmed_units += u64::from(event.mapped);
    }

    #[inline]
    fn unit_cached(&mut self, event: &UnitCached) {
        self.cache_written += 1;
        self.cache_overwritten += u64::from(event.overwritten);
    }

    #[inline]
    fn cache_read(&mut self, event: &CacheRead) {
        self.cache_read += 1;
        self.cache_read_hits += u64::from(event.hit);
    }

    #[inline]
    fn cache_flushed(&mut self, event: &CacheFlushed) {
        self.cache_flushes += u64::from(event.asked_for && event.units > 0);
    }

    #[inline]
    fn part_overwritten(&mut self, _: &PartOverwritten) {
        self.read_modify_writes += 1;
    }

    #[inline]
    fn unwritten_read(&mut self, event: &UnwrittenUnits) {
        self.unwritten_reads += u64::from(event.count);
        self.unwritten_bytes_read += u64::from(event.bytes);
        self.unwritten_requests += u64::from(event.begins);
        if let Some(group) = event.group {
            self.group_unwritten_bytes[usize::from(group)] += u64::from(event.bytes);
        }
    }

    #[inline]
    fn map_looked_up(&mut self, event: &MapLookedUp) {
        *if event.hit { &mut self.map_hits } else { &mut self.map_misses } += 1;
    }

    #[inline]
    fn map_consulted(&mut self, event: &MapConsulted) {
        self.map_requests += 1;
        self.map_missed_requests += u64::from(event.missed);
    }

    #[inline]
    fn map_hinted(&mut self, _: &MapHinted) {
        self.map_hints += 1;
    }

    #[inline]
    fn map_prefetched(&mut self, event: &MapPrefetched) {
        self.map_prefetched += u64::from(event.count);
    }

    #[inline]
    fn map_mispredicted(&mut self, _: &MapMispredicted) {
        self.map_double_reads += 1;
    }

    #[inline]
    fn log_merged(&mut self, event: &LogMerged) {
        *match event.kind {
            MergeKind::Switch => &mut self.switch_merges,
            MergeKind::Partial => &mut self.partial_merges,
            MergeKind::Full => &mut self.full_merges,
        } += 1;
    }

    #[inline]
    fn packed(&mut self, _: &PackedCommandArrived) {
        self.packs += 1;
    }

    #[inline]
    fn command_taken(&mut self, event: &CommandFetched) {
        let commands = &mut self.commands;
        commands.fetched += 1;
        commands.most_in_flight = commands.most_in_flight.max(event.in_flight);
        commands.tag_wait_ns += event.waited.0 as u64;
        commands.queue_wait_ns += (event.begin - event.ready).0 as u64;
    }

    #[inline]
    fn link_transfer(&mut self, event: &LinkTransfer) {
        let link = &mut self.link[event.direction as usize];
        link.transfers += 1;
        link.bytes += u64::from(event.sectors) * SECTOR_BYTES;
        link.busy_ns += (event.end - event.begin).0 as u64;
        link.wait_ns += (event.begin - event.ready).0 as u64;
    }

    fn zone_changed(&mut self, event: &ZoneChanged) {
        let zones = &mut self.zones;
        match event.to {
            // A zone that was opened but not written becomes empty when it is closed.
            ZoneState::Empty if event.from.is_open() && event.written == 0 => zones.closed += 1,
            ZoneState::Empty => zones.resets += 1,
            ZoneState::ImplicitlyOpen | ZoneState::ExplicitlyOpen => {
                zones.opened += u64::from(!event.from.is_open());
            }
            ZoneState::Closed => zones.closed += 1,
            ZoneState::Full => zones.filled += 1,
        }
        zones.most_open = zones.most_open.max(event.open);
        zones.most_active = zones.most_active.max(event.active);
    }

    #[inline]
    fn woke_up(&mut self, event: &WokeUp) {
        self.wake_ups += 1;
        self.asleep_ns += event.asleep.0 as u64;
        self.waking_ns += event.took.0 as u64;
        let stage = &mut self.sleep_stages[event.stage];
        stage.wake_ups += 1;
        stage.asleep_ns += event.asleep.0 as u64;
        stage.waking_ns += event.took.0 as u64;
    }
}
