//! Layers above real files: every acknowledged write is read back, also after a start that finds the disk as a killed process left it.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use emmclab_device::CommandFlags;
use emmclab_disk::LayeredDisk;
use emmclab_layers::LayerConfig;
use emmclab_serve::{BlockAction, BlockDevice, CompletionReceiver, RequestFailure, ServedCompletion, ServedRequest};
use proptest::prelude::*;

const SECTOR: usize = 512;
const MB: u64 = 1 << 20;

fn image(folder: &Path, name: &str, mb: u64) -> PathBuf {
    let path = folder.join(name);
    File::create(&path).unwrap().set_len(mb * MB).unwrap();
    path
}

fn layers(name: &str) -> Vec<LayerConfig> {
    let layer = LayerConfig::named(name);
    vec![match name {
        "advil" | "ressd" => layer.with("reserved", "8MB"),
        "pair" => layer.with("routing", "striping"),
        _ => layer,
    }]
}

fn perform(
    disk: &LayeredDisk, action: BlockAction, sector: u64, sectors: u32, modifiers: CommandFlags,
) -> Result<Vec<u8>, RequestFailure> {
    let completed = Arc::new(Mutex::new(Vec::<ServedCompletion>::new()));
    let receiver: Arc<dyn CompletionReceiver> = completed.clone();
    disk.submit(&mut vec![ServedRequest { tag: 5, action, sector, sectors, modifiers }], &receiver);
    let mut completed = completed.lock().unwrap();
    assert_eq!(completed.len(), 1);
    completed.remove(0).outcome
}

fn stamp(version: u32, sector: u64, sectors: u32) -> Vec<u8> {
    (0..u64::from(sectors)).flat_map(|i| [(u64::from(version) * 31 + (sector + i) * 7) as u8 | 1; SECTOR]).collect()
}

#[derive(Clone, Debug)]
enum Event {
    Write(u64, u32, bool),
    Discard(u64, u32),
    Zero(u64, u32),
    Flush,
    Read(u64, u32),
    /// The process is killed: nothing of it remains but the disk. A start recovers the layers.
    Kill,
    Stop,
}

fn event() -> impl Strategy<Value = Event> {
    let place = || (prop_oneof![(0_u64..60).prop_map(|i| i * 8), 0_u64..2000], prop_oneof![3 => Just(8_u32), 1 => 1_u32..200]);
    prop_oneof![
        12 => (place(), any::<bool>()).prop_map(|((sector, sectors), fua)| Event::Write(sector, sectors, fua)),
        1 => place().prop_map(|(sector, sectors)| Event::Discard(sector, sectors)),
        1 => place().prop_map(|(sector, sectors)| Event::Zero(sector, sectors)),
        2 => Just(Event::Flush),
        4 => place().prop_map(|(sector, sectors)| Event::Read(sector, sectors)),
        1 => Just(Event::Kill),
        1 => Just(Event::Stop),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(emmclab_testing::cases(24)))]
    #[test]
    fn durable_data_survives_kills_and_all_data_survives_stops(
        name in prop_oneof![Just("advil"), Just("ressd"), Just("lfs"), Just("nvm-buffer"), Just("pair"), Just("journal"), Just("pass-through")],
        events in prop::collection::vec(event(), 1..80),
    ) {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut paths = vec![image(folder.path(), "disk", 600)];
        if name == "pair" || name == "nvm-buffer" {
            paths.push(image(folder.path(), "second", 600));
        }
        let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        let Some(layer) = emmclab_layers::layers().iter().find(|layer| layer.name == name) else { return Ok(()) };
        let open = |erase: bool| LayeredDisk::open(&paths, &layers(layer.name), erase);
        let mut disk = open(true).unwrap();
        // For each sector, the versions that it may have: the last durable one, and those acknowledged since.
        let mut model: HashMap<u64, Vec<Vec<u8>>> = HashMap::new();
        let zeros = vec![0; SECTOR];
        for (version, event) in (1..).zip(events) {
            let settle = |model: &mut HashMap<u64, Vec<Vec<u8>>>| model.values_mut().for_each(|all| { all.drain(..all.len() - 1); });
            let change = |model: &mut HashMap<u64, Vec<Vec<u8>>>, sector: u64, data: &[u8], durable: bool| {
                for (at, bytes) in (sector..).zip(data.chunks(SECTOR)) {
                    let versions = model.entry(at).or_insert_with(|| vec![zeros.clone()]);
                    versions.push(bytes.to_vec());
                    if durable {
                        versions.drain(..versions.len() - 1);
                    }
                }
            };
            let none = CommandFlags::empty();
            match event {
                Event::Write(sector, sectors, fua) => {
                    let data = stamp(version, sector, sectors);
                    let flags = if fua { CommandFlags::RELIABLE } else { none };
                    prop_assert_eq!(perform(&disk, BlockAction::Write(data.clone()), sector, sectors, flags), Ok(Vec::new()));
                    change(&mut model, sector, &data, fua);
                }
                Event::Discard(sector, sectors) => {
                    prop_assert_eq!(perform(&disk, BlockAction::Discard { secure: false }, sector, sectors, none), Ok(Vec::new()));
                    change(&mut model, sector, &vec![0; sectors as usize * SECTOR], false);
                }
                Event::Zero(sector, sectors) => {
                    let action = BlockAction::WriteZeroes { keep_allocated: true };
                    prop_assert_eq!(perform(&disk, action, sector, sectors, CommandFlags::RELIABLE), Ok(Vec::new()));
                    change(&mut model, sector, &vec![0; sectors as usize * SECTOR], true);
                }
                Event::Flush => {
                    prop_assert_eq!(perform(&disk, BlockAction::Flush, 0, 0, none), Ok(Vec::new()));
                    settle(&mut model);
                }
                Event::Read(sector, sectors) => {
                    let data = perform(&disk, BlockAction::Read, sector, sectors, none).unwrap();
                    for (at, bytes) in (sector..).zip(data.chunks(SECTOR)) {
                        let expected = model.get(&at).and_then(|versions| versions.last()).unwrap_or(&zeros);
                        prop_assert!(bytes == expected, "sector {at}");
                    }
                }
                Event::Kill | Event::Stop => {
                    if matches!(event, Event::Stop) {
                        disk.stop().unwrap();
                        settle(&mut model);
                    }
                    drop(disk);
                    disk = open(false).unwrap();
                    prop_assert!(!disk.result().is_new);
                    for (at, versions) in &mut model {
                        let found = perform(&disk, BlockAction::Read, *at, 1, none).unwrap();
                        prop_assert!(versions.contains(&found), "sector {at} has lost a durable version");
                        *versions = vec![found];
                    }
                }
            }
        }
        disk.stop().unwrap();
    }
}

#[test]
fn other_layers_a_disk_without_a_label_and_one_in_use_are_refused() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = image(folder.path(), "disk", 600);
    let open =
        |name: &str, erase: bool| LayeredDisk::open(&[&path], &layers(name), erase).map(|disk| disk.stop().unwrap().is_new);
    let problem = |name: &str, erase: bool| open(name, erase).unwrap_err().to_string();
    assert!(problem("advil", false).contains("would erase all data on"));
    assert!(open("advil", true).unwrap());
    assert!(!open("advil", true).unwrap(), "the data is kept, even if it might be erased");
    assert!(problem("ressd", true).contains("other layers or settings (advil)"));
    let serving = LayeredDisk::open(&[&path], &layers("advil"), false).unwrap();
    assert!(problem("advil", false).contains("the disk is in use"));
    let beyond = serving.limits().sectors;
    assert_eq!(perform(&serving, BlockAction::Read, beyond, 1, CommandFlags::empty()), Err(RequestFailure::Invalid));
    serving.stop().unwrap();
    assert_eq!(perform(&serving, BlockAction::Read, 0, 1, CommandFlags::empty()), Err(RequestFailure::Io));
    // A damaged label is none.
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"?", 30).unwrap();
    assert!(problem("advil", false).contains("would erase all data on"));
    let tiny = image(folder.path(), "tiny", 1);
    assert!(LayeredDisk::open(&[&tiny], &layers("advil"), true).is_err());
}
