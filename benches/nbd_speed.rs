//! Compares the speed of NBD servers: 4 KB reads and writes at queue depth 1 and 32, by the same client.
//!
//! ```text
//! cargo run --release -p emmclab-serve --example nbd_speed [-- SECONDS [ROUNDS]]
//! ```
//!
//! Each server runs in its own process: ours exports a [`MemoryDevice`], `nbdkit memory` and `qemu-nbd` a file in memory, if they are
//! installed (Debian packages nbdkit, qemu-utils). Each exports the same 256 MB, which were written before. The client reads and
//! writes random blocks with simple replies over a unix socket: it keeps `depth` requests in flight, sends due requests with one
//! system call and receives all available replies. Servers run in turn in each round; the median of the rounds is printed.

use std::error::Error;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use emmclab_serve::MemoryDevice;
use emmclab_serve::nbd::{ListenAddress, NbdExportOptions, NbdServer};
use emmclab_testing::SeededRandom;

const SIZE: u64 = 256 << 20;
const BLOCK: usize = 4096;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A server in its own process, which is ended when this value is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client in the transmission phase.
struct Client {
    stream: UnixStream,
    random: SeededRandom,
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
        Ok(Self { stream, random: SeededRandom::new(1), requests: Vec::new(), replies: vec![0; 64 * (BLOCK + 16)] })
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

    /// Returns the requests per second, with consecutive offsets until the device is full, or with random offsets for a time.
    fn run(&mut self, write: bool, depth: usize, time: Option<Duration>) -> Result<f64> {
        let reply = 16 + if write { 0 } else { BLOCK };
        let (begin, mut done, mut sent, mut filled, mut ended) = (Instant::now(), 0, 0, 0, false);
        while !ended || done < sent {
            ended |= time.map_or(sent as u64 * BLOCK as u64 >= SIZE, |time| begin.elapsed() >= time);
            self.requests.clear();
            while !ended && sent - done < depth {
                let block =
                    if time.is_some() { self.random.below(SIZE as usize / BLOCK) } else { sent % (SIZE as usize / BLOCK) };
                self.push(write, (block * BLOCK) as u64);
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

fn process(folder: &Path, program: &OsStr, arguments: &[&str]) -> Option<Process> {
    let child = Command::new(program).args(arguments).current_dir(folder).stdout(Stdio::null()).spawn();
    child.inspect_err(|error| println!("{}: left out, {error}", program.display())).ok().map(Process)
}

/// Serves until the process is killed.
fn serve(socket: &str) -> Result<()> {
    let device = Arc::new(MemoryDevice::new(SIZE / 512));
    let _server = NbdServer::start(device, &ListenAddress::Unix(socket.into()), NbdExportOptions::default())?;
    loop {
        std::thread::park();
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, serving, socket] = &arguments[..]
        && serving == "--serve"
    {
        return serve(socket);
    }
    let seconds: f64 = arguments.get(1).map_or(Ok(1.0), |text| text.parse())?;
    let rounds: usize = arguments.get(2).map_or(Ok(5), |text| text.parse())?;
    let folder = tempfile::Builder::new().prefix("nbd-speed").tempdir_in("/dev/shm")?;
    let path = |name: &str| folder.path().join(name);
    std::fs::File::create(path("image"))?.set_len(SIZE)?;
    let size = SIZE.to_string();
    let start = |program: &OsStr, arguments: &[&str]| process(folder.path(), program, arguments);
    let socket = path("qemu").display().to_string();
    let servers = [
        ("emmclab", start(std::env::current_exe()?.as_os_str(), &["--serve", "emmclab"])),
        ("nbdkit", start("nbdkit".as_ref(), &["-f", "-U", "nbdkit", "memory", &size])),
        ("qemu", start("qemu-nbd".as_ref(), &["-k", &socket, "-t", "-f", "raw", "-e", "8", "image"])),
    ];
    let mut clients = Vec::new();
    for (name, _) in servers.iter().filter(|(_, process)| process.is_some()) {
        let begin = Instant::now();
        while !path(name).exists() && begin.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut client = Client::connect(&path(name))?;
        client.run(true, 16, None)?;
        clients.push((*name, client));
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
        let nbdkit = clients.iter().zip(&medians).find(|((name, _), _)| *name == "nbdkit").map(|(_, iops)| *iops);
        for ((name, _), iops) in clients.iter().zip(&medians) {
            let operation = if write { "write" } else { "read" };
            let ratio = nbdkit.map_or("-".to_owned(), |nbdkit| format!("{:.2}", iops / nbdkit));
            println!("{name:<8} {depth:>6} {operation:>10} {iops:>10.0} {ratio:>10}");
        }
    }
    Ok(())
}
