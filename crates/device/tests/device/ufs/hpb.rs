//! HPB: a read that sends its map entry along does not read the map. Page read 100 us; 4,096 bytes take 7 us on the link.

use emmclab_base::Op::{Discard, Read, Write};
use emmclab_device::Device;

use super::ufs;
use crate::common::{Completions, command, config};

/// A device with one map entry in memory, so that nearly every read has to read the map.
fn hinted(pages: &str) -> Device {
    Device::new(&ufs(&[
        ("geometry.block_groups.0.blocks", "24"),
        ("gc.policy", "greedy"),
        ("capacity.over_provisioning_pct", "60"),
        ("mapping.scheme", "dftl"),
        ("mapping.cached_entries", "1"),
        ("mapping.hpb_pages", pages),
    ]))
}

/// Times of reads of these addresses in KB, in us, after the first 40 KB were written.
fn reads(device: &mut Device, between: &[(emmclab_base::Op, u64)]) -> Vec<u64> {
    let (mut told, mut at) = (Completions::default(), 0);
    let writes = (0..10).map(|page| (Write, page * 4));
    for (op, kb) in writes.chain(between.iter().copied()) {
        at += 100_000;
        device.submit(&command(at, op, kb, 4), &mut told).unwrap();
    }
    let events = told.0.iter().skip(10).filter(|event| event.op == Read);
    events.map(|event| (event.complete - event.arrival).0 as u64 / 1000).collect()
}

#[test]
fn a_read_with_a_hint_reads_no_map() {
    let asked = [(Read, 0), (Read, 4), (Read, 12), (Read, 0)];
    // The first read also has to write back the entry that the last write changed.
    assert_eq!(reads(&mut hinted("0"), &asked)[1..], [207; 3]);
    let mut device = hinted("1");
    assert_eq!(reads(&mut device, &asked), [107; 4], "writes read the map, too, and the host took it");
    assert_eq!(device.counters().map_hints, 4);
}

#[test]
fn a_hint_that_is_out_of_date_is_not_taken() {
    let asked = [(Read, 0), (Write, 4), (Read, 4), (Read, 0), (Discard, 8), (Read, 12), (Read, 8)];
    let mut device = hinted("1");
    let before = reads(&mut device, &asked);
    // The entry of 4 KB is cached after the write. That of 8 KB was changed by the discard, so the map is read.
    assert_eq!(before[..4], [107, 107, 107, 107]);
    assert!(device.counters().map_hints < 5, "{:?}", device.counters());
}

#[test]
fn an_emmc_has_no_hpb() {
    let text = config(&[("mapping.scheme", "dftl")]).set_all(&[("mapping.hpb_pages", "4")]).unwrap_err();
    assert!(text.to_string().contains("`mapping.hpb_pages` is 4"), "{text}");
}
