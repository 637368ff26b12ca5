//! Compares the contents of a device with an array, and its image after a power cut with the contract of persistence.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use emmclab_base::{Nanos, Op, SECTOR_BYTES};
use emmclab_device::contract::Version;
use emmclab_device::persistence::PersistenceTracker;
use emmclab_device::{CacheLie, CommandFlags, Device, DeviceCommand, DeviceConfig, PageScheduling, UndoLog};
use emmclab_media::{DeviceContents, RawImage};
use proptest::prelude::*;

const SECTOR: usize = SECTOR_BYTES as usize;

/// A small device with this mapping scheme and these additional settings.
fn device(scheme: &str, settings: &[(&str, &str)]) -> DeviceConfig {
    let mut config = DeviceConfig::from_toml(emmclab_testing::SMALL_DEVICE).unwrap();
    let shape = [
        ("capacity.over_provisioning_pct", "200"),
        ("geometry.block_groups.0.blocks", "24"),
        ("geometry.block_groups.0.pages_per_block", "4"),
    ];
    config.set_all(&[&shape[..], &[("mapping.scheme", scheme)]].concat()).unwrap();
    match scheme {
        "page" => config.set_all(settings).unwrap(),
        "dftl" => config.set_all(&[("mapping.cached_entries", "5")]).unwrap(),
        "tpftl" | "leaftl" | "rqftl" => config.set_all(&[("mapping.map_cache_kb", "4")]).unwrap(),
        _ => config.set_all(&[("mapping.log_blocks", "4")]).unwrap(),
    }
    config
}

/// Settings that change the path of data through a page-mapped device.
fn ways() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    prop::sample::select(vec![
        vec![],
        vec![("controller.scheduling", "read_first")],
        vec![("timing.write_complete", "transferred"), ("timing.bus_ns_per_byte", "5")],
        vec![("cache.size_kb", "16"), ("cache.policy", "fifo")],
        vec![("cache.size_kb", "64"), ("cache.policy", "fifo"), ("cache.write_back", "when_full")],
        vec![("cache.size_kb", "32"), ("cache.policy", "lru"), ("cache.write_back", "when_full")],
        vec![("cache.size_kb", "16"), ("cache.policy", "lru"), ("timing.suspend_limit", "3"), ("timing.resume_us", "150")],
        vec![
            ("cache.size_kb", "64"),
            ("cache.policy", "block_lru"),
            ("cache.write_back", "idle"),
            ("cache.idle_after_us", "500"),
        ],
        vec![
            ("slc.mode", "cache"),
            ("slc.blocks", "4"),
            ("slc.read_us", "30"),
            ("slc.program_us", "200"),
            ("slc.erase_us", "1000"),
        ],
    ])
}

/// A sector filled with a version of the data.
fn sector_of(version: Version) -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    for (i, word) in (0..).zip(sector.chunks_exact_mut(4)).filter(|_| version > 0) {
        word.copy_from_slice(&(version as u32).wrapping_mul(2_654_435_761).wrapping_add(i).to_le_bytes());
    }
    sector
}

fn holds(media: &DeviceContents, sector: u64, version: Version, what: &str) -> Result<(), TestCaseError> {
    let mut result = [0; SECTOR];
    media.read(sector, &mut result).unwrap();
    prop_assert!(result == sector_of(version), "{} at sector {}: version {} is not there", what, sector, version);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(500), ..ProptestConfig::default() })]

    #[test]
    fn reads_give_the_last_write_and_a_cut_leaves_what_was_programmed(
        scheme in prop::sample::select(vec!["page", "page", "page", "block", "bast", "fast", "superblock", "dftl", "tpftl", "leaftl", "rqftl"]),
        ways in ways(),
        // Gap in us, first sector, length in sectors, kind of command, and time until a power cut in us.
        steps in prop::collection::vec(
            (0u16..4000, any::<u16>(), 0u8..40, any::<u8>(), prop::option::weighted(0.1, 0u16..6000)), 1..80),
    ) {
        let config = device(scheme, &ways);
        let mut device = Device::new(&config);
        let sectors = device.geometry().sectors();
        let (mut persistence, mut undo) = (PersistenceTracker::of(&device), UndoLog::of(&device));
        let mut media = DeviceContents::new(&device, RawImage::temporary(sectors).unwrap());
        // Versions are numbered over all commands; the contract counts those since the last cut.
        let (mut model, mut base) = (vec![0; sectors as usize], 0);
        let (mut durable, mut discarded) = (model.clone(), vec![false; sectors as usize]);
        let mut now = Nanos::ZERO;
        for (gap, place, length, kind, cut) in steps {
            now += Nanos::from_micros(i64::from(gap));
            let length = (u64::from(length) + 1).min(sectors);
            let sector = u64::from(place) % (sectors - length + 1);
            let (op, modifiers) = match kind {
                0..=150 => (Op::Write, CommandFlags::empty()),
                151..=170 => (Op::Write, CommandFlags::RELIABLE),
                171..=180 => (Op::Write, CommandFlags::PREFLUSH),
                181..=210 => (Op::Read, CommandFlags::empty()),
                211..=224 => (Op::Discard, CommandFlags::empty()),
                225..=230 => (Op::SecureErase, CommandFlags::empty()),
                231..=240 => (Op::Flush, CommandFlags::BARRIER),
                _ => (Op::Flush, CommandFlags::empty()),
            };
            let (sector, length) = if op == Op::Flush { (0, 0) } else { (sector, length as u32) };
            let command = DeviceCommand { modifiers, ..DeviceCommand::new(now, op, sector, length) };
            media.apply_durable(now).unwrap();
            // A packed command of overlapping entries, if the device accepts it.
            let packs = op == Op::Write && modifiers.is_empty() && place % 4 == 0 && config.settings().controller.scheduling == PageScheduling::Fifo;
            let place = |entry: u64| (sector + entry * 4) % (sectors - u64::from(length) + 1);
            let entries: Vec<_> = if packs {
                (0..3).map(|entry| DeviceCommand { sector: place(entry), ..command }).collect()
            } else {
                vec![command]
            };
            let versions = persistence.expect_packed(&entries);
            for (number, (version, entry)) in (device.next_command()..).zip(versions.clone().zip(&entries)) {
                if op == Op::Write {
                    let data: Vec<u8> = (0..length).flat_map(|_| sector_of(base + version)).collect();
                    media.receive_write(number, entry.sector, &data);
                    model[entry.sector as usize..][..length as usize].fill(base + version);
                }
            }
            device.submit_packed(&entries, &mut (&mut persistence, (&mut undo, &mut media))).unwrap();
            prop_assert!(device.stop().is_none());
            if matches!(op, Op::Discard | Op::SecureErase) {
                let unit = u64::from(device.geometry().unit_sectors);
                let (from, to) = (sector.div_ceil(unit) * unit, (sector + u64::from(length)) / unit * unit);
                if from < to {
                    model[from as usize..to as usize].fill(0);
                    discarded[from as usize..to as usize].fill(true);
                }
            }
            undo.retire(now);
            for at in sector..sector + u64::from(length) {
                holds(&media, at, model[at as usize], "after a command")?;
            }
            let Some(later) = cut else { continue };
            now += Nanos::from_micros(i64::from(later));
            device.advance(now, &mut (&mut persistence, (&mut undo, &mut media)));
            media.cut(now, CacheLie::None).unwrap();
            device.cut(now, &mut undo);
            prop_assert_eq!(media.volatile_bytes(), 0);
            for (sector, version) in (0..).zip(&mut model) {
                let left = persistence.survives(sector, now);
                *version = match left {
                    0 if discarded[sector as usize] => 0,
                    0 => durable[sector as usize],
                    left => base + left,
                };
                holds(&media, sector, *version, "after a cut")?;
            }
            durable.clone_from(&model);
            discarded.fill(false);
            base += versions.end - 1;
            persistence = PersistenceTracker::of(&device);
        }
        for (sector, version) in (0..).zip(&model) {
            holds(&media, sector, *version, "at the end")?;
        }
        device.power_off(&mut (&mut persistence, &mut media));
        media.apply_durable(Nanos::MAX).unwrap();
        prop_assert_eq!(media.volatile_bytes(), 0);
        for (sector, version) in (0..).zip(&model) {
            holds(&media, sector, *version, "after power off")?;
        }
    }
}
