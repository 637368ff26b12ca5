//! The error type of all crates: an error class for code that reacts to it, the location and value that caused it, and a hint for users.

use std::fmt;
use std::io::ErrorKind as Cause;
use std::path::{Path, PathBuf};

/// Classes of errors, so that code can react to an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The operating system reported an error.
    Io,
    /// The input contains no request.
    Empty,
    /// No known format matches the input, or the requested format does not exist.
    UnknownFormat,
    /// A record does not follow the syntax of the format.
    Syntax,
    /// A field has an impossible value.
    Value,
    /// Times or sizes are implausible in the unit that was assumed.
    Unit,
    /// Records are further out of order than the reader can sort.
    Order,
    /// The input ends in the middle of a record.
    Truncated,
    /// An option is unknown, missing or contradicts another.
    Config,
    /// The target format cannot store what the trace contains.
    Unsupported,
    /// The caller interrupted the work ([`crate::interrupt`]).
    Interrupted,
}

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error with its location. Callers add details as it is returned: a parser sets field and value, the reader sets file and line.
#[derive(Debug)]
pub struct Error(Box<ErrorDetails>);

#[derive(Debug)]
struct ErrorDetails {
    kind: ErrorClass,
    problem: String,
    file: Option<PathBuf>,
    line: Option<u64>,
    request: Option<u64>,
    offset: Option<u64>,
    column: Option<u64>,
    field: Option<String>,
    value: Option<String>,
    hint: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// A new error; `problem` is a phrase that begins with a small letter and has no full stop.
    pub fn new(kind: ErrorClass, problem: impl Into<String>) -> Self {
        Self(Box::new(ErrorDetails {
            kind,
            problem: problem.into(),
            file: None,
            line: None,
            request: None,
            offset: None,
            column: None,
            field: None,
            value: None,
            hint: None,
            source: None,
        }))
    }

    /// Creates an error for an I/O error on `path`. Its class is [`ErrorClass::Syntax`] if the contents of the file are invalid, otherwise
    /// [`ErrorClass::Io`]. If `error` wraps an [`Error`], this error is returned with the path.
    pub fn io(path: &Path, error: std::io::Error) -> Self {
        let error = match error.downcast::<Self>() {
            Ok(own) => return own.in_file(path),
            Err(error) => error,
        };
        let kind = if error.kind() == Cause::InvalidData { ErrorClass::Syntax } else { ErrorClass::Io };
        let problem = if error.kind() == Cause::NotFound { missing(path).to_owned() } else { error.to_string() };
        let mut out = Self::new(kind, problem.split(" (os error").next().unwrap_or_default()).in_file(path);
        out.0.source = Some(Box::new(error));
        out
    }

    /// Sets the file in which the error occurred, unless a callee has set it.
    #[must_use]
    pub fn in_file(mut self, path: &Path) -> Self {
        self.0.file.get_or_insert_with(|| path.to_owned());
        self
    }

    /// Sets the line of the error, counted from 1, unless a callee has set it.
    #[must_use]
    pub fn at_line(mut self, line: u64) -> Self {
        self.0.line.get_or_insert(line);
        self
    }

    /// Sets the number of the trace request that caused the error, counted from 1 in order of arrival, unless a callee has set it.
    #[must_use]
    pub fn at_request(mut self, request: u64) -> Self {
        self.0.request.get_or_insert(request);
        self
    }

    /// Sets the byte offset of the error in a binary file, unless a callee has set it.
    #[must_use]
    pub fn at_offset(mut self, offset: u64) -> Self {
        self.0.offset.get_or_insert(offset);
        self
    }

    /// Sets the field that caused the error, its column (counted from 1; 0 if not known) and its value. Long values are truncated.
    #[must_use]
    pub fn of_field(mut self, field: &str, column: u64, value: &[u8]) -> Self {
        self.0.field = Some(field.to_owned());
        self.0.column = (column > 0).then_some(column);
        let text = String::from_utf8_lossy(&value[..value.len().min(80)]).into_owned();
        self.0.value = Some(if value.len() > 80 { format!("{text}...") } else { text });
        self
    }

    /// Sets the field in which the error occurred. Used if the error has another cause than the value of the field.
    #[must_use]
    pub fn in_field(mut self, field: &str) -> Self {
        self.0.field = Some(field.to_owned());
        self
    }

    /// Sets the hint, which tells the user what to do, unless a callee has set it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint.get_or_insert_with(|| hint.into());
        self
    }

    /// The description of the problem, without location and value.
    #[must_use]
    pub fn problem(&self) -> &str {
        &self.0.problem
    }

    /// The class of the error.
    pub fn kind(&self) -> ErrorClass {
        self.0.kind
    }

    /// The file in which the error occurred, if known.
    pub fn file(&self) -> Option<&Path> {
        self.0.file.as_deref()
    }

    /// The line of the error, counted from 1, if known.
    pub fn line(&self) -> Option<u64> {
        self.0.line
    }

    /// The column of the field that caused the error, counted from 1, if known.
    pub fn column(&self) -> Option<u64> {
        self.0.column
    }

    /// The name of the field that caused the error, if known.
    pub fn field(&self) -> Option<&str> {
        self.0.field.as_deref()
    }

    /// The hint, if there is one; an error of the operating system always has one.
    pub fn hint_text(&self) -> Option<&str> {
        let cause = || self.0.source.as_deref()?.downcast_ref::<std::io::Error>().map(usual_hint);
        self.0.hint.as_deref().or_else(cause)
    }
}

/// The problem of a path that does not exist: the file or its folder is missing.
fn missing(path: &Path) -> &'static str {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if folder.is_none_or(Path::exists) { "file not found" } else { "folder not found" }
}

/// The hint for an error of the operating system if the caller set none.
fn usual_hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        Cause::NotFound => "check the path",
        Cause::PermissionDenied => "check the permissions of the file and its folder",
        Cause::StorageFull | Cause::QuotaExceeded => "free some space or write elsewhere; nothing was left behind",
        Cause::ReadOnlyFilesystem => "write elsewhere; this file system can only be read",
        Cause::IsADirectory => "name a file, not a folder",
        Cause::NotADirectory => "name a folder; a part of this path is a file",
        Cause::NotSeekable => "write it to a file first, and name that",
        Cause::InvalidFilename => "give it a shorter name",
        Cause::InvalidData => "check that it is the right file; a text has to be in UTF-8",
        _ => "check the path, and the disk or device that it is on",
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        if let Some(file) = &inner.file {
            write!(f, "{}", file.display())?;
            if let Some(line) = inner.line {
                write!(f, ":{line}")?;
            }
            write!(f, ": ")?;
        } else if let Some(line) = inner.line {
            write!(f, "line {line}: ")?;
        }
        if let Some(request) = inner.request {
            write!(f, "request {request}: ")?;
        }
        if let Some(offset) = inner.offset {
            write!(f, "byte {offset}: ")?;
        }
        match (inner.field.as_deref().filter(|field| !field.is_empty()), inner.column) {
            (Some(field), Some(column)) => write!(f, "field `{field}` (column {column}): ")?,
            (Some(field), None) => write!(f, "field `{field}`: ")?,
            (None, Some(column)) => write!(f, "column {column}: ")?,
            (None, None) => {}
        }
        if let Some(value) = inner.value.as_deref().filter(|value| !value.is_empty()) {
            write!(f, "`{}`: ", value.escape_debug())?;
        }
        write!(f, "{}", inner.problem)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
