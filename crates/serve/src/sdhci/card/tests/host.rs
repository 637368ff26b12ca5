//! A host for tests that clocks a card; a block device in memory serves the requests of the card.

use std::sync::Arc;

use super::super::*;
use crate::device::CompletionReceiver;
use crate::memory::MemoryDevice;
use crate::sdhci::fuzz_driver::CollectedCompletions;

/// A host with a card. It completes requests only when it is told to.
pub(super) struct CardTestHost {
    pub card: EmmcCard,
    device: Arc<MemoryDevice>,
    /// Every request that the card made, in order.
    pub requests: Vec<ServedRequest>,
}

impl CardTestHost {
    pub fn with(settings: &CardSettings, sectors: u64) -> Self {
        let device = Arc::new(MemoryDevice::new(sectors));
        Self { card: EmmcCard::new(settings, device.clone()), device, requests: Vec::new() }
    }

    /// A card in the transfer state, with its cache on.
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

    /// Completes the pending requests of the card, with any outcome.
    pub fn complete(&mut self) {
        let mut requests = self.card.take_requests();
        self.requests.extend(requests.iter().cloned());
        let collected = Arc::new(CollectedCompletions::default());
        let completions: Arc<dyn CompletionReceiver> = collected.clone();
        self.device.submit(&mut requests, &completions);
        for completion in collected.take() {
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

    /// Executes CMD6 (write byte); returns the status afterwards.
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
