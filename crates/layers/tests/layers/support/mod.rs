//! Disks in memory, and a model of what they must hold.

use std::collections::BTreeMap;
use std::io;

use emmclab_base::Modifiers;
use emmclab_layers::{Below, Disk, LayerConfig};

pub const SECTOR: usize = 512;

/// A disk of bytes.
#[derive(Clone)]
pub struct MemDisk {
    pub data: Vec<u8>,
}

impl MemDisk {
    pub fn new(sectors: u64) -> Self {
        Self { data: vec![0; sectors as usize * SECTOR] }
    }
}

impl Disk for MemDisk {
    fn read(&mut self, sector: u64, buffer: &mut [u8]) -> io::Result<()> {
        let at = sector as usize * SECTOR;
        buffer.copy_from_slice(&self.data[at..at + buffer.len()]);
        Ok(())
    }

    fn write(&mut self, sector: u64, data: &[u8], _: Modifiers) -> io::Result<()> {
        let at = sector as usize * SECTOR;
        self.data[at..at + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn discard(&mut self, sector: u64, sectors: u32, _secure: bool) -> io::Result<()> {
        let at = sector as usize * SECTOR;
        self.data[at..at + sectors as usize * SECTOR].fill(0xDD);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A disk with a volatile cache whose power is cut after a number of writes. Each sector that was written since the last
/// flush then holds what it held or any of what was written to it, by a die.
pub struct CutDisk {
    pub data: Vec<u8>,
    unflushed: BTreeMap<u64, Vec<Vec<u8>>>,
    /// Writes until the cut, shared by all disks.
    pub left: std::rc::Rc<std::cell::Cell<u64>>,
}

impl CutDisk {
    pub fn new(data: Vec<u8>, left: std::rc::Rc<std::cell::Cell<u64>>) -> Self {
        Self { data, unflushed: BTreeMap::new(), left }
    }

    /// What is there when power comes back.
    pub fn after(mut self, die: &mut impl FnMut(usize) -> usize) -> Vec<u8> {
        for (sector, versions) in std::mem::take(&mut self.unflushed) {
            let chosen = die(versions.len() + 1);
            if chosen > 0 {
                let at = sector as usize * SECTOR;
                self.data[at..at + SECTOR].copy_from_slice(&versions[chosen - 1]);
            }
        }
        self.data
    }
}

impl Disk for CutDisk {
    fn read(&mut self, sector: u64, buffer: &mut [u8]) -> io::Result<()> {
        for (i, part) in buffer.chunks_mut(SECTOR).enumerate() {
            let sector = sector + i as u64;
            let at = sector as usize * SECTOR;
            match self.unflushed.get(&sector).and_then(|versions| versions.last()) {
                Some(newest) => part.copy_from_slice(newest),
                None => part.copy_from_slice(&self.data[at..at + SECTOR]),
            }
        }
        Ok(())
    }

    fn write(&mut self, sector: u64, data: &[u8], modifiers: Modifiers) -> io::Result<()> {
        if modifiers.contains(Modifiers::PREFLUSH) {
            self.flush()?;
        }
        // The write on which power is cut is torn: some of its sectors may come to be.
        for (i, part) in data.chunks(SECTOR).enumerate() {
            self.unflushed.entry(sector + i as u64).or_default().push(part.to_vec());
        }
        self.spend()?;
        if modifiers.durable() {
            self.settle(sector..sector + (data.len() / SECTOR) as u64);
        }
        Ok(())
    }

    fn discard(&mut self, _sector: u64, _sectors: u32, _secure: bool) -> io::Result<()> {
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        // A cut during a flush leaves it undone.
        self.spend()?;
        self.settle(0..u64::MAX);
        Ok(())
    }
}

impl CutDisk {
    /// The newest versions of the sectors are durable.
    fn settle(&mut self, sectors: std::ops::Range<u64>) {
        let mut settled = self.unflushed.split_off(&sectors.start);
        self.unflushed.append(&mut settled.split_off(&sectors.end));
        for (sector, versions) in settled {
            let at = sector as usize * SECTOR;
            self.data[at..at + SECTOR].copy_from_slice(versions.last().unwrap());
        }
    }

    fn spend(&self) -> io::Result<()> {
        let left = self.left.get();
        if left == 0 {
            return Err(io::Error::other("power was cut"));
        }
        self.left.set(left - 1);
        Ok(())
    }
}

/// A sector that says what was written to it and when.
pub fn stamp(sector: u64, version: u64, out: &mut [u8]) {
    out.fill(version as u8);
    out[..8].copy_from_slice(&version.to_le_bytes());
    out[8..16].copy_from_slice(&sector.to_le_bytes());
}

/// The version that a sector holds; `None` where it is not whole.
pub fn version(sector: u64, bytes: &[u8]) -> Option<u64> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Some(0);
    }
    let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let mut wanted = [0; SECTOR];
    stamp(sector, version, &mut wanted);
    (bytes == wanted).then_some(version)
}

/// A small Advil: clustered pages of 4 KB, blocks of 16 KB, a reserved area of 256 KB.
pub fn small(name: &str) -> LayerConfig {
    let config = LayerConfig::named(name).with("reserved", "256KB").with("clustered_block", "32KB");
    if name == "advil" {
        config.with("clustered_page", "8KB").with("block_padding_over", "2")
    } else {
        config
    }
}

pub const BELOW: Below = Below::new(4096, Some(1024));
