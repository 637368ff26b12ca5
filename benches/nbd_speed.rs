//! Speed of NBD servers side by side: 4 KB reads and writes at depth 1 and 32, by one client that is the same for all.
//!
//! ```text
//! cargo run --release -p emmclab-serve --example nbd_speed [-- SECONDS [ROUNDS]]
//! ```
//!
//! Our server exports a [`MemoryDevice`]; beside it stand `nbdkit memory` and `qemu-nbd` with a file in memory, where they are
//! installed (Debian packages nbdkit, qemu-utils). Every server has the same 256 MB, written before. The client reads and writes
//! random blocks with simple replies over a unix socket: it keeps `depth` requests in flight, sends those that became due with
//! one system call and receives all replies that are there. Servers take turns in each round; the median of rounds is printed.

use std::error::Error;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use emmclab_serve::MemoryDevice;
use emmclab_serve::nbd::{Listen, Options, Server};

const SIZE: u64 = 256 << 20;
const BLOCK: usize = 4096;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A server of another project, which ends with this value.
struct Foreign(Child);

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client in the transmission phase.
struct Client {
    stream: UnixStream,
    state: u64,
    requests: Vec<u8>,
    replies: Vec<u8>,
}

impl Client {
    fn connect(socket: &Path) -> Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        // Fixed newstyle without zeroes, then NBD_OPT_EXPORT_NAME with the empty name.
        stream.write_all(&[&3_u32.to_be_bytes()[..], b"IHAVEOPT", &[0, 0, 0, 1, 0, 0, 0, 0]].concat())?;
        let mut export = [0; 10];
        stream.read_exact(&mut export)?;
        Ok(Self { stream, state: 1, requests: Vec::new(), replies: vec![0; 64 * (BLOCK + 16)] })
    }

    fn push(&mut self, write: bool, offset: u64) {
        self.requests.extend_from_slice(&0x2560_9513_u32.to_be_bytes());
        self.requests.extend_from_slice(&u32::from(write).to_be_bytes());
        self.requests.extend_from_slice(&0_u64.to_be_bytes());
        self.requests.extend_from_slice(&offset.to_be_bytes());
        self.requests.extend_from_slice(&(BLOCK as u32).to_be_bytes());
        if write {
            self.requests.resize(self.requests.len() + BLOCK, 0xa5);
        }
    }

    fn random(&mut self) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % (SIZE / BLOCK as u64) * BLOCK as u64
    }

    /// Requests per second; offsets in turn until the device is full, or random ones for a time.
    fn run(&mut self, write: bool, depth: usize, time: Option<Duration>) -> Result<f64> {
        let reply = 16 + if write { 0 } else { BLOCK };
        let (begin, mut done, mut sent, mut filled, mut ended) = (Instant::now(), 0, 0, 0, false);
        while !ended || done < sent {
            ended |= time.map_or(sent as u64 * BLOCK as u64 >= SIZE, |time| begin.elapsed() >= time);
            self.requests.clear();
            while !ended && sent - done < depth {
                let offset = if time.is_some() { self.random() } else { sent as u64 * BLOCK as u64 % SIZE };
                self.push(write, offset);
                sent += 1;
            }
            self.stream.write_all(&self.requests)?;
            if done == sent {
                break;
            }
            let count = self.stream.read(&mut self.replies[filled..])?;
            if count == 0 {
                return Err("the server closed the connection".into());
            }
            filled += count;
            let whole = filled / reply;
            for header in self.replies[..whole * reply].chunks(reply) {
                assert_eq!(header[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0], "a failed request");
            }
            self.replies.copy_within(whole * reply..filled, 0);
            filled -= whole * reply;
            done += whole;
        }
        Ok(done as f64 / begin.elapsed().as_secs_f64())
    }
}

fn foreign(folder: &Path, program: &str, arguments: &[&str]) -> Option<Foreign> {
    let child = Command::new(program).args(arguments).current_dir(folder).stdout(Stdio::null()).spawn();
    child.inspect_err(|error| println!("{program}: left out, {error}")).ok().map(Foreign)
}

fn main() -> Result<()> {
    let seconds: f64 = std::env::args().nth(1).map_or(Ok(1.0), |text| text.parse())?;
    let rounds: usize = std::env::args().nth(2).map_or(Ok(5), |text| text.parse())?;
    let folder = tempfile::Builder::new().prefix("nbd-speed").tempdir_in("/dev/shm")?;
    let path = |name: &str| folder.path().join(name);
    let device = Arc::new(MemoryDevice::new(SIZE / 512));
    let server = Server::start(device, &Listen::Unix(path("emmclab")), Options::default())?;
    std::fs::File::create(path("image"))?.set_len(SIZE)?;
    let size = SIZE.to_string();
    let qemu =
        ["-k", &path("qemu").display().to_string(), "-t", "-f", "raw", "-e", "8", "image"].map(str::to_owned);
    let others = [
        ("nbdkit", foreign(folder.path(), "nbdkit", &["-f", "-U", "nbdkit", "memory", &size])),
        ("qemu", foreign(folder.path(), "qemu-nbd", &qemu.each_ref().map(String::as_str))),
    ];
    let running = others.iter().filter(|(_, child)| child.is_some()).map(|(name, _)| *name);
    let mut clients = Vec::new();
    for name in std::iter::once("emmclab").chain(running) {
        let begin = Instant::now();
        while !path(name).exists() && begin.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut client = Client::connect(&path(name))?;
        client.run(true, 16, None)?;
        clients.push((name, client));
    }
    println!("{:<8} {:>6} {:>10} {:>10} {:>10}", "server", "depth", "operation", "IOPS", "of nbdkit");
    for (depth, write) in [(1, false), (1, true), (32, false), (32, true)] {
        let mut measured = vec![Vec::new(); clients.len()];
        for _ in 0..rounds {
            for (figures, (_, client)) in measured.iter_mut().zip(&mut clients) {
                figures.push(client.run(write, depth, Some(Duration::from_secs_f64(seconds)))?);
            }
        }
        let medians: Vec<f64> = measured
            .into_iter()
            .map(|mut figures| {
                figures.sort_by(f64::total_cmp);
                figures[figures.len() / 2]
            })
            .collect();
        let nbdkit =
            clients.iter().zip(&medians).find(|((name, _), _)| *name == "nbdkit").map(|(_, iops)| *iops);
        for ((name, _), iops) in clients.iter().zip(&medians) {
            let operation = if write { "write" } else { "read" };
            let ratio = nbdkit.map_or("-".to_owned(), |nbdkit| format!("{:.2}", iops / nbdkit));
            println!("{name:<8} {depth:>6} {operation:>10} {iops:>10.0} {ratio:>10}");
        }
    }
    drop(clients);
    server.stop();
    Ok(())
}
