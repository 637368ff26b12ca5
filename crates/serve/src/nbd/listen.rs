//! Listening sockets that only the user reaches: unix sockets in a folder of the user's, or TCP on loopback.

use std::fmt;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use emmclab_base::{Error, Kind, Result};
use rustix::fs::{FlockOperation, Mode, fchmod, flock};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

/// Clients that wait to be accepted.
const BACKLOG: i32 = 128;
/// Attempts to take the lock of a folder, and the pause between two.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(50);

/// The place where clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A unix socket, mode 0600, in a folder that belongs to the user and in which no one else can write.
    Unix(PathBuf),
    /// TCP on 127.0.0.0/8 or `[::1]`; every user of the machine can connect. Port 0 takes a free one.
    Tcp(SocketAddr),
}

impl Listen {
    /// Reads a TCP address, `127.0.0.1:10809` or `[::1]:10809`.
    ///
    /// # Errors
    /// [`Kind::Config`] for text that is no address with a port, and for addresses that other machines reach.
    pub fn tcp(text: &str) -> Result<Self> {
        let address = text.parse().map_err(|_| {
            Error::new(Kind::Config, format!("`{text}` is not an address and a port"))
                .hint("write 127.0.0.1:10809 or [::1]:10809")
        })?;
        Self::Tcp(address).checked()
    }

    fn checked(self) -> Result<Self> {
        match self {
            Self::Tcp(address) if !address.ip().is_loopback() => {
                let problem = format!("`{address}` can be reached from other machines");
                Err(Error::new(Kind::Config, problem).hint(
                    "use 127.0.0.1 or [::1], and ssh -L to get there from elsewhere: NBD asks for no password",
                ))
            }
            other => Ok(other),
        }
    }
}

impl fmt::Display for Listen {
    /// The place as users write it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(formatter, "{}", path.display()),
            Self::Tcp(address) => write!(formatter, "{address}"),
        }
    }
}

/// A listening socket, which is removed in the end.
pub(super) struct Listener {
    pub socket: OwnedFd,
    place: Listen,
    /// Device and inode of a unix socket.
    identity: Option<(u64, u64)>,
}

impl Listener {
    /// # Errors
    /// [`Kind::Config`] for places that others could reach, [`Kind::Io`] for what the system refuses.
    pub fn new(place: &Listen) -> Result<Self> {
        match place.clone().checked()? {
            Listen::Unix(path) => unix(&path),
            Listen::Tcp(address) => {
                let listening = TcpListener::bind(address)
                    .and_then(|listener| Ok((listener.local_addr()?, OwnedFd::from(listener))));
                let (address, socket) = listening.map_err(|error| {
                    let said = error.to_string();
                    let said = said.split(" (os error").next().unwrap_or_default();
                    Error::new(Kind::Io, format!("cannot listen on {address}: {said}"))
                        .hint("choose another port; port 0 takes a free one")
                })?;
                Ok(Self { socket, place: Listen::Tcp(address), identity: None })
            }
        }
    }

    /// The place, with the port that was taken.
    pub fn place(&self) -> &Listen {
        &self.place
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listen::Unix(path) = &self.place {
            // Another server may have replaced the socket.
            if fs::symlink_metadata(path).is_ok_and(|found| Some((found.dev(), found.ino())) == self.identity)
            {
                let _ = fs::remove_file(path);
            }
        }
    }
}

fn unix(path: &Path) -> Result<Listener> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = File::open(folder).map_err(|error| Error::io(folder, error))?;
    check_folder(folder, &file)?;
    let address = SocketAddrUnix::new(path).map_err(|_| {
        let problem = format!("a socket's path has at most 107 bytes; this has {}", path.as_os_str().len());
        Error::new(Kind::Config, problem).in_file(path).hint("choose a shorter path")
    })?;
    // Between bind and listen a socket looks stale, so servers in one folder take turns.
    lock(folder, &file)?;
    let io = |error: Errno| Error::io(path, error.into());
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(io)?;
    // On Linux the mode of an unbound socket is the mode with which bind creates its file.
    fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(io)?;
    match bind(&socket, &address) {
        Err(Errno::ADDRINUSE) => {
            remove_stale(path, &address)?;
            bind(&socket, &address).map_err(io)?;
        }
        other => other.map_err(io)?,
    }
    let found = fs::symlink_metadata(path).map_err(|error| Error::io(path, error))?;
    let identity = Some((found.dev(), found.ino()));
    let listener = Listener { socket, place: Listen::Unix(path.to_owned()), identity };
    if found.mode() & 0o077 != 0 {
        let problem = "this system gives the socket a mode that lets others connect";
        return Err(Error::new(Kind::Io, problem).in_file(path).hint("use a folder on a local file system"));
    }
    listen(&listener.socket, BACKLOG).map_err(io)?;
    Ok(listener)
}

fn check_folder(folder: &Path, file: &File) -> Result<()> {
    let found = file.metadata().map_err(|error| Error::io(folder, error))?;
    let problem = if !found.is_dir() {
        "this is not a folder"
    } else if found.uid() != rustix::process::geteuid().as_raw() {
        "the folder of the socket belongs to another user"
    } else if found.mode() & 0o022 != 0 {
        "other users can write in the folder of the socket"
    } else {
        return Ok(());
    };
    Err(Error::new(Kind::Config, problem)
        .in_file(folder)
        .hint("make a folder for it: mkdir -m 700 ~/nbd; or use $XDG_RUNTIME_DIR"))
}

/// Takes the lock of the folder until the file is closed.
fn lock(folder: &Path, file: &File) -> Result<()> {
    for _ in 0..ATTEMPTS {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK | Errno::INTR) => thread::sleep(PAUSE),
            other => return other.map_err(|error| Error::io(folder, error.into())),
        }
    }
    let problem = "another process has locked the folder of the socket";
    Err(Error::new(Kind::Io, problem).in_file(folder).hint("try again, or use another folder"))
}

/// Removes a socket on which nothing listens.
fn remove_stale(path: &Path, address: &SocketAddrUnix) -> Result<()> {
    let taken = |problem: &str, hint: &str| Err(Error::new(Kind::Config, problem).in_file(path).hint(hint));
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io(path, error)),
        Ok(found) if !found.file_type().is_socket() => {
            return taken("there is a file of this name, which is not a socket", "choose another path");
        }
        Ok(_) => {}
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .and_then(|probe| connect(&probe, address));
    if probe != Err(Errno::CONNREFUSED) {
        return taken("a program listens on this socket already", "stop it or choose another path");
    }
    fs::remove_file(path).map_err(|error| Error::io(path, error))
}
