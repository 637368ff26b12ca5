//! Results of the core as JSON, and options for it from JSON.

use emmclab_trace::{Error, Kind};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// JSON of a result of the core.
pub(crate) fn to_json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::new(Kind::Unsupported, error.to_string()))
}

/// Options of the core from JSON.
pub(crate) fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| {
        // The text is made by the Python package, so that a place in it means nothing to a user.
        let said = error.to_string();
        let problem = said.rsplit_once(" at line ").map_or(said.as_str(), |(problem, _)| problem);
        Error::new(Kind::Config, format!("an option is wrong: {problem}"))
    })
}
