//! Parses system call events of ftrace as text: `events/syscalls` in `trace` or `trace_pipe`, and `trace-cmd report`. Strings are recorded
//! as addresses, so paths are unknown.

use rustc_hash::FxHashMap;

use super::call::{CallArgument, SystemCall};
use super::clock::seconds;

/// The kinds of lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FtraceCallLine {
    /// A call that has returned.
    Call(SystemCall),
    /// The begin of a call, a comment, or another event.
    Other,
    /// Not a line of ftrace.
    Unreadable,
}

/// Parses lines in order.
#[derive(Debug, Default)]
pub(super) struct FtraceCallParser {
    calls_in_progress: FxHashMap<u32, SystemCall>,
}

impl FtraceCallParser {
    /// Parses a line.
    pub fn line(&mut self, text: &str) -> FtraceCallLine {
        if text.starts_with('#') || text.starts_with("cpus=") || text.trim().is_empty() {
            return FtraceCallLine::Other;
        }
        let Some((thread, at, event)) = parts(text) else { return FtraceCallLine::Unreadable };
        if let Some((name, result)) = event.split_once(" -> ") {
            let Some(name) = call_name(name) else { return FtraceCallLine::Other };
            let Some(mut call) = self.calls_in_progress.remove(&thread).filter(|call| call.name == name) else {
                return FtraceCallLine::Other;
            };
            let Some(result) = CallArgument::Word(result.trim().to_owned()).number() else {
                return FtraceCallLine::Unreadable;
            };
            (call.ended_ns, call.result) = (at.max(call.started_ns), result);
            return FtraceCallLine::Call(call);
        }
        let Some((name, arguments)) = event.split_once('(') else { return FtraceCallLine::Other };
        let Some(name) = call_name(name) else { return FtraceCallLine::Other };
        let arguments = arguments.trim_end().strip_suffix(')').unwrap_or(arguments);
        let words = arguments.split(',').map(|word| word.rsplit(": ").next().unwrap_or(word).trim());
        let arguments = words.filter(|word| !word.is_empty()).map(|word| {
            // Addresses and sizes are hexadecimal without a prefix.
            CallArgument::Word(format!("0x{}", word.trim_start_matches("0x")))
        });
        let call = SystemCall {
            thread,
            started_ns: at,
            ended_ns: at,
            name: name.to_owned(),
            arguments: arguments.collect(),
            result: 0,
            timed: true,
            opened: None,
        };
        self.calls_in_progress.insert(thread, call);
        FtraceCallLine::Other
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
        let mut reader = FtraceCallParser::default();
        let lines = [
            "# tracer: nop",
            "    my app-x-3021    [001] ..... 812.000100: sys_pwrite64(fd: 5, buf: 7f00aa, count: 1000, pos: 2000)",
            "    my app-x-3021    [001] ..... 812.000200: sched_switch: prev_comm=x",
        ];
        assert!(lines.iter().all(|line| reader.line(line) == FtraceCallLine::Other));
        let FtraceCallLine::Call(call) = reader.line("my app-x-3021 [001] ..... 812.000350: sys_pwrite64 -> 0x1000")
        else {
            panic!("no call")
        };
        assert_eq!((call.thread, call.name.as_str(), call.result), (3021, "pwrite64", 4096));
        assert_eq!((call.number(0), call.number(2), call.number(3)), (Some(5), Some(4096), Some(8192)));
        assert_eq!(call.ended_ns - call.started_ns, 250_000);
    }

    #[test]
    fn an_end_without_its_begin_is_left_out() {
        let mut reader = FtraceCallParser::default();
        assert_eq!(reader.line("a-1 [000] .... 1.000001: sys_read -> 0x10"), FtraceCallLine::Other);
        for text in
            ["nonsense", "a-1 [000", "a-1 [000] .... x: sys_read -> 0x10", "a-b [000] .... 1.0: sys_read(fd: 1)"]
        {
            assert_eq!(reader.line(text), FtraceCallLine::Unreadable, "{text}");
        }
    }
}
