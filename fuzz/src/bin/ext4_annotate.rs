//! Input is patches of an image whose log is not empty (`emmclab_fuzz::Patched`); the first byte chooses the image. Its writes are
//! named by an annotator that knows the disk and by one that learns it from them.
#![no_main]

use emmclab_ext4::{Annotator, DiskReader};
use emmclab_fuzz::Patched;
use libfuzzer_sys::fuzz_target;

const SECTOR: usize = 512;

fuzz_target!(|data: &[u8]| {
    let disk = Patched::new(data);
    let Ok(size) = disk.size() else { return };
    let mut known = Annotator::new();
    let _ = known.attach(&disk);
    let _ = Annotator::new().attach_external(&disk, &disk);
    let mut learning = Annotator::new();
    let mut notes = Vec::new();
    // Requests of one to eight sectors, as the input says, in the order of the disk.
    let mut lengths = data.iter().cycle();
    let mut at = 0;
    while at < size {
        let sectors = 1 + usize::from(lengths.next().copied().unwrap_or(0) % 8);
        let mut bytes = vec![0; sectors * SECTOR];
        if disk.read_at(at, &mut bytes).is_err() {
            return;
        }
        for annotator in [&mut known, &mut learning] {
            annotator.write(at / SECTOR as u64, &bytes, &mut notes);
            assert_eq!(notes.iter().map(|note| note.sectors as usize).sum::<usize>(), sectors);
            annotator.write_journal(at / SECTOR as u64, &bytes, &mut notes);
            assert_eq!(notes.iter().map(|note| note.sectors as usize).sum::<usize>(), sectors);
        }
        at += bytes.len() as u64;
    }
    known.discard(0, size);
});
