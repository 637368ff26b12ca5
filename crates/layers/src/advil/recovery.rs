//! Checkpoints and recovery. A checkpoint is the map at one point of the log. Recovery reads only the checkpoint and the records after that
//! point.
//!
//! Checkpoints are written alternately to two slots, so if a power cut tears one checkpoint, the previous checkpoint is intact. The map
//! contains a write as soon as the write is planned. Therefore the map is copied first, and the copy is written as a checkpoint only after
//! all requests planned before are complete and durable. Requests may log at most two intervals beyond the newest checkpoint. Recovery
//! searches for records only up to this limit.

use std::io;

use emmclab_base::Op;

use super::mover::{MoverPhase, MoverState};
use super::records::{AdvilRecord, AdvilRecordBody, LogPoint, Tombstone};
use super::{Advil, ReservedSection};
use crate::interval_map::{IntervalMap, LoggedExtent};
use crate::layer::{BackgroundDecision, InFlightRequests, RecoveryReader};
use crate::plan::CommandPlan;
use crate::records::{AreaReader, SECTOR, has_valid_data_checksum, has_valid_header_checksum};

/// Bytes of a run in a checkpoint: sector (8), length (4), location in the reserved area (4).
const RUN_BYTES: usize = 16;

/// Identifies a checkpoint by its number and the point of the log at which the map was copied.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CheckpointId {
    pub sequence: u64,
    pub generation: u64,
    pub log_next: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CheckpointPhase {
    #[default]
    Idle,
    /// A copy of the map is ready, but the checkpoint cannot be written before the requests up to this number are complete. `None` = the
    /// number is not known yet.
    Settle(Option<u64>),
    /// The checkpoint is being written.
    Write,
}

#[derive(Clone, Debug, Default)]
pub(super) struct AdvilCheckpointState {
    newest: CheckpointId,
    /// Number and log point of the next checkpoint.
    next: CheckpointId,
    /// Header fields of the next checkpoint.
    point: LogPoint,
    runs: Vec<u8>,
    phase: CheckpointPhase,
}

impl AdvilCheckpointState {
    /// Creates the state after a recovery. `newest` is the newest checkpoint on disk.
    pub fn after(newest: CheckpointId) -> Self {
        Self { newest, ..Self::default() }
    }

    /// Memory of the buffer of runs in bytes.
    pub fn bytes(&self) -> u64 {
        self.runs.capacity() as u64
    }
}

/// Number of sectors for `runs` runs.
pub(super) fn sectors(runs: u32) -> u64 {
    (u64::from(runs) * RUN_BYTES as u64).div_ceil(SECTOR as u64)
}

/// Parses the runs of a checkpoint.
pub(super) fn parse_runs(bytes: &[u8], runs: u32) -> impl Iterator<Item = LoggedExtent> {
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    bytes.chunks_exact(RUN_BYTES).take(runs as usize).map(move |run| LoggedExtent {
        sector: number(&run[..8]),
        sectors: number(&run[8..12]) as u32,
        place: number(&run[12..]) as u32,
    })
}

impl Advil {
    /// Whether a checkpoint must be written before more logged data is moved.
    pub(super) fn checkpoint_due(&self) -> bool {
        let CheckpointId { generation, log_next, .. } = self.checkpoints.newest;
        let section = &self.sections[self.current];
        self.shape.slot > 0
            && (self.checkpoints.phase != CheckpointPhase::Idle
                || generation != section.generation
                || section.log_next.saturating_sub(log_next) >= self.shape.interval)
    }

    /// Copies the map for the next checkpoint, unless a checkpoint is already in preparation. When all requests before the copy are
    /// complete, plans the write of the checkpoint.
    pub(super) fn checkpoint(&mut self, in_flight: &InFlightRequests, plan: &mut CommandPlan) -> BackgroundDecision {
        if self.checkpoints.phase == CheckpointPhase::Idle {
            self.draw_up();
            self.checkpoints.phase = CheckpointPhase::Settle(in_flight.newest());
        }
        if let CheckpointPhase::Settle(Some(newest)) = self.checkpoints.phase
            && in_flight.oldest().is_some_and(|oldest| oldest <= newest)
        {
            return BackgroundDecision::Later;
        }
        let disk = self.shape.reserved.disk;
        plan.bare(0, Op::Flush, 0, 0);
        if disk != 0 {
            plan.bare(disk, Op::Flush, 0, 0);
        }
        plan.wait();
        let CheckpointId { sequence, generation, .. } = self.checkpoints.next;
        let place = self.slot(sequence);
        let sectors = self.checkpoints.runs.len().div_ceil(SECTOR) as u32;
        let body = AdvilRecordBody::Checkpoint(self.checkpoints.point);
        let record = AdvilRecord { epoch: self.journal.epoch, generation, place, sectors, body };
        plan.begin(disk, Op::Write, self.shape.reserved.sector + u64::from(place));
        plan.record(&record.bytes(), sectors);
        if sectors > 0 {
            plan.metadata(&self.checkpoints.runs);
        }
        plan.wait();
        plan.bare(disk, Op::Flush, 0, 0);
        self.counters.checkpoints += 1;
        self.counters.checkpoint_bytes += (1 + u64::from(sectors)) * SECTOR as u64;
        self.checkpoints.phase = CheckpointPhase::Write;
        BackgroundDecision::Run
    }

    /// Completes the checkpoint that was being written, so that requests may log further. Returns false if none was being written.
    pub(super) fn checkpointed(&mut self) -> bool {
        if self.checkpoints.phase != CheckpointPhase::Write {
            return false;
        }
        let AdvilCheckpointState { next, point, .. } = self.checkpoints;
        self.checkpoints.phase = CheckpointPhase::Idle;
        self.checkpoints.newest = next;
        let section = &mut self.sections[self.current];
        if section.generation == next.generation {
            // If the checkpoint does not contain the runs of the map, recovery scans the whole section. The log may then extend to the end
            // of the section.
            section.log_end = if point.runs.is_some() { section.seen_from(next.log_next) } else { section.end() };
        }
        true
    }

    /// Returns the first sector of the slot for the checkpoint with number `sequence`, counted from the start of the reserved area.
    pub(super) fn slot(&self, sequence: u64) -> u32 {
        self.shape.before - self.shape.slot * (2 - (sequence % 2) as u32)
    }

    fn draw_up(&mut self) {
        let section = &mut self.sections[self.current];
        let AdvilCheckpointState { newest, next, point, runs, .. } = &mut self.checkpoints;
        let sequence = newest.sequence + 1;
        *next = CheckpointId { sequence, generation: section.generation, log_next: section.log_next };
        let count = self.map.len() as u32;
        let fits = sectors(count) < u64::from(self.shape.slot);
        *point = LogPoint {
            sequence,
            released: section.generation - if self.moving.is_over() { 1 } else { 2 },
            hot_next: if matches!(self.moving.phase, MoverPhase::Hot(_)) { section.hot_next } else { section.hot_end },
            log_next: section.log_next,
            runs: fits.then_some(count),
        };
        runs.clear();
        if fits {
            // From now on, recovery may start from the checkpoint that is being written. The log must not leave the range that such a
            // recovery reads.
            section.log_end = section.log_end.min(section.seen_from(section.log_next));
            for run in self.map.between(0, self.shape.capacity) {
                runs.extend_from_slice(&run.sector.to_le_bytes());
                runs.extend_from_slice(&run.sectors.to_le_bytes());
                runs.extend_from_slice(&run.place.to_le_bytes());
            }
        }
    }

    /// Rebuilds the map and the sections. Records that were not flushed may be missing, even between records that survived. Recovery skips
    /// such gaps.
    pub(super) fn read_back(&mut self, disks: &mut dyn RecoveryReader) -> io::Result<()> {
        let mut window = AreaReader::new(disks, self.shape.reserved);
        let starts = [self.read_head(&mut window, 0)?, self.read_head(&mut window, 1)?];
        let Some(start) = starts.into_iter().flatten().max_by_key(|record| record.epoch) else {
            // No start record: power was lost before the very first write was durable, so there is no data to recover.
            return Ok(());
        };
        if start.body != self.start_body() {
            return Err(io::Error::other("the reserved area was created with other sizes"));
        }
        self.journal.epoch = start.epoch + 1;
        self.journal.recovered = true;
        let [first, second] = [0, 1].map(|i| self.read_head(&mut window, self.sections[i].first));
        let heads = [first?, second?];
        for (section, head) in self.sections.iter_mut().zip(&heads) {
            section.generation = 0;
            if let Some(AdvilRecord { generation, body: AdvilRecordBody::Section { hot }, .. }) = head
                && *hot < section.sectors
            {
                section.open(*generation, 1, *hot);
            }
        }
        self.current = usize::from(self.sections[1].generation > self.sections[0].generation);
        let newest = self.sections[self.current].generation;
        if newest == 0 {
            // Neither section has a valid first record: the power was lost when only the record of the start of Advil was durable.
            self.sections[0].open(1, self.shape.header, 0);
            self.current = 0;
            self.journal.recovered = false;
            return Ok(());
        }
        let checkpoint = self.read_checkpoint(&mut window, newest)?;
        let known = checkpoint.as_ref().map(|checkpoint| (checkpoint.generation, checkpoint.point));
        let mark =
            known.map(|(generation, point)| CheckpointId { sequence: point.sequence, generation, log_next: point.log_next });
        self.checkpoints = AdvilCheckpointState::after(mark.unwrap_or_default());
        // If the map did not fit into the checkpoint, recovery reads all sections. Of this checkpoint, it uses only the sequence number,
        // from which later checkpoints continue.
        let known = known.filter(|(_, point)| point.runs.is_some());
        let mut back = RebuiltState {
            map: checkpoint.map_or_else(|| IntervalMap::new(self.shape.capacity), |checkpoint| checkpoint.map),
            released: known.map_or(0, |(_, point)| point.released),
        };
        for index in [1 - self.current, self.current] {
            let section = self.sections[index].clone();
            let generation = section.generation;
            let Some(head) = heads[index].as_ref().filter(|_| generation > 0 && generation + 1 >= newest) else {
                continue;
            };
            if known.is_some_and(|(known, _)| generation < known) {
                continue;
            }
            let point = known.filter(|(known, _)| generation == *known).map(|(_, point)| point);
            let (hot_from, log_from) =
                point.map_or((section.first + 1, section.hot_end), |point| (point.hot_next, point.log_next));
            if point.is_none() {
                // Older data in this section was released before the section was reused, so it is removed from the map.
                back.map.remove(0, self.shape.capacity, |run| section.holds(run.place));
            }
            let log_end = if known.is_some() { section.seen_from(log_from) } else { section.end() };
            let region = |from, end| LogRegion { epoch: head.epoch, generation, from, end };
            let hot_next = self.read_region(&mut window, &region(hot_from, section.hot_end), |record| {
                back.map_record(&record, point.is_some().then_some(&section));
            })?;
            let log_next = self.read_region(&mut window, &region(log_from, log_end), |record| {
                self.replay(record, &mut back);
            })?;
            let section = &mut self.sections[index];
            (section.hot_next, section.log_next, section.log_end) = (hot_next, log_next, log_end);
        }
        self.moving = MoverState::default();
        if self.sections[1 - self.current].generation + 1 == newest && back.released + 1 < newest {
            self.moving.phase = MoverPhase::Evict(0);
        } else {
            let before = &self.sections[1 - self.current];
            back.map.remove(0, self.shape.capacity, |run| before.holds(run.place));
        }
        self.map = back.map;
        Ok(())
    }

    /// Applies a record of the log to the rebuilt state.
    fn replay(&self, record: AdvilRecord<'_>, back: &mut RebuiltState) {
        match record.body {
            AdvilRecordBody::Data(_) => back.map_record(&record, None),
            AdvilRecordBody::Tombstones(tombstones) => {
                for tombstone in &tombstones {
                    self.apply(tombstone, &mut back.map);
                }
            }
            AdvilRecordBody::Released { through } => back.released = through,
            AdvilRecordBody::Section { .. } | AdvilRecordBody::Start { .. } | AdvilRecordBody::Checkpoint(_) => {}
        }
    }

    fn apply(&self, tombstone: &Tombstone, map: &mut IntervalMap) {
        map.remove(tombstone.sector, tombstone.sector.saturating_add(u64::from(tombstone.sectors)), |run| {
            let generation = self.sections[usize::from(!self.sections[0].holds(run.place))].generation;
            generation < tombstone.generation || (generation == tombstone.generation && run.place < tombstone.through)
        });
    }

    /// Returns the newest intact checkpoint. Only checkpoints of generation `newest` and of the generation before are accepted.
    fn read_checkpoint(&self, window: &mut AreaReader<'_>, newest: u64) -> io::Result<Option<AdvilCheckpoint>> {
        if self.shape.slot == 0 {
            return Ok(None);
        }
        let mut heads = Vec::new();
        for sequence in 0..2 {
            let head = self.read_sector(window, self.slot(sequence), self.shape.before)?;
            if let Some((AdvilRecord { generation, sectors, place, body: AdvilRecordBody::Checkpoint(point), .. }, header)) = head
                && generation <= newest
                && generation + 1 >= newest
            {
                heads.push((generation, point, place, sectors, header));
            }
        }
        heads.sort_by_key(|(_, point, ..)| std::cmp::Reverse(point.sequence));
        for (generation, point, place, sectors, header) in heads {
            let data = if sectors > 0 { window.at(place + 1, sectors, self.shape.before)? } else { &[] };
            if !has_valid_data_checksum(&header, data) {
                continue;
            }
            let mut map = IntervalMap::new(self.shape.capacity);
            let mut sane = true;
            for run in parse_runs(data, point.runs.unwrap_or(0)) {
                sane &= run.sectors > 0
                    && run.sector.saturating_add(u64::from(run.sectors)) <= self.shape.capacity
                    && u64::from(run.place) + u64::from(run.sectors) <= self.shape.reserved.sectors;
                if !sane {
                    break;
                }
                map.insert(run);
            }
            let index = usize::from(self.sections[1].generation == generation);
            let section = &self.sections[index];
            let inside = (section.first..=section.hot_end).contains(&point.hot_next)
                && (section.hot_end..=section.end()).contains(&point.log_next);
            if sane && inside && section.generation == generation {
                return Ok(Some(AdvilCheckpoint { generation, point, map }));
            }
        }
        Ok(None)
    }

    /// Calls `visit` with each intact record of a log region. Returns the sector after the last record. Records with an earlier epoch than
    /// the section head are skipped: they were written by an earlier start whose section head was lost.
    fn read_region(
        &self, window: &mut AreaReader<'_>, region: &LogRegion, mut visit: impl FnMut(AdvilRecord<'static>),
    ) -> io::Result<u32> {
        let LogRegion { epoch, generation, end, .. } = *region;
        let mut place = region.from;
        let mut next = place;
        while place < end {
            let read = self
                .read_sector(window, place, end)?
                .filter(|(record, _)| record.generation == generation && record.epoch >= epoch && record.sectors < end - place);
            let Some((record, header)) = read else {
                place += 1;
                continue;
            };
            let data = if record.sectors > 0 { window.at(place + 1, record.sectors, end)? } else { &[] };
            // Data with a wrong checksum was not flushed, or was erased.
            let is_whole = has_valid_data_checksum(&header, data);
            place += 1 + record.sectors;
            next = place;
            if is_whole {
                visit(record);
            }
        }
        Ok(next)
    }

    fn read_head(&self, window: &mut AreaReader<'_>, place: u32) -> io::Result<Option<AdvilRecord<'static>>> {
        Ok(self.read_sector(window, place, place + 1)?.map(|(record, _)| record))
    }

    /// Returns the record header at sector `place`, with its bytes; `None` if there is none, or if it is damaged or inconsistent.
    fn read_sector(
        &self, window: &mut AreaReader<'_>, place: u32, end: u32,
    ) -> io::Result<Option<(AdvilRecord<'static>, [u8; SECTOR])>> {
        let mut header = [0; SECTOR];
        header.copy_from_slice(window.at(place, 1, end)?);
        let record = AdvilRecord::parse(&header)
            .filter(|record| record.place == place && has_valid_header_checksum(&header) && self.is_sane(record));
        Ok(record.map(|record| (record, header)))
    }

    /// Whether the lengths and addresses in a record are within the areas of the layer.
    fn is_sane(&self, record: &AdvilRecord<'_>) -> bool {
        let inside = u64::from(record.place) + u64::from(record.sectors) < self.shape.reserved.sectors;
        let data = match &record.body {
            AdvilRecordBody::Data(runs) => {
                let sum: u64 = runs.iter().map(|(_, sectors)| u64::from(*sectors)).sum();
                let fit = |(sector, sectors): &(u64, u32)| {
                    *sectors > 0 && sector.saturating_add(u64::from(*sectors)) <= self.shape.capacity
                };
                sum == u64::from(record.sectors) && runs.iter().all(fit)
            }
            AdvilRecordBody::Checkpoint(point) => {
                record.sectors < self.shape.slot && u64::from(record.sectors) == sectors(point.runs.unwrap_or(0))
            }
            _ => record.sectors == 0,
        };
        inside && data
    }
}

/// The state rebuilt so far by recovery.
struct RebuiltState {
    map: IntervalMap,
    released: u64,
}

/// A region of the log to read.
struct LogRegion {
    epoch: u32,
    generation: u64,
    from: u32,
    end: u32,
}

struct AdvilCheckpoint {
    generation: u64,
    point: LogPoint,
    map: IntervalMap,
}

impl RebuiltState {
    /// Adds the data of a record to the map. `only_into` is set if the record is a copy of hot data that was created after the checkpoint;
    /// it is the section of the record. Sectors that the map already locates in this section keep their location, because they were logged
    /// again before the checkpoint.
    fn map_record(&mut self, record: &AdvilRecord<'_>, only_into: Option<&ReservedSection>) {
        let AdvilRecordBody::Data(runs) = &record.body else { return };
        let mut place = record.place + 1;
        for &(sector, sectors) in runs.iter() {
            let end = sector + u64::from(sectors);
            match only_into {
                None => {
                    self.map.insert(LoggedExtent { sector, sectors, place });
                }
                Some(section) => {
                    let older: Vec<_> = self.map.between(sector, end).filter(|run| !section.holds(run.place)).collect();
                    for run in older {
                        self.map.insert(LoggedExtent { place: place + (run.sector - sector) as u32, ..run });
                    }
                }
            }
            place += sectors;
        }
    }
}
