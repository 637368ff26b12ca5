//! Prints the requests that the host model sends to a device for file operations on ext4 under Linux 6, by role.
//!
//! ```text
//! cargo run --release -p emmclab-host --example host_files -- SECTORS [READAHEAD_KB] < OPERATIONS
//! ```
//!
//! An operation is a line: `file F FOLDER`, `preload F BYTES`, `open F`, `create F`, `read F OFFSET BYTES`, `write F OFFSET BYTES`,
//! `fsync F`, `fdatasync F`, `folder FOLDER` (fsync), `truncate F BYTES`, `unlink F`, `rename F G`, `close F`, `sync`, `wait MS`,
//! `mark` (earlier requests are not counted). The device takes 65 µs for a command, 300 µs for a flush, and 400 µs more for FUA. Prints
//! one line for each role (requests, sectors).

use std::collections::BTreeMap;
use std::error::Error;
use std::io::BufRead;

use emmclab_base::{Nanos, Op, RequestFlags};
use emmclab_host::{
    BlockRequestId, CallerId, FileClass, FileId, FileOp, FileSpec, FilesystemKind, FinishedOperations, FolderId,
    HostBlockRequests, HostConfig, Mount, MountId, MountOptions, SimulatedHost,
};

/// The host, and a device that serves one request at a time.
struct Run {
    host: SimulatedHost,
    free: Nanos,
    under_way: Vec<(Nanos, BlockRequestId)>,
    now: Nanos,
    requests: HostBlockRequests,
    finished: FinishedOperations,
    counts: BTreeMap<&'static str, (u64, u64)>,
}

fn service(op: Op, flags: RequestFlags) -> Nanos {
    let flush = op == Op::Flush || flags.contains(RequestFlags::PREFLUSH);
    let us = 65 + if flush { 300 } else { 0 } + if flags.contains(RequestFlags::FUA) { 400 } else { 0 };
    Nanos::from_micros(us)
}

impl Run {
    fn take(&mut self) {
        self.requests.clear();
        self.host.take_requests(&mut self.requests);
        for one in &self.requests.requests {
            let request = &one.request;
            self.free = self.free.max(self.now) + service(request.op, request.flags);
            self.under_way.push((self.free, one.id));
            let notes = self.requests.notes(one);
            let mut roles: Vec<_> = notes.iter().map(|note| (note.role.name(), u64::from(note.sectors))).collect();
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
        }
    }

    /// Advances to the next event; returns false if there is none up to `until`.
    fn next(&mut self, until: Nanos) -> bool {
        let first = self.under_way.iter().min().copied();
        let timer = self.host.next_event();
        let due = first.map(|(at, _)| at).into_iter().chain(timer).min();
        let Some(due) = due.filter(|due| *due <= until) else { return false };
        self.now = self.now.max(due);
        match first {
            Some((at, id)) if at <= due => {
                self.under_way.retain(|(_, one)| *one != id);
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

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let sectors = arguments.next().ok_or("host_files SECTORS [READAHEAD_KB]")?.parse()?;
    let mut config = HostConfig::era("linux-6")?;
    if let Some(kb) = arguments.next() {
        config.readahead_kb = kb.parse()?;
    }
    let options = MountOptions { journal_mb: Some(128), ..MountOptions::default() };
    let mount = Mount { filesystem: FilesystemKind::Ext4, first_sector: 0, sectors, options };
    let mut run = Run {
        host: SimulatedHost::new(config, &[mount])?,
        free: Nanos::ZERO,
        under_way: Vec::new(),
        now: Nanos::ZERO,
        requests: HostBlockRequests::default(),
        finished: FinishedOperations::default(),
        counts: BTreeMap::new(),
    };
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words.get(at).ok_or("a number is missing")?.parse::<u64>().map_err(Box::<dyn Error>::from);
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
        run.perform(&operation).map_err(|error| format!("{line}: {error}"))?;
    }
    for (role, (requests, sectors)) in &run.counts {
        println!("{role} {requests} {sectors}");
    }
    Ok(())
}
