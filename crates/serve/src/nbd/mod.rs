//! Exports a block device by the Network Block Device protocol (fixed newstyle) on a unix socket or loopback.
//!
//! Source: `doc/proto.md` of NetworkBlockDevice/nbd; the constants here have the names used there. Supported beyond the baseline:
//! structured replies with `DF` and holes, `base:allocation`, FUA, write-zeroes with `NO_HOLE` and `FAST_ZERO`, size constraints, several
//! connections. Not supported: TLS (nothing leaves the machine), extended headers, resizing. `NBD_CMD_CACHE` is checked and has no effect,
//! so it is not advertised: there is no cache between the client and the device.
//!
//! Each connection has a thread, which reads many requests in one call, submits them as a list and writes the replies with one
//! system call. Completions from other threads are written by those threads, as far as the socket accepts them without blocking.

mod connection;
mod negotiation;
mod pending;
mod request_parser;
mod wire;

use std::fmt::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use connection::{NbdLink, serve};
use emmclab_base::{Error, ErrorClass, Result, SECTOR_BYTES};
use pending::NbdMemoryBudget;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_nodelay;
use rustix::net::{SocketFlags, accept_with};
use wire::{MAX_STRING, transmission};

use crate::device::{BlockDevice, BlockDeviceLimits};
use crate::private_socket::PrivateSocket;
use crate::waker::ThreadWaker;

/// Maximum number of clients; further clients are disconnected. The clients share 512 MB for requests and replies (`pending`).
const MAX_CLIENTS: usize = 128;
/// Pause after an error on accepting a client, for example because no file descriptor is free.
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
    /// Wakes the thread that accepts clients, and requests its end.
    stop: Arc<ThreadWaker>,
    thread: Option<JoinHandle<()>>,
}

struct NbdClient {
    link: Arc<NbdLink>,
    thread: JoinHandle<()>,
}

impl NbdServer {
    /// Starts a server for `device` in separate threads.
    /// Errors: [`ErrorClass::Config`] if other users could reach the socket, if the path is in use or too long, if the
    /// address is not loopback, or if the export cannot be described; [`ErrorClass::Io`] for errors of the system.
    pub fn start(device: Arc<dyn BlockDevice>, listen: &ListenAddress, options: NbdExportOptions) -> Result<Self> {
        let export = Arc::new(NbdExport::new(device, options)?);
        let listener = NbdListener::new(listen)?;
        let stop = Arc::new(ThreadWaker::new().map_err(no_resources)?);
        let (place, shared) = (listener.address(), Arc::clone(&stop));
        let thread = Builder::new()
            .name("nbd-listen".into())
            .spawn(move || accept_all(listener, &export, &shared))
            .map_err(no_resources)?;
        Ok(Self { address: place, stop, thread: Some(thread) })
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
                        // Writing to a `String` cannot fail.
                        let _ = write!(uri, "%{byte:02X}");
                    }
                }
                uri
            }
            ListenAddress::Tcp(address) => format!("nbd://{address}"),
        }
    }

    /// Stops the server: accepts no more clients, removes the file of the socket, rejects new requests with `ESHUTDOWN`, completes and
    /// answers the requests in progress, and closes the connections. Returns when all threads have ended. Clients that do not read their
    /// replies and devices that complete nothing delay this by at most 5 s.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already reported by the thread itself.
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
/// Errors: as [`NbdServer::start`].
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

fn accept_all(listener: NbdListener, export: &Arc<NbdExport>, stop: &ThreadWaker) {
    let (mut clients, budget) = (Vec::<NbdClient>::new(), NbdMemoryBudget::new());
    while !stop.is_stopping() {
        let mut polled = [PollFd::new(&stop.event, PollFlags::IN), PollFd::new(listener.socket(), PollFlags::IN)];
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
            // There are too many clients, so the new connection is closed.
            Ok(_) if clients.len() >= MAX_CLIENTS => {}
            Ok(socket) => clients.extend(client(socket, export, &budget)),
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                let mut polled = [PollFd::new(&stop.event, PollFlags::IN)];
                let _ = poll(&mut polled, Some(&RETRY));
            }
            // The client disconnected before it was accepted.
            Err(_) => {}
        }
    }
    drop(listener);
    for client in &clients {
        client.link.wake.stop();
    }
    clients.into_iter().for_each(NbdClient::join);
}

/// Starts the thread of a client; closes the connection if no thread can be started.
fn client(socket: OwnedFd, export: &Arc<NbdExport>, budget: &Arc<NbdMemoryBudget>) -> Option<NbdClient> {
    // `TCP_NODELAY` cannot be set on Unix sockets, which do not delay short packets.
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

/// The address on which a server listens for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// A unix socket, mode 0600, in a folder that belongs to the user and in which no one else can write.
    Unix(PathBuf),
    /// TCP on 127.0.0.0/8 or `[::1]`; every user of the machine can connect. Port 0 selects a free port.
    Tcp(SocketAddr),
}

impl ListenAddress {
    /// Parses a TCP address, `127.0.0.1:10809` or `[::1]:10809`.
    /// Errors: [`ErrorClass::Config`] if the text is not an address with a port, or other machines can reach the address.
    pub fn tcp(text: &str) -> Result<Self> {
        let address = text.parse().map_err(|_| {
            Error::new(ErrorClass::Config, format!("`{text}` is not an IP address with a port"))
                .hint("write the address of the NBD server as 127.0.0.1:10809 or [::1]:10809")
        })?;
        Self::Tcp(address).checked()
    }

    fn checked(self) -> Result<Self> {
        match self {
            Self::Tcp(address) if !address.ip().is_loopback() => {
                let problem = format!("`{address}` can be reached from other machines");
                Err(Error::new(ErrorClass::Config, problem)
                    .hint("use 127.0.0.1 or [::1], because NBD has no passwords; connect from other machines through `ssh -L`"))
            }
            other => Ok(other),
        }
    }
}

impl fmt::Display for ListenAddress {
    /// Formats the address as users write it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(formatter, "{}", path.display()),
            Self::Tcp(address) => write!(formatter, "{address}"),
        }
    }
}

/// A listening socket. Dropping it removes the file of a unix socket.
enum NbdListener {
    Unix(PrivateSocket),
    Tcp(OwnedFd, SocketAddr),
}

impl NbdListener {
    pub fn new(place: &ListenAddress) -> Result<Self> {
        match place.clone().checked()? {
            ListenAddress::Unix(path) => PrivateSocket::listen(&path).map(Self::Unix),
            ListenAddress::Tcp(address) => {
                let listening =
                    TcpListener::bind(address).and_then(|listener| Ok((listener.local_addr()?, OwnedFd::from(listener))));
                let (address, socket) = listening.map_err(|error| {
                    let message = error.to_string();
                    let message = message.split(" (os error").next().unwrap_or_default();
                    Error::new(ErrorClass::Io, format!("cannot listen on {address}: {message}"))
                        .hint("choose another port; port 0 chooses a free one")
                })?;
                Ok(Self::Tcp(socket, address))
            }
        }
    }

    pub fn socket(&self) -> &OwnedFd {
        match self {
            Self::Unix(listening) => &listening.socket,
            Self::Tcp(socket, _) => socket,
        }
    }

    /// Returns the address on which the socket listens, with the actual port.
    pub fn address(&self) -> ListenAddress {
        match self {
            Self::Unix(listening) => ListenAddress::Unix(listening.path.clone()),
            Self::Tcp(_, address) => ListenAddress::Tcp(*address),
        }
    }
}

/// Name, description and access mode of an export.
#[derive(Clone, Debug, Default)]
pub struct NbdExportOptions {
    /// A name in addition to the default export, whose name is empty; at most 4096 bytes.
    pub name: String,
    /// A description for users, which `nbdinfo --list` prints; at most 4096 bytes.
    pub description: String,
    /// Whether commands that change data are rejected.
    pub read_only: bool,
}

/// An exported device with the properties that negotiation and checks need.
struct NbdExport {
    options: NbdExportOptions,
    device: Arc<dyn BlockDevice>,
    limits: BlockDeviceLimits,
    /// Size in bytes.
    size: u64,
}

impl NbdExport {
    pub fn new(device: Arc<dyn BlockDevice>, options: NbdExportOptions) -> Result<Self> {
        for (field, text) in [("name", &options.name), ("description", &options.description)] {
            if text.len() > MAX_STRING {
                let problem = format!("the export's {field} has {} bytes", text.len());
                return Err(Error::new(ErrorClass::Config, problem).hint("use a name and description of at most 4096 bytes"));
            }
        }
        let limits = device.limits();
        let size = limits.sectors.checked_mul(SECTOR_BYTES).filter(|size| i64::try_from(*size).is_ok());
        let size = size.ok_or_else(|| {
            let problem = format!("a device of {} sectors is too large to be exported", limits.sectors);
            Error::new(ErrorClass::Config, problem).hint("export a device of less than 2^54 sectors")
        })?;
        Ok(Self { options, device, limits, size })
    }

    /// The names that clients can request.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let name = self.options.name.as_str();
        std::iter::once("").chain((!name.is_empty()).then_some(name))
    }

    /// The export name that equals `name`; `None` if there is none.
    pub fn named(&self, name: &[u8]) -> Option<&str> {
        self.names().find(|known| known.as_bytes() == name)
    }

    /// Maximum length of a request to the device, in sectors.
    pub fn part_sectors(&self) -> u32 {
        self.limits.max_sectors.max(1)
    }

    /// Transmission flags. Without a write cache, flush and FUA are not advertised: every write is durable.
    pub fn flags(&self, structured: bool) -> u16 {
        use transmission as flag;
        let mut flags = flag::HAS_FLAGS | flag::CAN_MULTI_CONN;
        if self.limits.write_cache {
            flags |= flag::SEND_FLUSH | flag::SEND_FUA;
        }
        if structured {
            flags |= flag::SEND_DF;
        }
        let changes = flag::SEND_TRIM | flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO;
        flags | if self.options.read_only { flag::READ_ONLY } else { changes }
    }
}
