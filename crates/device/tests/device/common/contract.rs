//! A literal implementation of the persistence contract and of the contents of the flash, for one sector and one time, from all previous
//! commands and page programs.

use std::collections::HashMap;
use std::ops::Range;

use emmclab_base::{Nanos, Op};
use emmclab_device::contract::{ContractRules, SectorContent, Version};
use emmclab_device::{
    BlockId, CommandFlags, Device, DeviceCommand, GroupGeometry, InterfaceKind, Lpn, Observer, OperationCause, OperationsDelayed,
    PageProgrammed, UnitCached, UnitsTrimmed,
};

/// Commands in order of arrival, each with its completion; the first has version 1.
pub struct Contract {
    pub rules: ContractRules,
    pub commands: Vec<(DeviceCommand, Option<Nanos>)>,
    pub packs: Vec<Range<Version>>,
}

impl Contract {
    pub fn new(rules: ContractRules) -> Self {
        Self { rules, commands: Vec::new(), packs: Vec::new() }
    }

    /// The commands that arrived by `at`, with versions.
    fn by(&self, at: Nanos) -> impl Iterator<Item = (Version, &DeviceCommand, Option<Nanos>)> {
        let all = (1..).zip(&self.commands).map(|(version, (command, complete))| (version, command, *complete));
        all.filter(move |(_, command, _)| command.arrival <= at)
    }

    /// Whether a command changes a sector: discards affect whole units only.
    fn covers(&self, command: &DeviceCommand, sector: u64) -> bool {
        let (first, end) = (command.sector, command.sector + u64::from(command.sectors));
        let unit = u64::from(self.rules.unit_sectors);
        match command.op {
            Op::Write => (first..end).contains(&sector),
            Op::Discard | Op::SecureErase => sector / unit * unit >= first && (sector / unit + 1) * unit <= end,
            Op::Read | Op::Flush => false,
        }
    }

    pub fn erases(&self, version: Version) -> bool {
        let command = (version as usize).checked_sub(1).and_then(|at| self.commands.get(at));
        command.is_some_and(|(command, _)| matches!(command.op, Op::Discard | Op::SecureErase))
    }

    /// The newest command that revoked the promises about a sector (C6).
    pub fn taken(&self, sector: u64, at: Nanos) -> Version {
        let takers = self.by(at).filter(|(version, command, _)| self.erases(*version) && self.covers(command, sector));
        takers.map(|(version, ..)| version).max().unwrap_or(0)
    }

    fn is_promised(&self, sector: u64, (version, command, complete): (Version, &DeviceCommand, Nanos), at: Nanos) -> bool {
        let reaches = |flush: &DeviceCommand| {
            let ranged = self.rules.interface == InterfaceKind::Ufs && flush.op == Op::Flush && flush.sectors > 0;
            !ranged || (flush.sector..flush.sector + u64::from(flush.sectors)).contains(&sector)
        };
        let flushes = |flush: &DeviceCommand| match flush.op {
            Op::Write => flush.modifiers.contains(CommandFlags::PREFLUSH),
            op => op == Op::Flush && !flush.modifiers.contains(CommandFlags::BARRIER),
        };
        let flushed = |(later, flush, done): (Version, &DeviceCommand, Option<Nanos>)| {
            later > version
                && flushes(flush)
                && reaches(flush)
                && complete <= flush.arrival
                && done.is_some_and(|done| done <= at)
        };
        match command.op {
            Op::SecureErase => true,
            Op::Write => self.rules.write_through || command.modifiers.durable() || self.by(at).any(flushed),
            _ => false,
        }
    }

    pub fn promised(&self, sector: u64, at: Nanos) -> Version {
        let taken = self.taken(sector, at);
        let covering = self.by(at).filter(|(version, command, _)| *version >= taken && self.covers(command, sector));
        let complete = covering.filter_map(|(version, command, done)| Some((version, command, done?)));
        let promised =
            complete.filter(|(version, command, done)| *done <= at && self.is_promised(sector, (*version, command, *done), at));
        promised.map(|(version, ..)| version).max().unwrap_or(0)
    }

    /// The newest of these versions of a sector that was written and complete by a time, and that no discard revoked.
    fn owed(&self, sector: u64, before: Range<Version>, complete_by: Option<Nanos>, at: Nanos) -> Version {
        let taken = self.taken(sector, at);
        let writes = self.by(at).filter(|(version, command, complete)| {
            before.contains(version)
                && *version > taken
                && command.op == Op::Write
                && self.covers(command, sector)
                && complete_by.is_none_or(|by| complete.is_some_and(|complete| complete <= by))
        });
        writes.map(|(version, ..)| version).max().unwrap_or(0)
    }

    /// The first sector with a broken promise if power is lost at `at` and `left` remains.
    pub fn broken(&self, left: &[Option<SectorContent>], at: Nanos) -> Option<u64> {
        let there = |after: Range<Version>| {
            left.iter().flatten().any(|content| matches!(content, SectorContent::Data(v) if after.contains(v)))
        };
        let barriers = self.by(at).filter_map(|(version, command, _)| match command.op {
            Op::Flush if command.modifiers.contains(CommandFlags::BARRIER) => Some((version + 1, command.arrival)),
            Op::Write if self.rules.fifo => Some((version, command.arrival)),
            _ => None,
        });
        // Of the barriers that apply, the last one requires the most.
        let barrier = barriers.filter(|(from, _)| there(*from..Version::MAX)).last();
        let packs = self.packs.iter().filter(|_| self.rules.write_through).cloned();
        let entries = packs.flat_map(|pack| (pack.start + 1..pack.end).map(move |entry| (pack.start, entry, pack.end)));
        let entries: Vec<_> = entries.filter(|(_, entry, end)| there(*entry..*end)).collect();
        let least = |sector: u64| {
            let ordered = barrier.map_or(0, |(from, came)| self.owed(sector, 0..from, Some(came), at));
            let packed = entries.iter().map(|(first, entry, _)| self.owed(sector, *first..*entry, None, at));
            packed.max().unwrap_or(0).max(ordered).max(self.promised(sector, at))
        };
        let sectors = (0..).zip(left).map(|(sector, content)| (sector, content.map_or(0, SectorContent::version)));
        sectors.filter(|(sector, found)| *found < least(*sector)).map(|(sector, _)| sector).next()
    }
}

/// A page program, in the order of the events.
struct Program {
    block: BlockId,
    page: u32,
    /// Time in which a power cut damages the other pages of its word line.
    damages: Range<Nanos>,
    durable: Nanos,
    units: Vec<Lpn>,
}

/// All contents of every sector of a new device, each with the time from which its page survives a cut.
pub struct Facts {
    /// All programs of a device with `cache.lies = "paired_pages"`, and its pages in a word line; `None` for other devices.
    paired: Option<(u32, Vec<Program>)>,
    group: GroupGeometry,
    unit_sectors: u64,
    /// End of the latest page, if pages become durable only in order.
    pub in_order: Option<Nanos>,
    /// Time from the end of a program until the page survives a cut.
    pub counts_after: Nanos,
    /// The command that the device is executing.
    pub command: Option<(Version, Nanos)>,
    cached: HashMap<u64, Version>,
    blocks_per_plane: u32,
    flash: HashMap<u64, Vec<(Nanos, SectorContent, BlockId)>>,
}

impl Facts {
    pub fn of(device: &Device) -> Self {
        Self {
            paired: None,
            group: device.geometry().groups[0].clone(),
            unit_sectors: u64::from(device.geometry().unit_sectors),
            in_order: None,
            counts_after: Nanos::ZERO,
            command: None,
            cached: HashMap::new(),
            blocks_per_plane: device.geometry().blocks_per_plane,
            flash: HashMap::new(),
        }
    }

    /// Lets power cuts damage paired pages, of which a word line has `pages`.
    pub fn pair(&mut self, pages: u32) {
        self.paired = Some((pages, Vec::new()));
    }

    /// Whether a cut at `at` damages a unit: the last durable program with the unit is of an earlier page of the word line that is programmed.
    fn damages(&self, unit: Lpn, at: Nanos) -> bool {
        let Some((pages, programs)) = &self.paired else { return false };
        let holds = |program: &&Program| program.durable <= at && program.units.contains(&unit);
        let Some(place) = programs.iter().rposition(|program| holds(&program)) else { return false };
        let held = &programs[place];
        let same_block = programs[place + 1..].iter().filter(|later| later.block == held.block);
        let before_erase = same_block.take_while(|later| later.page > held.page);
        before_erase.filter(|later| later.page / pages == held.page / pages).any(|later| later.damages.contains(&at))
    }

    pub fn expect(&mut self, version: Version, command: &DeviceCommand) {
        self.command = Some((version, command.arrival));
    }

    pub fn left(&self, sector: u64, at: Nanos) -> Option<SectorContent> {
        let steps = self.flash.get(&sector)?.iter().filter(|(from, ..)| *from <= at);
        let content = steps.map(|(_, content, _)| *content).max_by_key(|content| content.version())?;
        let is_data = matches!(content, SectorContent::Data(_));
        (!is_data || !self.damages(Lpn((sector / self.unit_sectors) as u32), at)).then_some(content)
    }

    fn sectors(&self, unit: Lpn, covered: u32) -> impl Iterator<Item = u64> + use<> {
        let first = u64::from(unit.0) * self.unit_sectors;
        (0..self.unit_sectors).filter(move |bit| covered >> bit & 1 == 1).map(move |bit| first + bit)
    }
}

impl Observer for Facts {
    fn unit_cached(&mut self, event: &UnitCached) {
        for sector in self.sectors(event.lpn, event.covered) {
            self.cached.insert(sector, event.command + 1);
        }
    }

    fn page_programmed(&mut self, event: &PageProgrammed<'_>) {
        if let Some((_, programs)) = &mut self.paired {
            let &PageProgrammed { block, page, begin, end, durable, .. } = event;
            let begin = if event.cause == OperationCause::Host { begin } else { end - self.group.times(page).program };
            let units = event.units.iter().map(|unit| unit.lpn).collect();
            programs.push(Program { block, page, damages: begin..end, durable, units });
        }
        if event.cause != OperationCause::Host {
            return;
        }
        let latest = self.in_order.as_mut().map(|latest| {
            *latest = event.end.max(*latest);
            *latest
        });
        for unit in event.units {
            for sector in self.sectors(unit.lpn, unit.covered) {
                let cached = self.cached.remove(&sector);
                if let Some(version) = unit.command.map(|command| command + 1).or(cached) {
                    let counts = latest.unwrap_or(event.end) + self.counts_after;
                    let step = (counts, SectorContent::Data(version), event.block);
                    self.flash.entry(sector).or_default().push(step);
                }
            }
        }
    }

    fn trimmed(&mut self, event: &UnitsTrimmed) {
        let Some((version, at)) = self.command else { return };
        let first = u64::from(event.first.0) * self.unit_sectors;
        for sector in first..first + u64::from(event.count) * self.unit_sectors {
            self.cached.remove(&sector);
            self.flash.entry(sector).or_default().push((at, SectorContent::Nothing(version), BlockId(u32::MAX)));
        }
    }

    fn operations_delayed(&mut self, event: &OperationsDelayed) {
        let planes = event.planes.0.0..event.planes.0.0 + event.planes.1;
        for (from, _, block) in self.flash.values_mut().flatten() {
            if planes.contains(&(block.0 / self.blocks_per_plane)) && *from > event.at {
                *from += event.delay;
            }
        }
    }
}
