//! What the host model sends to a device for a list of file operations, by role, and how fast it is.
//!
//! ```text
//! cargo run --release -p emmclab-host --example host_files -- play ERA FILESYSTEM SECTORS [readahead_kb=KB] [all] < OPERATIONS
//! cargo run --release -p emmclab-host --example host_files -- speed
//! ```
//!
//! An operation is a line: `file F FOLDER`, `preload F BYTES`, `open F`, `create F`, `read F OFFSET BYTES`, `write F OFFSET BYTES`,
//! `fsync F`, `fdatasync F`, `folder FOLDER` (fsync), `truncate F BYTES`, `unlink F`, `rename F G`, `close F`, `sync`, `wait MS`,
//! `mark` (what comes before does not count). The device takes 65 µs for a command, 300 µs for a flush, and 400 µs more for FUA. Prints one
//! line for each role (requests, sectors), then flushes, and syncs that sent one; `all` prints each request.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::BufRead;
use std::time::Instant;

use emmclab_base::{Nanos, Op, RequestFlags};
use emmclab_host::{
    BlockRequestId, CallerId, FileClass, FileId, FileOp, FileSpec, FilesystemKind, FinishedOperations, FolderId,
    HostBlockRequests, HostConfig, Mount, MountId, MountOptions, SimulatedHost,
};

/// A device that serves requests one after the other.
struct Device {
    free: Nanos,
    under_way: Vec<(Nanos, BlockRequestId)>,
}

struct Run {
    host: SimulatedHost,
    device: Device,
    now: Nanos,
    requests: HostBlockRequests,
    finished: FinishedOperations,
    counts: BTreeMap<&'static str, (u64, u64)>,
    print: bool,
}

fn service(op: Op, flags: RequestFlags) -> Nanos {
    let flush = op == Op::Flush || flags.contains(RequestFlags::PREFLUSH);
    let us = 65 + if flush { 300 } else { 0 } + if flags.contains(RequestFlags::FUA) { 400 } else { 0 };
    Nanos::from_micros(us)
}

impl Run {
    fn new(config: HostConfig, mount: Mount) -> Result<Self, Box<dyn Error>> {
        Ok(Self {
            host: SimulatedHost::new(config, &[mount])?,
            device: Device { free: Nanos::ZERO, under_way: Vec::new() },
            now: Nanos::ZERO,
            requests: HostBlockRequests::default(),
            finished: FinishedOperations::default(),
            counts: BTreeMap::new(),
            print: false,
        })
    }

    fn take(&mut self) {
        self.requests.clear();
        self.host.take_requests(&mut self.requests);
        for one in &self.requests.requests {
            let request = &one.request;
            self.device.free = self.device.free.max(self.now) + service(request.op, request.flags);
            self.device.under_way.push((self.device.free, one.id));
            let notes = self.requests.notes(one);
            let mut roles: Vec<(&'static str, u64)> = Vec::new();
            for note in notes {
                roles.push((note.role.name(), u64::from(note.sectors)));
            }
            if notes.is_empty() {
                let name = if request.op == Op::Write { "data" } else { request.op.name() };
                roles.push((name, u64::from(request.sectors)));
            }
            let mut names = Vec::new();
            for (name, sectors) in &roles {
                let count = self.counts.entry(name).or_default();
                count.0 += u64::from(!names.contains(name));
                count.1 += sectors;
                names.push(*name);
            }
            if request.op == Op::Write {
                let count = self.counts.entry("writes").or_default();
                *count = (count.0 + 1, count.1 + u64::from(request.sectors));
            }
            if self.print {
                let mut flags = String::new();
                for (at, name) in RequestFlags::NAMES.iter().enumerate() {
                    if request.flags.0 >> at & 1 == 1 {
                        flags = format!("{flags} {name}");
                    }
                }
                let (at, sector) = (self.now.as_millis_f64(), request.sector.0);
                println!(
                    "{at:.3} {} {sector} {}{flags} {:?} {:?}",
                    request.op.name(),
                    request.sectors,
                    one.cause,
                    notes.iter().map(|note| (note.role.name(), note.home)).collect::<Vec<_>>()
                );
            }
        }
    }

    /// Goes on to the next event; false where there is none up to `until`.
    fn next(&mut self, until: Nanos) -> bool {
        let first = self.device.under_way.iter().min().copied();
        let timer = self.host.next_event();
        let due = first.map(|(at, _)| at).into_iter().chain(timer).min();
        let Some(due) = due.filter(|due| *due <= until) else { return false };
        self.now = self.now.max(due);
        match first {
            Some((at, id)) if at <= due => {
                self.device.under_way.retain(|(_, one)| *one != id);
                self.host.completed(id, self.now);
            }
            _ => self.host.advance(self.now),
        }
        self.take();
        true
    }

    fn perform(&mut self, operation: &FileOp) -> Result<(), Box<dyn Error>> {
        self.host.begin(CallerId(0), self.now, operation)?;
        self.take();
        loop {
            self.host.take_finished(&mut self.finished);
            if !self.finished.operations.is_empty() {
                self.finished.clear();
                return Ok(());
            }
            if !self.next(Nanos::MAX) {
                return Err(format!("{operation:?} never ends").into());
            }
        }
    }

    fn wait(&mut self, time: Nanos) {
        let until = self.now + time;
        while self.next(until) {}
        self.now = until;
        self.host.advance(until);
    }
}

fn play(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [era, filesystem, sectors, rest @ ..] = arguments else {
        return Err("play ERA FILESYSTEM SECTORS".into());
    };
    let filesystem = match filesystem.as_str() {
        "ext4" => FilesystemKind::Ext4,
        "fat32" => FilesystemKind::Fat32,
        "lfs" => FilesystemKind::Lfs,
        other => return Err(format!("no file system {other}").into()),
    };
    let journal_mb = (filesystem == FilesystemKind::Ext4).then_some(128);
    let options = MountOptions { journal_mb, ..MountOptions::default() };
    let mount = Mount { filesystem, first_sector: 0, sectors: sectors.parse()?, options };
    let mut config = HostConfig::era(era)?;
    if let Some(kb) = rest.iter().find_map(|one| one.strip_prefix("readahead_kb=")) {
        config.readahead_kb = kb.parse()?;
    }
    let mut run = Run::new(config, mount)?;
    run.print = rest.iter().any(|one| one == "all");
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let number =
            |at: usize| words.get(at).ok_or("a number is missing")?.parse::<u64>().map_err(Box::<dyn Error>::from);
        let file = |at: usize| number(at).map(|number| FileId(number as u32));
        let operation = match *words.first().ok_or("an empty line")? {
            "file" => {
                let folder = FolderId(number(2)? as u32);
                run.host.declare(file(1)?, FileSpec { mount: MountId(0), folder, class: FileClass::Other })?;
                continue;
            }
            "preload" => {
                run.host.preload(file(1)?, number(2)?)?;
                continue;
            }
            "wait" => {
                run.wait(Nanos::from_millis(number(1)? as i64));
                continue;
            }
            "mark" => {
                run.counts.clear();
                if run.print {
                    println!("mark");
                }
                continue;
            }
            "open" => FileOp::Open { file: file(1)?, create: false },
            "create" => FileOp::Open { file: file(1)?, create: true },
            "read" => FileOp::Read { file: file(1)?, offset: number(2)?, bytes: number(3)? },
            "write" => FileOp::Write { file: file(1)?, offset: number(2)?, bytes: number(3)? },
            "fsync" => FileOp::Fsync { file: file(1)?, data_only: false },
            "fdatasync" => FileOp::Fsync { file: file(1)?, data_only: true },
            "folder" => FileOp::FsyncFolder { mount: MountId(0), folder: FolderId(number(1)? as u32) },
            "truncate" => FileOp::Truncate { file: file(1)?, bytes: number(2)? },
            "unlink" => FileOp::Unlink { file: file(1)? },
            "rename" => FileOp::Rename { from: file(1)?, to: file(2)? },
            "close" => FileOp::Close { file: file(1)? },
            "sync" => FileOp::Sync,
            other => return Err(format!("no operation {other}").into()),
        };
        if run.print {
            println!("# {line}");
        }
        run.perform(&operation).map_err(|error| format!("{line}: {error}"))?;
    }
    for (role, (requests, sectors)) in &run.counts {
        println!("{role} {requests} {sectors}");
    }
    Ok(())
}

/// What is measured: its name, how many operations, and which one comes at each place.
type Kind = (&'static str, usize, Box<dyn FnMut(usize) -> FileOp>);

/// Millions of operations a second of one caller, each kind by itself, with the device's events.
fn speed() -> Result<(), Box<dyn Error>> {
    println!("{:<10} {:<34} {:>12} {:>14}", "system", "operation", "operations", "ns/operation");
    let kinds = [FilesystemKind::Ext4, FilesystemKind::Fat32, FilesystemKind::Lfs];
    for (name, filesystem) in ["ext4", "fat32", "lfs"].into_iter().zip(kinds) {
        let mount = Mount { filesystem, first_sector: 0, sectors: 4 << 21, options: MountOptions::default() };
        let mut run = Run::new(HostConfig::era("linux-6")?, mount)?;
        let spec = |class| FileSpec { mount: MountId(0), folder: FolderId(0), class };
        for file in 0..2 {
            run.host.declare(FileId(file), spec(FileClass::Other))?;
            run.host.preload(FileId(file), 512 << 20)?;
            run.perform(&FileOp::Open { file: FileId(file), create: false })?;
        }
        run.host.declare(FileId(2), spec(FileClass::Other))?;
        let mut state = 1_u64;
        let mut random = move |pages: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % pages * 4096
        };
        let file = FileId(0);
        let mut kinds: Vec<Kind> = vec![
            ("read of 4 KB in order", 131_072, Box::new(|at| read(0, at as u64 * 4096))),
            ("read of 4 KB from memory", 3_000_000, Box::new(|at| read(0, at as u64 % 60_000 * 4096))),
        ];
        let mut places: Vec<u64> = (0..4_000_000).map(|_| random(16_000)).collect();
        let again = places.split_off(2_000_000);
        kinds.push(("write of 4 KB at random", 2_000_000, Box::new(move |at| write(0, places[at]))));
        kinds.push((
            "write of 4 KB, fsync each second",
            200_000,
            Box::new(move |at| {
                if at % 2 == 0 { write(1, again[at]) } else { FileOp::Fsync { file: FileId(1), data_only: false } }
            }),
        ));
        kinds.push((
            "create, append, fsync, close, unlink",
            200_000,
            Box::new(|at| {
                let file = FileId(2);
                match at % 5 {
                    0 => FileOp::Open { file, create: true },
                    1 => FileOp::Append { file, bytes: 4096 },
                    2 => FileOp::Fsync { file, data_only: false },
                    3 => FileOp::Close { file },
                    _ => FileOp::Unlink { file },
                }
            }),
        ));
        run.perform(&FileOp::Fsync { file, data_only: false })?;
        for (what, count, mut operation) in kinds {
            let begin = Instant::now();
            for at in 0..count {
                run.perform(&operation(at))?;
                run.wait(Nanos::from_micros(1));
            }
            let ns = begin.elapsed().as_nanos() as f64 / count as f64;
            println!("{name:<10} {what:<34} {count:>12} {ns:>14.0}");
        }
    }
    Ok(())
}

fn read(file: u32, offset: u64) -> FileOp {
    FileOp::Read { file: FileId(file), offset, bytes: 4096 }
}

fn write(file: u32, offset: u64) -> FileOp {
    FileOp::Write { file: FileId(file), offset, bytes: 4096 }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("play") => play(&arguments[1..]),
        Some("speed") => speed(),
        _ => Err("use `play` or `speed`".into()),
    }
}
