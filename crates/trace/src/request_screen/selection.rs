//! Selects requests (`--only`), and detects selected values, such as process names, that occur in no request.

use std::collections::BTreeMap;

use crate::{Batch, Error, ErrorClass, NameId, NameTable, Nanos, Op, Request, Result, batch::NO_NAME, duration::parse_duration};

/// Maximum number of process ids that are counted, to list them if a selected one is missing.
const MOST_PIDS: usize = 4096;

/// Selects requests of a trace. Also counts the devices, processes and operations of all requests, to detect selected values that do not
/// occur.
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

/// The selected names of devices or processes.
#[derive(Debug)]
struct NameSelection {
    patterns: Vec<String>,
    /// For each name id, whether the name matches one of the patterns.
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

    /// A selected pattern that matches no name in the requests; `None` if every pattern matches a name.
    fn unmet(&self, names: &NameTable) -> Option<&str> {
        let met = |pattern: &String| names.iter().enumerate().any(|(id, name)| self.shares.of(id) > 0 && fits(pattern, name));
        self.patterns.iter().find(|pattern| !met(pattern)).map(String::as_str)
    }
}

impl RequestSelection {
    /// Creates a selection with the conditions `only`. If only a part of the trace is read, `origin` is the first arrival of the whole
    /// trace.
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

    /// Number of requests that were not selected so far.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The batch with the selected rows.
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

    /// At the end of the trace, checks that each selected value occurred in a request, and that some request satisfied all conditions.
    pub fn check(&self, processes: &NameTable, devices: &NameTable) -> Result<()> {
        if self.first.is_none() {
            // A trace without requests is reported by another error.
            return Ok(());
        }
        let unmet = |what: &str, value: &str, there: String| {
            let hint = if there.is_empty() {
                format!("the trace does not record the {what} of a request")
            } else {
                format!("the trace contains: {there}")
            };
            Err(Error::new(ErrorClass::Config, format!("the trace contains no request of {what} `{value}`"))
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
            return Err(Error::new(ErrorClass::Config, format!("no request arrives {} or more after the first", self.only.from))
                .of_field(OPTION, 0, b"from")
                .hint(format!("give an earlier time: the last request arrives {span} after the first")));
        }
        if self.selected == 0 {
            return Err(Error::new(ErrorClass::Config, "no request satisfies all conditions together")
                .of_field(OPTION, 0, b"")
                .hint("use fewer conditions or a longer range of times; each condition alone matches some requests"));
        }
        Ok(())
    }
}

/// The name of the command-line option that contains the conditions.
pub(super) const OPTION: &str = "--only";
const KEYS: [&str; 6] = ["device", "process", "pid", "op", "from", "to"];

/// Conditions on requests. A request must satisfy all conditions; it satisfies a condition if it has one of its values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFilter {
    /// Patterns for names of devices, with `*` and `?`; empty for all devices.
    pub(super) devices: Vec<String>,
    /// Patterns for names of processes, with `*` and `?`; empty for all processes.
    pub(super) processes: Vec<String>,
    pub(super) pids: Vec<i32>,
    pub(super) ops: Vec<Op>,
    /// Earliest selected arrival, relative to the first arrival of the trace.
    pub(super) from: Nanos,
    /// Selects arrivals before this time, relative to the first arrival.
    pub(super) to: Option<Nanos>,
}

impl RequestFilter {
    /// Parses texts such as `device=8,0,process=kworker/*|fio`. The conditions of all texts must be satisfied. Several values of
    /// a key are separated by `|` or given one by one. A comma ends a value if a key follows. Fails with [`ErrorClass::Config`]
    /// at an unknown key or an invalid value.
    pub fn parse(texts: &[String]) -> Result<Self> {
        let mut only = Self::default();
        let mut times = (None, None);
        for text in texts {
            for condition in conditions(text) {
                let (key, values) = condition.split_once('=').unwrap_or((condition, ""));
                if !KEYS.contains(&key) {
                    let keys = KEYS.join(", ");
                    let problem = Error::new(ErrorClass::Config, format!("`--only` has no key `{key}`"));
                    return Err(problem
                        .of_field(OPTION, 0, text.as_bytes())
                        .hint(format!("use the keys {keys}, for example `--only process=kworker/*,from=10s,to=2m30s`")));
                }
                let wrong = |hint: &str| {
                    let problem = Error::new(ErrorClass::Config, format!("`{values}` cannot be a value of `{key}`"));
                    problem.of_field(OPTION, 0, text.as_bytes()).hint(hint)
                };
                if values.split('|').any(str::is_empty) {
                    return Err(wrong("write KEY=VALUE, several values as KEY=A|B"));
                }
                match key {
                    "device" => only.devices.extend(values.split('|').map(str::to_owned)),
                    "process" => only.processes.extend(values.split('|').map(str::to_owned)),
                    "pid" => {
                        for value in values.split('|') {
                            only.pids.push(value.parse().map_err(|_| wrong("a process id is a whole number"))?);
                        }
                    }
                    "op" => {
                        for value in values.split('|') {
                            let op = Op::ALL.into_iter().find(|op| op.name() == value);
                            let names = Op::ALL.map(Op::name).join(", ");
                            only.ops.push(op.ok_or_else(|| wrong(&format!("operations are {names}")))?);
                        }
                    }
                    _ => {
                        let hint = "give one time since the first arrival of the trace, for example 10s, 500ms or 2m30s";
                        let slot = if key == "from" { &mut times.0 } else { &mut times.1 };
                        if slot.replace(parse_duration(values).ok_or_else(|| wrong(hint))?).is_some() {
                            return Err(wrong(hint));
                        }
                    }
                }
            }
        }
        (only.from, only.to) = (times.0.unwrap_or(Nanos::ZERO), times.1);
        if let Some(to) = only.to.filter(|to| *to <= only.from) {
            let from = only.from;
            return Err(Error::new(ErrorClass::Config, format!("the range from {from} to {to} is empty"))
                .of_field(OPTION, 0, texts.join(",").as_bytes())
                .hint("`from` must be before `to`; both are times since the first arrival of the trace"));
        }
        Ok(only)
    }
}

/// The conditions in a text, which is split at each comma that is followed by a word and `=`.
fn conditions(text: &str) -> Vec<&str> {
    let begins_one = |rest: &str| {
        let word = rest.trim_start_matches(|c: char| c.is_ascii_lowercase() || c == '_');
        word.len() < rest.len() && word.starts_with('=')
    };
    let mut parts = Vec::new();
    let mut start = 0;
    for (comma, _) in text.match_indices(',') {
        if begins_one(&text[comma + 1..]) {
            parts.push(&text[start..comma]);
            start = comma + 1;
        }
    }
    parts.push(&text[start..]);
    parts
}

/// Whether a name matches a pattern: `*` stands for any characters, `?` for one character.
pub(super) fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Position of the latest star in the pattern, and the end of its match in the name.
    let mut star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((at, behind)) = star else { return false };
                star = Some((at, behind + 1));
                p = at + 1;
                n = behind + 1;
            }
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Maximum number of names in a message.
const NAMED: usize = 12;

/// Number of requests of each name of a device or process.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestsByName {
    /// Number of requests by name id.
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
        // In most batches all ids are equal.
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

    /// Number of requests with the name that has this id.
    pub fn of(&self, id: usize) -> u64 {
        self.counts.get(id).copied().unwrap_or(0)
    }

    /// Number of names that have requests.
    pub fn len(&self) -> usize {
        self.counts.iter().filter(|count| **count > 0).count()
    }

    /// Names with the number of their requests, largest number first.
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
        let mut words: Vec<_> = rows.iter().take(NAMED).map(|(name, count)| format!("{name} ({})", share(*count, all))).collect();
        if rows.len() > NAMED {
            words.push(format!("and {} more", rows.len() - NAMED));
        }
        if self.unnamed > 0 {
            words.push(format!("none recorded ({})", share(self.unnamed, all)));
        }
        words.join(", ")
    }
}

/// A share in percent; a share below 0.05 % is printed as `<0.1 %`.
fn share(count: u64, all: u64) -> String {
    let pct = 100.0 * count as f64 / all.max(1) as f64;
    if pct < 0.05 { "<0.1 %".to_owned() } else { format!("{pct:.1} %") }
}

/// The error for a trace with several devices if one is required.
pub(super) fn several_devices(devices: &RequestsByName, names: &NameTable) -> Error {
    let first = devices.rows(names).first().map_or("NAME", |(name, _)| *name).to_owned();
    let message = format!(
        "the trace contains requests to {} devices, each with its own address space: {}",
        devices.len(),
        devices.words(names)
    );
    Error::new(ErrorClass::Config, message).hint(format!("choose one device of the trace, for example `--only device={first}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<RequestFilter> {
        RequestFilter::parse(&[text.to_owned()])
    }

    #[test]
    fn a_comma_ends_a_value_only_where_a_key_follows() {
        let only = parse("device=8,0|259,0,process=kworker/*,op=read|write,pid=1|2,from=10s,to=2m30s").unwrap();
        assert_eq!((only.devices, only.processes), (vec!["8,0".into(), "259,0".into()], vec!["kworker/*".into()]));
        assert_eq!((only.pids, only.ops), (vec![1, 2], vec![Op::Read, Op::Write]));
        assert_eq!((only.from, only.to), (Nanos(10_000_000_000), Some(Nanos(150_000_000_000))));
        let several = ["process=a", "process=b,c", "op=flush"].map(str::to_owned);
        let only = RequestFilter::parse(&several).unwrap();
        assert_eq!((only.processes, only.ops), (vec!["a".into(), "b,c".into()], vec![Op::Flush]));
    }

    #[test]
    fn an_unknown_key_or_an_impossible_value_is_an_error_that_says_what_there_is() {
        for (text, hint) in [
            ("proces=fio", "device, process, pid"),
            ("device=a,proces=b", "device, process, pid"),
            ("fio", "device, process, pid"),
            ("", "device, process, pid"),
            ("process=", "KEY=VALUE"),
            ("process=a||b", "KEY=VALUE"),
            ("pid=one", "whole number"),
            ("op=trim", "discard"),
            ("from=soon", "2m30s"),
            ("from=1s|2s", "2m30s"),
            ("from=1s,from=2s", "2m30s"),
            ("from=10s,to=5s", "before `to`"),
            ("from=10s,to=10s", "before `to`"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorClass::Config, "{text}");
            assert!(error.hint_text().unwrap().contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn stars_and_question_marks_stand_for_characters() {
        for (pattern, name, expected) in [
            ("kworker/*", "kworker/u17:1", true),
            ("kworker/*", "kworker", false),
            ("*", "", true),
            ("*:*", "kworker/u17:1", true),
            ("*ab", "aab", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("sd?", "sda", true),
            ("sd?", "sd", false),
            ("[fio]", "[fio]", true),
            ("f*", "Fio", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }
}
