//! The cost of journaling, compared with counts made by hand and with a second implementation.

use std::collections::BTreeMap;
use std::sync::Arc;

use emmclab_profile::{JournalProfile, JournalReport, MergeRelation, Profile, ProfileOptions};
use emmclab_trace::{
    Batch, BatchBuilder, BlockNote, BlockRole, Ledger, Nanos, Op, RecordedFeatures, Request, RequestFlags, Sector, SectorSet,
    TraceHeader,
};
use proptest::prelude::*;

type Noted = (Request, Vec<BlockNote>);

fn batch(rows: &[Noted]) -> Batch {
    let mut builder = BatchBuilder::of_noted(true);
    for (request, notes) in rows {
        builder.push_noted(request, notes);
    }
    builder.finish(&Arc::default(), &Arc::default())
}

fn report(rows: &[Noted], header: &TraceHeader) -> JournalReport {
    let mut profile = JournalProfile::default();
    for part in rows.chunks(3) {
        profile.update(&batch(part));
    }
    profile.finish(header)
}

fn profile_of(rows: &[Noted]) -> Profile {
    let mut profile = Profile::new(ProfileOptions::default());
    profile.update(&batch(rows));
    profile
}

/// The section of a profile.
fn section(profile: &Profile) -> Option<JournalReport> {
    profile.finish(&Ledger::default(), &TraceHeader::default()).journal
}

/// A request with a service time of `service_ms`.
fn request(at_ms: i64, op: Op, sector: u64, sectors: u32, flags: RequestFlags, service_ms: i64) -> Request {
    let at = Nanos::from_millis(at_ms);
    Request {
        flags,
        start: Some(at),
        complete: Some(Nanos(at.0 + service_ms * 1_000_000)),
        ..Request::new(at, op, Sector(sector), sectors)
    }
}

fn plain(request: Request) -> Noted {
    (request, Vec::new())
}

fn note(role: BlockRole, sectors: u32, transaction: u32, changed: Option<u32>) -> BlockNote {
    let changed = changed.map(SectorSet::first);
    BlockNote { transaction: Some(transaction), changed, ..BlockNote::new(role, sectors) }
}

/// Two transactions with one and three logged blocks; the last block has no earlier copy.
fn two_commits() -> Vec<Noted> {
    let (sync, forced) = (RequestFlags::SYNC, RequestFlags::SYNC.union(RequestFlags::FUA));
    vec![
        (request(0, Op::Write, 0, 24, sync, 4), vec![BlockNote::new(BlockRole::Data, 24)]),
        (
            request(10, Op::Write, 800, 16, sync, 2),
            vec![note(BlockRole::Descriptor, 8, 1, None), note(BlockRole::Logged, 8, 1, Some(2))],
        ),
        (request(20, Op::Flush, 0, 0, RequestFlags::empty(), 3), vec![]),
        (request(30, Op::Write, 816, 8, forced, 1), vec![note(BlockRole::Commit, 8, 1, None)]),
        (
            request(1_500, Op::Write, 824, 32, sync, 5),
            vec![
                note(BlockRole::Descriptor, 8, 2, None),
                note(BlockRole::Logged, 8, 2, Some(0)),
                note(BlockRole::Logged, 8, 2, Some(1)),
                note(BlockRole::Logged, 8, 2, None),
            ],
        ),
        (request(1_510, Op::Write, 856, 8, forced, 5), vec![note(BlockRole::Commit, 8, 2, None)]),
        (request(1_600, Op::Write, 80, 8, RequestFlags::META, 7), vec![note(BlockRole::InodeTable, 8, 2, Some(0))]),
        (request(1_700, Op::Write, 864, 8, sync, 0), vec![note(BlockRole::Logged, 8, 3, None)]),
    ]
}

#[test]
fn roles_commits_and_changes_are_counted() {
    let cost = report(&two_commits(), &TraceHeader::default());
    assert_eq!((cost.known_by, cost.requests, cost.writes, cost.written_kb), ("roles", 8, 7, 52.0));
    // 16 + 8 + 32 + 8 + 8 of 104 sectors.
    assert_eq!((cost.journal_kb, cost.journal_pct), (Some(36.0), Some(100.0 * 72.0 / 104.0)));
    let kinds: Vec<_> = cost.by_kind.iter().map(|row| (row.kind, row.requests, row.kb)).collect();
    assert_eq!(kinds, [("journal", 5, 36.0), ("data", 1, 12.0), ("home metadata", 1, 4.0)]);
    let roles: Vec<_> = cost.by_role.iter().map(|row| (row.role, row.requests, row.blocks, row.kb)).collect();
    assert_eq!(
        roles,
        [
            ("data", 1, None, 12.0),
            ("inode_table", 1, Some(1), 4.0),
            ("descriptor", 2, Some(2), 8.0),
            ("logged", 3, Some(5), 20.0),
            ("commit", 2, Some(2), 8.0),
        ]
    );
    let commits = cost.commits.unwrap();
    assert_eq!((commits.counted_by, commits.commits, commits.transactions), ("commit blocks", 2, Some(3)));
    assert_eq!((commits.not_committed, commits.fast_commits), (Some(1), Some(0)));
    let logged = commits.logged_blocks.unwrap();
    assert_eq!((logged.mean, logged.p50, logged.max), (2.0, 1.0, 3.0));
    let journal = commits.journal_blocks.unwrap();
    assert_eq!((journal.mean, journal.p50, journal.max), (4.0, 3.0, 5.0));
    assert_eq!(commits.journal_kb.unwrap().mean, 16.0);
    let logged = cost.logged.unwrap();
    assert_eq!((logged.blocks, logged.compared, logged.mean_changed_sectors), (5, 3, Some(1.0)));
    assert_eq!(logged.unchanged_sectors_pct, Some(100.0 * 21.0 / 24.0));
    assert_eq!((logged.home_compared, logged.home_as_logged_pct), (1, Some(100.0)));
    let changed: Vec<_> = cost.changed_sectors.iter().map(|row| (row.changed_sectors, row.blocks)).collect();
    assert_eq!(changed, [(0, 1), (1, 1), (2, 1)]);
}

#[test]
fn flushes_and_fua_have_their_share_in_the_time_of_synchronous_writes() {
    let cost = report(&two_commits(), &TraceHeader::default());
    let rows: Vec<_> = cost.synchronous.iter().map(|row| (row.kind, row.requests, row.per_commit, row.time_ms)).collect();
    assert_eq!(
        rows,
        [("flush", 1, Some(0.5), 3.0), ("fua", 2, Some(1.0), 6.0), ("other synchronous write", 4, Some(2.0), 11.0),]
    );
    // The write to the home location is not synchronous.
    assert_eq!(cost.flush_fua_time_pct, Some(100.0 * 9.0 / 20.0));
    let all = &cost.synchronous_writes;
    assert_eq!((all.requests, all.timed, all.service_ms), (7, 7, 20.0));
}

#[test]
fn commits_are_counted_over_time_and_by_their_rate() {
    let cost = report(&two_commits(), &TraceHeader::default());
    let bins: Vec<_> = cost.over_time.iter().map(|row| (row.time_s, row.commits, row.flushes, row.journal_kb)).collect();
    assert_eq!(bins, [(0.0, 1, Some(1), 12.0), (1.0, 1, Some(0), 24.0)]);
    let rates: Vec<_> = cost.by_commit_rate.iter().map(|row| (row.from_per_s, row.to_per_s, row.seconds, row.commits)).collect();
    assert_eq!(rates, [(0.0, Some(1.0), 2.0, 2)]);
}

#[test]
fn flushes_over_time_have_no_number_where_the_trace_cannot_hold_them() {
    let no_flushes = RecordedFeatures::of(&[], RequestFlags::FUA.union(RequestFlags::PREFLUSH));
    let cost = report(&two_commits(), &TraceHeader { recorded: Some(no_flushes), ..TraceHeader::default() });
    assert!(cost.over_time.iter().all(|row| row.flushes.is_none() && row.fua_or_preflush_writes.is_some()));
    assert!(cost.by_commit_rate.iter().all(|row| row.flushes.is_none() && row.commits > 0));
}

#[test]
fn without_notes_flags_tell_of_the_journal() {
    let forced = RequestFlags::JOURNAL.union(RequestFlags::FUA);
    let rows = [
        plain(request(0, Op::Write, 0, 8, RequestFlags::empty(), 1)),
        plain(request(1, Op::Write, 800, 16, RequestFlags::JOURNAL, 1)),
        plain(request(2, Op::Write, 816, 8, forced, 1)),
        plain(request(3, Op::Write, 64, 8, RequestFlags::META, 1)),
    ];
    let cost = report(&rows, &TraceHeader { recorded: Some(RecordedFeatures::BLOCK_EVENTS), ..TraceHeader::default() });
    assert_eq!((cost.known_by, cost.journal_pct), ("flags", Some(60.0)));
    let signs: Vec<_> = cost.by_sign.iter().map(|row| (row.sign, row.requests, row.kb)).collect();
    assert_eq!(signs, [("journal", 2, 12.0), ("meta", 1, 4.0), ("none", 1, 4.0)]);
    let commits = cost.commits.unwrap();
    assert_eq!((commits.counted_by, commits.commits), ("writes with fua or preflush", 1));
    assert_eq!((cost.by_role.len(), cost.by_kind.len(), cost.logged), (0, 0, None));
    let activity = r#"{"journals":[{"device":"sda","commits":4,"handles":9,"blocks":12}]}"#;
    let header =
        TraceHeader { recorded: Some(RecordedFeatures::BLOCK_EVENTS), activity: Some(activity.into()), ..TraceHeader::default() };
    let commits = report(&rows, &header).commits.unwrap();
    assert_eq!((commits.counted_by, commits.commits), ("events of the journal", 4));
}

#[test]
fn without_flags_of_the_journal_writes_that_end_at_one_with_fua_are_taken_for_it() {
    let rows = [
        plain(request(0, Op::Write, 800, 8, RequestFlags::SYNC, 1)),
        plain(request(1, Op::Write, 808, 16, RequestFlags::SYNC, 1)),
        plain(request(2, Op::Write, 100, 8, RequestFlags::SYNC, 1)),
        plain(request(3, Op::Write, 824, 8, RequestFlags::FUA, 1)),
    ];
    let cost = report(&rows, &TraceHeader { recorded: Some(RecordedFeatures::BLOCK_LAYER), ..TraceHeader::default() });
    let signs: Vec<_> = cost.by_sign.iter().map(|row| (row.sign, row.requests, row.kb)).collect();
    assert_eq!(signs, [("fua or preflush", 1, 4.0), ("before a durable write", 2, 12.0), ("none", 1, 4.0)]);
    assert_eq!(cost.journal_pct, Some(80.0));
}

#[test]
fn a_trace_that_tells_nothing_of_a_journal_has_no_figures_of_it() {
    let cost = report(&[(request(0, Op::Write, 0, 8, RequestFlags::empty(), 1), vec![])], &TraceHeader::default());
    assert_eq!((cost.journal_kb, cost.journal_pct, cost.flush_fua_time_pct), (None, None, None));
    assert!(cost.commits.is_none() && cost.synchronous.is_empty());
    let empty = JournalProfile::default().finish(&TraceHeader::default());
    assert_eq!((empty.requests, empty.duration_s, empty.over_time.len()), (0, 0.0, 0));
}

/// Writes one after the other, each 1 ms long, from the last one's completion on.
struct Writer {
    rows: Vec<Noted>,
    now_ms: i64,
}

impl Writer {
    /// Writes to `sector` when everything before is complete, or together with the previous write.
    fn write(&mut self, sector: u64, sectors: u32, together: bool) -> u64 {
        self.now_ms += i64::from(!together) * 2;
        self.rows.push(plain(request(self.now_ms, Op::Write, sector, sectors, RequestFlags::empty(), 1)));
        sector + u64::from(sectors)
    }
}

/// The found journals and checkpoints as first sector, writes, KB, commits and passes.
fn found(rows: &[Noted]) -> Vec<(&'static str, u64, u64, f64, u64, u64)> {
    let report = report(rows, &TraceHeader::default());
    assert_eq!(report.known_by, if report.found.is_empty() { "flags" } else { "addresses" });
    let of_journals: f64 = report.over_time.iter().map(|row| row.journal_kb).sum();
    assert_eq!(of_journals, report.found.iter().map(|row| row.kb).sum::<f64>(), "all of it lies in some bin of time");
    report.found.iter().map(|row| (row.file_system, row.first_sector, row.writes, row.kb, row.commits, row.passes)).collect()
}

#[test]
fn packs_that_take_turns_are_checkpoints_and_one_pack_alone_is_not() {
    let checkpoints = |turns: bool| {
        let mut writer = Writer { rows: Vec::new(), now_ms: 0 };
        for number in 0..20 {
            let pack = if turns && number % 2 == 1 { 8_192 } else { 4_096 };
            let end = writer.write(pack, 32, false);
            writer.write(end, 8, false);
            writer.write(100_000 + 64 * number, 8, false);
        }
        writer.rows
    };
    assert_eq!(found(&checkpoints(true)), [("f2fs", 4_096, 40, 400.0, 20, 19)]);
    assert_eq!(found(&checkpoints(false)), []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(emmclab_testing::cases(64)))]
    /// Transactions of one or several writes go to a log that wraps around. Appends and random writes of other files lie between them.
    #[test]
    fn a_journal_is_found_by_its_addresses_alone(
        transactions in prop::collection::vec((prop::collection::vec(2u32..16, 1..4), 0u32..4), 30..80), wrap in 12usize..20,
    ) {
        let mut writer = Writer { rows: Vec::new(), now_ms: 0 };
        let (mut head, mut file, mut sectors, mut writes) = (1_000_000, 5_000_000, 0, 0);
        for (number, (group, others)) in transactions.iter().enumerate() {
            if number % wrap == 0 {
                head = 1_000_000;
            }
            for (place, blocks) in group.iter().enumerate() {
                head = writer.write(head, 8 * blocks, place > 0);
            }
            head = writer.write(head, 8, false);
            writes += group.len() as u64 + 1;
            sectors += 8 * (group.iter().sum::<u32>() + 1);
            for other in 0..*others {
                file = writer.write(file, 8 * (1 + other), false);
                writer.write(8 * u64::from(other * 7_919 % 1_000), 8, true);
            }
        }
        // The last pass may be too short to be recognised by itself, but lies in the range of the others.
        let passes = transactions.len().div_ceil(wrap) as u64;
        let kb = f64::from(sectors) / 2.0;
        let found = found(&writer.rows);
        prop_assert_eq!(found.len(), 1);
        let (file_system, first, found_writes, found_kb, commits, found_passes) = found[0];
        prop_assert_eq!((file_system, first), ("ext4", 1_000_000));
        if transactions.len() % wrap == 0 || transactions.len() % wrap >= 8 {
            prop_assert_eq!((found_writes, found_kb, commits, found_passes), (writes, kb, transactions.len() as u64, passes));
        } else {
            prop_assert!(found_writes <= writes && found_kb <= kb && found_passes + 1 >= passes);
        }
    }

    /// An append waits for the one before it, so that its last block is not a commit block.
    #[test]
    fn files_to_which_programs_append_are_no_journal(sizes in prop::collection::vec(1u32..6, 50..200)) {
        let mut writer = Writer { rows: Vec::new(), now_ms: 0 };
        let mut head = 0;
        for blocks in sizes {
            head = writer.write(head, 8 * blocks, false);
        }
        prop_assert_eq!(found(&writer.rows), []);
    }
}

#[test]
fn a_profile_has_the_section_only_where_there_are_notes() {
    assert_eq!(section(&profile_of(&two_commits())), Some(report(&two_commits(), &TraceHeader::default())));
    let without: Vec<Noted> = two_commits().into_iter().map(|(request, _)| plain(request)).collect();
    assert_eq!(section(&profile_of(&without)), None);
}

prop_compose! {
    fn a_commit()(logged in 0u32..5, descriptor in any::<bool>(), gap_ms in 0i64..700, split in any::<bool>())
        -> (u32, bool, i64, bool) { (logged, descriptor, gap_ms, split) }
}

/// Consecutive transactions. If `split` is set, the commit block is a separate request.
fn journal(commits: &[(u32, bool, i64, bool)]) -> Vec<Noted> {
    let (mut rows, mut now, mut head) = (Vec::new(), 0, 0);
    for (number, (logged, descriptor, gap_ms, split)) in (1..).zip(commits) {
        let mut notes = Vec::new();
        if *descriptor {
            notes.push(note(BlockRole::Descriptor, 8, number, None));
        }
        notes.extend((0..*logged).map(|i| note(BlockRole::Logged, 8, number, Some(i))));
        let commit = note(BlockRole::Commit, 8, number, None);
        let mut write = |notes: Vec<BlockNote>, flags| {
            now += 1 + gap_ms;
            let sectors: u32 = notes.iter().map(|note| note.sectors).sum();
            rows.push((request(now, Op::Write, head, sectors, flags, 1), notes));
            head += u64::from(sectors);
        };
        if *split && !notes.is_empty() {
            write(notes, RequestFlags::SYNC);
            write(vec![commit], RequestFlags::FUA);
        } else {
            notes.push(commit);
            write(notes, RequestFlags::FUA);
        }
    }
    rows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(emmclab_testing::cases(64)))]
    #[test]
    fn pieces_of_a_recording_merge_to_the_whole(
        commits in prop::collection::vec(a_commit(), 1..40), cut in 0usize..80,
    ) {
        let rows = journal(&commits);
        let cut = cut.min(rows.len());
        let mut merged = profile_of(&rows[..cut]);
        merged.merge(profile_of(&rows[cut..]), MergeRelation::Consecutive).unwrap();
        let merged = section(&merged);
        prop_assert_eq!(&merged, &section(&profile_of(&rows)));

        // The second implementation: blocks by transaction.
        let mut blocks: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for note in rows.iter().flat_map(|(_, notes)| notes) {
            let entry = blocks.entry(note.transaction.unwrap()).or_default();
            entry.0 += u64::from(note.role == BlockRole::Logged);
            entry.1 += 1;
        }
        let count = blocks.len() as u64;
        let cost = merged.unwrap().commits.unwrap();
        prop_assert_eq!((cost.commits, cost.transactions, cost.not_committed), (count, Some(count), Some(0)));
        let mean = |of: fn(&(u64, u64)) -> u64| blocks.values().map(of).sum::<u64>() as f64 / count as f64;
        prop_assert_eq!(cost.logged_blocks.unwrap().mean, mean(|blocks| blocks.0));
        prop_assert_eq!(cost.journal_blocks.unwrap().mean, mean(|blocks| blocks.1));
    }

    #[test]
    fn separate_recordings_add_up(
        first in prop::collection::vec(a_commit(), 1..20), other in prop::collection::vec(a_commit(), 1..20),
    ) {
        let counts = |profile: &Profile| {
            let report = section(profile).unwrap();
            let commits = report.commits.unwrap();
            [report.requests, report.writes, commits.commits, commits.transactions.unwrap()]
        };
        let (mut all, second) = (profile_of(&journal(&first)), profile_of(&journal(&other)));
        let (a, b) = (counts(&all), counts(&second));
        all.merge(second, MergeRelation::Separate).unwrap();
        prop_assert_eq!(counts(&all), std::array::from_fn(|i| a[i] + b[i]));
    }
}
