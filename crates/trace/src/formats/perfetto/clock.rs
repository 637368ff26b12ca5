//! Clocks of a Perfetto trace. Ftrace events use the boot clock. Kernels before 4.10 do not support it for ftrace; their bundles state which
//! clock is used and contain a reading of both clocks. Source: `ftrace_event_bundle.proto`, `clock_snapshot.proto` of Perfetto.

use std::collections::BTreeMap;

use super::wire::WireFields;
use crate::{Error, ErrorClass, Nanos, Result};

/// Value of `FtraceClock` for the boot clock, which is also used if the value is missing.
const BOOT: u64 = 0;
const MONO_RAW: u64 = 4;
/// Values of `BuiltinClock`.
const SNAPSHOT_REALTIME: u64 = 1;
const SNAPSHOT_MONO_RAW: u64 = 5;
const SNAPSHOT_BOOT: u64 = 6;

/// Converts the times of all bundles to the boot clock. The shift of a clock is constant over the trace, because different shifts of
/// bundles would change response times.
#[derive(Debug, Default)]
pub(super) struct PerfettoClocks {
    /// Boot clock minus the clock of ftrace; `None` if that is the boot clock.
    shift: Option<i64>,
    /// Boot clock minus raw monotonic clock.
    raw_shift: Option<i64>,
    /// Unix time at time 0 of the boot clock.
    boot_at: Option<i64>,
}

impl PerfettoClocks {
    /// Parses a `ClockSnapshot`; only the first one of a trace is used.
    pub(super) fn snapshot(&mut self, message: &[u8]) -> Result<()> {
        let (mut real, mut raw, mut boot) = (None, None, None);
        for field in WireFields::of(message) {
            let (1, clock) = field? else { continue };
            let (mut id, mut time) = (0, 0);
            for part in WireFields::of(clock.bytes()) {
                match part? {
                    (1, value) => id = value.number(),
                    (2, value) => time = value.number() as i64,
                    _ => {}
                }
            }
            match id {
                SNAPSHOT_REALTIME => real = Some(time),
                SNAPSHOT_MONO_RAW => raw = Some(time),
                SNAPSHOT_BOOT => boot = Some(time),
                _ => {}
            }
        }
        let since = |clock: Option<i64>| boot.zip(clock).and_then(|(boot, clock)| boot.checked_sub(clock));
        self.raw_shift = self.raw_shift.or(since(raw));
        self.boot_at = self.boot_at.or(since(real).map(i64::wrapping_neg));
        Ok(())
    }

    /// Returns the difference, in ns, that converts the event times of a bundle from this clock to the boot clock. `ftrace` and `boot` are
    /// the times of the two clocks at the same moment.
    pub(super) fn shift(&mut self, clock: u64, ftrace: Option<i64>, boot: Option<i64>) -> i64 {
        if clock == BOOT {
            return 0;
        }
        let measured = boot.zip(ftrace).and_then(|(boot, ftrace)| boot.checked_sub(ftrace));
        let raw = self.raw_shift.filter(|_| clock == MONO_RAW);
        self.shift = self.shift.or(measured).or(raw);
        self.shift.unwrap_or(0)
    }

    pub(super) fn unix_at_zero(&self) -> Option<Nanos> {
        self.boot_at.map(Nanos)
    }
}

/// The time of an event plus `shift`.
#[inline]
pub(super) fn moved(time: u64, shift: i64) -> Result<u64> {
    let moved = i64::try_from(time).ok().and_then(|time| time.checked_add(shift)).and_then(|time| u64::try_from(time).ok());
    moved.ok_or_else(|| {
        Error::new(ErrorClass::Value, "the time of an event is before the boot of the machine, or out of range")
            .of_field("timestamp", 0, time.to_string().as_bytes())
            .hint("copy or record the file again: it is damaged")
    })
}

/// Maximum CPU number; larger ones are counted together.
const MOST_CPUS: u64 = 1 << 13;
/// Values of `FtraceStats.Phase`.
const START: u64 = 1;
const END: u64 = 2;

#[derive(Debug, Default)]
struct CpuLosses {
    /// Number of bundles (packets with events of a CPU) before which an unknown number of events was lost.
    bundles: u64,
    /// The kernel's counter of lost events at the start.
    start: u64,
    /// The kernel's counter of lost events at the end.
    end: u64,
}

/// Lost events of each CPU, and dropped packets.
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

    /// Records that events of a CPU were lost before a bundle.
    pub(super) fn before_bundle(&mut self, cpu: u64) {
        self.cpu(cpu).bundles += 1;
    }

    /// Counts a loss of packets directly before a packet with events.
    pub(super) fn packet(&mut self) {
        self.packets += 1;
    }

    /// Parses an `FtraceStats`.
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
                            // Three fields of the CPU statistics count lost events: 3 is `overrun`, 4 is `commit_overrun`, and 8 is
                            // `dropped_events`.
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

    /// The losses of each CPU as text; `None` if there are none.
    pub(super) fn note(&self) -> Option<String> {
        let cpus = self.cpus.iter().filter(|(_, cpu)| cpu.lost() > 0);
        let cpus = cpus.map(|(number, cpu)| format!("CPU {number} lost {} events", cpu.lost()));
        let packets = (self.packets > 0).then(|| format!("Perfetto dropped {} packets or more", self.packets));
        let parts: Vec<_> = cpus.chain(packets).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

impl CpuLosses {
    fn lost(&self) -> u64 {
        self.end.saturating_sub(self.start).max(self.bundles)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_shift_serves_a_whole_trace() {
        let mut clocks = PerfettoClocks::default();
        assert_eq!(clocks.shift(BOOT, Some(5), Some(9)), 0);
        assert_eq!(clocks.shift(2, Some(100), Some(1_100)), 1_000);
        assert_eq!(clocks.shift(2, Some(200), Some(1_207)), 1_000);
        assert_eq!(moved(50, 1_000).unwrap(), 1_050);
        assert!(moved(50, -51).is_err());
        assert!(moved(u64::MAX, 0).is_err());
    }
}
