//! The settings of a layer as people look them up: name, default, unit, meaning; all from the type that reads them.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// A setting of a layer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Knob {
    /// Its name.
    pub name: String,
    /// Its default; `None` where it is worked out from the device or from other settings, as `about` says.
    pub default: Option<Value>,
    /// Its unit, or the values there are.
    pub unit: String,
    /// What it does.
    pub about: String,
}

/// Every setting of a type, by name.
pub(crate) fn knobs<T: JsonSchema + Serialize + Default>() -> Vec<Knob> {
    let schema = schemars::schema_for!(T).to_value();
    let defaults = serde_json::to_value(T::default()).unwrap_or_default();
    let Some(properties) = schema["properties"].as_object() else { return Vec::new() };
    let knob = |(name, property): (&String, &Value)| Knob {
        name: name.clone(),
        default: Some(defaults[name].clone()).filter(|value| !value.is_null()),
        unit: unit(name, property, &schema),
        about: property["description"].as_str().unwrap_or_default().replace('\n', " "),
    };
    properties.iter().map(knob).collect()
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
            for knob in (kind.knobs)() {
                assert!(!knob.unit.is_empty() && knob.about.ends_with('.'), "{knob:?}");
                assert_eq!(knob.default.is_none(), knob.about.contains("by default"), "{knob:?}");
            }
        }
    }
}
