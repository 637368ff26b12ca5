//! The replay-protected memory block (JESD84-B51, 6.6.22): frames of 512 bytes, authenticated with HMAC-SHA256.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

const FRAME: usize = 512;
/// Bytes of data in an RPMB frame. Addresses in frames count units of this size.
const DATA: usize = 256;

/// The positions of the fields in an RPMB frame. Numbers are big-endian.
mod field {
    use std::ops::Range;
    pub const MAC: Range<usize> = 196..228;
    pub const DATA: Range<usize> = 228..484;
    pub const NONCE: Range<usize> = 484..500;
    pub const COUNTER: Range<usize> = 500..504;
    pub const ADDRESS: Range<usize> = 504..506;
    pub const BLOCKS: Range<usize> = 506..508;
    pub const RESULT: Range<usize> = 508..510;
    pub const TYPE: Range<usize> = 510..512;
    /// The bytes of an RPMB frame that the MAC covers.
    pub const SIGNED: Range<usize> = 228..512;
}

/// Types of RPMB requests; the type of a response is that of its request shifted left by eight bits.
mod request {
    pub const PROGRAM_KEY: u16 = 1;
    pub const READ_COUNTER: u16 = 2;
    pub const WRITE: u16 = 3;
    pub const READ: u16 = 4;
    pub const READ_RESULT: u16 = 5;
}

/// Result codes of an RPMB operation.
#[derive(Clone, Copy)]
enum RpmbResult {
    Ok = 0,
    GeneralFailure = 1,
    AuthenticationFailure = 2,
    CounterFailure = 3,
    AddressFailure = 4,
    NoKey = 7,
}

/// What the next read of the RPMB partition returns.
enum RpmbResponse {
    Nothing,
    /// The result of programming the key or of a write: request type, result, address.
    Result(u16, RpmbResult, u16),
    Counter([u8; 16]),
    Data {
        nonce: [u8; 16],
        address: u16,
    },
}

/// The RPMB partition: memory, key and write counter, which persist for the life of the card.
pub(super) struct RpmbPartition {
    memory: Vec<u8>,
    key: Option<[u8; 32]>,
    counter: u32,
    response: RpmbResponse,
}

fn read_number(frame: &[u8], range: std::ops::Range<usize>) -> u32 {
    frame[range].iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn write_number(frame: &mut [u8], range: std::ops::Range<usize>, value: u32) {
    let length = range.len();
    frame[range].copy_from_slice(&value.to_be_bytes()[4 - length..]);
}

fn read_bytes<const N: usize>(frame: &[u8], range: std::ops::Range<usize>) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&frame[range]);
    out
}

impl RpmbPartition {
    pub fn new(bytes: usize) -> Self {
        Self { memory: vec![0; bytes], key: None, counter: 0, response: RpmbResponse::Nothing }
    }

    /// Drops an unread response after a power loss.
    pub fn power_cycle(&mut self) {
        self.response = RpmbResponse::Nothing;
    }

    /// Computes the HMAC over the signed bytes of these frames; `None` if there is no key.
    fn mac(&self, frames: &[u8]) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key?).ok()?;
        frames.chunks_exact(FRAME).for_each(|frame| mac.update(&frame[field::SIGNED]));
        Some(mac)
    }

    /// Processes the frames of one write command; `reliable` is bit 31 of its CMD23.
    pub fn write(&mut self, frames: &[u8], reliable: bool) {
        let Some(last) = frames.chunks_exact(FRAME).last() else { return };
        let kind = read_number(last, field::TYPE) as u16;
        let single_frame = frames.len() == FRAME;
        let address = read_number(last, field::ADDRESS) as u16;
        self.response = match kind {
            request::PROGRAM_KEY => {
                // The key can be programmed only once.
                let outcome = if self.key.is_none() && single_frame && reliable {
                    self.key = Some(read_bytes(last, field::MAC));
                    RpmbResult::Ok
                } else {
                    RpmbResult::GeneralFailure
                };
                RpmbResponse::Result(kind, outcome, 0)
            }
            request::WRITE => {
                let outcome = if reliable { self.program(frames) } else { RpmbResult::GeneralFailure };
                RpmbResponse::Result(kind, outcome, address)
            }
            request::READ_COUNTER if single_frame => RpmbResponse::Counter(read_bytes(last, field::NONCE)),
            request::READ if single_frame => RpmbResponse::Data { nonce: read_bytes(last, field::NONCE), address },
            // READ_RESULT keeps the result of the previous operation for the next read.
            request::READ_RESULT if single_frame => return,
            _ => RpmbResponse::Result(kind, RpmbResult::GeneralFailure, 0),
        };
    }

    /// Executes an authenticated write: all of its frames or none.
    fn program(&mut self, frames: &[u8]) -> RpmbResult {
        let count = frames.len() / FRAME;
        let last = &frames[frames.len() - FRAME..];
        let Some(mac) = self.mac(frames) else { return RpmbResult::NoKey };
        if read_number(last, field::BLOCKS) as usize != count || !matches!(count, 1 | 2 | 32) {
            return RpmbResult::GeneralFailure;
        }
        if mac.verify_slice(&last[field::MAC]).is_err() {
            return RpmbResult::AuthenticationFailure;
        }
        if read_number(last, field::COUNTER) != self.counter || self.counter == u32::MAX {
            return RpmbResult::CounterFailure;
        }
        let from = read_number(last, field::ADDRESS) as usize * DATA;
        let Some(memory) = self.memory.get_mut(from..from + count * DATA) else {
            return RpmbResult::AddressFailure;
        };
        for (to, frame) in memory.chunks_exact_mut(DATA).zip(frames.chunks_exact(FRAME)) {
            to.copy_from_slice(&frame[field::DATA]);
        }
        self.counter += 1;
        RpmbResult::Ok
    }

    /// Returns the frames of one read command.
    pub fn read(&mut self, count: usize) -> Vec<u8> {
        let mut frames = vec![0; count * FRAME];
        let Some(from) = frames.len().checked_sub(FRAME) else { return frames };
        let mut kind = 0;
        let mut outcome = RpmbResult::Ok;
        match std::mem::replace(&mut self.response, RpmbResponse::Nothing) {
            RpmbResponse::Nothing => outcome = RpmbResult::GeneralFailure,
            RpmbResponse::Result(request, result, address) => {
                (kind, outcome) = (request, result);
                write_number(&mut frames[from..], field::ADDRESS, address.into());
            }
            RpmbResponse::Counter(nonce) => {
                kind = request::READ_COUNTER;
                frames[from..][field::NONCE].copy_from_slice(&nonce);
            }
            RpmbResponse::Data { nonce, address } => {
                kind = request::READ;
                let at = usize::from(address) * DATA;
                let memory = self.memory.get(at..at + count * DATA);
                for (number, frame) in frames.chunks_exact_mut(FRAME).enumerate() {
                    if let Some(memory) = memory {
                        frame[field::DATA].copy_from_slice(&memory[number * DATA..][..DATA]);
                    }
                    frame[field::NONCE].copy_from_slice(&nonce);
                    write_number(frame, field::ADDRESS, address.into());
                    write_number(frame, field::BLOCKS, count as u32);
                }
                if memory.is_none() {
                    outcome = RpmbResult::AddressFailure;
                }
            }
        }
        if self.key.is_none() && !matches!(outcome, RpmbResult::GeneralFailure) {
            outcome = RpmbResult::NoKey;
        }
        // Bit 7 of the result means that the write counter has reached its maximum.
        let expired = u32::from(self.counter == u32::MAX) << 7;
        for frame in frames.chunks_exact_mut(FRAME) {
            write_number(frame, field::TYPE, u32::from(kind) << 8);
            write_number(frame, field::RESULT, outcome as u32 | expired);
        }
        if matches!(kind, request::READ_COUNTER | request::WRITE) {
            write_number(&mut frames[from..], field::COUNTER, self.counter);
        }
        if let Some(mac) = self.mac(&frames) {
            frames[from..][field::MAC].copy_from_slice(&mac.finalize().into_bytes());
        }
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [7; 32];

    fn frame(kind: u16) -> Vec<u8> {
        let mut frame = vec![0; FRAME];
        write_number(&mut frame, field::TYPE, kind.into());
        frame
    }

    fn signed(mut frames: Vec<u8>, key: [u8; 32]) -> Vec<u8> {
        let signer = RpmbPartition { key: Some(key), ..RpmbPartition::new(0) };
        let mac = signer.mac(&frames).unwrap().finalize().into_bytes();
        let from = frames.len() - FRAME;
        frames[from..][field::MAC].copy_from_slice(&mac);
        frames
    }

    fn write(address: u32, counter: u32, data: &[u8]) -> Vec<u8> {
        let count = data.len() as u32;
        let frames = data.iter().flat_map(|byte| {
            let mut frame = frame(request::WRITE);
            frame[field::DATA].fill(*byte);
            write_number(&mut frame, field::ADDRESS, address);
            write_number(&mut frame, field::BLOCKS, count);
            write_number(&mut frame, field::COUNTER, counter);
            frame
        });
        frames.collect()
    }

    fn result(rpmb: &mut RpmbPartition) -> u32 {
        rpmb.write(&frame(request::READ_RESULT), false);
        read_number(&rpmb.read(1), field::RESULT)
    }

    fn keyed() -> RpmbPartition {
        let mut rpmb = RpmbPartition::new(128 << 10);
        let mut key = frame(request::PROGRAM_KEY);
        key[field::MAC].copy_from_slice(&KEY);
        rpmb.write(&key, true);
        assert_eq!(result(&mut rpmb), 0);
        rpmb
    }

    #[test]
    fn without_a_key_the_counter_is_refused_and_a_key_is_programmed_once() {
        let mut rpmb = RpmbPartition::new(128 << 10);
        rpmb.write(&frame(request::READ_COUNTER), false);
        assert_eq!(read_number(&rpmb.read(1), field::RESULT), 7);
        let mut rpmb = keyed();
        rpmb.write(&frame(request::PROGRAM_KEY), true);
        assert_eq!(result(&mut rpmb), 1);
    }

    #[test]
    fn an_authenticated_write_is_read_back_and_counted() {
        let mut rpmb = keyed();
        rpmb.write(&signed(write(3, 0, &[5, 6]), KEY), true);
        assert_eq!(result(&mut rpmb), 0);
        let mut read = frame(request::READ);
        write_number(&mut read, field::ADDRESS, 3);
        read[field::NONCE].fill(9);
        rpmb.write(&read, false);
        let frames = rpmb.read(2);
        let data: Vec<_> = frames.chunks(FRAME).map(|frame| frame[field::DATA][0]).collect();
        assert_eq!(data, [5, 6]);
        assert_eq!(frames, signed(frames.clone(), KEY));
        assert_eq!(frames[FRAME..][field::NONCE], [9; 16]);
        rpmb.write(&frame(request::READ_COUNTER), false);
        let counter = rpmb.read(1);
        assert_eq!((read_number(&counter, field::COUNTER), read_number(&counter, field::TYPE)), (1, 0x200));
    }

    #[test]
    fn a_write_that_is_replayed_forged_or_out_of_range_changes_nothing() {
        let mut rpmb = keyed();
        for (frames, expected) in [
            (signed(write(0, 0, &[1]), [8; 32]), 2),
            (signed(write(0, 1, &[1]), KEY), 3),
            (signed(write(511, 0, &[1, 2]), KEY), 4),
            (signed(write(0, 0, &[1, 2, 3]), KEY), 1),
        ] {
            rpmb.write(&frames, true);
            assert_eq!(result(&mut rpmb), expected);
        }
        assert!(rpmb.memory.iter().all(|byte| *byte == 0) && rpmb.counter == 0);
    }
}
