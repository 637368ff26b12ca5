//! The lines of a job file: sections and the options in them.

use emmclab_trace::{Error, ErrorClass, Result};

use super::units::{KbBase, bytes, flag, time};

/// An option as written in a job file.
pub(super) struct FioOption {
    pub line: u64,
    pub name: String,
    pub value: Option<String>,
    pub base: KbBase,
}

/// A section with its options.
pub(super) struct FioSection {
    pub line: u64,
    pub name: String,
    pub options: Vec<FioOption>,
}

impl FioOption {
    /// The text after `=`; empty if there is none.
    pub fn text(&self) -> &str {
        self.value.as_deref().unwrap_or("")
    }

    /// The error of this option: its line, name and value with a problem.
    pub fn invalid_option(&self, problem: &str) -> Error {
        Error::new(ErrorClass::Config, problem).of_field(&self.name, 0, self.text().as_bytes()).at_line(self.line)
    }

    /// The value, parsed by `read`.
    ///
    /// # Errors
    /// [`ErrorClass::Config`] if `read` returns `None`; `what` names the expected kind of value.
    pub fn read<T>(&self, read: impl Fn(&str) -> Option<T>, what: &str) -> Result<T> {
        let error = || match self.text() {
            text if text.starts_with('(') => self
                .invalid_option("is an expression, which is not calculated here")
                .hint("write its result into the job file"),
            text if text.ends_with('%') => self
                .invalid_option("is a share of a file's size, which is not known here")
                .hint("give a number of bytes, such as 512m"),
            text if text.ends_with('z') => self
                .invalid_option("is a number of zones, whose size is not known here")
                .hint("give a number of bytes, such as 512m"),
            _ => self.invalid_option(&format!("is not {what}")),
        };
        read(self.text()).ok_or_else(error)
    }

    pub fn bytes(&self) -> Result<u64> {
        self.read(|text| bytes(text, self.base), "a number of bytes, for example 4k or 1g")
    }

    pub fn number(&self) -> Result<u64> {
        self.read(|text| text.parse().ok(), "a whole number")
    }

    /// A whole number of at least 1.
    pub fn count(&self) -> Result<u64> {
        let value = self.number()?;
        if value == 0 { Err(self.invalid_option("is 0")) } else { Ok(value) }
    }

    pub fn percent(&self) -> Result<u64> {
        let value = self.number()?;
        if value > 100 { Err(self.invalid_option("is more than 100 percent")) } else { Ok(value) }
    }

    pub fn flag(&self) -> Result<bool> {
        flag(self.value.as_deref()).ok_or_else(|| self.invalid_option("is neither 0 nor 1"))
    }

    /// A time in nanoseconds; a number alone counts units of `usual` ns.
    pub fn time(&self, usual: u64) -> Result<u64> {
        self.read(|text| time(text, usual), "a time, for example 10s or 500ms")
    }
}

/// The sections of a job file; `variable` returns the value of `${NAME}`.
///
/// # Errors
/// [`ErrorClass::Syntax`] and [`ErrorClass::Config`] with the line that cannot be read.
pub(super) fn sections(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Vec<FioSection>> {
    let mut found: Vec<FioSection> = Vec::new();
    for (line, text) in (1_u64..).zip(text.lines()) {
        let text = without_comment(text);
        if text.is_empty() {
            continue;
        }
        if let Some(name) = text.strip_prefix('[') {
            let (name, _) = name.split_once(']').ok_or_else(|| {
                Error::new(ErrorClass::Syntax, "has no bracket at its end")
                    .of_field("section", 0, text.as_bytes())
                    .at_line(line)
                    .hint("write the name of a job in brackets, as [job]")
            })?;
            found.push(FioSection { line, name: name.to_owned(), options: Vec::new() });
            continue;
        }
        let given = option_of(text, line, variable)?;
        let Some(section) = found.last_mut() else {
            return Err(given
                .invalid_option("is before the first section")
                .hint("begin the job file with [global] or [NAME]"));
        };
        section.options.push(given);
    }
    set_base(&mut found)?;
    Ok(found)
}

/// The text of a line up to a comment, without blanks around it.
fn without_comment(text: &str) -> &str {
    let end = text.find([';', '#']).unwrap_or(text.len());
    text[..end].trim()
}

fn option_of(text: &str, line: u64, variable: &dyn Fn(&str) -> Option<String>) -> Result<FioOption> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => match text.split_once(char::is_whitespace) {
            Some(("include", path)) => ("include", Some(path.trim())),
            _ => (text, None),
        },
    };
    let mut given = FioOption { line, name: name.to_owned(), value: None, base: KbBase::Binary };
    given.value = value.map(|value| with_variables(&given, value, variable)).transpose()?;
    Ok(given)
}

/// The value with `${NAME}` replaced, as fio replaces variables of the environment.
fn with_variables(given: &FioOption, value: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String> {
    let bad = |problem: String| {
        Error::new(ErrorClass::Config, problem).of_field(&given.name, 0, value.as_bytes()).at_line(given.line)
    };
    let (mut out, mut rest) = (String::new(), value);
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let name = after.strip_prefix('{').and_then(|after| after.split_once('}'));
        let Some((name, after)) = name else {
            return Err(bad("contains a word of fio that begins with `$`, which is not replaced here".to_owned())
                .hint("write its value into the job file"));
        };
        let Some(found) = variable(name) else {
            return Err(bad(format!("contains the variable `{name}`, which is not set"))
                .hint(format!("set it, for example `{name}=VALUE emmclab synth --fio ...`")));
        };
        out.push_str(&found);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// Sets the base of the units of all options, from `kb_base`.
fn set_base(sections: &mut [FioSection]) -> Result<()> {
    let mut base = None;
    for given in sections.iter().flat_map(|section| &section.options).filter(|one| one.name == "kb_base") {
        let found = match given.text() {
            "1024" => KbBase::Binary,
            "1000" => KbBase::Si,
            _ => return Err(given.invalid_option("is neither 1024 nor 1000")),
        };
        if base.is_some_and(|base| base != found) {
            return Err(given
                .invalid_option("differs from that of an earlier section")
                .hint("give one kb_base, in [global]"));
        }
        base = Some(found);
    }
    for given in sections.iter_mut().flat_map(|section| &mut section.options) {
        given.base = base.unwrap_or(KbBase::Binary);
    }
    Ok(())
}
