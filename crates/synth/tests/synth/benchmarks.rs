//! Benchmarks issue the requests that their descriptions state, and the same requests each time.

use std::collections::BTreeSet;

use crate::support::requests;
use emmclab_synth::benchmarks::{BENCHMARKS, Benchmark};
use emmclab_trace::{Op, Request};

fn all(name: &str, seed: u64) -> Vec<Request> {
    requests(&Benchmark::new(name, seed, None).unwrap().collect::<Vec<_>>())
}

#[test]
fn requests_come_in_order_inside_12_gb_and_the_same_every_time() {
    for entry in BENCHMARKS {
        let requests = all(entry.name, 1);
        assert!(requests.is_sorted_by_key(|request| request.arrival), "{}", entry.name);
        assert!(requests == all(entry.name, 1), "{}", entry.name);
        if !["Phone_6H", "Browsing"].contains(&entry.name) {
            assert!(requests.iter().all(|request| request.end().0 <= 12 << 21), "{}", entry.name);
        }
    }
    assert!(Benchmark::new("Preprandial", 1, None).is_err());
    assert_eq!(Benchmark::new("randomwrite", 1, Some(5)).unwrap().next().unwrap().len(), 5);
}

#[test]
fn both_write_benchmarks_write_each_block_of_1_gb_once() {
    let blocks = |name| all(name, 1).iter().map(|request| request.sector.0).collect::<Vec<_>>();
    let (sequential, random) = (blocks("SequentialWrite"), blocks("RandomWrite"));
    assert!(sequential.windows(2).all(|pair| pair[1] == pair[0] + 8));
    assert_eq!(sequential.len(), 1 << 18);
    assert_eq!(BTreeSet::from_iter(&sequential), BTreeSet::from_iter(&random));
    let follow = random.windows(2).filter(|pair| pair[1] == pair[0] + 8).count();
    assert!(follow < 20, "{follow}");
}

#[test]
fn postmark_writes_its_files_and_journals_them() {
    let requests = all("Postmark", 1);
    let written = |test: &dyn Fn(&Request) -> bool| -> u64 {
        requests.iter().filter(|r| r.op == Op::Write && test(r)).map(|r| r.bytes().0).sum()
    };
    let journal = (48 * 128) << 11;
    let in_journal = |request: &Request| (journal..journal + (128 << 11)).contains(&request.sector.0);
    // 160,000 files and half of 60,000 more, of 4 to 8 KB: nearly all have two blocks. In addition, appended data, and metadata that is
    // written to its home location.
    let data = written(&|request| !in_journal(request)) >> 20;
    assert!((1500..3200).contains(&data), "{data} MB");
    let journalled = written(&in_journal) >> 20;
    assert!((300..3000).contains(&journalled), "{journalled} MB");
    assert_eq!(requests.iter().filter(|request| request.op == Op::Flush).count(), 221);
    let small = requests.iter().filter(|request| request.op == Op::Write && request.sectors == 8).count();
    assert!(small > 10_000, "metadata comes home in small pieces: {small}");
}

#[test]
fn phone_and_browsing_write_the_published_mixture() {
    // The rule of the router of Kim & Kim: smaller than 8 KB, and not starting where the previous request ended.
    let mixture = |name: &str, count: &dyn Fn(&Request) -> u64| {
        let (mut small, mut others, mut end) = (0, 0, None);
        for request in all(name, 1) {
            let follows = end == Some(request.sector);
            end = Some(request.end());
            match request.op {
                Op::Write if request.sectors < 16 && !follows => small += count(&request),
                Op::Write => others += count(&request),
                _ => {}
            }
        }
        others as f64 / small as f64
    };
    // 2,266 writes go to the original area while 22,938 writes of 4 KB fill a section (V-E).
    let phone = mixture("Phone_6H", &|_| 1);
    assert!((phone / (2_266.0 / 22_938.0) - 1.0).abs() < 0.02, "{phone}");
    // About twice as many sequential as random writes (FAST 2012, slide 21), in bytes.
    let web = mixture("Browsing", &|request| request.bytes().0);
    assert!((web / 2.0 - 1.0).abs() < 0.02, "{web}");
}
