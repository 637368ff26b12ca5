//! Results of the core as JSON.

use emmclab_trace::{Error, ErrorClass};
use serde::Serialize;

/// JSON of a result of the core.
pub(crate) fn to_json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::new(ErrorClass::Unsupported, error.to_string()))
}
