//! The SDHCI export as a vfio-user client sees it: a small client that implements the protocol and accesses the registers.
#![allow(clippy::unwrap_used, clippy::panic, dead_code, reason = "a test may, and uses a part of the devices")]

#[path = "common/devices.rs"]
mod devices;

use std::fs;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use devices::TestDevice;
use emmclab_serve::{BlockAction, CardSettings, MemoryDevice, SdhciExport, SessionEvent};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

const RAM: u64 = 1 << 20;
const CONFIGURATION: u32 = 7;

/// An export and its events.
struct Served {
    export: SdhciExport,
    device: Arc<TestDevice>,
    news: Receiver<SessionEvent>,
    folder: tempfile::TempDir,
}

impl Served {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let device = Arc::new(TestDevice::late(8 << 20, 1 << 16));
        let (sender, news) = channel();
        let path = folder.path().join("card");
        let send = move |event| drop(sender.send(event));
        let export = SdhciExport::start(device.clone(), &CardSettings::default(), &path, send).unwrap();
        Self { export, device, news, folder }
    }

    fn connect(&self) -> Client {
        let mut client = Client::connect(self.export.path());
        client.greet();
        assert_eq!(self.news.recv().unwrap(), SessionEvent::Connected);
        client
    }
}

/// A client of vfio-user.
struct Client {
    socket: UnixStream,
    id: u16,
    memory: OwnedFd,
    interrupt: OwnedFd,
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

impl Client {
    fn connect(path: &Path) -> Self {
        let memory = memfd_create("ram", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&memory, RAM).unwrap();
        let interrupt = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        Self { socket: UnixStream::connect(path).unwrap(), id: 0, memory, interrupt }
    }

    /// Sends a command with an optional file; returns the payload of the reply or its error.
    fn call(&mut self, command: u16, payload: &[u8], file: Option<BorrowedFd<'_>>) -> Result<Vec<u8>, u32> {
        self.id += 1;
        let mut message = Vec::from(self.id.to_ne_bytes());
        message.extend_from_slice(&command.to_ne_bytes());
        message.extend_from_slice(&words(&[16 + payload.len() as u32, 0, 0]));
        message.extend_from_slice(payload);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let files = file.map(|file| [file]);
        if let Some(files) = &files {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(files)));
        }
        let sent = sendmsg(&self.socket, &[IoSlice::new(&message)], &mut ancillary, SendFlags::empty()).unwrap();
        assert_eq!(sent, message.len());
        let mut header = [0; 16];
        self.socket.read_exact(&mut header).unwrap();
        let word = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().unwrap());
        assert_eq!(header[..4], message[..4]);
        let mut reply = vec![0; word(4) as usize - 16];
        self.socket.read_exact(&mut reply).unwrap();
        if word(8) & 1 << 5 == 0 { Ok(reply) } else { Err(word(12)) }
    }

    fn access(region: u32, offset: u64, count: u32) -> Vec<u8> {
        [&offset.to_ne_bytes()[..], &words(&[region, count])].concat()
    }

    fn set(&mut self, region: u32, offset: u64, value: u32) {
        let payload = [Self::access(region, offset, 4), value.to_le_bytes().to_vec()].concat();
        self.call(10, &payload, None).unwrap();
    }

    fn get(&mut self, region: u32, offset: u64) -> u32 {
        let reply = self.call(9, &Self::access(region, offset, 4), None).unwrap();
        u32::from_le_bytes(reply[16..].try_into().unwrap())
    }

    /// Negotiates the version of the protocol.
    fn greet(&mut self) {
        let version = [&[0, 0, 0, 0][..], br#"{"capabilities":{"max_msg_fds":8}}"#, &[0]].concat();
        assert_eq!(self.call(1, &version, None).unwrap()[..4], [0; 4]);
    }

    /// Sets up memory, interrupt and bus mastering, and power, clock and interrupts of the controller.
    fn set_up(&mut self) {
        let map = [words(&[32, 3]), [0_u64, 0, RAM].iter().flat_map(|number| number.to_ne_bytes()).collect()].concat();
        let memory = self.memory.try_clone().unwrap();
        self.call(2, &map, Some(memory.as_fd())).unwrap();
        let interrupt = self.interrupt.try_clone().unwrap();
        self.call(8, &words(&[20, 1 << 2 | 1 << 5, 0, 0, 1]), Some(interrupt.as_fd())).unwrap();
        self.set(CONFIGURATION, 4, 6);
        for (offset, value) in [(0x28, 0x0f10), (0x2c, 0x000e_0005), (0x34, u32::MAX), (0x38, u32::MAX)] {
            self.set(0, offset, value);
        }
    }

    /// Sends a command and waits, by the interrupt, until these bits of the status are set.
    fn command(&mut self, index: u32, argument: u32, flags: u32, mode: u32, wanted: u32) -> u32 {
        self.set(0, 0x08, argument);
        self.set(0, 0x0c, index << 24 | flags << 16 | mode);
        let mut seen = 0;
        while seen & wanted != wanted {
            poll(&mut [PollFd::new(&self.interrupt, PollFlags::IN)], None).unwrap();
            rustix::io::read(&self.interrupt, &mut [0; 8]).unwrap();
            let status = self.get(0, 0x30);
            assert_eq!(status & 0xffff_8000, 0, "CMD{index}: {status:#x}");
            seen |= status;
            self.set(0, 0x30, status);
            // Unmask: the interrupt fires again if the line is still asserted.
            self.call(8, &words(&[20, 1 | 1 << 4, 0, 0, 1]), None).unwrap();
        }
        self.get(0, 0x10)
    }

    fn identify(&mut self) {
        self.command(0, 0, 0, 0, 1);
        self.command(1, 0x40ff_8080, 2, 0, 1);
        self.command(2, 0, 1, 0, 1);
        self.command(3, 1 << 16, 2, 0, 1);
        self.command(7, 1 << 16, 3, 0, 3);
    }

    /// Transfers 4 KiB between `address` in the guest and the first sectors.
    fn transfer(&mut self, write: bool, address: u32) {
        let descriptor = [0x0023_u32 | 4096 << 16, address];
        pwrite(&self.memory, &words(&descriptor), 0).unwrap();
        self.set(0, 0x58, 0);
        self.set(0, 0x04, 8 << 16 | 512);
        let (index, mode) = if write { (25, 0x27) } else { (18, 0x37) };
        self.command(index, 0, 0x3a, mode, 3);
    }

    /// Whether the server has closed the connection.
    fn closed(mut self) -> bool {
        matches!(self.socket.read(&mut [0]), Ok(0) | Err(_))
    }
}

#[test]
fn a_client_drives_the_card_by_registers_and_interrupts() {
    let served = Served::start();
    assert_eq!(fs::metadata(served.export.path()).unwrap().permissions().mode() & 0o777, 0o600);
    let mut client = served.connect();
    client.set_up();
    assert_eq!(client.get(CONFIGURATION, 8), 0x0805_0100);
    assert_eq!(client.call(4, &[0; 16], None).unwrap(), words(&[16, 3, 9, 5]));
    let region = client.call(5, &words(&[32, 0, 0, 0, 0, 0, 0, 0]), None).unwrap();
    assert_eq!(region[16..24], 256_u64.to_ne_bytes());
    client.identify();
    pwrite(&client.memory, &[0x5a; 4096], 0x8000).unwrap();
    client.transfer(true, 0x8000);
    client.command(6, 3 << 24 | 33 << 16 | 1 << 8, 3, 0, 3);
    client.command(6, 3 << 24 | 32 << 16 | 1 << 8, 3, 0, 3);
    let flushes = served.device.take().into_iter().filter(|request| request.action == BlockAction::Flush).count();
    assert_eq!(flushes, 1);
    client.transfer(false, 0xc000);
    let mut data = [0; 4096];
    pread(&client.memory, &mut data, 0xc000).unwrap();
    assert_eq!(data, [0x5a; 4096]);
    served.export.stop();
    assert!(client.closed());
    assert_eq!(fs::read_dir(served.folder.path()).unwrap().count(), 0, "the socket is gone");
}

#[test]
fn the_card_serves_one_client_after_the_other() {
    let served = Served::start();
    let mut first = served.connect();
    first.set_up();
    first.identify();
    pwrite(&first.memory, &[9; 4096], 0x8000).unwrap();
    first.transfer(true, 0x8000);
    assert!(Client::connect(served.export.path()).closed(), "a second client is turned away");
    // A reset of the function power-cycles the card and keeps the data.
    first.call(13, &[], None).unwrap();
    assert_eq!(first.get(0, 0x34), 0);
    drop(first);
    assert_eq!(served.news.recv().unwrap(), SessionEvent::Disconnected);
    let mut second = served.connect();
    second.set_up();
    second.identify();
    second.transfer(false, 0xc000);
    let mut data = [0; 4096];
    pread(&second.memory, &mut data, 0xc000).unwrap();
    assert_eq!(data, [9; 4096]);
}

#[test]
fn a_program_that_does_not_speak_the_protocol_is_no_virtual_machine() {
    let served = Served::start();
    drop(UnixStream::connect(served.export.path()).unwrap());
    assert_eq!(served.news.recv().unwrap(), SessionEvent::Stranger);
    let mut other = Client::connect(served.export.path());
    other.socket.write_all(&[words(&[1]), words(&[u32::MAX, 0, 0])].concat()).unwrap();
    assert!(other.closed());
    let SessionEvent::Refused(reason) = served.news.recv().unwrap() else { panic!("not refused") };
    assert!(SessionEvent::Refused(reason).to_string().contains("not a virtual machine was disconnected"));
    drop(served.connect());
    assert_eq!(served.news.recv().unwrap(), SessionEvent::Disconnected);
}

#[test]
fn what_a_client_must_not_send_is_refused() {
    let served = Served::start();
    let mut client = served.connect();
    let invalid = rustix::io::Errno::INVAL.raw_os_error() as u32;
    let long = Client::access(0, 0, 1 << 30);
    let numbers = |numbers: &[u64]| numbers.iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<u8>>();
    let wrapping = [words(&[32, 3]), numbers(&[0, u64::MAX, 2])].concat();
    let beyond = [words(&[32, 3]), numbers(&[0, 0, RAM + 4096])].concat();
    let memory = client.memory.try_clone().unwrap();
    for (command, payload) in [
        (1, &[][..]),
        (1, &[1, 0, 0, 0, b'{', b'}', 0]),
        (1, &[0, 0, 0, 0, b'{', 0]),
        (2, &[0; 7]),
        (2, &wrapping),
        (2, &beyond),
        (5, &words(&[32, 0, 9, 0])),
        (7, &words(&[16, 0, 5, 0])),
        (8, &words(&[20, 1 << 2 | 1 << 5, 0, 1, 1])),
        (8, &words(&[20, 0, 0, 0, 0])),
        (9, &Client::access(0, 256, 4)),
        (9, &Client::access(0, u64::MAX, 4)),
        (9, &Client::access(2, 0, 4)),
        (9, &Client::access(7, 254, 4)),
        (9, &long),
        (10, &Client::access(0, 0, 4)),
        (10, &[0; 3]),
    ] {
        let file = (command == 2).then(|| memory.as_fd());
        assert_eq!(client.call(command, payload, file), Err(invalid), "{command} {payload:?}");
    }
    for command in [0, 6, 11, 12, 14, 99] {
        assert!(client.call(command, &[0; 64], None).is_err());
    }
    // The connection is still open; a header with a wrong length ends it.
    client.set_up();
    client.socket.write_all(&[words(&[1]), words(&[u32::MAX, 0, 0])].concat()).unwrap();
    assert!(client.closed());
    assert!(matches!(served.news.recv().unwrap(), SessionEvent::Fault(_)));
    let mut next = served.connect();
    next.set_up();
    next.identify();
}

#[test]
fn memory_that_is_not_shared_is_named() {
    let served = Served::start();
    let mut client = served.connect();
    client.set_up();
    client.identify();
    let numbers = [0x1000_0000_u64, RAM].iter().flat_map(|number| number.to_ne_bytes()).collect();
    let map = [words(&[32, 3]), 0_u64.to_ne_bytes().to_vec(), numbers].concat();
    client.call(2, &map, None).unwrap();
    client.set(0, 0x58, 0x1000_0000);
    client.set(0, 0x04, 8 << 16 | 512);
    client.set(0, 0x08, 0);
    client.set(0, 0x0c, 18 << 24 | 0x3a << 16 | 0x37);
    assert_eq!(served.news.recv().unwrap(), SessionEvent::MemoryNotShared);
    assert_ne!(client.get(0, 0x30) & 1 << 25, 0, "an ADMA error");
}

#[test]
fn a_client_that_stops_in_a_message_does_not_hold_up_the_end() {
    let served = Served::start();
    let mut client = served.connect();
    client.socket.write_all(&[1, 0, 1]).unwrap();
    served.export.stop();
    assert!(client.closed());
}

#[test]
fn settings_that_no_register_can_state_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let good = CardSettings::default;
    let cases = [
        CardSettings { name: "too long".to_owned(), ..good() },
        CardSettings { revision: 0x1a, ..good() },
        CardSettings { cache_bytes: 100, ..good() },
        CardSettings { cache_bytes: 0, ..good() },
        CardSettings { reliable_sectors: 0, ..good() },
        CardSettings { erase_group_bytes: 4096, ..good() },
        CardSettings { optimal_write_bytes: 100, ..good() },
        CardSettings { boot_bytes: 1, ..good() },
        CardSettings { rpmb_bytes: 32 << 20, ..good() },
    ];
    let path = folder.path().join("card");
    for settings in cases {
        let error = SdhciExport::start(Arc::new(MemoryDevice::new(8)), &settings, &path, |_| ()).err().unwrap();
        assert!(error.hint_text().is_some(), "{error}");
    }
    for sectors in [0, 1 << 32] {
        assert!(SdhciExport::start(Arc::new(MemoryDevice::new(sectors)), &good(), &path, |_| ()).is_err());
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
