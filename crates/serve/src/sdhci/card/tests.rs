//! Tests of the card against the rules of JESD84-B51.

use std::collections::BTreeMap;
use std::sync::Arc;

use emmclab_base::CommandFlags;
use proptest::prelude::*;

use super::*;
use crate::device::MemoryDevice;
use crate::sdhci::fuzz_driver::completions_of;

const SECTORS: u64 = 8 << 20;

#[test]
fn identification_leads_to_the_transfer_state() {
    let mut host = CardTestHost::with(&CardSettings::default(), SECTORS);
    // The host first probes for SDIO and SD cards, to which an eMMC does not respond.
    for (index, argument) in [(0, 0), (52, 0x8000_0c00), (5, 0), (8, 0x1aa), (55, 0)] {
        host.expect_no_response(index, argument);
    }
    assert_eq!(host.r1(1, 0), 0xc0ff_8080, "ready, addressed by sectors");
    host.expect_no_response(2, 0);
    assert_eq!(host.r1(1, 0x40ff_8080), 0xc0ff_8080);
    let CardResponse::Long(cid) = host.card.command(2, 0) else { panic!() };
    assert_eq!(&cid[3..9], b"EMCLAB");
    assert_eq!(host.r1(3, 7 << 16) >> 9 & 0xf, 2);
    let CardResponse::Long(again) = host.card.command(10, 7 << 16) else { panic!() };
    assert_eq!(again, cid);
    host.expect_no_response(9, 8 << 16);
    assert!(matches!(host.card.command(9, 7 << 16), CardResponse::Long(_)));
    assert_eq!(host.r1(7, 7 << 16) >> 9 & 0xf, 3);
    assert_eq!(host.r1(13, 7 << 16) >> 9 & 0xf, 4);
    host.expect_no_response(7, 0);
    assert_eq!(host.r1(13, 7 << 16) >> 9 & 0xf, 3);
}

#[test]
fn a_card_of_two_gigabytes_is_addressed_by_bytes() {
    let mut host = CardTestHost::with(&CardSettings::default(), BYTE_ADDRESSED);
    assert_eq!(host.r1(1, 0), 0x80ff_8080);
    host.identify();
    host.r1(24, 3 * 512);
    assert!(host.card.push(&[5; SECTOR]));
    host.complete();
    assert_eq!((host.last().sector, host.last().sectors), (3, 1));
    assert_eq!(host.read_one(17, 3 * 512), [5; SECTOR]);
    assert_eq!(CardStatus::from_bits_truncate(host.r1(17, 100)) & CardStatus::ADDRESS_MISALIGN, CardStatus::ADDRESS_MISALIGN);
}

#[test]
fn an_illegal_command_is_not_answered_and_shows_in_the_next_status() {
    let mut host = CardTestHost::selected(SECTORS);
    for index in [1, 2, 3, 9, 11, 12, 14, 20, 26, 28, 40, 42, 44, 55, 60, 63] {
        host.expect_no_response(index, 1 << 16);
        assert_eq!(host.status(), CardStatus::ILLEGAL_COMMAND, "CMD{index}");
        assert_eq!(host.status(), CardStatus::empty());
    }
}

#[test]
fn sleep_is_entered_and_left_from_stand_by() {
    let mut host = CardTestHost::selected(SECTORS);
    host.expect_no_response(7, 0);
    host.r1(5, 1 << 16 | 1 << 15);
    host.expect_no_response(13, 1 << 16);
    assert_eq!(host.r1(5, 1 << 16) >> 9 & 0xf, 10);
    assert_eq!(host.state(), 3);
    host.expect_no_response(15, 1 << 16);
    host.expect_no_response(0, 0);
    host.expect_no_response(1, 0x40ff_8080);
}

#[test]
fn ext_csd_states_the_settings() {
    let settings = CardSettings { cache_bytes: 1 << 20, reliable_sectors: 8, ..CardSettings::default() };
    let mut host = CardTestHost::with(&settings, SECTORS);
    host.identify();
    let bytes = host.read_one(8, 0);
    assert_eq!(u32::from_le_bytes(bytes[212..216].try_into().unwrap()), SECTORS as u32);
    assert_eq!(u32::from_le_bytes(bytes[249..253].try_into().unwrap()), 8192, "kilobits");
    assert_eq!((bytes[192], bytes[222], bytes[226], bytes[168], bytes[308]), (8, 8, 32, 32, 0));
    assert_eq!((bytes[166], bytes[167], bytes[240], bytes[486]), (4, 0x1f, 0, 1));
    assert_eq!(host.state(), 4);
}

#[test]
fn ext_csd_states_what_a_device_lacks_and_the_order_of_its_cache() {
    let settings = CardSettings { cache_in_order: true, barrier: false, reliable_write: false, ..CardSettings::default() };
    let mut host = CardTestHost::with(&settings, SECTORS);
    host.identify();
    let bytes = host.read_one(8, 0);
    assert_eq!((bytes[166], bytes[240], bytes[486]), (0, 1, 0));
    assert_eq!(host.switch(31, 1), CardStatus::SWITCH_ERROR, "there is no barrier to turn on");
}

#[test]
fn switch_refuses_what_is_not_for_the_host_to_write() {
    let mut host = CardTestHost::selected(SECTORS);
    for (index, value) in [(192, 1), (212, 1), (33, 2), (185, 3), (183, 3), (179, 4), (168, 1), (15, 1), (31, 2)] {
        assert_eq!(host.switch(index, value), CardStatus::SWITCH_ERROR, "{index}");
    }
    for (index, value) in [(183, 2), (183, 6), (185, 1), (185, 2), (161, 1), (163, 1), (164, 1), (175, 1), (162, 1)] {
        assert_eq!(host.switch(index, value), CardStatus::empty(), "{index}");
    }
    assert_eq!(host.switch(162, 2), CardStatus::SWITCH_ERROR, "it is written once");
    let bytes = host.read_one(8, 0);
    assert_eq!((bytes[183], bytes[185], bytes[161], bytes[164], bytes[175]), (6, 2, 1, 0, 1));
    // CMD6 with access mode 1 sets bits of a byte, and with access mode 2 clears bits.
    host.r1(6, 1 << 24 | 163 << 16 | 2 << 8);
    assert_eq!(host.read_one(8, 0)[163], 3);
    host.r1(6, 2 << 24 | 163 << 16 | 1 << 8);
    assert_eq!(host.read_one(8, 0)[163], 2);
}

#[test]
fn flags_of_the_block_count_become_flags_of_the_write() {
    let mut host = CardTestHost::selected(SECTORS);
    let cases = [
        (0, CommandFlags::empty()),
        (1 << 31, CommandFlags::RELIABLE),
        (1 << 29, CommandFlags::META),
        (1 << 24, CommandFlags::FORCED),
        (1 << 31 | 1 << 29, CommandFlags::RELIABLE | CommandFlags::META),
    ];
    for (flags, modifiers) in cases {
        host.write(flags | 8, 64, 3);
        assert_eq!(host.last().action, BlockAction::Write(vec![3; 8 * SECTOR]));
        assert_eq!((host.last().sector, host.last().sectors, host.last().modifiers), (64, 8, modifiers));
    }
    // The flags of CMD23 apply to one transfer only.
    host.r1(23, 1 << 31 | 1);
    host.r1(16, 512);
    host.r1(25, 0);
    assert!(host.card.push(&[0; SECTOR]));
    host.r1(12, 0);
    host.complete();
    assert_eq!(host.last().modifiers, CommandFlags::empty());
    host.expect_no_response(23, 1 << 30 | 8);
}

#[test]
fn with_its_cache_off_a_card_writes_through() {
    let mut host = CardTestHost::selected(SECTORS);
    assert_eq!(host.switch(33, 0), CardStatus::empty());
    assert_eq!(host.last().action, BlockAction::Flush);
    host.write(1, 0, 1);
    assert_eq!(host.last().modifiers, CommandFlags::FORCED);
    let without = CardSettings { cache_bytes: 0, barrier: false, ..CardSettings::default() };
    let mut host = CardTestHost::with(&without, SECTORS);
    host.identify();
    host.write(1, 0, 1);
    assert_eq!(host.last().modifiers, CommandFlags::empty());
    assert_eq!(host.switch(32, 1), CardStatus::SWITCH_ERROR);
}

#[test]
fn flush_barrier_and_power_off_are_flushes() {
    let mut host = CardTestHost::selected(SECTORS);
    assert_eq!(host.switch(32, 1), CardStatus::empty());
    assert_eq!((host.last().action.clone(), host.last().modifiers), (BlockAction::Flush, CommandFlags::empty()));
    assert_eq!(host.switch(32, 2), CardStatus::SWITCH_ERROR, "barriers are off");
    assert_eq!(host.switch(31, 1), CardStatus::empty());
    assert_eq!(host.switch(32, 2), CardStatus::empty());
    assert_eq!((host.last().action.clone(), host.last().modifiers), (BlockAction::Flush, CommandFlags::BARRIER));
    let before = host.requests.len();
    assert_eq!(host.switch(34, 1), CardStatus::empty());
    assert_eq!(host.requests.len(), before);
    assert_eq!(host.switch(34, 3), CardStatus::empty());
    assert_eq!(host.last().action, BlockAction::Flush);
    // FLUSH_CACHE reads as 0 again after the flush.
    assert_eq!(host.read_one(8, 0)[32], 0);
}

#[test]
fn the_card_is_busy_until_the_completion_comes() {
    let mut host = CardTestHost::selected(SECTORS);
    host.r1(24, 5);
    assert!(host.card.push(&[1; SECTOR]));
    assert!(host.card.busy());
    assert_eq!(host.state(), 7);
    assert_eq!(host.r1(13, 1 << 16) >> 8 & 1, 0, "not ready for data");
    host.expect_no_response(24, 6);
    host.expect_no_response(7, 0);
    assert_eq!(host.state(), 8, "disconnected while it programs");
    host.complete();
    assert!(!host.card.busy());
    assert_eq!(host.state(), 3);
}

#[test]
fn a_reset_while_busy_forgets_the_request() {
    let mut host = CardTestHost::selected(SECTORS);
    host.r1(24, 5);
    assert!(host.card.push(&[1; SECTOR]));
    let requests = host.card.take_requests();
    host.expect_no_response(0, 0);
    assert!(!host.card.busy());
    host.card.complete(ServedCompletion { tag: requests[0].tag, outcome: Err(RequestFailure::Io) });
    host.identify();
    assert_eq!(host.status(), CardStatus::empty());
    assert_eq!(host.read_one(8, 0)[33], 0, "the cache is off after a reset");
}

#[test]
fn an_interrupt_of_high_priority_is_taken_where_it_is_switched_on() {
    let mut host = CardTestHost::selected(SECTORS);
    for on in [false, true] {
        host.switch(161, on.into());
        host.r1(24, 5);
        assert!(host.card.push(&[1; SECTOR]));
        assert_eq!(host.card.command(12, 1 << 16 | 1) != CardResponse::None, on);
        host.complete();
        host.status();
        assert_eq!(host.state(), 4);
    }
}

#[test]
fn failures_of_the_device_show_in_the_status() {
    let mut host = CardTestHost::selected(SECTORS);
    let cases = [
        (RequestFailure::Io, CardStatus::ERROR),
        (RequestFailure::NoSpace, CardStatus::ERROR),
        (RequestFailure::ReadOnly, CardStatus::WP_VIOLATION),
    ];
    for (failure, status) in cases {
        host.r1(24, 5);
        assert!(host.card.push(&[1; SECTOR]));
        host.fail(failure);
        assert_eq!(host.status(), status);
        host.r1(6, 3 << 24 | 32 << 16 | 1 << 8);
        host.fail(failure);
        assert_eq!(host.status(), status);
    }
    host.r1(17, 5);
    host.card.start_clocking(1, SECTOR);
    host.fail(RequestFailure::Io);
    assert_eq!(host.card.take_clocked(), ClockedData::Failed);
    assert_eq!(host.status(), CardStatus::DEVICE_ECC_FAILED);
    assert_eq!(host.state(), 4);
}

#[test]
fn nothing_lies_behind_the_end() {
    let mut host = CardTestHost::selected(SECTORS);
    let end = SECTORS as u32;
    let out = |status: u32| CardStatus::from_bits_retain(status).contains(CardStatus::ADDRESS_OUT_OF_RANGE);
    for (index, argument) in [(17, end), (18, u32::MAX), (24, end), (25, end), (35, end)] {
        assert!(out(host.r1(index, argument)), "CMD{index}");
    }
    host.r1(23, 2);
    assert!(out(host.r1(25, end - 1)), "a known length counts at once");
    // An open-ended transfer fails when it reaches the end.
    host.r1(18, end - 1);
    assert!(matches!(host.read(1), ClockedData::Data(_)));
    assert_eq!(host.read(1), ClockedData::Failed);
    assert!(out(host.r1(12, 0)));
    host.r1(25, end - 1);
    assert!(host.card.push(&[1; SECTOR]) && !host.card.push(&[1; SECTOR]));
    assert!(out(host.r1(12, 0)));
    host.complete();
    assert_eq!((host.last().sector, host.last().sectors), (SECTORS - 1, 1));
    assert_eq!(host.state(), 4);
}

#[test]
fn erase_takes_whole_groups_and_trim_takes_sectors() {
    let mut host = CardTestHost::selected(SECTORS);
    let insecure = BlockAction::Discard { secure: false };
    for (argument, secure) in [(1, false), (3, false), (0, false), (0x8000_0000, true)] {
        assert_eq!(host.erase(10, 12, argument) & !0x1f00, 0);
        let last = host.last();
        assert_eq!(last.action, BlockAction::Discard { secure });
        let expected = if argument.is_multiple_of(4) { (0, 1024) } else { (10, 3) };
        assert_eq!((last.sector, last.sectors), expected);
    }
    host.switch(175, 1);
    host.erase(1024, 1024, 0);
    assert_eq!((host.last().sector, host.last().sectors), (1024, 1024), "512 KiB");
    // Long erase ranges are split at the maximum request length of the device.
    let before = host.requests.len();
    host.erase(1, SECTORS as u32 - 1, 3);
    let parts = &host.requests[before..];
    assert!(parts.iter().all(|part| part.action == insecure && part.sectors <= 1 << 16));
    assert_eq!(parts.iter().map(|part| u64::from(part.sectors)).sum::<u64>(), SECTORS - 1);
}

#[test]
fn secure_trim_removes_in_its_second_step() {
    let mut host = CardTestHost::selected(SECTORS);
    let before = host.requests.len();
    host.erase(5, 6, 0x8000_0001);
    host.erase(9, 9, 0x8000_0001);
    assert_eq!(host.requests.len(), before);
    host.erase(5, 6, 0x8000_8000);
    let removed: Vec<_> = host.requests[before..].iter().map(|request| (request.sector, request.sectors)).collect();
    assert_eq!(removed, [(5, 2), (9, 1)]);
    assert!(host.requests[before..].iter().all(|request| request.action == BlockAction::Discard { secure: true }));
}

#[test]
fn erase_commands_come_in_order() {
    let mut host = CardTestHost::selected(SECTORS);
    let has = |status: u32, flag| CardStatus::from_bits_retain(status).contains(flag);
    assert!(has(host.r1(36, 5), CardStatus::ERASE_SEQ_ERROR));
    assert!(has(host.r1(38, 0), CardStatus::ERASE_SEQ_ERROR));
    host.r1(35, 5);
    assert!(has(host.r1(36, 4), CardStatus::ERASE_PARAM));
    host.r1(35, 5);
    assert!(has(host.r1(16, 512), CardStatus::ERASE_RESET));
    host.r1(35, 5);
    host.r1(36, 5);
    assert!(has(host.r1(38, 2), CardStatus::ERROR));
    let plain = CardSettings { trim: false, secure_erase: false, sanitize: false, ..CardSettings::default() };
    let mut host = CardTestHost::with(&plain, SECTORS);
    host.identify();
    for argument in [1, 0x8000_0000, 0x8000_0001, 0x8000_8000] {
        assert!(has(host.erase(5, 5, argument), CardStatus::ERROR), "{argument:#x}");
    }
    assert!(!has(host.erase(5, 5, 3), CardStatus::ERROR), "DISCARD is always there");
    assert_eq!(host.switch(165, 1), CardStatus::SWITCH_ERROR);
}

#[test]
fn sanitize_leaves_what_is_mapped() {
    let mut host = CardTestHost::selected(1024);
    host.r1(23, 128);
    host.r1(25, 128 * 512);
    assert!(host.card.push(&vec![7; 128 * SECTOR]));
    host.complete();
    let before = host.requests.len();
    assert_eq!(host.switch(165, 1), CardStatus::empty());
    let removed: Vec<_> = host.requests[before..].iter().map(|request| (request.sector, request.sectors)).collect();
    assert_eq!(removed, [(0, 128), (256, 768)]);
    assert_eq!(host.read_one(17, 128 * 512), [7; SECTOR]);
}

#[test]
fn boot_partitions_have_memory_of_their_own() {
    let mut host = CardTestHost::selected(SECTORS);
    for (partition, byte) in [(1, 11), (2, 22)] {
        assert_eq!(host.switch(179, partition), CardStatus::empty());
        host.write(2, 0, byte);
        assert_eq!(host.read_one(17, 1), [byte; SECTOR]);
        let end = (4 << 20) / 512;
        assert_ne!(host.r1(17, end) & CardStatus::ADDRESS_OUT_OF_RANGE.bits(), 0);
    }
    host.erase(0, 0, 1);
    assert_eq!(host.read_one(17, 0), [0; SECTOR]);
    assert!(host.requests.iter().all(|request| request.action == BlockAction::Flush), "the device sees none of it");
    assert_eq!(host.switch(173, 1), CardStatus::empty());
    assert_ne!(host.r1(24, 0) & CardStatus::WP_VIOLATION.bits(), 0);
    assert_eq!(host.switch(173, 0), CardStatus::SWITCH_ERROR, "protected until power is lost");
    host.card.power_cycle();
    host.identify();
    host.switch(179, 1);
    assert_eq!(host.read_one(17, 1), [11; SECTOR], "the partitions keep their data");
    host.write(1, 0, 1);
}

#[test]
fn the_rpmb_partition_answers_by_frames() {
    let mut host = CardTestHost::selected(SECTORS);
    assert_eq!(host.switch(179, 3), CardStatus::empty());
    host.expect_no_response(17, 0);
    assert_eq!(host.status(), CardStatus::ILLEGAL_COMMAND);
    let mut request = vec![0; SECTOR];
    request[511] = 2;
    host.r1(23, 1);
    host.r1(25, 0);
    assert!(host.card.push(&request));
    host.r1(23, 1);
    let frame = host.read_one(18, 0);
    assert_eq!((&frame[508..510], &frame[510..512]), (&[0, 7][..], &[2, 0][..]), "no key yet");
    assert_eq!(host.state(), 4);
}

#[test]
fn the_bus_test_returns_the_pattern_inverted() {
    let mut host = CardTestHost::selected(SECTORS);
    host.r1(19, 0);
    assert_eq!(host.state(), 9);
    assert!(host.card.push(&[0x55, 0xaa, 0, 0, 0, 0, 0, 0]));
    host.r1(14, 0);
    host.card.start_clocking(1, 8);
    assert_eq!(host.card.take_clocked(), ClockedData::Data(vec![0xaa, 0x55, 0, 0, 0, 0, 0, 0]));
    assert_eq!(host.state(), 4);
    host.expect_no_response(21, 0);
    host.status();
    host.switch(183, 2);
    host.switch(185, 2);
    host.r1(21, 0);
    host.card.start_clocking(1, 128);
    let ClockedData::Data(block) = host.card.take_clocked() else { panic!() };
    assert_eq!((block.len(), &block[..8]), (128, &[0xff, 0xff, 0, 0xff, 0xff, 0xff, 0, 0][..]));
}

/// A test host with an eMMC card. It completes requests of the card only when [`Self::complete`] or [`Self::fail`] is called.
pub(super) struct CardTestHost {
    pub card: EmmcCard,
    device: Arc<MemoryDevice>,
    /// All requests of the card, in order.
    pub requests: Vec<ServedRequest>,
}

impl CardTestHost {
    pub fn with(settings: &CardSettings, sectors: u64) -> Self {
        let device = Arc::new(MemoryDevice::new(sectors));
        Self { card: EmmcCard::new(settings, device.clone()), device, requests: Vec::new() }
    }

    /// Creates a test host whose card is in the transfer state, with its cache enabled.
    pub fn selected(sectors: u64) -> Self {
        let mut host = Self::with(&CardSettings::default(), sectors);
        host.identify();
        host.switch(33, 1);
        host
    }

    pub fn identify(&mut self) {
        self.expect_no_response(0, 0);
        assert_ne!(self.r1(1, 0x40ff_8080) >> 31, 0);
        assert!(matches!(self.card.command(2, 0), CardResponse::Long(_)));
        self.r1(3, 1 << 16);
        self.r1(7, 1 << 16);
    }

    /// Executes the pending requests of the card on the test's block device, and passes the outcomes to the card.
    pub fn complete(&mut self) {
        let mut requests = self.card.take_requests();
        self.requests.extend(requests.iter().cloned());
        for completion in completions_of(&self.device, &mut requests) {
            self.card.complete(completion);
        }
    }

    /// Completes the pending requests of the card with a failure.
    pub fn fail(&mut self, failure: RequestFailure) {
        for request in self.card.take_requests() {
            self.card.complete(ServedCompletion { tag: request.tag, outcome: Err(failure) });
        }
    }

    pub fn r1(&mut self, index: u8, argument: u32) -> u32 {
        match self.card.command(index, argument) {
            CardResponse::Short(status) => status,
            other => panic!("CMD{index}: {other:?}"),
        }
    }

    pub fn expect_no_response(&mut self, index: u8, argument: u32) {
        assert_eq!(self.card.command(index, argument), CardResponse::None, "CMD{index}");
    }

    pub fn status(&mut self) -> CardStatus {
        CardStatus::from_bits_retain(self.r1(13, 1 << 16) & !0x1e00) & !CardStatus::READY_FOR_DATA
    }

    pub fn state(&mut self) -> u32 {
        self.r1(13, 1 << 16) >> 9 & 0xf
    }

    /// Writes a byte of `EXT_CSD` by CMD6; returns the status afterwards.
    pub fn switch(&mut self, index: u8, value: u8) -> CardStatus {
        self.r1(6, 3 << 24 | u32::from(index) << 16 | u32::from(value) << 8);
        self.complete();
        self.status()
    }

    pub fn read(&mut self, blocks: u32) -> ClockedData {
        self.card.start_clocking(blocks, SECTOR);
        self.complete();
        self.card.take_clocked()
    }

    pub fn read_one(&mut self, index: u8, argument: u32) -> Vec<u8> {
        self.r1(index, argument);
        match self.read(1) {
            ClockedData::Data(data) => data,
            other => panic!("{other:?}"),
        }
    }

    pub fn write(&mut self, count: u32, sector: u32, byte: u8) {
        self.r1(23, count);
        self.r1(25, sector);
        assert!(self.card.push(&vec![byte; (count & 0xffff) as usize * SECTOR]));
        self.complete();
    }

    pub fn erase(&mut self, first: u32, last: u32, argument: u32) -> u32 {
        self.r1(35, first);
        self.r1(36, last);
        let status = self.r1(38, argument);
        self.complete();
        status
    }

    pub fn last(&self) -> &ServedRequest {
        self.requests.last().unwrap()
    }
}

/// Steps of the test against a model, on a card of 64 sectors.
#[derive(Clone, Debug)]
enum CardModelStep {
    /// A write: first sector, number of sectors, byte that fills them, and whether CMD23 sets the length.
    Write(u32, u32, u8, bool),
    Read(u32, u32, bool),
    /// An erase: first and last sector, argument of CMD38.
    Erase(u32, u32, u32),
    /// A write that a reset of the card interrupts.
    Cut(u32),
    Partition(u8),
}

fn step() -> impl Strategy<Value = CardModelStep> {
    let range = || (0_u32..64, 1_u32..40).prop_map(|(first, count)| (first, count.min(64 - first)));
    prop_oneof![
        (range(), any::<u8>(), any::<bool>())
            .prop_map(|((first, count), byte, known)| CardModelStep::Write(first, count, byte, known)),
        (range(), any::<bool>()).prop_map(|((first, count), known)| CardModelStep::Read(first, count, known)),
        (range(), prop::sample::select(vec![0, 1, 3, 0x8000_0000])).prop_map(|((first, count), argument)| CardModelStep::Erase(
            first,
            first + count - 1,
            argument
        )),
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
        // Maps partition and sector to the byte value that fills the sector.
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
                        prop_assert!(data.iter().all(|value| *value == byte));
                    }
                }
                CardModelStep::Erase(first, last, argument) => {
                    host.r1(35, first * 512);
                    host.r1(36, last * 512);
                    host.r1(38, argument);
                    host.complete();
                    // Erase groups are so large here that an erase covers the whole user area, or a whole boot partition of 256 sectors.
                    let gone = if argument.is_multiple_of(4) { 0..=255 } else { first..=last };
                    model.retain(|(area, sector), _| *area != partition || !gone.contains(sector));
                }
                CardModelStep::Cut(first) => {
                    host.r1(25, first * 512);
                    // A power cut loses data that was not yet passed to the device. Only a chunk of full length has been passed.
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
