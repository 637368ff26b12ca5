//! TOML to typed values, with the line of a fault.

use emmclab_base::{Error, Kind, Result};
use serde::de::DeserializeOwned;

/// A value from the text of a TOML file.
///
/// # Errors
/// [`Kind::Config`] with the line and `hint`.
pub(crate) fn from_toml<T: DeserializeOwned>(text: &str, hint: &str) -> Result<T> {
    toml::from_str(text).map_err(|error| {
        let fault = Error::new(Kind::Config, error.message().to_owned()).hint(hint);
        match error.span().and_then(|span| text.get(..span.start)) {
            Some(before) => fault.at_line(before.matches('\n').count() as u64 + 1),
            None => fault,
        }
    })
}
