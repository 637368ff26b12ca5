//! Recovery: restores the state from the newest checkpoint and the records after it.

use std::io;

use super::Advil;
use super::checkpoint::{Checkpoints, Mark, parse_runs, sectors};
use super::mover::Moving;
use super::record::{Body, Point, Record, SECTOR, Tombstone};
use super::section::Section;
use crate::checksum::{sealed, whole};
use crate::interval_map::{Extent, IntervalMap};
use crate::layer::ReadAt;
use crate::window::Window;

/// The state that has been rebuilt so far.
struct Back {
    map: IntervalMap,
    released: u64,
}

/// A region of the log whose records are read.
struct Region {
    epoch: u32,
    generation: u64,
    from: u32,
    end: u32,
}

/// A checkpoint that is intact.
struct Checkpoint {
    generation: u64,
    point: Point,
    map: IntervalMap,
}

impl Advil {
    /// Rebuilds the map and the sections. Records that were not flushed may be missing, even between others; such gaps are skipped.
    pub(super) fn read_back(&mut self, disks: &mut dyn ReadAt) -> io::Result<()> {
        let mut window = Window::new(disks, self.shape.reserved);
        let starts = [self.read_head(&mut window, 0)?, self.read_head(&mut window, 1)?];
        let Some(start) = starts.into_iter().flatten().max_by_key(|record| record.epoch) else {
            // Power was lost before the very first write was durable: there is nothing to lose.
            return Ok(());
        };
        if start.body != self.start_body() {
            return Err(io::Error::other("the reserved area was set up with other sizes"));
        }
        self.journal.epoch = start.epoch + 1;
        self.journal.recovered = true;
        let [first, second] = [0, 1].map(|i| self.read_head(&mut window, self.sections[i].first));
        let heads = [first?, second?];
        for (section, head) in self.sections.iter_mut().zip(&heads) {
            section.generation = 0;
            if let Some(Record { generation, body: Body::Section { hot }, .. }) = head
                && *hot < section.sectors
            {
                section.open(*generation, 1, *hot);
            }
        }
        self.current = usize::from(self.sections[1].generation > self.sections[0].generation);
        let newest = self.sections[self.current].generation;
        if newest == 0 {
            // The start record was durable, the head of the first section was not.
            self.sections[0].open(1, self.shape.header, 0);
            self.current = 0;
            self.journal.recovered = false;
            return Ok(());
        }
        let checkpoint = self.read_checkpoint(&mut window, newest)?;
        let known = checkpoint.as_ref().map(|checkpoint| (checkpoint.generation, checkpoint.point));
        let mark = known.map(|(generation, point)| Mark {
            sequence: point.sequence,
            generation,
            log_next: point.log_next,
        });
        self.checkpoints = Checkpoints::after(mark.unwrap_or_default());
        // A checkpoint that does not list the runs of the map is no base for the recovery: all sections are read. Only its number
        // counts, for the checkpoints that follow.
        let known = known.filter(|(_, point)| point.runs.is_some());
        let mut back = Back {
            map: checkpoint.map_or_else(|| IntervalMap::new(self.shape.capacity), |found| found.map),
            released: known.map_or(0, |(_, point)| point.released),
        };
        for index in [1 - self.current, self.current] {
            let section = self.sections[index].clone();
            let generation = section.generation;
            let Some(head) = heads[index].as_ref().filter(|_| generation > 0 && generation + 1 >= newest)
            else {
                continue;
            };
            if known.is_some_and(|(known, _)| generation < known) {
                continue;
            }
            let point = known.filter(|(known, _)| generation == *known).map(|(_, point)| point);
            let (hot_from, log_from) =
                point.map_or((section.first + 1, section.hot_end), |point| (point.hot_next, point.log_next));
            if point.is_none() {
                // Older data in this section was released.
                back.map.remove(0, self.shape.capacity, |run| section.holds(run.place));
            }
            let log_end = if known.is_some() { section.seen_from(log_from) } else { section.end() };
            let region = |from, end| Region { epoch: head.epoch, generation, from, end };
            let hot_next = self.read_region(&mut window, &region(hot_from, section.hot_end), |record| {
                back.copied(&record, point.is_some().then_some(&section));
            })?;
            let log_next = self.read_region(&mut window, &region(log_from, log_end), |record| {
                self.replay(record, &mut back);
            })?;
            let section = &mut self.sections[index];
            (section.hot_next, section.log_next, section.log_end) = (hot_next, log_next, log_end);
        }
        self.moving = Moving::default();
        if self.sections[1 - self.current].generation + 1 == newest && back.released + 1 < newest {
            self.moving.resume();
        } else {
            let before = &self.sections[1 - self.current];
            back.map.remove(0, self.shape.capacity, |run| before.holds(run.place));
        }
        self.map = back.map;
        Ok(())
    }

    /// Applies a record of the log to the rebuilt state.
    fn replay(&self, record: Record<'_>, back: &mut Back) {
        match record.body {
            Body::Data(_) => back.copied(&record, None),
            Body::Tombstones(tombstones) => {
                for tombstone in &tombstones {
                    self.apply(tombstone, &mut back.map);
                }
            }
            Body::Released { through } => back.released = through,
            Body::Section { .. } | Body::Start { .. } | Body::Checkpoint(_) => {}
        }
    }

    fn apply(&self, tombstone: &Tombstone, map: &mut IntervalMap) {
        map.remove(tombstone.sector, tombstone.sector.saturating_add(u64::from(tombstone.sectors)), |run| {
            let generation = self.generation_at(run.place);
            generation < tombstone.generation
                || (generation == tombstone.generation && run.place < tombstone.through)
        });
    }

    /// Returns the newest checkpoint that is intact and belongs to generation `newest` or the one before.
    fn read_checkpoint(&self, window: &mut Window<'_>, newest: u64) -> io::Result<Option<Checkpoint>> {
        if self.shape.slot == 0 {
            return Ok(None);
        }
        let mut heads = Vec::new();
        for sequence in 0..2 {
            let head = self.read_sector(window, self.slot(sequence), self.shape.before)?;
            if let Some((Record { generation, sectors, place, body: Body::Checkpoint(point), .. }, header)) =
                head
                && generation <= newest
                && generation + 1 >= newest
            {
                heads.push((generation, point, place, sectors, header));
            }
        }
        heads.sort_by_key(|(_, point, ..)| std::cmp::Reverse(point.sequence));
        for (generation, point, place, sectors, header) in heads {
            let data = if sectors > 0 { window.at(place + 1, sectors, self.shape.before)? } else { &[] };
            if !whole(&header, data) {
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
                return Ok(Some(Checkpoint { generation, point, map }));
            }
        }
        Ok(None)
    }

    /// Calls `visit` with each intact record of a region; returns the place after the last one. Records of an epoch before the
    /// epoch of the section's head are skipped: they belong to an attempt at this generation whose head was lost.
    fn read_region(
        &self,
        window: &mut Window<'_>,
        region: &Region,
        mut visit: impl FnMut(Record<'static>),
    ) -> io::Result<u32> {
        let Region { epoch, generation, end, .. } = *region;
        let mut place = region.from;
        let mut next = place;
        while place < end {
            let read = self.read_sector(window, place, end)?.filter(|(record, _)| {
                record.generation == generation && record.epoch >= epoch && record.sectors < end - place
            });
            let Some((record, header)) = read else {
                place += 1;
                continue;
            };
            let data = if record.sectors > 0 { window.at(place + 1, record.sectors, end)? } else { &[] };
            // Data with a wrong checksum was never flushed, or was erased.
            let is_whole = whole(&header, data);
            place += 1 + record.sectors;
            next = place;
            if is_whole {
                visit(record);
            }
        }
        Ok(next)
    }

    fn read_head(&self, window: &mut Window<'_>, place: u32) -> io::Result<Option<Record<'static>>> {
        Ok(self.read_sector(window, place, place + 1)?.map(|(record, _)| record))
    }

    /// Returns the header at a place before `end`, with its bytes; `None` if there is none, or it is damaged or inconsistent.
    fn read_sector(
        &self,
        window: &mut Window<'_>,
        place: u32,
        end: u32,
    ) -> io::Result<Option<(Record<'static>, [u8; SECTOR])>> {
        let mut header = [0; SECTOR];
        header.copy_from_slice(window.at(place, 1, end)?);
        let record = Record::parse(&header)
            .filter(|record| record.place == place && sealed(&header) && self.is_sane(record));
        Ok(record.map(|record| (record, header)))
    }

    /// Whether lengths and addresses are inside the areas.
    fn is_sane(&self, record: &Record<'_>) -> bool {
        let inside = u64::from(record.place) + u64::from(record.sectors) < self.shape.reserved.sectors;
        let data = match &record.body {
            Body::Data(runs) => {
                let sum: u64 = runs.iter().map(|(_, sectors)| u64::from(*sectors)).sum();
                let fit = |(sector, sectors): &(u64, u32)| {
                    *sectors > 0 && sector.saturating_add(u64::from(*sectors)) <= self.shape.capacity
                };
                sum == u64::from(record.sectors) && runs.iter().all(fit)
            }
            Body::Checkpoint(point) => {
                record.sectors < self.shape.slot
                    && u64::from(record.sectors) == sectors(point.runs.unwrap_or(0))
            }
            _ => record.sectors == 0,
        };
        inside && data
    }
}

impl Back {
    /// Maps the data of a record. With `only_into`, the record is a copy of hot data made after a checkpoint: it replaces only data
    /// outside that section, as data in it was logged again before the checkpoint.
    fn copied(&mut self, record: &Record<'_>, only_into: Option<&Section>) {
        let Body::Data(runs) = &record.body else { return };
        let mut place = record.place + 1;
        for &(sector, sectors) in runs.iter() {
            let end = sector + u64::from(sectors);
            match only_into {
                None => {
                    self.map.insert(Extent { sector, sectors, place });
                }
                Some(section) => {
                    let older: Vec<_> =
                        self.map.between(sector, end).filter(|run| !section.holds(run.place)).collect();
                    for run in older {
                        self.map.insert(Extent { place: place + (run.sector - sector) as u32, ..run });
                    }
                }
            }
            place += sectors;
        }
    }
}
