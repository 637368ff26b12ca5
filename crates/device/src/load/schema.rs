//! Finds all unknown keys and wrong types at once; serde stops at the first.

use std::sync::LazyLock;

use emmclab_base::closest;
use serde_json::{Map, Value as Json};
use toml::{Table, Value};

use super::faults::{most, range, whole_numbers};
use super::registries;
use emmclab_settings::DeviceSettings;

/// The schema, made once: it takes two milliseconds, and `DeviceConfig::explain` needs it each time.
static SCHEMA: LazyLock<Json> = LazyLock::new(|| {
    let mut schema = DeviceSettings::json_schema();
    registries::describe(&mut schema);
    schema
});

/// The JSON Schema of a device file.
pub fn json_schema() -> &'static Json {
    &SCHEMA
}

/// All mismatches between `given` and the schema of the settings; removes unknown keys from `given`.
pub(super) fn faults(given: &mut Table) -> Vec<String> {
    let schema = json_schema();
    let mut faults = Vec::new();
    table("", given, schema, schema, &mut faults);
    faults
}

/// The definition that a `$ref` points to; a node without `$ref` itself.
pub(super) fn resolve<'a>(node: &'a Json, root: &'a Json) -> &'a Json {
    let target = node.get("$ref").and_then(Json::as_str).and_then(|path| path.strip_prefix("#/"));
    let found = target.and_then(|path| path.split('/').try_fold(root, |node, part| node.get(part)));
    found.unwrap_or(node)
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn table(path: &str, given: &mut Table, node: &Json, root: &Json, faults: &mut Vec<String>) {
    let none = Map::new();
    let known = node.get("properties").and_then(Json::as_object).unwrap_or(&none);
    given.retain(|key, value| {
        let path = join(path, key);
        if let Some(node) = known.get(key) {
            check(&path, value, resolve(node, root), root, faults);
            true
        } else {
            let guess = closest(key, known.keys().map(String::as_str));
            let parent = path.strip_suffix(key).unwrap_or_default();
            let guess = guess.map(|near| format!("; did you mean `{parent}{near}`?")).unwrap_or_default();
            faults.push(format!("there is no setting `{path}`{guess}"));
            false
        }
    });
}

/// Values that the setting with this dotted `key` allows: words, or a range; empty if every value of its type is allowed.
pub(super) fn allowed(key: &str, root: &Json) -> String {
    let node = key.split('.').fold(root, |node, part| {
        let next = match part.parse::<usize>() {
            Ok(_) => node.get("items"),
            Err(_) => node.get("properties").and_then(|all| all.get(part)),
        };
        resolve(next.unwrap_or(&Json::Null), root)
    });
    let words = words(node);
    if !words.is_empty() {
        return words.join(", ");
    }
    match node.get("type").and_then(Json::as_str) {
        Some("boolean") => "true, false".to_owned(),
        Some("integer") => {
            let least = node.get("minimum").and_then(Json::as_u64).unwrap_or(0);
            let most = node.get("maximum").and_then(Json::as_u64);
            most.map_or_else(|| whole_numbers(key), |most| range(least, most))
        }
        Some("number") => range(0, u64::from(most(key))),
        _ => String::new(),
    }
}

/// The words that an enumeration allows.
fn words(node: &Json) -> Vec<&str> {
    let plain = node.get("enum").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
    let variants = node.get("oneOf").and_then(Json::as_array).into_iter().flatten();
    let described = variants.flat_map(|variant| {
        let one = variant.get("const").and_then(Json::as_str).into_iter();
        let many = variant.get("enum").and_then(Json::as_array).into_iter().flatten();
        one.chain(many.filter_map(Json::as_str))
    });
    plain.chain(described).collect()
}

fn check(path: &str, value: &mut Value, node: &Json, root: &Json, faults: &mut Vec<String>) {
    let allowed = words(node);
    if !allowed.is_empty() {
        if value.as_str().is_none_or(|word| !allowed.contains(&word)) {
            faults.push(format!("`{path}` is {value}; it must be one of: {}", allowed.join(", ")));
        }
        return;
    }
    let wanted = node.get("type").and_then(Json::as_str).unwrap_or("object");
    match (wanted, value) {
        ("object", Value::Table(inner)) => table(path, inner, node, root, faults),
        ("array", Value::Array(items)) => {
            let item = node.get("items").map_or(&Json::Null, |item| resolve(item, root));
            for (index, value) in items.iter_mut().enumerate() {
                check(&join(path, &index.to_string()), value, item, root, faults);
            }
        }
        ("integer", Value::Integer(number)) => {
            let most = if node.get("format").and_then(Json::as_str) == Some("uint64") {
                i64::MAX
            } else {
                i64::from(u32::MAX)
            };
            if !(0..=most).contains(&*number) {
                faults.push(format!("`{path}` is {number}; it must be {}", range(0, most.cast_unsigned())));
            }
        }
        ("number", Value::Integer(_) | Value::Float(_))
        | ("boolean", Value::Boolean(_))
        | ("string", Value::String(_)) => {}
        (wanted, value) => {
            let wanted = match wanted {
                "object" => "a section",
                "array" => "a list",
                "integer" => "a whole number",
                "number" => "a number",
                "boolean" => "true or false",
                other => other,
            };
            faults.push(format!("`{path}` is {value} ({}); it must be {wanted}", value.type_str()));
        }
    }
}
