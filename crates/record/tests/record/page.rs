//! Pages of any byte order and word size, built by the rules of the kernel's ring buffer.
#![allow(clippy::unwrap_used, reason = "a test may")]

use emmclab_record::{KernelByteOrder, LostEvents, RingPageLayout};

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

    fn number(&self, value: u64, size: usize) -> Vec<u8> {
        match self.order {
            KernelByteOrder::Little => value.to_le_bytes()[..size].to_vec(),
            KernelByteOrder::Big => value.to_be_bytes()[8 - size..].to_vec(),
        }
    }

    fn head(&mut self, kind: u32, delta: u32) -> &mut Self {
        let word = match self.order {
            KernelByteOrder::Little => kind | delta << 5,
            KernelByteOrder::Big => kind << 27 | delta,
        };
        let bytes = self.number(u64::from(word), 4);
        self.data.extend(bytes);
        self
    }

    fn word(&mut self, value: u32) -> &mut Self {
        let bytes = self.number(u64::from(value), 4);
        self.data.extend(bytes);
        self
    }

    fn page(&self, time: u64, flags: u64, behind: &[u8]) -> Vec<u8> {
        let mut page = self.number(time, 8);
        page.extend(self.number(self.data.len() as u64 | flags, self.long));
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
        assert_eq!(records.lost(), LostEvents::None);
        let found: Vec<_> = records
            .map(|record| {
                let record = record.unwrap();
                let words = record.data.chunks(4).map(|word| order.u32(word, 0).unwrap()).collect::<Vec<_>>();
                (record.time, words)
            })
            .collect();
        let second = 1_005 + (3 << 27) + 7;
        let third = second + 101;
        let fourth = (1 << 47) + 9 + 2;
        assert_eq!(found, [(1_005, vec![1, 2]), (second, vec![3]), (third, vec![4, 5]), (fourth, vec![6])]);
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
    // The lower 59 bits went from 5 to 1: they have run over.
    assert_eq!(times, [(1 << 60) + (1 << 59) + 1]);
}

#[test]
fn lost_events_are_told_with_their_number_where_there_is_room() {
    const MISSED: u64 = 1 << 31;
    const STORED: u64 = 1 << 30;
    for (order, long) in machines() {
        let mut page = Builder::new(order, long);
        page.head(1, 0).word(0);
        let count = page.number(1234, long);
        let layout = page.layout();
        let lost = |flags, behind: &[u8]| layout.open(&page.page(0, flags, behind)).unwrap().lost();
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
    let header = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n";
    assert!(RingPageLayout::parse(header, HEADER_EVENT, KernelByteOrder::Little).is_err());
    let huge = format!("{header}\tfield: char data;\toffset:16;\tsize:65000000;\tsigned:1;\n");
    let error = RingPageLayout::parse(&huge, HEADER_EVENT, KernelByteOrder::Little);
    assert!(error.is_err());
    let good = format!("{header}\tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n");
    assert!(RingPageLayout::parse(&good, HEADER_EVENT, KernelByteOrder::Little).is_ok());
    assert!(RingPageLayout::parse(&good, &HEADER_EVENT.replace("27", "28"), KernelByteOrder::Little).is_err());
}
