//! The persistence contract: the time from which each sector's data is durable.
//!
//! # The contract
//!
//! A *version* of a sector is what one write put there. Power may go at any moment `t`. After it, a sector holds one
//! version, or nothing, and the device promises:
//!
//! 1. *Nothing from nowhere.* It holds a version whose write came before `t`, or nothing where it was never written or
//!    was discarded.
//! 2. *Without a cache*, a write that is complete is durable: its version or a newer one is there. Where a write counts as
//!    complete when its data is transferred (`timing.write_complete`), completion promises nothing, as with a cache.
//! 3. *With a cache*, completion of a plain write promises nothing. Its version is durable when a flush that came after
//!    its completion is complete (`EXT_CSD` `FLUSH_CACHE` [32] bit 0). A write with PREFLUSH is such a flush for
//!    what was complete when it came.
//! 4. *Reliable write* (CMD23 bit 31) and *forced programming* (CMD23 bit 24) go past the cache: their version is durable
//!    when they are complete. A reliable write that is cut leaves each sector old or new, never in between; the model
//!    gives that to every write, since a page is programmed whole or not at all.
//! 5. *Barrier* (eMMC 5.1; `EXT_CSD` `FLUSH_CACHE` bit 1): if any version written after a barrier is there, then all
//!    that was complete before the barrier is durable.
//! 6. *Discard* takes every promise back: the sector may hold nothing or any older version.
//! 7. *Power off* in good order is a flush.
//! 8. *Packed write* (6.6.29): without a cache its entries become durable in their order. If anything of an entry is there,
//!    all entries before it are; a cut may lose a tail, never what stands in front of it. To keep this where planes finish
//!    out of order, a page of a pack counts after a cut only where all pages of the pack before it do.
//!
//! Nothing else is promised. In particular, plain writes in the cache reach the flash in any order, and one of two
//! overlapping requests in flight may win.
//!
//! Not modelled: damage to pages written before in the same cells (paired pages), and the device's own map, which is
//! taken to be rebuilt from what the pages say. An overwritten version is taken to stay until its successor is programmed.
//!
//! [`Persistence`] keeps both sides: the promise, made from commands and completions alone, and what the flash of the
//! simulation holds, made from page programs. It is an observer: it costs nothing where it is not used.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::RangeInclusive;

use emmclab_base::{Modifiers, Nanos, Op};

use crate::command::Command;
use crate::device::Device;
use crate::events::{Cause, Observer, PageProgrammed, RequestCompleted, Trimmed, UnitCached};

use crate::ids::Lpn;

/// A moment and the version that holds from then on.
type Step = (Nanos, u32);
/// A version of the sectors from one to another: first, end, version.
type Extent = (u64, u64, u32);

/// Promises and facts about every sector. Tell it each command before the device has it, and let it listen.
pub struct Persistence {
    /// A device whose completions of plain writes promise something.
    write_through: bool,
    unit_sectors: u32,
    /// Number that the device gives its next command, less the version of that: versions begin with 1, and 0 is nothing.
    offset: u64,
    /// Version of the next write.
    next: u32,
    /// Commands not yet complete: with the version that they write.
    commands: VecDeque<(Command, u32)>,
    /// Writes that are complete but not promised: when, first sector, end, version.
    unpromised: Vec<(Nanos, u64, u64, u32)>,
    /// Promises by sector, in order of time.
    promised: HashMap<u64, Vec<Step>>,
    /// Versions on the flash by sector, each from the end of its program on.
    flash: HashMap<u64, Vec<Step>>,
    /// Versions in the cache, by sector.
    cached: HashMap<u64, u32>,
    orders: Vec<Order>,
    /// Where the last command was packed, when its pages so far count.
    pack_end: Option<Nanos>,
}

/// If a version of `after` is there, so is all of `before`: barriers and packs.
struct Order {
    after: RangeInclusive<u32>,
    before: Vec<Extent>,
}

impl Persistence {
    /// For a device that holds nothing.
    pub fn of(device: &Device) -> Self {
        Self {
            write_through: device.promises_on_completion(),
            unit_sectors: device.geometry().unit_sectors,
            offset: device.next_command().wrapping_sub(1),
            next: 1,
            commands: VecDeque::new(),
            unpromised: Vec::new(),
            promised: HashMap::new(),
            flash: HashMap::new(),
            cached: HashMap::new(),
            orders: Vec::new(),
            pack_end: None,
        }
    }

    /// Notes the next command; returns the version that it writes, counted from 1 over all commands.
    pub fn expect(&mut self, command: &Command) -> u32 {
        let version = self.next;
        self.next += 1;
        if command.op == Op::Flush && command.modifiers.contains(Modifiers::BARRIER) {
            let before = self.unpromised.iter().filter(|(at, ..)| *at <= command.arrival);
            let before = before.map(|(_, first, end, version)| (*first, *end, *version)).collect();
            self.orders.push(Order { after: version + 1..=u32::MAX, before });
        }
        self.commands.push_back((*command, version));
        self.pack_end = None;
        version
    }

    /// Notes the entries of the next command, which is packed.
    pub fn expect_packed(&mut self, entries: &[Command]) {
        let versions: Vec<_> = entries.iter().map(|entry| self.expect(entry)).collect();
        let [_, .., last] = versions[..] else { return };
        if !self.write_through || entries.iter().any(|entry| entry.op != Op::Write) {
            return;
        }
        self.pack_end = Some(Nanos::MIN);
        let extent = |(entry, version): (&Command, &u32)| {
            (entry.sector, entry.sector + u64::from(entry.sectors), *version)
        };
        let extents: Vec<Extent> = entries.iter().zip(&versions).map(extent).collect();
        for (i, version) in versions.iter().enumerate().skip(1) {
            self.orders.push(Order { after: *version..=last, before: extents[..i].to_vec() });
        }
    }

    /// The oldest version that the sector may hold after power went at `at`; 0 = nothing is promised.
    pub fn promised(&self, sector: u64, at: Nanos) -> u32 {
        let steps = self.promised.get(&sector).map_or(&[][..], Vec::as_slice);
        steps.iter().filter(|(from, _)| *from <= at).map(|(_, version)| *version).next_back().unwrap_or(0)
    }

    /// The version that the flash holds when power goes at `at`; 0 = nothing.
    pub fn survives(&self, sector: u64, at: Nanos) -> u32 {
        let steps = self.flash.get(&sector).map_or(&[][..], Vec::as_slice);
        // A discard (version 0) takes effect at once; of the rest the newest write wins.
        let from =
            steps.iter().rposition(|(from, version)| *version == 0 && *from <= at).map_or(0, |i| i + 1);
        let held = steps[from..].iter().filter(|(from, _)| *from <= at).map(|(_, version)| *version);
        held.max().unwrap_or(0)
    }

    /// The first broken promise when power goes at `at`: sector, version found, version promised.
    pub fn broken(&self, at: Nanos) -> Option<(u64, u32, u32)> {
        let plain = self.promised.keys().map(|sector| {
            let (found, promised) = (self.survives(*sector, at), self.promised(*sector, at));
            (*sector, found, promised)
        });
        let there: HashSet<u32> = self.flash.keys().map(|sector| self.survives(*sector, at)).collect();
        let holds = |order: &&Order| there.iter().any(|version| order.after.contains(version));
        let ordered = self.orders.iter().filter(holds).flat_map(|order| &order.before);
        let ordered =
            ordered.flat_map(|(first, end, version)| (*first..*end).map(move |sector| (sector, *version)));
        let ordered = ordered.map(|(sector, version)| (sector, self.survives(sector, at), version));
        plain.chain(ordered).filter(|(_, found, promised)| found < promised).min()
    }

    /// The moments at which the flash holds something new.
    pub fn moments(&self) -> impl Iterator<Item = Nanos> {
        self.flash.values().flatten().map(|(at, _)| *at)
    }

    /// A sector of which the flash does not hold the newest version that was complete, where there is one: what plain
    /// writes risk, and nothing once the power went in good order.
    pub fn lost(&self) -> Option<u64> {
        let newest = |(_, first, end, version): &(Nanos, u64, u64, u32)| {
            (*first..*end).find(|sector| self.survives(*sector, Nanos::MAX) < *version)
        };
        self.unpromised.iter().find_map(newest)
    }

    fn promise(&mut self, at: Nanos, first: u64, end: u64, version: u32) {
        for sector in first..end {
            let steps = self.promised.entry(sector).or_default();
            if steps.last().is_none_or(|(_, last)| version == 0 || *last < version) {
                steps.push((at, version));
            }
        }
    }

    /// A flush that came at `came` is complete at `at`.
    fn flushed(&mut self, came: Nanos, at: Nanos) {
        let mut held = std::mem::take(&mut self.unpromised);
        held.retain(|(complete, first, end, version)| {
            let durable = *complete <= came;
            if durable {
                self.promise(at, *first, *end, *version);
            }
            !durable
        });
        self.unpromised = held;
    }

    /// The version that a command writes, by its number at the device.
    fn version_of(&self, command: u64) -> u32 {
        command.wrapping_sub(self.offset) as u32
    }

    fn store(&mut self, unit: Lpn, covered: u32, mut keep: impl FnMut(&mut Self, u64)) {
        let first = u64::from(unit.0) * u64::from(self.unit_sectors);
        for bit in 0..self.unit_sectors {
            if covered >> bit & 1 == 1 {
                keep(self, first + u64::from(bit));
            }
        }
    }
}

impl Observer for Persistence {
    fn request_completed(&mut self, event: &RequestCompleted) {
        let Some((command, version)) = self.commands.pop_front() else { return };
        let (first, end) = (command.sector, command.sector + u64::from(command.sectors));
        let asks = |modifier| command.modifiers.contains(modifier);
        match command.op {
            Op::Write => {
                if asks(Modifiers::PREFLUSH) {
                    self.flushed(event.arrival, event.complete);
                }
                if self.write_through || command.modifiers.durable() {
                    self.promise(event.complete, first, end, version);
                } else {
                    self.unpromised.push((event.complete, first, end, version));
                }
            }
            Op::Flush if !asks(Modifiers::BARRIER) => {
                self.flushed(event.arrival, event.complete);
            }
            Op::Flush | Op::Read | Op::Discard | Op::SecureErase => {}
        }
    }

    fn unit_cached(&mut self, event: &UnitCached) {
        let version = self.version_of(event.command);
        self.store(event.lpn, event.covered, |all, sector| {
            all.cached.insert(sector, version);
        });
    }

    fn page_programmed(&mut self, event: &PageProgrammed<'_>) {
        if event.cause != Cause::Host {
            return;
        }
        let mut end = event.end;
        if let Some(pack_end) = &mut self.pack_end {
            *pack_end = end.max(*pack_end);
            end = *pack_end;
        }
        for unit in event.units {
            self.store(unit.lpn, unit.covered, |all, sector| {
                let cached = all.cached.remove(&sector);
                let version = unit.command.map(|command| all.version_of(command)).or(cached);
                if let Some(version) = version {
                    all.flash.entry(sector).or_default().push((end, version));
                }
            });
        }
    }

    fn trimmed(&mut self, event: &Trimmed) {
        let Some((command, _)) = self.commands.back().copied() else { return };
        let at = command.arrival;
        let unit = u64::from(self.unit_sectors);
        let (first, end) = (u64::from(event.first.0) * unit, u64::from(event.first.0 + event.count) * unit);
        let parts = |from: u64, to: u64| [(from, to.min(first)), (from.max(end), to)];
        for (at, from, to, version) in std::mem::take(&mut self.unpromised) {
            let left = parts(from, to).into_iter().filter(|(from, to)| from < to);
            self.unpromised.extend(left.map(|(from, to)| (at, from, to, version)));
        }
        for order in &mut self.orders {
            for (from, to, version) in std::mem::take(&mut order.before) {
                let left = parts(from, to).into_iter().filter(|(from, to)| from < to);
                order.before.extend(left.map(|(from, to)| (from, to, version)));
            }
        }
        for sector in first..end {
            if self.cached.remove(&sector).is_some() || self.flash.contains_key(&sector) {
                self.flash.entry(sector).or_default().push((at, 0));
            }
        }
        self.promise(at, first, end, 0);
    }
}
