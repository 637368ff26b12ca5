//! Notes on real writes of mkfs and the kernel, compared with the output of debugfs and dumpe2fs.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::support::{Images, run, text, tree, try_run};
use emmclab_base::{BlockNote, BlockRole, SectorSet};
use emmclab_ext4::{Annotator, AnnotatorStatus, Ext4Filesystem, JournalLocation};
use emmclab_serve::{
    AllocationExtent, BlockAction, BlockDevice, BlockDeviceLimits, CompletionReceiver, FuseFile, HostDisk, LinuxFileSystem,
    LinuxMountOptions, LoopOptions, MemoryDevice, MkfsOptions, ServedRequest,
};

const SECTOR: usize = 512;
const BYTES: usize = 64 << 20;

/// Requests to all disks of a test, in order, each with the number of its disk.
type Requests = Arc<Mutex<Vec<(usize, ServedRequest)>>>;

/// A device that records all requests that change it.
struct Recorder {
    number: usize,
    memory: MemoryDevice,
    requests: Requests,
}

impl BlockDevice for Recorder {
    fn limits(&self) -> BlockDeviceLimits {
        self.memory.limits()
    }

    fn submit(&self, requests: &mut Vec<ServedRequest>, completions: &Arc<dyn CompletionReceiver>) {
        let kept = requests.iter().filter(|request| request.action != BlockAction::Read);
        self.requests.lock().unwrap().extend(kept.map(|request| (self.number, request.clone())));
        self.memory.submit(requests, completions);
    }

    fn extents(&self, sector: u64, sectors: u64, most: usize, out: &mut Vec<AllocationExtent>) {
        self.memory.extents(sector, sectors, most, out);
    }
}

/// A block, or sectors of data, that were written.
struct Written {
    sector: u64,
    bytes: Vec<u8>,
    note: BlockNote,
}

/// Disks that record requests, and the notes of an annotator on these requests.
struct Session {
    images: Images,
    requests: Requests,
    disks: Vec<HostDisk>,
    contents: Vec<Vec<u8>>,
    annotator: Annotator,
    written: Vec<Written>,
    played: usize,
}

impl Session {
    /// A session on disks with these contents; the first disk is for the file system. `None` skips the test, as in [`Images::if_possible`].
    fn on(contents: Vec<Vec<u8>>, tools: &[&str]) -> Option<Self> {
        let images = Images::if_possible(true, tools)?;
        let requests = Requests::default();
        let serve = |(number, bytes): (usize, &Vec<u8>)| {
            let device = Recorder { number, memory: MemoryDevice::new((BYTES / SECTOR) as u64), requests: requests.clone() };
            let chunks = bytes.chunks(1 << 20).zip((0..).step_by((1 << 20) / SECTOR));
            let mut load = chunks.map(|(chunk, sector)| fill(chunk, sector)).collect();
            device.memory.submit(&mut load, &(Arc::new(Ignored) as Arc<dyn CompletionReceiver>));
            let file = FuseFile::start(Arc::new(device)).unwrap();
            HostDisk::on_loop(file, &LoopOptions::default()).unwrap()
        };
        let disks = contents.iter().enumerate().map(serve).collect();
        let annotator = Annotator::new();
        Some(Self { images, requests, disks, contents, annotator, written: Vec::new(), played: 0 })
    }

    fn mkfs(&mut self, disk: usize, options: &[&str]) {
        let options = options.iter().map(Into::into).collect();
        let mkfs = MkfsOptions { options, overwrite: true, ..MkfsOptions::new(LinuxFileSystem::Ext4) };
        self.disks[disk].mkfs(&mkfs).unwrap();
    }

    fn mount(&mut self, options: &str) -> PathBuf {
        let point = self.images.path("mounted");
        let options = Some(options.to_owned()).filter(|options| !options.is_empty());
        self.disks[0].mount(&LinuxMountOptions { options, ..LinuxMountOptions::at(&point) }).unwrap();
        point
    }

    fn path(&self, disk: usize) -> &str {
        text(self.disks[disk].path())
    }

    /// Annotates the requests since the last call. Returns the index of the first write among them.
    fn play(&mut self) -> usize {
        let from = self.written.len();
        let mut notes = Vec::new();
        let requests = self.requests.lock().unwrap();
        for (disk, request) in &requests[self.played..] {
            let at = request.sector as usize * SECTOR;
            let bytes = request.sectors as usize * SECTOR;
            let data = match &request.action {
                BlockAction::Write(data) => data.clone(),
                BlockAction::WriteZeroes { .. } => vec![0; bytes],
                BlockAction::Discard { .. } => {
                    self.contents[*disk][at..at + bytes].fill(0);
                    if *disk == 0 {
                        self.annotator.discard(request.sector, request.sectors.into());
                    }
                    continue;
                }
                BlockAction::Read | BlockAction::Flush => continue,
            };
            self.contents[*disk][at..at + bytes].copy_from_slice(&data);
            if *disk == 0 {
                self.annotator.write(request.sector, &data, &mut notes);
            } else {
                self.annotator.write_journal(request.sector, &data, &mut notes);
            }
            let covered: u32 = notes.iter().map(|note| note.sectors).sum();
            assert_eq!(covered, request.sectors, "{notes:?}");
            let (mut sector, mut rest) = (request.sector, &data[..]);
            for note in &notes {
                let (bytes, after) = rest.split_at(note.sectors as usize * SECTOR);
                self.written.push(Written { sector, bytes: bytes.to_vec(), note: *note });
                (sector, rest) = (sector + u64::from(note.sectors), after);
            }
        }
        self.played = requests.len();
        from
    }

    fn image(&self, disk: usize) -> PathBuf {
        let path = self.images.path(&format!("image-{disk}"));
        std::fs::write(&path, &self.contents[disk]).unwrap();
        path
    }
}

fn fill(chunk: &[u8], sector: u64) -> ServedRequest {
    let sectors = (chunk.len() / SECTOR) as u32;
    let modifiers = emmclab_base::CommandFlags::default();
    ServedRequest { tag: sector, action: BlockAction::Write(chunk.to_vec()), sector, sectors, modifiers }
}

struct Ignored;

impl CompletionReceiver for Ignored {
    fn complete(&self, completed: &mut Vec<emmclab_serve::ServedCompletion>) {
        completed.clear();
    }
}

/// The number that follows some words in a line.
fn number(line: &str, before: &str) -> Option<u64> {
    let rest = line.split_once(before)?.1;
    rest.split(|at: char| !at.is_ascii_digit()).next()?.parse().ok()
}

/// The contents of the log according to debugfs: by journal block, the home block and transaction of logged blocks; and the number of
/// blocks of each other role.
fn logdump(image: &Path, journal: Option<&Path>) -> (BTreeMap<u64, (u64, u32)>, BTreeMap<BlockRole, usize>) {
    let command = match journal {
        Some(journal) => format!("logdump -a -f {}", text(journal)),
        None => "logdump -a".to_owned(),
    };
    // Bitmaps are not used: the checksums of a mounted file system's bitmaps may be wrong until the log is replayed.
    let output = run("debugfs", &["-c", "-R", &command, text(image)]);
    let (mut logged, mut others) = (BTreeMap::new(), BTreeMap::new());
    let mut transaction = 0;
    for line in output.lines() {
        if line.starts_with("Found expected sequence") {
            transaction = number(line, "sequence ").unwrap() as u32;
            let role = match number(line, "type ") {
                Some(1) => BlockRole::Descriptor,
                Some(2) => BlockRole::Commit,
                Some(5) => BlockRole::Revoke,
                other => panic!("type {other:?}"),
            };
            *others.entry(role).or_default() += 1;
        } else if let (Some(home), Some(block)) = (number(line, "FS block "), number(line, "journal block ")) {
            logged.insert(block, (home, transaction));
        }
    }
    (logged, others)
}

/// The roles of blocks at fixed locations by dumpe2fs, and of directories by debugfs.
fn homes(image: &Path, directories: &[&str]) -> HashMap<u64, BlockRole> {
    let output = run("dumpe2fs", &[text(image)]);
    let mut out = HashMap::new();
    let kinds = [
        ("superblock at ", BlockRole::Superblock),
        ("Group descriptors at ", BlockRole::GroupDescriptors),
        ("Group descriptor at ", BlockRole::GroupDescriptors),
        ("Block bitmap at ", BlockRole::BlockBitmap),
        ("Inode bitmap at ", BlockRole::InodeBitmap),
        ("Inode table at ", BlockRole::InodeTable),
    ];
    for line in output.lines() {
        for (before, role) in kinds {
            let Some(first) = number(line, before) else { continue };
            let rest = line.split_once(before).unwrap().1;
            let last = number(rest, &format!("{first}-")).filter(|last| *last >= first).unwrap_or(first);
            (first..=last).for_each(|block| {
                out.insert(block, role);
            });
        }
    }
    for directory in directories {
        let output = run("debugfs", &["-R", &format!("blocks {directory}"), text(image)]);
        for block in output.split_whitespace() {
            out.insert(block.parse().unwrap(), BlockRole::Directory);
        }
    }
    out
}

/// Checks the field `changed` of notes. Returns the number of logged blocks, and of home blocks that equal their last logged copy.
fn check_changes(written: &[Written], sectors: u64) -> (usize, usize) {
    let mut copies: HashMap<u64, (Vec<u8>, u32, usize)> = HashMap::new();
    let (mut logged, mut home_blocks, mut revokes) = (0, 0, 0);
    let differ = |first: &[u8], other: &[u8]| {
        let pairs = first.chunks(SECTOR).zip(other.chunks(SECTOR)).enumerate();
        SectorSet(pairs.fold(0, |set, (at, (first, other))| set | u128::from(first != other) << at))
    };
    for Written { sector, bytes, note } in written {
        assert!(note.sectors == sectors as u32 || note.role == BlockRole::Data, "no block came in parts: {note:?}");
        let home = match note.role {
            BlockRole::Revoke => {
                revokes += 1;
                continue;
            }
            BlockRole::Logged => note.home.unwrap(),
            role if role.at_home() => *sector,
            _ => continue,
        };
        match (copies.get(&home), note.changed) {
            (Some((copy, transaction, _)), Some(changed)) => {
                // Escaped blocks are not expected here.
                assert_eq!(changed, differ(copy, bytes), "{note:?}");
                assert!(note.role == BlockRole::Logged || note.transaction == Some(*transaction), "{note:?}");
            }
            (Some((.., before)), None) => assert!(*before < revokes, "{note:?}"),
            (None, changed) => assert_eq!(changed, None, "{note:?}"),
        }
        if note.role == BlockRole::Logged {
            logged += 1;
            copies.insert(home, (bytes.clone(), note.transaction.unwrap(), revokes));
        } else {
            home_blocks += usize::from(note.changed == Some(SectorSet(0)));
        }
    }
    (logged, home_blocks)
}

/// Compares the notes with the log that is now on the disk.
fn check_log(session: &Session, from: usize, block: usize, external: bool) -> usize {
    let sectors = (block / SECTOR) as u64;
    let image = session.image(0);
    let journal = external.then(|| session.image(1));
    let (logged, others) = logdump(&image, journal.as_deref());
    let filesystem = Ext4Filesystem::open(session.contents[0].as_slice()).unwrap();
    let location = if external {
        JournalLocation::external(&session.contents[1], filesystem.superblock()).unwrap()
    } else {
        JournalLocation::inside(&filesystem).unwrap().unwrap()
    };
    // Only the last write of a block is on the disk. Both disks may have the same sector numbers, but only one has journal roles.
    let in_journal = session.written[from..].iter().filter(|written| written.note.role.in_journal());
    let last: HashMap<u64, &BlockNote> = in_journal.map(|written| (written.sector, &written.note)).collect();
    let mut counts: BTreeMap<BlockRole, usize> = BTreeMap::new();
    let Some(first) = logged.values().map(|(_, transaction)| *transaction).min() else { return 0 };
    for note in last.values().filter(|note| note.transaction.is_some_and(|number| number >= first)) {
        *counts.entry(note.role).or_default() += 1;
    }
    for (place, (home, transaction)) in &logged {
        let note = last[&(location.offset(*place).unwrap() / SECTOR as u64)];
        assert_eq!((note.role, note.home), (BlockRole::Logged, Some(home * sectors)), "journal block {place}");
        assert_eq!(note.transaction, Some(*transaction), "journal block {place}");
    }
    assert_eq!(counts.remove(&BlockRole::Logged), Some(logged.len()));
    counts.remove(&BlockRole::JournalSuperblock);
    counts.remove(&BlockRole::FastCommit);
    assert_eq!(counts, others);
    logged.len()
}

/// Compares the roles of home blocks with the roles that they have on the disk now.
fn check_homes(session: &Session, from: usize, block: usize, directories: &[&str]) {
    let sectors = (block / SECTOR) as u64;
    let wanted = homes(&session.image(0), directories);
    let mut seen: BTreeMap<BlockRole, usize> = BTreeMap::new();
    for Written { sector, note, .. } in &session.written[from..] {
        for block in sector / sectors..(sector + u64::from(note.sectors)).div_ceil(sectors) {
            if let Some(role) = wanted.get(&block).filter(|_| !note.role.in_journal()) {
                // A block may have been data before it became part of a directory.
                if *role != BlockRole::Directory || note.role != BlockRole::Data {
                    assert_eq!(note.role, *role, "block {block}");
                }
                *seen.entry(note.role).or_default() += 1;
            }
        }
    }
    for role in [BlockRole::BlockBitmap, BlockRole::InodeBitmap, BlockRole::InodeTable, BlockRole::Directory] {
        assert!(seen.contains_key(&role), "no {role:?} among {seen:?}");
    }
}

const DIRECTORIES: [&str; 5] = ["/", "/gone", "/round-0", "/round-1", "/round-2"];

/// Creates a file system, works in it, and checks everything. Returns the number of checked log blocks, and of home blocks as logged.
fn round(session: &mut Session, block: usize, options: &[&str], mount: &str) -> (usize, usize) {
    let about = format!("{block} {options:?} {mount}");
    let size = block.to_string();
    session.mkfs(0, &[&["-b", &size], options].concat());
    session.play();
    assert_eq!(session.annotator.status(), AnnotatorStatus::Following, "{about}");
    let point = session.mount(mount);
    let from = session.written.len();
    for number in 0..6 {
        tree::work(&point, number);
        std::fs::remove_dir_all(point.join(format!("round-{number}"))).unwrap();
        tree::work(&point, number);
    }
    session.play();
    // A checkpoint may have emptied the log; then the next commit is in it.
    let mut in_log = 0;
    for number in 0..50 {
        std::fs::File::create(point.join(format!("last-{number}"))).unwrap().sync_all().unwrap();
        session.play();
        in_log = check_log(session, from, block, false);
        if in_log > 3 {
            break;
        }
    }
    session.disks[0].unmount().unwrap();
    session.play();
    assert_eq!(session.annotator.status(), AnnotatorStatus::Following, "{about}");
    check_homes(session, from, block, &DIRECTORIES);
    let (logged, home_blocks) = check_changes(&session.written[from..], (block / SECTOR) as u64);
    assert!(logged >= in_log, "{about}");
    if !mount.contains("data=journal") {
        // The blocks of the file are data, whatever their earlier role.
        let files = Ext4Filesystem::open(session.contents[0].as_slice()).unwrap();
        let log = files.lookup("/log").unwrap().unwrap();
        let sectors = (block / SECTOR) as u64;
        for run in files.map(&log).map(Result::unwrap) {
            let at = run.physical.unwrap() * sectors;
            let end = at + run.blocks * sectors;
            let holds = |written: &&Written| written.sector < end && written.sector + u64::from(written.note.sectors) > at;
            let last = session.written.iter().rfind(holds).unwrap();
            assert_eq!(last.note.role, BlockRole::Data, "{about}");
        }
    }
    (in_log, home_blocks)
}

#[test]
fn notes_of_a_mounted_file_system_agree_with_debugfs() {
    let sets: &[(usize, &[&str], &str)] = &[
        (4096, &["-J", "size=4"], "data=ordered"),
        (1024, &[], "data=ordered"),
        (2048, &["-O", "^metadata_csum"], "journal_checksum"),
        (4096, &["-O", "^metadata_csum,^64bit"], "data=writeback"),
        (4096, &["-O", "64bit"], "journal_async_commit,data=writeback"),
        (1024, &["-O", "inline_data,metadata_csum_seed"], "data=journal"),
        (4096, &["-O", "^extent,^64bit"], "data=ordered"),
        (1024, &["-O", "meta_bg,^resize_inode", "-g", "1024", "-J", "size=1"], "data=ordered"),
        (4096, &["-O", "^flex_bg,sparse_super2"], "data=ordered"),
    ];
    let mut home_blocks = 0;
    // One session: mkfs replaces the previous file system, with the same block size or another one.
    let Some(mut session) = Session::on(vec![vec![0; BYTES]], &["losetup", "dumpe2fs"]) else { return };
    for (block, options, mount) in sets {
        let (in_log, home) = round(&mut session, *block, options, mount);
        assert!(in_log > 3, "{options:?}: {in_log} blocks in the log");
        home_blocks += home;
    }
    assert!(home_blocks > 100, "{home_blocks} home blocks as logged");
}

#[test]
fn the_tail_of_a_fast_commit_names_its_transaction() {
    let Some(mut session) = Session::on(vec![vec![0; BYTES]], &["losetup", "dumpe2fs"]) else { return };
    session.mkfs(0, &["-b", "4096", "-O", "fast_commit", "-J", "size=8"]);
    let point = session.mount("");
    for number in 0..40 {
        let file = std::fs::File::create(point.join(format!("file-{number}"))).unwrap();
        file.sync_all().unwrap();
    }
    session.disks[0].unmount().unwrap();
    session.play();
    assert_eq!(session.annotator.status(), AnnotatorStatus::Following);
    let fast: Vec<&Written> = session.written.iter().filter(|written| written.note.role == BlockRole::FastCommit).collect();
    let sum = |role| session.written.iter().filter(|written| written.note.role == role).count();
    assert!(fast.len() >= 30, "{} fast commits, {} commits", fast.len(), sum(BlockRole::Commit));
    // Each of these fits into a block, which therefore contains the tail; it applies on top of the last commit.
    let mut last = None;
    for Written { note, .. } in &session.written {
        match note.role {
            BlockRole::Commit => last = note.transaction,
            BlockRole::FastCommit => {
                assert_eq!(note.transaction, last.map(|last| last.wrapping_add(1)));
                assert!(!note.changed.unwrap().is_empty());
            }
            _ => {}
        }
    }
}

#[test]
fn notes_of_an_external_journal_agree_with_debugfs() {
    for (block, attached) in [(1024, false), (4096, true)] {
        let Some(mut session) = Session::on(vec![vec![0; BYTES]; 2], &["losetup", "dumpe2fs"]) else { return };
        let size = block.to_string();
        session.mkfs(1, &["-b", &size, "-O", "journal_dev"]);
        let device = format!("device={}", session.path(1));
        session.mkfs(0, &["-b", &size, "-J", &device]);
        session.play();
        assert_eq!(session.annotator.status(), AnnotatorStatus::Following);
        if attached {
            session.annotator.attach(&session.contents[0]).unwrap();
            assert_eq!(session.annotator.status(), AnnotatorStatus::JournalElsewhere);
            session.annotator.attach_external(&session.contents[0], &session.contents[1]).unwrap();
            let error = session.annotator.attach_external(&session.contents[0], &session.contents[0]);
            assert!(error.unwrap_err().to_string().contains("not a journal device"));
            session.annotator.attach_external(&session.contents[0], &session.contents[1]).unwrap();
        }
        let point = session.mount("");
        tree::work(&point, 0);
        let from = session.play();
        assert!(check_log(&session, from, block, true) > 20);
        session.disks[0].unmount().unwrap();
        session.play();
        assert_eq!(session.annotator.status(), AnnotatorStatus::Following);
        check_homes(&session, from, block, &["/", "/gone", "/round-0"]);
        let (logged, home_blocks) = check_changes(&session.written[from..], (block / SECTOR) as u64);
        assert!(logged > 20 && home_blocks > 5, "{logged}, {home_blocks}");
    }
}

#[test]
fn a_file_system_without_a_journal_is_named_by_its_places() {
    let Some(mut session) = Session::on(vec![vec![0; BYTES]], &["losetup", "dumpe2fs"]) else { return };
    session.mkfs(0, &["-b", "4096", "-O", "^has_journal"]);
    let from = session.play();
    assert_eq!(session.annotator.status(), AnnotatorStatus::NoJournal);
    let point = session.mount("");
    tree::work(&point, 0);
    session.disks[0].unmount().unwrap();
    session.play();
    check_homes(&session, from + session.written.len() / 2, 4096, &["/", "/round-0"]);
}

#[test]
fn groups_that_come_by_resizing_are_named() {
    for options in [&["-b", "1024", "-O", "^flex_bg"][..], &["-b", "1024", "-O", "^flex_bg,meta_bg,^resize_inode"]] {
        let tools = &["losetup", "dumpe2fs", "resize2fs"];
        let Some(mut session) = Session::on(vec![vec![0; BYTES]], tools) else { return };
        session.mkfs(0, options);
        session.play();
        // This moves the journal. Its superblock is written when the kernel uses it.
        run("resize2fs", &[session.path(0), "20M"]);
        let point = session.mount("");
        tree::work(&point, 0);
        let from = session.play();
        assert_eq!(session.annotator.status(), AnnotatorStatus::Following);
        assert!(check_log(&session, from, 1024, false) > 20);
        // The kernel grows the file system if the host supports this; otherwise resize2fs grows it while it is unmounted.
        if !try_run("resize2fs", &[session.path(0)]).status.success() {
            session.disks[0].unmount().unwrap();
            run("e2fsck", &["-fp", session.path(0)]);
            run("resize2fs", &[session.path(0)]);
            session.mount("");
        }
        // The writes of resize2fs before that of the superblock cannot be classified.
        session.play();
        let from = session.written.len();
        // Later writes are also in new groups.
        for number in 1..4 {
            tree::work(&point, number);
            std::fs::write(point.join(format!("big-{number}")), vec![1; 10 << 20]).unwrap();
        }
        session.disks[0].unmount().unwrap();
        session.play();
        check_homes(&session, from, 1024, &["/", "/round-1", "/round-2", "/round-3"]);
        let beyond = (20 << 20) / SECTOR as u64;
        let new = session.written[from..].iter().filter(|written| written.sector > beyond);
        assert!(new.filter(|written| written.note.role == BlockRole::BlockBitmap).count() > 1);
    }
}

#[test]
fn home_blocks_of_a_replay_are_those_of_the_log() {
    let Some(mut session) = Session::on(vec![vec![0; BYTES]], &["losetup"]) else { return };
    session.mkfs(0, &["-b", "4096"]);
    let point = session.mount("");
    tree::work(&point, 0);
    session.play();
    // The image as a power cut would leave it.
    let image = session.contents[0].clone();
    drop(session);
    let mut session = Session::on(vec![image], &["losetup"]).unwrap();
    session.annotator.attach(&session.contents[0]).unwrap();
    assert_eq!(session.annotator.status(), AnnotatorStatus::Recovering);
    session.mount("");
    session.play();
    assert_eq!(session.annotator.status(), AnnotatorStatus::Following);
    let cleared = session.written.iter().position(|written| written.note.role == BlockRole::JournalSuperblock);
    let replayed = &session.written[..cleared.unwrap()];
    let same = |written: &&Written| {
        written.note.role.at_home() && written.note.changed == Some(SectorSet(0)) && written.note.transaction.is_some()
    };
    let count = replayed.iter().filter(same).count();
    assert!(count > 10 && count + 1 >= replayed.len(), "{count} of {}", replayed.len());
}
