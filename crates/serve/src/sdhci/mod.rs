//! SDHCI: an SD host controller with an eMMC card, exported to QEMU as a PCI function over vfio-user.
//!
//! The guest uses its usual SDHCI and MMC drivers. The three parts do not depend on each other's protocols: the card implements eMMC, the
//! controller implements registers and DMA, and the connection implements vfio-user.

mod card;
mod controller;
mod function;
#[cfg(any(test, fuzzing))]
pub mod fuzz_driver;
mod vfio;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use card::EmmcCard;
use controller::SdhciController;
use emmclab_base::{Error, Result};
use function::{SdhciPciFunction, serve};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use vfio::{ConnectionLoss, VfioLink};

use crate::device::BlockDevice;
use crate::private_socket::PrivateSocket;
use crate::waker::ThreadWaker;

pub use card::CardSettings;

/// Pause before the next attempt when accepting a client has failed.
const RETRY: Duration = Duration::from_millis(100);

/// Events of an exported SD host controller, which are reported to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// A virtual machine has connected and negotiated the version of the protocol.
    Connected,
    /// The virtual machine has disconnected; the card was power-cycled.
    Disconnected,
    /// The memory of the guest is not shared with this process, so the card cannot transfer data.
    MemoryNotShared,
    /// The virtual machine was disconnected for violating the protocol in this way.
    Fault(String),
    /// A program that does not use the protocol has connected and disconnected.
    Stranger,
    /// A program that does not use the protocol was disconnected for this reason.
    Refused(String),
}

impl fmt::Display for SessionEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected => f.write_str("a virtual machine connected"),
            Self::Disconnected => f.write_str("the virtual machine disconnected"),
            Self::MemoryNotShared => f.write_str(
                "the guest's memory is not shared, so that the card cannot transfer data; start QEMU with \
                 `-object memory-backend-memfd,id=ram,size=512M,share=on -machine memory-backend=ram`, of the size of -m",
            ),
            Self::Fault(reason) => write!(f, "the virtual machine was disconnected: {reason}"),
            Self::Stranger => {
                f.write_str("a program that is not a virtual machine connected to the socket of the card, and disconnected")
            }
            Self::Refused(reason) => {
                write!(f, "a program that is not a virtual machine was disconnected from the card: {reason}")
            }
        }
    }
}

/// An eMMC card in an SD host controller, exported over vfio-user. QEMU 10.1 or later connects to it with `-device
/// '{"driver":"vfio-user-pci","socket":{"type":"unix","path":"..."}}'` and with shared memory, `-object
/// memory-backend-memfd,id=ram,size=512M,share=on -machine memory-backend=ram` together with `-m 512M`. Guest memory in huge pages does not
/// work, because system calls cannot write to files in hugetlbfs.
///
/// The export ends when it is stopped or dropped; it does not wait for incomplete requests of the device. The contents of the boot and RPMB
/// partitions are lost when the export ends.
pub struct SdhciExport {
    path: PathBuf,
    wake: Arc<ThreadWaker>,
    thread: Option<JoinHandle<()>>,
}

impl SdhciExport {
    /// Listens on a new unix socket at `path`, to which only this user can connect. The export's thread calls `news` with each event of the
    /// export.
    /// Errors: if the card's registers cannot encode a setting, if `path` is in use, or if other users could reach it.
    pub fn start(
        device: Arc<dyn BlockDevice>, settings: &CardSettings, path: &Path, news: impl Fn(SessionEvent) + Send + 'static,
    ) -> Result<Self> {
        settings.check(&device.limits())?;
        let refused = |errno: Errno| Error::io(path, errno.into());
        let wake = Arc::new(ThreadWaker::new().map_err(refused)?);
        let listener = PrivateSocket::listen(path)?;
        // A client may disconnect before it is accepted, so the socket must not block.
        rustix::io::ioctl_fionbio(&listener.socket, true).map_err(refused)?;
        let card = EmmcCard::new(settings, Arc::clone(&device));
        let function = SdhciPciFunction::new(SdhciController::new(card), device, Arc::clone(&wake));
        let thread = {
            let wake = Arc::clone(&wake);
            std::thread::Builder::new()
                .name("sdhci".to_owned())
                .spawn(move || accept_clients(function, &listener, &wake, &news))
                .map_err(|error| Error::io(path, error))?
        };
        Ok(Self { path: path.to_owned(), wake, thread: Some(thread) })
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Disconnects the client, removes the socket and waits for the thread.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for SdhciExport {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.wake.stop();
            let _ = thread.join();
        }
    }
}

fn accept_clients(
    mut function: SdhciPciFunction, listener: &PrivateSocket, wake: &ThreadWaker, news: &(impl Fn(SessionEvent) + Send + 'static),
) {
    while !wake.is_stopping() {
        let mut files = [PollFd::new(&listener.socket, PollFlags::IN), PollFd::new(&wake.event, PollFlags::IN)];
        // A signal or a lack of memory makes `poll` fail, but does not end the loop.
        let _ = poll(&mut files, None);
        wake.clear();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match rustix::net::accept_with(&listener.socket, flags) {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => continue,
            Err(_) => {
                // The system lacks resources, so the next attempt is made after a pause.
                std::thread::sleep(RETRY);
                continue;
            }
        };
        let (lost, is_machine) = serve(&mut function, VfioLink { socket, wake }, &listener.socket, news);
        match lost {
            ConnectionLoss::Closed if is_machine => news(SessionEvent::Disconnected),
            ConnectionLoss::Closed => news(SessionEvent::Stranger),
            ConnectionLoss::Fault(reason) if is_machine => news(SessionEvent::Fault(reason)),
            ConnectionLoss::Fault(reason) => news(SessionEvent::Refused(reason)),
            ConnectionLoss::Stopped => {}
        }
    }
}
