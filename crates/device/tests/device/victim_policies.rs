//! A victim policy that a program passes to a device instead of selecting one in the settings.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{Completions, command, config};
use emmclab_base::Op::Write;
use emmclab_device::gc::{FullBlockOrder, VictimChoice, VictimPolicy, VictimView};
use emmclab_device::{Device, DeviceConfig};

fn device(policy: &str) -> DeviceConfig {
    config(&[
        ("gc.policy", policy),
        ("capacity.over_provisioning_pct", "60"),
        ("geometry.block_groups.0.page_kb", "8"),
        ("geometry.block_groups.0.blocks", "16"),
    ])
}

/// Writes single units all over the device. `from` is the number of the first request.
fn write(device: &mut Device, from: u64) -> Completions {
    let mut told = Completions::default();
    for i in from..from + 400 {
        device.submit(&command(i as i64 * 9000, Write, i * 37 % 72 * 4, 4), &mut told).unwrap();
        assert_eq!(device.stop(), None);
    }
    told
}

/// FIFO, which also checks the documented properties of the view, and counts its decisions.
struct Oldest(Arc<AtomicU64>);

impl VictimPolicy for Oldest {
    fn order(&self) -> FullBlockOrder {
        FullBlockOrder::Age
    }

    fn choose(&self, view: &VictimView) -> VictimChoice {
        self.0.fetch_add(1, Ordering::Relaxed);
        let ages: Vec<_> = view.by_age().map(|block| view.age(block)).collect();
        assert!(ages.is_sorted_by(|older, younger| older > younger), "{ages:?}");
        let mut by_age: Vec<_> = view.by_age().collect();
        by_age.sort_unstable();
        assert!(by_age.into_iter().eq(view.full_blocks()));
        view.by_age().next().map_or(VictimChoice::Nothing, VictimChoice::Collect)
    }
}

/// Greedy, which needs full blocks in another order.
struct Emptiest;

impl VictimPolicy for Emptiest {
    fn choose(&self, view: &VictimView) -> VictimChoice {
        let least = view.full_blocks().map(|block| view.valid(block)).min();
        assert_eq!(view.least_valid().map(|block| view.valid(block)), least);
        view.least_valid().map_or(VictimChoice::Nothing, VictimChoice::Collect)
    }
}

#[test]
fn a_given_policy_decides_as_the_same_policy_by_name() {
    let (mut named, mut given) = (Device::new(&device("fifo")), Device::new(&device("greedy")));
    let decisions = Arc::new(AtomicU64::new(0));
    given.set_victim_policy(Box::new(Oldest(Arc::clone(&decisions)))).unwrap();
    assert_eq!(write(&mut named, 0).0, write(&mut given, 0).0);
    assert_eq!(named.counters(), given.counters());
    assert!(given.counters().gc_count > 10 && decisions.load(Ordering::Relaxed) >= given.counters().gc_count);
}

#[test]
fn a_device_with_data_is_put_into_the_order_that_the_policy_needs() {
    for before in ["greedy", "fifo"] {
        let mut device = Device::new(&device(before));
        write(&mut device, 0);
        let collected = device.counters().gc_count;
        device.set_victim_policy(Box::new(Oldest(Arc::default()))).unwrap();
        write(&mut device, 400);
        device.set_victim_policy(Box::new(Emptiest)).unwrap();
        write(&mut device, 800);
        assert!(device.counters().gc_count > collected + 20, "{before}");
    }
}

#[test]
fn devices_without_victims_refuse_a_policy() {
    let mut none = Device::new(&device("none"));
    let error = none.set_victim_policy(Box::new(Emptiest)).unwrap_err();
    assert!(error.to_string().contains("gc.policy is none"), "{error}");
    let blocks = [("gc.policy", "greedy"), ("capacity.over_provisioning_pct", "150"), ("mapping.scheme", "bast")];
    let mut config = config(&[("geometry.block_groups.0.blocks", "32")]);
    config.set_all(&blocks).unwrap();
    let error = Device::new(&config).set_victim_policy(Box::new(Emptiest)).unwrap_err();
    assert!(error.to_string().contains("maps blocks"), "{error}");
}
