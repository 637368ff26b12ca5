//! Disks in memory, and a model of their contents.

use std::collections::BTreeMap;
use std::io;

use emmclab_base::CommandFlags;
use emmclab_layers::{DiskZones, DisksBelow, ImmediateStack, LayerConfig, SectorDisk, build_stack};

pub const SECTOR: usize = 512;

/// A disk in memory.
#[derive(Clone)]
pub struct MemDisk {
    pub data: Vec<u8>,
}

impl MemDisk {
    pub fn new(sectors: u64) -> Self {
        Self { data: vec![0; sectors as usize * SECTOR] }
    }
}

impl SectorDisk for MemDisk {
    fn read(&mut self, sector: u64, buffer: &mut [u8]) -> io::Result<()> {
        buffer.copy_from_slice(&self.data[sector as usize * SECTOR..][..buffer.len()]);
        Ok(())
    }

    fn write(&mut self, sector: u64, data: &[u8], _: CommandFlags) -> io::Result<()> {
        self.data[sector as usize * SECTOR..][..data.len()].copy_from_slice(data);
        Ok(())
    }

    fn discard(&mut self, sector: u64, sectors: u32, _secure: bool) -> io::Result<()> {
        self.data[sector as usize * SECTOR..][..sectors as usize * SECTOR].fill(0xDD);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A disk with a volatile cache, whose power is cut after a number of writes. Each sector that was written since the last flush then
/// contains, at random, its old data or the data of any later write.
#[derive(Debug)]
pub struct CutDisk {
    pub data: Vec<u8>,
    unflushed: BTreeMap<u64, Vec<Vec<u8>>>,
    /// Number of writes until the cut, shared by all disks.
    pub left: std::rc::Rc<std::cell::Cell<u64>>,
    /// Zones of the disk, whose rules it enforces, and the write pointer of each.
    zones: Option<DiskZones>,
    pointers: Vec<u64>,
    /// End of the durable prefix of each zone.
    durable: Vec<u64>,
}

impl CutDisk {
    pub fn new(data: Vec<u8>, left: std::rc::Rc<std::cell::Cell<u64>>) -> Self {
        Self { data, unflushed: BTreeMap::new(), left, zones: None, pointers: Vec::new(), durable: Vec::new() }
    }

    /// Returns the disk with empty zones.
    pub fn zoned(self, zones: Option<DiskZones>) -> Self {
        let starts = zones
            .map_or(Vec::new(), |zones| (0..u64::from(zones.count)).map(|zone| zones.first + zone * zones.sectors).collect());
        Self { zones, pointers: starts.clone(), durable: starts, ..self }
    }

    /// Returns another disk with the contents after the cut.
    pub fn again(&self, left: std::rc::Rc<std::cell::Cell<u64>>) -> Self {
        let (pointers, durable) = (self.pointers.clone(), self.durable.clone());
        Self { zones: self.zones, pointers, durable, ..Self::new(self.data.clone(), left) }
    }

    /// The zone of a sector.
    fn zone(&self, sector: u64) -> Option<(usize, u64, u64)> {
        let zones = self.zones.filter(|zones| sector >= zones.first)?;
        let number = (sector - zones.first) / zones.sectors;
        let start = zones.first + number * zones.sectors;
        Some((number as usize, start, start + zones.sectors))
    }

    /// Checks a write against the rules of zones.
    fn check_write(&mut self, sector: u64, end: u64) {
        let Some(zones) = self.zones.filter(|zones| end > zones.first) else { return };
        let (number, start, stop) = self.zone(sector).unwrap();
        assert_eq!(sector, self.pointers[number], "a write of zone {number} not at its write pointer");
        assert!(end <= stop, "a write leaves zone {number}");
        assert!((end - start).is_multiple_of(u64::from(zones.write_sectors)), "a write ends inside a block");
        let opens = self.pointers[number] == start;
        self.pointers[number] = end;
        let is_active = |(number, pointer): (usize, &u64)| {
            let start = zones.first + number as u64 * zones.sectors;
            *pointer > start && *pointer < start + zones.sectors
        };
        let active = self.pointers.iter().enumerate().filter(|one| is_active(*one)).count();
        assert!(!opens || active <= zones.max_active as usize, "{active} zones are active");
    }

    /// The contents when the power returns.
    pub fn after(mut self, die: &mut impl FnMut(usize) -> usize) -> Self {
        // Of each zone, the durable prefix or a longer one survives.
        if let Some(zones) = self.zones {
            let unit = u64::from(zones.write_sectors);
            for number in 0..self.pointers.len() {
                let more = (self.pointers[number] - self.durable[number]).div_ceil(unit);
                let kept = self.durable[number] + die(more as usize + 1) as u64 * unit;
                self.settle(self.durable[number]..kept);
                self.unflushed.retain(|sector, _| !(kept..self.pointers[number]).contains(sector));
                (self.pointers[number], self.durable[number]) = (kept, kept);
            }
        }
        for (sector, versions) in std::mem::take(&mut self.unflushed) {
            let chosen = die(versions.len() + 1);
            if chosen > 0 {
                self.data[sector as usize * SECTOR..][..SECTOR].copy_from_slice(&versions[chosen - 1]);
            }
        }
        self
    }

    /// Makes the newest versions of the sectors durable.
    fn settle(&mut self, sectors: std::ops::Range<u64>) {
        let mut settled = self.unflushed.split_off(&sectors.start);
        self.unflushed.append(&mut settled.split_off(&sectors.end));
        for (sector, versions) in settled {
            self.data[sector as usize * SECTOR..][..SECTOR].copy_from_slice(versions.last().unwrap());
            if let Some((number, ..)) = self.zone(sector) {
                self.durable[number] = self.durable[number].max(sector + 1);
            }
        }
    }

    fn spend(&self) -> io::Result<()> {
        let left = self.left.get().checked_sub(1).ok_or_else(|| io::Error::other("power was cut"))?;
        self.left.set(left);
        Ok(())
    }
}

impl SectorDisk for CutDisk {
    fn read(&mut self, sector: u64, buffer: &mut [u8]) -> io::Result<()> {
        for (sector, part) in (sector..).zip(buffer.chunks_mut(SECTOR)) {
            match self.unflushed.get(&sector).and_then(|versions| versions.last()) {
                Some(newest) => part.copy_from_slice(newest),
                None => part.copy_from_slice(&self.data[sector as usize * SECTOR..][..SECTOR]),
            }
        }
        Ok(())
    }

    fn write(&mut self, sector: u64, data: &[u8], modifiers: CommandFlags) -> io::Result<()> {
        if modifiers.contains(CommandFlags::PREFLUSH) {
            self.flush()?;
        }
        self.check_write(sector, sector + (data.len() / SECTOR) as u64);
        // The write at which the power is cut is torn: some of its sectors may be written.
        for (i, part) in data.chunks(SECTOR).enumerate() {
            self.unflushed.entry(sector + i as u64).or_default().push(part.to_vec());
        }
        self.spend()?;
        if modifiers.durable() {
            // A prefix of a zone survives.
            let first = self.zone(sector).map_or(sector, |(_, start, _)| start);
            self.settle(first..sector + (data.len() / SECTOR) as u64);
        }
        Ok(())
    }

    fn discard(&mut self, sector: u64, sectors: u32, _secure: bool) -> io::Result<()> {
        // Outside of zones, it may leave the old data.
        if let Some((number, start, end)) = self.zone(sector) {
            assert_eq!((sector, sector + u64::from(sectors)), (start, end), "a discard of a part of a zone");
            self.unflushed.retain(|sector, _| !(start..end).contains(sector));
            self.data[start as usize * SECTOR..end as usize * SECTOR].fill(0);
            (self.pointers[number], self.durable[number]) = (start, start);
        }
        Ok(())
    }

    fn write_pointer(&mut self, sector: u64) -> io::Result<Option<u64>> {
        Ok(self.zone(sector).map(|(number, ..)| self.pointers[number]))
    }

    fn flush(&mut self) -> io::Result<()> {
        // A cut during a flush makes it ineffective.
        self.spend()?;
        self.settle(0..u64::MAX);
        Ok(())
    }
}

/// Fills sectors from `first` on, each with its number and a version.
pub fn stamp(first: u64, version: u64, out: &mut [u8]) {
    for (sector, part) in (first..).zip(out.chunks_mut(SECTOR)) {
        part.fill(version as u8);
        part[..8].copy_from_slice(&version.to_le_bytes());
        part[8..16].copy_from_slice(&sector.to_le_bytes());
    }
}

/// The version in a sector; `None` if the sector is not intact.
pub fn version(sector: u64, bytes: &[u8]) -> Option<u64> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Some(0);
    }
    let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let mut wanted = [0; SECTOR];
    stamp(sector, version, &mut wanted);
    (bytes == wanted).then_some(version)
}

/// Stripes of this length over both disks.
pub fn striping(chunk: &str) -> LayerConfig {
    LayerConfig::named("pair").with("routing", "striping").with("chunk", chunk)
}

/// These layers on empty disks.
pub fn started(stack: &[LayerConfig], below: &DisksBelow) -> ImmediateStack<MemDisk> {
    let disks = [Some(below.main), below.second].into_iter().flatten().map(MemDisk::new).collect();
    ImmediateStack::start(build_stack(stack, below).unwrap(), disks, false).unwrap()
}

/// A counter of the first layer.
pub fn count(executor: &ImmediateStack<MemDisk>, name: &str) -> u64 {
    executor.layer(0).counters().into_iter().find(|(known, _)| *known == name).unwrap().1
}

/// A small Advil: clustered pages of 4 KB, blocks of 16 KB, a reserved area of 256 KB.
pub fn small(name: &str) -> LayerConfig {
    let config = LayerConfig::named(name).with("reserved", "256KB").with("clustered_block", "32KB");
    if name == "advil" { config.with("clustered_page", "8KB").with("block_padding_over", "2") } else { config }
}

pub const BELOW: DisksBelow = DisksBelow::new(4096, Some(1024));
