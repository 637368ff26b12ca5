//! Leaves out the requests that are not wanted (`--only`), and finds wanted values that no request has.

use std::collections::BTreeMap;

use super::request_filter::{OPTION, fits};
use super::requests_by_name::RequestsByName;
use crate::{Batch, Error, ErrorClass, NameId, NameTable, Nanos, Op, Request, RequestFilter, Result};

/// Maximum number of process ids that are counted, to list them if a wanted one is missing.
const MOST_PIDS: usize = 4096;

/// Chooses requests of one trace, and counts the values of all requests.
#[derive(Debug)]
pub(super) struct RequestSelection {
    devices: NameSelection,
    processes: NameSelection,
    only: RequestFilter,
    pids: BTreeMap<i32, u64>,
    ops: [u64; Op::ALL.len()],
    first: Option<Nanos>,
    last: Nanos,
    left_out: u64,
    selected: u64,
}

/// The names that are wanted, of devices or of processes.
#[derive(Debug)]
struct NameSelection {
    patterns: Vec<String>,
    /// Whether a name fits one of the patterns, by its id.
    fits: Vec<bool>,
    shares: RequestsByName,
}

impl NameSelection {
    fn new(patterns: &[String]) -> Self {
        Self { patterns: patterns.to_vec(), fits: Vec::new(), shares: RequestsByName::default() }
    }

    fn follow(&mut self, names: &NameTable) {
        let fits_one = |name: &str| self.patterns.iter().any(|pattern| fits(pattern, name));
        self.fits.extend(names.from(self.fits.len()).map(fits_one));
    }

    fn holds(&self, id: Option<NameId>) -> bool {
        self.patterns.is_empty() || id.is_some_and(|id| self.fits.get(id.0 as usize).copied().unwrap_or(false))
    }

    /// A pattern that fits no name of a request; `None` if all patterns fit one.
    fn unmet(&self, names: &NameTable) -> Option<&str> {
        let met =
            |pattern: &String| names.iter().enumerate().any(|(id, name)| self.shares.of(id) > 0 && fits(pattern, name));
        self.patterns.iter().find(|pattern| !met(pattern)).map(String::as_str)
    }
}

impl RequestSelection {
    /// `origin` is the first arrival of the whole trace, if this is a part of one.
    pub fn new(only: &RequestFilter, origin: Option<Nanos>) -> Self {
        Self {
            devices: NameSelection::new(&only.devices),
            processes: NameSelection::new(&only.processes),
            only: only.clone(),
            pids: BTreeMap::new(),
            ops: [0; Op::ALL.len()],
            first: origin,
            last: Nanos::ZERO,
            left_out: 0,
            selected: 0,
        }
    }

    /// Number of requests left out so far.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The batch of the wanted rows.
    pub fn choose(&mut self, batch: Batch) -> Batch {
        self.devices.follow(batch.devices());
        self.processes.follow(batch.processes());
        self.devices.shares.add(&batch.device, batch.len());
        self.processes.shares.add(&batch.process, batch.len());
        let mut wanted = Vec::with_capacity(batch.len());
        for (row, request) in batch.iter().enumerate() {
            self.count(&request);
            if self.wants(&request) {
                wanted.push(row);
            }
        }
        self.selected += wanted.len() as u64;
        self.left_out += (batch.len() - wanted.len()) as u64;
        batch.chosen(&wanted)
    }

    fn count(&mut self, request: &Request) {
        self.first.get_or_insert(request.arrival);
        self.last = request.arrival;
        self.ops[request.op as usize] += 1;
        if let Some(pid) = request.pid.filter(|_| !self.only.pids.is_empty()) {
            if let Some(count) = self.pids.get_mut(&pid) {
                *count += 1;
            } else if self.pids.len() < MOST_PIDS || self.only.pids.contains(&pid) {
                self.pids.insert(pid, 1);
            }
        }
    }

    fn wants(&self, request: &Request) -> bool {
        let only = &self.only;
        let at = Nanos(request.arrival.0.saturating_sub(self.first.unwrap_or_default().0));
        at >= only.from
            && only.to.is_none_or(|to| at < to)
            && (only.ops.is_empty() || only.ops.contains(&request.op))
            && (only.pids.is_empty() || request.pid.is_some_and(|pid| only.pids.contains(&pid)))
            && self.devices.holds(request.device)
            && self.processes.holds(request.process)
    }

    /// Checks at the end of the trace that each wanted value was found in a request, and that some request met all conditions.
    pub fn check(&self, processes: &NameTable, devices: &NameTable) -> Result<()> {
        if self.first.is_none() {
            // An empty trace is another error.
            return Ok(());
        }
        let unmet = |what: &str, value: &str, there: String| {
            let hint = if there.is_empty() {
                format!("the trace does not record the {what} of a request")
            } else {
                format!("there are: {there}")
            };
            Err(Error::new(ErrorClass::Config, format!("the trace holds no request of {what} `{value}`"))
                .of_field(OPTION, 0, format!("{what}={value}").as_bytes())
                .hint(hint))
        };
        for (what, wanted, names) in [("device", &self.devices, devices), ("process", &self.processes, processes)] {
            if let Some(pattern) = wanted.unmet(names) {
                let any = wanted.shares.len() > 0;
                return unmet(what, pattern, if any { wanted.shares.words(names) } else { String::new() });
            }
        }
        if let Some(pid) = self.only.pids.iter().find(|pid| !self.pids.contains_key(pid)) {
            let mut there: Vec<_> = self.pids.iter().collect();
            there.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            let shown: Vec<_> = there.iter().take(12).map(|(pid, _)| pid.to_string()).collect();
            let more = if there.len() > shown.len() { ", and more" } else { "" };
            return unmet("pid", &pid.to_string(), format!("{}{more}", shown.join(", ")));
        }
        if let Some(op) = self.only.ops.iter().find(|op| self.ops[**op as usize] == 0) {
            let there: Vec<_> = Op::ALL.into_iter().filter(|op| self.ops[*op as usize] > 0).map(Op::name).collect();
            return unmet("op", op.name(), there.join(", "));
        }
        let span = Nanos(self.last.0.saturating_sub(self.first.unwrap_or_default().0));
        if self.only.from > span {
            return Err(Error::new(
                ErrorClass::Config,
                format!("no request arrives {} after the first", self.only.from),
            )
            .of_field(OPTION, 0, b"from")
            .hint(format!("give an earlier time: the last request arrives {span} after the first")));
        }
        if self.selected == 0 {
            return Err(Error::new(ErrorClass::Config, "no request meets all conditions together")
                .of_field(OPTION, 0, b"")
                .hint("give fewer conditions, or a longer time; each condition alone is met"));
        }
        Ok(())
    }
}
