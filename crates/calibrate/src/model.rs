//! Service time of a single request on an idle device, in closed form, because the search evaluates it thousands of
//! times. A test compares it with the simulated device.

use emmclab_trace::Op;

/// The discrete parameters: the search enumerates them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceShape {
    /// Page sizes in KB, largest first.
    pub page_kb: Vec<u32>,
    /// Flash ways that work in parallel.
    pub units: u32,
}

/// The continuous parameters, all in us.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceTiming {
    /// Fixed time of a read.
    pub read_overhead: f64,
    /// Fixed time of a write.
    pub write_overhead: f64,
    /// Time of a KB between host and device.
    pub host_per_kb: f64,
    /// Array time of a page read, by page size.
    pub read: Vec<f64>,
    /// Array time of a page program, by page size.
    pub program: Vec<f64>,
}

/// Upper bound on the flash ways of a shape.
pub(crate) const MOST_UNITS: usize = 4;

impl DeviceTiming {
    /// Time from start to completion, us.
    pub fn service_us(&self, shape: &DeviceShape, op: Op, kb: f64) -> f64 {
        let mut left = (kb / 4.0).ceil() as u32 * 4;
        // Per way: the time at which its programs end, which decides the placement of pages, and its busy time of this request.
        let mut placed = [0.0f64; MOST_UNITS];
        let mut busy = [0.0f64; MOST_UNITS];
        let units = shape.units as usize;
        let mut next = 0;
        while left > 0 {
            let fits = shape.page_kb.iter().position(|page| *page <= left);
            let page = fits.unwrap_or(shape.page_kb.len() - 1);
            let mut unit = next;
            for turn in 1..units {
                let other = (next + turn) % units;
                if placed[other] < placed[unit] {
                    unit = other;
                }
            }
            next = (unit + 1) % units;
            placed[unit] += self.program[page].max(f64::MIN_POSITIVE);
            busy[unit] += if op == Op::Read { self.read[page] } else { self.program[page] };
            left = left.saturating_sub(shape.page_kb[page]);
        }
        let overhead = if op == Op::Read { self.read_overhead } else { self.write_overhead };
        overhead + self.host_per_kb * kb + busy.iter().copied().fold(0.0, f64::max)
    }

    /// Every parameter, for the search.
    pub(crate) fn values(&mut self) -> impl Iterator<Item = &mut f64> {
        [&mut self.read_overhead, &mut self.write_overhead, &mut self.host_per_kb]
            .into_iter()
            .chain(&mut self.read)
            .chain(&mut self.program)
    }

    /// Name, unit and value of every parameter, in the order of [`DeviceTiming::values`]. Without `reads` those of reads have no value, and without
    /// `link` the time between host and device.
    pub(crate) fn named_values(
        &self,
        shape: &DeviceShape,
        reads: bool,
        link: bool,
    ) -> Vec<(String, &'static str, Option<f64>)> {
        let mut out = vec![
            ("read_overhead_us".to_owned(), "us", reads.then_some(self.read_overhead)),
            ("write_overhead_us".to_owned(), "us", Some(self.write_overhead)),
            ("host_us_per_kb".to_owned(), "us/KB", link.then_some(self.host_per_kb)),
        ];
        for (what, values, measured) in [("read", &self.read, reads), ("program", &self.program, true)] {
            for (kb, value) in shape.page_kb.iter().zip(values) {
                out.push((format!("{what}_us of {kb} KB pages"), "us", measured.then_some(*value)));
            }
        }
        out
    }
}
