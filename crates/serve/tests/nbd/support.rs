//! A small client that reads everything a server may send.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use emmclab_serve::nbd::{ListenAddress, NbdExportOptions, NbdServer, serve_stream};
use emmclab_serve::{BlockDevice, MemoryDevice};

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISC: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const CACHE: u16 = 5;
pub const ZEROES: u16 = 6;
pub const STATUS: u16 = 7;

pub const FUA: u16 = 1;
pub const NO_HOLE: u16 = 2;
pub const DF: u16 = 4;
pub const REQ_ONE: u16 = 8;
pub const FAST_ZERO: u16 = 16;

/// Time limit of a server; it is long, so that a busy machine causes no failure.
pub const HUNG: Duration = Duration::from_mins(10);

/// Serves the other end of the returned stream in a thread.
pub fn served(device: Arc<dyn BlockDevice>, options: NbdExportOptions) -> (UnixStream, JoinHandle<()>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(HUNG)).unwrap();
    ours.set_write_timeout(Some(HUNG)).unwrap();
    let thread = thread::spawn(move || serve_stream(device, options, theirs.into()).unwrap());
    (ours, thread)
}

pub fn memory(sectors: u64) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::new(sectors))
}

/// A named export with a description.
pub fn options() -> NbdExportOptions {
    NbdExportOptions { name: "disk".into(), description: "a device for tests".into(), read_only: false }
}

/// A server on a socket in its own folder.
pub struct TestServer {
    pub server: NbdServer,
    pub socket: PathBuf,
    pub folder: tempfile::TempDir,
}

impl TestServer {
    pub fn on(device: Arc<dyn BlockDevice>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("nbd");
        let server = NbdServer::start(device, &ListenAddress::Unix(socket.clone()), options()).unwrap();
        Self { server, socket, folder }
    }

    /// A client in the transmission phase.
    pub fn client(&self, structured: bool) -> Client {
        Client::connect(&self.socket).ready(structured)
    }
}

/// The reply to a request: the data of a read, or the extents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    pub error: u32,
    pub data: Vec<u8>,
    /// Number of bytes that were sent as holes.
    pub holes: usize,
    /// Number of chunks with content.
    pub chunks: usize,
    pub extents: Vec<(u32, u32)>,
}

/// A client after the greeting.
pub struct Client {
    pub stream: UnixStream,
    structured: bool,
    /// Offset and length of reads that are not answered yet.
    reads: BTreeMap<u64, (u64, usize)>,
    partial: BTreeMap<u64, Reply>,
}

impl Client {
    pub fn greet(mut stream: UnixStream) -> Self {
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting, b"NBDMAGICIHAVEOPT\0\x03");
        stream.write_all(&[0, 0, 0, 3]).unwrap();
        Self { stream, structured: false, reads: BTreeMap::new(), partial: BTreeMap::new() }
    }

    pub fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(HUNG)).unwrap();
        Self::greet(stream)
    }

    /// Enters the transmission phase, with structured replies and block status if requested.
    pub fn ready(mut self, structured: bool) -> Self {
        self.structured = structured;
        if structured {
            assert_eq!(self.option(8, &[]), [(1, Vec::new())]);
            let data = [&[0; 4][..], &[0, 0, 0, 1], &[0, 0, 0, 15], b"base:allocation"].concat();
            assert_eq!(self.option(10, &data), [(4, b"\0\0\0\x01base:allocation".to_vec()), (1, Vec::new())]);
        }
        assert_eq!(self.option(7, &[0; 6]).last(), Some(&(1, Vec::new())));
        self
    }

    pub fn on(device: Arc<dyn BlockDevice>, structured: bool) -> Self {
        Self::greet(served(device, options()).0).ready(structured)
    }

    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn vec(&mut self, count: u32) -> Vec<u8> {
        let mut bytes = vec![0; count as usize];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.bytes())
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.bytes())
    }

    pub fn send_option(&mut self, kind: u32, data: &[u8]) {
        let length = (data.len() as u32).to_be_bytes();
        self.stream.write_all(&[b"IHAVEOPT", &kind.to_be_bytes()[..], &length, data].concat()).unwrap();
    }

    /// Sends an option; returns type and data of its replies, the final one last.
    pub fn option(&mut self, kind: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.send_option(kind, data);
        let mut replies = Vec::new();
        loop {
            assert_eq!((self.u64(), self.u32()), (0x0003_e889_0455_65a9, kind));
            let (kind, length) = (self.u32(), self.u32());
            replies.push((kind, self.vec(length)));
            if kind == 1 || kind >> 31 == 1 {
                return replies;
            }
        }
    }

    /// Sends a request.
    pub fn send(&mut self, kind: u16, flags: u16, cookie: u64, offset: u64, length: u32, data: &[u8]) {
        if kind == READ {
            self.reads.insert(cookie, (offset, length as usize));
        }
        let header = header(kind, flags, cookie, offset, length);
        self.stream.write_all(&[&header[..], data].concat()).unwrap();
    }

    /// The next complete reply and its cookie.
    pub fn receive(&mut self) -> (u64, Reply) {
        loop {
            let (cookie, done) = match self.u32() {
                0x6744_6698 => self.simple(),
                0x668e_33ef if self.structured => self.chunk(),
                other => panic!("magic number {other:#x}"),
            };
            if done {
                self.reads.remove(&cookie);
                return (cookie, self.partial.remove(&cookie).unwrap());
            }
        }
    }

    fn simple(&mut self) -> (u64, bool) {
        let (error, cookie) = (self.u32(), self.u64());
        let mut reply = Reply { error, ..Reply::default() };
        if let Some((_, length)) = self.reads.get(&cookie).copied() {
            assert!(!self.structured, "a read has a structured reply");
            if error == 0 {
                reply.data = self.vec(length as u32);
            }
        }
        assert_eq!(self.partial.insert(cookie, reply), None);
        (cookie, true)
    }

    fn chunk(&mut self) -> (u64, bool) {
        let (flags, kind, cookie) = (self.bytes::<2>(), u16::from_be_bytes(self.bytes()), self.u64());
        let length = self.u32();
        let mut reply = self.partial.remove(&cookie).unwrap_or_default();
        let (start, wanted) = self.reads.get(&cookie).copied().unwrap_or_default();
        reply.data.resize(wanted, 0xee);
        match kind {
            1 => {
                let at = (self.u64() - start) as usize;
                let data = self.vec(length - 8);
                reply.data[at..at + data.len()].copy_from_slice(&data);
                reply.chunks += 1;
            }
            2 => {
                assert_eq!(length, 12);
                let (at, count) = ((self.u64() - start) as usize, self.u32() as usize);
                reply.data[at..at + count].fill(0);
                reply.holes += count;
                reply.chunks += 1;
            }
            5 => {
                assert_eq!(self.u32(), 1);
                reply.extents = (0..(length - 4) / 8).map(|_| (self.u32(), self.u32())).collect();
            }
            0x8001 => {
                reply.error = self.u32();
                let words = u16::from_be_bytes(self.bytes());
                assert_eq!(u32::from(words), length - 6);
                assert!(String::from_utf8(self.vec(length - 6)).is_ok_and(|text| !text.is_empty()));
            }
            other => panic!("chunk of type {other}"),
        }
        self.partial.insert(cookie, reply);
        (cookie, flags == [0, 1])
    }

    /// Sends a request and waits for its reply; no other request may be in flight.
    pub fn ask(&mut self, kind: u16, flags: u16, offset: u64, length: u32) -> Reply {
        self.send(kind, flags, 7, offset, length, &[]);
        let (cookie, reply) = self.receive();
        assert_eq!(cookie, 7);
        reply
    }

    /// Writes; returns the error.
    pub fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> u32 {
        self.send(WRITE, flags, 8, offset, data.len() as u32, data);
        self.receive().1.error
    }

    /// Waits until the server closes the connection; the server must send nothing before.
    pub fn closed(mut self) {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => assert!(rest.is_empty(), "{rest:?}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
}

pub fn header(kind: u16, flags: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

/// Data that differs between sectors.
pub fn pattern(seed: u8, count: usize) -> Vec<u8> {
    (0..count).map(|at| seed.wrapping_add((at / 512) as u8).wrapping_mul(31) | 1).collect()
}
