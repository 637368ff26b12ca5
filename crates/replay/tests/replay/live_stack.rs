//! A live stack is compared with a plain array: every read returns the previous write, and a power cut loses no data that was acknowledged
//! as durable, with every layer and device.

use emmclab_device::{CommandFlags, Device, DeviceCommand, DeviceConfig, NullObserver};
use emmclab_layers::LayerConfig;
use emmclab_media::RawImage;
use emmclab_replay::{LiveCompletion, LiveStack, StackDevice};
use emmclab_testing::SMALL_DEVICE;
use emmclab_trace::{Nanos, Op, SECTOR_BYTES};
use proptest::prelude::*;

const SECTOR: usize = SECTOR_BYTES as usize;
/// Number of sectors for requests, which is small so that they overlap.
const SPAN: u64 = 320;

fn config(settings: &[(&str, &str)]) -> DeviceConfig {
    let mut config = DeviceConfig::from_toml(SMALL_DEVICE).unwrap();
    config.set_all(settings).unwrap();
    config
}

fn devices() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    prop::sample::select(vec![
        vec![],
        vec![("controller.scheduling", "read_first")],
        vec![("controller.queue_depth", "1")],
        vec![("cache.size_kb", "64"), ("cache.write_back", "when_full")],
        vec![("cache.size_kb", "32"), ("cache.policy", "lru"), ("cache.flush_us", "100")],
        vec![("timing.write_complete", "transferred"), ("timing.bus_ns_per_byte", "5")],
    ])
}

/// Advil or ReSSD with a small reserved area, whose data is recovered after a cut.
fn recovering(name: &str) -> LayerConfig {
    let small = LayerConfig::named(name).with("recovery", "true").with("reserved", "512 KB").with("clustered_block", "32 KB");
    if name == "advil" { small.with("clustered_page", "16 KB") } else { small }
}

fn stacks() -> impl Strategy<Value = Vec<LayerConfig>> {
    prop::sample::select(vec![
        vec![],
        vec![recovering("advil")],
        vec![recovering("ressd")],
        vec![LayerConfig::named("pass-through"), recovering("advil")],
    ])
}

fn stamp(version: u64) -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    if version > 0 {
        for (i, word) in sector.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&(version * 1_000_003 + i as u64).to_le_bytes());
        }
    }
    sector
}

/// The version in a sector; `None` if the sector is not intact.
fn version(sector: &[u8]) -> Option<u64> {
    let first = u64::from_le_bytes(sector[..8].try_into().unwrap());
    let version = first / 1_000_003;
    (sector == stamp(version)).then_some(version)
}

/// The host's knowledge of a sector.
#[derive(Clone, Default)]
struct Known {
    /// Newest version that was sent.
    newest: u64,
    /// Newest version that is complete.
    complete: u64,
    /// Oldest version that is permitted after a cut.
    promised: u64,
}

/// A request in flight.
struct Sent {
    /// The versions that the request must read, or the version that it writes.
    versions: Vec<u64>,
    /// For a request that flushes: the version of each sector that was complete when it was sent.
    flushes: Vec<u64>,
}

struct Host {
    stack: LiveStack,
    sectors: Vec<Known>,
    sent: std::collections::HashMap<u64, Sent>,
    answers: Vec<LiveCompletion>,
}

impl Host {
    fn collect(&mut self, now: Nanos) -> Result<(), TestCaseError> {
        let mut answers = std::mem::take(&mut self.answers);
        self.stack.advance(now, &mut NullObserver).unwrap();
        self.stack.take_answers(now, &mut NullObserver, &mut answers).unwrap();
        self.stack.land(now).unwrap();
        for LiveCompletion { id, command, event, data, failed } in answers.drain(..) {
            prop_assert!(!failed, "{command:?} failed");
            prop_assert!((command.arrival..=now).contains(&event.complete), "{event:?} of {command:?} by {now:?}");
            let Sent { versions, flushes } = self.sent.remove(&id).unwrap();
            for (known, flushed) in self.sectors.iter_mut().zip(flushes) {
                known.promised = known.promised.max(flushed);
            }
            let range = command.sector as usize..(command.sector + u64::from(command.sectors)) as usize;
            match command.op {
                Op::Read => {
                    let found: Vec<_> = data.chunks(SECTOR).map(version).collect();
                    let wanted: Vec<_> = versions.iter().copied().map(Some).collect();
                    prop_assert_eq!(found, wanted, "read of {:?}", range);
                }
                Op::Write => {
                    for known in &mut self.sectors[range] {
                        known.complete = known.complete.max(versions[0]);
                        if command.modifiers.durable() {
                            known.promised = known.promised.max(versions[0]);
                        }
                    }
                }
                Op::Flush | Op::Discard | Op::SecureErase => {}
            }
        }
        self.answers = answers;
        Ok(())
    }

    fn send(&mut self, command: DeviceCommand, version: u64) {
        let range = command.sector as usize..(command.sector + u64::from(command.sectors)) as usize;
        let (versions, data) = match command.op {
            Op::Read => (self.sectors[range].iter().map(|known| known.newest).collect(), Vec::new()),
            Op::Write => {
                let count = range.len();
                self.sectors[range].iter_mut().for_each(|known| known.newest = version);
                (vec![version], stamp(version).repeat(count))
            }
            _ => (Vec::new(), Vec::new()),
        };
        let id = self.stack.submit(&command, Vec::new(), data, &mut NullObserver).unwrap();
        let flushes = command.op == Op::Flush || command.modifiers.contains(CommandFlags::PREFLUSH);
        let flushes = self.sectors.iter().filter(|_| flushes).map(|known| known.complete).collect();
        self.sent.insert(id, Sent { versions, flushes });
    }

    /// Reads all sectors when all requests are complete.
    fn read_back(&mut self, now: &mut Nanos) -> Result<Vec<Option<u64>>, TestCaseError> {
        let command = DeviceCommand::new(*now, Op::Read, 0, SPAN as u32);
        let id = self.stack.submit(&command, Vec::new(), Vec::new(), &mut NullObserver).unwrap();
        let mut answers = Vec::new();
        while answers.is_empty() {
            *now = self.stack.next_event().unwrap().max(*now);
            self.stack.advance(*now, &mut NullObserver).unwrap();
            self.stack.take_answers(*now, &mut NullObserver, &mut answers).unwrap();
        }
        prop_assert_eq!((answers.len(), answers[0].id), (1, id));
        Ok(answers[0].data.chunks(SECTOR).map(version).collect())
    }

    fn settle(&mut self, now: &mut Nanos) -> Result<(), TestCaseError> {
        while self.stack.open() > 0 {
            *now = self.stack.next_event().unwrap().max(*now);
            self.collect(*now)?;
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(400), ..ProptestConfig::default() })]

    #[test]
    fn data_is_right_at_any_depth_and_what_was_acknowledged_survives_cuts(
        settings in devices(),
        layers in stacks(),
        // Gap in us, address, length in sectors, kind of command, and the time in us until the power cut.
        steps in prop::collection::vec(
            (0u16..3000, any::<u16>(), 0u8..48, any::<u8>(), prop::option::weighted(0.06, 0u16..9000)), 1..120),
    ) {
        let config = config(&settings);
        let device = Device::new(&config);
        let image = RawImage::temporary(device.geometry().sectors()).unwrap();
        let main = StackDevice { config: &config, device, image };
        let stack = LiveStack::new(&layers, main, None, (true, false)).unwrap();
        let mut host = Host {
            stack,
            sectors: vec![Known::default(); SPAN as usize],
            sent: std::collections::HashMap::new(),
            answers: Vec::new(),
        };
        let (mut now, mut next) = (Nanos::ZERO, 0);
        for (gap, place, length, kind, cut) in steps {
            now += Nanos::from_micros(i64::from(gap));
            host.collect(now)?;
            let length = u64::from(length) + 1;
            let sector = u64::from(place) % (SPAN - length + 1);
            let (op, modifiers) = match kind {
                0..=130 => (Op::Write, CommandFlags::empty()),
                131..=160 => (Op::Write, CommandFlags::RELIABLE),
                161..=175 => (Op::Write, CommandFlags::PREFLUSH),
                176..=185 => (Op::Write, CommandFlags::PREFLUSH | CommandFlags::RELIABLE),
                186..=220 => (Op::Read, CommandFlags::empty()),
                _ => (Op::Flush, CommandFlags::empty()),
            };
            let (sector, length) = if op == Op::Flush { (0, 0) } else { (sector, length as u32) };
            next += 1;
            host.send(DeviceCommand { modifiers, ..DeviceCommand::new(now, op, sector, length) }, next);
            let Some(later) = cut else { continue };
            now += Nanos::from_micros(i64::from(later));
            host.collect(now)?;
            host.stack.cut(now).unwrap();
            host.sent.clear();
            let found = host.read_back(&mut now)?;
            for (sector, (found, known)) in found.into_iter().zip(&mut host.sectors).enumerate() {
                let whole = found.is_some_and(|found| found >= known.promised && found <= known.newest);
                prop_assert!(whole, "sector {} holds {:?}; promised {}", sector, found, known.promised);
                let found = found.unwrap_or(0);
                // The version that was read may still be in a log; a second cut does not lose it.
                *known = Known { newest: found, complete: found, promised: known.promised };
            }
        }
        host.settle(&mut now)?;
        let found = host.read_back(&mut now)?;
        for (found, known) in found.into_iter().zip(&host.sectors) {
            prop_assert_eq!(found, Some(known.newest));
        }
        host.stack.power_off(now, &mut NullObserver).unwrap();
    }
}
