//! A listening unix socket that only this user can reach: mode 0600, in a folder of the user.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use emmclab_base::{Error, ErrorClass, Result, interrupt, open_seekable};
use rustix::fs::{FlockOperation, Mode, fchmod, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};

/// Maximum number of clients that wait to be accepted.
pub(crate) const BACKLOG: i32 = 128;
/// Maximum number of attempts to lock a folder.
const ATTEMPTS: u32 = 100;
/// Pause between two attempts to lock a folder.
const PAUSE: Duration = Duration::from_millis(50);

/// A listening unix socket. Dropping it removes its file.
pub(crate) struct PrivateSocket {
    pub socket: OwnedFd,
    pub path: PathBuf,
    /// Device and inode numbers of the socket file.
    identity: (u64, u64),
}

impl PrivateSocket {
    /// Listens at `path`. A stale socket, which no process listens on, is replaced.
    pub fn listen(path: &Path) -> Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = open_seekable(folder).map_err(|error| Error::io(folder, error))?;
        check_folder(folder, &file)?;
        let address = SocketAddrUnix::new(path).map_err(|_| {
            let problem = format!("a socket's path has at most 107 bytes; this has {}", path.as_os_str().len());
            Error::new(ErrorClass::Config, problem).in_file(path).hint("choose a shorter path for the socket")
        })?;
        // Between `bind` and `listen`, a socket file looks stale, so servers must create sockets in the same folder one after the other.
        lock(folder, &file)?;
        let io = |error: Errno| Error::io(path, error.into());
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(io)?;
        // On Linux, `bind` creates the socket file with the mode of the unbound socket.
        fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(io)?;
        match bind(&socket, &address) {
            Err(Errno::ADDRINUSE) => {
                remove_stale(path, &address)?;
                bind(&socket, &address).map_err(io)?;
            }
            other => other.map_err(io)?,
        }
        let metadata = fs::symlink_metadata(path).map_err(|error| Error::io(path, error))?;
        let listener = Self { socket, path: path.to_owned(), identity: (metadata.dev(), metadata.ino()) };
        if metadata.mode() & 0o077 != 0 {
            let problem = "this system gives the socket a mode that lets others connect";
            return Err(Error::new(ErrorClass::Io, problem).in_file(path).hint("put the socket on a local file system"));
        }
        listen(&listener.socket, BACKLOG).map_err(io)?;
        Ok(listener)
    }
}

impl Drop for PrivateSocket {
    fn drop(&mut self) {
        // Another server may have replaced the socket file.
        if fs::symlink_metadata(&self.path).is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn check_folder(folder: &Path, file: &File) -> Result<()> {
    let metadata = file.metadata().map_err(|error| Error::io(folder, error))?;
    let problem = if !metadata.is_dir() {
        "this is not a folder"
    } else if metadata.uid() != rustix::process::geteuid().as_raw() {
        "the folder of the socket belongs to another user"
    } else if metadata.mode() & 0o022 != 0 {
        "other users can write in the folder of the socket"
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorClass::Config, problem)
        .in_file(folder)
        .hint("create a private folder for the socket: mkdir -m 700 ~/nbd; or use $XDG_RUNTIME_DIR"))
}

fn lock(folder: &Path, file: &File) -> Result<()> {
    for _ in 0..ATTEMPTS {
        interrupt::check()?;
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK | Errno::INTR) => thread::sleep(PAUSE),
            other => return other.map_err(|error| Error::io(folder, error.into())),
        }
    }
    let problem = "another process has locked the folder of the socket";
    Err(Error::new(ErrorClass::Io, problem).in_file(folder).hint("try again, or use another folder for the socket"))
}

fn remove_stale(path: &Path, address: &SocketAddrUnix) -> Result<()> {
    let taken = |problem: &str, hint: &str| Err(Error::new(ErrorClass::Config, problem).in_file(path).hint(hint));
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io(path, error)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return taken("there is a file of this name, which is not a socket", "choose another path");
        }
        Ok(_) => {}
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).and_then(|probe| connect(&probe, address));
    if probe != Err(Errno::CONNREFUSED) {
        return taken("a program already listens on this socket", "stop it or choose another path");
    }
    fs::remove_file(path).map_err(|error| Error::io(path, error))
}
