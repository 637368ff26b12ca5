//! A guest whose kernel uses the eMMC of the SDHCI export, over two boots.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::sync::Arc;
use std::sync::mpsc::channel;

use common::devices::TestDevice;
use common::guest::{Guest, Parts, Said};
use common::{PATIENCE, commits};
use emmclab_base::CommandFlags;
use emmclab_serve::{BlockAction, CardSettings, SdhciExport, ServedRequest, SessionEvent};

fn recorded(sectors: u64) -> TestDevice {
    TestDevice::late(sectors, 1 << 16)
}

/// Maximum number of boots of a guest until its kernel does not crash.
const BOOTS: u32 = 3;

/// The console output of a guest until it powered itself off, and the requests to the device, which is new at each boot.
fn run(guest: &Parts, settings: &CardSettings, device: impl Fn() -> TestDevice, parameters: &str) -> (Said, Vec<ServedRequest>) {
    let mut boots = 0;
    loop {
        boots += 1;
        let folder = tempfile::tempdir().unwrap();
        let (socket, device) = (folder.path().join("card"), Arc::new(device()));
        let (sender, news) = channel();
        let send = move |event: SessionEvent| drop(sender.send(event));
        let export = SdhciExport::start(device.clone(), settings, &socket, send).unwrap();
        let driver = "vfio-user-pci";
        let card = format!(r#"{{"driver":"{driver}","socket":{{"type":"unix","path":"{}"}}}}"#, socket.display());
        let console = Guest::boot(guest, &guest.initrd(), 1, &["-device", &card], parameters).finish();
        if console.has_crashed() && boots < BOOTS {
            eprintln!("boot {boots}: the kernel of the guest crashed:\n{}", &*console);
            continue;
        }
        // The thread of the export may notice only now that QEMU has ended.
        for expected in [SessionEvent::Connected, SessionEvent::Disconnected] {
            assert_eq!(news.recv_timeout(PATIENCE), Ok(expected));
        }
        export.stop();
        assert_eq!(news.iter().next(), None);
        assert!(!console.contains("FAILED"));
        return (console, device.take());
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
    let (said, seen) = run(&guest, &CardSettings::default(), || recorded(8 << 20), "");
    assert!(said.contains("SECOND BOOT DONE"));
    for line in ["EXTCSD Cache Size [CACHE_SIZE] is 512 KiB", "CACHE_CTRL]: 0x01", "using ADMA", "CARD EMCLAB 0x10 1"] {
        assert!(said.contains(line), "{line}");
    }
    assert!(said.contains("RPMB RPMB operation failed, retcode 0x0007"), "no key is programmed");
    let position = |what: &dyn Fn(&ServedRequest) -> bool| seen.iter().position(what).unwrap();
    let words = ["one", "two", "three"].map(|word| position(&|request| holds(request, &format!("emmclab-{word} "))));
    assert!(words.is_sorted());
    // fsync: the data, the journal, a flush, and the commit block as a reliable write.
    let synced = &seen[words[0]..words[1]];
    let flush = synced.iter().position(|request| request.action == BlockAction::Flush).unwrap();
    let commit = synced.iter().position(commits).unwrap();
    assert!(flush < commit && synced[commit].modifiers.contains(CommandFlags::RELIABLE), "{flush} {commit}");
    assert_eq!(synced[0].modifiers, CommandFlags::empty());
    assert!(synced[..flush].iter().any(|request| request.modifiers == CommandFlags::META), "the journal is tagged");
    // Every commit is a reliable write; the cache is on from the beginning.
    assert!(seen.iter().filter(|request| commits(request)).all(|request| request.modifiers.contains(CommandFlags::RELIABLE)));
    assert!(seen.iter().all(|request| !request.modifiers.contains(CommandFlags::FORCED)));
    // fstrim between the second and the third file, blkdiscard after them.
    assert!(seen[words[1]..words[2]].iter().any(|request| removes(request, false)));
    let tail = (8 << 20) - 8192;
    assert!(seen[words[2]..].iter().any(|request| removes(request, false) && (request.sector, request.sectors) == (tail, 8192)));
    // The secure removal has the same range; sanitize removes the ranges without data.
    assert!(seen.iter().any(|request| removes(request, true) && (request.sector, request.sectors) == (tail, 2048)));
    assert!(seen.iter().filter(|request| removes(request, true)).count() > 10);
}

#[test]
fn a_small_card_without_a_cache_gets_no_flush() {
    let Some(guest) = Parts::find() else { return };
    let settings = CardSettings { cache_bytes: 0, barrier: false, boot_bytes: 1 << 20, ..CardSettings::default() };
    let (said, seen) = run(&guest, &settings, || recorded(1 << 20), "");
    assert!(said.contains("SECOND BOOT DONE"));
    assert!(seen.iter().all(|request| request.action != BlockAction::Flush));
    assert!(seen.iter().filter(|request| commits(request)).all(|request| request.modifiers.contains(CommandFlags::RELIABLE)));
    assert!(seen.iter().any(commits));
}

#[test]
fn a_failure_of_the_device_is_an_error_of_that_block_only() {
    let Some(guest) = Parts::find() else { return };
    let block = 15_432;
    let device = || recorded(8 << 20).with_bad_sector(block * 8);
    let (said, _) = run(&guest, &CardSettings::default(), device, &format!("bad={block}"));
    assert!(said.contains("FAULTS SEEN"));
}
