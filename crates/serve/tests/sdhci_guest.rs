//! A guest whose kernel drives the eMMC of the SDHCI export, over two boots.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use common::guest::{Guest, Parts, Said};
use common::{PATIENCE, commits};
use emmclab_base::CommandFlags;
use emmclab_serve::{
    AllocationExtent, BlockAction, BlockDevice, BlockDeviceLimits, CardSettings, CompletionReceiver, MemoryDevice,
    RequestFailure, SdhciExport, ServedCompletion, ServedRequest, SessionEvent,
};

/// Requests on their way to the thread that completes them.
type Submitted = (Vec<ServedRequest>, Arc<dyn CompletionReceiver>);

/// A device in memory that remembers its requests and completes them on a thread of its own.
struct Recorded {
    inner: Arc<MemoryDevice>,
    worker: Sender<Submitted>,
    seen: Mutex<Vec<ServedRequest>>,
}

impl Recorded {
    /// A device of so many sectors, of which one, `bad`, can be neither read nor written.
    fn new(sectors: u64, bad: Option<u64>) -> Arc<Self> {
        let inner = Arc::new(MemoryDevice::new(sectors));
        let (worker, work) = channel::<Submitted>();
        let below = inner.clone();
        std::thread::spawn(move || {
            for (mut requests, completions) in work {
                let fails = |one: &ServedRequest| bad.is_some_and(|bad| (one.sector..one.end()).contains(&bad));
                let failed = requests.extract_if(.., |one| fails(one));
                let mut failed: Vec<_> =
                    failed.map(|one| ServedCompletion { tag: one.tag, outcome: Err(RequestFailure::Io) }).collect();
                completions.complete(&mut failed);
                below.submit(&mut requests, &completions);
            }
        });
        Arc::new(Self { inner, worker, seen: Mutex::default() })
    }

    fn take(&self) -> Vec<ServedRequest> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

impl BlockDevice for Recorded {
    fn limits(&self) -> BlockDeviceLimits {
        self.inner.limits()
    }

    fn submit(&self, requests: &mut Vec<ServedRequest>, completions: &Arc<dyn CompletionReceiver>) {
        self.seen.lock().unwrap().extend(requests.iter().cloned());
        self.worker.send((std::mem::take(requests), completions.clone())).unwrap();
    }

    fn extents(&self, sector: u64, sectors: u64, most: usize, found: &mut Vec<AllocationExtent>) {
        self.inner.extents(sector, sectors, most, found);
    }
}

/// A guest is booted this often until its kernel does not crash.
const BOOTS: u32 = 3;

/// What a guest said until it switched itself off, and what the device saw, which is new at each boot.
fn run(
    guest: &Parts,
    settings: &CardSettings,
    device: impl Fn() -> Arc<Recorded>,
    parameters: &str,
) -> (Said, Vec<ServedRequest>) {
    let mut boots = 0;
    loop {
        boots += 1;
        let folder = tempfile::tempdir().unwrap();
        let (socket, device) = (folder.path().join("card"), device());
        let (sender, news) = channel();
        let send = move |event: SessionEvent| drop(sender.send(event));
        let export = SdhciExport::start(device.clone(), settings, &socket, send).unwrap();
        let driver = "vfio-user-pci";
        let card = format!(r#"{{"driver":"{driver}","socket":{{"type":"unix","path":"{}"}}}}"#, socket.display());
        let said = Guest::boot(guest, &guest.initrd(), 1, &["-device", &card], parameters).finish();
        if said.has_crashed() && boots < BOOTS {
            eprintln!("boot {boots}: the kernel of the guest crashed:\n{}", &*said);
            continue;
        }
        // The thread of the export may learn that QEMU has ended only now.
        for expected in [SessionEvent::Connected, SessionEvent::Disconnected] {
            assert_eq!(news.recv_timeout(PATIENCE), Ok(expected));
        }
        export.stop();
        assert_eq!(news.iter().next(), None);
        assert!(!said.contains("FAILED"));
        return (said, device.take());
    }
}

fn holds(request: &ServedRequest, word: &str) -> bool {
    matches!(&request.action, BlockAction::Write(data) if data.starts_with(word.as_bytes()))
}

fn removes(request: &ServedRequest, secure: bool) -> bool {
    request.action == BlockAction::Discard { secure }
}

#[test]
fn a_kernel_drives_the_card_and_its_files_survive_a_reset() {
    let Some(guest) = Parts::find() else { return };
    let (said, seen) = run(&guest, &CardSettings::default(), || Recorded::new(8 << 20, None), "");
    assert!(said.contains("SECOND BOOT DONE"));
    for line in ["EXTCSD Cache Size [CACHE_SIZE] is 512 KiB", "CACHE_CTRL]: 0x01", "using ADMA", "CARD EMCLAB 0x10 1"] {
        assert!(said.contains(line), "{line}");
    }
    assert!(said.contains("RPMB RPMB operation failed, retcode 0x0007"), "no key is programmed");
    let position = |what: &dyn Fn(&ServedRequest) -> bool| seen.iter().position(what).unwrap();
    let words = ["one", "two", "three"].map(|word| position(&|request| holds(request, &format!("emmclab-{word} "))));
    assert!(words.is_sorted());
    // fsync: the data, the journal, a flush, and the commit block by a reliable write.
    let synced = &seen[words[0]..words[1]];
    let flush = synced.iter().position(|request| request.action == BlockAction::Flush).unwrap();
    let commit = synced.iter().position(commits).unwrap();
    assert!(flush < commit && synced[commit].modifiers.contains(CommandFlags::RELIABLE), "{flush} {commit}");
    assert_eq!(synced[0].modifiers, CommandFlags::empty());
    assert!(synced[..flush].iter().any(|request| request.modifiers == CommandFlags::META), "the journal is tagged");
    // Every commit is reliable; the cache is on from the beginning.
    assert!(seen.iter().filter(|one| commits(one)).all(|one| one.modifiers.contains(CommandFlags::RELIABLE)));
    assert!(seen.iter().all(|request| !request.modifiers.contains(CommandFlags::FORCED)));
    // fstrim between the second and the third file, blkdiscard behind them.
    assert!(seen[words[1]..words[2]].iter().any(|request| removes(request, false)));
    let tail = (8 << 20) - 8192;
    assert!(seen[words[2]..].iter().any(|one| removes(one, false) && (one.sector, one.sectors) == (tail, 8192)));
    // Secure removal takes the same place, sanitize what holds no data.
    assert!(seen.iter().any(|request| removes(request, true) && (request.sector, request.sectors) == (tail, 2048)));
    assert!(seen.iter().filter(|request| removes(request, true)).count() > 10);
}

#[test]
fn a_small_card_without_a_cache_gets_no_flush() {
    let Some(guest) = Parts::find() else { return };
    let settings = CardSettings { cache_bytes: 0, barrier: false, boot_bytes: 1 << 20, ..CardSettings::default() };
    let (said, seen) = run(&guest, &settings, || Recorded::new(1 << 20, None), "");
    assert!(said.contains("SECOND BOOT DONE"));
    assert!(seen.iter().all(|request| request.action != BlockAction::Flush));
    assert!(seen.iter().filter(|one| commits(one)).all(|one| one.modifiers.contains(CommandFlags::RELIABLE)));
    assert!(seen.iter().any(commits));
}

#[test]
fn a_failure_of_the_device_is_an_error_of_that_block_only() {
    let Some(guest) = Parts::find() else { return };
    let block = 15_432;
    let device = || Recorded::new(8 << 20, Some(block * 8));
    let (said, _) = run(&guest, &CardSettings::default(), device, &format!("bad={block}"));
    assert!(said.contains("FAULTS SEEN"));
}
