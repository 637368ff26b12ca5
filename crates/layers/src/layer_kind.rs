//! A kind of layer: its name, its settings, and its constructor.

use emmclab_base::{Error, ErrorClass as ErrorKind, Result};
use serde::de::DeserializeOwned;
use toml::Table;

use crate::layer::{DisksBelow, Layer};
use crate::layer_setting::LayerSetting;

/// A kind of layer that can be chosen by its name.
pub struct LayerKind {
    /// Its name.
    pub name: &'static str,
    /// Its function, in a few words.
    pub about: &'static str,
    /// Every setting, with default, unit and meaning.
    pub settings: fn() -> Vec<LayerSetting>,
    /// Creates the layer for the disks below.
    pub(crate) build: fn(&Table, &DisksBelow) -> Result<Box<dyn Layer>>,
}

/// Reads the settings of a layer from their table; missing ones get their defaults.
pub(crate) fn read_settings<T: DeserializeOwned>(layer: &str, table: &Table) -> Result<T> {
    table.clone().try_into().map_err(|error: toml::de::Error| {
        let problem = error.message().replace("unknown field", "unknown setting");
        Error::new(ErrorKind::Config, format!("layer `{layer}`: {problem}"))
            .hint(format!("give a setting of this layer as --set {layer}.NAME=VALUE"))
    })
}
