//! Tests the controller through its registers, with guest memory in an array and a block device in memory.

use proptest::prelude::*;

use super::*;
use crate::sdhci::card::CardSettings;
use crate::sdhci::fuzz_driver::{TestMachine, exercise, exercise_messages};

const MEMORY: usize = 1 << 20;
/// Address of the descriptor table in tests.
const TABLE: u32 = 0x1000;

/// Attributes, length and address of a descriptor.
type Descriptor = (u16, u16, u32);

impl TestMachine {
    /// Creates a machine whose card is selected and uses byte addresses, with all interrupts enabled.
    fn ready() -> Self {
        let mut machine = Self::new(&CardSettings::default(), 1 << 16, MEMORY);
        machine.power();
        for (index, argument, flags) in [(0, 0, 0), (1, 0x00ff_8080, 2), (2, 0, 1), (3, 1 << 16, 2), (7, 1 << 16, 3)] {
            machine.send(index, argument, flags);
            machine.set(word::STATUS, u32::MAX);
        }
        machine
    }

    fn power(&mut self) {
        self.set(word::HOST_CONTROL, 0x0f10);
        self.set(word::CLOCK, 0x000e_0005);
        self.set(word::STATUS_ENABLE, u32::MAX);
        self.set(word::SIGNAL_ENABLE, u32::MAX);
    }

    /// Completes the waiting requests. From now on, every request is completed immediately.
    fn release(&mut self) {
        self.holds = false;
        self.step();
    }

    fn set(&mut self, offset: u64, value: u32) {
        self.write(offset, &value.to_le_bytes());
    }

    fn get(&mut self, offset: u64) -> u32 {
        let mut value = [0; 4];
        self.controller.read(offset, &mut value);
        self.step();
        u32::from_le_bytes(value)
    }

    /// Sends a command; `flags` is the lower byte of the command register.
    fn send(&mut self, index: u16, argument: u32, flags: u16) {
        self.set(word::ARGUMENT, argument);
        self.write(word::COMMAND + 2, &(index << 8 | flags).to_le_bytes());
    }

    /// Returns and clears the interrupt status.
    fn status(&mut self) -> u32 {
        let status = self.get(word::STATUS);
        assert_eq!(self.controller.interrupt(), status != 0);
        self.set(word::STATUS, status);
        status
    }

    fn table(&mut self, descriptors: &[Descriptor]) {
        for (number, (attributes, length, address)) in descriptors.iter().enumerate() {
            let mut bytes = Vec::from(attributes.to_le_bytes());
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(&address.to_le_bytes());
            self.memory.write(u64::from(TABLE) + 8 * number as u64, &bytes).unwrap();
        }
        self.set(word::ADMA_ADDRESS, TABLE);
    }

    /// Executes CMD18 or CMD25 with this number of blocks and CMD12 afterwards, in the DMA mode that the host control register selects.
    fn transfer(&mut self, index: u16, address: u32, blocks: u32, mode: u16) {
        self.set(word::BLOCK, blocks << 16 | 512);
        self.write(word::COMMAND, &mode.to_le_bytes());
        self.send(index, address, 0x3a);
    }
}

const DONE: u32 = interrupt::COMMAND_COMPLETE | interrupt::TRANSFER_COMPLETE;
const READ: u16 = mode::DMA | mode::BLOCK_COUNT | mode::AUTO_CMD12 | mode::READ | mode::MULTIPLE;
const WRITE: u16 = READ & !mode::READ;
const END: u16 = 0b10_0011;
const MORE: u16 = 0b10_0001;
const LINK: u16 = 0b11_0001;

#[test]
fn a_card_without_power_or_clock_does_not_answer() {
    let mut machine = TestMachine::new(&CardSettings::default(), 1 << 16, MEMORY);
    machine.set(word::STATUS_ENABLE, u32::MAX);
    machine.send(1, 0, 2);
    assert_eq!(machine.get(word::STATUS), interrupt::COMMAND_TIMEOUT | interrupt::ERROR);
    machine.power();
    machine.status();
    machine.send(1, 0, 2);
    assert_eq!(machine.status(), interrupt::COMMAND_COMPLETE);
    assert_eq!(machine.get(word::RESPONSE), 0x80ff_8080);
    machine.send(8, 0x1aa, 0x1a);
    assert_eq!(machine.status(), interrupt::COMMAND_TIMEOUT | interrupt::ERROR);
}

#[test]
fn adma_gathers_and_scatters_by_its_table() {
    let mut machine = TestMachine::ready();
    for (at, byte) in machine.memory.0[0x2_0000..0x2_1000].iter_mut().enumerate() {
        *byte = at as u8 ^ (at >> 8) as u8;
    }
    let data = machine.memory.0[0x2_0000..0x2_1000].to_vec();
    machine.table(&[(MORE, 100, 0x2_0000), (1, 0, 0), (LINK, 0, TABLE + 24), (MORE | 4, 412, 0x2_0064), (END, 3584, 0x2_0200)]);
    machine.transfer(25, 4096, 8, WRITE);
    assert_eq!(machine.status(), DONE | interrupt::DMA);
    machine.table(&[(MORE, 4092, 0x3_0000), (END, 4, 0x5_0000)]);
    machine.transfer(18, 4096, 8, READ);
    assert_eq!(machine.status(), DONE);
    assert_eq!((&machine.memory.0[0x3_0000..0x3_0ffc], &machine.memory.0[0x5_0000..0x5_0004]), (&data[..4092], &data[4092..]));
    assert_eq!(machine.get(word::RESPONSE + 12) >> 9 & 0xf, 5, "CMD12 by itself");
    assert_eq!(machine.get(word::BLOCK) >> 16, 0);
    // Without a block count, the descriptor table determines the length of the transfer.
    machine.table(&[(END, 1024, 0x6_0000)]);
    machine.transfer(18, 4096, 0, READ & !mode::BLOCK_COUNT);
    assert_eq!(machine.status(), DONE);
    assert_eq!(machine.memory.0[0x6_0000..0x6_0400], data[..1024]);
}

#[test]
fn hostile_tables_end_in_an_error_and_a_reset_mends_it() {
    let tables: [(&[Descriptor], u32); 8] = [
        (&[(LINK, 0, TABLE)], 1),
        (&[(1, 0, 0), (LINK, 0, TABLE)], 1),
        (&[(LINK, 0, TABLE + 2)], 1),
        (&[(LINK, 0, 0xffff_fff8)], 1),
        (&[(0x20, 512, 0)], 1),
        (&[(END, 8, 0)], 7),
        (&[(END, 0, 0xffff_0000)], 3),
        (&[(END, 4096, MEMORY as u32 - 100)], 3),
    ];
    for (table, error) in tables {
        for (index, mode) in [(18, READ), (25, WRITE), (18, READ & !mode::BLOCK_COUNT)] {
            let mut machine = TestMachine::ready();
            machine.table(table);
            machine.transfer(index, 0, 8, mode);
            let status = machine.status();
            assert_ne!(status & interrupt::ADMA, 0, "{table:?}");
            assert_eq!(status & interrupt::TRANSFER_COMPLETE, 0);
            assert_eq!(machine.get(word::ADMA_ERROR) & error, machine.get(word::ADMA_ERROR), "{table:?}");
            machine.set(word::CLOCK, 0x060e_0005);
            machine.send(12, 0, 3);
            assert_eq!(machine.status(), DONE);
            machine.table(&[(END, 512, 0x8000)]);
            machine.set(word::BLOCK, 512);
            machine.write(word::COMMAND, &(mode::DMA | mode::READ).to_le_bytes());
            machine.send(17, 0, 0x3a);
            assert_eq!(machine.status(), DONE);
        }
    }
}

#[test]
fn sdma_stops_at_boundaries() {
    let mut machine = TestMachine::ready();
    machine.set(word::HOST_CONTROL, 0x0f00);
    machine.memory.0[0x1_f000..0x2_1000].fill(0x77);
    machine.set(word::SYSTEM_ADDRESS, 0x1_f000);
    machine.transfer(25, 0, 16, WRITE);
    assert_eq!(machine.status(), interrupt::COMMAND_COMPLETE | interrupt::DMA);
    let next = machine.get(word::SYSTEM_ADDRESS);
    assert_eq!(next, 0x2_0000);
    machine.set(word::SYSTEM_ADDRESS, next);
    assert_eq!(machine.status(), interrupt::TRANSFER_COMPLETE);
    machine.set(word::SYSTEM_ADDRESS, 0x4_0000);
    machine.transfer(18, 0, 8, READ);
    assert_eq!(machine.status(), interrupt::COMMAND_COMPLETE | interrupt::TRANSFER_COMPLETE);
    assert!(machine.memory.0[0x4_0000..0x4_1000].iter().all(|byte| *byte == 0x77));
    machine.set(word::SYSTEM_ADDRESS, MEMORY as u32);
    machine.transfer(18, 0, 8, READ);
    assert_ne!(machine.status() & interrupt::DATA_TIMEOUT, 0);
}

#[test]
fn the_buffer_port_moves_block_by_block() {
    let mut machine = TestMachine::ready();
    machine.transfer(25, 512, 2, WRITE & !mode::DMA);
    assert_eq!(machine.status(), interrupt::COMMAND_COMPLETE | interrupt::BUFFER_WRITE_READY);
    for block in 0..2_u32 {
        assert_ne!(machine.get(word::PRESENT_STATE) & present::BUFFER_WRITE, 0);
        (0..128).for_each(|word| machine.set(word::BUFFER, block << 16 | word));
        assert_eq!(machine.status(), if block == 0 { interrupt::BUFFER_WRITE_READY } else { interrupt::TRANSFER_COMPLETE });
    }
    machine.transfer(18, 512, 2, READ & !mode::DMA);
    for block in 0..2_u32 {
        let ready = machine.status() & !interrupt::COMMAND_COMPLETE;
        assert_eq!(ready, interrupt::BUFFER_READ_READY);
        (0..128).for_each(|word| assert_eq!(machine.get(word::BUFFER), block << 16 | word));
    }
    assert_eq!(machine.status(), interrupt::TRANSFER_COMPLETE);
    assert_eq!(machine.get(word::PRESENT_STATE) & present::DATA_INHIBIT, 0);
}

#[test]
fn a_transfer_is_complete_when_the_device_says_so() {
    let mut machine = TestMachine::ready();
    machine.table(&[(END, 4096, 0x8000)]);
    for (index, mode) in [(25, WRITE), (18, READ)] {
        machine.holds = true;
        machine.set(word::ADMA_ADDRESS, TABLE);
        machine.transfer(index, 0, 8, mode);
        assert_eq!(machine.status(), interrupt::COMMAND_COMPLETE);
        let state = machine.get(word::PRESENT_STATE);
        assert_ne!(state & present::DATA_INHIBIT, 0);
        assert_eq!(state & present::DATA_LINE_0 == 0, index == 25, "a card that programs holds the line");
        machine.release();
        assert_eq!(machine.status(), interrupt::TRANSFER_COMPLETE);
    }
    // The card is busy until the flush is complete.
    machine.send(6, 3 << 24 | 33 << 16 | 1 << 8, 3);
    assert_eq!(machine.status(), DONE);
    machine.holds = true;
    machine.send(6, 3 << 24 | 32 << 16 | 1 << 8, 3);
    assert_eq!(machine.status(), interrupt::COMMAND_COMPLETE);
    machine.release();
    assert_eq!(machine.status(), interrupt::TRANSFER_COMPLETE);
}

#[test]
fn a_reset_while_a_request_is_under_way_forgets_it() {
    let mut machine = TestMachine::ready();
    machine.table(&[(END, 4096, 0x8000)]);
    machine.holds = true;
    machine.transfer(25, 0, 8, WRITE);
    machine.status();
    machine.set(word::CLOCK, 1 << 24);
    assert_eq!((machine.get(word::STATUS_ENABLE), machine.get(word::HOST_CONTROL)), (0, 0));
    machine.release();
    assert_eq!(machine.get(word::STATUS), 0);
    assert_eq!(machine.get(word::PRESENT_STATE) & present::DATA_INHIBIT, 0);
    machine.power();
    machine.send(1, 0, 2);
    assert_eq!(machine.status(), interrupt::COMMAND_COMPLETE);
}

#[test]
fn interrupts_are_enabled_twice() {
    let mut machine = TestMachine::ready();
    machine.set(word::SIGNAL_ENABLE, 0);
    machine.send(13, 1 << 16, 2);
    assert!(!machine.controller.interrupt());
    assert_eq!(machine.get(word::STATUS), interrupt::COMMAND_COMPLETE);
    machine.set(word::SIGNAL_ENABLE, interrupt::COMMAND_COMPLETE);
    assert!(machine.controller.interrupt());
    assert_eq!(machine.get(word::VERSION) & 1, 1);
    machine.set(word::STATUS_ENABLE, 0);
    assert!(!machine.controller.interrupt());
}

proptest! {
    #[test]
    fn random_accesses_do_no_harm(data in prop::collection::vec(any::<u8>(), 0..600)) {
        exercise(&data);
    }

    #[test]
    fn random_messages_do_no_harm(
        messages in prop::collection::vec((0_u16..16, prop::collection::vec(any::<u8>(), 0..40)), 0..40)
    ) {
        let mut data = Vec::new();
        for (command, payload) in messages {
            data.extend_from_slice(&[0, 0]);
            data.extend_from_slice(&command.to_ne_bytes());
            data.extend_from_slice(&(payload.len() as u32).to_ne_bytes());
            data.extend_from_slice(&[0; 8]);
            data.extend_from_slice(&payload);
        }
        exercise_messages(&data);
    }
}
