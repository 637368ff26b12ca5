//! The addresses at which a server listens, and those that it rejects. Options and their replies, byte for byte.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;

use emmclab_base::{Error, ErrorClass};
use emmclab_serve::nbd::{ListenAddress, NbdExportOptions, NbdServer};

use crate::support::{Client, READ, memory, options, served};

const ERR_UNSUP: u32 = (1 << 31) + 1;
const ERR_POLICY: u32 = (1 << 31) + 2;
const ERR_INVALID: u32 = (1 << 31) + 3;
const ERR_UNKNOWN: u32 = (1 << 31) + 6;
const ERR_TOO_BIG: u32 = (1 << 31) + 9;

fn client() -> Client {
    Client::greet(served(memory(2048), options()).0)
}

/// The type of the final reply.
fn end(replies: &[(u32, Vec<u8>)]) -> u32 {
    replies.last().unwrap().0
}

#[test]
fn a_session_by_hand_has_exactly_these_bytes() {
    let (mut stream, thread) = served(memory(2048), options());
    let mut expect = |sent: &[u8], expected: &[u8]| {
        stream.write_all(sent).unwrap();
        let mut received = vec![0; expected.len()];
        stream.read_exact(&mut received).unwrap();
        assert_eq!(received, expected);
    };
    expect(b"", b"NBDMAGICIHAVEOPT\x00\x03");
    expect(b"\0\0\0\x03", b"");
    let mut go = b"IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0".to_vec();
    let size = b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x03\0\0\0\x0c\0\0\0\0\0\0\0\x10\0\0\x09\x6d";
    let blocks = b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x03\0\0\0\x0e\0\x03\0\0\x02\0\0\0\x10\0\x02\0\0\0";
    let ack = b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x01\0\0\0\0";
    expect(&go.split_off(0), &[&size[..], blocks, ack].concat());
    let write = b"\x25\x60\x95\x13\0\x01\0\x01ABCDEFGH\0\0\0\0\0\0\x02\0\0\0\x02\0";
    expect(&[&write[..], &[0x5a; 512]].concat(), b"\x67\x44\x66\x98\0\0\0\0ABCDEFGH");
    let read = b"\x25\x60\x95\x13\0\0\0\0abcdefgh\0\0\0\0\0\0\x02\0\0\0\x02\0";
    expect(read, &[&b"\x67\x44\x66\x98\0\0\0\0abcdefgh"[..], &[0x5a; 512]].concat());
    let beyond = b"\x25\x60\x95\x13\0\0\0\0abcdefgh\0\0\0\0\0\x10\0\0\0\0\x02\0";
    expect(beyond, b"\x67\x44\x66\x98\0\0\0\x16abcdefgh");
    expect(b"\x25\x60\x95\x13\0\0\0\x02abcdefgh\0\0\0\0\0\0\0\0\0\0\0\0", b"");
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    thread.join().unwrap();
}

#[test]
fn export_name_answers_with_and_without_zeroes() {
    for (flags, zeroes) in [(3, 0), (1, 124), (0, 124)] {
        let (mut stream, _) = served(memory(2048), options());
        stream.read_exact(&mut [0; 18]).unwrap();
        stream.write_all(&[0, 0, 0, flags]).unwrap();
        stream.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\x04disk").unwrap();
        let mut answer = vec![0; 10 + zeroes];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..10], *b"\0\0\0\0\0\x10\0\0\x09\x6d");
        // The next byte belongs to the reply to a request.
        stream.write_all(b"\x25\x60\x95\x13\0\0\0\x03abcdefgh\0\0\0\0\0\0\0\0\0\0\0\0").unwrap();
        let mut reply = [0; 16];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"\x67\x44\x66\x98\0\0\0\0abcdefgh");
    }
}

#[test]
fn an_unknown_export_name_or_client_flag_ends_the_connection() {
    for name in [&b"nothing"[..], &[b'x'; 5000]] {
        let mut client = client();
        client.send_option(1, name);
        client.closed();
    }
    let (mut stream, thread) = served(memory(8), options());
    stream.read_exact(&mut [0; 18]).unwrap();
    stream.write_all(&[0, 0, 0, 7]).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    thread.join().unwrap();
}

#[test]
fn list_names_the_default_and_the_named_export() {
    let mut client = client();
    let described = |name: &str| [&[0, 0, 0, name.len() as u8], name.as_bytes(), b"a device for tests"].concat();
    assert_eq!(client.option(3, &[]), [(2, described("")), (2, described("disk")), (1, Vec::new())]);
    assert_eq!(end(&client.option(3, b"x")), ERR_INVALID);
}

#[test]
fn info_answers_what_was_asked_and_stays_in_negotiation() {
    let mut client = client();
    let data = b"\0\0\0\x04disk\0\x04\0\x01\0\x02\0\x03\x12\x34";
    let replies = client.option(6, data);
    let items: Vec<_> = replies.iter().map(|(kind, data)| (*kind, data.get(..2).unwrap_or_default())).collect();
    assert_eq!(items, [(3, &[0, 0][..]), (3, &[0, 1]), (3, &[0, 2]), (3, &[0, 3]), (1, &[])]);
    assert_eq!(replies[1].1, b"\0\x01disk");
    assert_eq!(replies[2].1, b"\0\x02a device for tests");
    assert_eq!(end(&client.option(6, b"\0\0\0\x04desk\0\0")), ERR_UNKNOWN);
    assert_eq!(client.option(8, &[]), [(1, Vec::new())]);
    // With structured replies, DF is advertised.
    assert_eq!(client.option(7, data)[0].1[10..], [0x09, 0xed]);
}

#[test]
fn malformed_options_are_invalid_and_the_next_is_understood() {
    let mut client = client();
    assert_eq!(client.option(8, &[]), [(1, Vec::new())]);
    let malformed: [(u32, &[u8]); 13] = [
        (6, b""),
        (7, b"\0\0\0"),
        (7, b"\xff\xff\xff\xff\0\0"),
        (7, b"\0\0\0\x01\0\0"),
        (7, b"\0\0\0\0\0\x02\0\x03"),
        (6, b"\0\0\0\0\0\0\0"),
        (8, b"x"),
        (5, b"x"),
        (9, b"\0\0\0\0"),
        (9, b"\0\0\0\0\0\0\0\x01"),
        (10, b"\0\0\0\0\xff\xff\xff\xff\0\0\0\0"),
        (10, b"\0\0\0\0\0\0\0\0x"),
        (10, b"\0\0\0\0\0\0\0\x01\0\0\0\x04base"),
    ];
    for (kind, data) in malformed {
        assert_eq!(end(&client.option(kind, data)), ERR_INVALID, "option {kind} with {data:?}");
    }
    for unknown in [4, 11, 12, u32::MAX] {
        assert_eq!(end(&client.option(unknown, b"abc")), ERR_UNSUP);
    }
    assert_eq!(end(&client.option(5, &[])), ERR_POLICY);
    assert_eq!(end(&client.option(99, &vec![0; 100_000])), ERR_TOO_BIG);
    assert_eq!(end(&client.option(9, b"\0\0\0\x01x\0\0\0\0")), ERR_UNKNOWN);
    assert_eq!(end(&client.option(3, &[])), 1);
    client.send_option(3, &[]);
    client.option(3, &[]);
}

#[test]
fn abort_is_acknowledged_and_ends() {
    let mut client = client();
    assert_eq!(client.option(2, b"ignored"), [(1, Vec::new())]);
    client.closed();
}

#[test]
fn a_wrong_magic_or_an_endless_option_ends_the_connection() {
    for option in [b"IHAVEOPS\0\0\0\x03\0\0\0\0", b"IHAVEOPT\0\0\0\x63\xff\xff\xff\xff"] {
        let mut client = client();
        client.stream.write_all(option).unwrap();
        client.closed();
    }
}

#[test]
fn contexts_are_listed_and_selected_by_queries() {
    let mut client = client();
    let query = |text: &str| [&[0; 4][..], &[0, 0, 0, 1, 0, 0, 0, text.len() as u8], text.as_bytes()].concat();
    assert_eq!(end(&client.option(9, &[0; 8])), ERR_INVALID, "structured replies are not negotiated");
    client.option(8, &[]);
    let listed = (4, b"\0\0\0\0base:allocation".to_vec());
    let selected = (4, b"\0\0\0\x01base:allocation".to_vec());
    let ack = (1, Vec::new());
    for data in [vec![0; 8], query("base:"), query("base:allocation")] {
        assert_eq!(client.option(9, &data), [listed.clone(), ack.clone()]);
    }
    for text in ["qemu:dirty-bitmap:", "base:other", "x:"] {
        assert_eq!(client.option(9, &query(text)), std::slice::from_ref(&ack));
        assert_eq!(client.option(10, &query(text)), std::slice::from_ref(&ack));
    }
    assert_eq!(client.option(10, &query("base:")), std::slice::from_ref(&ack), "a wildcard selects nothing");
    assert_eq!(client.option(10, &[0; 8]), std::slice::from_ref(&ack));
    assert_eq!(client.option(10, &query("base:allocation")), [selected, ack]);
}

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
