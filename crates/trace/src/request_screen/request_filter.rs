//! Conditions that choose requests of a trace (`--only`).

use crate::duration::parse_duration;
use crate::{Error, ErrorClass, Nanos, Op, Result};

/// The option by which requests are chosen.
pub(super) const OPTION: &str = "--only";
const KEYS: [&str; 6] = ["device", "process", "pid", "op", "from", "to"];

/// Conditions on requests. A request must meet every condition, and meets a condition if it has one of its values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFilter {
    /// Names of devices with `*` and `?`; all if empty.
    pub(super) devices: Vec<String>,
    /// Names of processes with `*` and `?`; all if empty.
    pub(super) processes: Vec<String>,
    pub(super) pids: Vec<i32>,
    pub(super) ops: Vec<Op>,
    /// Arrivals from this time on, counted from the first arrival of the trace.
    pub(super) from: Nanos,
    /// Arrivals before this time.
    pub(super) to: Option<Nanos>,
}

impl RequestFilter {
    /// Parses texts such as `device=8,0,process=kworker/*|fio`. The conditions of all texts must hold. Several values of a key
    /// are joined with `|` or given one by one. A comma ends a value if a key follows.
    ///
    /// # Errors
    /// [`ErrorClass::Config`] at an unknown key, or an invalid value.
    pub fn parse(texts: &[String]) -> Result<Self> {
        let mut only = Self::default();
        let mut times = (None, None);
        for text in texts {
            for condition in conditions(text) {
                let (key, values) = condition.split_once('=').unwrap_or((condition, ""));
                if !KEYS.contains(&key) {
                    let keys = KEYS.join(", ");
                    let problem = Error::new(ErrorClass::Config, format!("there is no key `{key}`"));
                    return Err(problem
                        .of_field(OPTION, 0, text.as_bytes())
                        .hint(format!("use the keys {keys}, as `--only process=kworker/*,from=10s,to=2m30s`")));
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
                        let hint =
                            "give one time since the first arrival of the trace, for example 10s, 500ms or 2m30s";
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
            return Err(Error::new(ErrorClass::Config, format!("no time is at or after {from} and before {to}"))
                .of_field(OPTION, 0, texts.join(",").as_bytes())
                .hint("`from` must be before `to`; both are times since the first arrival of the trace"));
        }
        Ok(only)
    }
}

/// The conditions in a text: splits it at each comma that is followed by a word and `=`.
fn conditions(text: &str) -> Vec<&str> {
    let begins_one = |rest: &str| {
        let word = rest.trim_start_matches(|c: char| c.is_ascii_lowercase() || c == '_');
        word.len() < rest.len() && word.starts_with('=')
    };
    let mut found = Vec::new();
    let mut start = 0;
    for (comma, _) in text.match_indices(',') {
        if begins_one(&text[comma + 1..]) {
            found.push(&text[start..comma]);
            start = comma + 1;
        }
    }
    found.push(&text[start..]);
    found
}

/// Whether a name fits a pattern: `*` stands for any characters, `?` for one.
pub(super) fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // The latest star, and the first character after those that it matches so far.
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
