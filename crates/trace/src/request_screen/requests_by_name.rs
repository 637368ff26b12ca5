//! Counts the requests of each device or process of a trace.

use crate::batch_rows::NO_NAME;
use crate::{Error, ErrorClass, NameTable};

/// Maximum number of names in a message.
const NAMED: usize = 12;

/// Numbers of requests by name, of devices or of processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestsByName {
    /// Number of requests, by id of the name.
    counts: Vec<u64>,
    /// Number of requests without a name.
    unnamed: u64,
}

impl RequestsByName {
    /// Counts the ids in a column, which is empty if no request has one.
    pub fn add(&mut self, column: &[u32], rows: usize) {
        let Some((&first, rest)) = column.split_first() else {
            self.unnamed += rows as u64;
            return;
        };
        // In most batches all are equal.
        if rest.iter().all(|id| *id == first) {
            self.count(first, rows as u64);
        } else {
            for id in column {
                self.count(*id, 1);
            }
        }
    }

    fn count(&mut self, id: u32, requests: u64) {
        if id == NO_NAME {
            self.unnamed += requests;
            return;
        }
        let id = id as usize;
        if id >= self.counts.len() {
            self.counts.resize(id + 1, 0);
        }
        self.counts[id] += requests;
    }

    /// Number of requests of the name with this id.
    pub fn of(&self, id: usize) -> u64 {
        self.counts.get(id).copied().unwrap_or(0)
    }

    /// Number of names that have requests.
    pub fn len(&self) -> usize {
        self.counts.iter().filter(|count| **count > 0).count()
    }

    /// Names with their numbers of requests, the largest number first.
    pub fn rows<'a>(&self, names: &'a NameTable) -> Vec<(&'a str, u64)> {
        let counts = self.counts.iter().copied();
        let mut rows: Vec<_> = names.iter().zip(counts).filter(|(_, count)| *count > 0).collect();
        rows.sort_by(|(a, x), (b, y)| y.cmp(x).then_with(|| a.cmp(b)));
        rows
    }

    /// The most frequent names with their shares of all requests, as text.
    pub fn words(&self, names: &NameTable) -> String {
        let all = self.counts.iter().sum::<u64>() + self.unnamed;
        let rows = self.rows(names);
        let mut words: Vec<_> =
            rows.iter().take(NAMED).map(|(name, count)| format!("{name} ({})", share(*count, all))).collect();
        if rows.len() > NAMED {
            words.push(format!("and {} more", rows.len() - NAMED));
        }
        if self.unnamed > 0 {
            words.push(format!("none recorded ({})", share(self.unnamed, all)));
        }
        words.join(", ")
    }
}

/// A share in percent; a small one that is not zero is `<0.1 %`.
fn share(count: u64, all: u64) -> String {
    let pct = 100.0 * count as f64 / all.max(1) as f64;
    if pct < 0.05 { "<0.1 %".to_owned() } else { format!("{pct:.1} %") }
}

/// The error for a trace of several devices if one is required.
pub(super) fn several_devices(devices: &RequestsByName, names: &NameTable) -> Error {
    let first = devices.rows(names).first().map_or("NAME", |(name, _)| *name).to_owned();
    let message = format!(
        "the trace holds requests to {} devices, each with its own address space: {}",
        devices.len(),
        devices.words(names)
    );
    Error::new(ErrorClass::Config, message)
        .hint(format!("choose one device of the trace, for example `--only device={first}`"))
}
