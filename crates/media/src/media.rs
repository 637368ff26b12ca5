//! Moves data from the host to the image of a device.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;

use emmclab_base::{Nanos, SECTOR_BYTES, SectorRangeMap};
use emmclab_device::{
    CacheLie, Device, LateTrims, Lpn, Observer, OperationCause, OperationsDelayed, PageProgrammed, PairedPageTracker, PlaneId,
    UnitCached, UnitsTrimmed,
};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use rustc_hash::FxHashMap;

use crate::image::{DataRun, RawImage};

/// The command number that stands for no command.
const NONE: u64 = u64::MAX;

/// The data of a write until all its sectors are in the image or replaced by a newer write.
#[derive(Debug)]
struct PendingWriteData {
    sector: u64,
    data: Box<[u8]>,
    /// Number of sectors that are neither in the image nor replaced by a newer write.
    left: u64,
}

impl PendingWriteData {
    fn bytes(&self, first: u64, end: u64) -> &[u8] {
        let at = |sector: u64| ((sector - self.sector) * SECTOR_BYTES) as usize;
        &self.data[at(first)..at(end)]
    }
}

/// The newest write to sectors whose latest data is not in the image yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LastWrite {
    command: u64,
    /// Commands with a lower number must not be written to these sectors of the image, because the image already contains the data of these
    /// commands or newer data.
    landed: u64,
}

/// Sectors of a write in one page, which is durable from the time `durable` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DurableSectors {
    durable: Nanos,
    /// Sequence number, which orders pages that become durable at the same time.
    number: u64,
    begin: Nanos,
    end: Nanos,
    command: u64,
    first: u64,
    last: u64,
    plane: PlaneId,
}

impl DurableSectors {
    fn change(&self) -> ContentsChange {
        let Self { durable, begin, command, first, last, .. } = *self;
        ContentsChange::Programmed { command, sector: first, sectors: (last - first) as u32, begin, end: durable }
    }
}

/// A change of the durable contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentsChange {
    /// Sectors of a command have been programmed, and survive a power cut from time `end` on.
    Programmed {
        /// The command's number at the device.
        command: u64,
        /// First sector.
        sector: u64,
        /// Length in sectors.
        sectors: u32,
        /// Start of the program operation.
        begin: Nanos,
        /// Time from which the page is valid after a power cut.
        end: Nanos,
    },
    /// Sectors were discarded.
    Discarded {
        /// First sector.
        sector: u64,
        /// Length in sectors.
        sectors: u64,
    },
    /// A power cut from `begin` on and before `end` damages sectors ([`CacheLie::PairedPages`]).
    Endangered {
        /// First sector.
        sector: u64,
        /// Length in sectors.
        sectors: u64,
        /// Time from which a power cut damages the sectors.
        begin: Nanos,
        /// Time from which they are safe.
        end: Nanos,
    },
}

/// The contents of a device.
///
/// The caller passes the data of each write to [`DeviceContents::receive_write`] before the device gets the command, lets `DeviceContents` observe the device,
/// and calls [`DeviceContents::apply_durable`] before it reports a completion. The memory needed is bounded by the device's cache and the commands in
/// flight.
#[derive(Debug)]
pub struct DeviceContents {
    image: RawImage,
    unit_sectors: u32,
    blocks_per_plane: u32,
    /// Data of writes by the number of the command at the device.
    pending_writes: FxHashMap<u64, PendingWriteData>,
    newest: SectorRangeMap<LastWrite>,
    /// For each unit in the write buffer: the command that wrote each of its sectors; [`NONE`] for a sector that is not in the buffer.
    cached: FxHashMap<Lpn, Box<[u64]>>,
    landings: BinaryHeap<Reverse<DurableSectors>>,
    numbered: u64,
    /// First sector and end of each discard that a power loss may repeat (`CacheLie::LateTrim`).
    trims: LateTrims<(u64, u64)>,
    /// The word lines of a device that does not protect paired pages.
    paired: Option<PairedPageTracker>,
    /// The first error on the image during a discard.
    failed: Option<io::Error>,
    /// The changes since they were last taken; `None` unless [`DeviceContents::watch`] was called.
    changes: Option<Vec<ContentsChange>>,
}

impl DeviceContents {
    /// The contents of a device, initialised from an image.
    pub fn new(device: &Device, image: RawImage) -> Self {
        Self {
            image,
            unit_sectors: device.geometry().unit_sectors,
            blocks_per_plane: device.geometry().blocks_per_plane,
            pending_writes: FxHashMap::default(),
            newest: SectorRangeMap::default(),
            cached: FxHashMap::default(),
            landings: BinaryHeap::new(),
            numbered: 0,
            trims: LateTrims::default(),
            paired: PairedPageTracker::of(device),
            failed: None,
            changes: None,
        }
    }

    /// Follows the word lines of the device anew: after a power cut, or a change of [`CacheLie`].
    pub fn follow_pages(&mut self, device: &Device) {
        self.paired = PairedPageTracker::of(device);
    }

    /// Starts to record changes for [`DeviceContents::take_changes`].
    pub fn watch(&mut self) {
        self.changes.get_or_insert_default();
    }

    /// Removes and returns the changes since the last call, in the order in which they were recorded.
    pub fn take_changes(&mut self) -> impl Iterator<Item = ContentsChange> {
        self.changes.as_mut().into_iter().flat_map(|changes| changes.drain(..))
    }

    /// The image with the durable contents.
    pub fn image(&self) -> &RawImage {
        &self.image
    }

    /// Number of bytes of written data that are not durable yet.
    pub fn volatile_bytes(&self) -> u64 {
        self.pending_writes.values().map(|write| write.left * SECTOR_BYTES).sum()
    }

    /// Stores the data of a write, whole sectors from `sector` on; `command` is the number that the device will assign to it
    /// ([`Device::next_command`]).
    pub fn receive_write(&mut self, command: u64, sector: u64, data: &[u8]) {
        let left = data.len() as u64 / SECTOR_BYTES;
        let written = |before: Option<LastWrite>| LastWrite { command, landed: before.map_or(command, |w| w.landed) };
        self.newest.update(sector, sector + left, |before| Some(written(before)));
        self.pending_writes.insert(command, PendingWriteData { sector, data: data.into(), left });
    }

    /// Fills `buffer` with the contents of sectors, durable or not.
    pub fn read(&self, sector: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = sector + buffer.len() as u64 / SECTOR_BYTES;
        let mut writes = self.newest.find(sector, end).peekable();
        if writes.peek().is_none_or(|(from, to, _)| (*from, *to) != (sector, end)) {
            self.image.read(sector, buffer)?;
        }
        for (from, to, written) in writes {
            let Some(write) = self.pending_writes.get(&written.command) else { continue };
            let at = ((from - sector) * SECTOR_BYTES) as usize;
            let bytes = write.bytes(from, to);
            buffer[at..at + bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Calls `visit` with each run of data or hole in `sector..end`, until it returns false. Sectors whose data is not in the
    /// image yet count as data.
    pub fn runs(&self, sector: u64, end: u64, mut visit: impl FnMut(DataRun) -> bool) -> io::Result<()> {
        let (mut at, mut goes_on) = (sector, true);
        self.image.runs(sector, end, |run| {
            let (from, to) = (at, at + run.sectors);
            at = to;
            let mut from = from;
            if !run.data {
                for (first, last, _) in self.newest.find(from, to) {
                    if first > from {
                        goes_on &= visit(DataRun { sectors: first - from, data: false });
                    }
                    goes_on &= goes_on && visit(DataRun { sectors: last - first, data: true });
                    from = last;
                }
            }
            if from < to && goes_on {
                goes_on = visit(DataRun { sectors: to - from, data: run.data });
            }
            goes_on
        })
    }

    /// Moves data whose program operation ended by the time `now` to the image. Errors: those of the image, [`io::ErrorKind::StorageFull`] on
    /// a full disk. Data that could not be moved stays in memory, and the next call tries again.
    pub fn apply_durable(&mut self, now: Nanos) -> io::Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.trims.retire(now);
        if let Some(paired) = &mut self.paired {
            paired.retire(now);
        }
        while let Some(Reverse(landing)) = self.landings.peek().copied().filter(|next| next.0.durable <= now) {
            let DurableSectors { command, first, last, .. } = landing;
            self.write(command, first, last)?;
            self.newest.update(first, last, |written| {
                let LastWrite { command: last, landed } = written?;
                (last != command).then_some(LastWrite { command: last, landed: landed.max(command + 1) })
            });
            self.release(command, last - first);
            self.landings.pop();
        }
        Ok(())
    }

    /// Simulates a power loss at the time `at`: data that is not programmed is lost. A device whose cache lies about durability keeps the
    /// first half of each program in progress ([`CacheLie::Tear`]), repeats discards ([`CacheLie::LateTrim`]) or leaves
    /// undefined data in paired pages ([`CacheLie::PairedPages`]). Errors: as [`DeviceContents::apply_durable`].
    pub fn cut(&mut self, at: Nanos, lies: CacheLie) -> io::Result<()> {
        self.apply_durable(at)?;
        if lies == CacheLie::LateTrim {
            for (first, end) in self.trims.repeated(at) {
                self.image.discard(*first, end - first)?;
            }
        }
        for unit in self.paired.iter().flat_map(|paired| paired.damaged(at)) {
            let (first, end) = self.sectors_of(unit, 1);
            let mut undefined = vec![0; ((end - first) * SECTOR_BYTES) as usize];
            Pcg64Mcg::seed_from_u64(first ^ (at.0 as u64) << 24).fill_bytes(&mut undefined);
            self.image.write(first, &undefined)?;
        }
        if lies == CacheLie::Tear {
            for DurableSectors { begin, end, command, first, last, .. } in self.in_order() {
                if begin <= at && at < end {
                    self.write(command, first, first + (last - first) / 2)?;
                }
            }
        }
        self.pending_writes.clear();
        self.newest.clear();
        self.cached.clear();
        self.landings.clear();
        self.trims.clear();
        Ok(())
    }

    fn in_order(&self) -> Vec<DurableSectors> {
        let mut all: Vec<_> = self.landings.iter().map(|Reverse(landing)| *landing).collect();
        all.sort_unstable();
        all
    }

    /// Writes sectors of a command to the image, except those for which the image has newer data.
    fn write(&self, command: u64, first: u64, last: u64) -> io::Result<()> {
        let Some(pending) = self.pending_writes.get(&command) else { return Ok(()) };
        for (from, to, written) in self.newest.find(first, last) {
            if command >= written.landed {
                self.image.write(from, pending.bytes(from, to))?;
            }
        }
        Ok(())
    }

    /// Subtracts sectors from the pending data of a command, because they are in the image or have been replaced.
    fn release(&mut self, command: u64, sectors: u64) {
        if let Some(pending) = self.pending_writes.get_mut(&command) {
            pending.left = pending.left.saturating_sub(sectors);
            if pending.left == 0 {
                self.pending_writes.remove(&command);
            }
        }
    }

    /// Cancels the pending transfer of the sectors `first..end` to the image.
    fn cancel_durable(&mut self, first: u64, end: u64) {
        if !self.landings.iter().any(|Reverse(landing)| landing.first < end && first < landing.last) {
            return;
        }
        for landing in std::mem::take(&mut self.landings).into_vec().into_iter().map(|Reverse(landing)| landing) {
            let before = DurableSectors { last: landing.last.min(first), ..landing };
            let after = DurableSectors { first: landing.first.max(end), ..landing };
            let parts = [before, after].into_iter().filter(|part| part.first < part.last);
            let mut kept = 0;
            for part in parts {
                kept += part.last - part.first;
                self.landings.push(Reverse(part));
            }
            self.release(landing.command, landing.last - landing.first - kept);
        }
    }

    fn sectors_of(&self, lpn: Lpn, count: u32) -> (u64, u64) {
        let unit = u64::from(self.unit_sectors);
        (u64::from(lpn.0) * unit, (u64::from(lpn.0) + u64::from(count)) * unit)
    }
}

impl Observer for DeviceContents {
    fn unit_cached(&mut self, event: &UnitCached) {
        let unit_sectors = self.unit_sectors as usize;
        let mut replaced = Vec::new();
        let held = self.cached.entry(event.lpn).or_insert_with(|| vec![NONE; unit_sectors].into_boxed_slice());
        for (bit, holder) in held.iter_mut().enumerate() {
            if event.covered >> bit & 1 == 1 {
                let before = std::mem::replace(holder, event.command);
                if before != NONE {
                    replaced.push(before);
                }
            }
        }
        for command in replaced {
            self.release(command, 1);
        }
    }

    fn page_programmed(&mut self, event: &PageProgrammed<'_>) {
        if let Some(paired) = &mut self.paired {
            paired.page_programmed(event);
            if let Some(changes) = &mut self.changes {
                let sectors = u64::from(self.unit_sectors);
                changes.extend(paired.newly_endangered(event).map(|unit| {
                    let (sector, begin, end) = (u64::from(unit.lpn.0) * sectors, unit.begin, unit.end);
                    ContentsChange::Endangered { sector, sectors, begin, end }
                }));
            }
        }
        if event.cause != OperationCause::Host {
            return;
        }
        let PageProgrammed { begin, end, durable, .. } = *event;
        let plane = PlaneId(event.block.0 / self.blocks_per_plane);
        for unit in event.units {
            let (first, _) = self.sectors_of(unit.lpn, 1);
            let mut held = self.cached.get_mut(&unit.lpn).filter(|_| unit.command.is_none());
            let mut run: Option<DurableSectors> = None;
            for bit in 0..=self.unit_sectors {
                let covered = bit < self.unit_sectors && unit.covered >> bit & 1 == 1;
                let of_cache = || Some(std::mem::replace(&mut held.as_mut()?[bit as usize], NONE));
                let command = if covered { unit.command.or_else(of_cache).unwrap_or(NONE) } else { NONE };
                let sector = first + u64::from(bit);
                if let Some(landing) = &mut run {
                    if landing.command == command {
                        landing.last = sector + 1;
                        continue;
                    }
                    self.landings.push(Reverse(*landing));
                    if let Some(changes) = &mut self.changes {
                        changes.push(landing.change());
                    }
                }
                self.numbered += 1;
                let number = self.numbered;
                run = (command != NONE).then_some(DurableSectors {
                    durable,
                    number,
                    begin,
                    end,
                    command,
                    first: sector,
                    last: sector + 1,
                    plane,
                });
            }
            if held.is_some_and(|held| held.iter().all(|command| *command == NONE)) {
                self.cached.remove(&unit.lpn);
            }
        }
    }

    fn operations_delayed(&mut self, event: &OperationsDelayed) {
        let mut landings = std::mem::take(&mut self.landings).into_vec();
        for Reverse(landing) in landings.iter_mut().filter(|landing| event.affects(landing.0.plane, landing.0.durable)) {
            landing.durable += event.delay;
        }
        self.landings = landings.into();
    }

    fn trimmed(&mut self, event: &UnitsTrimmed) {
        self.paired.trimmed(event);
        let (first, end) = self.sectors_of(event.first, event.count);
        if let Some(changes) = &mut self.changes {
            changes.push(ContentsChange::Discarded { sector: first, sectors: end - first });
        }
        if !self.cached.is_empty() {
            let range = event.first.0..event.first.0 + event.count;
            let gone: Vec<Lpn> = self.cached.keys().copied().filter(|lpn| range.contains(&lpn.0)).collect();
            for lpn in gone {
                let held = self.cached.remove(&lpn);
                for command in held.iter().flatten().filter(|command| **command != NONE) {
                    self.release(*command, 1);
                }
            }
        }
        self.trims.add(event.at, (first, end));
        self.cancel_durable(first, end);
        self.newest.remove(first, end);
        if let Err(error) = self.image.discard(first, end - first) {
            self.failed.get_or_insert(error);
        }
    }
}
