//! Stacks of layers.

use emmclab_base::{Error, ErrorClass, Result};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::layer::{DisksBelow, Layer, ReservedArea};
use crate::registry::find;

/// A layer by name, with its settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerConfig {
    /// Name of the layer.
    pub name: String,
    /// Its settings; missing ones have their defaults.
    #[serde(default)]
    pub settings: Table,
}

impl LayerConfig {
    /// A layer with default settings.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), settings: Table::new() }
    }

    /// Returns the layer with a setting added. The value is parsed as TOML; if that fails, it is used as a string.
    #[must_use]
    pub fn with(mut self, key: &str, value: &str) -> Self {
        let parsed = value.parse().unwrap_or_else(|_| Value::String(value.to_owned()));
        self.settings.insert(key.to_owned(), parsed);
        self
    }
}

/// Builds a stack of layers on the disks at the bottom; the first layer is on top.
///
/// # Errors
/// [`ErrorClass::Config`] for an unknown layer or setting, an invalid value, areas that overlap, and a layer that reads notes but is not
/// the top one.
pub fn build_stack(configs: &[LayerConfig], bottom: &DisksBelow) -> Result<Vec<Box<dyn Layer>>> {
    let mut layers: Vec<Box<dyn Layer>> = Vec::new();
    let mut below = *bottom;
    let mut taken: Vec<(ReservedArea, String)> = Vec::new();
    for config in configs.iter().rev() {
        let layer = (find(&config.name)?.build)(&config.settings, &below)?;
        // Disk 0 differs for each layer; the second device is the same for all.
        for area in layer.areas().into_iter().filter(|area| area.disk == 1) {
            let meets = |other: &ReservedArea| {
                area.sector < other.sector + other.sectors && other.sector < area.sector + area.sectors
            };
            if let Some((_, other)) = taken.iter().find(|(other, _)| meets(other)) {
                return Err(Error::new(
                    ErrorClass::Config,
                    format!("layers `{}` and `{other}` claim the same place on the second device", config.name),
                )
                .hint("give one of them another place (reserved_at)"));
            }
            taken.push((area, config.name.clone()));
        }
        // A layer has neither zones nor an erase unit that the layer above it could align to.
        below = DisksBelow { main: layer.capacity(), erase_sectors: 0, zones: None, ..below };
        layers.push(layer);
    }
    layers.reverse();
    if let Some(below) = layers.iter().skip(1).find(|layer| layer.reads_notes()) {
        let name = below.name();
        return Err(Error::new(ErrorClass::Config, format!("layer `{name}` has to be the first one"))
            .hint(format!("name `{name}` before the others: it has to see what the file system writes")));
    }
    Ok(layers)
}
