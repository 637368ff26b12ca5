//! Zones as the host sees them: states, write pointers, and rejected commands (ZBC; JESD220-5, zoned UFS).
//!
//! A write must begin at the write pointer of its zone and end in the zone. It opens the zone. If the maximum number of zones is open, the
//! zone that was opened by a write first is closed, as the standard permits; if all of them were opened by command, the write is rejected.
//! A zone is active while it is open or closed. If the maximum number of zones is active, a write to an empty zone is rejected, because
//! only the host can finish or reset another zone.

use emmclab_base::{Error, ErrorClass, Nanos, Op, Result};
use emmclab_settings::DeviceSettings;

use crate::device::DeviceCommand;
use crate::events::{Observer, ZoneChanged};
use crate::ftl::Ftl;
use crate::geometry::{Geometry, ZoneLayout};
use crate::ids::Lpn;
use crate::zones::{ZoneAction, ZoneDescriptor, ZoneState};

#[derive(Clone, Copy, Debug)]
struct ZoneEntry {
    state: ZoneState,
    /// Number of units before the write pointer.
    written: u32,
    /// Sequence number of the state change that opened the zone.
    opened: u64,
}

const EMPTY: ZoneEntry = ZoneEntry { state: ZoneState::Empty, written: 0, opened: 0 };

/// The zones that are written sequentially.
#[derive(Clone, Debug)]
pub(crate) struct ZoneTable {
    layout: ZoneLayout,
    unit_shift: u32,
    max_open: u32,
    max_active: u32,
    entries: Vec<ZoneEntry>,
    open: u32,
    active: u32,
    changes: u64,
    /// Number of write buffers that the zones share. `buffers` lists the zones that have a buffer, in the order of their last write.
    most_buffers: usize,
    buffers: Vec<u32>,
}

impl ZoneTable {
    /// Creates the zones of a new device, which are empty; `None` if the device has no sequential zones.
    pub fn new(settings: &DeviceSettings, geometry: &Geometry) -> Option<Self> {
        let layout = geometry.zones?;
        let limit = |limit: u32| if limit == 0 { u32::MAX } else { limit };
        Some(Self {
            layout,
            unit_shift: geometry.unit_shift,
            max_open: limit(settings.zones.max_open),
            max_active: limit(settings.zones.max_active),
            entries: vec![EMPTY; layout.count as usize],
            open: 0,
            active: 0,
            changes: 0,
            most_buffers: match settings.zones.write_buffers {
                0 => usize::MAX,
                buffers => buffers.min(layout.count) as usize,
            },
            buffers: Vec::new(),
        })
    }

    /// Maximum number of open zones, and of active zones (open or closed); 0 = no limit.
    pub fn limits(&self) -> (u32, u32) {
        let or_0 = |limit: u32| if limit == u32::MAX { 0 } else { limit };
        (or_0(self.max_open), or_0(self.max_active))
    }

    /// Restores the write pointers and states of the zones from the contents of the flash. No zone is open afterwards.
    pub fn restore(&mut self, ftl: &Ftl) {
        self.buffers.clear();
        (self.open, self.active) = (0, 0);
        for (zone, entry) in (0..).zip(&mut self.entries) {
            let (written, finished) = ftl.zone(zone);
            let state = match written {
                _ if finished || written == self.layout.units => ZoneState::Full,
                0 => ZoneState::Empty,
                _ => ZoneState::Closed,
            };
            self.active += u32::from(state == ZoneState::Closed);
            *entry = ZoneEntry { state, written, opened: 0 };
        }
    }

    fn sector(&self, unit: u32) -> u64 {
        u64::from(unit) << self.unit_shift
    }

    /// The current descriptor of a zone; `None` if the zone does not exist.
    pub fn report(&self, zone: u32) -> Option<ZoneDescriptor> {
        let ZoneEntry { state, written, .. } = *self.entries.get(zone as usize)?;
        let start = self.layout.start(zone);
        let before = if state == ZoneState::Full { self.layout.units } else { written };
        Some(ZoneDescriptor {
            state,
            start: self.sector(start),
            sectors: self.sector(self.layout.units),
            write_pointer: self.sector(start + before),
        })
    }

    /// The number by which the host addresses a zone. The host counts conventional zones first.
    fn number(&self, zone: u32) -> u32 {
        self.layout.start(zone) / self.layout.units
    }

    /// Returns an error if the state of the zones does not permit a command.
    pub fn check(&self, command: &DeviceCommand) -> Result<()> {
        let unit = 1_u64 << self.unit_shift;
        let (first, end) = (command.sector, command.sector + u64::from(command.sectors));
        let begin = self.sector(self.layout.first_unit);
        match command.op {
            Op::Write if end > begin => {}
            Op::Discard | Op::SecureErase if end > begin => {
                return self.check_reset(command, (first.max(begin), end));
            }
            _ => return Ok(()),
        }
        let Some(zone) = self.layout.zone_of((first >> self.unit_shift) as u32) else {
            return Err(zone_error(command, "the write leaves the conventional zones".to_owned()));
        };
        let Some(target) = self.report(zone) else { return Ok(()) };
        let number = self.number(zone);
        if target.state == ZoneState::Full {
            return Err(zone_error(command, format!("zone {number} is full")));
        }
        if first != target.write_pointer {
            let problem =
                format!("zone {number} is written in order, and its write pointer is at sector {}", target.write_pointer);
            return Err(zone_error(command, problem));
        }
        if end > target.start + target.sectors {
            return Err(zone_error(
                command,
                format!("the write leaves zone {number}, which ends before sector {}", target.start + target.sectors),
            ));
        }
        if !end.is_multiple_of(unit) {
            return Err(zone_error(
                command,
                format!("zone {number} is written in whole blocks of {unit} sectors, but the write ends at sector {end}"),
            ));
        }
        self.no_open(zone, false).map_or(Ok(()), |problem| Err(zone_error(command, problem)))
    }

    /// Checks that a discard covers only whole zones.
    fn check_reset(&self, command: &DeviceCommand, (first, end): (u64, u64)) -> Result<()> {
        let zone = self.sector(self.layout.units);
        let begin = self.sector(self.layout.first_unit);
        if (first - begin).is_multiple_of(zone) && (end - begin).is_multiple_of(zone) {
            return Ok(());
        }
        let problem = format!("a discard resets whole zones, so it must cover all {zone} sectors of each");
        Err(zone_error(command, problem))
    }

    /// The reason why a zone cannot be opened (by command or by a write); `None` if it can be opened.
    fn no_open(&self, zone: u32, by_command: bool) -> Option<String> {
        let (state, number) = (self.entries[zone as usize].state, self.number(zone));
        if state.is_open() {
            return None;
        }
        if state == ZoneState::Empty && self.active >= self.max_active {
            return Some(format!("zone {number} cannot be opened: {} zones are active, which is the maximum", self.active));
        }
        let closes = || self.entries.iter().any(|entry| entry.state == ZoneState::ImplicitlyOpen);
        if self.open >= self.max_open && !closes() {
            let how = if by_command { "opened" } else { "written" };
            return Some(format!(
                "zone {number} cannot be {how}: {} zones were opened by command, which is the maximum",
                self.open
            ));
        }
        None
    }

    /// Whether each zone has its own write buffer.
    fn has_buffers(&self) -> bool {
        self.most_buffers <= self.entries.len()
    }

    /// Allocates a write buffer to the zone of a unit. If no buffer is free, takes that of the least recently written zone, and returns
    /// this zone and its range of units. Empty and full zones need no buffer. In `ConZone`+ (arXiv:2510.15885), taking a buffer is called a
    /// conflict, and a flush of data that does not fill a page is called premature.
    pub fn take_buffer(&mut self, unit: Lpn) -> Option<(u32, Lpn, Lpn)> {
        let zone = self.layout.zone_of(unit.0).filter(|_| self.has_buffers())?;
        let entries = &self.entries;
        self.buffers.retain(|other| *other != zone && entries[*other as usize].state.is_active());
        let taken = (self.buffers.len() >= self.most_buffers).then(|| self.buffers.remove(0));
        self.buffers.push(zone);
        taken.map(|from| {
            let start = self.layout.start(from);
            (from, Lpn(start), Lpn(start + self.layout.units))
        })
    }

    /// The first unit that must leave the write buffer before `unit`: the first one of its zone. `None` if zones do not have their own
    /// buffers.
    pub fn leaves_from(&self, unit: Lpn) -> Option<Lpn> {
        let zone = self.layout.zone_of(unit.0).filter(|_| self.has_buffers())?;
        Some(Lpn(self.layout.start(zone)))
    }

    /// Updates the zones for a command that has been checked and arrived at `at`.
    pub fn take<L: Observer>(&mut self, command: &DeviceCommand, at: Nanos, log: &mut L) {
        let first = (command.sector >> self.unit_shift) as u32;
        let end = ((command.sector + u64::from(command.sectors)) >> self.unit_shift) as u32;
        match command.op {
            Op::Write => {
                let Some(zone) = self.layout.zone_of(first) else { return };
                if !self.entries[zone as usize].state.is_open() {
                    self.open(zone, ZoneState::ImplicitlyOpen, at, log);
                }
                let entry = &mut self.entries[zone as usize];
                entry.written += end - first;
                if entry.written == self.layout.units {
                    self.change(zone, ZoneState::Full, at, log);
                }
            }
            Op::Discard | Op::SecureErase if end > self.layout.first_unit => {
                let from = self.layout.zone_of(first).unwrap_or(0);
                for zone in from..(end - self.layout.first_unit) / self.layout.units {
                    self.change(zone, ZoneState::Empty, at, log);
                    self.entries[zone as usize].written = 0;
                }
            }
            _ => {}
        }
    }

    /// Executes a zone management command of the host at time `at`.
    pub fn manage<L: Observer>(&mut self, zone: u32, action: ZoneAction, at: Nanos, log: &mut L) -> Result<()> {
        let wrong = |problem: String| Error::new(ErrorClass::Value, problem).of_field("zone", 0, zone.to_string().as_bytes());
        let Some(entry) = self.entries.get(zone as usize).copied() else {
            return Err(wrong(format!("there are {} zones, numbered from 0", self.layout.count)));
        };
        match action {
            ZoneAction::Open if entry.state == ZoneState::Full => {
                return Err(wrong(format!("zone {zone} is full and cannot be opened")));
            }
            ZoneAction::Open if entry.state != ZoneState::ExplicitlyOpen => {
                if let Some(problem) = self.no_open(zone, true) {
                    return Err(wrong(problem));
                }
                self.open(zone, ZoneState::ExplicitlyOpen, at, log);
            }
            ZoneAction::Close if entry.state.is_open() => {
                let state = if entry.written == 0 { ZoneState::Empty } else { ZoneState::Closed };
                self.change(zone, state, at, log);
            }
            ZoneAction::Finish => self.change(zone, ZoneState::Full, at, log),
            ZoneAction::Open | ZoneAction::Close => {}
        }
        Ok(())
    }

    /// Opens a zone that may be opened, and closes another one if necessary.
    fn open<L: Observer>(&mut self, zone: u32, state: ZoneState, at: Nanos, log: &mut L) {
        if self.open >= self.max_open && !self.entries[zone as usize].state.is_open() {
            let opened = (0..).zip(&self.entries).filter(|(_, entry)| entry.state == ZoneState::ImplicitlyOpen);
            if let Some((oldest, entry)) = opened.min_by_key(|(_, entry)| entry.opened) {
                let to = if entry.written == 0 { ZoneState::Empty } else { ZoneState::Closed };
                self.change(oldest, to, at, log);
            }
        }
        self.changes += 1;
        self.entries[zone as usize].opened = self.changes;
        self.change(zone, state, at, log);
    }

    /// Changes the state of a zone and reports it.
    fn change<L: Observer>(&mut self, zone: u32, to: ZoneState, at: Nanos, log: &mut L) {
        let from = std::mem::replace(&mut self.entries[zone as usize].state, to);
        if from == to {
            return;
        }
        self.open = self.open + u32::from(to.is_open()) - u32::from(from.is_open());
        self.active = self.active + u32::from(to.is_active()) - u32::from(from.is_active());
        let (open, active, written) = (self.open, self.active, self.entries[zone as usize].written);
        log.zone_changed(&ZoneChanged { zone, from, to, written, open, active, at });
    }
}

#[cold]
fn zone_error(command: &DeviceCommand, problem: String) -> Error {
    Error::new(ErrorClass::Value, problem)
        .of_field("sector", 0, command.sector.to_string().as_bytes())
        .hint("a zoned device accepts only sequential writes, and resets of whole zones; --layer lfs writes any trace as a log, or use a device without zones (--set zones.blocks=0)")
}
