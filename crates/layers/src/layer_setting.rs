//! Settings of a layer with default, unit and description, generated from the type that reads them.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// A setting of a layer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LayerSetting {
    /// Its name.
    pub name: String,
    /// Its default; `None` if it is derived from the device or from other settings, which `about` explains.
    pub default: Option<Value>,
    /// Its unit, or its allowed values.
    pub unit: String,
    /// Its effect.
    pub about: String,
}

/// Every setting of a type, by name.
pub(crate) fn settings_of<T: JsonSchema + Serialize + Default>() -> Vec<LayerSetting> {
    let schema = schemars::schema_for!(T).to_value();
    let defaults = serde_json::to_value(T::default()).unwrap_or_default();
    let Some(properties) = schema["properties"].as_object() else { return Vec::new() };
    let setting = |(name, property): (&String, &Value)| LayerSetting {
        name: name.clone(),
        default: Some(defaults[name].clone()).filter(|value| !value.is_null()),
        unit: unit(name, property, &schema),
        about: property["description"].as_str().unwrap_or_default().replace('\n', " "),
    };
    properties.iter().map(setting).collect()
}

fn unit(name: &str, property: &Value, schema: &Value) -> String {
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

#[cfg(test)]
mod tests {
    use crate::layers;

    #[test]
    fn every_setting_has_a_unit_and_a_meaning_and_where_it_has_no_default_says_so() {
        for kind in layers() {
            for setting in (kind.settings)() {
                assert!(!setting.unit.is_empty() && setting.about.ends_with('.'), "{setting:?}");
                assert_eq!(setting.default.is_none(), setting.about.contains("by default"), "{setting:?}");
            }
        }
    }
}
