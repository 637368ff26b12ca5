//! The PCI function that a vfio-user client accesses: its configuration space (PCI Local Bus 3.0, chapter 6), regions, interrupts, and
//! requests to the block device.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::SessionEvent;
use super::controller::SdhciController;
use super::vfio::{
    ConnectionLoss, DmaMappings, GuestDma, MOST_DATA, VfioFieldReader, VfioLink, VfioMessage, command, reply, wait,
};
use crate::device::{BlockDevice, CompletionReceiver, ServedCompletion};
use crate::waker::ThreadWaker;

/// Number of regions of a PCI function, as in Linux's `vfio.h`.
const REGIONS: u32 = 9;
const BAR_REGION: u32 = 0;
const CONFIGURATION_REGION: u32 = 7;
const IRQS: u32 = 5;
const INTX: u32 = 0;

/// Flags of a device that is a PCI function and can be reset.
const DEVICE_FLAGS: u32 = 0b11;
/// Flags of a region that can be read and written.
const REGION_FLAGS: u32 = 0b11;
/// Flags of an interrupt that an eventfd signals and that is masked automatically when it fires.
const INTX_FLAGS: u32 = 0b111;

/// Flags of `SET_IRQS`.
mod irq {
    pub const NO_DATA: u32 = 1;
    pub const FILES: u32 = 1 << 2;
    pub const MASK: u32 = 1 << 3;
    pub const UNMASK: u32 = 1 << 4;
    pub const TRIGGER: u32 = 1 << 5;
}

/// Flag of `DMA_UNMAP` for all mappings.
const UNMAP_ALL: u32 = 1 << 1;

/// Receives completions from any thread and passes them to the thread that serves the client.
struct VfioCompletionInbox {
    completed: Mutex<Vec<ServedCompletion>>,
    wake: Arc<ThreadWaker>,
}

impl VfioCompletionInbox {
    fn take(&self) -> Vec<ServedCompletion> {
        std::mem::take(&mut *self.completed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl CompletionReceiver for VfioCompletionInbox {
    fn complete(&self, completed: &mut Vec<ServedCompletion>) {
        let first = {
            let mut inbox = self.completed.lock().unwrap_or_else(PoisonError::into_inner);
            let first = inbox.is_empty();
            inbox.append(completed);
            first
        };
        if first {
            self.wake.wake();
        }
    }
}

/// The interrupt line as the client sees it: level-triggered, masked automatically when it fires.
#[derive(Default)]
struct Intx {
    trigger: Option<OwnedFd>,
    /// An eventfd with which the client unmasks the interrupt instead of sending a message; hypervisors with resampling use it.
    unmask: Option<OwnedFd>,
    masked: bool,
}

/// An SD host controller as a PCI function, with its block device. It persists between connections.
pub(super) struct SdhciPciFunction {
    controller: SdhciController,
    configuration: PciConfigSpace,
    device: Arc<dyn BlockDevice>,
    inbox: Arc<VfioCompletionInbox>,
    completions: Arc<dyn CompletionReceiver>,
    memory: DmaMappings,
    intx: Intx,
    /// Whether the guest has used memory for a transfer that the client does not share.
    unshared: bool,
    /// Whether the client has negotiated the version of the protocol.
    greeted: bool,
}

/// An access to a region, as encoded at the beginning of a message.
struct RegionAccess {
    offset: u64,
    region: u32,
    count: usize,
}

impl RegionAccess {
    const BYTES: usize = 16;

    /// Parses an access to a region; returns the access and the bytes after it.
    fn decode(payload: &[u8]) -> Result<(Self, &[u8]), Errno> {
        let mut fields = VfioFieldReader(payload);
        let (offset, region, count) = (fields.u64()?, fields.u32()?, fields.u32()? as usize);
        if count > MOST_DATA {
            return Err(Errno::INVAL);
        }
        Ok((Self { offset, region, count }, fields.rest()))
    }

    /// Whether the access is for the registers of the controller.
    fn of_registers(&self) -> bool {
        self.region == BAR_REGION && self.offset.saturating_add(self.count as u64) <= u64::from(BAR_BYTES)
    }
}

impl SdhciPciFunction {
    pub fn new(controller: SdhciController, device: Arc<dyn BlockDevice>, wake: Arc<ThreadWaker>) -> Self {
        let inbox = Arc::new(VfioCompletionInbox { completed: Mutex::default(), wake });
        let completions: Arc<dyn CompletionReceiver> = inbox.clone();
        Self {
            controller,
            configuration: PciConfigSpace::new(),
            device,
            inbox,
            completions,
            memory: DmaMappings::default(),
            intx: Intx::default(),
            unshared: false,
            greeted: false,
        }
    }

    /// Resets the function to its state after power-up.
    fn reset(&mut self) {
        self.controller.reset();
        self.configuration = PciConfigSpace::new();
        self.intx.masked = false;
    }

    fn dma<'a>(memory: &'a DmaMappings, configuration: &PciConfigSpace) -> GuestDma<'a> {
        GuestDma { memory, allowed: configuration.bytes[COMMAND] & COMMAND_BUS_MASTER != 0, unshared: false }
    }

    /// Advances card and controller until they wait for the block device or the guest, then updates the interrupt line.
    fn work(&mut self) {
        loop {
            for completion in self.inbox.take() {
                self.controller.card.complete(completion);
            }
            let mut dma = Self::dma(&self.memory, &self.configuration);
            self.controller.step(&mut dma);
            self.unshared |= dma.unshared;
            let mut requests = self.controller.card.take_requests();
            if requests.is_empty() {
                break;
            }
            self.device.submit(&mut requests, &self.completions);
        }
        self.signal();
    }

    /// Fires the interrupt if the line is asserted and not masked.
    fn signal(&mut self) {
        let asserted = self.configuration.interrupts() && self.controller.interrupt();
        if let Some(trigger) = self.intx.trigger.as_ref().filter(|_| asserted && !self.intx.masked) {
            self.intx.masked = true;
            // If the eventfd counter is at its maximum, the write fails, but the client is notified anyway.
            let _ = rustix::io::write(trigger, &1_u64.to_ne_bytes());
        }
    }

    /// Executes a command and sends the reply.
    fn handle(&mut self, link: &mut VfioLink<'_>, message: VfioMessage) -> Result<(), ConnectionLoss> {
        let header = message.header;
        if header.is_reply() {
            // This PCI function sends no commands to the client, so it expects no replies.
            return Ok(());
        }
        let outcome = self.execute(message);
        if header.wants_reply() {
            link.send(&reply(&header, outcome.as_deref().map_err(|errno| *errno)))?;
        }
        Ok(())
    }

    /// Executes a command; returns the payload of the reply, or the errno.
    pub fn execute(&mut self, message: VfioMessage) -> Result<Vec<u8>, Errno> {
        let VfioMessage { header, payload, files } = message;
        match header.command {
            command::REGION_READ => {
                let (access, _) = RegionAccess::decode(&payload)?;
                let mut out = payload[..RegionAccess::BYTES].to_vec();
                out.resize(RegionAccess::BYTES + access.count, 0);
                let data = &mut out[RegionAccess::BYTES..];
                if access.of_registers() {
                    self.controller.read(access.offset, data);
                    self.work();
                    Ok(out)
                } else if access.region == CONFIGURATION_REGION
                    && self.configuration.read(access.offset, data, self.controller.interrupt())
                {
                    Ok(out)
                } else {
                    Err(Errno::INVAL)
                }
            }
            command::REGION_WRITE => {
                let (access, data) = RegionAccess::decode(&payload)?;
                if data.len() != access.count {
                    return Err(Errno::INVAL);
                }
                if access.of_registers() {
                    let mut dma = Self::dma(&self.memory, &self.configuration);
                    self.controller.write(access.offset, data, &mut dma);
                    self.unshared |= dma.unshared;
                    self.work();
                } else if access.region == CONFIGURATION_REGION && self.configuration.write(access.offset, data) {
                    self.signal();
                } else {
                    return Err(Errno::INVAL);
                }
                Ok(payload[..RegionAccess::BYTES].to_vec())
            }
            command::DEVICE_RESET => {
                self.reset();
                Ok(Vec::new())
            }
            number => self.set_up(number, &payload, files),
        }
    }

    /// Executes a command that describes the function, shares memory or connects interrupts.
    fn set_up(&mut self, number: u16, payload: &[u8], mut files: Vec<OwnedFd>) -> Result<Vec<u8>, Errno> {
        let mut fields = VfioFieldReader(payload);
        match number {
            command::VERSION => version(payload).inspect(|_| self.greeted = true),
            command::DEVICE_INFO => Ok(words(&[16, DEVICE_FLAGS, REGIONS, IRQS])),
            command::REGION_INFO => {
                let (_, _, index) = (fields.u32()?, fields.u32()?, fields.u32()?);
                let bytes = match index {
                    BAR_REGION => u64::from(BAR_BYTES),
                    CONFIGURATION_REGION => CONFIGURATION_BYTES as u64,
                    other if other < REGIONS => 0,
                    _ => return Err(Errno::INVAL),
                };
                let flags = if bytes > 0 { REGION_FLAGS } else { 0 };
                let mut out = words(&[32, flags, index, 0]);
                out.extend_from_slice(&bytes.to_ne_bytes());
                out.extend_from_slice(&0_u64.to_ne_bytes());
                Ok(out)
            }
            command::IRQ_INFO => {
                let (_, _, index) = (fields.u32()?, fields.u32()?, fields.u32()?);
                match index {
                    INTX => Ok(words(&[16, INTX_FLAGS, INTX, 1])),
                    other if other < IRQS => Ok(words(&[16, 0, other, 0])),
                    _ => Err(Errno::INVAL),
                }
            }
            command::DMA_MAP => {
                let (_, flags, offset) = (fields.u32()?, fields.u32()?, fields.u64()?);
                let (address, bytes) = (fields.u64()?, fields.u64()?);
                if files.len() > 1 {
                    return Err(Errno::INVAL);
                }
                let file = files.pop().map(|file| (file, offset));
                self.memory.map(address, bytes, flags, file).map(|()| Vec::new())
            }
            command::DMA_UNMAP => {
                let (_, flags, address, bytes) = (fields.u32()?, fields.u32()?, fields.u64()?, fields.u64()?);
                if flags & UNMAP_ALL == 0 {
                    self.memory.unmap(address, bytes)?;
                } else {
                    self.memory = DmaMappings::default();
                }
                payload.get(..24).map(<[u8]>::to_vec).ok_or(Errno::INVAL)
            }
            command::SET_IRQS => {
                let (_, flags, index) = (fields.u32()?, fields.u32()?, fields.u32()?);
                let (start, count) = (fields.u32()?, fields.u32()?);
                if index != INTX {
                    // The PCI function has no interrupts other than INTx. Disabling the others has no effect.
                    return if index < IRQS && count == 0 { Ok(Vec::new()) } else { Err(Errno::INVAL) };
                }
                self.set_intx(flags, start, count, files).map(|()| Vec::new())
            }
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    fn set_intx(&mut self, flags: u32, start: u32, count: u32, mut files: Vec<OwnedFd>) -> Result<(), Errno> {
        if start != 0 || count > 1 || files.len() > 1 {
            return Err(Errno::INVAL);
        }
        let file = files.pop();
        if let Some(file) = &file {
            // The event file must not block, because a blocking write could hang the export.
            rustix::io::ioctl_fionbio(file, true)?;
        }
        match flags {
            _ if flags == irq::FILES | irq::TRIGGER && count == 1 => {
                self.intx = Intx { trigger: file, ..Intx::default() };
            }
            _ if flags == irq::FILES | irq::UNMASK && count == 1 => self.intx.unmask = file,
            _ if flags == irq::NO_DATA | irq::TRIGGER && count == 0 => self.intx = Intx::default(),
            _ if flags == irq::NO_DATA | irq::TRIGGER => {
                if let Some(trigger) = &self.intx.trigger {
                    let _ = rustix::io::write(trigger, &1_u64.to_ne_bytes());
                }
            }
            _ if flags == irq::NO_DATA | irq::MASK => self.intx.masked = true,
            _ if flags == irq::NO_DATA | irq::UNMASK => self.intx.masked = false,
            _ => return Err(Errno::INVAL),
        }
        self.signal();
        Ok(())
    }

    /// Waits for an event and processes it: a message, completions, a request to stop or to unmask the interrupt, or the arrival of another
    /// client.
    fn turn(&mut self, link: &mut VfioLink<'_>, listener: &OwnedFd) -> Result<(), ConnectionLoss> {
        let [socket, wake, other, unmask] = {
            let unmask = self.intx.unmask.as_ref().unwrap_or(&link.wake.event);
            let mut files = [&link.socket, &link.wake.event, listener, unmask].map(|file| PollFd::new(file, PollFlags::IN));
            wait(&mut files)?;
            files.map(|file| !file.revents().is_empty())
        };
        if wake {
            link.wake.clear();
            if link.wake.is_stopping() {
                return Err(ConnectionLoss::Stopped);
            }
            self.work();
        }
        if let Some(file) = self.intx.unmask.as_ref().filter(|_| unmask) {
            if rustix::io::read(file, &mut [0; 8]).is_ok() {
                self.intx.masked = false;
                self.signal();
            } else {
                self.intx.unmask = None;
            }
        }
        if other {
            // Only one client is served at a time, so a second client is disconnected.
            drop(rustix::net::accept(listener));
        }
        if socket {
            let message = link.receive()?;
            self.handle(link, message)?;
        }
        // Receiving a message may have reset the wake event. The pending work that the event announced is therefore done in every case.
        self.work();
        Ok(())
    }
}

/// Serves one client until it disconnects, then resets the function as after a power loss. Calls `news` once when the client uses the
/// protocol, and once when the guest uses memory that the client does not share. Returns why the connection ended, and whether the client
/// used the protocol. A program that only checks whether the socket is alive does not use it.
pub(super) fn serve(
    function: &mut SdhciPciFunction, mut link: VfioLink<'_>, listener: &OwnedFd, news: impl Fn(SessionEvent),
) -> (ConnectionLoss, bool) {
    (function.unshared, function.greeted) = (false, false);
    let lost = loop {
        let before = (function.unshared, function.greeted);
        let turn = function.turn(&mut link, listener);
        if function.greeted && !before.1 {
            news(SessionEvent::Connected);
        }
        if function.unshared && !before.0 {
            news(SessionEvent::MemoryNotShared);
        }
        if let Err(lost) = turn {
            break lost;
        }
    };
    function.reset();
    function.memory = DmaMappings::default();
    function.intx = Intx::default();
    (lost, function.greeted)
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The reply to the command `VERSION`: version 0.0, and the limits of this server.
fn version(payload: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut fields = VfioFieldReader(payload);
    let (major, _minor) = (fields.u16()?, fields.u16()?);
    let text = fields.rest();
    let text = text.strip_suffix(&[0]).unwrap_or(text);
    let readable = text.is_empty() || serde_json::from_slice::<serde_json::Value>(text).is_ok();
    if major != 0 || !readable {
        return Err(Errno::INVAL);
    }
    let capabilities = serde_json::json!({ "capabilities": { "max_msg_fds": 8, "max_data_xfer_size": MOST_DATA } });
    let mut out = vec![0; 4];
    out.extend_from_slice(capabilities.to_string().as_bytes());
    out.push(0);
    Ok(out)
}

pub(super) const CONFIGURATION_BYTES: usize = 256;
/// Size in bytes of BAR 0, which has the registers of the only slot.
pub(super) const BAR_BYTES: u32 = 256;

const COMMAND: usize = 0x04;
const COMMAND_MEMORY: u8 = 1 << 1;
const COMMAND_BUS_MASTER: u8 = 1 << 2;
/// The bit "interrupt disable" of the command register, in its upper byte.
const COMMAND_NO_INTERRUPT: u8 = 1 << 2;
const STATUS: usize = 0x06;
const STATUS_INTERRUPT: u8 = 1 << 3;
const INTERRUPT_LINE: usize = 0x3c;

/// The configuration space of an SD host controller: identifiers of QEMU's `sdhci-pci`, class 0x0805, one slot in BAR 0, interrupt pin A.
pub(super) struct PciConfigSpace {
    bytes: [u8; CONFIGURATION_BYTES],
}

impl PciConfigSpace {
    pub fn new() -> Self {
        let mut bytes = [0; CONFIGURATION_BYTES];
        bytes[..4].copy_from_slice(&[0x36, 0x1b, 0x07, 0x00]);
        // PCI class code: revision, programming interface (with DMA), subclass and class.
        bytes[0x08..0x0c].copy_from_slice(&[0, 0x01, 0x05, 0x08]);
        // Subsystem vendor id and subsystem id of QEMU.
        bytes[0x2c..0x30].copy_from_slice(&[0xf4, 0x1a, 0x00, 0x11]);
        bytes[0x3d] = 1;
        Self { bytes }
    }

    /// Reads a range of the configuration space; returns false if the range is not inside it.
    pub fn read(&self, offset: u64, data: &mut [u8], interrupt: bool) -> bool {
        let Some(from) = range(offset, data.len()) else { return false };
        let start = from.start;
        data.copy_from_slice(&self.bytes[from]);
        if let Some(status) = STATUS.checked_sub(start).and_then(|at| data.get_mut(at)).filter(|_| interrupt) {
            *status |= STATUS_INTERRUPT;
        }
        true
    }

    /// Writes a range of the configuration space, except read-only bits; returns false if the range is not inside it.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> bool {
        let Some(to) = range(offset, data.len()) else { return false };
        for (at, value) in to.zip(data) {
            let writable = match at {
                COMMAND => COMMAND_MEMORY | COMMAND_BUS_MASTER,
                0x05 => COMMAND_NO_INTERRUPT,
                // BAR 0 has 256 bytes of 32-bit, non-prefetchable memory, so its lowest byte is always 0.
                0x11..=0x13 | INTERRUPT_LINE => 0xff,
                _ => 0,
            };
            self.bytes[at] = self.bytes[at] & !writable | value & writable;
        }
        true
    }

    /// Whether the function may assert its interrupt.
    pub fn interrupts(&self) -> bool {
        self.bytes[COMMAND + 1] & COMMAND_NO_INTERRUPT == 0
    }
}

fn range(offset: u64, length: usize) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(length)?;
    (end <= CONFIGURATION_BYTES).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_the_bar_is_found_by_writing_ones() {
        let mut configuration = PciConfigSpace::new();
        assert!(configuration.write(0x10, &[0xff; 4]));
        let mut bar = [0; 4];
        assert!(configuration.read(0x10, &mut bar, false));
        assert_eq!(!u32::from_le_bytes(bar) + 1, BAR_BYTES);
    }

    #[test]
    fn identifiers_are_read_only_and_nothing_lies_outside() {
        let mut configuration = PciConfigSpace::new();
        assert!(configuration.write(0, &[0; 4]) && !configuration.write(255, &[0; 2]));
        let mut all = [0; CONFIGURATION_BYTES];
        assert!(configuration.read(0, &mut all, true) && !configuration.read(u64::MAX, &mut [0; 2], false));
        assert_eq!((&all[..4], all[STATUS], &all[0x09..0x0c]), (&[0x36, 0x1b, 7, 0][..], 8, &[1, 5, 8][..]));
    }
}
