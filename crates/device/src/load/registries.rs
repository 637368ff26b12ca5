//! The settings that name a policy, and the options of each policy.

use serde_json::{Map, Value as Json, json};
use toml::{Table, Value};

use super::faults::{SettingFaults, range};
use crate::ftl::{ALLOCATION_POLICIES, gc, scheme_kinds};
use emmclab_settings::{DeviceSettings, PolicyDescription, PolicyOptions};

/// A setting that names one of several policies, and the options of the chosen policy.
struct PolicyRegistry<'a> {
    /// Section of the settings, and its name in the schema.
    section: &'static str,
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

/// Finds unknown names, options that belong only to policies that are not chosen, and values out of range.
pub(super) fn faults(settings: &DeviceSettings, faults: &mut SettingFaults) {
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
            // A key that no policy has is found by the check of the schema.
            if !owners.is_empty() {
                faults.add(format!(
                    "`{section}.{option}` is a setting of {section}.{key} = {}; \"{chosen}\" has no such setting",
                    owners.join(", ")
                ));
            }
        }
    }
}

/// If `given` names another policy than `before`, removes the settings of the previous policy, unless the new policy has them too
/// or their keys are among `said`, the given ones. Returns the removed keys.
pub(super) fn remove_stale_options(given: &mut Table, before: &DeviceSettings, said: &[String]) -> Vec<String> {
    let mut left = Vec::new();
    for registry in registries(before) {
        let Some(Value::Table(section)) = given.get_mut(registry.section) else { continue };
        let named = section.get(registry.key).and_then(Value::as_str).filter(|name| *name != registry.chosen);
        let kind_of = |name: &str| registry.kinds.iter().find(|kind| kind.name == name);
        let Some((kind, former)) = named.and_then(kind_of).zip(kind_of(registry.chosen)) else { continue };
        let has = |kind: &PolicyDescription, key: &str| kind.settings.iter().any(|setting| setting.key == key);
        section.retain(|key, _| {
            let path = format!("{}.{key}", registry.section);
            let stays = !has(former, key) || has(kind, key) || said.contains(&path);
            if !stays {
                left.push(path);
            }
            stays
        });
    }
    left
}

/// Whether there are options that no policy has.
pub(super) fn has_unknown_options(settings: &DeviceSettings) -> bool {
    registries(settings).iter().any(|registry| {
        let known =
            |option: &String| registry.kinds.iter().flat_map(|kind| kind.settings).any(|setting| setting.key == option);
        !registry.options.keys().all(known)
    })
}

/// Sets missing options of the chosen policies to their defaults.
pub(super) fn fill(settings: &mut DeviceSettings) {
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

/// Adds the names of policies and their settings to the schema, in which the plain types are only a string and a map.
pub(super) fn describe(schema: &mut Json) {
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
        // The description of a setting that several policies share names all of them.
        let before = entry["description"].as_str().unwrap_or("").to_owned();
        let names = before.strip_suffix(&format!(": {}", setting.about));
        let names = names.map_or_else(|| format!("`{}`", kind.name), |names| format!("{names}, `{}`", kind.name));
        entry["description"] = format!("{names}: {}", setting.about).into();
        if entry["minimum"].as_u64().is_some_and(|other| least < other) {
            entry["minimum"] = least.into();
        }
    }
}
