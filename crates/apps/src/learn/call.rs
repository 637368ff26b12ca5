//! A system call of a recording.

/// An argument, as text; strings are without their quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Argument {
    /// A string, with its escapes resolved.
    Text(Vec<u8>),
    /// Anything else.
    Word(String),
}

impl Argument {
    /// The word; none of a string.
    pub fn word(&self) -> Option<&str> {
        match self {
            Self::Word(word) => Some(word),
            Self::Text(_) => None,
        }
    }

    /// The integer that it begins with, decimal or hexadecimal, as `3` of `3</data/a>`.
    pub fn number(&self) -> Option<i64> {
        let word = self.word()?;
        let (sign, digits) = word.strip_prefix('-').map_or((1, word), |rest| (-1, rest));
        let (radix, digits) = digits.strip_prefix("0x").map_or((10, digits), |rest| (16, rest));
        let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
        let value = u64::from_str_radix(digits.get(..end)?, radix).ok()?;
        Some(sign * value as i64)
    }

    /// What strace's `-y` puts behind a descriptor: `/data/a` of `3</data/a>`, `pipe:[5]` of `3<pipe:[5]>`.
    pub fn shown(&self) -> Option<&str> {
        shown_of(self.word()?)
    }

    /// The path that strace's `-y` puts behind a descriptor.
    pub fn path(&self) -> Option<&str> {
        self.shown().filter(|path| path.starts_with('/'))
    }
}

/// What stands between `<` and `>`; a file that has lost its path has `(deleted)` after it.
pub(super) fn shown_of(word: &str) -> Option<&str> {
    let (_, rest) = word.split_once('<')?;
    rest.strip_suffix("(deleted)").unwrap_or(rest).strip_suffix('>')
}

/// A system call that has returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// The thread, by the kernel's number.
    pub thread: u32,
    /// Its begin and its end, in ns since the epoch of the recording.
    pub begun: i64,
    pub ended: i64,
    /// Its name, without `sys_`.
    pub name: String,
    pub arguments: Vec<Argument>,
    /// The value that it returned; below 0 it failed.
    pub result: i64,
    /// Whether the recording has its end; else `ended` is its begin, and it lasted until its thread's next call at most.
    pub timed: bool,
    /// The path that `-y` puts behind the descriptor that it returned.
    pub opened: Option<String>,
}

impl Call {
    /// The integer of an argument.
    pub fn number(&self, at: usize) -> Option<i64> {
        self.arguments.get(at)?.number()
    }

    /// The string of an argument.
    pub fn text(&self, at: usize) -> Option<String> {
        match self.arguments.get(at)? {
            Argument::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
            Argument::Word(_) => None,
        }
    }

    /// Whether an argument has a flag of this name.
    pub fn has_flag(&self, at: usize, flag: &str) -> bool {
        let words = self.arguments.get(at).and_then(Argument::word).unwrap_or_default();
        words.split(['|', ' ', '{', '}', ',', '=']).any(|word| word == flag)
    }
}
