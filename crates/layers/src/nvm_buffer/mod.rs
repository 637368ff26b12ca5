//! A small non-volatile buffer in front of the device (a pilot solution of FAST 2012).
//!
//! A write is complete and durable when its record is in the buffer, so that a flush only flushes the buffer. Data that is
//! overwritten in the buffer is never written to the device. Other data is written back in the order of addresses, adjacent data
//! together, when the buffer is fuller than its high mark, or when no request is in flight and it is fuller than halfway between
//! its low and high marks. The buffer is a ring of records ([`ring`], [`record`]) on the second device; long writes bypass it.
//! After a power cut its records are read back ([`recovery`]), and the write-back continues.
//!
//! Secure erases remove their sectors from every record that still counts; bytes of released records stay until their room is used again.

mod record;
mod recovery;
mod requests;
mod ring;
mod settings;
mod write_back;

use std::collections::VecDeque;
use std::io;

use emmclab_base::{BlockNote, CommandFlags, Op, Result};
use toml::Table;

use crate::counters::counters;
use crate::in_flight::InFlightRequests;
use crate::interval_map::IntervalMap;
use crate::layer::{BackgroundDecision, DisksBelow, Layer, RecoveryReader, RequestDecision, ReservedArea};
use crate::layer_kind::{LayerKind, read_settings};
use crate::layer_setting::settings_of;
use crate::plan::CommandPlan;
use crate::request::HostRequest;

use record::SECTOR;
use requests::BypassedWrites;
use ring::RecordRing;
use settings::NvmBufferParameters;
pub use settings::NvmBufferSettings;
use write_back::WriteBackState;

pub(crate) const KIND: LayerKind = LayerKind {
    name: "nvm-buffer",
    about: "collects writes in a small non-volatile buffer, where they are durable, and writes them back in address order",
    build,
    settings: settings_of::<NvmBufferSettings>,
};

counters! {
    /// Writes into the buffer.
    buffered_writes,
    /// Their bytes.
    buffered_bytes,
    /// Bytes in the buffer that were overwritten before they were written back.
    absorbed_bytes,
    /// Writes that bypassed the buffer.
    past_writes,
    /// Their bytes.
    past_bytes,
    /// Reads with at least a part of their data in the buffer.
    read_hits,
    /// Bytes that these reads got from the buffer.
    read_hit_bytes,
    /// Runs written back.
    write_back_runs,
    /// Their bytes.
    write_back_bytes,
    /// Times that records were released.
    releases,
    /// Flushes from the host, and those for which the device was flushed, too.
    flushes,
    device_flushes,
    /// Maximum number of bytes of the buffer in use since the start, including headers of records and gaps.
    most_used_bytes,
}

fn build(table: &Table, below: &DisksBelow) -> Result<Box<dyn Layer>> {
    let settings: NvmBufferSettings = read_settings(KIND.name, table)?;
    Ok(Box::new(NvmBuffer::new(settings.shape(KIND.name, below)?)))
}

/// The NVM buffer as a layer.
struct NvmBuffer {
    shape: NvmBufferParameters,
    ring: RecordRing,
    /// The newest data in the buffer.
    logged: IntervalMap,
    /// The part of it that is not written back yet.
    dirty: IntervalMap,
    write_back: WriteBackState,
    bypassed: BypassedWrites,
    /// Sequence number of the newest record header.
    head_number: u64,
    is_recovered: bool,
    /// Positions of records whose data is incomplete.
    torn: Vec<u32>,
    counters: LayerCounters,
    /// The counters when they were cleared.
    cleared: LayerCounters,
}

impl NvmBuffer {
    /// Starts with new disks.
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
                self.plan_head(self.ring.next_sequence(), plan);
            }
        }
        if !plan.is_empty() {
            plan.wait();
            plan.bare(area.disk, Op::Flush, 0, 0);
        }
    }

    fn accepts(&self) -> CommandFlags {
        // A record contains its own map entry, so no layer metadata has to be flushed. Flushes and orders across both disks are
        // left to the driver.
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
