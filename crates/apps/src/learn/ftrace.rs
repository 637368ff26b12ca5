//! Parses system call events of ftrace as text: `events/syscalls` in `trace` or `trace_pipe`, and `trace-cmd report`. Strings are recorded
//! as addresses, so paths are unknown.

use rustc_hash::FxHashMap;

use super::call::{Argument, Call};
use super::clock::seconds;

/// The kinds of lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A call that has returned.
    Call(Call),
    /// The begin of a call, a comment, or another event.
    Other,
    /// Not a line of ftrace.
    Unreadable,
}

/// Parses lines in order.
#[derive(Debug, Default)]
pub(super) struct Ftrace {
    begun: FxHashMap<u32, Call>,
}

impl Ftrace {
    /// Parses a line.
    pub fn line(&mut self, text: &str) -> Line {
        if text.starts_with('#') || text.starts_with("cpus=") || text.trim().is_empty() {
            return Line::Other;
        }
        let Some((thread, at, event)) = parts(text) else { return Line::Unreadable };
        if let Some((name, result)) = event.split_once(" -> ") {
            let Some(name) = call_name(name) else { return Line::Other };
            let Some(mut call) = self.begun.remove(&thread).filter(|call| call.name == name) else {
                return Line::Other;
            };
            let Some(result) = Argument::Word(result.trim().to_owned()).number() else {
                return Line::Unreadable;
            };
            (call.ended, call.result) = (at.max(call.begun), result);
            return Line::Call(call);
        }
        let Some((name, arguments)) = event.split_once('(') else { return Line::Other };
        let Some(name) = call_name(name) else { return Line::Other };
        let arguments = arguments.trim_end().strip_suffix(')').unwrap_or(arguments);
        let words = arguments.split(',').map(|word| word.rsplit(": ").next().unwrap_or(word).trim());
        let arguments = words.filter(|word| !word.is_empty()).map(|word| {
            // Addresses and sizes are hexadecimal without a prefix.
            Argument::Word(format!("0x{}", word.trim_start_matches("0x")))
        });
        let call = Call {
            thread,
            begun: at,
            ended: at,
            name: name.to_owned(),
            arguments: arguments.collect(),
            result: 0,
            timed: true,
            opened: None,
        };
        self.begun.insert(thread, call);
        Line::Other
    }
}

/// The name of a call in the kernel's events.
fn call_name(event: &str) -> Option<&str> {
    event.trim().strip_prefix("sys_").filter(|name| !name.is_empty() && !name.contains(' '))
}

/// Thread, time and event of `name-123 [001] d..1 12.345678: sys_read(fd: 3, ...)`.
fn parts(text: &str) -> Option<(u32, i64, &str)> {
    // A task name may contain spaces, brackets and hyphens, so the CPU number in brackets is searched first.
    let bracket = text.find(" [").filter(|at| text[at + 2..].starts_with(|c: char| c.is_ascii_digit()))?;
    let task = text[..bracket].split('(').next()?.trim_end();
    let thread = task.rsplit('-').next()?.trim().parse().ok()?;
    let (_, rest) = text[bracket + 2..].split_once(']')?;
    let (time, event) = rest.split_once(": ")?;
    let at = seconds(time.split_whitespace().next_back()?)?;
    Some((thread, at, event.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_two_lines_with_hexadecimal_arguments() {
        let mut reader = Ftrace::default();
        let lines = [
            "# tracer: nop",
            "    my app-x-3021    [001] ..... 812.000100: sys_pwrite64(fd: 5, buf: 7f00aa, count: 1000, pos: 2000)",
            "    my app-x-3021    [001] ..... 812.000200: sched_switch: prev_comm=x",
        ];
        assert!(lines.iter().all(|line| reader.line(line) == Line::Other));
        let Line::Call(call) = reader.line("my app-x-3021 [001] ..... 812.000350: sys_pwrite64 -> 0x1000")
        else {
            panic!("no call")
        };
        assert_eq!((call.thread, call.name.as_str(), call.result), (3021, "pwrite64", 4096));
        assert_eq!((call.number(0), call.number(2), call.number(3)), (Some(5), Some(4096), Some(8192)));
        assert_eq!(call.ended - call.begun, 250_000);
    }

    #[test]
    fn an_end_without_its_begin_is_left_out() {
        let mut reader = Ftrace::default();
        assert_eq!(reader.line("a-1 [000] .... 1.000001: sys_read -> 0x10"), Line::Other);
        for text in [
            "nonsense",
            "a-1 [000",
            "a-1 [000] .... x: sys_read -> 0x10",
            "a-b [000] .... 1.0: sys_read(fd: 1)",
        ] {
            assert_eq!(reader.line(text), Line::Unreadable, "{text}");
        }
    }
}
