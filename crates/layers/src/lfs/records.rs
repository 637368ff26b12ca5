//! The log of records for flushes and durable writes, and the metadata of all logs (little-endian): records, packs of a checkpoint, and
//! pages of the map.
//!
//! A *record* is a block. Fields of its first sector, each with its byte offset (and its length): 0 magic, 8 checksum of the sector, 16
//! checksum of the rest (both computed by the driver), 24 life of the layer (8), 32 number of the record (8), 40 location in the log (4),
//! 44 blocks of data after it that it covers (4), 48 next segment of the log of records (4), 52 runs (4). The other seven sectors contain
//! the runs: block (4), location (4; all ones = discarded), blocks (4), number of the write (8).
//!
//! A *pack* starts with a sector: 0 magic, checksums as above, 24 number of the checkpoint (8), 32 life (8), 40 number of the next write
//! (8), 48 number of the first record that is valid after the checkpoint (8), 56 segment and 60 block in it where these records start, 64
//! the next segment, 68 blocks of a segment, 72 segments, 76 blocks that the layer offers (4 each). Then two bits for each page of the map
//! follow: 0 = never written, otherwise 1 + the valid copy.
//!
//! A *page of the map* is a block: 0 CRC-32C of the rest (4), 4 its number (4), 8 number of the checkpoint (8), then 1,020 entries of 4
//! bytes.

use emmclab_base::{CommandFlags, Op, SECTOR_BYTES};

use super::segments::{OpenSegment, SegmentTable};
use super::settings::{BLOCK, FOR_CLEANING};
use super::{BlockRemainder, LfsLayer, LfsRequest, RequestEffect, plan_data};
use crate::layer::{DeferReason, HostRequest, RequestDecision};
use crate::plan::CommandPlan;
use crate::records::{SECTOR, checksum, has_valid_data_checksum, has_valid_header_checksum, u32_at, u64_at};

/// Bytes in a block.
pub(super) const BYTES: usize = BLOCK as usize * SECTOR;
/// Number of entries in a page of the map.
pub(super) const ENTRIES: u32 = 1020;
/// Maximum number of runs in a record.
pub(super) const RUNS: usize = (BYTES - SECTOR) / RUN_BYTES;
pub(super) const RUN_BYTES: usize = 20;
/// Location that marks a run of discarded blocks.
pub(super) const NOWHERE: u32 = u32::MAX;
const RECORD: &[u8; 8] = b"lfsrecd1";
const PACK: &[u8; 8] = b"lfspack1";

/// Blocks that are consecutive both in the address space and in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogRun {
    pub block: u32,
    pub place: u32,
    pub blocks: u32,
    /// Write number of the run. For each block, the run with the highest write number is valid.
    pub write: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LfsRecord {
    pub life: u64,
    pub number: u64,
    pub place: u32,
    /// Number of data blocks that follow the record.
    pub data: u32,
    pub next: u32,
    pub runs: u32,
}

impl LfsRecord {
    /// Returns the first sector of the record, without checksums.
    pub fn head(&self) -> [u8; SECTOR] {
        let mut out = [0; SECTOR];
        out[..8].copy_from_slice(RECORD);
        out[24..32].copy_from_slice(&self.life.to_le_bytes());
        out[32..40].copy_from_slice(&self.number.to_le_bytes());
        for (at, value) in [(40, self.place), (44, self.data), (48, self.next), (52, self.runs)] {
            out[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        out
    }

    /// Parses the record at the start of a block; `None` if there is none. [`has_valid_data_checksum`] checks whether its runs and data are
    /// intact.
    pub fn parse(block: &[u8]) -> Option<Self> {
        let head = block.get(..SECTOR)?;
        if &head[..8] != RECORD || !has_valid_header_checksum(head) {
            return None;
        }
        Some(Self {
            life: u64_at(head, 24)?,
            number: u64_at(head, 32)?,
            place: u32_at(head, 40)?,
            data: u32_at(head, 44)?,
            next: u32_at(head, 48)?,
            runs: u32_at(head, 52)?.min(RUNS as u32),
        })
    }

    pub fn runs_of(self, block: &[u8]) -> impl Iterator<Item = LogRun> {
        block[SECTOR..].chunks_exact(RUN_BYTES).take(self.runs as usize).filter_map(|bytes| {
            Some(LogRun {
                block: u32_at(bytes, 0)?,
                place: u32_at(bytes, 4)?,
                blocks: u32_at(bytes, 8)?,
                write: u64_at(bytes, 12)?,
            })
        })
    }
}

/// Writes a run as [`RUN_BYTES`] bytes into a record.
pub(super) fn put_run(run: &LogRun, out: &mut [u8]) {
    for (to, value) in out.chunks_exact_mut(4).zip([run.block, run.place, run.blocks]) {
        to.copy_from_slice(&value.to_le_bytes());
    }
    out[12..RUN_BYTES].copy_from_slice(&run.write.to_le_bytes());
}

/// Locations of checkpoint packs and map pages, from the start of the disk: two packs, then two copies of the map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PackLayout {
    pub pages: u32,
    /// Number of sectors of a pack.
    pub sectors: u32,
    /// Number of sectors reserved for each pack.
    slot: u64,
}

impl PackLayout {
    /// The layout for a map of `blocks` blocks.
    pub fn new(blocks: u64) -> Self {
        let pages = blocks.div_ceil(u64::from(ENTRIES));
        let sectors = 1 + (pages.div_ceil(4)).div_ceil(SECTOR_BYTES);
        Self { pages: pages as u32, sectors: sectors as u32, slot: sectors.next_multiple_of(BLOCK) }
    }

    /// First sector of pack 0 or 1.
    pub fn pack(&self, slot: u64) -> u64 {
        slot * self.slot
    }

    /// First sector of copy 0 or 1 of a map page.
    pub fn page(&self, copy: u8, page: u32) -> u64 {
        2 * self.slot + (u64::from(copy) * u64::from(self.pages) + u64::from(page)) * BLOCK
    }

    /// The first sector after both copies of the map.
    pub fn end(&self) -> u64 {
        self.page(2, 0)
    }
}

/// The first sector of a checkpoint pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CheckpointPack {
    pub number: u64,
    pub life: u64,
    /// Number of the next write.
    pub write: u64,
    /// Number of the first record after the checkpoint. The record starts at block `offset` of `segment`; the log of records continues in
    /// segment `next`.
    pub record: u64,
    pub segment: u32,
    pub offset: u32,
    pub next: u32,
    /// Number of blocks of a segment, number of segments, and number of blocks that the layer offers.
    pub shape: [u32; 3],
}

impl CheckpointPack {
    /// The first sector of a pack, without checksums.
    pub fn head(&self) -> [u8; SECTOR] {
        let mut out = [0; SECTOR];
        out[..8].copy_from_slice(PACK);
        for (at, value) in [(24, self.number), (32, self.life), (40, self.write), (48, self.record)] {
            out[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        let [a, b, c] = self.shape;
        for (at, value) in (0..).zip([self.segment, self.offset, self.next, a, b, c]) {
            out[56 + at * 4..60 + at * 4].copy_from_slice(&value.to_le_bytes());
        }
        out
    }

    /// Parses a checkpoint pack; `None` if the bytes are not an intact pack.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let head = bytes.get(..SECTOR)?;
        if &head[..8] != PACK || !has_valid_header_checksum(head) || !has_valid_data_checksum(head, &bytes[SECTOR..]) {
            return None;
        }
        Some(Self {
            number: u64_at(head, 24)?,
            life: u64_at(head, 32)?,
            write: u64_at(head, 40)?,
            record: u64_at(head, 48)?,
            segment: u32_at(head, 56)?,
            offset: u32_at(head, 60)?,
            next: u32_at(head, 64)?,
            shape: [u32_at(head, 68)?, u32_at(head, 72)?, u32_at(head, 76)?],
        })
    }
}

pub(super) fn page_bytes(page: u32, checkpoint: u64, entries: &[u32]) -> Vec<u8> {
    let mut out = vec![0; BYTES];
    out[4..8].copy_from_slice(&page.to_le_bytes());
    out[8..16].copy_from_slice(&checkpoint.to_le_bytes());
    for (to, entry) in out[16..].chunks_exact_mut(4).zip(entries) {
        to.copy_from_slice(&entry.to_le_bytes());
    }
    let sum = checksum(&out[4..]) as u32;
    out[..4].copy_from_slice(&sum.to_le_bytes());
    out
}

/// Returns the entries of a map page; `None` if the bytes are damaged, or belong to another page or a later checkpoint.
pub(super) fn page_entries(bytes: &[u8], page: u32, checkpoint: u64) -> Option<impl Iterator<Item = u32>> {
    let good = u32_at(bytes, 0)? == checksum(bytes.get(4..BYTES)?) as u32
        && u32_at(bytes, 4)? == page
        && u64_at(bytes, 8)? <= checkpoint;
    let entry = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_le_bytes);
    good.then(|| bytes[16..BYTES].chunks_exact(4).map(entry))
}

/// Index of the log of records, after the indices of the data logs.
pub(super) const SYNC: usize = 5;
/// Maximum number of blocks of data that a record covers: 1 MB.
const MOST_DATA: u32 = 256;

/// State of the log of records.
#[derive(Clone, Debug)]
pub(super) struct SyncLog {
    pub head: OpenSegment,
    /// The clean segment in which the log of records continues when the current segment is full.
    pub next: u32,
    pub life: u64,
    /// Number of the next record.
    pub number: u64,
    /// Number of segments opened so far.
    opened: u64,
    /// Whether a record in the last opened segment is durable. Only then may the log of records continue in another segment.
    confirmed: bool,
    /// Number of the newest segment that recovery can find, in the order in which segments were opened. If a newer segment is open, other
    /// requests write no records, because recovery might not find them.
    durable_write: u64,
    /// Flushes that wait for a checkpoint: the number of the request, and of the newest map change when it arrived.
    pub waiting: Vec<(u64, u64)>,
}

impl Default for SyncLog {
    fn default() -> Self {
        let waiting = Vec::new();
        Self { head: OpenSegment::NONE, next: 0, life: 0, number: 0, opened: 0, confirmed: true, durable_write: 0, waiting }
    }
}

impl SyncLog {
    /// Called when a record is durable. `opened` is the ordinal number of the record's segment, in the order in which segments were opened.
    pub fn confirm(&mut self, opened: u64) {
        self.confirmed |= opened == self.opened;
        // Each record contains the number of the next segment, so recovery can also reach that segment.
        self.durable_write = self.durable_write.max((opened + 1).min(self.opened));
    }

    /// Checks whether the log has space for records of `runs` runs of mapped blocks, and for `data` blocks of data. Otherwise, returns the
    /// reason to wait.
    pub fn has_room(&self, segments: &SegmentTable, runs: usize, data: u32, align: u32) -> Result<(), DeferReason> {
        if self.durable_write < self.opened {
            return Err(DeferReason::Overlap);
        }
        let records = runs.div_ceil(RUNS - 1).max(1) as u32 + data.div_ceil(MOST_DATA);
        let blocks = records * align + data.next_multiple_of(align);
        let room = segments.room(self.head);
        if blocks <= room {
            return Ok(());
        }
        if !self.confirmed {
            return Err(DeferReason::Overlap);
        }
        // In each further segment, another record at the beginning and padding at the end may take space.
        let more = (blocks + 2 * align - room).div_ceil(segments.blocks - 2 * align);
        if more + FOR_CLEANING <= segments.clean() { Ok(()) } else { Err(DeferReason::Full) }
    }

    /// Continues the log of records in the next segment.
    fn go_on(&mut self, segments: &mut SegmentTable) {
        self.head = OpenSegment { segment: self.next, allocated: 0 };
        // A clean segment is available, because `has_room` checked this.
        self.next = segments.reserve().unwrap_or(self.next);
        self.opened += 1;
        if self.confirmed {
            self.durable_write = self.opened;
        }
        self.confirmed = false;
    }
}

impl LfsLayer {
    pub(super) fn flush(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        if let Some(why) = self.no_covering(request.id, 0) {
            return RequestDecision::Defer(why);
        }
        let order = self.pending.order();
        if self.pending.is_empty() {
            plan.bare(0, Op::Flush, 0, 0);
            return RequestDecision::Run;
        }
        let mut flight = self.flights.begin(request.id, RequestEffect::Nothing, (0, 0), 0);
        self.take_pending();
        self.plan_records(None, CommandFlags::PREFLUSH | CommandFlags::RELIABLE, &mut flight, plan);
        flight.records = flight.records.map(|(_, opened)| (order, opened));
        self.flights.all.push(flight);
        RequestDecision::Run
    }

    /// Returns the reason why a flush must wait before it writes its records with `data` blocks of data; `None` if it need not wait.
    fn no_covering(&mut self, id: u64, data: u32) -> Option<DeferReason> {
        let came = self.sync.waiting.iter().find(|(waiting, _)| *waiting == id).map(|(_, order)| *order);
        let order = came.unwrap_or_else(|| self.pending.order());
        if !self.pending.covers(order) {
            if came.is_none() {
                self.sync.waiting.push((id, order));
            }
            self.checkpoints.want();
            return Some(DeferReason::Full);
        }
        let why = self.record_blocked_by(self.pending.len(), data, data > 0)?;
        if why == DeferReason::Full {
            self.work.request_segments(1);
        }
        Some(why)
    }

    fn take_pending(&mut self) {
        self.runs.clear();
        self.runs.extend(self.pending.runs());
    }

    /// Plans a write that is durable on completion.
    pub(super) fn write_durably(
        &mut self, request: &HostRequest, (first, end): (u32, u32), plan: &mut CommandPlan,
    ) -> RequestDecision {
        let flushes = request.modifiers.contains(CommandFlags::PREFLUSH);
        let why = if flushes {
            self.no_covering(request.id, end - first)
        } else {
            let why = self.record_blocked_by(1, end - first, true);
            if why == Some(DeferReason::Full) {
                self.work.request_segments(1);
            }
            why
        };
        if let Some(why) = why {
            return RequestDecision::Defer(why);
        }
        self.write += 1;
        self.counters.host_blocks += u64::from(end - first);
        let order = self.pending.order();
        let mut flight = self.flights.begin(request.id, RequestEffect::Recorded, (first, end), self.write);
        let rest = self.plan_remainder(request, plan);
        flight.locks = (rest.is_some() && self.shape.is_zoned).then_some(SYNC);
        if flushes {
            self.take_pending();
        } else {
            self.runs.clear();
        }
        let durable = request.modifiers.intersection(CommandFlags::DURABLE);
        let durable = if durable.is_empty() { CommandFlags::RELIABLE } else { durable };
        let flags = durable | request.modifiers.intersection(CommandFlags::META | CommandFlags::PREFLUSH);
        self.plan_records(Some((request, rest.unwrap_or_default())), flags, &mut flight, plan);
        if flushes {
            flight.records = flight.records.map(|(_, opened)| (order, opened));
        }
        self.flights.all.push(flight);
        RequestDecision::Run
    }

    /// Plans records for the runs of blocks in `self.runs`, and for the data of a request if there is one. The data of the runs is already
    /// written, so a flush of the disk before the records makes it durable.
    pub(super) fn plan_records(
        &mut self, data: Option<(&HostRequest, BlockRemainder)>, flags: CommandFlags, flight: &mut LfsRequest,
        plan: &mut CommandPlan,
    ) {
        let runs = std::mem::take(&mut self.runs);
        let mut listed = 0;
        // Whether the previous record must be durable before the data of the request is written.
        let mut comes_first = false;
        let mut block = flight.first;
        let end = if data.is_some() { flight.end } else { block };
        while listed < runs.len() || block < end {
            let room = self.segments.room(self.sync.head);
            if room == 0 {
                self.sync.go_on(&mut self.segments);
                continue;
            }
            let listing = &runs[listed..runs.len().min(listed + RUNS - 1)];
            let is_last = listed + listing.len() == runs.len();
            let most = if is_last { (end - block).min(room - 1).min(MOST_DATA) } else { 0 };
            let mut head = self.sync.head;
            if listing.is_empty() && most == 0 {
                let place = self.take(&mut head, room, flight);
                self.sync.head = head;
                plan.flag(CommandFlags::empty());
                plan.begin(0, Op::Write, self.shape.sector(place));
                self.pad(room, plan);
                continue;
            }
            if comes_first {
                plan.flag(CommandFlags::empty());
                plan.wait();
                if !self.shape.durable_writes {
                    plan.bare(0, Op::Flush, 0, 0);
                    plan.wait();
                }
                flight.locks = flight.locks.or(self.shape.is_zoned.then_some(SYNC));
            }
            comes_first = data.is_some() && !listing.is_empty();
            let taken = (1 + most).next_multiple_of(self.shape.align).min(room);
            let place = self.take(&mut head, taken, flight);
            self.sync.head = head;
            let own = LogRun { block, place: place + 1, blocks: most, write: flight.write };
            let listed_own = u32::from(most > 0);
            let record = LfsRecord {
                life: self.sync.life,
                number: self.sync.number,
                place,
                data: most,
                next: self.sync.next,
                runs: listing.len() as u32 + listed_own,
            };
            self.sync.number += 1;
            let is_flushed = listing.is_empty() || !flags.contains(CommandFlags::PREFLUSH);
            let mut own_flags = if is_flushed { flags.difference(CommandFlags::PREFLUSH) } else { flags };
            if !self.shape.durable_writes {
                own_flags = own_flags.difference(CommandFlags::DURABLE);
            }
            plan.flag(own_flags);
            plan.begin(0, Op::Write, self.shape.sector(place));
            let mut body = [0; BYTES - SECTOR];
            let all = listing.iter().chain([&own].into_iter().take(listed_own as usize));
            all.zip(body.chunks_exact_mut(RUN_BYTES)).for_each(|(run, to)| put_run(run, to));
            plan.record(&record.head(), 7 + most * 8);
            plan.metadata(&body);
            if let Some((request, rest)) = data.filter(|_| most > 0) {
                plan_data(request, (block, most), rest, plan);
                flight.blocks.push((block, place + 1, most));
                self.set_owners(block, place + 1, most);
            }
            self.pad(taken - 1 - most, plan);
            self.counters.records += 1;
            self.counters.record_blocks += 1;
            listed += listing.len();
            block += most;
        }
        if !self.shape.durable_writes {
            plan.flag(CommandFlags::empty());
            plan.wait();
            plan.bare(0, Op::Flush, 0, 0);
        }
        flight.records = Some((0, self.sync.opened));
        self.runs = runs;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_pages_are_read_as_they_were_written() {
        let run = LogRun { block: 7, place: NOWHERE, blocks: 1 << 20, write: 1 << 60 };
        let mut bytes = [0; BYTES];
        put_run(&run, &mut bytes[SECTOR..]);
        let record = LfsRecord { life: 1, number: 2, place: 3, data: 4, next: 5, runs: 1 };
        assert_eq!(record.runs_of(&bytes).collect::<Vec<_>>(), [run]);
        let page = page_bytes(9, 4, &[1, 2, 3]);
        assert_eq!(page_entries(&page, 9, 4).unwrap().take(4).collect::<Vec<_>>(), [1, 2, 3, 0]);
        assert!(page_entries(&page, 9, 3).is_none(), "a later checkpoint's");
        assert!(page_entries(&page, 8, 4).is_none(), "another page");
        let mut damaged = page.clone();
        damaged[4095] ^= 1;
        assert!(page_entries(&damaged, 9, 4).is_none());
    }

    #[test]
    fn what_is_not_sealed_is_neither_a_record_nor_a_pack() {
        let record = LfsRecord { life: 1, number: 2, place: 3, data: 4, next: 5, runs: 1 };
        assert!(LfsRecord::parse(&record.head()).is_none());
        let pack = CheckpointPack { number: 1, life: 1, write: 1, record: 1, segment: 0, offset: 0, next: 1, shape: [1; 3] };
        assert!(CheckpointPack::parse(&pack.head()).is_none());
        assert!(CheckpointPack::parse(&[0; 3]).is_none());
    }

    #[test]
    fn packs_and_copies_of_the_map_lie_apart() {
        let layout = PackLayout::new(1 << 20);
        assert_eq!((layout.pages, layout.sectors), (1029, 2));
        assert_eq!((layout.pack(1), layout.page(0, 0)), (8, 16));
        assert_eq!((layout.page(1, 0), layout.end()), (16 + 1029 * 8, 16 + 2 * 1029 * 8));
    }
}
