//! How many crash states are judged in a second, on one core: the journal replayed in memory, and one file looked up and read;
//! beside a copy of the image and `e2fsck -fy`, in the same run.
//!
//! ```text
//! cargo run --release -p emmclab-ext4 --example ext4_speed [-- SECONDS of each]
//! ```
//!
//! A 64 MB image with blocks of 4 KB, whose journal is written by debugfs: transactions of six logged blocks, a descriptor and a
//! commit, with checksums of version 3. In each state, some journal blocks have another version. With `instructions LIVE STATES`
//! as arguments nothing is timed, for a run below `valgrind --tool=none` or `callgrind`.

use std::collections::HashMap;
use std::error::Error;
use std::fmt::Write as _;
use std::hint::black_box;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use emmclab_ext4::{DiskReader, Ext4Filesystem, JournalLocation, JournalRecovery};

const BLOCK: usize = 4096;
const IMAGE_BYTES: u64 = 64 << 20;
const LOGGED: usize = 6;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Versions of the blocks of a disk: those of the image, then others.
struct Versions {
    image: Vec<u8>,
    others: Vec<[u8; BLOCK]>,
}

/// A disk some of whose blocks have another version.
struct State<'a> {
    versions: &'a Versions,
    changed: HashMap<u64, usize>,
    has_names: bool,
}

impl DiskReader for State<'_> {
    fn size(&self) -> io::Result<u64> {
        self.versions.image.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let within = offset as usize % BLOCK;
        match self.changed.get(&(offset / BLOCK as u64)) {
            Some(other) if within + buffer.len() <= BLOCK => {
                buffer.copy_from_slice(&self.versions.others[*other][within..within + buffer.len()]);
                Ok(())
            }
            _ => self.versions.image.read_at(offset, buffer),
        }
    }

    fn content(&self, offset: u64, _: usize) -> Option<u64> {
        let block = offset / BLOCK as u64;
        let base = self.versions.image.len() / BLOCK;
        self.has_names.then(|| self.changed.get(&block).map_or(block, |other| (base + other) as u64))
    }
}

fn run(program: &str, arguments: &[&str]) -> Outcome<()> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH")?);
    let done = Command::new(program).args(arguments).env("PATH", path).output()?;
    // e2fsck says 1 where it repaired.
    if done.status.code().is_some_and(|code| code < 2) {
        return Ok(());
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&done.stderr)).into())
}

/// An image with a file of 10,000 bytes and so many live journal blocks.
fn make(folder: &Path, live: usize) -> Outcome<Vec<u8>> {
    let image = folder.join("image");
    std::fs::File::create(&image)?.set_len(IMAGE_BYTES)?;
    let files = folder.join("files");
    std::fs::create_dir_all(files.join("folder"))?;
    for number in 0..50 {
        std::fs::write(files.join(format!("folder/file-{number}")), vec![number; 200 * usize::from(number)])?;
    }
    let (image, files) = (image.to_string_lossy(), files.to_string_lossy());
    run("mkfs.ext4", &["-q", "-F", "-b", "4096", "-J", "size=24", "-d", &files, &image])?;
    let bytes = std::fs::read(&*image)?;
    // Metadata that stays what it is, so that the file is found in every state, and blocks that are free.
    let metadata = [1_u64, 9, 10, 11];
    let free = bytes.len() as u64 / BLOCK as u64;
    let mut script = String::from("jo -c -v 3\n");
    for transaction in 0..(live / (LOGGED + 2)) as u64 {
        let homes: Vec<u64> = (0..LOGGED as u64)
            .map(|at| metadata.get(at as usize).copied().unwrap_or(free - 1 - (LOGGED as u64 * transaction + at) % 500))
            .collect();
        let content = folder.join(format!("content-{transaction}"));
        let of = |home: &u64| bytes[*home as usize * BLOCK..][..BLOCK].to_vec();
        std::fs::write(&content, homes.iter().flat_map(of).collect::<Vec<u8>>())?;
        let list: Vec<String> = homes.iter().map(u64::to_string).collect();
        writeln!(script, "jw -b {} {}", list.join(","), content.display())?;
    }
    let commands = folder.join("commands");
    std::fs::write(&commands, script + "jc\n")?;
    run("debugfs", &["-w", "-f", &commands.to_string_lossy(), &image])?;
    Ok(std::fs::read(&*image)?)
}

/// Judges one state: how many blocks were replayed.
fn judge(recovery: &mut JournalRecovery, state: &State<'_>, contents: &mut [u8]) -> Outcome<u64> {
    let replayed = recovery.replay(state)?;
    let files = Ext4Filesystem::open(&replayed)?;
    let inode = files.lookup("/folder/file-49")?.ok_or("the file is missing")?;
    let length = files.read(&inode, 0, contents)?;
    if contents[..length].iter().any(|byte| *byte != 49) || length != 9800 {
        return Err("the file has other contents".into());
    }
    Ok(replayed.replay().blocks)
}

/// The states of an image: each has three logged blocks in another version.
struct States {
    versions: Versions,
    log: Vec<u64>,
}

impl States {
    fn new(image: Vec<u8>, live: usize) -> Outcome<Self> {
        let location = JournalLocation::inside(&Ext4Filesystem::open(image.as_slice())?)?.ok_or("no journal")?;
        // Of each transaction, the descriptor and the commit stay.
        let is_logged = |block: &u64| (1..=LOGGED as u64).contains(&((block - 1) % (LOGGED as u64 + 2)));
        let log = (1..=live as u64).filter(is_logged).filter_map(|block| location.offset(block));
        let log = log.map(|offset| offset / BLOCK as u64).collect();
        let others = (0..64_u8).map(|number| [number; BLOCK]).collect();
        Ok(Self { versions: Versions { image, others }, log })
    }

    fn state(&self, number: usize, has_names: bool) -> State<'_> {
        let changed = (0..3).map(|at| {
            let random = (number * 3 + at).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            (self.log[(random >> 20) % self.log.len()], (random >> 50) % self.versions.others.len())
        });
        State { versions: &self.versions, changed: changed.collect(), has_names }
    }
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = tempfile::tempdir()?;
    let mut contents = vec![0; 1 << 14];
    if let [first, live, states] = &arguments[..]
        && first == "instructions"
    {
        let (live, count): (usize, usize) = (live.parse()?, states.parse()?);
        let states = States::new(make(folder.path(), live)?, live)?;
        let mut recovery = JournalRecovery::new();
        for number in 0..count {
            black_box(judge(&mut recovery, &states.state(number, true), &mut contents)?);
        }
        return Ok(());
    }
    let seconds: f64 = arguments.first().map_or(Ok(2.0), |text| text.parse())?;
    println!("{:>6} {:>10} {:>22} {:>22}", "live", "replayed", "states/s, no names", "states/s, with names");
    for live in [64, 256, 1024, 4096] {
        let states = States::new(make(folder.path(), live)?, live)?;
        let mut rates = Vec::new();
        let mut blocks = 0;
        for has_names in [false, true] {
            let mut recovery = JournalRecovery::new();
            let (begin, mut count) = (Instant::now(), 0);
            while begin.elapsed().as_secs_f64() < seconds {
                blocks = judge(&mut recovery, &states.state(count, has_names), &mut contents)?;
                count += 1;
            }
            rates.push(count as f64 / begin.elapsed().as_secs_f64());
        }
        println!("{live:>6} {blocks:>10} {:>22.0} {:>22.0}", rates[0], rates[1]);
    }
    let image = make(folder.path(), 256)?;
    let (source, copy) = (folder.path().join("image"), folder.path().join("copy"));
    let (mut copying, mut checking) = (Duration::ZERO, Duration::ZERO);
    let mut count = 0;
    while (copying + checking).as_secs_f64() < seconds {
        let begin = Instant::now();
        std::fs::copy(&source, &copy)?;
        copying += begin.elapsed();
        let begin = Instant::now();
        run("e2fsck", &["-fy", &copy.to_string_lossy()])?;
        checking += begin.elapsed();
        count += 1;
    }
    let each = |time: Duration| time.as_secs_f64() * 1e3 / f64::from(count);
    println!(
        "e2fsck -fy at 256 live blocks: {:.1} ms, copy of {} MB {:.1} ms: {:.1} states/s",
        each(checking),
        image.len() >> 20,
        each(copying),
        f64::from(count) / (copying + checking).as_secs_f64()
    );
    Ok(())
}
