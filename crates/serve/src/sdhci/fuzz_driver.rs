//! Drives controller, card and protocol with arbitrary bytes, for fuzzing: no input may cause a panic, a hang or an invalid
//! request to the device.

use std::sync::{Arc, Mutex, PoisonError};

use super::card::{CardSettings, EmmcCard};
use super::controller::{GuestMemory, SdhciController, UnmappedAccess};
use super::function::SdhciPciFunction;
use super::vfio::{HEADER_BYTES, VfioHeader, VfioMessage};
use crate::device::{BlockAction, BlockDevice, CompletionReceiver, MemoryDevice, ServedCompletion, ServedRequest};
use crate::waker::ThreadWaker;

/// Size of guest memory in bytes; a power of two.
const MEMORY: usize = 1 << 16;
const SECTORS: u64 = 1 << 12;

/// Guest memory that begins at address 0.
pub(super) struct TestRam(pub Vec<u8>);

impl GuestMemory for TestRam {
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), UnmappedAccess> {
        let from = usize::try_from(address).map_err(|_| UnmappedAccess)?;
        into.copy_from_slice(self.0.get(from..).and_then(|part| part.get(..into.len())).ok_or(UnmappedAccess)?);
        Ok(())
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), UnmappedAccess> {
        let to = usize::try_from(address).map_err(|_| UnmappedAccess)?;
        let part = self.0.get_mut(to..).and_then(|part| part.get_mut(..from.len())).ok_or(UnmappedAccess)?;
        part.copy_from_slice(from);
        Ok(())
    }
}

/// Submits these requests to the device; returns their completions.
pub(super) fn completions_of(device: &MemoryDevice, requests: &mut Vec<ServedRequest>) -> Vec<ServedCompletion> {
    let collected = Arc::new(Mutex::<Vec<ServedCompletion>>::default());
    device.submit(requests, &(collected.clone() as Arc<dyn CompletionReceiver>));
    std::mem::take(&mut *collected.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A driver for tests, with the controller, the guest memory and the block device that it uses.
pub(super) struct TestMachine {
    pub controller: SdhciController,
    pub memory: TestRam,
    device: Arc<MemoryDevice>,
    /// Whether requests wait until [`Self::complete`].
    pub holds: bool,
    waiting: Vec<ServedRequest>,
}

impl TestMachine {
    pub fn new(settings: &CardSettings, sectors: u64, memory: usize) -> Self {
        let device = Arc::new(MemoryDevice::new(sectors));
        let controller = SdhciController::new(EmmcCard::new(settings, device.clone()));
        Self { controller, memory: TestRam(vec![0; memory]), device, holds: false, waiting: Vec::new() }
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) {
        self.controller.write(offset, data, &mut self.memory);
        self.step();
    }

    /// Advances the data transfer. Completes the requests of the card, except while `holds` is set.
    pub fn step(&mut self) {
        let limits = self.device.limits();
        loop {
            self.controller.step(&mut self.memory);
            let requests = self.controller.card.take_requests();
            for request in &requests {
                assert!(request.end() <= limits.sectors && request.sectors <= limits.max_sectors);
                match &request.action {
                    BlockAction::Write(data) => assert_eq!(data.len(), request.sectors as usize * 512),
                    BlockAction::Flush => assert_eq!(request.sectors, 0),
                    _ => assert!(request.sectors > 0),
                }
            }
            self.waiting.extend(requests);
            if self.holds || self.waiting.is_empty() {
                return;
            }
            self.submit();
        }
    }

    fn submit(&mut self) {
        for completion in completions_of(&self.device, &mut self.waiting) {
            self.controller.card.complete(completion);
        }
    }

    /// Completes the waiting requests.
    pub fn complete(&mut self) {
        self.submit();
        self.step();
    }

    fn command(&mut self, index: u8, argument: u32, flags: u8) {
        self.write(0x08, &argument.to_le_bytes());
        self.write(0x0e, &[flags, index]);
    }

    /// Turns power, clock and interrupts on, and selects the card.
    fn select(&mut self) {
        self.write(0x28, &0x0f10_u32.to_le_bytes());
        self.write(0x2c, &5_u32.to_le_bytes());
        self.write(0x34, &[0xff; 8]);
        for (index, argument, flags) in [(0, 0, 0), (1, 0x00ff_8080, 2), (2, 0, 1), (3, 1 << 16, 2), (7, 1 << 16, 3)] {
            self.command(index, argument, flags);
        }
    }
}

/// Settings with small partitions, which are created fast.
fn small() -> CardSettings {
    CardSettings { boot_bytes: 128 << 10, rpmb_bytes: 128 << 10, ..CardSettings::default() }
}

/// Interprets `data` as messages of a vfio-user client. Each message has a header and a payload. The payload length is the length field of
/// the header, modulo 512 bytes.
pub fn exercise_messages(data: &[u8]) {
    let device = Arc::new(MemoryDevice::new(SECTORS));
    let controller = SdhciController::new(EmmcCard::new(&small(), device.clone()));
    let Ok(wake) = ThreadWaker::new() else { return };
    let mut function = SdhciPciFunction::new(controller, device, Arc::new(wake));
    let mut rest = data;
    while let Some((header, behind)) = rest.split_first_chunk::<HEADER_BYTES>() {
        let header = VfioHeader::decode(header);
        let (payload, behind) = behind.split_at((header.bytes as usize % 512).min(behind.len()));
        rest = behind;
        let message = VfioMessage { header, payload: payload.to_vec(), files: Vec::new() };
        if let Ok(reply) = function.execute(message) {
            assert!(reply.len() <= 2 * 512, "no reply to a short message is long");
        }
    }
}

/// Interprets `data` as register accesses of a driver.
pub fn exercise(data: &[u8]) {
    let mut machine = TestMachine { holds: true, ..TestMachine::new(&small(), SECTORS, MEMORY) };
    let mut rest = data;
    while let Some((operation, behind)) = rest.split_first() {
        let Some((fields, behind)) = behind.split_first_chunk::<6>() else { break };
        rest = behind;
        let [kind, at, value @ ..] = *fields;
        match operation % 8 {
            0 => machine.select(),
            1 => machine.write(at.into(), &value[..1 << (kind % 3)]),
            2 => {
                machine.controller.read(at.into(), &mut [0; 8][..1 << (kind % 4)]);
                machine.step();
            }
            // Writes a DMA descriptor, or other bytes, into guest memory.
            3 => {
                let address = usize::from(at) * 8;
                machine.memory.0[address..address + 8].copy_from_slice(&[kind, 0, value[0], value[1], 0, value[2], value[3], 0]);
            }
            4 => machine.complete(),
            5 => machine.command(kind & 0x3f, u32::from_le_bytes(value), at),
            // The input of the fuzzer determines mode, block count, command and sector of a transfer. The descriptor table is at a small
            // address.
            6 => {
                machine.write(0x58, &u32::from(value[0]).to_le_bytes());
                machine.write(0x04, &[0, 2, value[1], 0]);
                machine.write(0x0c, &[kind, 0]);
                machine.command(at & 0x3f, u32::from(value[2]) << 9 | u32::from(value[3]) << 17, 0x3a);
            }
            _ => machine.command(6, 3 << 24 | u32::from(at) << 16 | u32::from(kind) << 8, 3),
        }
    }
    machine.complete();
}
