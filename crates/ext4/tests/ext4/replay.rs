//! The replay of random journals leaves the same home blocks as that of e2fsck.

use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::io;

use crate::support::journal::{Base, Fault, Fill, Form, HOMES, Transaction, base, form};
use crate::support::{Images, run, text, try_run};
use emmclab_ext4::{DiskReader, JournalRecovery};
use proptest::prelude::*;

/// The home blocks after a replay by e2fsck.
fn by_e2fsck(base: &Base, image: &[u8]) -> Vec<u8> {
    let images = Images::new();
    let path = images.path("image");
    std::fs::write(&path, image).unwrap();
    try_run("e2fsck", &["-y", "-E", "journal_only", text(&path)]);
    homes(base, &std::fs::read(&path).unwrap())
}

fn homes(base: &Base, image: &[u8]) -> Vec<u8> {
    image[image.len() - HOMES as usize * base.block_size..].to_vec()
}

/// The home blocks after a replay by this crate, or those on the disk if it refuses; and the reason of a refusal.
fn by_this_crate(base: &Base, image: &[u8]) -> (Vec<u8>, Option<String>) {
    let mut recovery = JournalRecovery::new();
    let mut out = homes(base, image);
    let refused = match recovery.replay(&image) {
        Ok(replayed) => {
            let from = image.len() - out.len();
            replayed.read_at(from as u64, &mut out).unwrap();
            // Writing the replay to the image gives the same home blocks.
            let mut written = image.to_vec();
            let mut write = |at: u64, bytes: &[u8]| {
                written[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
                Ok(())
            };
            replayed.write_to(&mut write).unwrap();
            assert!(homes(base, &written) == out);
            replayed.replay().refused.as_ref().map(ToString::to_string)
        }
        Err(error) => Some(error.to_string()),
    };
    (out, refused)
}

/// A disk that identifies the contents of its blocks.
struct Named<'a> {
    image: &'a [u8],
    block_size: usize,
}

impl DiskReader for Named<'_> {
    fn size(&self) -> io::Result<u64> {
        self.image.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.image.read_at(offset, buffer)
    }

    fn content(&self, offset: u64, length: usize) -> Option<u64> {
        assert_eq!(length, self.block_size);
        let mut hash = std::hash::DefaultHasher::new();
        self.image[offset as usize..offset as usize + length].hash(&mut hash);
        Some(hash.finish())
    }
}

thread_local! {
    static KEPT: RefCell<JournalRecovery> = RefCell::new(JournalRecovery::new());
}

/// The home blocks after a replay by a recovery that was used for all previous disks, and knows checksums of their blocks.
fn by_kept_recovery(base: &Base, image: &[u8]) -> Vec<u8> {
    KEPT.with_borrow_mut(|recovery| {
        let disk = Named { image, block_size: base.block_size };
        let mut out = homes(base, image);
        if let Ok(replayed) = recovery.replay(&disk) {
            replayed.read_at((image.len() - out.len()) as u64, &mut out).unwrap();
        }
        out
    })
}

fn transaction() -> impl Strategy<Value = Transaction> {
    let fill = prop_oneof![4 => any::<u8>().prop_map(Fill::Byte), 1 => any::<u8>().prop_map(Fill::Escaped)];
    let fault = prop_oneof![
        24 => Just(Fault::None),
        1 => Just(Fault::Torn),
        1 => Just(Fault::Commit),
        1 => Just(Fault::Descriptor),
        1 => Just(Fault::Revoke),
        2 => (0_usize..6).prop_map(Fault::Block),
    ];
    // Sometimes more blocks than a descriptor can list.
    let blocks = prop_oneof![9 => 0_usize..8, 1 => 60_usize..150];
    let blocks = blocks.prop_flat_map(move |count| prop::collection::vec((0..HOMES, fill.clone()), count));
    let seconds = prop_oneof![9 => 5_u64..6, 1 => 0_u64..10];
    (blocks, prop::collection::vec(0..HOMES, 0..4), seconds, fault, prop::bool::weighted(0.1))
        .prop_map(|(blocks, revokes, seconds, fault, uuids)| Transaction { blocks, revokes, seconds, fault, uuids })
}

/// Sequence numbers close to the wrap-around to 0, and others.
fn sequence() -> impl Strategy<Value = u32> {
    prop_oneof![1_u32..1000, any::<u32>(), (u32::MAX - 3)..u32::MAX]
}

/// An image with a random journal.
fn image(base: &Base, form: Form, (start, sequence): (usize, u32), mut transactions: Vec<Transaction>) -> Vec<u8> {
    let mut writer = base.writer(form, start, sequence);
    for (number, transaction) in transactions.iter_mut().enumerate() {
        transaction.blocks.iter_mut().for_each(|(home, _)| *home = base.home(*home));
        transaction.revokes.iter_mut().for_each(|home| *home = base.home(*home));
        transaction.seconds += number as u64 / 2;
        if writer.used() + transaction.blocks.len() + 12 > 1000 {
            break;
        }
        writer.transaction(transaction);
        if transaction.fault == Fault::Torn {
            break;
        }
    }
    writer.finish()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(80), ..ProptestConfig::default() })]

    #[test]
    fn random_journals_replay_as_by_e2fsck(
        form in form(),
        large in prop::bool::weighted(0.3),
        at in (0_usize..2000, sequence()),
        transactions in prop::collection::vec(transaction(), 1..12),
    ) {
        let Some(base) = base(usize::from(large)) else { return Ok(()) };
        let image = image(base, form, at, transactions);
        let (ours, refused) = by_this_crate(base, &image);
        prop_assert!(ours == by_kept_recovery(base, &image));
        prop_assert!(ours == by_e2fsck(base, &image), "home blocks differ; refused: {refused:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(24), ..ProptestConfig::default() })]

    #[test]
    fn linux_mounts_what_is_not_refused_and_leaves_the_same_home_blocks(
        form in form(),
        fast_commit in any::<bool>(),
        at in (0_usize..2000, sequence()),
        transactions in prop::collection::vec(transaction(), 1..8),
    ) {
        let Some(images) = Images::if_possible(true, &["mount", "umount"]) else { return Ok(()) };
        let Some(base) = base(if fast_commit { 3 } else { 0 }) else { return Ok(()) };
        let image = image(base, Form { fast_commit, ..form }, at, transactions);
        let (ours, refused) = by_this_crate(base, &image);
        let by_linux = by_linux(base, &images, &image);
        prop_assert_eq!(by_linux.is_none(), refused.is_some(), "{:?}", refused);
        prop_assert!(by_linux.is_none_or(|homes| homes == ours));
    }
}

/// The home blocks after a replay by Linux; `None` if Linux refuses to mount.
fn by_linux(base: &Base, images: &Images, image: &[u8]) -> Option<Vec<u8>> {
    let path = images.path("image");
    std::fs::write(&path, image).unwrap();
    let point = images.path("mounted");
    std::fs::create_dir(&point).unwrap();
    let mounted = try_run("mount", &["-t", "ext4", "-o", "loop", text(&path), text(&point)]);
    if !mounted.status.success() {
        return None;
    }
    run("umount", &[text(&point)]);
    Some(homes(base, &std::fs::read(&path).unwrap()))
}

fn plain(base: &Base, homes: &[u64], byte: u8) -> Transaction {
    let blocks = homes.iter().map(|home| (base.home(*home), Fill::Byte(byte))).collect();
    Transaction { blocks, revokes: Vec::new(), seconds: 7, fault: Fault::None, uuids: false }
}

const V3: Form = Form { checksums: 3, wide: true, is_async: false, fast_commit: false };

#[test]
fn a_log_that_fills_the_journal_and_wraps_is_replayed_to_its_end() {
    let Some(base) = base(0) else { return };
    let mut writer = base.writer(V3, 700, u32::MAX - 100);
    let mut last = 0;
    while writer.used() < 1010 {
        last += 1;
        writer.transaction(&plain(base, &[0, last % HOMES], last as u8));
    }
    let image = writer.finish();
    let mut recovery = JournalRecovery::new();
    let replayed = recovery.replay(&image).unwrap();
    assert_eq!(replayed.replay().blocks, 2 * last);
    assert_eq!(replayed.replay().end, (u32::MAX - 100).wrapping_add(last as u32));
    assert!(by_this_crate(base, &image) == (by_e2fsck(base, &image), None));
}

#[test]
fn a_log_with_fast_commits_wraps_before_them() {
    // e2fsck 1.47 wraps after the fast commits here, so Linux is the reference: the block is that of the second transaction.
    let Some(base) = base(3) else { return };
    let form = Form { fast_commit: true, ..V3 };
    let end = base.map.len() - 256;
    let mut writer = base.writer(form, end - 3, 5);
    writer.transaction(&plain(base, &[1], 0x11));
    writer.transaction(&plain(base, &[1], 0x22));
    let image = writer.finish();
    let mut recovery = JournalRecovery::new();
    let replayed = recovery.replay(&image).unwrap();
    assert_eq!((replayed.replay().end, replayed.replay().blocks), (7, 2));
    let mut block = vec![0; base.block_size];
    replayed.read_at(base.home(1) * base.block_size as u64, &mut block).unwrap();
    assert!(block.iter().all(|byte| *byte == 0x22));
}

#[test]
fn a_fast_commit_that_is_not_whole_is_refused_as_by_linux_and_older_ones_are_ignored() {
    let Some(base) = base(3) else { return };
    let form = Form { fast_commit: true, ..V3 };
    for (sequence, refused) in [(6_u32, true), (5, false), (7, false)] {
        let mut writer = base.writer(form, 0, 5);
        writer.transaction(&plain(base, &[1], 0x11));
        let mut image = writer.finish();
        let at = (base.map[base.map.len() - 256 + 1]) * base.block_size;
        let mut head = vec![9, 0, 8, 0, 0, 0, 0, 0];
        head.extend(sequence.to_le_bytes());
        image[at..at + head.len()].copy_from_slice(&head);
        match JournalRecovery::new().replay(&image) {
            Err(error) => {
                assert!(refused, "{error}");
                assert!(error.to_string().contains("no fast commit is complete"), "{error}");
            }
            Ok(replayed) => {
                assert!(!refused);
                assert_eq!(replayed.replay().blocks, 1);
            }
        }
    }
}

#[test]
fn linux_refuses_what_has_a_bad_checksum_and_the_rest_is_still_shown() {
    let Some(base) = base(0) else { return };
    let with = |fault| {
        let mut writer = base.writer(V3, 3, 9);
        writer.transaction(&plain(base, &[1, 2], 0x11));
        writer.transaction(&Transaction { fault, ..plain(base, &[2, 3], 0x22) });
        writer.transaction(&plain(base, &[4], 0x33));
        writer.finish()
    };
    let shown = |image: &[u8]| {
        let mut recovery = JournalRecovery::new();
        let replayed = recovery.replay(&image).unwrap();
        let refused = replayed.replay().refused.as_ref().map(ToString::to_string);
        (replayed.home_blocks().len(), replayed.replay().bad_blocks, refused.unwrap_or_default())
    };
    assert_eq!(shown(&with(Fault::None)), (4, 0, String::new()));
    let (blocks, bad, refused) = shown(&with(Fault::Block(1)));
    assert_eq!((blocks, bad), (3, 1));
    assert!(refused.contains("is not replayed") && refused.contains("journal block"), "{refused}");
    let (blocks, _, refused) = shown(&with(Fault::Commit));
    assert_eq!(blocks, 2);
    assert!(refused.contains("commit block of transaction 10"), "{refused}");
    let damaged = with(Fault::Descriptor);
    let error = JournalRecovery::new().replay(&damaged).err().unwrap().to_string();
    assert!(error.contains("transaction 10"), "{error}");
}

#[test]
fn with_async_commit_a_later_bad_commit_moves_the_end_of_the_log() {
    let Some(base) = base(0) else { return };
    for (checksums, replayed) in [(1, 1), (2, 3), (3, 3)] {
        let mut writer = base.writer(Form { checksums, is_async: true, ..V3 }, 3, 9);
        for (number, fault) in [(1, Fault::None), (2, Fault::Commit), (3, Fault::None), (4, Fault::Commit), (5, Fault::None)] {
            writer.transaction(&Transaction { fault, ..plain(base, &[number], number as u8) });
        }
        let image = writer.finish();
        let mut recovery = JournalRecovery::new();
        let blocks = recovery.replay(&image).unwrap().replay().blocks;
        assert_eq!(blocks, replayed, "version {checksums}");
        assert!(by_this_crate(base, &image).0 == by_e2fsck(base, &image), "version {checksums}");
    }
}

#[test]
fn a_log_without_end_is_an_error() {
    let Some(base) = base(0) else { return };
    let form = Form { checksums: 0, ..V3 };
    let mut writer = base.writer(form, 0, 5);
    // The revoke blocks of one transaction fill the whole log.
    for _ in 1..base.map.len() {
        writer.raw(5);
    }
    let image = writer.finish();
    let error = JournalRecovery::new().replay(&image).err().unwrap().to_string();
    assert!(error.contains("no end"), "{error}");
}

#[test]
fn a_revoke_holds_for_its_own_transaction_and_those_before() {
    let Some(base) = base(0) else { return };
    let mut writer = base.writer(V3, 0, u32::MAX - 1);
    writer.transaction(&plain(base, &[1, 2], 0x11));
    writer.transaction(&Transaction { revokes: vec![base.home(1), base.home(3)], ..plain(base, &[1, 3], 0x22) });
    // The sequence number wraps around to 0 here.
    writer.transaction(&plain(base, &[3], 0x33));
    let image = writer.finish();
    let mut recovery = JournalRecovery::new();
    let replayed = recovery.replay(&image).unwrap();
    assert_eq!(replayed.home_blocks(), [base.home(3), base.home(2)]);
    assert_eq!((replayed.replay().revokes, replayed.replay().revoked), (2, 3));
}

#[test]
fn journals_written_by_debugfs_replay_as_by_e2fsck() {
    let Some(images) = Images::if_possible(false, &[]) else { return };
    let Some(base) = base(0) else { return };
    for options in ["jo -c", "jo -c -v 2", "jo -c -v 3", "jo"] {
        let path = images.path("debugfs");
        std::fs::write(&path, &base.bytes).unwrap();
        let content = images.path("content");
        let blocks: Vec<String> = (0..5).map(|number| base.home(number).to_string()).collect();
        let fill: Vec<u8> = (0..5 * base.block_size).map(|at| (at / 100) as u8 + 1).collect();
        std::fs::write(&content, fill).unwrap();
        let script = images.path("script");
        let list = blocks.join(",");
        let commands = format!("{options}\njw -b {list} {}\njw -r {}\njc\n", text(&content), blocks[2]);
        std::fs::write(&script, commands).unwrap();
        run("debugfs", &["-w", "-f", text(&script), text(&path)]);
        let image = std::fs::read(&path).unwrap();
        let (ours, refused) = by_this_crate(base, &image);
        assert_eq!(refused, None, "{options}");
        assert!(ours != homes(base, &image), "{options}: nothing was replayed");
        assert!(ours == by_e2fsck(base, &image), "{options}");
    }
}
