//! A kind of layer: its name, its settings, and how it is made of them.

use emmclab_base::{Error, Kind as ErrorKind, Result};
use serde::de::DeserializeOwned;
use toml::Table;

use crate::knobs::Knob;
use crate::layer::{Below, Layer};

/// A layer that can be named.
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a few words.
    pub about: &'static str,
    /// Every setting, with default, unit and meaning.
    pub knobs: fn() -> Vec<Knob>,
    /// Makes it for the disks below.
    pub(crate) build: fn(&Table, &Below) -> Result<Box<dyn Layer>>,
}

/// The settings of a layer from their table; what it does not say has its default.
pub(crate) fn settings<T: DeserializeOwned>(layer: &str, table: &Table) -> Result<T> {
    table.clone().try_into().map_err(|error: toml::de::Error| {
        let problem = error.message().to_owned();
        Error::new(ErrorKind::Config, format!("layer `{layer}`: {problem}"))
            .hint(format!("a setting of this layer is given as --set {layer}.NAME=VALUE"))
    })
}
