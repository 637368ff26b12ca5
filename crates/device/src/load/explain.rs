//! Every setting with its value, unit, origin and meaning.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value as Json;
use toml::Value;

use super::schema::{allowed, json_schema, resolve};
use emmclab_settings::{BlockGroup, DeviceSettings};

/// One setting with its explanation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SettingExplanation {
    /// Its path, as `set` accepts it.
    pub key: String,
    /// Its value as TOML.
    pub value: String,
    /// Its unit; empty for words and counts.
    pub unit: &'static str,
    /// The origin of its value: a preset, a file, `--set`, or `default`.
    pub origin: String,
    /// Its default as TOML; `None` if it has no default, such as an entry of a list.
    pub default: Option<String>,
    /// Its meaning.
    pub doc: String,
    /// Its possible words, or its range; empty if neither is declared.
    pub allowed: String,
}

/// Whether a pattern fits the dotted path of a setting: it is the whole path, or its start if it ends with a dot (`host.`), or its end
/// if it starts with an underscore (`_uj`).
pub(crate) fn fits(pattern: &str, key: &str) -> bool {
    key == pattern
        || (pattern.ends_with('.') && key.starts_with(pattern))
        || (pattern.starts_with('_') && key.ends_with(pattern))
}

/// All values with their dotted paths, in the order of the file.
pub(super) fn leaves(value: &Value) -> Vec<(String, Value)> {
    let inner: Vec<(String, &Value)> = match value {
        Value::Table(table) => table.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Array(items) if !items.is_empty() => {
            items.iter().enumerate().map(|(i, value)| (i.to_string(), value)).collect()
        }
        leaf => return vec![(String::new(), leaf.clone())],
    };
    let mut out = Vec::new();
    for (key, value) in inner {
        for (rest, leaf) in leaves(value) {
            out.push((if rest.is_empty() { key.clone() } else { format!("{key}.{rest}") }, leaf));
        }
    }
    out
}

fn unit(key: &str) -> &'static str {
    const UNITS: [(&str, &str); 8] = [
        ("_uj_per_kb", "uJ/KB"),
        ("_us_per_kb", "us/KB"),
        ("_ns_per_byte", "ns/byte"),
        ("_us", "us"),
        ("_ns", "ns"),
        ("_kb", "KB"),
        ("_pct", "%"),
        ("_uj", "uJ"),
    ];
    if key.ends_with("_mw") {
        return "mW";
    }
    UNITS.iter().find(|(ending, _)| key.ends_with(ending)).map_or("", |(_, unit)| unit)
}

fn doc(key: &str, schema: &Json) -> String {
    let mut node = schema;
    let mut text = "";
    for part in key.split('.') {
        node = match part.parse::<usize>() {
            Ok(_) => node.get("items").unwrap_or(&Json::Null),
            Err(_) => node.get("properties").and_then(|all| all.get(part)).unwrap_or(&Json::Null),
        };
        // An item of a list has the description of the list, unless it has its own.
        let own = node.get("description").and_then(Json::as_str);
        text = own.unwrap_or(if part.parse::<usize>().is_ok() { text } else { "" });
        node = resolve(node, schema);
    }
    text.replace('\n', " ")
}

/// The default values by path, for a device with this number of block groups.
fn defaults(block_groups: usize) -> BTreeMap<String, String> {
    let mut settings = DeviceSettings::default();
    settings.geometry.block_groups = vec![BlockGroup::default(); block_groups];
    let values = Value::try_from(&settings).map(|value| leaves(&value)).unwrap_or_default();
    values.into_iter().map(|(key, value)| (key, value.to_string())).collect()
}

/// The rows in alphabetical order of their keys.
pub(super) fn rows(settings: &DeviceSettings, origins: &BTreeMap<String, String>) -> Vec<SettingExplanation> {
    let schema = json_schema();
    let Ok(value) = Value::try_from(settings) else { return Vec::new() };
    let defaults = defaults(settings.geometry.block_groups.len());
    leaves(&value)
        .into_iter()
        .map(|(key, value)| SettingExplanation {
            unit: unit(&key),
            origin: origins.get(&key).cloned().unwrap_or_else(|| "default".to_owned()),
            default: defaults.get(&key).cloned(),
            doc: doc(&key, schema),
            allowed: allowed(&key, schema),
            value: value.to_string(),
            key,
        })
        .collect()
}
