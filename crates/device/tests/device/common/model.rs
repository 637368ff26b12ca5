//! Random page-mapped devices, and random requests against the reference model.

use std::fmt::Write;

use emmclab_base::{Nanos, Op};
use emmclab_device::checker::DeviceChecker;
use emmclab_device::gc::{NONE, POLICIES};
use emmclab_device::{CommandFlags, Device, DeviceCommand, DeviceConfig, Observer, RequestCompleted, StopReason};
use proptest::prelude::*;

/// Over-provisioning with which each plane has enough blocks for all open blocks, and at most a third of its blocks contain data.
pub const ROOMY_PCT: f64 = 250.0;

/// Time step in us, operation, and address and length as shares of the device; lengths are in sectors.
pub type Step = (u16, u8, u16, u16);

pub fn command(device: &Device, now: &mut i64, (gap, op, place, length): Step) -> DeviceCommand {
    let geometry = device.geometry();
    let sectors = u64::from(geometry.logical_units) * u64::from(geometry.unit_sectors);
    *now += i64::from(gap) * 1000;
    let op = match op {
        0..=159 => Op::Write,
        160..=219 => Op::Read,
        220..=247 => Op::Discard,
        _ => Op::Flush,
    };
    // Half of the requests are aligned to 4 KB.
    let (align, most) = if length % 2 == 0 { (8, 64) } else { (1, 41) };
    let length = u64::from(length) % most / align * align;
    let length = length.max(align).min(sectors);
    let sector = u64::from(place) * sectors / 65536 / align * align;
    let sector = sector.min(sectors - length);
    let modifiers = match (op, place % 16) {
        (Op::Write, 0) => CommandFlags::RELIABLE,
        (Op::Write, 1) => CommandFlags::FORCED,
        (Op::Write, 2) => CommandFlags::PREFLUSH | CommandFlags::RELIABLE,
        (Op::Write, 3) => CommandFlags::PREFLUSH,
        (Op::Flush, 0..=7) => CommandFlags::BARRIER,
        _ => CommandFlags::empty(),
    };
    let length = if op == Op::Flush { 0 } else { length as u32 };
    DeviceCommand { modifiers, ..DeviceCommand::new(Nanos(*now), op, sector, length) }
}

/// Collects completions, but does not need units of pages, so that the device may use its fast paths.
#[derive(Default, PartialEq, Debug)]
struct Completions(Vec<RequestCompleted>);

impl Observer for Completions {
    const UNITS: bool = false;

    fn request_completed(&mut self, event: &RequestCompleted) {
        self.0.push(*event);
    }
}

/// Whether a scheme stores its map on the flash.
pub fn on_demand(scheme: &str) -> bool {
    ON_DEMAND.contains(&scheme)
}

/// The schemes that store their map on the flash.
pub const ON_DEMAND: &[&str] = &["dftl", "tpftl", "leaftl", "rqftl"];

/// Settings with which such a scheme caches few entries, or with which another one has four log blocks.
pub fn little_memory(scheme: &str) -> [(&str, &str); 2] {
    let own = match scheme {
        "dftl" => ("mapping.cached_entries", "5"),
        _ if on_demand(scheme) => ("mapping.map_cache_kb", "4"),
        _ => ("mapping.log_blocks", "4"),
    };
    [("mapping.scheme", scheme), own]
}

/// The section of a device with these numbers of channels, chips, dies and planes.
pub fn geometry([channels, chips, dies, planes]: [u32; 4]) -> String {
    format!(
        "[geometry]
         channels = {channels}
         chips_per_channel = {chips}
         dies_per_chip = {dies}
         planes_per_die = {planes}\n"
    )
}

/// The section of a block group. Its blocks endure `limit` erases if that is more than 20, and any number otherwise.
pub fn block_group(page_kb: u32, blocks: u32, pages: u32, limit: u32) -> String {
    let limit = if limit > 20 { limit } else { 0 };
    format!(
        "[[geometry.block_groups]]
         page_kb = {page_kb}
         blocks = {blocks}
         pages_per_block = {pages}
         read_us = 100
         program_us = 1000
         erase_us = 3000
         erase_limit = {limit}
         spare_blocks = {}\n",
        u32::from(limit > 0),
    )
}

/// All values of a setting that has a list of them, the default first.
pub fn names(section: &str, key: &str) -> Vec<String> {
    let schema = emmclab_device::json_schema();
    let words = schema["$defs"][section]["properties"][key]["oneOf"].as_array().unwrap();
    words.iter().map(|word| word["const"].as_str().unwrap().to_owned()).collect()
}

/// Executes random steps on a new device, and verifies it after each. Repeats this on a copy from an image. A second device without a
/// checker must behave the same.
pub fn drive(config: &DeviceConfig, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut device = Device::new(config);
    let mut checker = DeviceChecker::of(&device);
    let (mut unchecked, mut told, mut completed) = (Device::new(config), Completions::default(), Completions::default());
    let mut now = 0;
    for step in steps {
        let command = command(&device, &mut now, *step);
        checker.expect(&command);
        let done = device.submit(&command, &mut (&mut checker, &mut told));
        prop_assert!(done.is_ok());
        prop_assert_eq!(unchecked.submit(&command, &mut completed).ok(), done.ok());
        checker.verify(&device).map_err(|error| TestCaseError::fail(format!("{error} at {command:?}")))?;
        if let Some(stop) = device.stop() {
            // Garbage collection always finds space on a device that is mostly empty, because settings with which block-mapped schemes
            // could run out of blocks were rejected.
            let settings = config.settings();
            let roomy = settings.capacity.over_provisioning_pct >= ROOMY_PCT
                || (settings.mapping.scheme != "page" && !on_demand(&settings.mapping.scheme));
            let wears = device.geometry().groups[0].erase_limit > 0;
            let collects = settings.gc.policy != "none";
            prop_assert!(stop == StopReason::Full || wears, "worn out without wear");
            prop_assert!(!(roomy && collects) || wears, "full with room to spare");
            return Ok(());
        }
    }
    let mut both = (&mut checker, &mut told);
    prop_assert_eq!(unchecked.settle(&mut completed), device.settle(&mut both));
    device.power_off(&mut both);
    unchecked.power_off(&mut completed);
    if device.stop().is_some() {
        return Ok(());
    }
    checker.verify(&device).map_err(|error| TestCaseError::fail(error.to_string()))?;
    let image = device.to_image();
    prop_assert_eq!(completed, told);
    prop_assert_eq!(unchecked.counters(), device.counters());
    prop_assert_eq!(unchecked.load(), device.load());
    prop_assert!(unchecked.to_image() == image, "the devices hold different things");
    let mut copy = Device::from_image(config, &image).map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert_eq!(&copy.to_image(), &image);
    let mut checker = DeviceChecker::of(&copy);
    copy.rewind();
    now = 0;
    for step in steps.iter().take(50) {
        let command = command(&copy, &mut now, *step);
        checker.expect(&command);
        prop_assert!(copy.submit(&command, &mut checker).is_ok());
        checker.verify(&copy).map_err(|error| TestCaseError::fail(format!("after an image: {error}")))?;
    }
    Ok(())
}

fn collects(policy: &str) -> bool {
    policy != NONE
}

/// All choices, or only the first one if `plain`, with which requests use the fast paths.
fn choice(plain: bool, choices: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(if plain { &choices[..1] } else { choices })
}

/// A random device with at most this number of channels, chips, dies and planes each.
pub fn devices(most: u32, plain: bool) -> impl Strategy<Value = DeviceConfig> {
    let shape = prop::array::uniform4(1..=most);
    let groups = prop::collection::vec((prop::sample::select(vec![4u32, 8, 16]), 6u32..=9, 2u32..=9), 1..=3);
    let policy = prop::sample::select(POLICIES.iter().map(|policy| policy.kind.name).chain([NONE]).collect::<Vec<_>>());
    let words = (
        prop::sample::select(vec!["none", "interleave", "multi_plane", "both"]),
        prop::sample::select(vec!["programmed", "transferred"]),
        choice(plain, &["fifo", "read_first"]),
        prop::sample::select(if plain { vec!["dynamic".to_owned()] } else { names("AllocationSettings", "policy") }),
        prop::sample::select(vec!["none", "dynamic", "static"]),
        choice(plain, &["blocking", "incremental"]),
        prop::sample::select(vec!["0", "2", "12"]),
    );
    let numbers = (
        prop::sample::select(vec![4u32, 8]),
        0u32..=1,
        0..=u32::from(!plain),
        prop_oneof![5u32..=60, Just(ROOMY_PCT as u32)],
        0u32..=30,
        0u32..=2,
    );
    let cache = (
        prop::sample::select(if plain { vec![0] } else { vec![0u32, 0, 16, 40, 200] }),
        prop::sample::select(if plain { vec![0] } else { vec![0u32, 0, 16, 64] }),
        prop::sample::select(vec!["fifo", "lru", "block_lru"]),
        prop::sample::select(vec!["eager", "idle", "when_full"]),
        any::<bool>(),
        0u32..=2,
        choice(plain, &["off", "off", "region", "cache"]),
        0u32..=1,
    );
    (shape, groups, policy, words, numbers, any::<[bool; 7]>(), cache).prop_map(
        |(shape, groups, policy, words, numbers, flags, cache)| {
            let (cache_kb, read_kb, replace, write_back, hpi, urgent, slc, fold) = cache;
            let slc = if collects(policy) { slc } else { "off" };
            let (parallelism, complete, scheduling, allocation, levelling, mode, reads) = words;
            let (unit_kb, bus, idle, share, limit, hot) = numbers;
            let [same_offset, copy_back, cache_read, cache_program, retries, typed, suspends] = flags;
            let groups_planes = parallelism == "multi_plane" || same_offset && parallelism == "both";
            let collects = collects(policy);
            let mut text = format!(
                "name = 'random'
                 {}
                 [capacity]
                 over_provisioning_pct = {share}
                 [timing]
                 parallelism = '{parallelism}'
                 same_offset = {}
                 copy_back = {copy_back}
                 cache_read = {cache_read}
                 cache_program = {}
                 command_ns = {}
                 bus_ns_per_byte = {}
                 write_complete = '{complete}'
                 {}
                 [controller]
                 scheduling = '{scheduling}'
                 [mapping]
                 unit_kb = {unit_kb}
                 [allocation]
                 policy = '{allocation}'
                 hot_max_kb = {}
                 [gc]
                 policy = '{policy}'
                 mode = '{mode}'
                 high_watermark = 3
                 low_watermark = 1
                 {}
                 idle_after_us = {}
                 hpi = {}
                 hpi_us = {}
                 urgent_free_blocks = {}
                 [wear]
                 levelling = '{}'
                 threshold = 3\n",
                geometry(shape),
                same_offset && (parallelism == "multi_plane" || parallelism == "both"),
                cache_program && complete == "programmed",
                bus * 100,
                bus * 5,
                if suspends && !groups_planes { "suspend_limit = 2\nsuspend_us = 70\nresume_us = 30" } else { "" },
                hot * 4,
                match policy {
                    "d_choices" => "choices = 3",
                    "windowed_greedy" => "window = 2",
                    _ => "",
                },
                if collects { idle * 500 } else { 0 },
                hpi || !collects || idle == 0,
                if collects && idle > 0 && hpi { 50 } else { 0 },
                if collects { urgent } else { 0 },
                if collects || levelling != "static" { levelling } else { "none" },
            );
            if scheduling == "fifo" {
                let _ = write!(
                    text,
                    "[cache]
                     size_kb = {cache_kb}
                     policy = '{replace}'
                     read_kb = {read_kb}
                     write_back = '{write_back}'
                     idle_after_us = {}\n",
                    if cache_kb > 0 && write_back == "idle" { 400 } else { 0 },
                );
            }
            if slc != "off" {
                let _ = write!(
                    text,
                    "[slc]
                     mode = '{slc}'
                     blocks = 5
                     fold_after_us = {}\n",
                    if slc == "cache" { fold * 300 } else { 0 },
                );
            }
            for (index, (page_kb, blocks, pages)) in groups.into_iter().enumerate() {
                let blocks = if slc != "off" && index == 0 { blocks + 5 } else { blocks };
                // Blocks in SLC mode have half of the pages, and collection needs two pages.
                let pages = if slc == "off" { pages } else { pages + 2 };
                text += &block_group(page_kb.max(unit_kb), blocks, pages, limit);
                if collects {
                    let _ = writeln!(text, "read_disturb_limit = {reads}\nrefresh_days = {reads}e-6");
                }
                if retries {
                    text +=
                        "retry_us = 40\nretries = [{ steps = 0.5 }, { days = 0.00005, steps = 2 }, { erases = 3, steps = 3 }]\n";
                }
            }
            if typed {
                text =
                    text.replace("read_us = 100", "page_types = [{read_us=90, program_us=400}, {read_us=120, program_us=1600}]");
                text = text.replace("program_us = 1000\n", "\n");
            }
            DeviceConfig::from_toml(&text).unwrap()
        },
    )
}
