//! Counts the events and packets that the kernel or Perfetto lost. Source: `ftrace_event_bundle.proto` (`lost_events`) and
//! `ftrace_stats.proto` of Perfetto.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::wire::WireFields;
use crate::Result;

/// Maximum number of a CPU; larger numbers are counted together.
const MOST_CPUS: u64 = 1 << 13;
/// Values of `FtraceStats.Phase`.
const START: u64 = 1;
const END: u64 = 2;

#[derive(Debug, Default)]
struct CpuLosses {
    /// Number of bundles before which an unknown number of events was lost.
    bundles: u64,
    /// The kernel's counters of lost events at the start and at the end.
    start: u64,
    end: u64,
}

/// Lost events by CPU, and dropped packets.
#[derive(Debug, Default)]
pub(super) struct EventLosses {
    cpus: BTreeMap<u64, CpuLosses>,
    /// Number of times that Perfetto dropped packets.
    packets: u64,
}

impl EventLosses {
    fn cpu(&mut self, number: u64) -> &mut CpuLosses {
        self.cpus.entry(number.min(MOST_CPUS)).or_default()
    }

    /// Notes that events of a CPU were lost before a bundle.
    pub(super) fn before_bundle(&mut self, cpu: u64) {
        self.cpu(cpu).bundles += 1;
    }

    /// Notes that a packet was dropped before one with events.
    pub(super) fn packet(&mut self) {
        self.packets += 1;
    }

    /// Reads an `FtraceStats`.
    pub(super) fn statistics(&mut self, message: &[u8]) -> Result<()> {
        let mut phase = 0;
        for field in WireFields::of(message) {
            match field? {
                (1, value) => phase = value.number(),
                (2, value) => {
                    let (mut cpu, mut lost) = (0, 0u64);
                    for part in WireFields::of(value.bytes()) {
                        match part? {
                            (1, value) => cpu = value.number(),
                            // overrun, commit_overrun, dropped_events
                            (3 | 4 | 8, value) => lost = lost.saturating_add(value.number()),
                            _ => {}
                        }
                    }
                    let cpu = self.cpu(cpu);
                    match phase {
                        START => cpu.start = lost,
                        END => cpu.end = lost,
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Number of lost events and dropped packets; an unknown number counts as one.
    pub(super) fn total(&self) -> u64 {
        self.cpus.values().map(CpuLosses::lost).fold(self.packets, u64::saturating_add)
    }

    /// The losses by CPU, as text; `None` if there are none.
    pub(super) fn note(&self) -> Option<String> {
        let mut out = String::new();
        for (number, cpu) in self.cpus.iter().filter(|(_, cpu)| cpu.lost() > 0) {
            let _ = write!(out, "{}CPU {number} lost {} events", separator(&out), cpu.lost());
        }
        if self.packets > 0 {
            let _ = write!(out, "{}Perfetto dropped {} packets or more", separator(&out), self.packets);
        }
        (!out.is_empty()).then_some(out)
    }
}

impl CpuLosses {
    fn lost(&self) -> u64 {
        self.end.saturating_sub(self.start).max(self.bundles)
    }
}

fn separator(before: &str) -> &'static str {
    if before.is_empty() { "" } else { "; " }
}
