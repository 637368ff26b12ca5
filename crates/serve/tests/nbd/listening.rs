//! The addresses at which a server listens, and those that it rejects.

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;

use emmclab_base::{Error, ErrorClass};
use emmclab_serve::nbd::{ListenAddress, NbdExportOptions, NbdServer};

use crate::support::{Client, READ, memory, options};

fn start(path: &Path) -> Result<NbdServer, Error> {
    NbdServer::start(memory(64), &ListenAddress::Unix(path.to_owned()), options())
}

/// The error for a rejected address; each one has a hint.
fn refused(path: &Path) -> String {
    let error = start(path).map(drop).unwrap_err();
    assert!(error.hint_text().is_some(), "{error}");
    error.to_string()
}

#[test]
fn a_socket_has_mode_0600_and_goes_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nbd");
    let server = start(&path).unwrap();
    let metadata = fs::symlink_metadata(&path).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert_eq!(server.uri(), format!("nbd+unix:///?socket={}", path.display()));
    drop(server);
    assert!(!path.exists());
}

#[test]
fn a_taken_path_is_refused_and_a_stale_socket_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nbd");
    fs::write(&path, "data").unwrap();
    assert!(refused(&path).contains("not a socket"));
    fs::remove_file(&path).unwrap();
    let server = start(&path).unwrap();
    assert!(refused(&path).contains("already listens on this socket"));
    assert_eq!(Client::connect(&path).ready(true).ask(READ, 0, 0, 512).error, 0);
    server.stop();
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a stale socket");
    start(&path).unwrap().stop();
}

#[test]
fn a_server_removes_only_its_own_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nbd");
    let server = start(&path).unwrap();
    fs::rename(&path, folder.path().join("moved")).unwrap();
    let other = start(&path).unwrap();
    server.stop();
    assert!(path.exists());
    other.stop();
}

#[test]
fn one_of_many_servers_gets_a_stale_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nbd");
    drop(UnixListener::bind(&path).unwrap());
    let servers: Vec<_> = thread::scope(|scope| {
        let starting: Vec<_> = (0..8).map(|_| scope.spawn(|| start(&path))).collect();
        starting.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(servers.iter().filter(|server| server.is_ok()).count(), 1);
    assert_eq!(Client::connect(&path).ready(true).ask(READ, 0, 0, 512).error, 0);
}

#[test]
fn folders_that_others_write_and_long_paths_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o770)).unwrap();
    assert!(refused(&folder.path().join("nbd")).contains("other users can write"));
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    start(&folder.path().join("nbd")).unwrap();
    assert!(refused(Path::new("/tmp/nbd")).contains("folder"));
    assert!(refused(&folder.path().join("missing/nbd")).contains("missing"));
    assert!(refused(&folder.path().join("x".repeat(108))).contains("107 bytes"));
}

#[test]
fn tcp_is_loopback_only() {
    for text in ["0.0.0.0:10809", "192.168.0.1:10809", "[::]:10809", "[::ffff:127.0.0.1]:10809", "localhost", ""] {
        assert_eq!(ListenAddress::tcp(text).unwrap_err().kind(), ErrorClass::Config, "{text}");
    }
    let open = ListenAddress::Tcp("0.0.0.0:0".parse().unwrap());
    assert!(NbdServer::start(memory(64), &open, NbdExportOptions::default()).is_err());
    let server = NbdServer::start(memory(64), &ListenAddress::tcp("127.0.0.1:0").unwrap(), options()).unwrap();
    let ListenAddress::Tcp(address) = server.address().clone() else { panic!("another place") };
    assert_eq!(server.uri(), format!("nbd://{address}"));
    assert_ne!(address.port(), 0);
    let taken = NbdServer::start(memory(64), &ListenAddress::Tcp(address), options()).map(drop).unwrap_err();
    assert!(taken.to_string().contains("cannot listen"), "{taken}");
    drop(std::net::TcpStream::connect(address).unwrap());
    server.stop();
}

#[test]
fn senseless_exports_are_refused() {
    let long = NbdExportOptions { name: "x".repeat(5000), ..NbdExportOptions::default() };
    let place = ListenAddress::tcp("127.0.0.1:0").unwrap();
    assert_eq!(NbdServer::start(memory(64), &place, long).map(drop).unwrap_err().kind(), ErrorClass::Config);
    let huge = NbdServer::start(memory(1 << 55), &place, NbdExportOptions::default()).map(drop).unwrap_err();
    assert!(huge.to_string().contains("too large"), "{huge}");
}
