//! A recorded system call.

/// An argument as text; strings without their quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallArgument {
    /// A string, with its escapes resolved.
    Text(Vec<u8>),
    /// Anything else.
    Word(String),
}

impl CallArgument {
    /// The word; `None` for a string.
    pub fn word(&self) -> Option<&str> {
        match self {
            Self::Word(word) => Some(word),
            Self::Text(_) => None,
        }
    }

    /// The integer at the beginning, decimal or hexadecimal, such as `3` in `3</data/a>`.
    pub fn number(&self) -> Option<i64> {
        let word = self.word()?;
        let (sign, digits) = word.strip_prefix('-').map_or((1, word), |rest| (-1, rest));
        let (radix, digits) = digits.strip_prefix("0x").map_or((10, digits), |rest| (16, rest));
        let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
        let value = u64::from_str_radix(digits.get(..end)?, radix).ok()?;
        Some(sign * value as i64)
    }

    /// What strace's `-y` shows after a descriptor: `/data/a` in `3</data/a>`, `pipe:[5]` in `3<pipe:[5]>`.
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

/// A system call that has returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SystemCall {
    /// The thread id.
    pub thread: u32,
    /// Begin and end, in ns since the epoch of the recording.
    pub started_ns: i64,
    pub ended_ns: i64,
    /// The name, without `sys_`.
    pub name: String,
    pub arguments: Vec<CallArgument>,
    /// The return value; negative if the call failed.
    pub result: i64,
    /// Whether the end was recorded. Otherwise `ended` is the begin, and the call lasted at most until the thread's next call.
    pub timed: bool,
    /// The path that `-y` shows after the returned descriptor.
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
