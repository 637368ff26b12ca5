//! Clients that die, send garbage or never read, and a server that stops at any time.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use emmclab_serve::BlockDevice;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::devices::TestDevice;
use crate::support::{CACHE, Client, DISC, FLUSH, READ, TestServer, WRITE, ZEROES, header, memory, options, pattern, served};

const ESHUTDOWN: u32 = 108;

/// The bytes of a valid session: options, the start of transmission, and commands.
fn session() -> Vec<u8> {
    let name = b"\0\0\0\0\0\0\0\x01\0\0\0\x0fbase:allocation";
    let option = |kind: u8, data: &[u8]| [b"IHAVEOPT\0\0\0", &[kind, 0, 0, 0, data.len() as u8][..], data].concat();
    [
        b"\0\0\0\x03".to_vec(),
        option(3, &[]),
        option(8, &[]),
        option(9, &[0; 8]),
        option(10, name),
        option(6, b"\0\0\0\x04disk\0\x02\0\x01\0\x03"),
        option(7, &[0; 6]),
        header(WRITE, 1, 1, 0, 1024),
        vec![7; 1024],
        header(READ, 4, 2, 0, 4096),
        header(ZEROES, 2, 3, 512, 4096),
        header(7, 0, 4, 0, 1 << 20),
        header(FLUSH, 0, 5, 0, 0),
        header(READ, 0, 6, 0, 1 << 20),
        header(DISC, 0, 7, 0, 0),
    ]
    .concat()
}

/// Sends bytes and the end of the stream, and reads until the server closes the connection.
fn survives(device: Arc<dyn BlockDevice>, bytes: &[u8]) {
    let (mut stream, thread) = served(device, options());
    let mut sender = stream.try_clone().unwrap();
    let sent = thread::scope(|scope| {
        // The server may close the connection before it has read everything.
        let sent = scope.spawn(move || sender.write_all(bytes).and_then(|()| sender.shutdown(Shutdown::Write)));
        let mut received = Vec::new();
        let _ = stream.read_to_end(&mut received);
        sent.join().unwrap()
    });
    drop(sent);
    thread.join().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(256), ..ProptestConfig::default() })]

    #[test]
    fn garbage_at_any_point_ends_in_peace(at in any::<prop::sample::Index>(), garbage in vec(any::<u8>(), 0..600)) {
        let session = session();
        let (before, _) = session.split_at(at.index(session.len()));
        survives(memory(4096), &[before, &garbage].concat());
    }

    #[test]
    fn altered_bytes_end_in_peace(changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), late in any::<bool>()) {
        let mut session = session();
        for (at, byte) in changes {
            let at = at.index(session.len());
            session[at] = byte;
        }
        survives(if late { Arc::new(TestDevice::late(4096, 64)) } else { memory(4096) }, &session);
    }
}

#[test]
fn a_session_cut_at_every_byte_ends_in_peace() {
    let session = session();
    for end in (0..session.len()).filter(|end| *end < 300 || end % 97 == 0) {
        survives(memory(4096), &session[..end]);
    }
}

#[test]
fn bytes_that_come_one_by_one_make_the_same_replies() {
    let replies = [1, 3, 4096].map(|size| {
        let (mut stream, thread) = served(memory(4096), options());
        let mut sender = stream.try_clone().unwrap();
        let sent = thread::spawn(move || session().chunks(size).try_for_each(|part| sender.write_all(part)));
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        sent.join().unwrap().unwrap();
        thread.join().unwrap();
        received
    });
    assert!(replies[0].len() > 5000);
    assert!(replies[0] == replies[1] && replies[1] == replies[2]);
}

#[test]
fn a_client_that_never_reads_holds_bounded_memory_and_delays_nobody() {
    let device = TestDevice::held(1 << 16);
    let server = TestServer::on(device.clone());
    let mut greedy = server.client(true);
    let requests: Vec<u8> = (0..1000).flat_map(|cookie| header(READ, 0, cookie, 0, 1 << 20)).collect();
    let mut sender = greedy.stream.try_clone().unwrap();
    let sending = thread::spawn(move || sender.write_all(&requests));
    device.wait_for(31);
    let mut modest = server.client(true);
    modest.send(READ, 0, 1, 0, 4096, &[]);
    device.wait_for(32);
    // 31 MiB and the small request have arrived; the budget of a connection is 32 MiB.
    assert_eq!(device.count(), 32);
    device.release();
    assert_eq!(modest.receive().1.data, [0; 4096]);
    sending.join().unwrap().unwrap();
    // The greedy client continues when it reads: the server sends holes instead of data.
    let reader = thread::spawn(move || {
        for _ in 0..1000 {
            let mut chunk = [0; 32];
            greedy.stream.read_exact(&mut chunk).unwrap();
            assert_eq!(chunk[6..8], [0, 2]);
        }
    });
    while !reader.is_finished() {
        device.release();
        thread::yield_now();
    }
    reader.join().unwrap();
    server.server.stop();
}

#[test]
fn many_clients_share_one_memory_budget_and_none_is_starved() {
    let device = TestDevice::held(1 << 16);
    let server = TestServer::on(device.clone());
    // 40 clients request 20 MiB each, 800 MiB in total.
    let mut clients: Vec<Client> = (0..40).map(|_| server.client(true)).collect();
    for client in &mut clients {
        (0..20).for_each(|cookie| client.send(READ, 0, cookie, 0, 1 << 20, &[]));
    }
    // Each client has its own part, and the common part is nearly full.
    device.wait_for(256);
    let mut late = server.client(true);
    late.send(READ, 0, 1, 0, 4096, &[]);
    while device.requests.lock().unwrap().iter().all(|request| request.sectors != 8) {
        thread::yield_now();
    }
    // 2 MiB of each client, and 256 MiB in common.
    assert!(device.count() <= 41 * 2 + 256, "{} MiB are held", device.count());
    let readers: Vec<_> =
        clients.into_iter().map(|mut client| thread::spawn(move || (0..20).all(|_| client.receive().1.error == 0))).collect();
    while !readers.iter().all(thread::JoinHandle::is_finished) {
        device.release();
        thread::sleep(Duration::from_millis(1));
    }
    assert!(readers.into_iter().all(|reader| reader.join().unwrap()));
    assert_eq!(late.receive().1.data, [0; 4096]);
    server.server.stop();
}

#[test]
fn long_requests_beyond_the_memory_budget_wait_for_their_turn() {
    let server = TestServer::on(memory(1 << 16));
    let mut clients: Vec<Client> = (0..12).map(|_| server.client(false)).collect();
    for client in &mut clients {
        client.send(READ, 0, 1, 0, 32 << 20, &[]);
    }
    // The last requests wait until the first clients have read; requests that fit into a client's own part do not wait.
    let mut modest = server.client(false);
    assert_eq!(modest.write(0, 0, &pattern(1, 4096)), 0);
    let read = |mut client: Client| thread::spawn(move || client.receive().1.data.len());
    let readers: Vec<_> = clients.into_iter().map(read).collect();
    assert!(readers.into_iter().all(|reader| reader.join().unwrap() == 32 << 20));
    server.server.stop();
}

#[test]
fn clients_that_die_at_once_harm_nobody() {
    let server = TestServer::on(Arc::new(TestDevice::late(1 << 14, 64)));
    let mut steady = server.client(false);
    for round in 0..50_u8 {
        drop(UnixStream::connect(&server.socket).unwrap());
        drop(Client::connect(&server.socket));
        let mut dying = server.client(true);
        dying.send(READ, 0, 1, 0, 1 << 20, &[]);
        // The data of this write never arrives completely.
        dying.send(WRITE, 0, 2, 1 << 20, 1 << 20, &vec![round; 1 << 15]);
        drop(dying);
        assert_eq!(steady.write(0, 4096, &pattern(round, 4096)), 0);
        assert_eq!(steady.ask(READ, 0, 4096, 4096).data, pattern(round, 4096));
    }
    server.server.stop();
    steady.closed();
}

#[test]
fn a_hundred_clients_work_at_once() {
    let server = TestServer::on(memory(1 << 14));
    thread::scope(|scope| {
        for number in 0..100_u8 {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.client(number % 2 == 0);
                let offset = u64::from(number) << 13;
                for round in 0..20 {
                    let data = pattern(number ^ round, 1 << 13);
                    assert_eq!(client.write(0, offset, &data), 0);
                    assert!(client.ask(READ, 0, offset, 1 << 13).data == data);
                }
            });
        }
    });
    server.server.stop();
}

#[test]
fn more_clients_than_the_limit_are_turned_away_until_one_leaves() {
    let server = TestServer::on(memory(64));
    let mut clients: Vec<Client> = (0..128).map(|_| Client::connect(&server.socket)).collect();
    let mut turned_away = UnixStream::connect(&server.socket).unwrap();
    assert_eq!(turned_away.read(&mut [0; 1]).unwrap(), 0);
    drop(clients.pop());
    while UnixStream::connect(&server.socket).unwrap().read(&mut [0; 1]).unwrap() == 0 {
        thread::yield_now();
    }
    server.server.stop();
}

#[test]
fn a_device_that_completes_nothing_does_not_keep_the_server_from_stopping() {
    let device = TestDevice::held(64);
    let server = TestServer::on(device.clone());
    let mut client = server.client(true);
    client.send(READ, 0, 1, 0, 512, &[]);
    device.wait_for(1);
    server.server.stop();
    client.closed();
    device.release();
}

#[test]
fn a_stop_answers_what_the_device_has_and_refuses_the_rest() {
    let device = TestDevice::held(64);
    let server = TestServer::on(device.clone());
    let mut negotiating = Client::connect(&server.socket);
    let mut client = server.client(true);
    client.send(WRITE, 0, 1, 0, 512, &[1; 512]);
    device.wait_for(1);
    let stopping = thread::spawn(move || server.server.stop());
    // From now on the connection may notice the stop at any time; the device never receives this command.
    let refused = std::iter::repeat_with(|| client.ask(CACHE, 0, 0, 512).error).find(|error| *error != 0);
    assert_eq!(refused, Some(ESHUTDOWN));
    assert!(!server.socket.exists());
    assert_eq!(client.write(0, 512, &[2; 512]), ESHUTDOWN);
    assert_eq!(device.count(), 1);
    device.release();
    assert_eq!(client.receive().1.error, 0);
    stopping.join().unwrap();
    negotiating.stream.read_to_end(&mut Vec::new()).unwrap();
}
