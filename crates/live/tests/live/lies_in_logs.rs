//! Logs of the simulated device are explored: an honest device keeps every promise, and each lie is detected as what it is.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;
use std::sync::{Arc, Mutex};

use emmclab_base::{Nanos, Op};
use emmclab_crash::log::{CommandPort, CrashLogHeader, CrashLogRecord, CrashLogWriter, DeviceFacts};
use emmclab_crash::{CrashLogIndex, DevicePromise, ExploreOptions, Explorer};
use emmclab_device::contract::ContractRules;
use emmclab_device::{CommandFlags, Device, DeviceCommand, DeviceConfig, NullObserver};
use emmclab_media::RawImage;
use emmclab_replay::{DeviceEventSink, LiveStack, StackDevice};
use emmclab_testing::SMALL_DEVICE;
use proptest::collection::vec;
use proptest::prelude::*;

struct Written(Arc<Mutex<CrashLogWriter>>);

impl Written {
    fn add(&self, record: &CrashLogRecord<'_>) {
        self.0.lock().unwrap().add(record).unwrap();
    }
}

impl DeviceEventSink for Written {
    fn command(&mut self, number: u64, command: &DeviceCommand, packed_after: u16, data: &[u8]) {
        self.add(&CrashLogRecord::of(CommandPort::Device, number, command, packed_after, data));
    }

    fn completed(&mut self, number: u64, at: Nanos) {
        self.add(&CrashLogRecord::Complete { port: CommandPort::Device, number, at });
    }

    fn programmed(&mut self, number: u64, (sector, sectors): (u64, u32), begin: Nanos, end: Nanos) {
        self.add(&CrashLogRecord::Programmed { number, sector, sectors, begin, end });
    }

    fn discarded(&mut self, number: u64, (sector, sectors): (u64, u64), at: Nanos) {
        self.add(&CrashLogRecord::Discarded { number, sector, sectors, at });
    }

    fn endangered(&mut self, (sector, sectors): (u64, u64), begin: Nanos, end: Nanos) {
        self.add(&CrashLogRecord::Endangered { sector, sectors, begin, end });
    }
}

#[derive(Clone, Copy, Debug)]
enum Ask {
    Write(u64, u32, CommandFlags),
    Flush,
    Barrier,
    Discard(u64, u32),
    SecureErase(u64, u32),
}

fn ask() -> impl Strategy<Value = Ask> {
    let flags = prop_oneof![
        4 => Just(CommandFlags::empty()),
        1 => Just(CommandFlags::RELIABLE),
        1 => Just(CommandFlags::FORCED),
    ];
    prop_oneof![
        6 => (0u64..40, 1u32..30, flags).prop_map(|(unit, sectors, flags)| Ask::Write(unit * 4, sectors, flags)),
        2 => Just(Ask::Flush),
        1 => Just(Ask::Barrier),
        1 => (0u64..20, 1u32..40).prop_map(|(unit, sectors)| Ask::Discard(unit * 8, sectors)),
    ]
}

/// Sends these requests to a device, one at a time or several at once, and returns its log.
fn logged(settings: &[(&str, &str)], asks: &[Ask], at_once: usize, path: &Path) -> Arc<CrashLogIndex> {
    let mut config = DeviceConfig::from_toml(SMALL_DEVICE).unwrap();
    config.set_all(settings).unwrap();
    let device = Device::new(&config);
    let rules = ContractRules::of(&device);
    let sectors = device.geometry().sectors();
    let lies = settings.iter().find(|(key, _)| *key == "cache.lies").map_or("none", |(_, lie)| *lie);
    let facts = DeviceFacts {
        name: config.name().to_owned(),
        sectors,
        write_through: rules.write_through,
        fifo: rules.fifo,
        interface: rules.interface,
        unit_sectors: rules.unit_sectors,
        lies: lies.to_owned(),
        ..DeviceFacts::default()
    };
    let header = CrashLogHeader { device: facts, sectors, cells: true, ..CrashLogHeader::default() };
    let log = Arc::new(Mutex::new(CrashLogWriter::create(path, &header).unwrap()));
    let image = RawImage::temporary(sectors).unwrap();
    let mut stack = LiveStack::new(&[], StackDevice { config: &config, device, image }, None, (false, false)).unwrap();
    stack.tap(Box::new(Written(log.clone())));
    let mut now = Nanos::ZERO;
    let mut answers = Vec::new();
    for group in asks.chunks(at_once) {
        for (i, ask) in group.iter().enumerate() {
            let (op, sector, sectors, modifiers) = match *ask {
                Ask::Write(sector, sectors, flags) => (Op::Write, sector, sectors, flags),
                Ask::Flush => (Op::Flush, 0, 0, CommandFlags::empty()),
                Ask::Barrier => (Op::Flush, 0, 0, CommandFlags::BARRIER),
                Ask::SecureErase(sector, sectors) => (Op::SecureErase, sector, sectors, CommandFlags::empty()),
                Ask::Discard(sector, sectors) => (Op::Discard, sector, sectors, CommandFlags::empty()),
            };
            let data = if op == Op::Write { vec![i as u8 + 1; sectors as usize * 512] } else { Vec::new() };
            let command = DeviceCommand { modifiers, ..DeviceCommand::new(now, op, sector, sectors) };
            stack.submit(&command, Vec::new(), data, &mut NullObserver).unwrap();
        }
        while stack.open() > 0 {
            now = stack.next_event().map_or(now, |at| at.max(now));
            stack.advance(now, &mut NullObserver).unwrap();
            stack.take_answers(now, &mut NullObserver, &mut answers).unwrap();
            now = answers.drain(..).map(|answer| answer.event.complete).fold(now, Nanos::max);
        }
    }
    log.lock().unwrap().finish().unwrap();
    Arc::new(CrashLogIndex::open(path).unwrap())
}

/// The promises that the states of the device break.
fn broken(run: &Arc<CrashLogIndex>) -> Vec<DevicePromise> {
    let ways = "device".parse().unwrap();
    let options = ExploreOptions { cuts: usize::MAX, ways, ..ExploreOptions::default() };
    let mut explorer = Explorer::new(run, &options).unwrap();
    let mut all = Vec::new();
    while let Some(state) = explorer.next_state() {
        all.extend(state.broken.iter().map(|broken| broken.promise));
    }
    all.sort_unstable();
    all.dedup();
    all
}

const CACHED: [(&str, &str); 2] = [("cache.size_kb", "64"), ("cache.write_back", "when_full")];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(emmclab_testing::cases(24)))]

    #[test]
    fn an_honest_device_keeps_every_promise_at_every_moment(
        asks in vec(ask(), 1..60),
        at_once in 1usize..6,
        policy in prop_oneof![Just("lru"), Just("fifo")],
        cached in any::<bool>(),
    ) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let settings = [CACHED[0], CACHED[1], ("cache.policy", policy)];
        let run = logged(if cached { &settings } else { &[] }, &asks, at_once, file.path());
        prop_assume!(!run.moments().is_empty());
        prop_assert_eq!(broken(&run), []);
    }
}

#[test]
fn each_lie_is_caught_as_the_promise_that_it_breaks() {
    let plain = CommandFlags::empty();
    let one = [Ask::Write(0, 8, plain), Ask::Flush, Ask::Write(8, 8, plain)];
    let fua = [Ask::Write(0, 8, CommandFlags::RELIABLE), Ask::Write(8, 8, plain)];
    let barrier = [Ask::Write(800, 8, plain), Ask::Barrier, Ask::Write(808, 8, CommandFlags::RELIABLE)];
    let early = [Ask::Flush, Ask::Write(0, 8, plain), Ask::Flush, Ask::Write(8, 8, plain)];
    let erased = [Ask::Write(0, 8, plain), Ask::Flush, Ask::SecureErase(0, 8), Ask::Write(8, 8, plain), Ask::Flush];
    let late = [Ask::Write(0, 8, plain), Ask::Discard(0, 8), Ask::Write(0, 8, plain), Ask::Flush, Ask::Write(8, 8, plain)];
    let paired: Vec<_> = (0..16).map(|write| Ask::Write(16 * write, 16, CommandFlags::RELIABLE)).collect();
    let cases: [(&str, &[Ask], DevicePromise); 10] = [
        ("paired_pages", &paired, DevicePromise::Paired),
        ("late_trim", &late, DevicePromise::Flush),
        ("early_flush", &early, DevicePromise::Flush),
        ("reorder", &one, DevicePromise::Flush),
        ("recent", &one, DevicePromise::Flush),
        ("trim", &erased, DevicePromise::Erased),
        ("flush", &one, DevicePromise::Flush),
        ("fua", &fua, DevicePromise::Fua),
        ("tear", &fua, DevicePromise::Whole),
        ("barrier", &barrier, DevicePromise::Order),
    ];
    for (lie, asks, promise) in cases {
        let file = tempfile::NamedTempFile::new().unwrap();
        let honest = [&CACHED[..], &[("cache.policy", "lru")]].concat();
        assert_eq!(broken(&logged(&honest, asks, 1, file.path())), [], "{lie}");
        let liar = [&honest[..], &[("cache.lies", lie)]].concat();
        assert!(broken(&logged(&liar, asks, 1, file.path())).contains(&promise), "{lie}");
    }
}
