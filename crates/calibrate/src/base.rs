//! Times of single requests on a base device, from which a recording takes what it does not determine: interface, flash and policies.

use std::collections::BTreeMap;

use emmclab_device::{CommandFlags, Device, DeviceCommand, DeviceConfig, NullObserver};
use emmclab_trace::{Nanos, Op, Result};

use crate::model::{DeviceShape, DeviceTiming};
use crate::samples::SampleGroup;

/// Settings of the base that do not count towards the times of its requests: a fit replaces them.
const FITTED: [(&str, &str); 8] = [
    ("controller.scheduling", "fifo"),
    ("controller.read_overhead_us", "0"),
    ("controller.write_overhead_us", "0"),
    ("controller.reliable_write_us", "0"),
    ("controller.read_stalls", "[]"),
    ("controller.write_stalls", "[]"),
    ("interface.fua_us", "0"),
    ("host.fetch_us", "0"),
];
/// Distance of the requests that are tried, in sectors.
const APART: u64 = 1 << 14;

/// The times of single requests on an idle and awake base device, without the fixed times of commands.
#[derive(Clone, Debug)]
pub(crate) struct BaseTimes {
    shape: DeviceShape,
    overhead_us: [f64; 2],
    plain_us: BTreeMap<(Op, u32), f64>,
    /// Times of durable writes by size in sectors.
    fua_us: BTreeMap<u32, f64>,
}

impl BaseTimes {
    /// Simulates a request of each kind, given by operation and size in sectors, and a durable write of each size of `fua`.
    /// Errors: if the base cannot execute one, for example because it has zones.
    pub fn of(base: &DeviceConfig, kinds: impl Iterator<Item = (Op, u32)>, fua: impl Iterator<Item = u32>) -> Result<Self> {
        let settings = base.settings();
        let (controller, geometry) = (&settings.controller, &settings.geometry);
        let mut page_kb: Vec<u32> = settings.block_groups().iter().map(|group| group.page_kb).collect();
        page_kb.sort_unstable_by(|a, b| b.cmp(a));
        page_kb.dedup();
        let units = geometry.channels * geometry.chips_per_channel * geometry.dies_per_chip;
        let mut bare = base.clone();
        bare.set_all(&FITTED)?;
        let mut device = Device::new(&bare);
        let mut sector = 0;
        let mut time_us = |op, sectors: u32, modifiers| {
            // A request that arrives when the one before is complete finds the device idle, and awake.
            let arrival = Nanos(device.idle_from().0.max(0));
            if sector + u64::from(sectors) > device.geometry().sectors() {
                sector = 0;
            }
            let command = DeviceCommand { modifiers, ..DeviceCommand::new(arrival, op, sector, sectors) };
            sector += APART.max(u64::from(sectors).next_multiple_of(APART));
            let complete = device.submit(&command, &mut NullObserver)?.unwrap_or(arrival);
            Ok((complete - arrival).0 as f64 / 1e3)
        };
        let mut plain_us = BTreeMap::new();
        for (op, sectors) in kinds {
            plain_us.insert((op, sectors), time_us(op, sectors, CommandFlags::empty())?);
        }
        let mut fua_us = BTreeMap::new();
        for sectors in fua {
            fua_us.insert(sectors, time_us(Op::Write, sectors, CommandFlags::RELIABLE)?);
        }
        let overhead_us = [controller.read_overhead_us, controller.write_overhead_us];
        Ok(Self { shape: DeviceShape { page_kb, units }, overhead_us, plain_us, fua_us })
    }

    /// Page sizes and number of dies of the base.
    pub fn shape(&self) -> &DeviceShape {
        &self.shape
    }

    /// Predicted time of a request, in us.
    pub fn service_us(&self, timing: &DeviceTiming, op: Op, sectors: u32) -> f64 {
        let overhead = if op == Op::Read { timing.read_overhead } else { timing.write_overhead };
        overhead + self.plain_us.get(&(op, sectors)).copied().unwrap_or(0.0)
    }

    /// Predicted time of a durable write without the additional time of its durability, in us.
    pub fn durable_us(&self, timing: &DeviceTiming, sectors: u32) -> f64 {
        timing.write_overhead + self.fua_us.get(&sectors).copied().unwrap_or(0.0)
    }

    /// Fits the fixed times of reads and writes; an operation without requests has those of the base.
    pub fn timing(&self, groups: &[SampleGroup]) -> DeviceTiming {
        let [read_overhead, write_overhead] =
            [(Op::Read, self.overhead_us[0]), (Op::Write, self.overhead_us[1])].map(|(op, base)| self.overhead(op, base, groups));
        DeviceTiming { read_overhead, write_overhead, host_per_kb: 0.0, read: Vec::new(), program: Vec::new() }
    }

    /// The fixed time, in us, with the smallest error over the sizes of an operation among those that meet the median of a size.
    fn overhead(&self, op: Op, base: f64, groups: &[SampleGroup]) -> f64 {
        let of_op: Vec<(&SampleGroup, f64)> = groups
            .iter()
            .filter(|group| group.op == op)
            .filter_map(|group| Some((group, *self.plain_us.get(&(op, group.sectors))?)))
            .collect();
        let error = |overhead: f64| -> f64 {
            let errors = of_op
                .iter()
                .map(|(group, us)| (group.count as f64).sqrt() * ((overhead + us).max(1e-3) / group.median_us).ln().abs());
            errors.sum()
        };
        let candidates = of_op.iter().map(|(group, us)| (group.median_us - us).max(0.0));
        candidates.min_by(|a, b| error(*a).total_cmp(&error(*b))).unwrap_or(base)
    }
}
