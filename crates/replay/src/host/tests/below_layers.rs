//! Tests that real data passes correctly through layers, queue, merging and packing: every sector reads back the last written data.

use std::collections::HashMap;
use std::io;

use emmclab_device::{CommandFlags, DeviceCommand, DeviceConfig};
use emmclab_layers::{DisksBelow, ImmediateStack, LayerConfig, SectorDisk, build_stack};
use emmclab_trace::{Nanos, Op};
use proptest::prelude::*;

use super::completed;
use crate::host::HostQueue;

const SECTOR: usize = 512;
const BELOW: DisksBelow = DisksBelow::new(4096, None);

/// A disk below the host queue. Data is transferred when the driver fetches a command, and only for the entries of this command.
struct QueueDisk {
    host: HostQueue,
    data: Vec<u8>,
    /// Data in transfer by request number: of waiting writes and of fetched reads.
    moving: HashMap<u64, Vec<u8>>,
    now: Nanos,
    /// Number of commands sent.
    sent: u64,
    /// Duration of a command. Requests arrive every 1 ns, so this is also the number of requests that arrive during a command.
    burst: Nanos,
}

impl QueueDisk {
    fn new(settings: &[(&str, &str)], burst: i64) -> Self {
        let mut config = DeviceConfig::preset("nexus5").unwrap();
        config.set("host.fetch_us", "0").unwrap();
        config.set_all(settings).unwrap();
        Self {
            host: HostQueue::new(config.settings()).unwrap(),
            data: vec![0; BELOW.main as usize * SECTOR],
            moving: HashMap::new(),
            now: Nanos::ZERO,
            sent: 0,
            burst: Nanos(burst),
        }
    }

    fn push(&mut self, op: Op, sector: u64, sectors: u32) -> u64 {
        self.now += Nanos(1);
        while self.host.ready_at().is_some_and(|at| at < self.now) {
            self.fetch();
        }
        self.host.push(&DeviceCommand::new(self.now, op, sector, sectors), &mut Vec::new())
    }

    fn fetch(&mut self) {
        let Some(at) = self.host.ready_at() else { return };
        let (mut commands, mut parts) = (Vec::new(), Vec::new());
        self.host.fetch(at, &mut commands);
        for command in commands {
            let whole = completed(&command, self.sent, at + self.burst);
            self.sent += 1;
            let mut sectors = 0;
            self.host.completed(&whole, &mut parts);
            for part in parts.drain(..) {
                sectors += part.sectors;
                assert!(part.sector >= command.sector && part.op == command.op);
                assert!(part.sector + u64::from(part.sectors) <= command.sector + u64::from(command.sectors));
                let inside = part.sector as usize * SECTOR..;
                let inside = &mut self.data[inside][..part.sectors as usize * SECTOR];
                match part.op {
                    Op::Write => inside.copy_from_slice(&self.moving.remove(&part.id).unwrap()),
                    Op::Read => drop(self.moving.insert(part.id, inside.to_vec())),
                    Op::Discard | Op::SecureErase => inside.fill(0xDD),
                    Op::Flush => {}
                }
            }
            assert_eq!(sectors, command.sectors, "the parts of a merged command are the command");
        }
    }

    fn drain(&mut self) {
        while self.host.ready_at().is_some() {
            self.fetch();
        }
    }
}

impl SectorDisk for QueueDisk {
    fn read(&mut self, sector: u64, buffer: &mut [u8]) -> io::Result<()> {
        let number = self.push(Op::Read, sector, (buffer.len() / SECTOR) as u32);
        self.drain();
        buffer.copy_from_slice(&self.moving.remove(&number).unwrap());
        Ok(())
    }

    fn write(&mut self, sector: u64, data: &[u8], _: CommandFlags) -> io::Result<()> {
        let number = self.push(Op::Write, sector, (data.len() / SECTOR) as u32);
        self.moving.insert(number, data.to_vec());
        Ok(())
    }

    fn discard(&mut self, sector: u64, sectors: u32, secure: bool) -> io::Result<()> {
        self.push(if secure { Op::SecureErase } else { Op::Discard }, sector, sectors);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.push(Op::Flush, 0, 0);
        self.drain();
        Ok(())
    }
}

fn stack(names: &[&str]) -> Vec<LayerConfig> {
    let layer = |name: &&str| match *name {
        "pass-through" => LayerConfig::named(name),
        name => LayerConfig::named(name).with("reserved", "256KB").with("clustered_block", "32KB"),
    };
    names.iter().map(layer).collect()
}

fn executor(names: &[&str], merge: &str, writes: &str, depth: &str, burst: i64) -> ImmediateStack<QueueDisk> {
    let settings = [
        ("host.merge_max_kb", merge),
        ("host.packed_writes", writes),
        ("host.packed_max_kb", "64"),
        ("controller.queue_depth", depth),
    ];
    let layers = build_stack(&stack(names), &BELOW).unwrap();
    ImmediateStack::start(layers, vec![QueueDisk::new(&settings, burst)], false).unwrap()
}

#[test]
fn what_a_layer_sends_is_merged_and_packed() {
    let mut executor = executor(&["pass-through"], "16", "8", "1", 100);
    for i in 0..40u64 {
        let place = i / 2 * 24 + i % 2 * 8;
        executor.submit(Op::Write, place, &mut vec![i as u8; 8 * SECTOR]).unwrap();
    }
    let disk = &mut executor.disks()[0];
    disk.drain();
    assert!(disk.host.counts.merged >= 18 && disk.host.counts.packs >= 2, "{:?}", disk.host.counts);
}

/// A request of the test: operation, address, length in sectors.
type Step = (u8, u16, u8);

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(150), ..ProptestConfig::default() })]

    #[test]
    fn every_sector_reads_back_what_was_last_written(
        names in prop::sample::select(vec![
            vec!["pass-through"], vec!["advil"], vec!["ressd"], vec!["advil", "pass-through"], vec!["ressd", "advil"],
        ]),
        merge in prop::sample::select(vec!["8", "16", "512"]),
        (writes, depth) in prop::sample::select(vec![("0", "1"), ("8", "1"), ("63", "1"), ("0", "4")]),
        burst in 0i64..40,
        steps in prop::collection::vec(any::<Step>(), 1..300),
    ) {
        let mut executor = executor(&names, merge, writes, depth, burst);
        let capacity = executor.layer(0).capacity();
        // The last written value of each sector; `None` for discarded sectors, whose contents are undefined.
        let mut model: Vec<Option<u8>> = vec![Some(0); capacity as usize];
        for (i, (op, place, length)) in steps.iter().enumerate() {
            let sectors = u64::from(length % 24 + 1);
            let sector = u64::from(place % 300) * 4 % (capacity - sectors);
            let range = sector as usize..(sector + sectors) as usize;
            let mut data = vec![i as u8; sectors as usize * SECTOR];
            match op {
                0..=170 => {
                    executor.submit(Op::Write, sector, &mut data).unwrap();
                    model[range].fill(Some(i as u8));
                }
                171..=220 => {
                    executor.submit(Op::Read, sector, &mut data).unwrap();
                    for (part, wanted) in data.chunks(SECTOR).zip(&model[range]) {
                        prop_assert!(wanted.is_none_or(|wanted| part == [wanted; SECTOR]));
                    }
                }
                221..=230 => {
                    executor.submit_bare(Op::Discard, sector, sectors as u32).unwrap();
                    model[range].fill(None);
                }
                231..=240 => executor.submit_bare(Op::Flush, 0, 0).unwrap(),
                _ => drop(executor.background(usize::from(*op) % names.len()).unwrap()),
            }
        }
    }
}
