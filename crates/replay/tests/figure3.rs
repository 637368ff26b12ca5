//! Throughput by request size on the preset nexus5, beside Figure 3 of IISWC 2015: 13.94 to 99.65 MB/s for reads of 4 to
//! 256 KB, 5.18 to 56.15 MB/s for writes of 4 KB to 16 MB, 19 MB/s for writes of 256 KB. The curves rise; writes of 256 KB and
//! more do not reach the published ones on a device that programs one page at a time (docs/concepts/emmc.md).
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use emmclab_device::{DeviceConfig, Observer, RequestCompleted};
use emmclab_replay::{ReplayOptions, Simulation};
use emmclab_trace::{Nanos, Op, Request, Sector};

/// Longest request of the kernel: larger ones come as several, which the driver may pack.
const LONGEST_KB: u32 = 512;

#[derive(Default)]
struct Ends {
    first: Option<i64>,
    last: i64,
}

impl Observer for Ends {
    fn request_completed(&mut self, event: &RequestCompleted) {
        self.first.get_or_insert(event.start);
        self.last = self.last.max(event.complete);
    }
}

/// MB/s of one request of a size, alone on a device that is awake.
fn rate(settings: &[(&str, &str)], op: Op, kb: u32) -> f64 {
    let mut config = DeviceConfig::preset("nexus5").unwrap();
    config.set_all(settings).unwrap();
    let mut simulation = Simulation::new(&config, &ReplayOptions::default(), None).unwrap();
    let mut ends = Ends::default();
    for i in 0..kb.div_ceil(LONGEST_KB) {
        let size = LONGEST_KB.min(kb - i * LONGEST_KB);
        let sector = u64::from(i * LONGEST_KB) * 2;
        simulation.push(&Request::new(Nanos(0), op, Sector(sector), size * 2), &mut ends).unwrap();
    }
    simulation.finish(None, &mut ends).unwrap();
    f64::from(kb) / 1024.0 / ((ends.last - ends.first.unwrap()) as f64 / 1e9)
}

#[test]
fn throughput_rises_with_the_size_and_starts_where_the_phone_does() {
    let packed = [("host.packed_writes", "63"), ("host.packed_reads", "63"), ("host.packed_max_kb", "16384")];
    let planes =
        [("geometry.dies_per_chip", "2"), ("geometry.planes_per_die", "2"), ("timing.parallelism", "both")];
    for op in [Op::Read, Op::Write] {
        for power in 2..=14 {
            let kb = 1 << power;
            let rates = [
                rate(&[], op, kb),
                rate(&packed, op, kb),
                rate(&planes, op, kb),
                rate(&[&packed[..], &planes[..]].concat(), op, kb),
            ];
            println!("{op:?} {kb} KB: {rates:.2?} MB/s: as it is, packed, four planes, both");
            assert!(rates[1] >= rates[0] * 0.999 && rates[3] >= rates[2] * 0.999, "packing never slows");
        }
    }
    let near = |found: f64, published: f64| (found / published - 1.0).abs() < 0.6;
    assert!(near(rate(&[], Op::Read, 4), 13.94) && near(rate(&[], Op::Read, 256), 99.65));
    assert!(near(rate(&[], Op::Write, 4), 5.18) && near(rate(&[], Op::Write, 256), 19.0));
    assert!(rate(&[], Op::Read, 256) > 4.0 * rate(&[], Op::Read, 4));
    assert!(rate(&[], Op::Write, 16384) > 1.5 * rate(&[], Op::Write, 4));
}
