//! The PCI function of a connection: its regions and interrupts, and the requests to the block device.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::link::{ConnectionLoss, ExportWaker, VfioLink, wait};
use super::memory::{DmaMappings, GuestDma};
use super::message::{MOST_DATA, VfioFieldReader, VfioMessage, command, reply};
use crate::device::{BlockDevice, CompletionReceiver, ServedCompletion};
use crate::sdhci::controller::SdhciController;
use crate::sdhci::pci::{BAR_BYTES, CONFIGURATION_BYTES, PciConfigSpace};

/// Numbers of regions and interrupts of a PCI function, as in Linux's `vfio.h`.
const REGIONS: u32 = 9;
const BAR_REGION: u32 = 0;
const CONFIGURATION_REGION: u32 = 7;
const IRQS: u32 = 5;
const INTX: u32 = 0;

/// Flags of a device that is a PCI function and can be reset.
const DEVICE_FLAGS: u32 = 0b11;
/// Flags of a region that can be read and written.
const REGION_FLAGS: u32 = 0b11;
/// Flags of an interrupt that is signalled by an eventfd, and masked automatically when it fires.
const INTX_FLAGS: u32 = 0b111;

/// Flags of `SET_IRQS`.
mod irq {
    pub const NO_DATA: u32 = 1;
    pub const FILES: u32 = 1 << 2;
    pub const MASK: u32 = 1 << 3;
    pub const UNMASK: u32 = 1 << 4;
    pub const TRIGGER: u32 = 1 << 5;
}

/// Flag of `DMA_UNMAP` to unmap everything.
const UNMAP_ALL: u32 = 1 << 1;

/// Receives completions on any thread, for the thread of the export.
struct VfioCompletionInbox {
    completed: Mutex<Vec<ServedCompletion>>,
    wake: Arc<ExportWaker>,
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

/// The interrupt line as the client uses it: level-triggered, masked automatically when it fires.
#[derive(Default)]
struct Intx {
    trigger: Option<OwnedFd>,
    /// An eventfd by which the client unmasks, instead of by a message (a hypervisor that resamples).
    unmask: Option<OwnedFd>,
    masked: bool,
}

/// An SD host controller as a PCI function, with its block device. It is kept between connections.
pub(in crate::sdhci) struct SdhciPciFunction {
    controller: SdhciController,
    configuration: PciConfigSpace,
    device: Arc<dyn BlockDevice>,
    inbox: Arc<VfioCompletionInbox>,
    completions: Arc<dyn CompletionReceiver>,
    memory: DmaMappings,
    intx: Intx,
    /// Whether the guest used memory that the client does not share.
    unshared: bool,
    /// Whether the client has negotiated the version of the protocol.
    greeted: bool,
}

/// An access to a region: the beginning of its message.
struct RegionAccess {
    offset: u64,
    region: u32,
    count: usize,
}

impl RegionAccess {
    const BYTES: usize = 16;

    /// Parses an access; returns it with the bytes after it.
    fn decode(payload: &[u8]) -> Result<(Self, &[u8]), Errno> {
        let mut fields = VfioFieldReader(payload);
        let (offset, region, count) = (fields.u64()?, fields.u32()?, fields.u32()? as usize);
        if count > MOST_DATA {
            return Err(Errno::INVAL);
        }
        Ok((Self { offset, region, count }, fields.rest()))
    }

    /// Whether the access is to the registers of the controller.
    fn of_registers(&self) -> bool {
        self.region == BAR_REGION && self.offset.saturating_add(self.count as u64) <= u64::from(BAR_BYTES)
    }
}

/// What is detected about a client while it is connected.
pub(in crate::sdhci) enum ClientProbe {
    /// It uses the protocol.
    Greeted,
    /// It does not share memory that the guest used.
    Unshared,
}

/// How a connection ended.
pub(in crate::sdhci) enum SessionEnd {
    Disconnected,
    Stopped,
    Fault(String),
}

impl SdhciPciFunction {
    pub fn new(controller: SdhciController, device: Arc<dyn BlockDevice>, wake: Arc<ExportWaker>) -> Self {
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
        self.configuration.reset();
        self.intx.masked = false;
    }

    fn dma<'a>(memory: &'a DmaMappings, configuration: &PciConfigSpace) -> GuestDma<'a> {
        GuestDma { memory, allowed: configuration.bus_master(), unshared: false }
    }

    /// Advances card and controller until they wait for the device or for the guest, then updates the interrupt line.
    fn work(&mut self) {
        loop {
            for completion in self.inbox.take() {
                self.controller.complete(completion);
            }
            let mut dma = Self::dma(&self.memory, &self.configuration);
            self.controller.step(&mut dma);
            self.unshared |= dma.unshared;
            let mut requests = self.controller.take_requests();
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
            // If the counter is at its maximum, the client is notified all the same.
            let _ = rustix::io::write(trigger, &1_u64.to_ne_bytes());
        }
    }

    /// Executes a command and sends the reply.
    fn handle(&mut self, link: &mut VfioLink<'_>, message: VfioMessage) -> Result<(), ConnectionLoss> {
        let header = message.header;
        if header.is_reply() {
            // The function sends no commands, so it expects no replies.
            return Ok(());
        }
        let outcome = self.execute(message);
        if header.wants_reply() {
            link.send(&reply(&header, outcome.as_deref().map_err(|errno| *errno)))?;
        }
        Ok(())
    }

    /// Executes a command; returns the payload of the reply, or the error number.
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

    /// Executes commands that describe the function, share memory and connect interrupts.
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
                    self.memory.clear();
                }
                payload.get(..24).map(<[u8]>::to_vec).ok_or(Errno::INVAL)
            }
            command::SET_IRQS => {
                let (_, flags, index) = (fields.u32()?, fields.u32()?, fields.u32()?);
                let (start, count) = (fields.u32()?, fields.u32()?);
                if index != INTX {
                    // The function has no other interrupts; disabling them has no effect.
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
            // Writing to a blocking file could hang the export.
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

    /// Waits for an event and processes it: a message, completions, a stop, an unmask or another client.
    fn turn(&mut self, link: &mut VfioLink<'_>, listener: &OwnedFd) -> Result<(), ConnectionLoss> {
        let [socket, wake, other, unmask] = {
            let unmask = self.intx.unmask.as_ref().map_or(link.wake().event(), AsFd::as_fd);
            let ready = |file| PollFd::from_borrowed_fd(file, PollFlags::IN);
            let mut files = [ready(link.socket()), ready(link.wake().event()), ready(listener.as_fd()), ready(unmask)];
            wait(&mut files)?;
            files.map(|file| !file.revents().is_empty())
        };
        if wake {
            link.wake().clear();
            if link.wake().stopped() {
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
            // There is one client at a time: a second one is disconnected.
            drop(rustix::net::accept(listener));
        }
        if socket {
            let message = link.receive()?;
            self.handle(link, message)?;
        }
        // The event may have been cleared while a message was received.
        self.work();
        Ok(())
    }
}

/// Serves one client until it disconnects; then the function is reset, as if the machine had lost its power. `tell` is called once for each
/// [`ClientProbe`] of the client. Also returns whether the client used the protocol: a program that only checks whether the socket is alive does
/// not.
pub(in crate::sdhci) fn serve(
    function: &mut SdhciPciFunction,
    mut link: VfioLink<'_>,
    listener: &OwnedFd,
    tell: impl Fn(ClientProbe),
) -> (SessionEnd, bool) {
    (function.unshared, function.greeted) = (false, false);
    let lost = loop {
        let before = (function.unshared, function.greeted);
        let turn = function.turn(&mut link, listener);
        if function.greeted && !before.1 {
            tell(ClientProbe::Greeted);
        }
        if function.unshared && !before.0 {
            tell(ClientProbe::Unshared);
        }
        if let Err(lost) = turn {
            break lost;
        }
    };
    function.reset();
    function.memory.clear();
    function.intx = Intx::default();
    let ended = match lost {
        ConnectionLoss::Closed => SessionEnd::Disconnected,
        ConnectionLoss::Stopped => SessionEnd::Stopped,
        ConnectionLoss::Fault(reason) => SessionEnd::Fault(reason),
    };
    (ended, function.greeted)
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The reply to `VERSION`: version 0.0, and the limits of this side.
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
