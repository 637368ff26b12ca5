//! Logs: what was written can be read, up to any truncation, also in the format of dm-log-writes.

use std::fs;
use std::ops::Range;
use std::sync::Arc;

use crate::support::{Toy, disks, filled, header};
use emmclab_base::{Nanos, Op, Result};
use emmclab_crash::log::{CommandPort, CrashLogReader, CrashLogRecord, CrashLogWriter, dm_log_writes};
use emmclab_crash::{CrashLogIndex, ExploreOptions, Explorer};
use emmclab_device::CommandFlags;
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Entry {
    Base(u64, u8),
    Write(u64, u32, u8, u8),
    Other(Op, u64, u32),
    Complete(u64),
    Programmed(u64, u64, u32),
    Text(String, bool),
}

fn entry() -> impl Strategy<Value = Entry> {
    prop_oneof![
        (0u64..1000, any::<u8>()).prop_map(|(sector, byte)| Entry::Base(sector, byte)),
        (0u64..1000, 0u32..20, any::<u8>(), 0u8..32).prop_map(|(s, n, b, f)| Entry::Write(s, n, b, f)),
        (prop_oneof![Just(Op::Flush), Just(Op::Discard), Just(Op::Read), Just(Op::SecureErase)], 0u64..1000, 0u32..20)
            .prop_map(|(op, sector, sectors)| Entry::Other(op, sector, sectors)),
        any::<u64>().prop_map(Entry::Complete),
        (any::<u64>(), 0u64..1000, 0u32..20).prop_map(|(n, s, c)| Entry::Programmed(n, s, c)),
        (".{0,40}", any::<bool>()).prop_map(|(text, mark)| Entry::Text(text, mark)),
    ]
}

fn with_record<T>(number: u64, entry: &Entry, use_it: impl FnOnce(&CrashLogRecord<'_>) -> T) -> T {
    let (at, packed_after) = (Nanos(number as i64 * 7), 0);
    match entry {
        Entry::Base(sector, byte) => use_it(&CrashLogRecord::Base { sector: *sector, data: &filled(*byte, 3) }),
        &Entry::Write(sector, sectors, byte, flags) => {
            let (port, op, data) = (CommandPort::Device, Op::Write, &filled(byte, sectors)[..]);
            use_it(&CrashLogRecord::Command { port, number, at, op, sector, sectors, flags, packed_after, data })
        }
        &Entry::Other(op, sector, sectors) => {
            let (port, flags, data) = (CommandPort::Host, 0, &[][..]);
            use_it(&CrashLogRecord::Command { port, number, at, op, sector, sectors, flags, packed_after, data })
        }
        Entry::Complete(number) => use_it(&CrashLogRecord::Complete { port: CommandPort::Device, number: *number, at }),
        &Entry::Programmed(number, sector, sectors) => {
            use_it(&CrashLogRecord::Programmed { number, sector, sectors, begin: at, end: Nanos(at.0 + 5) })
        }
        Entry::Text(text, false) => use_it(&CrashLogRecord::Acknowledged { at, text }),
        Entry::Text(text, true) => use_it(&CrashLogRecord::Mark { at, text }),
    }
}

/// The records of a log, and whether it was truncated.
fn texts(bytes: &[u8]) -> Result<(Vec<String>, bool)> {
    let mut reader = CrashLogReader::new(Box::new(std::io::Cursor::new(bytes.to_vec())), "a log".as_ref())?;
    let mut all = Vec::new();
    while let Some(records) = reader.next_block()? {
        for record in records {
            all.push(format!("{:?}", record?));
        }
    }
    Ok((all, reader.truncated()))
}

/// The bytes of a log with a block for every eight entries, and the records of that log.
fn written(entries: &[Entry]) -> (Vec<u8>, Vec<String>) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut log = CrashLogWriter::create(file.path(), &header(1 << 20)).unwrap();
    let mut records = Vec::new();
    for (number, entry) in entries.iter().enumerate() {
        with_record(number as u64, entry, |record| {
            log.add(record).unwrap();
            records.push(format!("{record:?}"));
        });
        if number % 8 == 7 {
            log.end_block().unwrap();
        }
    }
    log.finish().unwrap();
    (fs::read(file.path()).unwrap(), records)
}

/// The byte range of each block in a log; the last range is the end of the log.
fn blocks(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut at = 12;
    let mut ranges = Vec::new();
    while let Some(stored) = bytes.get(at..at + 4) {
        let end = at + 16 + u32::from_le_bytes(stored.try_into().unwrap()) as usize;
        ranges.push(at..end);
        at = end;
    }
    ranges
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(emmclab_testing::cases(64)))]

    #[test]
    fn a_log_is_read_as_it_was_written_and_cut_off_anywhere_up_to_a_whole_block(
        entries in vec(entry(), 0..40),
        cut in any::<proptest::sample::Index>(),
    ) {
        let (bytes, records) = written(&entries);
        prop_assert_eq!(texts(&bytes).unwrap(), (records.clone(), false));
        let first_block = blocks(&bytes)[0].end;
        let cut = first_block + cut.index(bytes.len() - first_block);
        let (part, truncated) = texts(&bytes[..cut]).unwrap();
        prop_assert!(truncated);
        prop_assert_eq!(&part[..], &records[..part.len()]);
        prop_assert!(part.len().is_multiple_of(8) || part.len() == records.len());
    }

    #[test]
    fn a_changed_byte_is_an_error_and_a_shorter_file_an_error_or_cut_short(
        entries in vec(entry(), 0..20),
        at in any::<proptest::sample::Index>(),
        byte in 1u8..,
    ) {
        let (mut bytes, _) = written(&entries);
        let place = at.index(bytes.len());
        prop_assert!(texts(&bytes[..place]).is_err() || texts(&bytes[..place]).unwrap().1);
        bytes[place] ^= byte;
        prop_assert!(texts(&bytes).is_err());
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), &bytes[..=place]).unwrap();
        let _ = CrashLogIndex::open(file.path());
    }
}

#[test]
fn a_block_that_is_lost_or_moved_or_of_another_log_is_damage_with_its_place() {
    let log = |fill: u8| written(&(0..24).map(|sector| Entry::Base(sector, fill)).collect::<Vec<_>>()).0;
    let (bytes, other) = (log(1), log(2));
    let all = blocks(&bytes);
    assert_eq!(all.len(), 5, "the header, three blocks, and the end");
    let joined = |parts: &[&[u8]]| parts.concat();
    let [_, one, two, three, end] = all.clone().try_into().unwrap();
    let start = &bytes[..one.start];
    let cases = [
        (joined(&[start, &bytes[two.start..]]), one.start),
        (joined(&[start, &bytes[two.clone()], &bytes[one.clone()], &bytes[three.start..]]), one.start),
        (joined(&[&bytes[..two.start], &other[blocks(&other)[2].clone()], &bytes[three.start..]]), two.start),
        (joined(&[&bytes[..three.start], &bytes[end.clone()]]), three.start),
        (joined(&[&bytes, b"more"]), bytes.len()),
    ];
    for (damaged, place) in cases {
        let error = texts(&damaged).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&format!("byte {place}: ")) && text.contains("damaged after it"), "{text}");
    }
}

#[test]
fn a_file_that_is_no_log_and_an_empty_one_are_refused_by_name() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for bytes in [&b""[..], b"EMMC", b"this is a text, and no log of any kind"] {
        fs::write(file.path(), bytes).unwrap();
        let error = CrashLogIndex::open(file.path()).err().unwrap().to_string();
        assert!(error.contains("this is not a crash log") && error.contains(file.path().to_str().unwrap()), "{error}");
    }
}

#[test]
fn a_log_of_dm_log_writes_leaves_the_same_states_as_the_one_it_was_written_from() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.log");
    let mut toy = Toy::new(&path, &header(1 << 12));
    for round in 0..6u8 {
        toy.write_and_complete(u64::from(round) * 8, round + 1, CommandFlags::META);
        toy.write_and_complete(u64::from(round % 3) * 8, round + 101, CommandFlags::empty());
        if round % 2 == 0 {
            let flush = toy.flush();
            toy.complete(flush);
        }
        toy.write_and_complete(800, round, CommandFlags::RELIABLE);
        toy.acknowledge(&format!("round {round}"));
    }
    let discard = toy.comes(Op::Discard, 0, 8, CommandFlags::empty(), &[]);
    toy.complete(discard);
    let run = toy.run(&path);
    let dm_path = folder.path().join("dm.log");
    dm_log_writes::write(&run, &mut fs::File::create(&dm_path).unwrap()).unwrap();
    assert!(CrashLogIndex::is_dm(&dm_path).unwrap() && !CrashLogIndex::is_dm(&path).unwrap());
    let reread = Arc::new(CrashLogIndex::open_dm(&dm_path, 1 << 12, None).unwrap());
    assert_eq!(reread.acknowledgements(), run.acknowledgements());
    let last = |run: &Arc<CrashLogIndex>| {
        let only = Some((run.moments().len() - 1, None));
        let ways = "boundary,omit1:99,only1:99".parse().unwrap();
        let options = ExploreOptions { only, ways, ..ExploreOptions::default() };
        let mut disks = disks(Explorer::new(run, &options).unwrap(), 1 << 10);
        disks.sort();
        disks
    };
    assert!(last(&run).len() > 4);
    assert_eq!(last(&run), last(&reread));
    let cut = fs::read(&dm_path).unwrap();
    fs::write(&dm_path, &cut[..cut.len() - 700]).unwrap();
    assert!(CrashLogIndex::open_dm(&dm_path, 1 << 12, None).unwrap().truncated());
}

#[test]
fn logs_of_the_same_commands_with_other_data_or_on_another_device_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let dm_of = |name: &str, fill: u8| {
        let path = folder.path().join(name);
        let mut toy = Toy::new(&path, &header(1 << 12));
        toy.write_and_complete(8, fill, CommandFlags::META);
        let dm_path = folder.path().join(format!("{name}.dm"));
        dm_log_writes::write(&toy.run(&path), &mut fs::File::create(&dm_path).unwrap()).unwrap();
        dm_path
    };
    let (one, other) = (dm_of("one", 1), dm_of("other", 2));
    let identity = |path: &std::path::Path, sectors| CrashLogIndex::open_dm(path, sectors, None).unwrap().identity();
    assert_eq!(identity(&one, 1 << 12), identity(&one, 1 << 12));
    assert_ne!(identity(&one, 1 << 12), identity(&other, 1 << 12));
    assert_ne!(identity(&one, 1 << 12), identity(&one, 1 << 13));
}
