//! SD cards, and eMMCs with a command queue: the bus that tasks share, and the settings that a card does not have.

use emmclab_base::Op::{Read, Write};
use emmclab_device::DeviceConfig;
use proptest::prelude::*;

use crate::common::model::Step;
use crate::common::{command, config, run};
use crate::ufs::any_schedule::{check, drive, most_at_once};

const SD: [(&str, &str); 6] = [
    ("interface.kind", "sd"),
    ("features.reliable_write", "false"),
    ("features.barrier", "false"),
    ("features.packed_writes", "0"),
    ("features.packed_reads", "0"),
    ("controller.queue_depth", "1"),
];

fn sd(settings: &[(&str, &str)]) -> DeviceConfig {
    config(&[&SD, settings].concat())
}

#[test]
fn tasks_use_the_flash_at_once_and_the_bus_one_after_another() {
    // Two commands with their responses take 2 x 106 clocks of 208 MHz, 1,019 ns; 4 KB take 39,384 ns at 104 MB/s; a page read takes 100 us.
    // Without the queue, the second read begins after the first. With it, both are in the flash at once; the bus then carries, for each, the
    // two commands that begin the transfer, and the data.
    let reads = [command(0, Read, 0, 4), command(0, Read, 4, 4)];
    let times = |mode: &str, depth: &str| {
        let settings = [("geometry.channels", "2"), ("controller.bus_mode", mode), ("controller.queue_depth", depth)];
        run(&sd(&settings), &reads).1.iter().map(|event| event.complete.0).collect::<Vec<_>>()
    };
    assert_eq!(times("sdr104", "1"), [1_019 + 100_000 + 39_384, 2 * 140_403]);
    assert_eq!(times("sdr104", "32"), [1_019 + 100_000 + 1_019 + 39_384, 141_422 + 1_019 + 39_384]);
    // 2 x 106 clocks of 50 MHz take 4,240 ns, and 4 KB 163,840 ns at 25 MB/s and 81,920 ns at 50 MB/s.
    assert_eq!(times("sdr25", "1")[0], 4_240 + 100_000 + 163_840);
    assert_eq!(times("ddr50", "2"), [4_240 + 100_000 + 4_240 + 81_920, 190_400 + 4_240 + 81_920]);
    assert_eq!(times("sdr50", "1")[0], 2_120 + 100_000 + 81_920);
}

#[test]
fn the_tasks_of_an_emmc_with_a_command_queue_share_its_bus() {
    // 4 KB take 40 us. Without a queue, the second read begins after the first. With it, both are in the flash at once, and a write waits for the
    // data of both.
    let commands = [command(0, Read, 0, 4), command(0, Read, 4, 4), command(110, Write, 64, 4)];
    let times = |depth: &str| {
        let settings = [("geometry.channels", "2"), ("controller.host_us_per_kb", "10"), ("controller.queue_depth", depth)];
        run(&config(&settings), &commands[..2]).1.iter().map(|event| event.complete.0).collect::<Vec<_>>()
    };
    assert_eq!(times("1"), [140_000, 280_000]);
    assert_eq!(times("8"), [140_000, 180_000]);
    let settings = [("geometry.channels", "2"), ("controller.host_us_per_kb", "10"), ("controller.queue_depth", "8")];
    let (device, _) = run(&config(&settings), &commands);
    let [to_device, to_host] = device.counters().link;
    assert_eq!((to_device.wait_ns, to_host.wait_ns), (180_000 - 110_000, 140_000 - 100_000));
}

#[test]
fn a_write_waits_while_the_data_of_a_read_is_on_the_bus() {
    let settings = [("geometry.channels", "2"), ("controller.bus_mode", "sdr104"), ("controller.queue_depth", "32")];
    let (device, events) = run(&sd(&settings), &[command(0, Read, 0, 4), command(60, Write, 64, 64)]);
    assert_eq!(events[0].complete.0, 141_422);
    let [to_device, to_host] = device.counters().link;
    assert_eq!((to_device.wait_ns, to_host.wait_ns), (141_422 - 61_019, 0));
    assert_eq!(to_device.busy_ns, 1_019 + 630_153, "64 KB and two commands");
}

#[test]
fn a_card_refuses_what_the_standard_of_sd_does_not_have() {
    for (settings, parts) in [
        (&[("controller.queue_depth", "0")][..], ["`controller.queue_depth` is 0", "class A2"]),
        (&[("controller.queue_depth", "33")], ["`controller.queue_depth` is 33", "at most 32"]),
        (&[("controller.queue_depth", "2"), ("host.kernel", "linux_5.10")], ["`controller.queue_depth` is 2", "Raspberry Pi"]),
        (&[("controller.bus_mode", "hs400")], ["`controller.bus_mode` is \"hs400\", which an SD card", "sdr104"]),
        (&[("controller.reliable_write_us", "9")], ["`controller.reliable_write_us` is 9", "set it to 0"]),
        (&[("features.reliable_write", "true")], ["`features.reliable_write` is true, which an SD card", "set it to false"]),
        (&[("features.barrier", "true")], ["`features.barrier` is true", "set it to false"]),
        (&[("features.packed_writes", "8")], ["`features.packed_writes` is 8", "set it to 0"]),
        (&[("cache.size_kb", "64"), ("cache.policy", "fifo")], ["`cache.policy` is \"fifo\"", "lru"]),
        (&[("interface.lanes", "1")], ["`interface.lanes` is 1, which an SD card", "ufs"]),
    ] {
        let text = sd(&[]).set_all(settings).unwrap_err().to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{settings:?}: {text}");
    }
    let text = config(&[]).set_all(&[("controller.bus_mode", "sdr104")]).unwrap_err().to_string();
    assert!(text.contains("`controller.bus_mode` is \"sdr104\", which an eMMC does not have"), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(100), ..ProptestConfig::default() })]

    #[test]
    fn no_task_is_lost_the_bus_is_never_shared_and_without_a_queue_a_card_is_as_fast_as_an_emmc(
        depth in prop::sample::select(vec!["1", "2", "32"]),
        mode in prop::sample::select(vec!["given", "sdr25", "sdr104"]),
        channels in prop::sample::select(vec!["1", "4"]),
        cache in prop::sample::select(vec!["0", "64"]),
        steps in prop::collection::vec(any::<Step>().prop_map(|(gap, op, place, length)| (gap % 300, op, place, length)), 1..100),
    ) {
        let mut config = sd(&[
            ("controller.queue_depth", depth),
            ("controller.bus_mode", mode),
            ("controller.host_us_per_kb", if mode == "given" { "9.7" } else { "0" }),
            ("controller.read_overhead_us", "30"),
            ("cache.size_kb", cache),
            ("cache.policy", "lru"),
            ("geometry.channels", channels),
            ("geometry.block_groups.0.blocks", "24"),
            ("gc.policy", "greedy"),
            ("capacity.over_provisioning_pct", "250"),
        ]);
        let traffic = drive(&config, &steps)?;
        check(&config, &traffic)?;
        prop_assert!(most_at_once(traffic.transfers.iter().map(|transfer| (transfer.begin, transfer.end))) <= 1);
        if (depth, mode) == ("1", "given") {
            config.set("interface.kind", "emmc").unwrap();
            prop_assert_eq!(drive(&config, &steps)?.completed, traffic.completed);
        }
    }
}
