//! Compares the card's data path with a map of what each sector must hold.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::*;
use super::host::CardTestHost;

/// Steps of the model test, on a card of 64 sectors.
#[derive(Clone, Debug)]
enum CardModelStep {
    /// First sector, number of sectors, byte, and whether CMD23 sets the length.
    Write(u32, u32, u8, bool),
    Read(u32, u32, bool),
    /// First and last sector, CMD38's argument.
    Erase(u32, u32, u32),
    /// The card is reset in the middle of a write.
    Cut(u32),
    Partition(u8),
}

fn step() -> impl Strategy<Value = CardModelStep> {
    let range = || (0_u32..64, 1_u32..40).prop_map(|(first, count)| (first, count.min(64 - first)));
    prop_oneof![
        (range(), any::<u8>(), any::<bool>())
            .prop_map(|((first, count), byte, known)| CardModelStep::Write(first, count, byte, known)),
        (range(), any::<bool>()).prop_map(|((first, count), known)| CardModelStep::Read(first, count, known)),
        (range(), prop::sample::select(vec![0, 1, 3, 0x8000_0000]))
            .prop_map(|((first, count), argument)| CardModelStep::Erase(first, first + count - 1, argument)),
        (0_u32..64).prop_map(CardModelStep::Cut),
        (0_u8..3).prop_map(CardModelStep::Partition),
    ]
}

proptest! {
    #[test]
    fn data_is_what_was_written_last(steps in prop::collection::vec(step(), 1..60), max in 1_u32..20) {
        let settings = CardSettings { boot_bytes: 128 << 10, ..CardSettings::default() };
        let mut host = CardTestHost::with(&settings, 64);
        host.card.max_sectors = max;
        host.identify();
        // The byte that fills each sector, by partition.
        let mut model: BTreeMap<(u8, u32), u8> = BTreeMap::new();
        let mut partition = 0;
        for step in steps {
            match step {
                CardModelStep::Write(first, count, byte, known) => {
                    if known {
                        host.r1(23, count);
                    }
                    host.r1(25, first * 512);
                    for _ in 0..count {
                        prop_assert!(host.card.push(&[byte; SECTOR]));
                    }
                    if !known {
                        host.r1(12, 0);
                    }
                    host.complete();
                    model.extend((first..first + count).map(|sector| ((partition, sector), byte)));
                }
                CardModelStep::Read(first, count, known) => {
                    if known {
                        host.r1(23, count);
                    }
                    host.r1(18, first * 512);
                    let ClockedData::Data(data) = host.read(count) else { panic!("{first} {count}") };
                    if !known {
                        host.r1(12, 0);
                    }
                    prop_assert_eq!(data.len(), count as usize * SECTOR);
                    for (sector, data) in (first..).zip(data.chunks(SECTOR)) {
                        let byte = model.get(&(partition, sector)).copied().unwrap_or(0);
                        prop_assert!(data.iter().all(|one| *one == byte));
                    }
                }
                CardModelStep::Erase(first, last, argument) => {
                    host.r1(35, first * 512);
                    host.r1(36, last * 512);
                    host.r1(38, argument);
                    host.complete();
                    // An erase group is larger than this card, and two are larger than a boot partition of 256 sectors.
                    let gone = if argument.is_multiple_of(4) { 0..=255 } else { first..=last };
                    model.retain(|(area, sector), _| *area != partition || !gone.contains(sector));
                }
                CardModelStep::Cut(first) => {
                    host.r1(25, first * 512);
                    // Data that was not passed to the device is lost; a chunk of full length was passed.
                    prop_assert!(host.card.push(&vec![0xcc; SECTOR]));
                    let written = partition == 0 && max == 1;
                    host.complete();
                    host.expect_no_response(0, 0);
                    host.identify();
                    if written {
                        model.insert((0, first), 0xcc);
                    }
                    partition = 0;
                }
                CardModelStep::Partition(number) => {
                    prop_assert_eq!(host.switch(179, number), CardStatus::empty());
                    partition = number;
                }
            }
            prop_assert_eq!(host.status(), CardStatus::empty());
            prop_assert_eq!(host.state(), 4);
        }
    }
}
