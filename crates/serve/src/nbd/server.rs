//! The server: accepts clients until it is stopped; each client has a thread.

use std::fmt::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use emmclab_base::{Error, ErrorClass, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_nodelay;
use rustix::net::{SocketFlags, accept_with};

use super::budget::NbdMemoryBudget;
use super::connection::serve;
use super::export::{NbdExport, NbdExportOptions};
use super::link::{NbdLink, wake};
use super::listen::{ListenAddress, NbdListener};
use crate::device::BlockDevice;

/// Maximum number of clients; more are disconnected. They share 512 MB for requests and replies (`budget`).
const MAX_CLIENTS: usize = 128;
/// Pause after accepting a client has failed, for example because there are no more descriptors.
const RETRY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// A running NBD server. It stops when it is dropped.
///
/// ```
/// use std::sync::Arc;
///
/// use emmclab_serve::MemoryDevice;
/// use emmclab_serve::nbd::{ListenAddress, NbdExportOptions, NbdServer};
///
/// let device = Arc::new(MemoryDevice::new(1 << 20));
/// let options = NbdExportOptions { name: "phone".into(), description: "a simulated eMMC".into(), read_only: false };
/// let server = NbdServer::start(device, &ListenAddress::tcp("127.0.0.1:0")?, options)?;
/// println!("nbdinfo --list '{}'", server.uri());
/// server.stop();
/// # Ok::<(), emmclab_base::Error>(())
/// ```
pub struct NbdServer {
    address: ListenAddress,
    signal: Arc<ServerStopSignal>,
    thread: Option<JoinHandle<()>>,
}

/// Tells the accepting thread to end.
struct ServerStopSignal {
    stopping: AtomicBool,
    event: OwnedFd,
}

/// A connected client.
struct NbdClient {
    link: Arc<NbdLink>,
    thread: JoinHandle<()>,
}

impl NbdServer {
    /// Listens and serves `device` in separate threads.
    ///
    /// # Errors
    /// [`ErrorClass::Config`] if other users could reach the socket, if the path is in use or too long, if the address is not loopback, or if the
    /// export cannot be described; [`ErrorClass::Io`] for errors of the system.
    pub fn start(device: Arc<dyn BlockDevice>, listen: &ListenAddress, options: NbdExportOptions) -> Result<Self> {
        let export = Arc::new(NbdExport::new(device, options)?);
        let listener = NbdListener::new(listen)?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(no_resources)?;
        let signal = Arc::new(ServerStopSignal { stopping: AtomicBool::new(false), event });
        let (place, shared) = (listener.address(), Arc::clone(&signal));
        let thread = Builder::new()
            .name("nbd-listen".into())
            .spawn(move || accept_all(listener, &export, &shared))
            .map_err(no_resources)?;
        Ok(Self { address: place, signal, thread: Some(thread) })
    }

    /// The address on which the server listens, with the actual port.
    pub fn address(&self) -> &ListenAddress {
        &self.address
    }

    /// The URI of the default export for clients: `nbd+unix:///?socket=PATH` or `nbd://127.0.0.1:10809`.
    pub fn uri(&self) -> String {
        match &self.address {
            ListenAddress::Unix(path) => {
                let mut uri = "nbd+unix:///?socket=".to_owned();
                for byte in path.as_os_str().as_encoded_bytes() {
                    if byte.is_ascii_alphanumeric() || b"/-._~".contains(byte) {
                        uri.push(char::from(*byte));
                    } else {
                        // Writing to a string cannot fail.
                        let _ = write!(uri, "%{byte:02X}");
                    }
                }
                uri
            }
            ListenAddress::Tcp(address) => format!("nbd://{address}"),
        }
    }

    /// Stops the server: no more clients are accepted, the socket's file is removed, new requests are refused with `ESHUTDOWN`, requests in
    /// the device are answered, and connections are closed. Returns when all threads have ended. Clients that do not read their replies,
    /// and devices that complete nothing, delay it by at most 5 s.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.signal.stopping.store(true, Ordering::Release);
        wake(&self.signal.event);
        if let Some(thread) = self.thread.take() {
            // A panic in the thread was already reported there.
            let _ = thread.join();
        }
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Serves one client on a connected stream socket, on this thread, until the client ends the connection.
///
/// # Errors
/// As [`NbdServer::start`].
pub fn serve_stream(device: Arc<dyn BlockDevice>, options: NbdExportOptions, stream: OwnedFd) -> Result<()> {
    let export = Arc::new(NbdExport::new(device, options)?);
    let link = NbdLink::new(stream, &NbdMemoryBudget::new()).map_err(no_resources)?;
    serve(Arc::new(link), export);
    Ok(())
}

fn no_resources(error: impl Into<std::io::Error>) -> Error {
    let error = error.into();
    Error::new(ErrorClass::Io, format!("the server cannot start: {error}"))
        .hint("raise the limits of open files and of threads (ulimit -n, -u)")
}

fn accept_all(listener: NbdListener, export: &Arc<NbdExport>, signal: &ServerStopSignal) {
    let (mut clients, budget) = (Vec::<NbdClient>::new(), NbdMemoryBudget::new());
    while !signal.stopping.load(Ordering::Acquire) {
        let mut polled = [PollFd::new(&signal.event, PollFlags::IN), PollFd::new(listener.socket(), PollFlags::IN)];
        match poll(&mut polled, None) {
            Ok(_) if polled[1].revents().is_empty() => continue,
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => break,
        }
        clients.extract_if(.., |client| client.thread.is_finished()).for_each(NbdClient::join);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accepted = accept_with(listener.socket(), flags);
        match accepted {
            // The connection of a client beyond the limit is closed.
            Ok(_) if clients.len() >= MAX_CLIENTS => {}
            Ok(socket) => clients.extend(client(socket, export, &budget)),
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                let mut stop = [PollFd::new(&signal.event, PollFlags::IN)];
                let _ = poll(&mut stop, Some(&RETRY));
            }
            // The client has already disconnected.
            Err(_) => {}
        }
    }
    drop(listener);
    for client in &clients {
        client.link.stop();
    }
    clients.into_iter().for_each(NbdClient::join);
}

/// Starts the thread of a client. If the system cannot start it, the connection is closed.
fn client(socket: OwnedFd, export: &Arc<NbdExport>, budget: &Arc<NbdMemoryBudget>) -> Option<NbdClient> {
    // This fails on unix sockets, which do not delay short packets anyway.
    let _ = set_tcp_nodelay(&socket, true);
    let link = Arc::new(NbdLink::new(socket, budget).ok()?);
    let (shared, export) = (Arc::clone(&link), Arc::clone(export));
    let thread = Builder::new().name("nbd-client".into()).spawn(move || serve(shared, export)).ok()?;
    Some(NbdClient { link, thread })
}

impl NbdClient {
    fn join(self) {
        let _ = self.thread.join();
    }
}
