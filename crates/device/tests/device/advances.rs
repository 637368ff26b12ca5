//! The results of a device do not depend on how often it is advanced without commands.

use emmclab_base::{Nanos, Op};
use emmclab_device::checker::DeviceChecker;
use emmclab_device::{
    BlockErased, BlockRetired, CacheFlushed, CacheRead, DataMoved, Device, DeviceCommand, DeviceConfig, GcFinished, GcStarted,
    IdleCollected, IdleInterrupted, MapLookedUp, Observer, PageProgrammed, PageRead, PartOverwritten, RequestCompleted,
    UnitCached, UnitsTrimmed, UnplacedRead, UnwrittenUnits, WokeUp,
};
use proptest::prelude::*;

use crate::common::model::{Step, command, devices};

/// Every event as text.
#[derive(Default)]
struct Events(Vec<String>);

macro_rules! keep {
    ($($name:ident: $event:ty,)+) => {
        impl Observer for Events {
            $(fn $name(&mut self, event: &$event) {
                self.0.push(format!("{event:?}"));
            })+
        }
    };
}

keep! {
    request_completed: RequestCompleted,
    data_moved: DataMoved,
    page_read: PageRead,
    unplaced_read: UnplacedRead,
    page_programmed: PageProgrammed<'_>,
    block_erased: BlockErased,
    block_retired: BlockRetired,
    gc_started: GcStarted,
    gc_finished: GcFinished,
    idle_collected: IdleCollected,
    idle_interrupted: IdleInterrupted,
    trimmed: UnitsTrimmed,
    unit_cached: UnitCached,
    cache_read: CacheRead,
    cache_flushed: CacheFlushed,
    part_overwritten: PartOverwritten,
    unwritten_read: UnwrittenUnits,
    map_looked_up: MapLookedUp,
    woke_up: WokeUp,
}

/// Sends the same commands to two devices; the second one is advanced several times before each command.
fn compare(config: &DeviceConfig, steps: &[Step], looks: &[u16]) -> Result<(), TestCaseError> {
    let (mut once, mut often) = (Device::new(config), Device::new(config));
    let (mut expected, mut events) = (Events::default(), Events::default());
    let mut checker = DeviceChecker::of(&often);
    let mut now = 0;
    let mut looks = looks.iter().cycle();
    for step in steps {
        let before = now;
        let command = command(&once, &mut now, *step);
        let mut at = before;
        while at < now {
            at = (at + i64::from(*looks.next().unwrap()) * 50 + 1).min(now);
            often.advance(Nanos(at), &mut (&mut checker, &mut events));
        }
        checker.expect(&command);
        let done = often.submit(&command, &mut (&mut checker, &mut events)).unwrap();
        prop_assert_eq!(once.submit(&command, &mut expected).unwrap(), done);
        checker.verify(&often).map_err(|error| TestCaseError::fail(format!("{error} at {command:?}")))?;
        let same = events.0.iter().zip(&expected.0).take_while(|(a, b)| a == b).count();
        let (left, right) = (events.0.get(same), expected.0.get(same));
        prop_assert!(left == right, "{left:?} instead of {right:?} before {command:?}");
        if once.stop().is_some() {
            return Ok(());
        }
    }
    prop_assert_eq!(once.counters(), often.counters());
    prop_assert_eq!(once.load(), often.load());
    prop_assert_eq!(once.idle_from(), often.idle_from());
    prop_assert!(once.to_image() == often.to_image(), "the devices hold different things");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(500), ..ProptestConfig::default() })]

    #[test]
    fn any_series_of_advances_does_what_one_does(
        config in devices(2, false),
        steps in prop::collection::vec(any::<Step>(), 1..250),
        looks in prop::collection::vec(any::<u16>(), 1..20),
    ) {
        compare(&config, &steps, &looks)?;
    }
}

#[test]
fn an_idle_wait_is_not_restarted_by_a_look() {
    let mut config = DeviceConfig::preset("small-1gb").unwrap();
    let settings = [
        ("geometry.block_groups.0.blocks", "16"),
        ("geometry.block_groups.0.pages_per_block", "16"),
        ("capacity.over_provisioning_pct", "60"),
        ("gc.idle_after_us", "10000"),
        ("gc.high_watermark", "6"),
    ];
    config.set_all(&settings).unwrap();
    let collected = |tick_us: i64| {
        let mut device = Device::new(&config);
        let units = u64::from(device.geometry().logical_units);
        for write in 0..units * 3 {
            let at = Nanos(device.idle_from().0.max(0));
            let sector = (write * 7919 % units) * 8;
            device.submit(&DeviceCommand::new(at, Op::Write, sector, 8), &mut emmclab_device::NullObserver).unwrap();
        }
        assert_eq!(device.stop(), None);
        let from = device.idle_from().0;
        let before = device.counters().gc_idle_count;
        for tick in 1..=2_000_000 / tick_us {
            device.advance(Nanos(from + tick * tick_us * 1000), &mut emmclab_device::NullObserver);
        }
        device.counters().gc_idle_count - before
    };
    let at_once = collected(2_000_000);
    assert!(at_once > 2, "{at_once}");
    assert_eq!(collected(1_000), at_once);
}
