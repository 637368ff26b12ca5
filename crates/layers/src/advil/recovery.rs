//! Reads the state back from the records of both sections.

use std::io;

use super::Advil;
use super::map::{Extent, IntervalMap};
use super::mover::Moving;
use super::record::{Body, Record, SECTOR, Void, sealed, whole};
use crate::layer::ReadAt;

/// Records of data and voids of one region, in order.
type Found = Vec<Record<'static>>;

impl Advil {
    /// Rebuilds map and sections from every record that is whole. Those that were not flushed may be missing, between
    /// others too: they are passed over.
    pub(super) fn read_back(&mut self, disks: &mut dyn ReadAt) -> io::Result<()> {
        let starts = [self.read_head(disks, 0)?, self.read_head(disks, 1)?];
        let Some(start) = starts.into_iter().flatten().max_by_key(|record| record.life) else {
            // It was cut off before its very first write was durable: there is nothing to lose.
            return Ok(());
        };
        let sizes = Body::Start { capacity: self.shape.capacity, reserved: self.shape.reserved.sectors };
        if start.body != sizes {
            return Err(io::Error::other("the reserved area was set up with other sizes"));
        }
        self.journal.life = start.life + 1;
        self.journal.recovered = true;
        let heads = [0, 1].map(|i| self.read_head(disks, self.sections[i].first));
        let [first, second] = heads;
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
            // The start was durable, the first section not.
            self.sections[0].open(1, self.shape.header, 0);
            self.current = 0;
            self.journal.recovered = false;
            return Ok(());
        }
        let mut map = IntervalMap::default();
        let mut released = 0;
        for index in [1 - self.current, self.current] {
            let generation = self.sections[index].generation;
            let Some(life) = heads[index].as_ref().filter(|_| generation > 0 && generation + 1 >= newest)
            else {
                continue;
            };
            let (life, section) = (life.life, self.sections[index].clone());
            let (hot, end) = self.read_region(disks, life, generation, section.first + 1, section.hot_end)?;
            self.sections[index].hot_next = end;
            let (log, end) = self.read_region(disks, life, generation, section.hot_end, section.end())?;
            self.sections[index].log_next = end;
            for record in hot.into_iter().chain(log) {
                match record.body {
                    Body::Data(runs) => {
                        let mut place = record.place + 1;
                        for &(sector, sectors) in runs.iter() {
                            map.insert(Extent { sector, sectors, place });
                            place += sectors;
                        }
                    }
                    Body::Voids(voids) => voids.iter().for_each(|void| self.apply(void, &mut map)),
                    Body::Released { through } => released = through,
                    Body::Section { .. } | Body::Start { .. } => {}
                }
            }
        }
        self.moving = Moving::default();
        if self.sections[1 - self.current].generation + 1 == newest && released + 1 < newest {
            self.moving.resume();
        } else {
            let before = self.sections[1 - self.current].clone();
            map.remove(0, self.shape.capacity, |run| before.holds(run.place));
        }
        self.map = map;
        Ok(())
    }

    fn apply(&self, void: &Void, map: &mut IntervalMap) {
        map.remove(void.sector, void.sector.saturating_add(u64::from(void.sectors)), |run| {
            let generation = self.generation_at(run.place);
            generation < void.generation || (generation == void.generation && run.place < void.through)
        });
    }

    /// The whole records of a region, and the place behind the last one. One of a life before that of the section's head
    /// is left from an attempt at this generation whose head was lost.
    fn read_region(
        &self,
        disks: &mut dyn ReadAt,
        life: u32,
        generation: u64,
        mut place: u32,
        end: u32,
    ) -> io::Result<(Found, u32)> {
        let mut found = Vec::new();
        let mut next = place;
        while place < end {
            let read = self.read_sector(disks, place)?.filter(|(record, _)| {
                record.generation == generation && record.life >= life && record.sectors < end - place
            });
            let Some((record, header)) = read else {
                place += 1;
                continue;
            };
            let mut data = vec![0; SECTOR * record.sectors as usize];
            if record.sectors > 0 {
                let area = self.shape.reserved;
                disks.read_at(area.disk, area.sector + u64::from(place) + 1, &mut data)?;
            }
            place += 1 + record.sectors;
            next = place;
            // Data that is not whole was never flushed, or was erased.
            if whole(&header, &data) {
                found.push(record);
            }
        }
        Ok((found, next))
    }

    fn read_head(&self, disks: &mut dyn ReadAt, place: u32) -> io::Result<Option<Record<'static>>> {
        Ok(self.read_sector(disks, place)?.map(|(record, _)| record))
    }

    /// The header at a place, with its bytes; `None` where there is none, or it is broken or makes no sense.
    fn read_sector(
        &self,
        disks: &mut dyn ReadAt,
        place: u32,
    ) -> io::Result<Option<(Record<'static>, [u8; SECTOR])>> {
        let area = self.shape.reserved;
        let mut header = [0; SECTOR];
        disks.read_at(area.disk, area.sector + u64::from(place), &mut header)?;
        let record = Record::parse(&header)
            .filter(|record| record.place == place && sealed(&header) && self.is_sane(record));
        Ok(record.map(|record| (record, header)))
    }

    /// Whether lengths and addresses lie inside the areas.
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
            _ => record.sectors == 0,
        };
        inside && data
    }
}
