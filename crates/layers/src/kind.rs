//! A kind of layer: its name, its settings, and its constructor.

use emmclab_base::{Error, Kind as ErrorKind, Result};
use serde::de::DeserializeOwned;
use toml::Table;

use crate::layer::{Below, Layer};
use crate::setting::Setting;

/// A layer that can be named.
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// Its function, in a few words.
    pub about: &'static str,
    /// Every setting, with default, unit and meaning.
    pub settings: fn() -> Vec<Setting>,
    /// Makes it for the disks below.
    pub(crate) build: fn(&Table, &Below) -> Result<Box<dyn Layer>>,
}

/// Reads the settings of a layer from their table; absent ones have their defaults.
pub(crate) fn read_settings<T: DeserializeOwned>(layer: &str, table: &Table) -> Result<T> {
    table.clone().try_into().map_err(|error: toml::de::Error| {
        let problem = error.message().replace("unknown field", "unknown setting");
        Error::new(ErrorKind::Config, format!("layer `{layer}`: {problem}"))
            .hint(format!("give a setting of this layer as --set {layer}.NAME=VALUE"))
    })
}
