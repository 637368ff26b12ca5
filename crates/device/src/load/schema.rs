//! The schema of the settings. It finds all unknown keys and wrong types at once (serde stops at the first), explains each setting, and
//! lists the settings that select a policy, with the options of each policy.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use emmclab_base::closest;
use emmclab_settings::{BlockGroup, DeviceSettings, PageType, PolicyDescription, PolicyOptions};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value as Json, json};
use toml::{Table, Value};

use super::validate::{SettingFaults, most, range, whole_numbers};
use crate::ftl::{ALLOCATION_POLICIES, gc, scheme_kinds};

/// The schema, created once, because this takes two milliseconds and each `DeviceConfig::explain` needs it.
static SCHEMA: LazyLock<Json> = LazyLock::new(|| {
    let mut schema = DeviceSettings::json_schema();
    describe(&mut schema);
    schema
});

/// The JSON Schema of a device file.
pub fn json_schema() -> &'static Json {
    &SCHEMA
}

/// All mismatches between `input` and the schema of the settings; removes unknown keys from `input`.
pub(super) fn faults(input: &mut Table) -> Vec<String> {
    let schema = json_schema();
    let mut faults = Vec::new();
    table("", input, schema, schema, &mut faults);
    faults
}

/// The definition to which a `$ref` points, or the node itself if it has no `$ref`.
fn resolve<'a>(node: &'a Json, root: &'a Json) -> &'a Json {
    let target = node.get("$ref").and_then(Json::as_str).and_then(|path| path.strip_prefix("#/"));
    let definition = target.and_then(|path| path.split('/').try_fold(root, |node, part| node.get(part)));
    definition.unwrap_or(node)
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn table(path: &str, input: &mut Table, node: &Json, root: &Json, faults: &mut Vec<String>) {
    let none = Map::new();
    let known = node.get("properties").and_then(Json::as_object).unwrap_or(&none);
    input.retain(|key, value| {
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

/// Permitted values of the setting with this dotted `key`: words, or a range; empty if every value of its type is permitted.
fn allowed(key: &str, root: &Json) -> String {
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

/// The permitted words of an enumeration.
fn words(node: &Json) -> Vec<&str> {
    let plain = node.get("enum").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
    let variants = node.get("oneOf").and_then(Json::as_array).into_iter().flatten();
    let described = variants.flat_map(|variant| {
        let single = variant.get("const").and_then(Json::as_str).into_iter();
        let many = variant.get("enum").and_then(Json::as_array).into_iter().flatten();
        single.chain(many.filter_map(Json::as_str))
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
            let most = if node.get("format").and_then(Json::as_str) == Some("uint64") { i64::MAX } else { i64::from(u32::MAX) };
            if !(0..=most).contains(&*number) {
                faults.push(format!("`{path}` is {number}; it must be {}", range(0, most.cast_unsigned())));
            }
        }
        ("number", Value::Integer(_) | Value::Float(_)) | ("boolean", Value::Boolean(_)) | ("string", Value::String(_)) => {}
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

/// One setting with its explanation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SettingExplanation {
    /// Path of the setting, as `set` accepts it.
    pub key: String,
    /// Value as TOML.
    pub value: String,
    /// Unit; empty for words and counts.
    pub unit: &'static str,
    /// Origin of the value: a preset, a file, `--set`, or `default`.
    pub origin: String,
    /// Default as TOML; `None` without a default, such as for an entry of a list.
    pub default: Option<String>,
    /// Meaning of the setting.
    pub doc: String,
    /// Permitted words, or range; empty if neither is declared.
    pub allowed: String,
}

/// Whether a pattern matches the dotted path of a setting. A pattern is the whole path, the start of the path if the pattern ends with a
/// dot (`host.`), or the end of the path if the pattern starts with an underscore (`_uj`).
pub(crate) fn fits(pattern: &str, key: &str) -> bool {
    key == pattern || (pattern.ends_with('.') && key.starts_with(pattern)) || (pattern.starts_with('_') && key.ends_with(pattern))
}

/// All values with their dotted paths, in the order of the file.
pub(super) fn leaves(value: &Value) -> Vec<(String, Value)> {
    let inner: Vec<(String, &Value)> = match value {
        Value::Table(table) => table.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Array(items) if !items.is_empty() => items.iter().enumerate().map(|(i, value)| (i.to_string(), value)).collect(),
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
    const UNITS: [(&str, &str); 10] = [
        ("_uj_per_kb", "uJ/KB"),
        ("_us_per_kb", "us/KB"),
        ("_ns_per_byte", "ns/byte"),
        ("_us", "us"),
        ("_ns", "ns"),
        ("_kb", "KB"),
        ("_pct", "%"),
        ("_uj", "uJ"),
        ("_mw", "mW"),
        ("days", "days"),
    ];
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
        // A list item without its own description gets the description of the list.
        let own = node.get("description").and_then(Json::as_str);
        text = own.unwrap_or(if part.parse::<usize>().is_ok() { text } else { "" });
        node = resolve(node, schema);
    }
    text.replace('\n', " ")
}

/// Default values by path, for a device with this number of block groups.
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

/// A setting that selects a policy, and the options of the selected policy.
struct PolicyRegistry<'a> {
    /// Section of the settings.
    section: &'static str,
    /// Name of the section in the schema.
    schema: &'static str,
    key: &'static str,
    chosen: &'a str,
    options: &'a PolicyOptions,
    kinds: Vec<PolicyDescription>,
}

const NO_COLLECTION: PolicyDescription = PolicyDescription { name: gc::NONE, about: "No collection.", settings: &[] };

fn registries(settings: &DeviceSettings) -> [PolicyRegistry<'_>; 3] {
    let DeviceSettings { gc: collection, allocation, mapping, .. } = settings;
    [
        PolicyRegistry {
            section: "gc",
            schema: "GcSettings",
            key: "policy",
            chosen: &collection.policy,
            options: &collection.options,
            kinds: std::iter::once(NO_COLLECTION).chain(gc::POLICIES.iter().map(|policy| policy.kind)).collect(),
        },
        PolicyRegistry {
            section: "allocation",
            schema: "AllocationSettings",
            key: "policy",
            chosen: &allocation.policy,
            options: &allocation.options,
            kinds: ALLOCATION_POLICIES.to_vec(),
        },
        PolicyRegistry {
            section: "mapping",
            schema: "MappingSettings",
            key: "scheme",
            chosen: &mapping.scheme,
            options: &mapping.options,
            kinds: scheme_kinds().collect(),
        },
    ]
}

/// Finds unknown names, options that belong only to policies that are not selected, and values out of range.
pub(super) fn policy_faults(settings: &DeviceSettings, faults: &mut SettingFaults) {
    for registry in registries(settings) {
        let PolicyRegistry { section, key, chosen, options, ref kinds, .. } = registry;
        let Some(kind) = kinds.iter().find(|kind| kind.name == chosen) else {
            let names: Vec<_> = kinds.iter().map(|kind| kind.name).collect();
            faults.add(format!("`{section}.{key}` is \"{chosen}\"; it must be one of: {}", names.join(", ")));
            continue;
        };
        for (option, value) in options {
            if let Some(setting) = kind.settings.iter().find(|setting| setting.key == option) {
                let (least, most) = setting.range;
                if !(least..=most).contains(value) {
                    faults.add(format!("`{section}.{option}` is {value}; it must be {}", range(least, most)));
                }
                continue;
            }
            let owns = |kind: &&PolicyDescription| kind.settings.iter().any(|setting| setting.key == option);
            let owners: Vec<_> = kinds.iter().filter(owns).map(|kind| kind.name).collect();
            // The schema check reports keys that no policy has.
            if !owners.is_empty() {
                faults.add(format!(
                    "`{section}.{option}` is a setting of {section}.{key} = {}; \"{chosen}\" has no such setting",
                    owners.join(", ")
                ));
            }
        }
    }
}

/// Removes settings of the previous policy from `input` if `input` selects another policy than `before`. Keeps settings that the new policy
/// has as well, and settings whose keys are in `changed`. Returns the removed keys.
pub(super) fn remove_stale_options(input: &mut Table, before: &DeviceSettings, changed: &[String]) -> Vec<String> {
    let mut left = Vec::new();
    for registry in registries(before) {
        let Some(Value::Table(section)) = input.get_mut(registry.section) else { continue };
        let named = section.get(registry.key).and_then(Value::as_str).filter(|name| *name != registry.chosen);
        let kind_of = |name: &str| registry.kinds.iter().find(|kind| kind.name == name);
        let Some((kind, former)) = named.and_then(kind_of).zip(kind_of(registry.chosen)) else { continue };
        let has = |kind: &PolicyDescription, key: &str| kind.settings.iter().any(|setting| setting.key == key);
        section.retain(|key, _| {
            let path = format!("{}.{key}", registry.section);
            let stays = !has(former, key) || has(kind, key) || changed.contains(&path);
            if !stays {
                left.push(path);
            }
            stays
        });
    }
    left
}

/// Whether there are options that belong to no policy.
pub(super) fn has_unknown_options(settings: &DeviceSettings) -> bool {
    registries(settings).iter().any(|registry| {
        let known = |option: &String| registry.kinds.iter().flat_map(|kind| kind.settings).any(|setting| setting.key == option);
        !registry.options.keys().all(known)
    })
}

/// Sets missing options of the selected policies to their defaults, and the times of a block group with page types to their means.
pub(super) fn fill(settings: &mut DeviceSettings) {
    for group in &mut settings.geometry.block_groups {
        let types = &group.page_types;
        group.read_us = PageType::mean(types, |page| page.read_us).unwrap_or(group.read_us);
        group.program_us = PageType::mean(types, |page| page.program_us).unwrap_or(group.program_us);
    }
    let defaults = registries(settings).map(|registry| {
        let kind = registry.kinds.iter().find(|kind| kind.name == registry.chosen);
        kind.map_or(&[][..], |kind| kind.settings)
    });
    let all = [&mut settings.gc.options, &mut settings.allocation.options, &mut settings.mapping.options];
    for (options, settings) in all.into_iter().zip(defaults) {
        for setting in settings {
            options.entry(setting.key.to_owned()).or_insert(setting.default);
        }
    }
}

/// Adds the names and settings of policies to the schema, because the Rust type of a policy is only a string and a map.
fn describe(schema: &mut Json) {
    for registry in registries(&DeviceSettings::default()) {
        let Some(section) = schema.get_mut("$defs").and_then(|defs| defs.get_mut(registry.schema)) else {
            continue;
        };
        if let Some(section) = section.as_object_mut() {
            section.insert("additionalProperties".into(), false.into());
        }
        let Some(properties) = section.get_mut("properties").and_then(Json::as_object_mut) else { continue };
        let word = |kind: &PolicyDescription| json!({"type": "string", "const": kind.name, "description": kind.about});
        if let Some(choice) = properties.get_mut(registry.key).and_then(Json::as_object_mut) {
            choice.remove("type");
            choice.insert("oneOf".into(), registry.kinds.iter().map(word).collect());
        }
        for kind in &registry.kinds {
            describe_options(kind, properties);
        }
    }
}

fn describe_options(kind: &PolicyDescription, properties: &mut Map<String, Json>) {
    for setting in kind.settings {
        let (least, most) = setting.range;
        let format = if most > u64::from(u32::MAX) { "uint64" } else { "uint32" };
        let entry = properties.entry(setting.key).or_insert_with(|| {
            json!({"type": "integer", "format": format, "default": setting.default,
                "minimum": least, "maximum": most, "description": ""})
        });
        // If several policies share a setting, its description lists all these policies.
        let before = entry["description"].as_str().unwrap_or("").to_owned();
        let names = before.strip_suffix(&format!(": {}", setting.about));
        let names = names.map_or_else(|| format!("`{}`", kind.name), |names| format!("{names}, `{}`", kind.name));
        entry["description"] = format!("{names}: {}", setting.about).into();
        if entry["minimum"].as_u64().is_some_and(|other| least < other) {
            entry["minimum"] = least.into();
        }
    }
}
