//! Compares the decoder with the text that the kernel prints for the same pages; also tests damaged pages, and pages in any byte
//! order and word size that are built by the rules of the kernel's ring buffer. Needs no root.

use std::path::Path;

use emmclab_record::{
    BlockEvent, Files, KernelByteOrder, KernelFormat, LostEvents, RingPageLayout, RingPageSummary, TracedEvent,
};
use emmclab_trace::{BlockEventKind, unfilled};
use proptest::prelude::*;

use crate::containers::{PAGE, fixture, number};

/// The texts before, the pages of all CPUs, and the texts after.
fn capture(name: &str) -> (Files, Vec<Vec<u8>>, Files) {
    let (before, cpus, after) = crate::containers::capture(name);
    (before, cpus.iter().flat_map(|pages| pages.chunks(PAGE)).map(<[u8]>::to_vec).collect(), after)
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

/// An event as printed by the kernel: microseconds, pid, device, operation, sector, sectors (or second sector).
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
    let mut shown_events: Vec<_> = events.iter().map(shown).collect();
    expected.sort();
    shown_events.sort();
    for (shown_event, expected) in shown_events.iter().zip(&expected) {
        assert_eq!(shown_event, expected);
    }
    assert_eq!((total.events, total.other, total.lost), (lines.len() as u64, 0, 0));
    assert!(!total.damaged);
    // Names of tasks are also in the records.
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

/// Also in the other byte order, in which the bytes have another meaning.
#[test]
fn the_fuzz_corpus_never_panics() {
    let (mut files, _, _) = capture("host.stream.zst");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/ring");
    let pages: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    assert!(pages.len() >= 2, "the corpus is missing");
    for order in ["\u{1}", "\u{2}"] {
        files.insert("byte_order".to_owned(), order.to_owned());
        let kernel = KernelFormat::from_files(&files).unwrap();
        for page in &pages {
            let _ = kernel.decode(&page[1..], |_, _| {});
        }
    }
}

const HEADER_EVENT: &str = "# compressed entry header\n\ttype_len    :    5 bits\n\ttime_delta  :   27 bits\n\t\
    array       :   32 bits\n\n\tpadding     : type == 29\n\ttime_extend : type == 30\n\tdata max type_len  == 28\n";

struct Builder {
    order: KernelByteOrder,
    long: usize,
    data: Vec<u8>,
}

impl Builder {
    fn new(order: KernelByteOrder, long: usize) -> Self {
        Self { order, long, data: Vec::new() }
    }

    fn layout(&self) -> RingPageLayout {
        let data_at = 8 + self.long;
        let header = format!(
            "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
             \tfield: local_t commit;\toffset:8;\tsize:{};\tsigned:1;\n\
             \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
             \tfield: char data;\toffset:{data_at};\tsize:{};\tsigned:1;\n",
            self.long,
            4096 - data_at
        );
        RingPageLayout::parse(&header, HEADER_EVENT, self.order).unwrap()
    }

    fn head(&mut self, kind: u32, delta: u32) -> &mut Self {
        let word = match self.order {
            KernelByteOrder::Little => kind | delta << 5,
            KernelByteOrder::Big => kind << 27 | delta,
        };
        self.word(word)
    }

    fn word(&mut self, value: u32) -> &mut Self {
        self.data.extend(number(self.order, u64::from(value), 4));
        self
    }

    fn page(&self, time: u64, flags: u64, behind: &[u8]) -> Vec<u8> {
        let mut page = number(self.order, time, 8);
        page.extend(number(self.order, self.data.len() as u64 | flags, self.long));
        page.extend(&self.data);
        page.extend(behind);
        page.resize(4096, 0);
        page
    }
}

fn machines() -> impl Iterator<Item = (KernelByteOrder, usize)> {
    [KernelByteOrder::Little, KernelByteOrder::Big].into_iter().flat_map(|order| [(order, 4), (order, 8)])
}

#[test]
fn times_add_up_over_deltas_extends_stamps_and_discarded_records() {
    for (order, long) in machines() {
        let mut page = Builder::new(order, long);
        page.head(2, 5).word(1).word(2);
        page.head(30, 7).word(3); // 3 << 27 | 7 more
        page.head(1, 0).word(3);
        page.head(29, 100).word(8).word(0); // discarded: header, length word, 4 bytes
        page.head(0, 1).word(12).word(4).word(5); // long form
        page.head(31, 9).word(1 << 20); // absolute
        page.head(1, 2).word(6);
        page.head(29, 0); // the end
        page.head(1, 2).word(7);
        let bytes = page.page(1_000, 0, &[]);
        let layout = page.layout();
        assert_eq!(layout.page_bytes(), 4096);
        let records = layout.open(&bytes).unwrap();
        assert_eq!(records.lost, LostEvents::None);
        let decoded: Vec<_> = records
            .map(|record| {
                let record = record.unwrap();
                let words = record.data.chunks(4).map(|word| order.u32(word, 0).unwrap()).collect::<Vec<_>>();
                (record.time, words)
            })
            .collect();
        let second = 1_005 + (3 << 27) + 7;
        let third = second + 101;
        let fourth = (1 << 47) + 9 + 2;
        assert_eq!(decoded, [(1_005, vec![1, 2]), (second, vec![3]), (third, vec![4, 5]), (fourth, vec![6])]);
    }
}

#[test]
fn an_absolute_stamp_keeps_the_upper_bits_of_the_clock() {
    let mut page = Builder::new(KernelByteOrder::Little, 8);
    page.head(31, 1).word(0);
    page.head(1, 0).word(0);
    let start = (1 << 60) | 5;
    let bytes = page.page(start, 0, &[]);
    let times: Vec<_> = page.layout().open(&bytes).unwrap().map(|record| record.unwrap().time).collect();
    // The lower 59 bits decrease from 5 to 1, because they have overflowed.
    assert_eq!(times, [(1 << 60) + (1 << 59) + 1]);
}

#[test]
fn lost_events_are_told_with_their_number_where_there_is_room() {
    const MISSED: u64 = 1 << 31;
    const STORED: u64 = 1 << 30;
    for (order, long) in machines() {
        let mut page = Builder::new(order, long);
        page.head(1, 0).word(0);
        let count = number(order, 1234, long);
        let layout = page.layout();
        let lost = |flags, behind: &[u8]| layout.open(&page.page(0, flags, behind)).unwrap().lost;
        assert_eq!(lost(MISSED | STORED, &count), LostEvents::Count(1234));
        assert_eq!(lost(MISSED, &count), LostEvents::Unknown);
        assert_eq!(lost(0, &count), LostEvents::None);
    }
}

#[test]
fn a_record_that_leaves_its_page_ends_it_with_its_offset() {
    let mut page = Builder::new(KernelByteOrder::Little, 8);
    page.head(1, 0).word(0);
    page.head(28, 0).word(0);
    let bytes = page.page(0, 0, &[]);
    let mut records = page.layout().open(&bytes).unwrap();
    assert!(records.next().unwrap().is_ok());
    assert!(records.next().unwrap().unwrap_err().to_string().contains("byte 8"));
    assert!(records.next().is_none());
}

#[test]
fn another_layout_is_refused() {
    let header =
        "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n";
    assert!(RingPageLayout::parse(header, HEADER_EVENT, KernelByteOrder::Little).is_err());
    let huge = format!("{header}\tfield: char data;\toffset:16;\tsize:65000000;\tsigned:1;\n");
    let error = RingPageLayout::parse(&huge, HEADER_EVENT, KernelByteOrder::Little);
    assert!(error.is_err());
    let good = format!("{header}\tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n");
    assert!(RingPageLayout::parse(&good, HEADER_EVENT, KernelByteOrder::Little).is_ok());
    assert!(RingPageLayout::parse(&good, &HEADER_EVENT.replace("27", "28"), KernelByteOrder::Little).is_err());
}
