//! An SD host controller with one slot (SD Host Controller Simplified Specification 2.00): registers, commands and interrupts.
//!
//! The guest's driver writes registers; [`SdhciController::step`] then advances the transfer as far as possible. The owner of the
//! controller passes the requests of the card to the block device, and the completions back.

mod data;
#[cfg(test)]
mod tests;

use data::{ControllerTransfer, TransferPause};

use crate::sdhci::card::{CardResponse, EmmcCard};

/// Registers that are cleared by a software reset.
#[derive(Default)]
struct SdhciRegisters {
    system_address: u32,
    block_size: u16,
    block_count: u16,
    argument: u32,
    mode: u16,
    command: u16,
    response: [u32; 4],
    /// The 32-bit word with the registers host control, power control, block gap control and wakeup control.
    host_control: u32,
    /// The 32-bit word with the registers clock control and timeout control.
    clock: u32,
    status: u32,
    status_enable: u32,
    signal_enable: u32,
    auto_command_error: u16,
    adma_error: u32,
    adma_address: u64,
}

/// The controller and the card in its slot.
pub(super) struct SdhciController {
    pub card: EmmcCard,
    registers: SdhciRegisters,
    transfer: Option<ControllerTransfer>,
    /// Whether the interrupt "transfer complete" must be raised as soon as the card is no longer busy.
    ending: bool,
}

impl SdhciController {
    pub fn new(card: EmmcCard) -> Self {
        Self { card, registers: SdhciRegisters::default(), transfer: None, ending: false }
    }

    /// Resets the whole function; the card is power-cycled.
    pub fn reset(&mut self) {
        self.registers = SdhciRegisters::default();
        self.transfer = None;
        self.ending = false;
        self.card.power_cycle();
    }

    /// Whether the interrupt line is asserted.
    pub fn interrupt(&self) -> bool {
        self.registers.status & self.registers.signal_enable != 0
    }

    /// Reads registers in accesses of any width; other offsets read as zeros.
    pub fn read(&mut self, offset: u64, data: &mut [u8]) {
        let mut at = 0;
        while at < data.len() {
            let here = offset.saturating_add(at as u64);
            let skip = (here % 4) as usize;
            let count = (4 - skip).min(data.len() - at);
            let to = &mut data[at..at + count];
            if here - skip as u64 == word::BUFFER {
                self.read_buffer(to);
            } else {
                let value = self.read_word(here - skip as u64).to_le_bytes();
                to.copy_from_slice(&value[skip..skip + count]);
            }
            at += count;
        }
    }

    /// Writes registers in accesses of any width; other offsets are ignored.
    pub fn write(&mut self, offset: u64, data: &[u8], memory: &mut dyn GuestMemory) {
        let mut at = 0;
        while at < data.len() {
            let here = offset.saturating_add(at as u64);
            let skip = (here % 4) as usize;
            let count = (4 - skip).min(data.len() - at);
            let from = &data[at..at + count];
            if here - skip as u64 == word::BUFFER {
                self.write_buffer(from, memory);
            } else {
                let (mut value, mut mask) = ([0; 4], [0; 4]);
                value[skip..skip + count].copy_from_slice(from);
                mask[skip..skip + count].fill(0xff);
                self.write_word(here - skip as u64, u32::from_le_bytes(value), u32::from_le_bytes(mask), memory);
            }
            at += count;
        }
    }

    fn read_word(&self, at: u64) -> u32 {
        let registers = &self.registers;
        match at {
            word::SYSTEM_ADDRESS => registers.system_address,
            word::BLOCK => u32::from(registers.block_count) << 16 | u32::from(registers.block_size),
            word::ARGUMENT => registers.argument,
            word::COMMAND => u32::from(registers.command) << 16 | u32::from(registers.mode),
            word::RESPONSE..=word::RESPONSE_END => registers.response[((at - word::RESPONSE) / 4) as usize],
            word::PRESENT_STATE => self.present_state(),
            word::HOST_CONTROL => registers.host_control,
            // The internal clock is stable as soon as it is enabled.
            word::CLOCK => registers.clock | (registers.clock & 1) << 1,
            word::STATUS => self.status(),
            word::STATUS_ENABLE => registers.status_enable,
            word::SIGNAL_ENABLE => registers.signal_enable,
            0x3c => registers.auto_command_error.into(),
            word::CAPABILITIES => CAPABILITIES,
            word::MAXIMUM_CURRENT => MAXIMUM_CURRENT,
            word::ADMA_ERROR => registers.adma_error,
            word::ADMA_ADDRESS => registers.adma_address as u32,
            word::VERSION => VERSION_REGISTER | u32::from(self.interrupt()),
            _ => 0,
        }
    }

    fn status(&self) -> u32 {
        let errors = self.registers.status & interrupt::ERRORS;
        self.registers.status | if errors == 0 { 0 } else { interrupt::ERROR }
    }

    fn present_state(&self) -> u32 {
        let mut state = present::CARD | present::COMMAND_LINE | present::DATA_LINES;
        if self.card.busy() {
            state &= !present::DATA_LINE_0;
        }
        if self.transfer.is_some() || self.ending {
            state |= present::DATA_INHIBIT | present::DATA_ACTIVE;
        }
        match &self.transfer {
            Some(transfer) if transfer.reads => {
                state |= present::READ_ACTIVE;
                state |= if transfer.waits_for_port() { present::BUFFER_READ } else { 0 };
            }
            Some(transfer) => {
                state |= present::WRITE_ACTIVE;
                state |= if transfer.waits_for_port() { present::BUFFER_WRITE } else { 0 };
            }
            None => {}
        }
        state
    }

    fn write_word(&mut self, at: u64, value: u32, mask: u32, memory: &mut dyn GuestMemory) {
        let merged = |old: u32| old & !mask | value & mask;
        let registers = &mut self.registers;
        match at {
            word::SYSTEM_ADDRESS => {
                registers.system_address = merged(registers.system_address);
                // Writing the upper byte of this register resumes a transfer that stopped at a DMA buffer boundary.
                let paused = self.transfer.as_mut().filter(|transfer| transfer.pause == TransferPause::Boundary);
                if let Some(transfer) = paused.filter(|_| mask >> 24 != 0) {
                    transfer.pause = TransferPause::None;
                }
            }
            word::BLOCK => {
                let new = merged(u32::from(registers.block_count) << 16 | u32::from(registers.block_size));
                (registers.block_size, registers.block_count) = (new as u16 & 0x7fff, (new >> 16) as u16);
            }
            word::ARGUMENT => registers.argument = merged(registers.argument),
            word::COMMAND => {
                let new = merged(u32::from(registers.command) << 16 | u32::from(registers.mode));
                (registers.mode, registers.command) = (new as u16 & mode::ALL, (new >> 16) as u16 & 0x3ffb);
                // Writing the upper byte of the command register sends the command.
                if mask >> 24 != 0 {
                    self.send_command(memory);
                }
            }
            word::HOST_CONTROL => {
                let powered = registers.host_control >> 8 & 1;
                registers.host_control = merged(registers.host_control);
                if registers.host_control >> 8 & 1 != powered {
                    self.card.power_cycle();
                }
            }
            word::CLOCK => {
                registers.clock = merged(registers.clock) & 0x000f_ff05;
                self.software_reset(value & mask);
            }
            word::STATUS => registers.status &= !(value & mask),
            word::STATUS_ENABLE => {
                registers.status_enable = merged(registers.status_enable) & !interrupt::ERROR;
                registers.status &= registers.status_enable;
            }
            word::SIGNAL_ENABLE => {
                registers.signal_enable = merged(registers.signal_enable) & !interrupt::ERROR;
            }
            word::FORCE_EVENT => self.raise(value & mask & interrupt::ERRORS),
            word::ADMA_ADDRESS => {
                registers.adma_address = merged(registers.adma_address as u32).into();
            }
            _ => {}
        }
    }

    fn software_reset(&mut self, bits: u32) {
        if bits & reset::ALL != 0 {
            self.reset();
            return;
        }
        if bits & reset::COMMAND != 0 {
            self.registers.status &= !interrupt::COMMAND_COMPLETE;
        }
        if bits & reset::DATA != 0 {
            self.transfer = None;
            self.ending = false;
            self.registers.status &= !(interrupt::TRANSFER_COMPLETE
                | interrupt::BLOCK_GAP
                | interrupt::DMA
                | interrupt::BUFFER_WRITE_READY
                | interrupt::BUFFER_READ_READY);
        }
    }

    /// Sets the bits of the interrupt status that the driver has enabled.
    fn raise(&mut self, bits: u32) {
        self.registers.status |= bits & self.registers.status_enable;
    }

    fn send_command(&mut self, memory: &mut dyn GuestMemory) {
        let command = self.registers.command;
        let (index, kind, has_data) = ((command >> 8) as u8, command & 0b11, command >> 5 & 1 == 1);
        let powered = self.registers.host_control >> 8 & 1 == 1 && self.registers.clock & 0b101 == 0b101;
        let response = if powered { self.card.command(index, self.registers.argument) } else { CardResponse::None };
        if index == 12 {
            // CMD12 aborts a transfer on the data lines.
            self.transfer = None;
        }
        match (kind, response) {
            // The driver expects no response.
            (0, _) => {}
            (_, CardResponse::None) => {
                self.raise(interrupt::COMMAND_TIMEOUT);
                return;
            }
            (1, CardResponse::Long(bytes)) => {
                // Bits 127:8 of the long response, without its checksum.
                let bits = u128::from_be_bytes(bytes) >> 8;
                self.registers.response = [0, 32, 64, 96].map(|shift| (bits >> shift) as u32);
            }
            (2 | 3, CardResponse::Short(bits)) => self.registers.response[0] = bits,
            // The response has another length than the driver expects.
            _ => {
                self.raise(interrupt::COMMAND_CRC);
                return;
            }
        }
        self.raise(interrupt::COMMAND_COMPLETE);
        if has_data {
            self.start_transfer(memory);
        } else if kind == 3 {
            self.ending = true;
        }
    }
}

/// An access to memory that the guest has not mapped or does not permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnmappedAccess;

/// Guest memory, accessed by bus address.
pub(crate) trait GuestMemory {
    /// Reads all bytes or fails.
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), UnmappedAccess>;
    /// Writes all bytes or fails.
    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), UnmappedAccess>;
}

/// Offsets of the 32-bit words of the register space.
mod word {
    pub const SYSTEM_ADDRESS: u64 = 0x00;
    pub const BLOCK: u64 = 0x04;
    pub const ARGUMENT: u64 = 0x08;
    pub const COMMAND: u64 = 0x0c;
    pub const RESPONSE: u64 = 0x10;
    pub const RESPONSE_END: u64 = 0x1c;
    pub const BUFFER: u64 = 0x20;
    pub const PRESENT_STATE: u64 = 0x24;
    pub const HOST_CONTROL: u64 = 0x28;
    pub const CLOCK: u64 = 0x2c;
    pub const STATUS: u64 = 0x30;
    pub const STATUS_ENABLE: u64 = 0x34;
    pub const SIGNAL_ENABLE: u64 = 0x38;
    pub const CAPABILITIES: u64 = 0x40;
    pub const MAXIMUM_CURRENT: u64 = 0x48;
    pub const FORCE_EVENT: u64 = 0x50;
    pub const ADMA_ERROR: u64 = 0x54;
    pub const ADMA_ADDRESS: u64 = 0x58;
    pub const VERSION: u64 = 0xfc;
}

/// Bits of the interrupt status: normal interrupts in the lower half, errors in the upper half.
mod interrupt {
    pub const COMMAND_COMPLETE: u32 = 1;
    pub const TRANSFER_COMPLETE: u32 = 1 << 1;
    pub const BLOCK_GAP: u32 = 1 << 2;
    pub const DMA: u32 = 1 << 3;
    pub const BUFFER_WRITE_READY: u32 = 1 << 4;
    pub const BUFFER_READ_READY: u32 = 1 << 5;
    pub const ERROR: u32 = 1 << 15;
    pub const COMMAND_TIMEOUT: u32 = 1 << 16;
    pub const COMMAND_CRC: u32 = 1 << 17;
    pub const DATA_TIMEOUT: u32 = 1 << 20;
    pub const AUTO_COMMAND: u32 = 1 << 24;
    pub const ADMA: u32 = 1 << 25;
    /// All errors that the specification defines.
    pub const ERRORS: u32 = 0x03ff_0000;
}

/// Bits of the present state register.
mod present {
    pub const DATA_INHIBIT: u32 = 1 << 1;
    pub const DATA_ACTIVE: u32 = 1 << 2;
    pub const WRITE_ACTIVE: u32 = 1 << 8;
    pub const READ_ACTIVE: u32 = 1 << 9;
    pub const BUFFER_WRITE: u32 = 1 << 10;
    pub const BUFFER_READ: u32 = 1 << 11;
    /// A card is inserted, stable and not write-protected.
    pub const CARD: u32 = 0b1111 << 16;
    pub const DATA_LINES: u32 = 0b1111 << 20;
    pub const DATA_LINE_0: u32 = 1 << 20;
    pub const COMMAND_LINE: u32 = 1 << 24;
}

/// Bits of the transfer mode register.
mod mode {
    pub const DMA: u16 = 1;
    pub const BLOCK_COUNT: u16 = 1 << 1;
    pub const AUTO_CMD12: u16 = 1 << 2;
    pub const READ: u16 = 1 << 4;
    pub const MULTIPLE: u16 = 1 << 5;
    pub const ALL: u16 = 0x37;
}

/// Bits of the software reset register, as part of the 32-bit word at the clock control register.
mod reset {
    pub const ALL: u32 = 1 << 24;
    pub const COMMAND: u32 = 1 << 25;
    pub const DATA: u32 = 1 << 26;
}

/// Timeout clock of 1 MHz, base clock of 52 MHz, blocks of 512 bytes, ADMA2, high speed, SDMA, 3.3 V.
const CAPABILITIES: u32 = 0x81 | 52 << 8 | 1 << 19 | 1 << 21 | 1 << 22 | 1 << 24;
/// 200 mA at 3.3 V, in units of 4 mA.
const MAXIMUM_CURRENT: u32 = 50;
/// Value of the version register: specification 2.00.
const VERSION_REGISTER: u32 = 1 << 16;
