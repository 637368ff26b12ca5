//! Out-of-order completion with any commands: no command is lost or executed twice, every read returns the latest data, and tags, queues
//! and link are never used beyond their capacity.

use emmclab_base::{Nanos, Op};
use emmclab_device::checker::DeviceChecker;
use emmclab_device::{
    CommandFetched, Device, DeviceConfig, LinkTransfer, NullObserver, Observer, RequestCompleted, TransferDirection,
};
use proptest::prelude::*;

use super::ufs;
use crate::common::model::{Step, command};

/// All events of the link and the queues.
#[derive(Default)]
pub struct Traffic {
    pub completed: Vec<RequestCompleted>,
    taken: Vec<CommandFetched>,
    pub transfers: Vec<LinkTransfer>,
}

impl Observer for Traffic {
    fn request_completed(&mut self, event: &RequestCompleted) {
        self.completed.push(*event);
    }

    fn command_taken(&mut self, event: &CommandFetched) {
        self.taken.push(*event);
    }

    fn link_transfer(&mut self, event: &LinkTransfer) {
        self.transfers.push(*event);
    }
}

/// The maximum number of intervals that contain the same time.
pub fn most_at_once(spans: impl Iterator<Item = (Nanos, Nanos)>) -> usize {
    let mut moments: Vec<_> =
        spans.filter(|(begin, end)| begin < end).flat_map(|(begin, end)| [(begin, 1i32), (end, -1)]).collect();
    moments.sort_unstable();
    let at_once = moments.iter().scan(0, |open, (_, change)| {
        *open += change;
        Some(*open)
    });
    at_once.max().unwrap_or(0) as usize
}

pub fn drive(config: &DeviceConfig, steps: &[Step]) -> Result<Traffic, TestCaseError> {
    let mut device = Device::new(config);
    let (mut checker, mut traffic, mut now) = (DeviceChecker::of(&device), Traffic::default(), 0);
    let mut commands = Vec::new();
    for step in steps {
        let command = command(&device, &mut now, *step);
        checker.expect(&command);
        device.submit(&command, &mut (&mut checker, &mut traffic)).unwrap();
        checker.verify(&device).map_err(|error| TestCaseError::fail(format!("{error} at {command:?}")))?;
        if device.stop().is_some() {
            return Ok(Traffic::default());
        }
        commands.push(command);
    }
    device.settle(&mut (&mut checker, &mut traffic));
    let mut ended = device.clone();
    ended.power_off(&mut NullObserver);
    let image = ended.to_image();
    let copy = Device::from_image(config, &image).map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert_eq!(copy.to_image(), image);
    let ids: Vec<_> = traffic.completed.iter().map(|event| event.id).collect();
    prop_assert_eq!(ids, (0..commands.len() as u64).collect::<Vec<_>>(), "each once");
    for (event, command) in traffic.completed.iter().zip(&commands) {
        prop_assert_eq!((event.op, event.sector, event.sectors), (command.op, command.sector, command.sectors));
        prop_assert!(event.complete >= event.start && event.start >= command.arrival, "{event:?}");
        prop_assert_eq!(event.waits.total(), event.complete - event.arrival, "{:?}", event);
    }
    Ok(traffic)
}

/// Checks the traffic of a run against the rules of queues and link.
pub fn check(config: &DeviceConfig, traffic: &Traffic) -> Result<(), TestCaseError> {
    let tags = config.settings().controller.queue_depth as usize;
    let in_flight = most_at_once(traffic.completed.iter().map(|event| (event.start, event.complete)));
    prop_assert!(in_flight <= tags, "{in_flight} commands in flight with {tags} tags");
    prop_assert!(traffic.taken.iter().all(|taken| (1..=tags).contains(&(taken.in_flight as usize))));
    for queue in 0..config.settings().interface.queues.max(1) {
        let own = traffic.taken.iter().filter(|taken| taken.queue == queue);
        prop_assert!(most_at_once(own.map(|taken| (taken.begin, taken.end))) <= 1, "queue {queue}");
    }
    for (direction, op) in [(TransferDirection::ToDevice, Op::Write), (TransferDirection::ToHost, Op::Read)] {
        let own = || traffic.transfers.iter().filter(|transfer| transfer.direction == direction);
        prop_assert!(own().all(|transfer| transfer.begin >= transfer.ready));
        prop_assert!(most_at_once(own().map(|transfer| (transfer.begin, transfer.end))) <= 1, "{direction:?}");
        let sectors = |op: Op| traffic.completed.iter().filter(move |event| event.op == op).map(|event| event.sectors);
        let (mut sent, mut asked): (Vec<_>, Vec<_>) = (own().map(|transfer| transfer.sectors).collect(), sectors(op).collect());
        sent.sort_unstable();
        asked.sort_unstable();
        prop_assert_eq!(sent, asked, "{:?}: the data of every command once", direction);
    }
    Ok(())
}

fn is_out_of_order(traffic: &Traffic) -> bool {
    !traffic.completed.is_sorted_by_key(|event| event.complete)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(400), ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_or_done_twice_and_tags_and_link_are_never_overcommitted(
        (queues, tags) in prop::sample::select(vec![("0", "1"), ("0", "2"), ("0", "32"), ("3", "5"), ("8", "64")]),
        scheduling in prop::sample::select(vec!["fifo", "read_first"]),
        (cache, write_back) in prop::sample::select(vec![("0", "eager"), ("16", "eager"), ("64", "when_full")]),
        (channels, gear) in prop::sample::select(vec![("1", "hs_g1"), ("2", "hs_g3"), ("4", "hs_g1"), ("4", "hs_g5")]),
        scheme in prop::sample::select(vec!["page", "page", "page", "dftl", "tpftl", "leaftl", "rqftl"]),
        (booster, preserve) in prop::sample::select(vec![("off", "false"), ("cache", "false"), ("cache", "true")]),
        (flush, at) in prop::sample::select(vec![("gap", "100"), ("gap", "60"), ("event", "60")]),
        (partial, keep) in prop::sample::select(vec![("none", "0"), ("none", "0"), ("fifo", "40"), ("lru", "40"), ("pinned", "60")]),
        (size, resize, life) in prop::sample::select(vec![("100", "off", "0"), ("100", "off", "60"), ("60", "off", "0"), ("80", "hint", "0")]),
        (sleep, wake, stages) in prop::sample::select(vec![
            ("0", "0", "[]"), ("900", "300", "[]"), ("0", "0", "[{after_us=90, wake_us=30}, {after_us=900, wake_us=300}]"),
        ]),
        steps in prop::collection::vec(any::<Step>().prop_map(|(gap, op, place, length)| (gap % 300, op, place, length)), 1..200),
    ) {
        let plain = scheme == "page";
        let reorders = plain && cache == "0";
        let boosted = plain && booster == "cache";
        let mut config = ufs(&[
            ("interface.queues", queues),
            ("interface.gear", gear),
            ("interface.command_us", "4"),
            ("controller.queue_depth", tags),
            ("controller.scheduling", if reorders { scheduling } else { "fifo" }),
            ("mapping.scheme", scheme),
            ("cache.size_kb", if plain { cache } else { "0" }),
            ("cache.write_back", write_back),
            ("geometry.channels", channels),
            ("geometry.block_groups.0.blocks", "24"),
            ("power.sleep_after_us", sleep),
            ("power.wake_us", wake),
            ("power.stages", stages),
            ("gc.policy", "greedy"),
            ("capacity.over_provisioning_pct", "250"),
        ]);
        if boosted {
            let flush = match (flush, if stages == "[]" { sleep } else { stages }) {
                ("event", _) => ("slc.flush", "event"),
                (_, "0") => ("slc.fold_after_us", "500"),
                _ => ("slc.flush", "hibernate"),
            };
            let booster = [("slc.mode", "cache"), ("slc.blocks", "5"), ("slc.max_kb", "64"), flush,
                ("slc.preserve_user_space", preserve), ("geometry.block_groups.0.cell_mode", "mlc")];
            let mut all = booster.to_vec();
            all.extend([("slc.flush_at_pct", at), ("slc.life_limit_pct", life), ("slc.erase_limit", "6")]);
            if partial != "pinned" || preserve == "true" {
                all.extend([("slc.partial_flush", partial), ("slc.keep_pct", keep)]);
                all.extend((partial == "pinned").then_some(("slc.pinned_to_mb", "1")));
            }
            if preserve == "true" {
                all.extend([("slc.size_pct", size), ("slc.resize", resize)]);
            }
            if life == "0" {
                all.retain(|(key, _)| *key != "slc.erase_limit");
            }
            config.set_all(&all).unwrap();
        }
        let traffic = drive(&config, &steps)?;
        check(&config, &traffic)?;
    }
}

#[test]
fn commands_do_complete_out_of_order_in_these_runs() {
    let steps: Vec<Step> = (0..200u16).map(|i| (3, (i * 37 % 256) as u8, i.wrapping_mul(9973), i * 7)).collect();
    for scheduling in ["fifo", "read_first"] {
        let config = ufs(&[
            ("controller.scheduling", scheduling),
            ("geometry.channels", "4"),
            ("geometry.block_groups.0.blocks", "24"),
            ("gc.policy", "greedy"),
            ("capacity.over_provisioning_pct", "250"),
        ]);
        let traffic = drive(&config, &steps).unwrap();
        check(&config, &traffic).unwrap();
        assert!(is_out_of_order(&traffic), "{scheduling}");
        let in_flight = traffic.taken.iter().map(|taken| taken.in_flight).max().unwrap();
        assert!(in_flight > 8, "{in_flight}");
    }
}
