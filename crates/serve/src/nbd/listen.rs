//! Listening sockets that only local clients reach: unix sockets in a folder of the user, or TCP on loopback.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use emmclab_base::{Error, ErrorClass, Result};

use crate::private_socket::PrivateSocket;

/// The address on which a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// A unix socket, mode 0600, in a folder that belongs to the user and in which no one else can write.
    Unix(PathBuf),
    /// TCP on 127.0.0.0/8 or `[::1]`; every user of the machine can connect. Port 0 selects a free port.
    Tcp(SocketAddr),
}

impl ListenAddress {
    /// Parses a TCP address, `127.0.0.1:10809` or `[::1]:10809`.
    ///
    /// # Errors
    /// [`ErrorClass::Config`] if the text is not an address with a port, or if other machines can reach the address.
    pub fn tcp(text: &str) -> Result<Self> {
        let address = text.parse().map_err(|_| {
            Error::new(ErrorClass::Config, format!("`{text}` is not an address and a port"))
                .hint("write 127.0.0.1:10809 or [::1]:10809")
        })?;
        Self::Tcp(address).checked()
    }

    fn checked(self) -> Result<Self> {
        match self {
            Self::Tcp(address) if !address.ip().is_loopback() => {
                let problem = format!("`{address}` can be reached from other machines");
                Err(Error::new(ErrorClass::Config, problem)
                    .hint("use 127.0.0.1 or [::1], and ssh -L to get there from elsewhere: NBD asks for no password"))
            }
            other => Ok(other),
        }
    }
}

impl fmt::Display for ListenAddress {
    /// The address as users write it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(formatter, "{}", path.display()),
            Self::Tcp(address) => write!(formatter, "{address}"),
        }
    }
}

/// A listening socket; the file of a unix socket is removed when this is dropped.
pub(super) enum NbdListener {
    Unix(PrivateSocket),
    Tcp(OwnedFd, SocketAddr),
}

impl NbdListener {
    /// # Errors
    /// [`ErrorClass::Config`] for addresses that others could reach, [`ErrorClass::Io`] for errors of the system.
    pub fn new(place: &ListenAddress) -> Result<Self> {
        match place.clone().checked()? {
            ListenAddress::Unix(path) => PrivateSocket::listen(&path).map(Self::Unix),
            ListenAddress::Tcp(address) => {
                let listening = TcpListener::bind(address)
                    .and_then(|listener| Ok((listener.local_addr()?, OwnedFd::from(listener))));
                let (address, socket) = listening.map_err(|error| {
                    let said = error.to_string();
                    let said = said.split(" (os error").next().unwrap_or_default();
                    Error::new(ErrorClass::Io, format!("cannot listen on {address}: {said}"))
                        .hint("choose another port; port 0 chooses a free one")
                })?;
                Ok(Self::Tcp(socket, address))
            }
        }
    }

    /// The socket.
    pub fn socket(&self) -> &OwnedFd {
        match self {
            Self::Unix(listening) => listening.socket(),
            Self::Tcp(socket, _) => socket,
        }
    }

    /// The address, with the actual port.
    pub fn address(&self) -> ListenAddress {
        match self {
            Self::Unix(listening) => ListenAddress::Unix(listening.path().to_owned()),
            Self::Tcp(_, address) => ListenAddress::Tcp(*address),
        }
    }
}
