//! Kinds of files that are not traces but that users may try to read, with a hint for each.
//!
//! Each kind is declared once: name, rule to recognise it, hint. If no format recognises a file, [`recognise`] tries the kinds in order.

mod binary;
mod recordings;
mod text;

use crate::{Error, ErrorClass};

/// The end of a hint: how to record requests.
macro_rules! record {
    ($before:literal) => {
        concat!($before, "record requests with `emmclab record`, blktrace or trace-cmd")
    };
}
use record;

pub(crate) struct ForeignFileKind {
    /// The name of the kind with its article.
    noun_phrase: &'static str,
    /// Whether a file (decompressed) with these first bytes is of this kind.
    matches: fn(&FileHead) -> bool,
    /// The hint: the command that reads such a file, if there is one, and how to record a trace instead.
    hint: &'static str,
}

/// The first bytes of a file, with methods for its first lines.
pub(crate) struct FileHead<'a> {
    bytes: &'a [u8],
}

/// Maximum number of lines that are examined.
const MOST_LINES: usize = 200;

impl<'a> FileHead<'a> {
    fn has(&self, at: usize, mark: &[u8]) -> bool {
        self.bytes.get(at..).is_some_and(|bytes| bytes.starts_with(mark))
    }

    /// The first non-empty lines, without surrounding blanks.
    fn lines(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let lines = self.bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        lines.filter(|line| !line.is_empty()).take(MOST_LINES)
    }

    /// The lines of [`FileHead::lines`]. The last line is left out if it may be incomplete.
    fn whole_lines(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let cut = usize::from(!self.bytes.ends_with(b"\n") && self.bytes.contains(&b'\n'));
        self.lines().take(self.lines().count() - cut)
    }

    fn has_lines(&self, beginnings: &[&str]) -> bool {
        beginnings.iter().all(|begin| self.lines().any(|line| line.starts_with(begin.as_bytes())))
    }

    /// Whether one of the first lines contains all of these words.
    fn has_words(&self, words: &[&str]) -> bool {
        self.lines()
            .any(|line| words.iter().all(|word| line.split(u8::is_ascii_whitespace).any(|token| token == word.as_bytes())))
    }

    /// Whether the first bytes contain this text.
    fn holds(&self, text: &str) -> bool {
        memchr::memmem::find(self.bytes, text.as_bytes()).is_some()
    }

    /// Whether the condition `is` is true for at least `least` of the first lines.
    fn has_many(&self, least: usize, is: impl Fn(&[u8]) -> bool) -> bool {
        self.lines().filter(|line| is(line)).count() >= least
    }
}

/// All kinds, those with the most specific marks first.
fn kinds() -> impl Iterator<Item = &'static ForeignFileKind> {
    recordings::KINDS.iter().chain(binary::KINDS).chain(text::KINDS)
}

/// The kinds of files that the reader of a trace format would accept by mistake.
fn first_kinds() -> impl Iterator<Item = &'static ForeignFileKind> {
    text::OWN.iter().chain(recordings::FIRST)
}

/// The name and the hint of each kind.
pub(crate) fn named() -> impl Iterator<Item = (&'static str, &'static str)> {
    first_kinds().chain(kinds()).map(|kind| (kind.noun_phrase, kind.hint))
}

/// The error for a file of a known kind that is not a trace; `None` if it is of no known kind.
pub(crate) fn recognise(head: &[u8]) -> Option<Error> {
    let head = FileHead { bytes: head };
    kinds().find(|kind| (kind.matches)(&head)).map(refusal).or_else(|| binary::damaged_register(head.bytes))
}

/// Like [`recognise`], for kinds of files that a trace format would accept by mistake; called before the trace formats are tried.
pub(crate) fn recognise_first(head: &[u8]) -> Option<Error> {
    let head = FileHead { bytes: head };
    first_kinds().find(|kind| (kind.matches)(&head)).map(refusal)
}

fn refusal(kind: &'static ForeignFileKind) -> Error {
    let is_recording = recordings::KINDS.iter().chain(recordings::FIRST).any(|recording| std::ptr::eq(recording, kind));
    let what = if is_recording { "this is no trace that can be read, but" } else { "this is no trace, but" };
    Error::new(ErrorClass::UnknownFormat, format!("{what} {}", kind.noun_phrase)).hint(kind.hint)
}

#[cfg(test)]
mod tests;
