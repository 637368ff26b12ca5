//! Input is patches of an image whose log is not empty (`emmclab_fuzz::Patched`); the first byte chooses the image. The journal is
//! replayed, and each home block written out.
#![no_main]

use emmclab_ext4::{
    Ext4Filesystem, FastCommitRecords, JournalLocation, JournalRecordKind, JournalRecovery, JournalSuperblock, LogFormat,
};
use emmclab_fuzz::Patched;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let disk = Patched::new(data);
    let mut recovery = JournalRecovery::new();
    if let Ok(replayed) = recovery.replay(&disk) {
        let mut bytes = 0;
        let _ = replayed.write_to(|_, block| {
            bytes += block.len();
            Ok(())
        });
        std::hint::black_box(bytes);
        if let Ok(files) = Ext4Filesystem::open(&replayed) {
            std::hint::black_box(files.lookup("/a/b/linked").is_ok());
        }
    }
    // The same bytes as blocks of a log of any form, one at a time, as a parser of a stream meets them.
    let Ok(filesystem) = Ext4Filesystem::open(&disk) else { return };
    let Ok(Some(location)) = JournalLocation::inside(&filesystem) else { return };
    let superblock = location.superblock(&disk).or_else(|_| JournalSuperblock::parse(data, 0));
    let Ok(superblock) = superblock else { return };
    if let Some(record) = LogFormat::new(&superblock).record(data) {
        std::hint::black_box(match record.kind {
            JournalRecordKind::Descriptor(tags) => tags.count(),
            JournalRecordKind::Revoke(revoked) => revoked.count(),
            JournalRecordKind::Commit(commit) => commit.seconds as usize,
        });
    }
    std::hint::black_box(FastCommitRecords::new(data).map(|record| record.value.len()).sum::<usize>());
});
