//! Zones: rejected commands, states of zones, and contents after a power cut, compared with a simple model of zones.

use emmclab_base::{Nanos, Op};
use emmclab_device::checker::DeviceChecker;
use emmclab_device::persistence::PersistenceTracker;
use emmclab_device::{
    BlockErased, BlockId, CommandFlags, Device, DeviceCommand, DeviceConfig, Geometry, NullObserver, Observer, OperationCause,
    PageProgrammed, UndoLog, ZoneAction, ZoneDescriptor, ZoneState,
};
use emmclab_testing::ZONED;
use proptest::prelude::*;

use crate::common::config;
use crate::ufs::ufs;

const SECTORS: u64 = 8;

fn zoned(settings: &[(&str, &str)]) -> DeviceConfig {
    ufs(&[&ZONED, settings].concat())
}

fn zones(device: &Device) -> Vec<ZoneDescriptor> {
    device.zones().collect()
}

fn write(device: &mut Device, at_us: i64, sector: u64, sectors: u32) -> Result<(), String> {
    let command = DeviceCommand::new(Nanos::from_micros(at_us), Op::Write, sector, sectors);
    device.submit(&command, &mut NullObserver).map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn a_zone_is_all_that_its_blocks_hold_and_conventional_ones_come_first() {
    let device = Device::new(&zoned(&[]));
    let zones = zones(&device);
    assert_eq!(zones.len(), 8);
    for (zone, found) in (1_u64..).zip(&zones) {
        let start = zone * 384;
        assert_eq!(*found, ZoneDescriptor { state: ZoneState::Empty, start, sectors: 384, write_pointer: start });
    }
    assert_eq!(device.geometry().sectors(), 9 * 384);
}

#[test]
fn a_write_elsewhere_is_refused_with_zone_write_pointer_and_sector() {
    let mut device = Device::new(&zoned(&[]));
    let start = zones(&device)[2].start;
    write(&mut device, 0, start, 64).unwrap();
    for (sector, sectors, said) in [
        (start, 8, format!("zone 3 is written in order, and its write pointer is at sector {}", start + 64)),
        (start + 128, 8, format!("write pointer is at sector {}", start + 64)),
        (start + 64, 328, format!("the write leaves zone 3, which ends before sector {}", start + 384)),
        (start + 64, 7, "whole blocks of 8 sectors".to_owned()),
        (380, 8, "leaves the conventional zones".to_owned()),
    ] {
        let error = write(&mut device, 1, sector, sectors).unwrap_err();
        assert!(error.contains(&said) && error.contains(&sector.to_string()), "{error}");
    }
    write(&mut device, 2, start + 64, 320).unwrap();
    assert_eq!(zones(&device)[2].state, ZoneState::Full);
    assert!(write(&mut device, 3, start + 64, 8).unwrap_err().contains("zone 3 is full"));
    let discard = DeviceCommand::new(Nanos::from_micros(4), Op::Discard, start, 8);
    assert!(device.submit(&discard, &mut NullObserver).unwrap_err().to_string().contains("all 384 sectors of each"));
    // Conventional zones are written at any address, also in parts of a block.
    write(&mut device, 5, 100, 3).unwrap();
    write(&mut device, 6, 8, 8).unwrap();
}

#[test]
fn a_zone_without_a_write_buffer_takes_that_of_the_zone_written_longest_ago() {
    let config = |buffers| zoned(&[("cache.write_back", "when_full"), ("zones.write_buffers", buffers)]);
    let run = |buffers| {
        let mut device = Device::new(&config(buffers));
        let starts: Vec<u64> = zones(&device).iter().map(|zone| zone.start).collect();
        // 4 KB of a 16 KB page are written to each of three zones in rotation.
        for turn in 0..4 {
            for (zone, start) in (0..3).zip(&starts) {
                write(&mut device, turn * 100_000 + zone * 10_000, start + turn as u64 * 8, 8).unwrap();
            }
        }
        device.power_off(&mut NullObserver);
        let counters = device.counters();
        (counters.zones.buffer_conflicts, counters.zones.premature_flushes, counters.group_programs.clone())
    };
    assert_eq!(run("0"), (0, 0, vec![3, 9]), "data leaves in its order over all zones");
    assert_eq!(run("3"), (0, 0, vec![3, 0]), "each page is complete when it is programmed");
    // With two buffers, every write except the first two takes the buffer of another zone, whose data is in SLC mode until the page is
    // complete.
    let (conflicts, premature, programs) = run("2");
    assert_eq!((conflicts, premature), (10, 10));
    assert_eq!(programs, [3, 9]);
    let refused = zoned(&[]).set_all(&[("zones.write_buffers", "2"), ("cache.size_kb", "0")]).unwrap_err();
    assert!(refused.to_string().contains("set cache.size_kb"), "{refused}");
}

#[test]
fn a_reset_makes_a_zone_empty_and_erases_its_blocks() {
    let mut device = Device::new(&zoned(&[]));
    let ZoneDescriptor { start, sectors, .. } = zones(&device)[0];
    write(&mut device, 0, start, sectors as u32).unwrap();
    device.power_off(&mut NullObserver);
    assert_eq!(device.counters().bytes_programmed[OperationCause::Host as usize], sectors * 512, "every page once");
    let reset = DeviceCommand::new(Nanos::from_micros(100_000), Op::Discard, start, sectors as u32);
    device.submit(&reset, &mut NullObserver).unwrap();
    assert_eq!(zones(&device)[0], ZoneDescriptor { state: ZoneState::Empty, start, sectors, write_pointer: start });
    assert_eq!((device.counters().block_erases(), device.counters().zones.resets), (2, 1));
    write(&mut device, 100_001, start, 8).unwrap();
}

#[test]
fn open_and_active_zones_have_limits() {
    use ZoneState::{Closed, Empty, ExplicitlyOpen as Explicit, Full, ImplicitlyOpen as Implicit};
    let mut device = Device::new(&zoned(&[("zones.max_open", "2"), ("zones.max_active", "3")]));
    let starts: Vec<u64> = zones(&device).iter().map(|zone| zone.start).collect();
    let states = |device: &Device| zones(device).iter().map(|zone| zone.state).take(4).collect::<Vec<_>>();
    let at = |device: &mut Device, time, zone: usize| {
        let sector = zones(device)[zone].write_pointer;
        write(device, time, sector, 8)
    };
    for (at, start) in (0..3).zip(&starts) {
        write(&mut device, at, *start, 8).unwrap();
    }
    assert_eq!(states(&device), [Closed, Implicit, Implicit, Empty], "the one opened first gives way");
    let error = write(&mut device, 4, starts[3], 8).unwrap_err();
    assert!(error.contains("zone 4 cannot be opened: 3 zones are active"), "{error}");
    device.manage_zone(0, ZoneAction::Open, &mut NullObserver).unwrap();
    device.manage_zone(2, ZoneAction::Open, &mut NullObserver).unwrap();
    assert_eq!(states(&device), [Explicit, Closed, Explicit, Empty]);
    let error = at(&mut device, 5, 1).unwrap_err();
    assert!(error.contains("zone 2 cannot be written: 2 zones were opened by command"), "{error}");
    device.manage_zone(2, ZoneAction::Close, &mut NullObserver).unwrap();
    at(&mut device, 6, 1).unwrap();
    device.manage_zone(1, ZoneAction::Finish, &mut NullObserver).unwrap();
    at(&mut device, 7, 3).unwrap();
    assert_eq!(states(&device), [Explicit, Full, Closed, Implicit]);
    assert!(at(&mut device, 8, 1).is_err());
    device.manage_zone(4, ZoneAction::Close, &mut NullObserver).unwrap();
    assert!(device.manage_zone(4, ZoneAction::Open, &mut NullObserver).is_err(), "it would be the fourth");
    assert!(device.manage_zone(8, ZoneAction::Open, &mut NullObserver).unwrap_err().to_string().contains("8 zones"));
    let counts = device.counters().zones;
    assert_eq!((counts.most_open, counts.most_active, counts.filled), (2, 3, 1));
}

#[test]
fn a_page_cut_short_by_a_flush_is_programmed_whole_in_the_end() {
    let mut device = Device::new(&zoned(&[]));
    let start = zones(&device)[0].start;
    let flush = |device: &mut Device, at| {
        device.submit(&DeviceCommand::new(Nanos::from_micros(at), Op::Flush, 0, 0), &mut NullObserver).unwrap();
    };
    for part in 0..3 {
        write(&mut device, part * 10_000, start + part as u64 * 8, 8).unwrap();
        flush(&mut device, part * 10_000 + 1);
    }
    let programs = |device: &Device| device.counters().group_programs.clone();
    assert_eq!(programs(&device), [0, 3], "in SLC mode");
    write(&mut device, 40_000, start + 24, 8).unwrap();
    flush(&mut device, 40_001);
    assert_eq!(programs(&device), [1, 3]);
    assert_eq!(device.counters().page_reads[OperationCause::ReadModifyWrite as usize], 3);
}

/// The block of the last program.
#[derive(Default)]
struct LastBlock(Option<BlockId>);

impl Observer for LastBlock {
    fn page_programmed(&mut self, event: &PageProgrammed<'_>) {
        self.0 = Some(event.block);
    }
}

#[test]
fn a_cut_before_a_page_is_programmed_loses_none_of_its_flushed_units_though_their_block_is_erased() {
    let mut device = Device::new(&zoned(&[]));
    let start = zones(&device)[0].start;
    let (mut undo, mut last) = (UndoLog::of(&device), LastBlock::default());
    let at = |us, op, sector, sectors| DeviceCommand::new(Nanos::from_micros(us), op, sector, sectors);
    device.submit(&at(0, Op::Write, start, 24), &mut undo).unwrap();
    device.submit(&at(1, Op::Flush, 0, 0), &mut (&mut undo, &mut last)).unwrap();
    let partial = last.0.expect("three units of a page were programmed");
    undo.retire(Nanos::from_micros(10_000));
    // The rest of the page is written, and garbage collection plans the erase of the block, which has no valid data.
    device.submit(&at(10_000, Op::Write, start + 24, 8), &mut undo).unwrap();
    device.submit(&at(10_001, Op::Flush, 0, 0), &mut (&mut undo, &mut last)).unwrap();
    assert_ne!(last.0, Some(partial), "a whole page lies in a block of its zone");
    let (erased, later) = (Nanos::from_micros(10_500), Nanos::from_micros(11_000));
    let erase = BlockErased { block: partial, group: 1, erases: 1, ready: erased, begin: erased, end: later };
    undo.block_erased(&erase);
    device.cut(Nanos::from_micros(10_002), &mut undo);
    assert_eq!(zones(&device)[0].write_pointer, start + 24);
}

#[test]
fn what_means_nothing_with_zones_is_refused() {
    for (settings, said) in [
        (&[("mapping.scheme", "dftl")][..], "zones have their own map"),
        (&[("wear.levelling", "static")], "the data of zones is never moved"),
        (&[("slc.mode", "cache")], "`slc.mode` must be \"region\""),
        (&[("controller.scheduling", "read_first"), ("cache.size_kb", "0")], "set it to \"fifo\""),
        (&[("zones.max_active", "2"), ("zones.max_open", "3")], "set it to 1 to 2"),
        (&[("zones.max_active", "2")], "`zones.max_open` is 0"),
        (&[("zones.conventional", "4")], "use more, or fewer `zones.conventional`"),
        (&[("zones.blocks", "9")], "are left for zones"),
        (&[("zones.blocks", "0")], "the device has no zones"),
    ] {
        let error = zoned(&[]).set_all(settings).unwrap_err().to_string();
        assert!(error.contains(said), "{settings:?}: {error}");
    }
    let error = config(&[]).set("zones.blocks", "1").unwrap_err().to_string();
    assert!(error.contains("an eMMC has no zones"), "{error}");
}

/// The model of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Model {
    state: ZoneState,
    written: u64,
    /// Number of its sectors that survived the last power cut.
    kept: u64,
    opened: u64,
}

/// All zones of the model, and their limits.
struct Zones {
    all: Vec<Model>,
    max_open: usize,
    max_active: usize,
    clock: u64,
}

impl Zones {
    fn count(&self, of: fn(ZoneState) -> bool) -> usize {
        self.all.iter().filter(|zone| of(zone.state)).count()
    }

    /// Opens a zone. Returns false if it must not be opened.
    fn open(&mut self, zone: usize, to: ZoneState) -> bool {
        let found = self.all[zone];
        if !found.state.is_open() {
            if found.state == ZoneState::Empty && self.count(ZoneState::is_active) >= self.max_active {
                return false;
            }
            if self.count(ZoneState::is_open) >= self.max_open {
                let implicit = self.all.iter_mut().filter(|zone| zone.state == ZoneState::ImplicitlyOpen);
                let Some(oldest) = implicit.min_by_key(|zone| zone.opened) else { return false };
                oldest.state = ZoneState::Closed;
            }
        }
        if !found.state.is_open() || to == ZoneState::ExplicitlyOpen && found.state != to {
            self.clock += 1;
            self.all[zone].opened = self.clock;
            self.all[zone].state = to;
        }
        true
    }

    fn write(&mut self, zone: usize, offset: u64, length: u64, size: u64) -> bool {
        let Model { state, written, .. } = self.all[zone];
        let fits = state != ZoneState::Full && offset == written && offset + length <= size;
        if !fits || !length.is_multiple_of(SECTORS) || !self.open(zone, ZoneState::ImplicitlyOpen) {
            return false;
        }
        self.all[zone].written += length;
        if self.all[zone].written == size {
            self.all[zone].state = ZoneState::Full;
        }
        true
    }

    fn manage(&mut self, zone: usize, action: ZoneAction) -> bool {
        let Model { state, written, .. } = self.all[zone];
        match action {
            ZoneAction::Open => {
                return state != ZoneState::Full && self.open(zone, ZoneState::ExplicitlyOpen);
            }
            ZoneAction::Close if state.is_open() => {
                self.all[zone].state = if written == 0 { ZoneState::Empty } else { ZoneState::Closed };
            }
            ZoneAction::Close => {}
            ZoneAction::Finish => self.all[zone].state = ZoneState::Full,
        }
        true
    }
}

/// Gap in us, kind, zone, length, and the time in us until the power cut.
type Step = (u16, u8, u8, u8, Option<u16>);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let cut = prop::option::weighted(0.12, 0_u16..6000);
    prop::collection::vec((0_u16..4000, any::<u8>(), any::<u8>(), any::<u8>(), cut), 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(300), ..ProptestConfig::default() })]

    #[test]
    fn zones_are_those_of_the_model_and_a_cut_leaves_a_beginning_of_each(
        cache_kb in prop::sample::select(vec!["0", "32", "64", "256"]),
        limits in prop::sample::select(vec![("0", "0"), ("2", "0"), ("2", "3"), ("4", "4")]),
        write_back in prop::sample::select(vec!["eager", "when_full"]),
        incremental in any::<bool>(),
        conventional in prop::sample::select(vec!["0", "1"]),
        write_buffers in prop::sample::select(vec!["0", "0", "1", "2"]),
        steps in steps(),
    ) {
        let write_buffers = if cache_kb == "0" { "0" } else { write_buffers };
        let mode = if incremental { "incremental" } else { "blocking" };
        let config = zoned(&[
            ("cache.size_kb", cache_kb),
            ("cache.write_back", write_back),
            ("zones.max_open", limits.0),
            ("zones.max_active", limits.1),
            ("zones.conventional", conventional),
            ("gc.mode", mode),
            ("zones.write_buffers", write_buffers),
        ]);
        let limit = |text: &str| Some(text.parse::<usize>().unwrap()).filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let mut device = Device::new(&config);
        let (count, size) = (zones(&device).len(), zones(&device)[0].sectors);
        let none = Model { state: ZoneState::Empty, written: 0, kept: 0, opened: 0 };
        let mut model = Zones { all: vec![none; count], max_open: limit(limits.0), max_active: limit(limits.1), clock: 0 };
        let (mut persistence, mut undo) = (PersistenceTracker::of(&device), UndoLog::of(&device));
        let mut checker = DeviceChecker::of(&device);
        let mut now = Nanos::ZERO;
        for (gap, kind, zone, length, cut) in steps {
            now += Nanos::from_micros(i64::from(gap));
            let zone = usize::from(zone) % count;
            let ZoneDescriptor { start, .. } = zones(&device)[zone];
            let written = model.all[zone].written;
            let length = u64::from(length % 24 + 1) * SECTORS;
            let new = |op, sector, sectors: u64| DeviceCommand::new(now, op, sector, sectors as u32);
            let (command, allowed) = match kind {
                // Most writes are at the write pointer; few are elsewhere or of a part of a block.
                0..=150 => {
                    let offset = if kind < 8 { length } else { written }.min(size - SECTORS);
                    let length = if kind < 140 { length.min(size.saturating_sub(offset)).max(SECTORS) } else { length };
                    let length = if kind == 140 { 3 } else { length };
                    let modifiers = if kind % 16 == 9 { CommandFlags::RELIABLE } else { CommandFlags::empty() };
                    let command = DeviceCommand { modifiers, ..new(Op::Write, start + offset, length) };
                    (command, model.write(zone, offset, length, size))
                }
                151..=170 => (new(Op::Read, start, size), true),
                171..=185 => {
                    model.all[zone] = none;
                    (new(Op::Discard, start, size), true)
                }
                186..=215 => {
                    // A flush of a range, or of everything.
                    let ranged = kind % 3 == 0;
                    (new(Op::Flush, if ranged { start } else { 0 }, if ranged { 64 } else { 0 }), true)
                }
                216..=235 if conventional == "1" => {
                    (new(Op::Write, u64::from(gap) % (size - 24), u64::from(kind - 215)), true)
                }
                _ => {
                    let action = [ZoneAction::Open, ZoneAction::Close, ZoneAction::Finish][usize::from(kind) % 3];
                    let allowed = model.manage(zone, action);
                    prop_assert_eq!(device.manage_zone(zone as u32, action, &mut NullObserver).is_ok(), allowed);
                    continue;
                }
            };
            if allowed {
                persistence.expect(&command);
                checker.expect(&command);
            }
            let done = device.submit(&command, &mut (&mut persistence, (&mut undo, &mut checker)));
            prop_assert_eq!(done.is_ok(), allowed, "{:?}: {:?}", command, done);
            prop_assert!(device.stop().is_none(), "{:?}", device.stop());
            undo.retire(now);
            checker.verify(&device).map_err(|error| TestCaseError::fail(format!("{error} at {command:?}")))?;
            for (zone, model) in zones(&device).iter().zip(&model.all) {
                let before = if model.state == ZoneState::Full { size } else { model.written };
                prop_assert_eq!((zone.state, zone.write_pointer - zone.start), (model.state, before));
            }
            let Some(later) = cut else { continue };
            now += Nanos::from_micros(i64::from(later));
            device.advance(now, &mut (&mut persistence, (&mut undo, &mut checker)));
            prop_assert_eq!(persistence.broken(now), None);
            let promised: Vec<u64> = zones(&device)
                .iter()
                .zip(&model.all)
                .map(|(zone, model)| {
                    let promised = |at: &u64| persistence.promised(zone.start + at, now) > 0;
                    model.kept + (model.kept..size).take_while(promised).count() as u64
                })
                .collect();
            device.cut(now, &mut undo);
            checker = DeviceChecker::of(&device);
            checker.verify(&device).map_err(|error| TestCaseError::fail(error.to_string()))?;
            for ((zone, model), promised) in zones(&device).iter().zip(&mut model.all).zip(promised) {
                let finished = model.state == ZoneState::Full && model.written < size;
                // The data written since the last cut, after the data that survived that cut.
                let there = (model.kept..size)
                    .take_while(|at| persistence.survives(zone.start + at, now) > 0)
                    .count() as u64;
                if !finished {
                    model.written = zone.write_pointer - zone.start;
                    prop_assert!(model.written >= promised, "a flushed beginning of {promised} sectors is lost");
                    prop_assert!(model.kept + there >= model.written, "{there} sectors were programmed");
                }
                *model = Model {
                    opened: 0,
                    written: model.written,
                    kept: model.written,
                    state: match model.written {
                        _ if finished => ZoneState::Full,
                        0 => ZoneState::Empty,
                        written if written == size => ZoneState::Full,
                        _ => ZoneState::Closed,
                    },
                };
                prop_assert_eq!(zone.state, model.state);
            }
            // The contract treats the device after the cut as a new one.
            persistence = PersistenceTracker::of(&device);
        }
        device.power_off(&mut (&mut persistence, &mut checker));
        checker.verify(&device).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let image = device.to_image();
        let copy = Device::from_image(&config, &image).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(copy.to_image(), image);
        for (zone, model) in copy.zones().zip(&model.all) {
            let state = if model.state.is_open() && model.written == 0 { ZoneState::Empty } else if model.state.is_open() { ZoneState::Closed } else { model.state };
            prop_assert_eq!(zone.state, state);
        }
    }
}

#[test]
fn a_scaled_zoned_device_has_zones_enough_and_conventional_ones_in_slc_mode() {
    let preset = DeviceConfig::preset("zufs").unwrap();
    let layout = |config: &DeviceConfig| {
        let geometry = Geometry::new(config.settings());
        (geometry.zones.unwrap(), u64::from(geometry.unit_bytes))
    };
    let (before, unit_bytes) = layout(&preset);
    for mb in [64_u64, 256, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 128 << 10, 512 << 10] {
        let config = preset.with_capacity(mb << 20, "X").unwrap();
        let (zones, _) = layout(&config);
        let capacity = config.capacity().0;
        assert!((mb << 20..(mb << 20) * 5 / 4).contains(&capacity), "{mb} MB: {capacity}");
        assert!(zones.count >= 18, "{mb} MB: {}", zones.count);
        // From 4 GB on, zones have the size of those of the preset, and a larger device has a larger conventional part for the host.
        assert_eq!(zones.units == before.units, mb >= 4 << 10, "{mb} MB");
        let conventional = u64::from(zones.first_unit) * unit_bytes;
        assert!(conventional >= (capacity >> 30) * 2_100_000, "{mb} MB: {conventional}");
        let mut device = Device::new(&config);
        let write = DeviceCommand::new(Nanos(1), Op::Write, u64::from(zones.first_unit) * SECTORS, SECTORS as u32);
        assert!(device.submit(&write, &mut NullObserver).is_ok(), "{mb} MB");
    }
}

#[test]
fn finishing_a_full_zone_changes_nothing_so_that_a_cut_may_take_its_data() {
    let mut device = Device::new(&zoned(&[("cache.size_kb", "256"), ("cache.write_back", "when_full")]));
    let mut undo = UndoLog::of(&device);
    let zone = zones(&device)[4];
    let all = DeviceCommand::new(Nanos::ZERO, Op::Write, zone.start, zone.sectors as u32);
    device.submit(&all, &mut undo).unwrap();
    device.manage_zone(4, ZoneAction::Finish, &mut undo).unwrap();
    assert_eq!(zones(&device)[4].state, ZoneState::Full);
    device.cut(Nanos::ZERO, &mut undo);
    // All of its data was in the cache.
    assert_eq!((zones(&device)[4].state, zones(&device)[4].write_pointer), (ZoneState::Empty, zone.start));
}

#[test]
fn without_a_cache_what_is_complete_in_a_conventional_zone_is_there_while_zones_are_written() {
    let mut device = Device::new(&zoned(&[("cache.size_kb", "0")]));
    let mut persistence = PersistenceTracker::of(&device);
    let start = zones(&device)[5].start;
    for command in
        [DeviceCommand::new(Nanos::ZERO, Op::Write, start, 144), DeviceCommand::new(Nanos::from_micros(10), Op::Write, 205, 1)]
    {
        persistence.expect(&command);
        let done = device.submit(&command, &mut persistence).unwrap().unwrap();
        assert_eq!(persistence.broken(done), None, "{command:?}");
    }
}

#[test]
fn the_conventional_zones_of_the_preset_are_overwritten_again_and_again() {
    let mut device = Device::new(&DeviceConfig::preset("zufs").unwrap());
    let layout = device.geometry().zones.unwrap();
    let sectors = u64::from(layout.first_unit) * SECTORS;
    for pass in 0..3 {
        for sector in (0..sectors).step_by(1024) {
            let at = (pass * sectors + sector) as i64;
            write(&mut device, at * 10, sector, 1024).unwrap();
            assert!(device.stop().is_none(), "pass {pass}, sector {sector}");
        }
    }
}
