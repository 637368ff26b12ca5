//! The decoder against what the kernel itself prints of the same pages, and against damaged pages. Needs no root.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use std::path::Path;

use emmclab_record::{BlockEvent, Files, HelperFrame, HelperStream, KernelFormat, RingPageSummary, TracedEvent};
use emmclab_trace::{BlockEventKind, unfilled};
use proptest::prelude::*;

fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    zstd::decode_all(std::fs::File::open(&path).unwrap()).unwrap()
}

/// Texts before, pages by CPU in order, texts after.
fn capture(name: &str) -> (Files, Vec<Vec<u8>>, Files) {
    let bytes = fixture(name);
    let mut stream = HelperStream::new(&bytes[..]);
    let files = stream.texts("ready").unwrap();
    stream.texts("stream").unwrap();
    let page_bytes = KernelFormat::from_files(&files).unwrap().layout().page_bytes();
    let mut pages = Vec::new();
    loop {
        match stream.frame().unwrap() {
            HelperFrame::Pages { count, .. } => {
                for _ in 0..count {
                    let mut page = vec![0; page_bytes];
                    stream.page(&mut page).unwrap();
                    pages.push(page);
                }
            }
            HelperFrame::Round => {}
            HelperFrame::End => return (files, pages, stream.texts("end").unwrap()),
        }
    }
}

fn decode_all(kernel: &KernelFormat, pages: &[Vec<u8>]) -> (Vec<(u64, BlockEvent)>, RingPageSummary) {
    let mut events = Vec::new();
    let mut total = RingPageSummary::default();
    for page in pages {
        let summary = kernel
            .decode(page, |time, event| {
                if let TracedEvent::Block(event) = event {
                    events.push((time, event));
                }
            })
            .unwrap();
        total.events += summary.events;
        total.other += summary.other;
        total.lost += summary.lost;
        total.damaged |= summary.damaged;
    }
    (events, total)
}

/// What an event prints, in the kernel's words: micros, pid, device, operation, sector, sectors (or second sector).
type Printed = (u64, i32, String, String, u64, u64);

/// `sqlite3-123 [000] ..... 3011.123456: block_rq_issue: 7,0 WS 4096 () 10 + 8 none,0,0 [sqlite3]`
fn printed(line: &str) -> Option<Printed> {
    let (head, rest) = line.split_once(": ")?;
    let (_, payload) = rest.split_once(": ")?;
    let (seconds, micros) = head.split_whitespace().last()?.split_once('.')?;
    let time = seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?;
    let pid = head.split(" [").next()?.rsplit('-').next()?.trim().parse().ok()?;
    let words: Vec<_> = payload.split_whitespace().collect();
    let sign = words.iter().position(|word| matches!(*word, "+" | "/"))?;
    let number = |at: usize| words[at].parse::<u64>().ok();
    Some((time, pid, words[0].into(), words[1].into(), number(sign - 1)?, number(sign + 1)?))
}

fn shown((time, event): &(u64, BlockEvent)) -> Printed {
    let device = format!("{},{}", event.device >> 20, event.device & 0xf_ffff);
    let letters = String::from_utf8_lossy(unfilled(&event.rwbs)).into_owned();
    let second = match event.kind {
        BlockEventKind::Split(second) => second,
        _ => u64::from(event.sectors),
    };
    // The kernel rounds to the nearest microsecond.
    ((time + 500) / 1_000, event.pid, device, letters, event.sector, second)
}

#[test]
fn every_event_comes_out_as_the_kernel_prints_it() {
    let (files, pages, after) = capture("host.stream.zst");
    let (events, total) = decode_all(&KernelFormat::from_files(&files).unwrap(), &pages);
    let text = String::from_utf8(fixture("host.trace.zst")).unwrap();
    let lines: Vec<_> = text.lines().filter(|line| line.contains(": block_")).collect();
    let mut expected: Vec<_> = lines.iter().map(|line| printed(line).unwrap_or_else(|| panic!("{line}"))).collect();
    let mut found: Vec<_> = events.iter().map(shown).collect();
    expected.sort();
    found.sort();
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
    assert_eq!((total.events, total.other, total.lost), (lines.len() as u64, 0, 0));
    assert!(!total.damaged);
    // Names of tasks are in the records too.
    let names = events.iter().filter(|(_, event)| unfilled(&event.comm) == b"sqlite3").count();
    assert!(names > 100, "{names}");
    assert!(after["per_cpu/cpu0/stats"].contains("overrun: 0"));
}

#[test]
fn a_cut_page_is_an_error_and_never_a_panic() {
    let (files, pages, _) = capture("host.stream.zst");
    let kernel = KernelFormat::from_files(&files).unwrap();
    let page = &pages[0];
    let used = 16 + usize::from(u16::from_le_bytes([page[8], page[9]]));
    for end in 0..page.len() {
        let decoded = kernel.decode(&page[..end], |_, _| {});
        assert_eq!(decoded.is_ok(), end >= used, "{end} of {used} bytes");
    }
    assert!(kernel.decode(&page[..200], |_, _| {}).unwrap_err().hint_text().is_some());
}

proptest! {
    #[test]
    fn a_damaged_page_never_panics(
        which in any::<prop::sample::Index>(),
        at in 0usize..4096,
        bytes in prop::collection::vec(any::<u8>(), 1..64),
    ) {
        let (files, pages, _) = capture("host.stream.zst");
        let kernel = KernelFormat::from_files(&files).unwrap();
        let mut page = which.get(&pages).clone();
        let end = (at + bytes.len()).min(page.len());
        page.splice(at..end, bytes.iter().copied().take(end - at));
        let mut count = 0;
        if let Ok(summary) = kernel.decode(&page, |_, _| count += 1) {
            prop_assert_eq!(count, summary.events);
        }
    }

    #[test]
    fn foreign_bytes_never_panic(page in prop::collection::vec(any::<u8>(), 0..5000), used in 0u16..4080) {
        let (files, _, _) = capture("host.stream.zst");
        let kernel = KernelFormat::from_files(&files).unwrap();
        let mut page = page;
        if page.len() > 16 {
            page[8..12].copy_from_slice(&u32::from(used).to_le_bytes());
        }
        let _ = kernel.decode(&page, |_, _| {});
    }

    #[test]
    fn a_damaged_description_never_panics(
        name in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        text in "[ -~\n]{0,12}",
    ) {
        let (mut files, pages, _) = capture("host.stream.zst");
        let names: Vec<_> = files.keys().filter(|name| name.contains("format") || name.contains("header")).cloned().collect();
        let file = files.get_mut(name.get(&names)).unwrap();
        let place = at.index(file.len());
        file.insert_str(place, &text);
        if let Ok(kernel) = KernelFormat::from_files(&files) {
            for page in &pages {
                let _ = kernel.decode(page, |_, _| {});
            }
        }
    }
}

/// Also in the other byte order, where the same bytes mean something else.
#[test]
fn the_fuzz_corpus_never_panics() {
    let (mut files, _, _) = capture("host.stream.zst");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/ring");
    let pages: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    assert!(pages.len() >= 2, "the corpus is missing");
    for order in ["\u{1}", "\u{2}"] {
        files.insert("byte_order".to_owned(), order.to_owned());
        let kernel = KernelFormat::from_files(&files).unwrap();
        for page in &pages {
            let _ = kernel.decode(&page[1..], |_, _| {});
        }
    }
}
