//! The registry of layers, their settings, and stacks of layers.

use emmclab_base::{Error, ErrorClass, Result};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value as JsonValue;
use toml::{Table, Value};

use crate::layer::{DisksBelow, Layer, ReservedArea};

const LAYERS: &[LayerKind] = &[
    crate::layer::PASS_THROUGH,
    crate::advil::KIND,
    crate::ressd::KIND,
    crate::pair::KIND,
    crate::nvm_buffer::KIND,
    crate::journal::KIND,
    crate::lfs::KIND,
];

/// Returns all layers. A new layer needs its own file and an entry here.
pub fn layers() -> &'static [LayerKind] {
    LAYERS
}

/// A kind of layer in the registry.
pub struct LayerKind {
    /// Name of the layer.
    pub name: &'static str,
    /// What the layer does, in a few words.
    pub about: &'static str,
    /// All settings, with default, unit and meaning.
    pub settings: fn() -> Vec<LayerSetting>,
    pub(crate) build: fn(&Table, &DisksBelow) -> Result<Box<dyn Layer>>,
}

/// Reads the settings of a layer from a table. Missing settings get their defaults.
pub(crate) fn read_settings<T: DeserializeOwned>(layer: &str, table: &Table) -> Result<T> {
    let invalid = |error: toml::de::Error| invalid_setting(layer, &error.message().replace("unknown field", "unknown setting"));
    table.clone().try_into().map_err(invalid)
}

/// The error for an invalid setting of a layer.
pub(crate) fn invalid_setting(layer: &str, problem: &str) -> Error {
    Error::new(ErrorClass::Config, format!("layer `{layer}`: {problem}"))
        .hint(format!("write a setting of this layer as --set {layer}.NAME=VALUE"))
}

/// A setting of a layer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LayerSetting {
    /// Name of the setting.
    pub name: String,
    /// Default; `None` if it is derived from the device or from other settings, as `about` explains.
    pub default: Option<JsonValue>,
    /// Unit, or permitted values.
    pub unit: String,
    /// Effect of the setting.
    pub about: String,
}

/// Returns all settings of a settings type, by name.
pub(crate) fn settings_of<T: JsonSchema + Serialize + Default>() -> Vec<LayerSetting> {
    let schema = schemars::schema_for!(T).to_value();
    let defaults = serde_json::to_value(T::default()).unwrap_or_default();
    let Some(properties) = schema["properties"].as_object() else { return Vec::new() };
    let setting = |(name, property): (&String, &JsonValue)| LayerSetting {
        name: name.clone(),
        default: Some(defaults[name].clone()).filter(|value| !value.is_null()),
        unit: unit(name, property, &schema),
        about: property["description"].as_str().unwrap_or_default().replace('\n', " "),
    };
    properties.iter().map(setting).collect()
}

fn unit(name: &str, property: &JsonValue, schema: &JsonValue) -> String {
    let kind = property["$ref"].as_str().and_then(|path| schema.pointer(path.trim_start_matches('#')));
    if let Some(choices) = kind.and_then(|kind| kind["oneOf"].as_array()) {
        let names: Vec<_> = choices.iter().filter_map(|choice| choice["const"].as_str()).collect();
        return names.join(", ");
    }
    match property["unit"].as_str() {
        Some(unit) => unit.to_owned(),
        None if property["type"] == "boolean" => "true, false".to_owned(),
        None if name.ends_with("_pct") => "%".to_owned(),
        None => String::new(),
    }
}

/// Name and settings of a layer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerConfig {
    /// Name of the layer.
    pub name: String,
    /// Settings; missing ones have their defaults.
    #[serde(default)]
    pub settings: Table,
}

impl LayerConfig {
    /// A layer with default settings.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), settings: Table::new() }
    }

    /// Returns the layer with an additional setting. The value is parsed as TOML; if that fails, it is used as a string.
    #[must_use]
    pub fn with(mut self, key: &str, value: &str) -> Self {
        let parsed = value.parse().unwrap_or_else(|_| Value::String(value.to_owned()));
        self.settings.insert(key.to_owned(), parsed);
        self
    }
}

/// Builds a stack of layers on the disks at the bottom. The first layer is on top.
/// Errors: [`ErrorClass::Config`] for an unknown layer or setting, an invalid value, overlapping areas, and a layer that reads notes but is
/// not the top one.
pub fn build_stack(configs: &[LayerConfig], bottom: &DisksBelow) -> Result<Vec<Box<dyn Layer>>> {
    let mut layers: Vec<Box<dyn Layer>> = Vec::new();
    let mut below = *bottom;
    let mut taken: Vec<(ReservedArea, String)> = Vec::new();
    for config in configs.iter().rev() {
        let name = &config.name;
        let kind = LAYERS.iter().find(|kind| kind.name == name).ok_or_else(|| {
            let names: Vec<_> = LAYERS.iter().map(|kind| kind.name).collect();
            Error::new(ErrorClass::Config, format!("there is no layer `{name}`"))
                .hint(format!("choose from the layers: {}", names.join(", ")))
        })?;
        let layer = (kind.build)(&config.settings, &below)?;
        // Disk 0 is different for each layer, but disk 1 is the same second device for all, so reserved areas on it must not overlap.
        for area in layer.areas().into_iter().filter(|area| area.disk == 1) {
            let meets =
                |other: &ReservedArea| area.sector < other.sector + other.sectors && other.sector < area.sector + area.sectors;
            if let Some((_, other)) = taken.iter().find(|(other, _)| meets(other)) {
                return Err(Error::new(
                    ErrorClass::Config,
                    format!("layers `{name}` and `{other}` reserve overlapping areas on the second device"),
                )
                .hint("move the reserved area of one layer with its setting `reserved_at`"));
            }
            taken.push((area, name.clone()));
        }
        // A layer has neither zones nor an erase unit to which the layer above it could align.
        below = DisksBelow { main: layer.capacity(), erase_sectors: 0, zones: None, ..below };
        layers.push(layer);
    }
    layers.reverse();
    if let Some(below) = layers.iter().skip(1).find(|layer| layer.reads_notes()) {
        let name = below.name();
        return Err(Error::new(ErrorClass::Config, format!("layer `{name}` must be the first layer"))
            .hint(format!("specify `{name}` before the other layers, because it must receive the writes of the file system")));
    }
    Ok(layers)
}

/// Whether a layer maps several host addresses to the same location of a device.
fn shares_places(layer: &LayerConfig) -> bool {
    let setting = |name: &str| layer.settings.get(name);
    layer.name == "pair"
        && (setting("wrap_addresses").is_some_and(|value| value.as_bool() == Some(true))
            || setting("routing").is_some_and(|value| value.as_str() == Some("by_size")))
}

/// Returns the layers with recovery enabled, for stored data, because a run may end with a power cut.
/// Errors: for layers that would lose data.
pub fn recoverable(configs: &[LayerConfig]) -> Result<Vec<LayerConfig>> {
    if configs.iter().any(shares_places) {
        return Err(Error::new(
            ErrorClass::Config,
            "with `wrap_addresses` or `routing = \"by_size\"`, the layer `pair` maps several addresses to one place, so contents \
             would overwrite each other",
        )
        .hint("set pair.wrap_addresses=false, and pair.routing to internal, striping or by_file"));
    }
    let mut all = configs.to_vec();
    let can_recover = |layer: &&mut LayerConfig| {
        let kind = layers().iter().find(|kind| kind.name == layer.name);
        kind.is_some_and(|kind| (kind.settings)().iter().any(|setting| setting.name == "recovery"))
    };
    for layer in all.iter_mut().filter(can_recover) {
        let Some(recovery) = layer.settings.get("recovery") else {
            *layer = layer.clone().with("recovery", "true");
            continue;
        };
        if recovery.as_bool() == Some(false) {
            let name = &layer.name;
            let problem = format!("`{name}.recovery` is false: the layer would lose all data at the end of the run");
            return Err(Error::new(ErrorClass::Config, problem).hint("leave out `recovery`: the layer recovers data by default"));
        }
    }
    Ok(all)
}

/// Counters of a layer, by name.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counts since the layer started. Byte counts include only data, not headers.
        #[derive(Clone, Debug, Default)]
        pub(super) struct LayerCounters {
            $($(#[$doc])* pub $name: u64),*
        }

        impl LayerCounters {
            /// Returns the counts since the counters had the values `earlier`, by name.
            pub fn since(&self, earlier: &Self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name - earlier.$name)),*]
            }
        }
    };
}
pub(crate) use counters;

/// Faults of a layer's settings, which are reported together.
pub(crate) struct SettingFaults {
    layer: &'static str,
    faults: Vec<String>,
}

impl SettingFaults {
    pub fn of(layer: &'static str) -> Self {
        Self { layer, faults: Vec::new() }
    }

    /// Adds a fault if `good` is false.
    pub fn need(&mut self, good: bool, fault: String) {
        if !good {
            self.faults.push(fault);
        }
    }

    /// Returns an error if there are faults.
    pub fn check(&self) -> Result<()> {
        let Self { layer, faults } = self;
        match faults.as_slice() {
            [] => Ok(()),
            [fault] => Err(invalid_setting(layer, fault)),
            all => Err(invalid_setting(layer, &format!("there are {} faults:\n  - {}", all.len(), all.join("\n  - ")))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_a_unit_and_a_meaning_and_where_it_has_no_default_says_so() {
        for kind in layers() {
            for setting in (kind.settings)() {
                assert!(!setting.unit.is_empty() && setting.about.ends_with('.'), "{setting:?}");
                assert_eq!(setting.default.is_none(), setting.about.to_lowercase().contains("default"), "{setting:?}");
            }
        }
    }
}
