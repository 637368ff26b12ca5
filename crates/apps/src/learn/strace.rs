//! Lines of `strace -f -ttt -T`, also with `-y`, and of a part that was left by a signal or another thread.

use rustc_hash::FxHashMap;

use super::call::{Argument, Call};

/// A call that has begun in one line and ends in another.
#[derive(Debug)]
struct Unfinished {
    begun: i64,
    name: String,
    arguments: String,
}

/// The kinds of lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A call that has returned.
    Call(Call),
    /// The end of a thread.
    Exit(u32, i64),
    /// The begin of a call, a signal, or a message of strace.
    Other,
    /// No line of strace; the problem.
    Unreadable(&'static str),
}

/// Reads lines in their order.
#[derive(Debug, Default)]
pub(super) struct Strace {
    unfinished: FxHashMap<u32, Unfinished>,
}

const NO_TIME: &str = "the line has no time";
const NO_CALL: &str = "the line is not a system call";
const NO_DURATION: &str = "the call has no duration";

impl Strace {
    /// Takes a line.
    pub fn line(&mut self, text: &str) -> Line {
        let (thread, rest) = thread_of(text);
        let Some((at, rest)) = time_of(rest) else { return Line::Unreadable(NO_TIME) };
        if let Some(rest) = rest.strip_prefix("<... ") {
            return self.resumed(thread, at, rest);
        }
        if rest.starts_with("+++") {
            self.unfinished.remove(&thread);
            return Line::Exit(thread, at);
        }
        if rest.starts_with("---") || rest.starts_with("strace:") {
            return Line::Other;
        }
        let Some((name, arguments)) = rest.split_once('(') else { return Line::Unreadable(NO_CALL) };
        if !is_name(name) {
            return Line::Unreadable(NO_CALL);
        }
        if let Some(arguments) = arguments.strip_suffix("<unfinished ...>") {
            let begun = Unfinished { begun: at, name: name.to_owned(), arguments: arguments.to_owned() };
            self.unfinished.insert(thread, begun);
            return Line::Other;
        }
        match ending(arguments) {
            Some((arguments, result, Some(took))) => Line::Call(Call {
                thread,
                begun: at,
                ended: at.saturating_add(took),
                name: name.to_owned(),
                arguments: split(arguments),
                result,
            }),
            Some((_, _, None)) => Line::Unreadable(NO_DURATION),
            // `exit_group(0) = ?` and calls that a fork or the end of the process cut off.
            None if arguments.trim_end().ends_with('?') => Line::Exit(thread, at),
            None => Line::Unreadable(NO_CALL),
        }
    }

    /// The end of a call that another line began.
    fn resumed(&mut self, thread: u32, at: i64, rest: &str) -> Line {
        let Some((name, rest)) = rest.split_once(" resumed>") else { return Line::Unreadable(NO_CALL) };
        let Some(begun) = self.unfinished.remove(&thread) else { return Line::Other };
        if begun.name != name {
            return Line::Other;
        }
        let Some((arguments, result, took)) = ending(rest) else {
            return if rest.trim_end().ends_with('?') {
                Line::Exit(thread, at)
            } else {
                Line::Unreadable(NO_CALL)
            };
        };
        let arguments = split(&format!("{}{arguments}", begun.arguments));
        // Its own clock starts at the begin, not where it was taken up.
        let ended = took.map_or(at, |took| begun.begun.saturating_add(took));
        Line::Call(Call { thread, begun: begun.begun, ended, name: begun.name, arguments, result })
    }
}

/// The thread that a line begins with; 0 where there is none, as of a process that has one only.
fn thread_of(text: &str) -> (u32, &str) {
    let text = text.trim_start();
    if let Some(rest) = text.strip_prefix("[pid") {
        if let Some((number, rest)) = rest.split_once(']')
            && let Ok(number) = number.trim().parse()
        {
            return (number, rest.trim_start());
        }
        return (0, text);
    }
    let Some((word, rest)) = text.split_once(' ') else { return (0, text) };
    match word.parse() {
        Ok(number) => (number, rest.trim_start()),
        Err(_) => (0, text),
    }
}

/// Seconds since the epoch, as ns, and what follows.
fn time_of(text: &str) -> Option<(i64, &str)> {
    let (word, rest) = text.split_once(' ')?;
    Some((seconds(word)?, rest.trim_start()))
}

/// Decimal seconds as ns.
pub(super) fn seconds(word: &str) -> Option<i64> {
    let (whole, part) = word.split_once('.')?;
    if whole.is_empty() || part.is_empty() || part.len() > 9 || !part.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let whole: i64 = whole.parse().ok().filter(|whole| *whole >= 0)?;
    let part: i64 = format!("{part:0<9}").parse().ok()?;
    whole.checked_mul(1_000_000_000)?.checked_add(part)
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
}

/// The text before the closing parenthesis, the result, and the duration in ns.
fn ending(text: &str) -> Option<(&str, i64, Option<i64>)> {
    let text = text.trim_end();
    let (text, took) = match text.rsplit_once(" <") {
        Some((before, last)) if last.ends_with('>') && seconds(&last[..last.len() - 1]).is_some() => {
            (before, seconds(&last[..last.len() - 1]))
        }
        _ => (text, None),
    };
    // The last one: strings may have the same in them.
    let at = text.rfind(") = ").or_else(|| text.rfind(")  = "))?;
    let arguments = &text[..at];
    let result = text[at + 1..].trim_start().strip_prefix("= ")?;
    let result = Argument::Word(result.split(' ').next()?.to_owned()).number()?;
    Some((arguments, result, took))
}

/// The arguments: parts between commas outside of strings and brackets.
pub(super) fn split(text: &str) -> Vec<Argument> {
    let mut found = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (argument, after) = if let Some(quoted) = rest.strip_prefix('"') {
            let (text, after) = string(quoted);
            // What follows up to the comma is `...` of a string that was cut.
            let after = after.find(',').map_or("", |comma| &after[comma..]);
            (Argument::Text(text), after)
        } else {
            let end = end_of(rest);
            (Argument::Word(rest[..end].trim().to_owned()), &rest[end..])
        };
        found.push(argument);
        rest = after.strip_prefix(',').unwrap_or_default().trim_start();
    }
    found
}

/// A string up to its closing quote, and what follows.
fn string(text: &str) -> (Vec<u8>, &str) {
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

/// The byte of an escape, and how many characters it has behind the backslash.
fn escape(rest: &[u8]) -> (Option<u8>, usize) {
    let Some(first) = rest.first() else { return (None, 0) };
    let digits = |radix: u32, skip: usize, most: usize| {
        let count = rest[skip..].iter().take(most).take_while(|c| char::from(**c).is_digit(radix)).count();
        let value = rest[skip..skip + count]
            .iter()
            .fold(0_u32, |value, c| value * radix + char::from(*c).to_digit(radix).unwrap_or(0));
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
        // Any other character stands for itself; of several bytes the others follow.
        other => (Some(*other), 1),
    }
}

/// Where a word ends: at a comma outside of brackets and strings.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn call(reader: &mut Strace, text: &str) -> Call {
        match reader.line(text) {
            Line::Call(call) => call,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_line_gives_thread_times_arguments_and_result() {
        let mut reader = Strace::default();
        let found = call(
            &mut reader,
            r#"812 1700000000.000123 openat(AT_FDCWD, "/data/a, (b)\"\303\244", O_RDWR|O_CREAT, 0644) = 5 <0.000040>"#,
        );
        assert_eq!((found.thread, found.result, found.name.as_str()), (812, 5, "openat"));
        assert_eq!((found.begun, found.ended - found.begun), (1_700_000_000_000_123_000, 40_000));
        assert_eq!(found.text(1).unwrap(), "/data/a, (b)\"ä");
        assert!(found.has_flag(2, "O_CREAT") && !found.has_flag(2, "O_CREA"));
        let failed =
            call(&mut reader, r#"1.0 unlink("x") = -1 ENOENT (No such file or directory) <0.000004>"#);
        assert_eq!((failed.thread, failed.result), (0, -1));
    }

    #[test]
    fn a_call_that_was_left_is_taken_up_in_its_own_thread() {
        let mut reader = Strace::default();
        assert_eq!(reader.line("7 1.000000 read(3</data/x>,  <unfinished ...>"), Line::Other);
        assert_eq!(reader.line("8 1.000100 fsync(4 <unfinished ...>"), Line::Other);
        let read = call(&mut reader, r#"7 1.000900 <... read resumed>"abc"..., 4096) = 4096 <0.000850>"#);
        assert_eq!((read.begun, read.ended, read.result), (1_000_000_000, 1_000_850_000, 4096));
        assert_eq!((read.number(0), read.arguments[0].path()), (Some(3), Some("/data/x")));
        assert_eq!(read.number(2), Some(4096));
        let sync = call(&mut reader, "[pid     8] 1.002 <... fsync resumed>) = 0 <0.0015>");
        assert_eq!((sync.number(0), sync.ended), (Some(4), 1_001_600_000));
    }

    #[test]
    fn ends_signals_and_lines_of_others_are_told_apart() {
        let mut reader = Strace::default();
        assert_eq!(reader.line("7 2.5 +++ exited with 0 +++"), Line::Exit(7, 2_500_000_000));
        assert_eq!(reader.line("7 2.5 exit_group(0) = ?"), Line::Exit(7, 2_500_000_000));
        assert_eq!(reader.line("7 2.5 --- SIGCHLD {si_signo=SIGCHLD} ---"), Line::Other);
        assert_eq!(reader.line("7 2.5 read(3, \"\", 5) = 0"), Line::Unreadable(NO_DURATION));
        assert_eq!(reader.line("12:01:02 read(3, \"\", 5) = 0"), Line::Unreadable(NO_TIME));
        for text in [
            "",
            " ",
            "[pid",
            "7",
            "7 1.",
            "7 1.0 (",
            "7 1.0 read",
            "7 1.0 read(\"\\",
            "7 1.0 <... read resumed>",
        ] {
            assert!(!matches!(reader.line(text), Line::Call(_)), "{text}");
        }
    }
}
