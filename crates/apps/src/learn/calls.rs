//! The system calls of a recording by strace in the order of their ends, with the data that they wrote.

use std::io::BufRead;

use emmclab_base::{Error, ErrorClass, Result, interrupt};
use rustc_hash::FxHashMap;

use super::INTERRUPT_EVERY;
use super::strace::{CallArgument, StraceLine, StraceParser, string};

/// An argument of a system call, or its result if that is a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordedArgument {
    /// A string, or the strings of a list of buffers one after the other.
    Bytes(Vec<u8>),
    /// A file descriptor with the path of its file, and whether the file has been removed.
    File(i64, Vec<u8>, bool),
    /// Any other argument.
    Word(String),
}

impl From<CallArgument> for RecordedArgument {
    fn from(argument: CallArgument) -> Self {
        let word = match argument {
            CallArgument::Text(text) => return Self::Bytes(text),
            CallArgument::Word(word) => word,
        };
        if word.starts_with("[{iov_base=") {
            return Self::Bytes(buffers(&word));
        }
        match word.split_once('<') {
            Some((name, rest)) if rest.starts_with('/') => {
                let (path, is_removed) = rest.strip_suffix("(deleted)").map_or((rest, false), |path| (path, true));
                let descriptor = name.parse().unwrap_or(-1);
                Self::File(descriptor, string(path.strip_suffix('>').unwrap_or(path)).0, is_removed)
            }
            _ => Self::Word(word),
        }
    }
}

/// The contents of `[{iov_base="a", iov_len=1}, ...]`.
fn buffers(word: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), word);
    while let Some((_, quoted)) = rest.split_once("iov_base=\"") {
        let (text, after) = string(quoted);
        out.extend(text);
        rest = after;
    }
    out
}

/// A system call that has returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedSystemCall {
    /// Thread id.
    pub thread: u32,
    /// Time at which the call began, in ns on the clock of the recording.
    pub started_ns: i64,
    /// Number of calls that had returned when this call began.
    pub after: usize,
    /// The name of the call.
    pub name: String,
    /// Its arguments, in order.
    pub arguments: Vec<RecordedArgument>,
    /// The return value; -1 if the call failed.
    pub result: i64,
}

/// Reads all calls of a recording by `strace -f -ttt -y`. Lines may have any length.
///
/// # Errors
/// The recording cannot be read, or contains lines that are not of strace.
pub fn strace_calls(mut input: impl BufRead) -> Result<Vec<RecordedSystemCall>> {
    let (mut parser, mut calls, mut begun) = (StraceParser::new(""), Vec::new(), FxHashMap::default());
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        if input.read_until(b'\n', &mut line).map_err(|error| Error::new(ErrorClass::Io, error.to_string()))? == 0 {
            break;
        }
        if number.is_multiple_of(INTERRUPT_EVERY) {
            interrupt::check()?;
        }
        match parser.line(String::from_utf8_lossy(&line).trim_end()) {
            StraceLine::Began(call) => {
                begun.insert(call.thread, calls.len());
            }
            StraceLine::Call(call) => calls.push(RecordedSystemCall {
                thread: call.thread,
                started_ns: call.started_ns,
                after: begun.remove(&call.thread).unwrap_or(calls.len()),
                name: call.name,
                arguments: call.arguments.into_iter().map(RecordedArgument::from).collect(),
                result: call.result,
            }),
            StraceLine::Unreadable(problem) => {
                return Err(Error::new(ErrorClass::Syntax, problem).hint(super::HOW).at_line(number));
            }
            _ => {}
        }
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_their_data_their_files_and_their_order() {
        let text = concat!(
            "7 1.000001 writev(3</f/a b\\74x>, [{iov_base=\"abc\\0\\1\\\"\", iov_len=6}, {iov_base=\"d, \\377\", iov_len=4}], 2) = 10\n",
            "8 1.000002 fsync(3</f/a> <unfinished ...>\n",
            "7 1.000003 pwrite64(4</f/c>(deleted), \"zz\", 2, 5) = -1 EIO (Input/output error) (INJECTED)\n",
            "8 1.000004 <... fsync resumed>) = 0\n",
        );
        let calls = strace_calls(text.as_bytes()).unwrap();
        let arguments = |at: usize, of: usize| calls[at].arguments[of].clone();
        assert_eq!(arguments(0, 0), RecordedArgument::File(3, b"/f/a b<x".to_vec(), false));
        assert_eq!(arguments(0, 1), RecordedArgument::Bytes(b"abc\0\x01\"d, \xff".to_vec()));
        assert_eq!((arguments(1, 0), calls[1].result), (RecordedArgument::File(4, b"/f/c".to_vec(), true), -1));
        assert_eq!((calls[2].name.as_str(), calls[2].after), ("fsync", 1), "it began before the second call");
        assert!(strace_calls("nonsense\n".as_bytes()).is_err());
    }
}
