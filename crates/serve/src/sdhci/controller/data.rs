//! Data transfers between card and guest through the buffer port, by SDMA, or by ADMA2 with 32-bit addresses (SD Host Controller
//! Simplified Specification 2.00, 1.13).

use super::{GuestMemory, SdhciController, interrupt, mode};
use crate::sdhci::card::{CardResponse, ClockedData};

/// Maximum length of a block in bytes, as reported by the capabilities register.
const MOST_BLOCK: usize = 512;
/// Maximum length of a transfer in bytes: the maximum block count times the largest block.
const MOST_BYTES: usize = 65535 * MOST_BLOCK;

/// How data is moved to and from the guest.
enum TransferEngine {
    Port,
    Sdma,
    /// ADMA2: the reader of the descriptor table, and the part of the current memory segment that is not transferred yet.
    Adma(AdmaTableReader, DmaSegment),
}

/// What a transfer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferPause {
    /// The transfer waits for nothing and can continue.
    None,
    /// The driver must read or write the buffer port.
    Port,
    /// The driver must set the address of the next SDMA buffer.
    Boundary,
    Card,
}

/// A data transfer in progress between the card and the guest.
pub(super) struct ControllerTransfer {
    pub reads: bool,
    engine: TransferEngine,
    block_bytes: usize,
    /// Number of remaining blocks, without those in `data`; `None` for an open-ended transfer, which CMD12 ends.
    left: Option<u32>,
    /// Data of the blocks in transfer. Its first `moved` bytes are already copied.
    data: Vec<u8>,
    moved: usize,
    auto_stop: bool,
    pub pause: TransferPause,
}

/// Why a transfer ends early.
enum TransferFault {
    /// The card sends no data, or does not acknowledge it.
    Card,
    /// Guest memory or the descriptor table cannot be used. The second field is true if the table and the transfer differ in length.
    Adma(AdmaState, bool),
    /// SDMA accessed an address without guest memory.
    Sdma,
}

impl ControllerTransfer {
    pub fn waits_for_port(&self) -> bool {
        self.pause == TransferPause::Port
    }

    /// Number of blocks that one step transfers: all remaining blocks, or a single block if the data port is used or the length of the
    /// transfer is unknown.
    fn chunk(&self) -> u32 {
        match (&self.engine, self.left) {
            (TransferEngine::Port, _) | (_, None) => 1,
            (_, Some(left)) => left,
        }
    }
}

impl SdhciController {
    /// Starts the data phase of the last command.
    pub(super) fn start_transfer(&mut self, memory: &mut dyn GuestMemory) {
        let registers = &self.registers;
        let flags = registers.mode;
        let reads = flags & mode::READ != 0;
        let block_bytes = usize::from(registers.block_size & 0xfff);
        let mut left = match (flags & mode::MULTIPLE != 0, flags & mode::BLOCK_COUNT != 0) {
            (false, _) => Some(1),
            (true, true) => Some(u32::from(registers.block_count)),
            (true, false) => None,
        };
        if block_bytes == 0 || block_bytes > MOST_BLOCK || left == Some(0) {
            self.raise(interrupt::DATA_TIMEOUT);
            return;
        }
        let engine = match (flags & mode::DMA != 0, registers.host_control >> 3 & 0b11) {
            (false, _) => TransferEngine::Port,
            (true, 0) => TransferEngine::Sdma,
            (true, 2) => {
                let adma = AdmaTableReader::new(registers.adma_address as u32);
                if left.is_none() {
                    // Without a block count, the ADMA descriptor table determines the length.
                    match adma.total(memory, MOST_BYTES) {
                        Ok(bytes) if bytes > 0 && bytes.is_multiple_of(block_bytes) => {
                            left = Some((bytes / block_bytes) as u32);
                        }
                        Ok(_) => return self.fail(&TransferFault::Adma(AdmaState::Transfer, true)),
                        Err(state) => return self.fail(&TransferFault::Adma(state, false)),
                    }
                }
                TransferEngine::Adma(adma, DmaSegment { address: 0, bytes: 0 })
            }
            // The controller supports no other kind of DMA, so the transfer fails.
            (true, _) => return self.fail(&TransferFault::Adma(AdmaState::Stop, false)),
        };
        let mut transfer = ControllerTransfer {
            reads,
            engine,
            block_bytes,
            left,
            data: Vec::new(),
            moved: 0,
            auto_stop: flags & mode::AUTO_CMD12 != 0,
            pause: TransferPause::None,
        };
        self.begin_chunk(&mut transfer);
        self.transfer = Some(transfer);
    }

    /// Starts the transfer of the next blocks: a read requests them from the card, a write allocates a buffer for them.
    fn begin_chunk(&mut self, transfer: &mut ControllerTransfer) {
        let blocks = transfer.chunk();
        transfer.moved = 0;
        transfer.left = transfer.left.map(|left| left - blocks);
        if transfer.reads {
            self.card.start_clocking(blocks, transfer.block_bytes);
            transfer.data.clear();
            transfer.pause = TransferPause::Card;
        } else {
            transfer.data.clear();
            transfer.data.resize(blocks as usize * transfer.block_bytes, 0);
            self.offer(transfer);
        }
    }

    /// Marks a transfer as ready to move its data. If the data goes through the buffer port, raises the interrupt that asks the driver to
    /// access the port.
    fn offer(&mut self, transfer: &mut ControllerTransfer) {
        transfer.pause = TransferPause::None;
        if matches!(transfer.engine, TransferEngine::Port) {
            transfer.pause = TransferPause::Port;
            self.raise(if transfer.reads { interrupt::BUFFER_READ_READY } else { interrupt::BUFFER_WRITE_READY });
        }
    }

    /// Moves data as far as possible. Must be called after every register access and every completion.
    pub fn step(&mut self, memory: &mut dyn GuestMemory) {
        while let Some(mut transfer) = self.transfer.take() {
            match self.advance(&mut transfer, memory) {
                Ok(true) => self.transfer = Some(transfer),
                // The transfer is paused and continues later.
                Ok(false) if transfer.pause != TransferPause::None => {
                    self.transfer = Some(transfer);
                    break;
                }
                // The last block of the transfer has been moved.
                Ok(false) => {
                    if transfer.auto_stop {
                        if let CardResponse::Short(bits) = self.card.command(12, 0) {
                            self.registers.response[3] = bits;
                        } else {
                            self.registers.auto_command_error |= 1 << 1;
                            self.raise(interrupt::AUTO_COMMAND);
                        }
                    }
                    self.ending = true;
                }
                Err(fault) => self.fail(&fault),
            }
        }
        if self.ending && self.transfer.is_none() && !self.card.busy() {
            self.ending = false;
            self.raise(interrupt::TRANSFER_COMPLETE);
        }
    }

    fn fail(&mut self, fault: &TransferFault) {
        match *fault {
            TransferFault::Card | TransferFault::Sdma => self.raise(interrupt::DATA_TIMEOUT),
            TransferFault::Adma(state, mismatch) => {
                self.registers.adma_error = state as u32 | u32::from(mismatch) << 2;
                self.raise(interrupt::ADMA);
            }
        }
    }

    /// Advances the transfer by one step. Returns false if the transfer waits, or if it has ended (its pause is then
    /// [`TransferPause::None`]).
    fn advance(&mut self, transfer: &mut ControllerTransfer, memory: &mut dyn GuestMemory) -> Result<bool, TransferFault> {
        if transfer.pause == TransferPause::Card {
            if !transfer.reads {
                if self.card.busy() {
                    return Ok(false);
                }
                self.begin_chunk(transfer);
                return Ok(transfer.pause == TransferPause::None);
            }
            match self.card.take_clocked() {
                ClockedData::Waiting => return Ok(false),
                ClockedData::Failed => return Err(TransferFault::Card),
                ClockedData::Data(data) => transfer.data = data,
            }
            self.offer(transfer);
        }
        match transfer.pause {
            TransferPause::None => {}
            TransferPause::Port if transfer.moved == transfer.data.len() => {
                transfer.pause = TransferPause::None;
            }
            _ => return Ok(false),
        }
        if !self.copy(transfer, memory)? {
            transfer.pause = TransferPause::Boundary;
            return Ok(false);
        }
        // All blocks in `data` have been moved to or from the guest.
        if !transfer.reads && !self.card.push(&transfer.data) {
            return Err(TransferFault::Card);
        }
        if self.registers.mode & mode::BLOCK_COUNT != 0 {
            self.registers.block_count = transfer.left.unwrap_or(0) as u16;
        }
        if transfer.left == Some(0) {
            return Ok(false);
        }
        if transfer.reads {
            self.begin_chunk(transfer);
        } else {
            transfer.pause = TransferPause::Card;
        }
        Ok(true)
    }

    /// Copies between the buffer `data` of the transfer and guest memory. Returns false if SDMA stops at a buffer boundary.
    fn copy(&mut self, transfer: &mut ControllerTransfer, memory: &mut dyn GuestMemory) -> Result<bool, TransferFault> {
        while transfer.moved < transfer.data.len() {
            let rest = transfer.data.len() - transfer.moved;
            let (address, bytes) = match &mut transfer.engine {
                TransferEngine::Port => return Ok(true),
                TransferEngine::Sdma => {
                    let boundary = 4096_u64 << (self.registers.block_size >> 12);
                    let address = u64::from(self.registers.system_address);
                    (address, (boundary - address % boundary).min(rest as u64) as usize)
                }
                TransferEngine::Adma(adma, segment) => {
                    while segment.bytes == 0 {
                        match adma.next(memory) {
                            Ok(Some(next)) => *segment = next,
                            Ok(None) => return Err(TransferFault::Adma(AdmaState::Transfer, true)),
                            Err(state) => {
                                self.registers.adma_address = adma.address.into();
                                return Err(TransferFault::Adma(state, false));
                            }
                        }
                    }
                    (segment.address, segment.bytes.min(rest))
                }
            };
            let part = &mut transfer.data[transfer.moved..transfer.moved + bytes];
            let done = if transfer.reads { memory.write(address, part) } else { memory.read(address, part) };
            transfer.moved += bytes;
            match &mut transfer.engine {
                TransferEngine::Port => {}
                TransferEngine::Sdma => {
                    done.map_err(|_| TransferFault::Sdma)?;
                    let next = address + bytes as u64;
                    self.registers.system_address = next as u32;
                    let boundary = 4096_u64 << (self.registers.block_size >> 12);
                    let last = transfer.moved == transfer.data.len() && transfer.left == Some(0);
                    if next.is_multiple_of(boundary) && !last {
                        self.raise(interrupt::DMA);
                        return Ok(false);
                    }
                }
                TransferEngine::Adma(adma, segment) => {
                    done.map_err(|_| TransferFault::Adma(AdmaState::Transfer, false))?;
                    segment.address += bytes as u64;
                    segment.bytes -= bytes;
                    let interrupt = std::mem::take(&mut adma.interrupt);
                    self.registers.adma_address = adma.address.into();
                    if interrupt {
                        self.raise(interrupt::DMA);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Handles a read of the buffer port register by the driver.
    pub(super) fn read_buffer(&mut self, into: &mut [u8]) {
        into.fill(0);
        if let Some(transfer) = self.transfer.as_mut().filter(|transfer| transfer.reads && transfer.waits_for_port()) {
            let bytes = into.len().min(transfer.data.len() - transfer.moved);
            into[..bytes].copy_from_slice(&transfer.data[transfer.moved..transfer.moved + bytes]);
            transfer.moved += bytes;
        }
    }

    /// Handles a write of the buffer port register by the driver.
    pub(super) fn write_buffer(&mut self, from: &[u8], memory: &mut dyn GuestMemory) {
        if let Some(transfer) = self.transfer.as_mut().filter(|transfer| !transfer.reads && transfer.waits_for_port()) {
            let bytes = from.len().min(transfer.data.len() - transfer.moved);
            transfer.data[transfer.moved..transfer.moved + bytes].copy_from_slice(&from[..bytes]);
            transfer.moved += bytes;
            if transfer.moved == transfer.data.len() {
                self.step(memory);
            }
        }
    }
}

/// Maximum number of descriptors that are read for a transfer, so that a table that links back to itself does not loop forever.
const MOST_DESCRIPTORS: u32 = 1 << 18;

/// States of the DMA engine that the error register reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdmaState {
    Stop = 0,
    FetchDescriptor = 1,
    Transfer = 3,
}

/// A contiguous range of guest memory that a DMA transfer reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DmaSegment {
    pub address: u64,
    pub bytes: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct AdmaTableReader {
    /// The address of the next descriptor.
    address: u32,
    descriptors_read: u32,
    ended: bool,
    /// Whether a descriptor requested an interrupt.
    pub interrupt: bool,
}

impl AdmaTableReader {
    pub fn new(address: u32) -> Self {
        Self { address, descriptors_read: 0, ended: false, interrupt: false }
    }

    /// The next segment of memory; `None` after the end of the table. An error if a descriptor cannot be read or is invalid.
    pub fn next(&mut self, memory: &mut dyn GuestMemory) -> Result<Option<DmaSegment>, AdmaState> {
        while !self.ended {
            let mut descriptor = [0; 8];
            self.descriptors_read += 1;
            // ADMA descriptors must be aligned to four bytes.
            if self.descriptors_read > MOST_DESCRIPTORS || !self.address.is_multiple_of(4) {
                return Err(AdmaState::FetchDescriptor);
            }
            memory.read(self.address.into(), &mut descriptor).map_err(|_| AdmaState::FetchDescriptor)?;
            let [attributes, _, low, high, address @ ..] = descriptor;
            let (length, address) = (u16::from_le_bytes([low, high]), u32::from_le_bytes(address));
            let [valid, end, interrupt] = [0, 1, 2].map(|bit| attributes >> bit & 1 == 1);
            if !valid {
                return Err(AdmaState::FetchDescriptor);
            }
            self.ended = end;
            self.interrupt |= interrupt;
            let link = attributes >> 4 & 0b11 == 0b11;
            self.address = if link { address } else { self.address.wrapping_add(8) };
            if attributes >> 4 & 0b11 == 0b10 {
                // A length of 0 means 65536 bytes.
                let bytes = if length == 0 { 1 << 16 } else { usize::from(length) };
                return Ok(Some(DmaSegment { address: address.into(), bytes }));
            }
        }
        Ok(None)
    }

    /// Total number of bytes of all segments in the table; an error if there are more than `most`.
    pub fn total(mut self, memory: &mut dyn GuestMemory, most: usize) -> Result<usize, AdmaState> {
        let mut total = 0;
        while let Some(segment) = self.next(memory)? {
            total += segment.bytes;
            if total > most {
                return Err(AdmaState::FetchDescriptor);
            }
        }
        Ok(total)
    }
}
