//! Executes commands. A command is legal only in certain states of the card (JESD84-B51, 6.10 and table 63).

use emmclab_base::CommandFlags;

use super::ext_csd::SwitchAccess;
use super::transfer::CardTransfer;
use super::{CardPartition, CardResponse, CardState, CardStatus, EmmcCard, EraseOperation, PresetBlockCount, SECTOR};

/// Operating conditions (JESD84-B51, 7.1): 1.7-1.95 V and 2.7-3.6 V.
const OCR: u32 = 0x00ff_8080;
/// OCR bit: power-up is complete.
const OCR_READY: u32 = 1 << 31;
/// OCR bit: addresses are sector numbers.
const OCR_SECTORS: u32 = 1 << 30;

/// The tuning block for four data lines (JESD84-B51, 6.6.5.1). On eight lines, each half byte is sent on both groups of four lines.
const TUNING: [u8; 64] = [
    0xff, 0x0f, 0xff, 0x00, 0xff, 0xcc, 0xc3, 0xcc, 0xc3, 0x3c, 0xcc, 0xff, 0xfe, 0xff, 0xfe, 0xef, 0xff, 0xdf, 0xff, 0xdd, 0xff,
    0xfb, 0xff, 0xfb, 0xbf, 0xff, 0x7f, 0xff, 0x77, 0xf7, 0xbd, 0xef, 0xff, 0xf0, 0xff, 0xf0, 0x0f, 0xfc, 0xcc, 0x3c, 0xcc, 0x33,
    0xcc, 0xcf, 0xff, 0xef, 0xff, 0xee, 0xff, 0xfd, 0xff, 0xfd, 0xdf, 0xff, 0xbf, 0xff, 0xbb, 0xff, 0xf7, 0xff, 0xf7, 0x7f, 0x7b,
    0xde,
];

/// The outcome of a legal command of the host.
enum CommandReply {
    Silent,
    R1,
    Other(CardResponse),
}

impl EmmcCard {
    /// Executes a command of the host.
    pub fn command(&mut self, index: u8, argument: u32) -> CardResponse {
        let (before, busy) = (self.state, self.busy());
        // CMD23 (SET_BLOCK_COUNT) applies to the next command, unless this is CMD13 (SEND_STATUS).
        let count = if index == 13 { None } else { self.count.take() };
        if !matches!(index, 0 | 13 | 35 | 36 | 38) && self.erase.abort() {
            self.errors |= CardStatus::ERASE_RESET;
        }
        match self.execute(index, argument, count) {
            Some(CommandReply::Silent) => CardResponse::None,
            Some(CommandReply::Other(response)) => response,
            Some(CommandReply::R1) => self.r1(before, busy),
            None => {
                self.errors |= CardStatus::ILLEGAL_COMMAND;
                CardResponse::None
            }
        }
    }

    /// Executes a command and changes the state of the card; `None` if the command is illegal in this state.
    fn execute(&mut self, index: u8, argument: u32, count: Option<PresetBlockCount>) -> Option<CommandReply> {
        use CardState::{
            BusTest, Disconnected, Identification, Idle, Inactive, Programming, Ready, ReceivingData, SendingData, Sleep,
            StandBy, Transfer as Selected,
        };
        if self.state == Inactive {
            return Some(CommandReply::Silent);
        }
        if self.area() == CardPartition::Rpmb && matches!(index, 14 | 17 | 19 | 21 | 24 | 35 | 36 | 38) {
            return None;
        }
        let addressed = argument >> 16 == u32::from(self.rca);
        Some(match (index, self.state) {
            (0, _) => {
                self.go_idle();
                CommandReply::Silent
            }
            (1, Idle) => {
                let access = if self.sectors > super::BYTE_ADDRESSED { OCR_SECTORS } else { 0 };
                // With an argument of 0, CMD1 only reads the OCR register, and the state does not change.
                if argument & OCR != 0 {
                    self.state = Ready;
                }
                CommandReply::Other(CardResponse::Short(OCR | OCR_READY | access))
            }
            (2, Ready) => {
                self.state = Identification;
                CommandReply::Other(CardResponse::Long(self.cid))
            }
            (3, Identification) => {
                self.rca = (argument >> 16) as u16;
                self.state = StandBy;
                CommandReply::R1
            }
            (5, StandBy | Sleep) if addressed => {
                self.state = if argument >> 15 & 1 == 1 { Sleep } else { StandBy };
                CommandReply::R1
            }
            (6, Selected) => {
                // The response precedes the switch; errors of the switch are in the status of a later response.
                let response = self.r1(Selected, false);
                self.switch(argument);
                CommandReply::Other(response)
            }
            (7, StandBy) if addressed => {
                self.state = Selected;
                CommandReply::R1
            }
            (7, Disconnected) if addressed => {
                self.program();
                CommandReply::R1
            }
            // CMD7 for another card, or CMD4, which has no effect because the card has no driver stage register (DSR_IMP is 0).
            (7, StandBy | Disconnected) | (4, StandBy) => CommandReply::Silent,
            (7, Selected | SendingData | Programming) if !addressed => {
                self.transfer = None;
                self.state = if self.state == Programming { Disconnected } else { StandBy };
                CommandReply::Silent
            }
            (8, Selected) => {
                self.ext_csd.report(self.device.health());
                self.send(self.ext_csd.bytes.to_vec())
            }
            (9 | 10, StandBy) if addressed => {
                CommandReply::Other(CardResponse::Long(if index == 9 { self.csd } else { self.cid }))
            }
            (12, SendingData) => {
                self.transfer = None;
                self.state = Selected;
                CommandReply::R1
            }
            (12, ReceivingData) => {
                self.end_write();
                CommandReply::R1
            }
            // CMD12 as a high-priority interrupt (HPI). Requests that are already in the device are not interrupted.
            (12, Programming) if addressed && argument & 1 == 1 && self.ext_csd.high_priority_interrupt() => CommandReply::R1,
            (13, StandBy | Selected | SendingData | ReceivingData | Programming | Disconnected | BusTest) if addressed => {
                CommandReply::R1
            }
            (14, BusTest) => {
                // CMD14 returns the first two bits of each data line inverted; the others are 0.
                let mut pattern = std::mem::take(&mut self.bus_pattern);
                let lines = pattern.len();
                for (at, byte) in pattern.iter_mut().enumerate() {
                    *byte = if at < lines.div_ceil(4) { !*byte } else { 0 };
                }
                self.send(pattern)
            }
            (15, StandBy | Selected | SendingData | ReceivingData | Programming | Disconnected) if addressed => {
                self.state = Inactive;
                CommandReply::Silent
            }
            (5 | 9 | 10 | 13 | 15, StandBy | Selected | SendingData | ReceivingData | Programming | Disconnected)
                if !addressed =>
            {
                CommandReply::Silent
            }
            (16, Selected) => {
                if argument as usize != SECTOR {
                    self.errors |= CardStatus::BLOCK_LEN_ERROR;
                }
                CommandReply::R1
            }
            (17, Selected) => {
                let single_block = PresetBlockCount { blocks: Some(1), modifiers: CommandFlags::empty() };
                self.start_read(argument, single_block);
                CommandReply::R1
            }
            (18, Selected) => {
                self.start_read(argument, count.unwrap_or(PresetBlockCount::OPEN));
                CommandReply::R1
            }
            (19, Selected) => {
                self.bus_pattern.clear();
                self.transfer = Some(CardTransfer::BusPattern);
                self.state = BusTest;
                CommandReply::R1
            }
            (21, Selected) if self.ext_csd.hs200() => match self.ext_csd.bus_lines() {
                8 => {
                    let double = |half: u8| half << 4 | half;
                    self.send(TUNING.iter().flat_map(|byte| [double(byte >> 4), double(byte & 0xf)]).collect())
                }
                _ => self.send(TUNING.to_vec()),
            },
            // Packed commands (bit 30 of the argument) are not supported.
            (23, Selected) if argument >> 30 & 1 == 0 => {
                let mut modifiers = CommandFlags::empty();
                modifiers.set(CommandFlags::RELIABLE, argument >> 31 & 1 == 1);
                modifiers.set(CommandFlags::META, argument >> 29 & 1 == 1);
                modifiers.set(CommandFlags::FORCED, argument >> 24 & 1 == 1);
                let blocks = argument & 0xffff;
                self.count = Some(PresetBlockCount { blocks: (blocks > 0).then_some(blocks), modifiers });
                CommandReply::R1
            }
            (24, Selected) => {
                let single_block = PresetBlockCount { blocks: Some(1), modifiers: CommandFlags::empty() };
                self.start_write(argument, single_block);
                CommandReply::R1
            }
            (25, Selected) => {
                self.start_write(argument, count.unwrap_or(PresetBlockCount::OPEN));
                CommandReply::R1
            }
            (35 | 36, Selected) => {
                if let Some(sector) = self.locate(argument) {
                    if index == 35 {
                        (self.erase.start, self.erase.end) = (Some(sector), None);
                    } else {
                        self.errors |= self.erase.end(sector);
                    }
                }
                CommandReply::R1
            }
            (38, Selected) => {
                match EraseOperation::of(argument, &self.ext_csd) {
                    Some(kind) => self.start_erase(kind),
                    None => self.errors |= CardStatus::ERROR,
                }
                CommandReply::R1
            }
            _ => return None,
        })
    }

    /// Starts to send data that is already available as a single block.
    fn send(&mut self, data: Vec<u8>) -> CommandReply {
        self.transfer = Some(CardTransfer::Fixed(data));
        self.state = CardState::SendingData;
        CommandReply::R1
    }

    /// Executes CMD6 (JESD84-B51, 6.6.1). Errors are reported in the status of the next command.
    fn switch(&mut self, argument: u32) {
        let (index, value) = ((argument >> 16) as u8, (argument >> 8) as u8);
        let access = match argument >> 24 & 0b11 {
            // The card has only the standard command set, so selecting another one is an error.
            0 => {
                if argument & 0b111 != 0 {
                    self.errors |= CardStatus::SWITCH_ERROR;
                }
                return;
            }
            1 => SwitchAccess::SetBits,
            2 => SwitchAccess::ClearBits,
            _ => SwitchAccess::WriteByte,
        };
        match self.ext_csd.switch(access, index, value) {
            Some(effect) => {
                self.start(effect);
                self.program();
            }
            None => self.errors |= CardStatus::SWITCH_ERROR,
        }
    }
}

impl PresetBlockCount {
    /// A transfer that lasts until CMD12.
    const OPEN: Self = Self { blocks: None, modifiers: CommandFlags::empty() };
}
