//! The disk above the layers, after they have recovered from a state of the device.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use emmclab_base::{Op, Result, SECTOR_BYTES};
use emmclab_device::CommandFlags;
use emmclab_ext4::DiskReader;
use emmclab_layers::{DiskZones, DisksBelow, ImmediateStack, LayerConfig, SectorDisk, build_stack};

use crate::disk_contents::BLOCK;
use crate::disk_view::CrashDiskView;

const SECTOR: usize = SECTOR_BYTES as usize;
/// Maximum number of sectors that are copied at once.
const MOST_AT_ONCE: u64 = 2048;

/// A write or a discard by the recovery.
#[derive(Clone)]
enum RecoveryChange {
    Write(Box<[u8]>),
    Discard(u32),
}

/// Sectors of a view that the recovery has written or discarded, kept in memory.
#[derive(Clone, Default)]
struct RecoveryOverlay {
    written: BTreeMap<u64, Box<[u8]>>,
    /// Discarded ranges; data written to them afterwards is in `written`.
    discarded: Vec<(u64, u64)>,
    zones: Option<DiskZones>,
    /// Write pointer of each zone.
    pointers: Vec<u64>,
}

impl RecoveryOverlay {
    fn over(view: &CrashDiskView, zones: Option<DiskZones>) -> Self {
        let pointers = zones.map_or_else(Vec::new, |zones| view.write_pointers(&zones));
        Self { zones, pointers, ..Self::default() }
    }

    fn pointer(&mut self, sector: u64) -> Option<(&DiskZones, u32, &mut u64)> {
        let zones = self.zones.as_ref()?;
        let zone = zones.zone_of(sector)?;
        Some((zones, zone, &mut self.pointers[zone as usize]))
    }

    fn change(&mut self, sector: u64, change: &RecoveryChange) {
        match change {
            RecoveryChange::Write(data) => {
                for (sector, part) in (sector..).zip(data.chunks_exact(SECTOR)) {
                    self.written.insert(sector, part.into());
                }
                if let Some((.., pointer)) = self.pointer(sector) {
                    *pointer = (*pointer).max(sector + (data.len() / SECTOR) as u64);
                }
            }
            RecoveryChange::Discard(sectors) => {
                let end = sector + u64::from(*sectors);
                let mut behind = self.written.split_off(&sector);
                self.written.append(&mut behind.split_off(&end));
                self.discarded.push((sector, end));
                // A discard resets whole zones.
                let mut at = sector;
                while let Some((zones, zone, pointer)) = self.pointer(at).filter(|_| at < end) {
                    *pointer = zones.start(zone);
                    at = zones.start(zone) + zones.sectors;
                }
            }
        }
    }

    fn patch(&self, sector: u64, buffer: &mut [u8]) {
        let end = sector + (buffer.len() / SECTOR) as u64;
        let place = |at: u64| (at - sector) as usize * SECTOR;
        for (first, last) in &self.discarded {
            let (from, to) = ((*first).max(sector), (*last).min(end));
            if from < to {
                buffer[place(from)..place(to)].fill(0);
            }
        }
        for (at, data) in self.written.range(sector..end) {
            buffer[place(*at)..][..SECTOR].copy_from_slice(data);
        }
    }
}

/// A device in a state, to which the recovery writes.
struct StateDisk {
    view: CrashDiskView,
    /// Its first sector in the state, in which the devices follow each other.
    first: u64,
    overlay: RecoveryOverlay,
    /// The changes by the recovery: their numbers among those of all devices, and their sectors in the state.
    changes: Vec<(usize, u64, RecoveryChange)>,
    changed: Arc<AtomicUsize>,
}

impl StateDisk {
    fn change(&mut self, sector: u64, change: RecoveryChange) {
        let sector = self.first + sector;
        self.overlay.change(sector, &change);
        self.changes.push((self.changed.fetch_add(1, Ordering::Relaxed), sector, change));
    }
}

impl SectorDisk for StateDisk {
    fn read(&mut self, sector: u64, buffer: &mut [u8]) -> io::Result<()> {
        let sector = self.first + sector;
        self.view.read(sector, buffer)?;
        self.overlay.patch(sector, buffer);
        Ok(())
    }

    fn write(&mut self, sector: u64, data: &[u8], _: CommandFlags) -> io::Result<()> {
        self.change(sector, RecoveryChange::Write(data.into()));
        Ok(())
    }

    fn discard(&mut self, sector: u64, sectors: u32, _: bool) -> io::Result<()> {
        self.change(sector, RecoveryChange::Discard(sectors));
        Ok(())
    }

    fn write_pointer(&mut self, sector: u64) -> io::Result<Option<u64>> {
        let sector = self.first + sector;
        Ok(self.overlay.pointer(sector).filter(|(zones, zone, _)| zones.start(*zone) == sector).map(|found| *found.2))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The disk that a host sees in a state: the state itself, or the disk that its layers recover from it.
pub struct HostView {
    source: HostViewSource,
    sectors: u64,
}

enum HostViewSource {
    Plain(CrashDiskView),
    Layered(Box<RefCell<ImmediateStack<StateDisk>>>),
}

impl HostView {
    /// Lets the layers recover from a state. With `cut_after`, an earlier attempt to recover was interrupted by a power cut after
    /// this many writes.
    ///
    /// # Errors
    /// If the layers cannot be built, or cannot recover.
    pub fn recover(
        view: CrashDiskView,
        (layers, below): (&[LayerConfig], &DisksBelow),
        sectors: u64,
        cut_after: Option<usize>,
    ) -> Result<io::Result<Self>> {
        if layers.is_empty() {
            return Ok(Ok(Self { source: HostViewSource::Plain(view), sectors }));
        }
        let start = |overlay: RecoveryOverlay| -> Result<_> {
            let layers = build_stack(layers, below)?;
            let changed = Arc::<AtomicUsize>::default();
            let disk = |first| {
                let (view, overlay, changed) = (view.clone(), overlay.clone(), changed.clone());
                StateDisk { view, first, overlay, changes: Vec::new(), changed }
            };
            let disks = [Some(0), below.second.map(|_| below.main)].into_iter().flatten().map(disk).collect();
            Ok(ImmediateStack::start(layers, disks, true))
        };
        let new = RecoveryOverlay::over(&view, below.zones);
        let mut started: io::Result<ImmediateStack<StateDisk>> = start(new.clone())?;
        if let (Some(writes), Ok(executor)) = (cut_after, &mut started) {
            let mut left = new;
            let mut done: Vec<_> = executor.disks().iter().flat_map(|disk| &disk.changes).collect();
            done.sort_unstable_by_key(|(number, ..)| *number);
            for (_, sector, change) in done.into_iter().take(writes) {
                left.change(*sector, change);
            }
            started = start(left)?;
        }
        Ok(started.map(|executor| Self { source: HostViewSource::Layered(Box::new(executor.into())), sectors }))
    }

    /// Number of writes by the recovery.
    pub fn recovery_writes(&self) -> usize {
        match &self.source {
            HostViewSource::Plain(_) => 0,
            HostViewSource::Layered(executor) => {
                executor.borrow_mut().disks().iter().map(|disk| disk.changes.len()).sum()
            }
        }
    }

    /// Size in sectors.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Fills `buffer` with whole sectors from `sector` on.
    ///
    /// # Errors
    /// A range beyond the end; errors of reading the state.
    pub fn read(&self, sector: u64, buffer: &mut [u8]) -> io::Result<()> {
        if sector.saturating_add((buffer.len() / SECTOR) as u64) > self.sectors {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match &self.source {
            HostViewSource::Plain(view) => view.read(sector, buffer),
            HostViewSource::Layered(executor) => executor.borrow_mut().submit(Op::Read, sector, buffer),
        }
    }

    /// Returns the ranges of sectors that may have been written, in order, each of at most `MOST_AT_ONCE` sectors.
    fn written(&self) -> Vec<Range<u64>> {
        match &self.source {
            HostViewSource::Plain(view) => {
                let mut ranges: Vec<Range<u64>> = Vec::new();
                for block in view.written().into_iter().filter(|block| !view.is_zero(*block)) {
                    let range = block * BLOCK..((block + 1) * BLOCK).min(self.sectors);
                    match ranges.last_mut() {
                        Some(last) if last.end == range.start && range.end - last.start <= MOST_AT_ONCE => {
                            last.end = range.end;
                        }
                        _ => ranges.push(range),
                    }
                }
                ranges
            }
            // Layers may store a sector anywhere.
            HostViewSource::Layered(_) => {
                let ends = |first: u64| (first + MOST_AT_ONCE).min(self.sectors);
                (0..self.sectors).step_by(MOST_AT_ONCE as usize).map(|first| first..ends(first)).collect()
            }
        }
    }

    /// Writes all data that is not zero to its place in a file, which must be empty. The file gets the length of the disk.
    ///
    /// # Errors
    /// Errors of the file, and of reading the state.
    pub fn write_to(&self, file: &File) -> io::Result<()> {
        file.set_len(self.sectors * SECTOR_BYTES)?;
        let mut buffer = Vec::new();
        for range in self.written() {
            buffer.resize((range.end - range.start) as usize * SECTOR, 0);
            self.read(range.start, &mut buffer)?;
            if buffer.iter().any(|byte| *byte != 0) {
                file.write_all_at(&buffer, range.start * SECTOR_BYTES)?;
            }
        }
        Ok(())
    }
}

impl DiskReader for HostView {
    fn size(&self) -> io::Result<u64> {
        Ok(self.sectors * SECTOR_BYTES)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let sector = SECTOR_BYTES;
        if offset.is_multiple_of(sector) && (buffer.len() as u64).is_multiple_of(sector) {
            return self.read(offset / sector, buffer);
        }
        let (first, end) = (offset / sector, (offset + buffer.len() as u64).div_ceil(sector));
        let mut whole = vec![0; ((end - first) * sector) as usize];
        self.read(first, &mut whole)?;
        let from = (offset - first * sector) as usize;
        buffer.copy_from_slice(&whole[from..from + buffer.len()]);
        Ok(())
    }

    fn content(&self, offset: u64, length: usize) -> Option<u64> {
        let (sector, length) = (SECTOR_BYTES, length as u64);
        match &self.source {
            HostViewSource::Plain(view) if offset.is_multiple_of(sector) && length.is_multiple_of(sector) => {
                Some(view.identity(offset / sector, length / sector))
            }
            _ => None,
        }
    }
}
