//! Parses recorded system calls from lines of `strace -f` or from events of ftrace. strace may use any of its time formats, with or without
//! `-T` and `-y`; calls may begin and end in different lines. ftrace events are text (`events/syscalls` in `trace` or `trace_pipe`, and
//! `trace-cmd report`); they have addresses instead of strings, so paths are unknown.

use std::collections::BTreeMap;

use emmclab_base::{Error, ErrorClass, Result};
use rustc_hash::FxHashMap;

use super::HOW;
use super::clock::{CallClock, MOST_THREAD, seconds, stamp_of};
use super::recording::is_wait;

/// An argument of a system call as text; quotes around strings are removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallArgument {
    /// A string, with its escape sequences resolved.
    Text(Vec<u8>),
    /// An argument that is not a string.
    Word(String),
}

impl CallArgument {
    /// The text of an argument that is not a string; `None` for a string.
    pub fn word(&self) -> Option<&str> {
        match self {
            Self::Word(word) => Some(word),
            Self::Text(_) => None,
        }
    }

    /// The integer at the beginning of the argument, decimal or hexadecimal, such as `3` in `3</data/a>`.
    pub fn number(&self) -> Option<i64> {
        let word = self.word()?;
        let (sign, digits) = word.strip_prefix('-').map_or((1, word), |rest| (-1, rest));
        let (radix, digits) = digits.strip_prefix("0x").map_or((10, digits), |rest| (16, rest));
        let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
        let value = u64::from_str_radix(digits.get(..end)?, radix).ok()?;
        Some(sign * value as i64)
    }

    /// The text that strace's `-y` shows after a descriptor: `/data/a` in `3</data/a>`, `pipe:[5]` in `3<pipe:[5]>`.
    pub fn annotation(&self) -> Option<&str> {
        annotation_of(self.word()?)
    }

    /// The path that strace's `-y` shows after a descriptor.
    pub fn path(&self) -> Option<&str> {
        self.annotation().filter(|path| path.starts_with('/'))
    }
}

/// The text between `<` and `>`; for an unlinked file, `(deleted)` follows it.
pub(super) fn annotation_of(word: &str) -> Option<&str> {
    let (_, rest) = word.split_once('<')?;
    rest.strip_suffix("(deleted)").unwrap_or(rest).strip_suffix('>')
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SystemCall {
    pub thread: u32,
    /// Time at which the call began, in ns on the clock of the recording.
    pub started_ns: i64,
    pub ended_ns: i64,
    /// The name of the call, without `sys_`.
    pub name: String,
    pub arguments: Vec<CallArgument>,
    /// The return value; negative if the call failed.
    pub result: i64,
    /// Whether the end of the call was recorded. If not, `ended_ns` equals the start; the call lasted at most until the thread's next call.
    pub timed: bool,
    /// The path that strace's `-y` shows after the returned descriptor.
    pub opened: Option<String>,
}

impl SystemCall {
    /// The integer value of an argument.
    pub fn number(&self, at: usize) -> Option<i64> {
        self.arguments.get(at)?.number()
    }

    /// The string value of an argument.
    pub fn text(&self, at: usize) -> Option<String> {
        match self.arguments.get(at)? {
            CallArgument::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
            CallArgument::Word(_) => None,
        }
    }

    /// Whether an argument contains a flag with this name.
    pub fn has_flag(&self, at: usize, flag: &str) -> bool {
        let words = self.arguments.get(at).and_then(CallArgument::word).unwrap_or_default();
        words.split(['|', ' ', '{', '}', ',', '=']).any(|word| word == flag)
    }
}

/// A call that strace reports on two lines: `<unfinished ...>` and `resumed`.
#[derive(Debug)]
struct UnfinishedCall {
    started_ns: i64,
    name: String,
    arguments: String,
}

/// The kinds of lines in the output of strace.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StraceLine {
    /// A call that has returned.
    Call(SystemCall),
    /// A call that begins on this line and whose return is reported on a later line.
    Began(SystemCall),
    /// A call that never returns, because the thread ended in it.
    CutOff(SystemCall),
    /// The end of a thread: its id, and the time in ns.
    Exit(u32, i64),
    /// A signal stops a thread (`true`) or continues it (`false`). The other values are the thread id and the time in ns.
    Stop(u32, i64, bool),
    /// A line of strace that reports no call, with the name of its kind.
    Other(&'static str),
    /// A line that is not in a format of strace, with a description of the problem.
    Unreadable(&'static str),
}

/// Parses the output lines of strace in their order.
#[derive(Debug, Default)]
pub(super) struct StraceParser {
    unfinished: FxHashMap<u32, UnfinishedCall>,
    clock: CallClock,
}

const NO_TIME: &str = "the line has no time";
const NO_CALL: &str = "the line is not a system call";
const SUMMARY: &str = "this is the summary of strace -c, which does not list single calls";
/// Name for lines of strace that report signals.
pub(super) const SIGNALS: &str = "signals";
const MESSAGES: &str = "messages of strace";
const STACKS: &str = "stack frames";
const HALVES: &str = "ends of calls whose beginning is missing";
pub(super) const NO_RESULT: &str = "calls without a result";

impl StraceParser {
    /// Detects from the first lines whether times are relative to the previous line (`-r`).
    pub fn new(head: &str) -> Self {
        Self { unfinished: FxHashMap::default(), clock: CallClock::of(head) }
    }

    pub fn line(&mut self, text: &str) -> StraceLine {
        if let Some(kind) = foreign(text) {
            return kind;
        }
        let (thread, rest) = thread_of(text);
        if is_message(rest) {
            return StraceLine::Other(MESSAGES);
        }
        let Some((stamp, rest)) = stamp_of(rest) else { return StraceLine::Unreadable(NO_TIME) };
        let at = self.clock.at(stamp);
        let rest = without_brackets(rest);
        if let Some(rest) = rest.strip_prefix("<... ") {
            return self.resumed(thread, at, rest);
        }
        if rest.starts_with("+++") {
            self.unfinished.remove(&thread);
            return StraceLine::Exit(thread, at);
        }
        if rest.starts_with("--- stopped by") || rest.starts_with("--- SIGCONT") {
            return StraceLine::Stop(thread, at, rest.starts_with("--- stopped by"));
        }
        if rest.starts_with("---") {
            return StraceLine::Other(SIGNALS);
        }
        if is_message(rest) {
            return StraceLine::Other(MESSAGES);
        }
        let Some((name, arguments)) = rest.split_once('(') else { return StraceLine::Unreadable(NO_CALL) };
        if !is_name(name) {
            return StraceLine::Unreadable(NO_CALL);
        }
        let call = |arguments: &str, result, ended: Option<i64>, opened| SystemCall {
            thread,
            started_ns: at,
            ended_ns: ended.unwrap_or(at),
            name: name.to_owned(),
            arguments: split(arguments),
            result,
            timed: ended.is_some(),
            opened,
        };
        if let Some(arguments) = unfinished(arguments) {
            let began = call(arguments, 0, None, None);
            let begun = UnfinishedCall { started_ns: at, name: name.to_owned(), arguments: arguments.to_owned() };
            self.unfinished.insert(thread, begun);
            return StraceLine::Began(began);
        }
        match ending(arguments) {
            Some(StraceCallEnding { arguments, result: Some(result), opened, took }) => {
                StraceLine::Call(call(arguments, result, took.map(|took| at.saturating_add(took)), opened))
            }
            // strace prints `= ?` for `exit_group`, which does not return, and for calls that the end of the process interrupted.
            Some(_) if name.starts_with("exit") => StraceLine::Exit(thread, at),
            Some(StraceCallEnding { arguments, .. }) => StraceLine::CutOff(call(arguments, 0, None, None)),
            None => StraceLine::Unreadable(NO_CALL),
        }
    }

    /// Parses the second line of a call that strace splits into two lines.
    fn resumed(&mut self, thread: u32, at: i64, rest: &str) -> StraceLine {
        let Some((name, rest)) = rest.split_once("resumed>") else { return StraceLine::Other(HALVES) };
        let name = name.trim();
        let Some(begun) = self.unfinished.remove(&thread) else { return StraceLine::Other(HALVES) };
        if begun.name != name {
            return StraceLine::Other(HALVES);
        }
        let Some(StraceCallEnding { arguments, result, opened, took }) = ending(rest) else {
            return StraceLine::Unreadable(NO_CALL);
        };
        let Some(result) = result else {
            return if name.starts_with("exit") { StraceLine::Exit(thread, at) } else { StraceLine::Other(NO_RESULT) };
        };
        let arguments = split(&format!("{}{arguments}", begun.arguments));
        // The duration of `strace -T` counts from the beginning of the call, not from its `resumed` line.
        let ended = took.map_or(at, |took| begun.started_ns.saturating_add(took));
        let (begun, name) = (begun.started_ns, begun.name);
        StraceLine::Call(SystemCall { thread, started_ns: begun, ended_ns: ended, name, arguments, result, timed: true, opened })
    }
}

/// Recognises lines that strace prints without thread and time, or only with certain options; `None` for other lines.
fn foreign(text: &str) -> Option<StraceLine> {
    let trimmed = text.trim_start();
    if is_message(trimmed) {
        return Some(StraceLine::Other(MESSAGES));
    }
    if trimmed.starts_with("% time") || trimmed.starts_with("------ ---") {
        return Some(StraceLine::Unreadable(SUMMARY));
    }
    (trimmed.starts_with("> ") && text.starts_with(' ')).then_some(StraceLine::Other(STACKS))
}

/// Whether a line is a message of strace itself: `strace: Process 7 attached`, `[ Process PID=7 runs in 32 bit mode. ]`.
fn is_message(text: &str) -> bool {
    let process = text.strip_prefix("Process ").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    process || text.starts_with("strace: ") || text.starts_with("[ Process PID=")
}

/// The arguments of a call that ends on a later line; `None` if the call ends on this line.
fn unfinished(text: &str) -> Option<&str> {
    text.trim_end().strip_suffix("<unfinished ...>")
}

/// Parses the thread id at the beginning of a line; also returns the rest. The id is 0 if there is none, as for a single-threaded process.
/// `-Y` shows the name of the thread after its id.
pub(super) fn thread_of(text: &str) -> (u32, &str) {
    let text = text.trim_start();
    let number_of = |word: &str| word.split('<').next().unwrap_or(word).trim().parse().ok();
    if let Some(rest) = text.strip_prefix("[pid") {
        if let Some((number, rest)) = rest.split_once(']')
            && let Some(number) = number_of(number)
        {
            return (number, rest.trim_start());
        }
        return (0, text);
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    let rest = match rest.strip_prefix('<') {
        // A thread name may contain any character and ends at `> `. The time follows it.
        Some(named) => named.split_once("> ").map_or("", |(_, rest)| rest),
        None if rest.starts_with([' ', '\t']) => rest,
        None => return (0, text),
    };
    match number.parse() {
        // A larger leading number is a time stamp, not a thread id.
        Ok(number) if number <= MOST_THREAD => (number, rest.trim_start()),
        _ => (0, text),
    }
}

/// Removes the instruction pointer (`-i`) and the number of the call (`-n`), which are in brackets before the call.
fn without_brackets(mut text: &str) -> &str {
    while let Some(rest) = text.strip_prefix('[') {
        let Some((inside, after)) = rest.split_once(']') else { break };
        if !inside.trim().bytes().all(|c| c.is_ascii_hexdigit() || c == b'?') {
            break;
        }
        text = after.trim_start();
    }
    text
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
}

/// The parsed end of a strace line, after the name of the call: arguments, result and duration.
struct StraceCallEnding<'a> {
    /// The text between the parentheses of the call.
    arguments: &'a str,
    /// The return value: -1 if a signal interrupted the call, `None` if the process ended.
    result: Option<i64>,
    opened: Option<String>,
    /// The duration of the call in ns, if recorded.
    took: Option<i64>,
}

fn ending(text: &str) -> Option<StraceCallEnding<'_>> {
    let text = text.trim_end();
    let (text, took) = match text.rsplit_once(" <") {
        Some((before, "unavailable>")) => (before, None),
        Some((before, last)) if last.ends_with('>') && seconds(&last[..last.len() - 1]).is_some() => {
            (before, seconds(&last[..last.len() - 1]))
        }
        _ => (text, None),
    };
    // The result follows the last `) = `, because strings may contain the same characters. strace may insert more spaces before `=`.
    let (close, at) = text.rmatch_indices("= ").find_map(|(at, _)| {
        let before = text[..at].trim_end_matches(' ');
        (before.len() < at && before.ends_with(')')).then(|| (before.len() - 1, at))
    })?;
    let outcome = &text[at + 2..];
    let word = outcome.split(' ').next()?;
    let result = if word == "?" {
        outcome.contains("ERESTART").then_some(-1)
    } else {
        Some(CallArgument::Word(word.to_owned()).number()?)
    };
    let opened = annotation_of(outcome).filter(|path| path.starts_with('/')).map(str::to_owned);
    Some(StraceCallEnding { arguments: &text[..close], result, opened, took })
}

/// Splits arguments at commas that are outside of strings and brackets.
pub(super) fn split(text: &str) -> Vec<CallArgument> {
    let mut arguments = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (argument, after) = if let Some(quoted) = rest.strip_prefix('"') {
            let (text, after) = string(quoted);
            // strace appends `...` to a shortened string, so the text up to the next comma is skipped.
            let after = after.find(',').map_or("", |comma| &after[comma..]);
            (CallArgument::Text(text), after)
        } else {
            let end = end_of(rest);
            (CallArgument::Word(rest[..end].trim().to_owned()), &rest[end..])
        };
        arguments.push(argument);
        rest = after.strip_prefix(',').unwrap_or_default().trim_start();
    }
    arguments
}

/// Parses a string up to its closing quote; also returns the text after it.
pub(super) fn string(text: &str) -> (Vec<u8>, &str) {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => return (out, &text[at + 1..]),
            b'\\' => {
                let (byte, taken) = escape(&bytes[at + 1..]);
                out.extend(byte);
                at += 1 + taken;
            }
            byte => {
                out.push(byte);
                at += 1;
            }
        }
    }
    (out, "")
}

/// The byte that an escape sequence represents, and the number of characters after the backslash.
fn escape(rest: &[u8]) -> (Option<u8>, usize) {
    let Some(first) = rest.first() else { return (None, 0) };
    let digits = |radix: u32, skip: usize, most: usize| {
        let count = rest[skip..].iter().take(most).take_while(|c| char::from(**c).is_digit(radix)).count();
        let value =
            rest[skip..skip + count].iter().fold(0_u32, |value, c| value * radix + char::from(*c).to_digit(radix).unwrap_or(0));
        ((count > 0).then_some(value as u8), skip + count)
    };
    match first {
        b'n' => (Some(b'\n'), 1),
        b't' => (Some(b'\t'), 1),
        b'r' => (Some(b'\r'), 1),
        b'v' => (Some(0x0b), 1),
        b'f' => (Some(0x0c), 1),
        b'x' => digits(16, 1, 2),
        b'0'..=b'7' => digits(8, 0, 3),
        // Any other escaped character represents itself. If it has several bytes, the remaining ones follow as ordinary text.
        other => (Some(*other), 1),
    }
}

/// The index of the end of a word: a comma outside of brackets and strings.
fn end_of(text: &str) -> usize {
    let (mut depth, mut quoted, mut escaped) = (0_u32, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' | '>' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => return at,
            _ => {}
        }
    }
    text.len()
}

/// The kinds of lines in the text output of ftrace.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FtraceCallLine {
    /// A call that has returned.
    Call(SystemCall),
    /// A line that is not the return of a call: the beginning of a call, a comment, or another event.
    Other,
    /// A line that is not in the format of ftrace.
    Unreadable,
}

/// Parses the text lines of ftrace in their order.
#[derive(Debug, Default)]
pub(super) struct FtraceCallParser {
    calls_in_progress: FxHashMap<u32, SystemCall>,
}

impl FtraceCallParser {
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
            // ftrace prints addresses and sizes in hexadecimal without a prefix.
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

fn call_name(event: &str) -> Option<&str> {
    event.trim().strip_prefix("sys_").filter(|name| !name.is_empty() && !name.contains(' '))
}

/// Splits `name-123 [001] d..1 12.345678: sys_read(fd: 3, ...)` into thread, time and event.
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

/// Calls that every program makes when it begins, allocates memory, starts threads or ends.
const USUAL: &[&str] =
    &["execve", "brk", "mmap", "mmap2", "munmap", "mprotect", "mremap", "madvise", "clone", "clone3", "fork", "vfork"];
/// System calls that write to files. `io_submit` and `io_uring_enter` may start writes that the recording does not show.
const WRITES: &[&str] = &[
    "write", "writev", "pwrite64", "pwritev", "pwritev2", "sendfile", "sendfile64", "copy_file_range", "splice", "fallocate",
    "truncate", "truncate64", "ftruncate", "ftruncate64", "io_submit", "io_uring_enter",
];
const SYNCS: &[&str] = &["fsync", "fdatasync", "sync_file_range", "sync", "syncfs", "msync"];

/// The kinds of calls in a recording that was restricted to some kinds; empty for a recording of all calls.
/// Errors: [`ErrorClass::Value`] if such a recording has syncs but no writes.
pub(super) fn only_recorded_calls(calls: &BTreeMap<String, u64>) -> Result<Vec<String>> {
    let has = |names: &[&str]| names.iter().any(|name| calls.contains_key(*name));
    if has(USUAL) || calls.keys().any(|name| is_wait(name)) {
        return Ok(Vec::new());
    }
    let names: Vec<_> = calls.keys().cloned().collect();
    if has(SYNCS) && !has(WRITES) {
        let problem =
            format!("the recording has syncs but no writes, because it contains only these calls: {}", names.join(", "));
        return Err(Error::new(ErrorClass::Value, problem).hint(format!("{HOW}; leave out -e of strace, which filters calls")));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(reader: &mut StraceParser, text: &str) -> SystemCall {
        match reader.line(text) {
            StraceLine::Call(call) => call,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_line_gives_thread_times_arguments_and_result() {
        let mut reader = StraceParser::default();
        let parsed = call(
            &mut reader,
            r#"812 1700000000.000123 openat(AT_FDCWD, "/data/a, (b)\"\303\244", O_RDWR|O_CREAT, 0644) = 5 <0.000040>"#,
        );
        assert_eq!((parsed.thread, parsed.result, parsed.name.as_str()), (812, 5, "openat"));
        assert_eq!((parsed.started_ns, parsed.ended_ns - parsed.started_ns), (1_700_000_000_000_123_000, 40_000));
        assert_eq!(parsed.text(1).unwrap(), "/data/a, (b)\"ä");
        assert!(parsed.has_flag(2, "O_CREAT") && !parsed.has_flag(2, "O_CREA"));
        let failed = call(&mut reader, r#"1.0 unlink("x") = -1 ENOENT (No such file or directory) <0.000004>"#);
        assert_eq!((failed.thread, failed.result), (0, -1));
    }

    #[test]
    fn a_call_that_was_left_is_taken_up_in_its_own_thread() {
        let mut reader = StraceParser::default();
        assert!(matches!(reader.line("7 1.000000 read(3</data/x>,  <unfinished ...>"), StraceLine::Began(_)));
        assert!(matches!(reader.line("8 1.000100 fsync(4 <unfinished ...>"), StraceLine::Began(_)));
        let read = call(&mut reader, r#"7 1.000900 <... read resumed>"abc"..., 4096) = 4096 <0.000850>"#);
        assert_eq!((read.started_ns, read.ended_ns, read.result), (1_000_000_000, 1_000_850_000, 4096));
        assert_eq!((read.number(0), read.arguments[0].path()), (Some(3), Some("/data/x")));
        assert_eq!(read.number(2), Some(4096));
        let sync = call(&mut reader, "[pid     8] 1.002 <... fsync resumed>) = 0 <0.0015>");
        assert_eq!((sync.number(0), sync.ended_ns), (Some(4), 1_001_600_000));
    }

    #[test]
    fn ends_signals_and_lines_of_others_are_told_apart() {
        let mut reader = StraceParser::default();
        assert_eq!(reader.line("7 2.5 +++ exited with 0 +++"), StraceLine::Exit(7, 2_500_000_000));
        assert_eq!(reader.line("7 2.5 exit_group(0) = ?"), StraceLine::Exit(7, 2_500_000_000));
        assert_eq!(reader.line("7 2.5 --- SIGCHLD {si_signo=SIGCHLD} ---"), StraceLine::Other(SIGNALS));
        assert_eq!(reader.line("7 2.5 --- stopped by SIGTSTP ---"), StraceLine::Stop(7, 2_500_000_000, true));
        assert_eq!(reader.line("7 2.5 --- SIGCONT {si_signo=SIGCONT} ---"), StraceLine::Stop(7, 2_500_000_000, false));
        for text in ["strace: Process 7 attached", "[pid 7] strace: Process 8 attached", "Process 9 detached"] {
            assert_eq!(reader.line(text), StraceLine::Other(MESSAGES), "{text}");
        }
        assert_eq!(reader.line(" > /usr/lib/libc.so.6(read+0x10) [0x1]"), StraceLine::Other(STACKS));
        assert_eq!(reader.line("read(3, \"\", 5) = 0"), StraceLine::Unreadable(NO_TIME));
        assert_eq!(reader.line("% time     seconds  usecs/call     calls    errors syscall"), StraceLine::Unreadable(SUMMARY));
        for text in ["", " ", "[pid", "7", "7 1.", "7 1.0 (", "7 1.0 read", "7 1.0 read(\"\\", "7 1.0 <... read resumed>"] {
            assert!(!matches!(reader.line(text), StraceLine::Call(_)), "{text}");
        }
    }

    #[test]
    fn every_form_of_time_and_thread_is_read() {
        for (text, thread, begun) in [
            ("read(3, \"\", 5) = 0", 0, None),
            ("12:01:02 read(3, \"\", 5) = 0", 0, Some(43_262_000_000_000)),
            ("9 12:01:02.000005 read(3, \"\", 5) = 0", 9, Some(43_262_000_005_000)),
            ("[pid    9] 12:01:02.000005 read(3, \"\", 5) = 0", 9, Some(43_262_000_005_000)),
            ("9<my app> 1700000000.5 read(3, \"\", 5) = 0", 9, Some(1_700_000_000_500_000_000)),
            ("[pid 9<sh>] 1700000000.5 read(3, \"\", 5) = 0", 9, Some(1_700_000_000_500_000_000)),
            ("1700000000 read(3, \"\", 5) = 0", 0, Some(1_700_000_000_000_000_000)),
            ("1700000000.5 (+     0.000002) read(3, \"\", 5) = 0", 0, Some(1_700_000_000_500_000_000)),
            ("9 12:01:02 [00007f12] [ 257] read(3, \"\", 5) = 0", 9, Some(43_262_000_000_000)),
        ] {
            let parsed = StraceParser::default().line(text);
            let Some(begun) = begun else {
                assert_eq!(parsed, StraceLine::Unreadable(NO_TIME));
                continue;
            };
            let StraceLine::Call(call) = parsed else { panic!("{text}: {parsed:?}") };
            assert_eq!((call.thread, call.started_ns, call.timed), (thread, begun, false), "{text}");
        }
    }

    #[test]
    fn times_since_the_line_before_add_up() {
        let text = "7      0.000000 read(3, \"\", 5) = 0\n7      0.000100 fsync(3 <unfinished ...>\n\
                    8      0.002000 read(4, \"\", 5) = 0\n7      0.000500 <... fsync resumed>) = 0\n";
        let mut reader = StraceParser::new(text);
        let ends: Vec<_> = text
            .lines()
            .filter_map(|line| match reader.line(line) {
                StraceLine::Call(call) => Some((call.started_ns, call.ended_ns)),
                _ => None,
            })
            .collect();
        assert_eq!(ends, [(0, 0), (2_100_000, 2_100_000), (100_000, 2_600_000)]);
    }

    #[test]
    fn blanks_before_the_result_paths_behind_it_and_calls_without_one_are_read() {
        let mut reader = StraceParser::default();
        let opened = call(&mut reader, "5 1.0 openat(AT_FDCWD</a>, \"b\", O_RDONLY)            = 3</a/b> <0.000010>");
        assert_eq!((opened.result, opened.opened.as_deref()), (3, Some("/a/b")));
        let interrupted = call(&mut reader, "5 1.1 wait4(-1, 0x7f, 0, NULL) = ? ERESTARTSYS (To be restarted) <0.5>");
        assert_eq!((interrupted.result, interrupted.ended_ns), (-1, 1_600_000_000));
        assert!(matches!(reader.line("5 1.2 read(3, <unfinished ...>) = ?"), StraceLine::CutOff(_)));
        let poll = call(&mut reader, "5 1.3 poll([{fd=3, events=POLLIN}], 1, -1) = 1 ([{fd=3, revents=POLLIN}]) <0.05>");
        assert_eq!((poll.result, poll.ended_ns), (1, 1_350_000_000));
        let deleted = call(&mut reader, "5 1.4 fsync(3</data/x>(deleted)) = 0 <0.01>");
        assert_eq!(deleted.arguments[0].path(), Some("/data/x"));
    }

    #[test]
    fn a_call_of_ftrace_is_two_lines_with_hexadecimal_arguments() {
        let mut reader = FtraceCallParser::default();
        let lines = [
            "# tracer: nop",
            "    my app-x-3021    [001] ..... 812.000100: sys_pwrite64(fd: 5, buf: 7f00aa, count: 1000, pos: 2000)",
            "    my app-x-3021    [001] ..... 812.000200: sched_switch: prev_comm=x",
        ];
        assert!(lines.iter().all(|line| reader.line(line) == FtraceCallLine::Other));
        let FtraceCallLine::Call(call) = reader.line("my app-x-3021 [001] ..... 812.000350: sys_pwrite64 -> 0x1000") else {
            panic!("no call")
        };
        assert_eq!((call.thread, call.name.as_str(), call.result), (3021, "pwrite64", 4096));
        assert_eq!((call.number(0), call.number(2), call.number(3)), (Some(5), Some(4096), Some(8192)));
        assert_eq!(call.ended_ns - call.started_ns, 250_000);
    }

    #[test]
    fn an_end_of_ftrace_without_its_begin_is_left_out() {
        let mut reader = FtraceCallParser::default();
        assert_eq!(reader.line("a-1 [000] .... 1.000001: sys_read -> 0x10"), FtraceCallLine::Other);
        for text in ["nonsense", "a-1 [000", "a-1 [000] .... x: sys_read -> 0x10", "a-b [000] .... 1.0: sys_read(fd: 1)"] {
            assert_eq!(reader.line(text), FtraceCallLine::Unreadable, "{text}");
        }
    }
}
