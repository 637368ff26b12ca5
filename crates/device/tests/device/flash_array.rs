//! Times of the flash array that depend on the page or on other operations, calculated by hand.

use emmclab_base::Nanos;
use emmclab_base::Op::{Read, Write};

use crate::common::{command, config, responses_us, run, times_us};

const GROUP: &str = "geometry.block_groups.0.page_types";
/// Page types of a TLC block, instead of the times of [`PLAIN`](crate::common::PLAIN).
const TLC: [(&str, &str); 5] = [
    ("geometry.block_groups.0.cell_mode", "tlc"),
    ("geometry.block_groups.0.pages_per_block", "6"),
    ("geometry.block_groups.0.read_us", "0"),
    ("geometry.block_groups.0.program_us", "0"),
    (GROUP, "[{read_us=50, program_us=400}, {read_us=70, program_us=900}, {read_us=90, program_us=2000}]"),
];

#[test]
fn the_pages_of_a_word_line_take_the_times_of_their_types() {
    let commands: Vec<_> = (0..14).map(|i| command(i * 10_000, if i < 7 { Write } else { Read }, i as u64 % 7 * 4, 4)).collect();
    let times = times_us(&TLC, &commands);
    assert_eq!(times[..7], [400.0, 900.0, 2000.0, 400.0, 900.0, 2000.0, 400.0]);
    assert_eq!(times[7..], [50.0, 70.0, 90.0, 50.0, 70.0, 90.0, 50.0]);
    // One request that fills a block takes the sum of all pages. Data that was never written is read from the pages that it would fill.
    assert_eq!(times_us(&TLC, &[command(0, Write, 0, 24)]), [6600.0]);
    assert_eq!(times_us(&TLC, &commands[7..]), times[7..]);
    // The group states the means.
    let config = config(&TLC);
    let group = &config.settings().geometry.block_groups[0];
    assert_eq!((group.read_us, group.program_us), (70.0, 1100.0));
}

#[test]
fn collection_reads_and_programs_pages_by_their_types() {
    let settings = [
        ("gc.policy", "fifo"),
        ("capacity.over_provisioning_pct", "50"),
        ("geometry.block_groups.0.blocks", "6"),
        ("geometry.block_groups.0.read_us", "0"),
        ("geometry.block_groups.0.program_us", "0"),
        (GROUP, "[{read_us=50, program_us=400}, {read_us=90, program_us=1600}]"),
    ];
    // Unit 1 stays on page 1 of the first block, and 17 later writes of unit 0 fill four other blocks. The next write collects the first
    // block: it copies unit 1 from an upper page to a lower one.
    let commands: Vec<_> = (0..21).map(|i| command(i * 20_000, Write, u64::from(i == 1) * 4, 4)).collect();
    let (device, events) = run(&config(&settings), &commands);
    let copy_and_erases = (90.0 + 400.0 + 5000.0) + 5000.0;
    assert_eq!(device.counters().block_erases(), 2);
    assert_eq!(events[20].waits.gc, Nanos::from_micros(copy_and_erases as i64));
    assert_eq!(responses_us(&events)[20], copy_and_erases + 400.0);
}
