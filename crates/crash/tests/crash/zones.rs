//! A cut leaves the result of a prefix of the writes and resets of each zone.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::support::{ALL_WAYS, CHOSEN_WAYS, Toy, disk_in, disks, explorer, header, position};
use emmclab_base::{ErrorClass, Op, SECTOR_BYTES};
use emmclab_crash::log::{CommandPort, CrashLogHeader, DeviceFacts};
use emmclab_crash::{CrashLogIndex, ExploreOptions, Explorer, RunEvent, TearMode};
use emmclab_device::CommandFlags;
use emmclab_layers::DiskZones;
use proptest::collection::vec;
use proptest::prelude::*;

/// Blocks of a zone, each of eight sectors. The disk has a block that may be written anywhere, then two zones.
const ZONE_BLOCKS: u64 = 3;
const BLOCKS: u64 = 1 + 2 * ZONE_BLOCKS;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A write at the write pointer of a zone, or a reset if the zone is full; reliable if true.
    Append(u64, bool),
    Reset(u64),
    Flush,
    /// The device writes a block from the cache to the cells.
    WriteBack(u64),
    Complete,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..2u64, any::<bool>()).prop_map(|(zone, reliable)| Step::Append(zone, reliable && zone == 0)),
        1 => (0..2u64).prop_map(Step::Reset),
        1 => Just(Step::Flush),
        3 => (0..BLOCKS).prop_map(Step::WriteBack),
        4 => Just(Step::Complete),
    ]
}

fn start(zone: u64) -> u64 {
    1 + zone * ZONE_BLOCKS
}

const ZONES: DiskZones = DiskZones { first: 8, sectors: ZONE_BLOCKS * 8, count: 2, write_sectors: 8, max_open: 0, max_active: 0 };

fn zoned(zones: DiskZones) -> CrashLogHeader {
    let header = header(BLOCKS * 8);
    let device = DeviceFacts { zones: Some(zones), ..header.device };
    CrashLogHeader { device, ..header }
}

/// Runs the steps on a toy device that writes back blocks of the cache in any order.
fn run_of(steps: &[Step], path: &Path) -> Arc<CrashLogIndex> {
    let mut toy = Toy::new(path, &zoned(ZONES));
    let mut filled_blocks = [0; 2];
    for (i, step) in steps.iter().enumerate() {
        let byte = i as u8 + 1;
        match *step {
            Step::Append(zone, reliable) if filled_blocks[zone as usize] < ZONE_BLOCKS => {
                let block = start(zone) + filled_blocks[zone as usize];
                filled_blocks[zone as usize] += 1;
                let flags = if reliable { CommandFlags::RELIABLE } else { CommandFlags::empty() };
                let number = toy.write(block * 8, byte, flags);
                toy.cache.insert(block, number);
                if reliable {
                    // Blocks before it in the zone are written back first.
                    (start(zone)..=block).for_each(|block| toy.write_back(block));
                }
                toy.open.push_back(number);
            }
            Step::Append(zone, _) | Step::Reset(zone) => {
                filled_blocks[zone as usize] = 0;
                toy.discard(start(zone), ZONE_BLOCKS);
            }
            Step::Flush => {
                let number = toy.flush();
                toy.write_back_all();
                toy.open.push_back(number);
            }
            Step::WriteBack(block) => toy.write_back(block),
            Step::Complete => toy.complete_next(),
        }
    }
    toy.run(path)
}

/// What a zone may contain after a cut: the first byte of each block, by the number of commands that took effect.
fn allowed(run: &CrashLogIndex, cut: usize, zone: u64) -> Vec<Vec<u8>> {
    let commands = run.commands(CommandPort::Device);
    let happened = |what| position(run, what).filter(|at| *at <= cut);
    let complete = |place: u32| happened(RunEvent::Completes(CommandPort::Device, place));
    let own = start(zone) * 8..(start(zone) + ZONE_BLOCKS) * 8;
    let mut present = vec![0; ZONE_BLOCKS as usize];
    let mut all = vec![present.clone()];
    for (place, logged) in (0..).zip(commands) {
        if !own.contains(&logged.command.sector)
            || logged.command.sectors == 0
            || happened(RunEvent::Arrives(CommandPort::Device, place)).is_none()
        {
            continue;
        }
        if logged.command.op == Op::Discard {
            present.fill(0);
        } else {
            let mut data = [0; SECTOR_BYTES as usize];
            run.spool().read(&[logged.source], &mut data).unwrap();
            present[((logged.command.sector - own.start) / 8) as usize] = data[0];
        }
        let is_promised = logged.command.op == Op::Write
            && complete(place).is_some_and(|at| {
                logged.command.modifiers.durable()
                    || (0..).zip(commands).any(|(flush, other)| {
                        other.command.op == Op::Flush
                            && position(run, RunEvent::Arrives(CommandPort::Device, flush)).is_some_and(|came| came > at)
                            && complete(flush).is_some()
                    })
            });
        if is_promised {
            all.clear();
        }
        all.push(present.clone());
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(emmclab_testing::cases(96)))]

    #[test]
    fn every_state_of_a_zone_is_a_beginning_of_its_commands(steps in vec(step(), 1..50)) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let run = run_of(&steps, file.path());
        prop_assume!(!run.moments().is_empty());
        let mut explorer = explorer(&run, ALL_WAYS, TearMode::default());
        while let Some(state) = explorer.next_state() {
            prop_assert!(state.broken.is_empty());
            let disk = disk_in(&explorer, &state, BLOCKS as u32 * 8);
            for zone in 0..2 {
                let blocks = start(zone)..start(zone) + ZONE_BLOCKS;
                let present: Vec<u8> = blocks.map(|block| disk[block as usize * 8 * 512]).collect();
                let may = allowed(&run, state.cut, zone);
                prop_assert!(
                    may.contains(&present),
                    "{:?} at cut {}: zone {zone} holds {present:?}, may hold {may:?}", state.way, state.cut
                );
            }
        }
    }

    #[test]
    fn a_torn_write_is_the_last_of_its_zone(steps in vec(step(), 1..40), inside in any::<bool>()) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let run = run_of(&steps, file.path());
        prop_assume!(!run.moments().is_empty());
        let tear = if inside { TearMode::Inside } else { TearMode::Sector };
        let mut explorer = explorer(&run, CHOSEN_WAYS, tear);
        while let Some(state) = explorer.next_state() {
            let disk = disk_in(&explorer, &state, BLOCKS as u32 * 8);
            for zone in 0..2 {
                let (from, to) = (start(zone) * 8, (start(zone) + ZONE_BLOCKS) * 8);
                let sectors: Vec<&[u8]> = disk[from as usize * 512..to as usize * 512].chunks_exact(512).collect();
                let holds = |sector: &&[u8]| sector.iter().any(|byte| *byte != 0);
                let end = sectors.iter().position(|sector| !holds(sector)).unwrap_or(sectors.len());
                prop_assert!(!sectors[end..].iter().any(holds), "{:?} at cut {}: a gap", state.way, state.cut);
            }
        }
    }
}

#[test]
fn zones_that_no_device_has_are_refused_with_their_figures() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for wrong in [
        DiskZones { sectors: 0, ..ZONES },
        DiskZones { sectors: 12, ..ZONES },
        DiskZones { first: 4, ..ZONES },
        DiskZones { count: 3, ..ZONES },
        DiskZones { sectors: u64::MAX - 7, ..ZONES },
        DiskZones { first: u64::MAX - 7, ..ZONES },
    ] {
        Toy::new(file.path(), &zoned(wrong)).log.finish().unwrap();
        let Err(error) = CrashLogIndex::open(file.path()) else { panic!("{wrong:?} was read") };
        assert_eq!((error.kind(), error.field()), (ErrorClass::Value, Some("device.zones")), "{error}");
        assert!(error.to_string().contains(&format!("`{} of {} sectors", wrong.count, wrong.sectors)), "{error}");
    }
}

#[test]
fn random_states_and_omissions_end_a_zone_anywhere() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let blocks = 64;
    let zones = DiskZones { first: 0, sectors: blocks * 8, count: 1, ..ZONES };
    let header = header(blocks * 8);
    let device = DeviceFacts { zones: Some(zones), ..header.device };
    let mut toy = Toy::new(file.path(), &CrashLogHeader { device, cells: false, ..header });
    for block in 0..blocks {
        toy.write_and_complete(block * 8, 1, CommandFlags::empty());
    }
    let run = toy.run(file.path());
    for way in ["random:200", "omit1:200"] {
        let only = Some((run.moments().len() - 1, None));
        let options = ExploreOptions { ways: way.parse().unwrap(), only, ..ExploreOptions::default() };
        let disks = disks(Explorer::new(&run, &options).unwrap(), blocks as u32 * 8);
        let ends: BTreeSet<_> = disks.iter().map(|disk| disk.iter().rposition(|byte| *byte == 1)).collect();
        assert!(ends.len() > 50, "{way} ends at {} places", ends.len());
    }
}
