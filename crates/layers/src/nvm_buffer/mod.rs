//! A small non-volatile buffer in front of the device (a pilot solution of FAST 2012).
//!
//! A write is complete and durable when its record is in the buffer, so a flush only flushes the buffer. Data that is overwritten in the
//! buffer is never written to the device. Other data is written back in address order, together with adjacent data, when the buffer is
//! fuller than its high mark. While no request is in flight, write-back already begins when the buffer is fuller than halfway between its
//! low and high marks. The buffer is a ring of records ([`ring`]) on the second device; long writes bypass it. After a power cut, its
//! records are read back and the write-back continues.
//!
//! Secure erases remove their sectors from all valid records. Bytes of released records stay until their space is reused.

mod ring;
mod write_back;

use std::collections::VecDeque;
use std::io;

use emmclab_base::{BlockNote, ByteSize, CommandFlags, Op, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::interval_map::{IntervalMap, LoggedExtent};
use crate::layer::{
    BackgroundDecision, DeferReason, DisksBelow, HostRequest, InFlightRequests, Layer, RecoveryReader, RequestDecision,
    ReservedArea,
};
use crate::plan::{CommandPlan, PlanMemory};
use crate::records::SECTOR;
use crate::registry::{LayerKind, SettingFaults, counters, read_settings, settings_of};
use ring::{FIRST, NvmRecord, NvmRecordBody, RecordRing, RingEntry};
use write_back::WriteBackState;

pub(crate) const KIND: LayerKind = LayerKind {
    name: "nvm-buffer",
    about: "collects writes in a small non-volatile buffer, where they are durable, and writes them back in address order",
    build: |table, below| {
        let settings: NvmBufferSettings = read_settings(KIND.name, table)?;
        Ok(Box::new(NvmBuffer::new(settings.shape(below)?)))
    },
    settings: settings_of::<NvmBufferSettings>,
};

counters! {
    /// Writes into the buffer.
    buffered_writes,
    /// Bytes of `buffered_writes`.
    buffered_bytes,
    /// Bytes that were overwritten in the buffer before they were written back.
    absorbed_bytes,
    /// Writes that bypassed the buffer.
    past_writes,
    /// Bytes of `past_writes`.
    past_bytes,
    /// Number of reads for which some data was in the buffer.
    read_hits,
    /// Bytes of the reads in `read_hits` that came from the buffer.
    read_hit_bytes,
    /// Runs written back.
    write_back_runs,
    /// Bytes of `write_back_runs`.
    write_back_bytes,
    /// Number of times records were released.
    releases,
    /// Flushes from the host.
    flushes,
    /// Flushes from the host that also flushed the device.
    device_flushes,
    /// Maximum bytes of the buffer in use, including record headers and gaps.
    most_used_bytes,
}

struct NvmBuffer {
    shape: NvmBufferParameters,
    ring: RecordRing,
    /// Map of the newest data in the buffer.
    logged: IntervalMap,
    /// The part of `logged` that is not written back yet.
    dirty: IntervalMap,
    write_back: WriteBackState,
    bypassed: BypassedWrites,
    /// Sequence number of the newest header of the buffer.
    head_number: u64,
    is_recovered: bool,
    /// Locations of records whose data is incomplete after a power cut.
    torn: Vec<u32>,
    counters: LayerCounters,
    cleared: LayerCounters,
}

impl NvmBuffer {
    /// Creates the layer on new disks.
    fn new(shape: NvmBufferParameters) -> Self {
        Self {
            ring: RecordRing::new(shape.area.sectors as u32, VecDeque::new(), 1),
            logged: IntervalMap::new(shape.capacity),
            dirty: IntervalMap::new(shape.capacity),
            write_back: WriteBackState::default(),
            bypassed: BypassedWrites::default(),
            head_number: 0,
            is_recovered: false,
            torn: Vec::new(),
            counters: LayerCounters::default(),
            cleared: LayerCounters::default(),
            shape,
        }
    }

    fn read(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        let (area, first) = (self.shape.area, request.sector);
        let (mut at, mut hits) = (first, 0);
        for run in self.logged.between(first, request.end()) {
            if at < run.sector {
                plan.payload(0, Op::Read, at, (at - first) as u32, (run.sector - at) as u32);
            }
            let from = area.sector + u64::from(run.place);
            plan.payload(area.disk, Op::Read, from, (run.sector - first) as u32, run.sectors);
            hits += u64::from(run.sectors);
            at = run.end();
        }
        if at < request.end() {
            plan.payload(0, Op::Read, at, (at - first) as u32, (request.end() - at) as u32);
        }
        self.counters.read_hits += u64::from(hits > 0);
        self.counters.read_hit_bytes += hits * 512;
        RequestDecision::Run
    }

    fn write(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        if request.sectors > self.shape.longest {
            return self.bypass(request, plan);
        }
        let Some(entry) = self.ring.add(1 + request.sectors) else { return self.wait_for_room() };
        let body = NvmRecordBody::Data { sector: request.sector };
        self.write_record(entry, request.sectors, body, plan);
        plan.piece(PlanMemory::Payload, 0, request.sectors);
        let (sector, sectors) = (request.sector, request.sectors);
        let extent = LoggedExtent { sector, sectors, place: entry.place + 1 };
        self.logged.insert(extent);
        let absorbed = self.dirty.insert(extent);
        self.counters.buffered_writes += 1;
        self.counters.buffered_bytes += u64::from(sectors) * 512;
        self.counters.absorbed_bytes += u64::from(absorbed) * 512;
        self.counters.most_used_bytes = self.counters.most_used_bytes.max(u64::from(self.ring.used()) * 512);
        RequestDecision::Run
    }

    /// Plans a write that bypasses the buffer.
    fn bypass(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        let (first, end) = (request.sector, request.end());
        if self.write_back.writes(first, end) {
            return RequestDecision::Defer(DeferReason::Overlap);
        }
        let mut entry = None;
        if !self.logged.is_free(first, end) {
            entry = self.ring.add(1);
            if entry.is_none() {
                return self.wait_for_room();
            }
        }
        plan.forward(request);
        if let Some(entry) = entry {
            // The records that this write replaces stay valid until its data is durable on the device.
            plan.wait();
            if !request.modifiers.durable() {
                plan.bare(0, Op::Flush, 0, 0);
                plan.wait();
            }
            let body = NvmRecordBody::Past { sector: first, sectors: u64::from(request.sectors) };
            self.write_record(entry, 0, body, plan);
            // This record must be durable first: otherwise recovery could overwrite a later write on the device with older records.
            plan.wait();
            plan.bare(self.shape.area.disk, Op::Flush, 0, 0);
            self.logged.remove(first, end, |_| true);
            self.dirty.remove(first, end, |_| true);
        }
        self.bypassed.add(request.id);
        self.counters.past_writes += 1;
        self.counters.past_bytes += u64::from(request.sectors) * 512;
        RequestDecision::Run
    }

    fn discard(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        let (first, end) = (request.sector, request.end());
        if self.write_back.writes(first, end) {
            return RequestDecision::Defer(DeferReason::Overlap);
        }
        if request.op == Op::SecureErase && !self.logged.is_free(first, end) {
            // After a secure erase, no record of these sectors may be recovered, so all records are written back and released first.
            self.write_back.empty_before(self.ring.next);
            return RequestDecision::Defer(DeferReason::Overlap);
        }
        // The old data need not be written back. After a power cut, its record may still restore it, which a discard permits.
        self.dirty.remove(first, end, |_| true);
        self.bypassed.add(request.id);
        plan.forward(request);
        RequestDecision::Run
    }

    fn flush(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        let past = self.bypassed.flush(request.id);
        plan.bare(self.shape.area.disk, Op::Flush, 0, 0);
        if past && self.shape.area.disk != 0 {
            plan.bare(0, Op::Flush, 0, 0);
        }
        self.counters.flushes += 1;
        self.counters.device_flushes += u64::from(past);
        RequestDecision::Run
    }

    /// Begins the write of a record. The caller then adds the data of the record.
    fn write_record(&self, entry: RingEntry, sectors: u32, body: NvmRecordBody, plan: &mut CommandPlan) {
        let RingEntry { sequence, place, .. } = entry;
        plan.begin(self.shape.area.disk, Op::Write, self.shape.area.sector + u64::from(place));
        plan.record(&NvmRecord { sequence, place, sectors, body }.bytes(), sectors);
    }

    /// Called when there is no space. Data is then written back regardless of the fill level of the buffer.
    fn wait_for_room(&mut self) -> RequestDecision {
        self.write_back.pressed = true;
        RequestDecision::Defer(DeferReason::Full)
    }
}

impl Layer for NvmBuffer {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn capacity(&self) -> u64 {
        self.shape.capacity
    }

    fn areas(&self) -> Vec<ReservedArea> {
        vec![self.shape.area]
    }

    fn recover(&mut self, disks: &mut dyn RecoveryReader) -> io::Result<()> {
        self.read_back(disks)
    }

    fn start(&mut self, plan: &mut CommandPlan) {
        let area = self.shape.area;
        if self.is_recovered {
            for place in std::mem::take(&mut self.torn) {
                plan.begin(area.disk, Op::Write, area.sector + u64::from(place));
                plan.metadata(&[0; SECTOR]);
            }
        } else {
            for number in 0..2 {
                self.head_number = number;
                self.plan_head(self.ring.next, plan);
            }
        }
        if !plan.is_empty() {
            plan.wait();
            plan.bare(area.disk, Op::Flush, 0, 0);
        }
    }

    fn accepts(&self) -> CommandFlags {
        // Durable writes are accepted, because each record contains its own map entry: the layer has no metadata to flush. The driver
        // handles flushes and the order of writes across both disks.
        CommandFlags::DURABLE
    }

    fn request(&mut self, request: &HostRequest, _: &[BlockNote], plan: &mut CommandPlan) -> RequestDecision {
        plan.flag(request.modifiers);
        match request.op {
            Op::Read => self.read(request, plan),
            Op::Write => self.write(request, plan),
            Op::Discard | Op::SecureErase => self.discard(request, plan),
            Op::Flush => self.flush(request, plan),
        }
    }

    fn completed(&mut self, id: u64) {
        self.bypassed.completed(id);
    }

    fn background(&mut self, in_flight: &InFlightRequests, plan: &mut CommandPlan) -> BackgroundDecision {
        self.next_step(in_flight, plan)
    }

    fn background_done(&mut self) {
        self.step_done();
    }

    fn drain(&mut self) {
        self.write_back.drain();
    }

    fn clear_counters(&mut self) {
        self.cleared = LayerCounters { most_used_bytes: 0, ..self.counters.clone() };
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.counters.since(&self.cleared);
        all.push(("map_entries", self.logged.len()));
        all.push(("memory_bytes", self.logged.most_bytes() + self.dirty.most_bytes() + self.ring.bytes()));
        all
    }
}

/// Settings of the NVM buffer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct NvmBufferSettings {
    /// Size of the buffer, a multiple of 4 KB. Default: the whole second device if the buffer is there, otherwise 16 MB.
    pub size: Option<ByteSize>,
    /// Whether the buffer is on the second device. Otherwise, it is at the end of the first device.
    pub second_device: bool,
    /// Maximum length of a write that goes to the buffer. Longer writes bypass it.
    pub longest: ByteSize,
    /// Share of the buffer in percent above which data is written back concurrently with requests.
    pub high_pct: u32,
    /// Share of the buffer in percent at which write-back ends. Write-back begins above `high_pct`; while no request is in flight, it
    /// begins above the mean of `low_pct` and `high_pct`.
    pub low_pct: u32,
    /// Maximum length of a run of consecutive sectors that is written back with one command.
    pub run: ByteSize,
    /// Number of runs that are written back concurrently.
    #[schemars(extend("unit" = "runs"))]
    pub depth: u32,
}

impl Default for NvmBufferSettings {
    fn default() -> Self {
        Self {
            size: None,
            second_device: true,
            longest: ByteSize::kb(64),
            high_pct: 75,
            low_pct: 25,
            run: ByteSize::kb(512),
            depth: 1,
        }
    }
}

/// The checked settings, converted to sectors.
#[derive(Clone, Debug)]
struct NvmBufferParameters {
    /// Number of sectors that the layer offers.
    pub capacity: u64,
    pub area: ReservedArea,
    pub longest: u32,
    /// Number of used sectors above which data is written back.
    pub high: u32,
    /// Number of used sectors at which write-back ends.
    pub low: u32,
    /// Value of `high` while no request is in flight. It is well above `low`, so that each step of write-back releases many records.
    /// Releasing even a single record needs flushes.
    pub idle: u32,
    pub run: u64,
    pub depth: usize,
}

const ALIGN: u64 = 4096;

impl NvmBufferSettings {
    /// Checks all settings against the disks below.
    fn shape(&self, below: &DisksBelow) -> Result<NvmBufferParameters> {
        let mut faults = SettingFaults::of(KIND.name);
        let mut need = |good: bool, fault: String| faults.need(good, fault);
        let Self { second_device, longest, high_pct, low_pct, run, depth, .. } = *self;
        need(
            !second_device || below.second.is_some(),
            "there is no second device; add one (--device2 pcm-16mb), or set `second_device` to false".to_owned(),
        );
        let disk = if second_device { below.second.unwrap_or(u64::MAX) } else { below.main };
        let whole = ByteSize(disk.saturating_mul(512) / ALIGN * ALIGN);
        let size = self.size.unwrap_or(if second_device { whole } else { ByteSize::mb(16) });
        // If the second device is missing, the size of the whole device is unknown and cannot be checked.
        let is_known = self.size.is_some() || !second_device || below.second.is_some();
        need(
            !is_known || size.0.is_multiple_of(ALIGN) && size.0 < 1 << 40,
            format!("`size` is {size}; it must be a multiple of 4KB, and less than 1024GB"),
        );
        need(size <= whole, format!("`size` is {size}; its disk has only {whole}"));
        need(
            longest.0 > 0 && longest.0.is_multiple_of(512),
            format!("`longest` is {longest}; it must be a multiple of 512 bytes"),
        );
        // The ring must hold two records of maximum length and the headers. A part at its end may be unusable.
        let least = ByteSize(longest.0.saturating_add(512).saturating_mul(4).saturating_add(4 * ALIGN));
        need(size >= least, format!("`size` is {size}; with writes of {longest} it must be {} B or more", least.0));
        need(
            run >= longest && run.0.is_multiple_of(512) && run <= ByteSize::mb(64),
            format!("`run` is {run}; it must be a multiple of 512 bytes from `longest`, {longest}, to 64MB"),
        );
        need(
            low_pct < high_pct && high_pct <= 100,
            format!(
                "`low_pct` is {low_pct} and `high_pct` {high_pct}; the first must be less than the second, the second at most 100"
            ),
        );
        need((1..=1024).contains(&depth), format!("`depth` is {depth}; it must be 1 to 1024"));
        let capacity = if second_device { below.main } else { below.main.saturating_sub(size.sectors()) };
        need(capacity > 0, "the buffer leaves no space on the device".to_owned());
        faults.check()?;
        let ring = size.sectors() - u64::from(FIRST);
        let share = |pct: u32| (ring * u64::from(pct) / 100) as u32;
        Ok(NvmBufferParameters {
            capacity,
            area: ReservedArea {
                disk: u8::from(second_device),
                sector: if second_device { 0 } else { capacity },
                sectors: size.sectors(),
            },
            longest: longest.sectors() as u32,
            high: share(high_pct),
            low: share(low_pct),
            idle: share(low_pct.midpoint(high_pct)),
            run: run.sectors(),
            depth: depth as usize,
        })
    }
}

/// Writes and discards that bypassed the buffer since the device was last flushed.
#[derive(Clone, Debug, Default)]
struct BypassedWrites {
    in_flight: Vec<u64>,
    unflushed: bool,
    /// The flush that makes all bypassed writes and discards durable when it completes.
    flushed_by: Option<u64>,
}

impl BypassedWrites {
    fn add(&mut self, id: u64) {
        self.in_flight.push(id);
        self.unflushed = true;
        self.flushed_by = None;
    }

    /// Called for a flush. Returns whether the device must be flushed.
    fn flush(&mut self, id: u64) -> bool {
        // If writes are in flight, they may complete before the flush without being covered by it.
        self.flushed_by = (self.unflushed && self.in_flight.is_empty()).then_some(id);
        self.unflushed
    }

    pub fn completed(&mut self, id: u64) {
        self.in_flight.retain(|other| *other != id);
        if self.flushed_by == Some(id) {
            *self = Self::default();
        }
    }
}
