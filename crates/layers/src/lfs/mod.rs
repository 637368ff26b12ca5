//! A log-structured block device: data is written to segments in order, never in place, as zones require.
//!
//! Blocks of 4 KB are written to one of several logs, chosen by how often they were rewritten. A map in memory stores the place of
//! each block ([`block_map`]). Changes become durable by *records* in a separate log ([`record`]). A flush flushes the disk and then
//! writes a record of all complete changes ([`unrecorded_changes`]); a durable write is a record together with its data, under one checksum. A
//! checkpoint writes the pages of the map that changed, each over the older of its two copies, and then writes twice a pack that
//! names the valid copies. Cleaning moves live blocks of a segment to the cold log. A segment is reset after a durable checkpoint
//! states that nothing in it is live ([`segments`]). After a power cut the newest pack is valid, and with it the records from the
//! place that it names on ([`recovery`]).
//!
//! Blocks that were never written or were discarded read as zeros. Data that was erased securely does not return in any recovery;
//! its bytes stay in the log until their segment is reset.

mod background;
mod block_map;
mod checkpoint;
mod record;
mod recovery;
mod request_table;
mod requests;
mod segments;
mod settings;
mod sync;
mod unrecorded_changes;

use std::io;

use emmclab_base::{BlockNote, CommandFlags, Op, Result};
use toml::Table as Settings;

use crate::counters::counters;
use crate::in_flight::InFlightRequests;
use crate::layer::{BackgroundDecision, DisksBelow, Layer, RecoveryReader, RequestDecision, ReservedArea};
use crate::layer_kind::{LayerKind, read_settings};
use crate::layer_setting::settings_of;
use crate::plan::CommandPlan;
use crate::request::HostRequest;

use background::LfsBackgroundState;
use block_map::BlockMap;
use checkpoint::LfsCheckpointState;
use record::{LogRun, RUNS};
use request_table::LfsRequestTable;
use segments::{OpenSegment, SegmentTable};
use settings::LfsParameters;
pub use settings::LfsSettings;
use sync::SyncLog;
use unrecorded_changes::UnrecordedChanges;

pub(crate) const KIND: LayerKind = LayerKind {
    name: "lfs",
    about: "writes a log of segments, as zones need it: nothing is written in place, and live data is moved out of old segments",
    build,
    settings: settings_of::<LfsSettings>,
};

counters! {
    /// Blocks of 4 KB that requests wrote, and those that they discarded.
    host_blocks,
    discarded_blocks,
    /// Blocks written to the logs in total, and of these: records, blocks moved by cleaning, and padding.
    log_blocks,
    record_blocks,
    cleaned_blocks,
    padded_blocks,
    /// Blocks of the map and of packs that checkpoints wrote, and the number of checkpoints.
    checkpoint_blocks,
    checkpoints,
    /// Blocks that cleaning read, and segments that it cleaned: in the foreground, while requests waited for room or would soon,
    /// and in the background, in idle time.
    cleaning_reads,
    segments_cleaned_in_foreground,
    segments_cleaned_in_background,
    /// Segments that were reset.
    resets,
    /// Records of flushes and of durable writes.
    records,
    /// Blocks that were read although they were never written.
    unwritten_blocks,
    /// Writes for which the rest of a block was read first.
    partial_writes,
}

/// Maximum number of changes that are kept for the next flush.
const MOST_PENDING: u32 = 16_384;

fn build(table: &Settings, below: &DisksBelow) -> Result<Box<dyn Layer>> {
    let settings: LfsSettings = read_settings(KIND.name, table)?;
    Ok(Box::new(LfsLayer::new(settings.shape(KIND.name, below)?)))
}

/// The layer.
struct LfsLayer {
    shape: LfsParameters,
    table: BlockMap,
    segments: SegmentTable,
    /// The logs of data; the first one receives the blocks that cleaning moves.
    logs: [OpenSegment; 5],
    sync: SyncLog,
    pending: UnrecordedChanges,
    flights: LfsRequestTable,
    checkpoints: LfsCheckpointState,
    work: LfsBackgroundState,
    /// Number of the newest write.
    write: u64,
    /// Segments that are reset before anything else, after recovery.
    first_resets: Vec<u32>,
    /// Sectors to pad blocks that a power cut left in part: first sector and number.
    first_fills: Vec<(u64, u64)>,
    /// Runs of a record in preparation, kept to reuse their memory.
    runs: Vec<LogRun>,
    counters: LayerCounters,
    /// The counters at the time when they were cleared.
    cleared: LayerCounters,
}

impl LfsLayer {
    /// Creates the layer on new disks.
    fn new(shape: LfsParameters) -> Self {
        // Records of all changes need at most a quarter of a segment.
        let most = (shape.segment / 4).max(1).saturating_mul(RUNS as u32 - 1).min(MOST_PENDING);
        Self {
            table: BlockMap::new(shape.blocks),
            segments: SegmentTable::new(shape.segments, shape.segment),
            logs: [OpenSegment::NONE; 5],
            sync: SyncLog::default(),
            pending: UnrecordedChanges::new(most as usize),
            flights: LfsRequestTable::default(),
            checkpoints: LfsCheckpointState::new(shape.pack.pages),
            work: LfsBackgroundState::default(),
            write: 0,
            first_resets: Vec::new(),
            first_fills: Vec::new(),
            runs: Vec::new(),
            counters: LayerCounters::default(),
            cleared: LayerCounters::default(),
            shape,
        }
    }

    /// Maps a block to a new place, or to none; its old place becomes invalid.
    fn map(&mut self, block: u32, place: Option<u32>, is_moved: bool) {
        if let Some(old) = self.table.place(block) {
            self.segments.drop_place(old);
        }
        match place {
            Some(place) if is_moved => self.table.relocate(block, place),
            Some(place) => self.table.write(block, place),
            None => self.table.discard(block),
        }
        if let Some(place) = place {
            self.segments.add_live(place);
        }
    }
}

impl Layer for LfsLayer {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn capacity(&self) -> u64 {
        u64::from(self.shape.blocks) * settings::BLOCK
    }

    fn areas(&self) -> Vec<ReservedArea> {
        vec![ReservedArea { disk: 0, sector: 0, sectors: self.shape.log_sector }]
    }

    fn recover(&mut self, disks: &mut dyn RecoveryReader) -> io::Result<()> {
        self.read_back(disks)
    }

    fn start(&mut self, plan: &mut CommandPlan) {
        self.begin_life(plan);
    }

    fn accepts(&self) -> CommandFlags {
        // A durable write contains its own entry of the map, and all data is on one disk.
        CommandFlags::DURABLE | CommandFlags::PREFLUSH
    }

    fn request(&mut self, request: &HostRequest, _: &[BlockNote], plan: &mut CommandPlan) -> RequestDecision {
        match request.op {
            Op::Read => self.read(request, plan),
            Op::Write => self.write(request, plan),
            Op::Discard | Op::SecureErase => self.discard(request, plan),
            Op::Flush => self.flush(request, plan),
        }
    }

    fn completed(&mut self, id: u64) {
        self.request_done(id);
    }

    fn background(&mut self, in_flight: &InFlightRequests, plan: &mut CommandPlan) -> BackgroundDecision {
        self.next_work(in_flight, plan)
    }

    fn background_done(&mut self) {
        self.work_done();
    }

    fn drain(&mut self) {
        self.checkpoints.want();
    }

    fn clear_counters(&mut self) {
        self.cleared = self.counters.clone();
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.counters.since(&self.cleared);
        let of = |name: &str| all.iter().find(|(found, _)| *found == name).map_or(0, |(_, count)| *count);
        let written = of("log_blocks") + of("checkpoint_blocks");
        all.push(("write_amplification_pct", (written * 100).checked_div(of("host_blocks")).unwrap_or(0)));
        all.push(("mapped_blocks", self.table.mapped()));
        all.push(("free_segments", self.segments.free().into()));
        all.push(("memory_bytes", self.table.bytes() + self.segments.bytes() + self.pending.bytes()));
        all
    }
}
