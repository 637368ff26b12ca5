//! A kind of layer: its name, its settings, and its constructor.

use emmclab_base::{Error, Kind as ErrorKind, Result};
use serde::de::DeserializeOwned;
use toml::Table;

use crate::layer::{Below, Layer};
use crate::setting::Setting;

/// A kind of layer that can be chosen by its name.
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// Its function, in a few words.
    pub about: &'static str,
    /// Every setting, with default, unit and meaning.
    pub settings: fn() -> Vec<Setting>,
    /// Creates the layer for the disks below.
    pub(crate) build: fn(&Table, &Below) -> Result<Box<dyn Layer>>,
}

/// Reads the settings of a layer from their table; missing ones get their defaults.
pub(crate) fn read_settings<T: DeserializeOwned>(layer: &str, table: &Table) -> Result<T> {
    table.clone().try_into().map_err(|error: toml::de::Error| {
        let problem = error.message().replace("unknown field", "unknown setting");
        Error::new(ErrorKind::Config, format!("layer `{layer}`: {problem}"))
            .hint(format!("give a setting of this layer as --set {layer}.NAME=VALUE"))
    })
}
