//! Notes on random journals, which are written in pieces and out of order, compared with a model that knows the role of each block; and
//! notes on arbitrary bytes.

use std::collections::HashMap;

use crate::support::Numbers;
use crate::support::journal::{Fault, Fill, Form, MAGIC, Part, Transaction, Wrote, base, form};
use emmclab_base::{BlockNote, BlockRole, SectorSet};
use emmclab_ext4::{Annotator, AnnotatorStatus};
use proptest::prelude::*;

const SECTOR: usize = 512;
/// The number of home blocks is smaller than in the image, so that blocks are logged repeatedly.
const HOMES: u64 = 24;

/// The expected note for a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Expected {
    role: BlockRole,
    home: Option<u64>,
    transaction: Option<u32>,
    changed: Option<bool>,
}

impl Expected {
    /// The note for one sector of a note's range.
    fn of(note: &BlockNote, ahead: u32) -> Self {
        Self {
            role: note.role,
            home: note.home.map(|home| home + u64::from(ahead)),
            transaction: note.transaction,
            changed: note.changed.map(|changed| changed.contains(ahead)),
        }
    }
}

struct Copied {
    /// The bytes as they are stored in the journal.
    bytes: Vec<u8>,
    escaped: bool,
    transaction: u32,
}

struct Model {
    annotator: Annotator,
    notes: Vec<BlockNote>,
    block_size: usize,
    copies: HashMap<u64, Copied>,
    dice: Numbers,
}

impl Model {
    /// Writes sectors, and returns each part with the notes for it.
    fn write(&mut self, sector: u64, bytes: &[u8]) -> Vec<Expected> {
        self.annotator.write(sector, bytes, &mut self.notes);
        let all = self.notes.iter().flat_map(|note| (0..note.sectors).map(|ahead| Expected::of(note, ahead)));
        let all: Vec<Expected> = all.collect();
        assert_eq!(all.len(), bytes.len() / SECTOR);
        all
    }

    fn sectors(&self) -> u64 {
        (self.block_size / SECTOR) as u64
    }

    /// The expected notes for the sectors of a journal block, if blocks are written in order.
    fn of_journal(&self, wrote: &Wrote) -> Vec<Expected> {
        let (role, home) = match wrote.part {
            Part::Descriptor => (BlockRole::Descriptor, None),
            Part::Revoke => (BlockRole::Revoke, None),
            Part::Commit => (BlockRole::Commit, None),
            Part::Logged(home, _) => (BlockRole::Logged, Some(home)),
        };
        let copy = home.and_then(|home| self.copies.get(&home));
        let sectors = wrote.bytes.chunks(SECTOR).enumerate();
        sectors
            .map(|(at, bytes)| Expected {
                role,
                home: home.map(|home| home * self.sectors() + at as u64),
                transaction: Some(wrote.transaction),
                changed: match home {
                    Some(_) => copy.map(|copy| copy.bytes[at * SECTOR..(at + 1) * SECTOR] != *bytes),
                    None => Some(bytes.iter().any(|byte| *byte != 0)),
                },
            })
            .collect()
    }

    fn written(&mut self, wrote: &Wrote, revokes: &[u64]) {
        match wrote.part {
            Part::Revoke => revokes.iter().for_each(|home| {
                self.copies.remove(home);
            }),
            Part::Logged(home, escaped) => {
                let (bytes, transaction) = (wrote.bytes.clone(), wrote.transaction);
                self.copies.insert(home, Copied { bytes, escaped, transaction });
            }
            Part::Descriptor | Part::Commit => {}
        }
    }

    /// Divides a run of bytes into requests, at boundaries of blocks or sectors.
    fn cut(&mut self, sector: u64, bytes: &[u8], unit: usize) -> Vec<(u64, Vec<u8>)> {
        let mut out: Vec<(u64, Vec<u8>)> = Vec::new();
        for (at, part) in bytes.chunks(unit).enumerate() {
            let sector = sector + (at * unit / SECTOR) as u64;
            match out.last_mut() {
                Some((_, before)) if self.dice.below(3) > 0 => before.extend_from_slice(part),
                _ => out.push((sector, part.to_vec())),
            }
        }
        out
    }

    fn transaction(&mut self, writes: &[Wrote], revokes: &[u64], unit: usize, mix: bool) {
        let sectors = self.sectors();
        let mut expected = HashMap::new();
        for wrote in writes {
            let first = wrote.block as u64 * sectors;
            for (at, of) in self.of_journal(wrote).into_iter().enumerate() {
                expected.insert(first + at as u64, of);
            }
            self.written(wrote, revokes);
        }
        // Consecutive blocks on the disk are combined into requests of random length.
        let mut requests = Vec::new();
        let mut at = 0;
        while at < writes.len() {
            let follows = |(ahead, wrote): &(usize, &Wrote)| wrote.block == writes[at].block + ahead;
            let run = writes[at..].iter().enumerate().take_while(follows).count();
            let bytes: Vec<u8> = writes[at..at + run].iter().flat_map(|wrote| wrote.bytes.clone()).collect();
            requests.extend(self.cut(writes[at].block as u64 * sectors, &bytes, unit));
            at += run;
        }
        if mix {
            for last in (1..requests.len()).rev() {
                let other = self.dice.below(last as u64 + 1) as usize;
                requests.swap(last, other);
            }
        }
        for (sector, bytes) in requests {
            for (at, actual) in (sector..).zip(self.write(sector, &bytes)) {
                let wanted = &expected[&at];
                if mix {
                    assert!(actual.role == wanted.role || actual.role == BlockRole::Logged, "{actual:?}, {wanted:?}");
                    assert!(actual.home.is_none() || actual.home == wanted.home, "{actual:?}, {wanted:?}");
                } else {
                    assert_eq!(actual, *wanted, "sector {at}");
                }
            }
        }
    }

    /// Writes a home block and checks its notes.
    fn home(&mut self, home: u64, bytes: &[u8], unit: usize) {
        let sectors = self.sectors();
        let escaped = bytes[..4] == MAGIC.to_be_bytes();
        let mut in_journal = bytes.to_vec();
        if escaped {
            in_journal[..4].fill(0);
        }
        for (sector, part) in self.cut(home * sectors, bytes, unit) {
            for (at, actual) in (sector..).zip(self.write(sector, &part)) {
                let within = (at - home * sectors) as usize;
                let range = within * SECTOR..(within + 1) * SECTOR;
                let copy = self.copies.get(&home);
                let wanted = Expected {
                    role: if copy.is_some() { BlockRole::Metadata } else { BlockRole::Data },
                    home: None,
                    transaction: copy.map(|copy| copy.transaction),
                    changed: copy
                        .map(|copy| copy.bytes[range.clone()] != in_journal[range] || within == 0 && copy.escaped != escaped),
                };
                assert_eq!(actual, wanted, "home block {home}, sector {within}");
            }
        }
    }
}

fn fill() -> impl Strategy<Value = Fill> {
    prop_oneof![
        2 => (0_u8..4).prop_map(Fill::Byte),
        1 => (0_u8..4).prop_map(Fill::Escaped),
        4 => (0_u8..3, any::<u8>()).prop_map(|(byte, odd)| Fill::Sectors(byte, odd)),
    ]
}

/// A transaction, and the home blocks that are written after it.
type Round = (Transaction, Vec<(u64, Option<Fill>)>);

fn round() -> impl Strategy<Value = Round> {
    let count = prop_oneof![9 => 0_usize..8, 1 => 60_usize..150];
    let blocks = count.prop_flat_map(|count| prop::collection::hash_map(0..HOMES, fill(), 0..=count.min(HOMES as usize)));
    let homes = prop::collection::vec((0..HOMES, prop::option::weighted(0.3, fill())), 0..6);
    (blocks, prop::collection::vec(0..HOMES, 0..4), prop::bool::weighted(0.1), homes).prop_map(
        |(blocks, revokes, uuids, homes)| {
            // A transaction that revokes a block and logs it again cancels the revoke.
            let revokes = revokes.into_iter().filter(|home| !blocks.contains_key(home)).collect();
            let mut blocks: Vec<(u64, Fill)> = blocks.into_iter().collect();
            blocks.sort_unstable_by_key(|(home, _)| *home);
            (Transaction { blocks, revokes, seconds: 5, fault: Fault::None, uuids }, homes)
        },
    )
}

fn check(number: usize, form: Form, start: usize, sequence: u32, rounds: &[Round], mix: bool, dice: u64) {
    let Some(base) = base(number) else { return };
    let form = Form { fast_commit: number == 3, ..form };
    let journal_superblock = |image: &[u8]| {
        let at = base.map[0] * base.block_size;
        image[at..at + base.block_size].to_vec()
    };
    let mut annotator = Annotator::new();
    annotator.attach(&base.bytes).unwrap();
    assert_eq!(annotator.status(), AnnotatorStatus::Following);
    let mut model =
        Model { annotator, notes: Vec::new(), block_size: base.block_size, copies: HashMap::new(), dice: Numbers(dice) };
    let superblock = journal_superblock(&base.writer(form, start, sequence).finish());
    let first = base.map[0] as u64 * model.sectors();
    let actual = model.write(first, &superblock);
    assert_eq!((actual[0].role, actual[0].transaction), (BlockRole::JournalSuperblock, Some(sequence)));
    let mut writer = base.writer(form, start, sequence);
    for (transaction, homes) in rounds {
        let transaction = Transaction {
            blocks: transaction.blocks.iter().map(|(home, fill)| (base.home(*home), *fill)).collect(),
            revokes: transaction.revokes.iter().map(|home| base.home(*home)).collect(),
            ..transaction.clone()
        };
        writer.transaction(&transaction);
        let writes = std::mem::take(&mut writer.writes);
        let (commit, before) = writes.split_last().unwrap();
        let unit = if model.dice.below(2) == 0 { SECTOR } else { base.block_size };
        model.transaction(before, &transaction.revokes, unit, mix);
        model.transaction(std::slice::from_ref(commit), &[], unit, false);
        for (home, fill) in homes {
            let home = base.home(*home);
            // The contents that were logged last, or different contents.
            let bytes = match (fill, model.copies.get(&home)) {
                (None, Some(copy)) => {
                    let mut bytes = copy.bytes.clone();
                    if copy.escaped {
                        bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
                    }
                    bytes
                }
                (fill, _) => fill.unwrap_or(Fill::Byte(7)).block(base.block_size),
            };
            model.home(home, &bytes, unit);
        }
        // A checkpoint occurs from time to time.
        if writer.used() > base.map.len() / 4 {
            writer.move_tail();
        }
    }
    assert_eq!(model.annotator.status(), AnnotatorStatus::Following);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(96), ..ProptestConfig::default() })]

    #[test]
    fn notes_agree_with_a_model_of_the_journal(
        number in prop_oneof![12 => 0_usize..2, 1 => 2_usize..4],
        form in form(),
        start in prop_oneof![0_usize..1024, 980_usize..1023],
        sequence in prop_oneof![1_u32..1000, (u32::MAX - 3)..u32::MAX],
        rounds in prop::collection::vec(round(), 1..14),
        mix in any::<bool>(),
        dice in any::<u64>(),
    ) {
        check(number, form, start, sequence, &rounds, mix, dice);
    }
}

/// A write of the fuzzer: location, number of sectors, and how its contents are generated.
fn any_write() -> impl Strategy<Value = (u64, usize, u8, Vec<u8>)> {
    let sector = prop_oneof![4 => 0_u64..2200, 2 => 0_u64..40_000, 1 => any::<u64>()];
    (sector, 0_usize..40, any::<u8>(), prop::collection::vec(any::<u8>(), 0..24))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(128), ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_named_without_gaps(
        attached in any::<bool>(),
        writes in prop::collection::vec(any_write(), 1..80),
    ) {
        let Some(base) = base(0) else { return Ok(()) };
        let mut annotator = Annotator::new();
        if attached {
            annotator.attach(&base.bytes).unwrap();
        }
        let mut notes = Vec::new();
        let place = |sector: u64| (sector as usize % (base.bytes.len() / SECTOR)) * SECTOR;
        for (sector, sectors, way, patch) in writes {
            // Bytes of the image, from the same location or another one, with a patch; or a journal block of any kind.
            let from = if way & 1 == 0 { place(sector) } else { place(u64::from(way) * 31) };
            let mut data: Vec<u8> = base.bytes.iter().skip(from).take(sectors * SECTOR).copied().collect();
            data.resize(sectors * SECTOR, way);
            let at = usize::from(way >> 3) * 16;
            if let Some(room) = data.get_mut(at..at + patch.len()) {
                room.copy_from_slice(&patch);
            }
            if way & 6 == 2 && data.len() >= 16 {
                data[..8].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, way >> 3 & 7]);
            }
            match way & 0x18 {
                0x18 => annotator.discard(sector, sectors as u64),
                0x10 => annotator.write_journal(sector, &data, &mut notes),
                _ => annotator.write(sector, &data, &mut notes),
            }
            prop_assert!(way & 0x18 == 0x18 || u64::MAX - sector < 64 || covers(&notes, sectors));
            std::hint::black_box(annotator.status().to_string());
        }
    }
}

fn covers(notes: &[BlockNote], sectors: usize) -> bool {
    let sum: u32 = notes.iter().map(|note| note.sectors).sum();
    let within =
        |note: &BlockNote| note.sectors > 0 && note.changed.is_none_or(|set| set.0 & !SectorSet::first(note.sectors).0 == 0);
    sum as usize == sectors && notes.iter().all(within)
}
