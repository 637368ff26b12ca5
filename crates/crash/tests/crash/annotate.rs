//! The writes of a log have roles in the file system that was on the disk when the log began.

use crate::support::{Toy, header};
use emmclab_base::{BlockRole, Op, SectorSet};
use emmclab_crash::annotate;
use emmclab_crash::log::{CommandPort, CrashLogRecord};
use emmclab_device::CommandFlags;
use emmclab_ext4::{AnnotatorStatus, JournalRecovery};

/// An image of an ext4 file system whose log is not empty.
const IMAGE: &[u8] = include_bytes!("../../../../fuzz/images/plain.zst");

#[test]
fn the_home_blocks_of_a_replay_are_named_with_their_transactions() {
    let image = zstd::decode_all(IMAGE).unwrap();
    let mut homes: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut recovery = JournalRecovery::new();
    let replayed = recovery.replay(&image).unwrap();
    let (first, end) = (replayed.replay().first, replayed.replay().end);
    replayed
        .write_to(|at, bytes| {
            homes.push((at / 512, bytes.to_vec()));
            Ok(())
        })
        .unwrap();
    assert!(homes.len() > 2);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut toy = Toy::new(&path, &header((image.len() / 512) as u64));
    for (chunk, sector) in image.chunks(1 << 16).zip((0..).step_by(128)) {
        toy.log.add(&CrashLogRecord::Base { sector, data: chunk }).unwrap();
    }
    toy.flush();
    for (sector, bytes) in &homes {
        let sectors = (bytes.len() / 512) as u32;
        toy.comes(Op::Write, *sector, sectors, CommandFlags::empty(), bytes);
    }
    toy.comes(Op::Discard, homes[0].0, (homes[0].1.len() / 512) as u32, CommandFlags::empty(), &[]);
    let run = toy.run(&path);
    // Without layers, both ports are the same.
    for port in [CommandPort::Device, CommandPort::Host] {
        let mut seen = 0;
        let status = annotate(&run, port, |logged, notes| {
            let covered: u32 = notes.iter().map(|note| note.sectors).sum();
            if logged.command.op != Op::Write {
                assert_eq!(covered, 0);
                return;
            }
            assert_eq!(covered, logged.command.sectors);
            for note in notes {
                assert!(note.role.at_home() && note.role != BlockRole::Data, "{note:?}");
                assert_eq!(note.changed, Some(SectorSet(0)), "{note:?}");
                assert!((first..end).contains(&note.transaction.unwrap()));
            }
            seen += 1;
        });
        assert_eq!(status.unwrap(), AnnotatorStatus::Recovering, "the log was not cleared");
        assert_eq!(seen, homes.len());
    }
}
