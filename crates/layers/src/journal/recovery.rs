//! Recovery of the log after a power cut: which records are valid, and the writes that put the journal's blocks where the file
//! system reads them.

use std::io;

use emmclab_base::{CommandFlags, Op};

use crate::layer::RecoveryReader;
use crate::plan::{CommandPlan, PlanMemory};

use super::log::{ALIGN, JournalLog, LogArea, SEGMENTS, ZEROS};
use super::record::{JournalLogRecord, SECTOR};

/// Magic number of JBD2, and the types of its superblocks.
const JOURNAL_MAGIC: u32 = 0xC03B_3998;
const SUPERBLOCKS: [u32; 2] = [3, 4];

/// Restores the log from its area: the blocks of the transactions that the journal's superblock still holds.
///
/// # Errors
/// Errors of the disk.
pub(super) fn recover(area: LogArea, disks: &mut dyn RecoveryReader) -> io::Result<JournalLog> {
    let mut segments = Vec::new();
    for segment in 0..SEGMENTS {
        let records = records(area, segment, disks)?;
        if let Some((first, _)) = records.first() {
            segments.push((first.generation, records));
        }
    }
    segments.sort_by_key(|(generation, _)| *generation);
    let newest = segments.last().map_or(0, |(generation, _)| *generation);
    let mut log = JournalLog::new(area, newest);
    let mut superblock = None;
    for (_, records) in segments {
        log.begin_segment();
        for (record, sector) in records {
            if record.entries.is_empty() {
                log.forget(None);
            } else {
                superblock = Some(record.superblock);
                log.add(&record, sector);
            }
        }
    }
    let Some(superblock) = superblock else { return Ok(log) };
    match tail(superblock, disks)? {
        Some(tail) => log.forget(Some(tail)),
        None => log.forget(None),
    }
    log.set_superblock(superblock);
    Ok(log)
}

/// Returns the records of a segment, with their first sectors.
fn records(area: LogArea, segment: u32, disks: &mut dyn RecoveryReader) -> io::Result<Vec<(JournalLogRecord, u64)>> {
    let mut records: Vec<(JournalLogRecord, u64)> = Vec::new();
    let mut place = 0;
    let mut bytes = vec![0; SECTOR];
    while place + ALIGN <= area.segment {
        let sector = area.start(segment) + u64::from(place);
        bytes.resize(SECTOR, 0);
        disks.read_at(0, sector, &mut bytes)?;
        let Some(length) = JournalLogRecord::length(&bytes).filter(|length| place + 1 + length <= area.segment) else {
            break;
        };
        bytes.resize((1 + length as usize) * SECTOR, 0);
        disks.read_at(0, sector, &mut bytes)?;
        let follows = |record: &JournalLogRecord| {
            record.place == place && records.first().is_none_or(|(first, _)| first.generation == record.generation)
        };
        let Some(record) = JournalLogRecord::parse(&bytes).filter(follows) else { break };
        place += 1 + record.length;
        records.push((record, sector));
    }
    Ok(records)
}

/// Returns the first transaction that the file system has to replay; `None` if the journal is empty or there is none.
fn tail(superblock: u64, disks: &mut dyn RecoveryReader) -> io::Result<Option<u32>> {
    let mut bytes = vec![0; SECTOR];
    disks.read_at(0, superblock, &mut bytes)?;
    let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let journal = word(0) == JOURNAL_MAGIC && SUPERBLOCKS.contains(&word(4));
    let (sequence, start) = (word(0x18), word(0x1C));
    Ok((journal && start != 0).then_some(sequence))
}

/// Plans the writes that durably put every block in the log at its place in the journal.
pub(super) fn rebuild(log: &JournalLog, plan: &mut CommandPlan) {
    let mut placed = Vec::new();
    for (block, stored) in log.blocks() {
        let length = stored.sectors.len() as u32;
        let scratch = plan.scratch(length);
        read_sectors(&stored.sectors, (PlanMemory::Scratch, scratch), plan);
        placed.push((block, scratch, length));
    }
    if placed.is_empty() {
        return;
    }
    plan.wait();
    for (block, scratch, length) in placed {
        plan.begin(0, Op::Write, block);
        plan.piece(PlanMemory::Scratch, scratch, length);
    }
    plan.wait();
    plan.flag(CommandFlags::empty());
    plan.bare(0, Op::Flush, 0, 0);
    plan.wait();
}

/// Plans to read the sectors of a block from their places in the log into memory.
pub(super) fn read_sectors(places: &[u64], (memory, first): (PlanMemory, u32), plan: &mut CommandPlan) {
    let mut done = 0;
    while let Some(&place) = places.get(done) {
        let rest = &places[done..];
        let to = (memory, first + done as u32);
        let run = if place == ZEROS {
            let run = rest.iter().take_while(|place| **place == ZEROS).count();
            plan.zeros(to, run as u32);
            run
        } else {
            let run = rest.iter().zip(place..).take_while(|(place, expected)| **place == *expected).count();
            plan.begin(0, Op::Read, place);
            plan.piece(memory, to.1, run as u32);
            run
        };
        done += run;
    }
}
