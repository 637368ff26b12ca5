//! Helpers for TOML files: access to built-in files, and parsing with line numbers in errors.

use emmclab_base::{Error, ErrorClass, Result};
use serde::de::DeserializeOwned;

/// Parses a value from the text of a TOML file.
/// Errors: [`ErrorClass::Config`] with the line of the fault and the text `hint` as hint.
pub(crate) fn from_toml<T: DeserializeOwned>(text: &str, hint: &str) -> Result<T> {
    toml::from_str(text).map_err(|error| {
        let fault = Error::new(ErrorClass::Config, error.message().replace("unknown variant", "unknown name")).hint(hint);
        match error.span().and_then(|span| text.get(..span.start)) {
            Some(before) => fault.at_line(before.matches('\n').count() as u64 + 1),
            None => fault,
        }
    })
}

/// Returns the text of a built-in file; its name is not case-sensitive. Error messages use `sort`, the kind of file, such as `host`.
/// Errors: [`ErrorClass::Config`] if there is no such file; the hint lists all files.
pub(crate) fn preset(sort: &str, known: &[(&str, &'static str)], name: &str) -> Result<&'static str> {
    let preset = known.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    preset.map(|(_, text)| *text).ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
        Error::new(ErrorClass::Config, format!("there is no {sort} `{name}`"))
            .hint(format!("choose one of the {sort}s: {}; or give a TOML file", names.join(", ")))
    })
}
