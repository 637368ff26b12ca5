//! Workload models that come with the laboratory: the 18 applications and 7 combos of the IISWC 2015 paper (Zhou et al.), made
//! from what it publishes about them, and applications on a phone of 2022, fitted to public traces.

use std::collections::BTreeMap;

use emmclab_trace::{Error, ErrorClass, Result};

use crate::model::WorkloadModel;

macro_rules! presets {
    ($($group:literal { $($name:literal: $file:literal,)* })*) => {
        /// Groups, each with the names and texts of its models.
        const GROUPS: &[(&str, &[(&str, &str)])] = &[
            $(($group, &[
                $(($name, include_str!(concat!("../../../presets/workloads/", $file, ".toml"))),)*
            ]),)*
        ];
    };
}

presets! {
    "applications" {
        "Idle": "idle", "CallIn": "call_in", "CallOut": "call_out", "Booting": "booting", "Movie": "movie",
        "Music": "music", "AngryBirds": "angry_birds", "CameraVideo": "camera_video", "GoogleMaps": "google_maps",
        "Messaging": "messaging", "Twitter": "twitter", "Email": "email", "Facebook": "facebook", "Amazon": "amazon",
        "YouTube": "youtube", "Radio": "radio", "Installing": "installing", "WebBrowsing": "web_browsing",
    }
    "combos" {
        "Music/WB": "music_wb", "Radio/WB": "radio_wb", "Music/FB": "music_fb", "Radio/FB": "radio_fb",
        "Music/Msg": "music_msg", "Radio/Msg": "radio_msg", "FB/Msg": "fb_msg",
    }
    "phones" {
        "Telegram": "phones/telegram", "CallOfDuty": "phones/call_of_duty", "GenshinImpact": "phones/genshin_impact",
        "PUBG": "phones/pubg", "TelegramInstall": "phones/telegram_install",
        "CallOfDutyInstall": "phones/call_of_duty_install", "GenshinImpactInstall": "phones/genshin_impact_install",
        "PUBGInstall": "phones/pubg_install",
    }
}

/// Sources of parameters that all models of a group share, unless a model names its own.
const MADE_FROM: [(&str, &str); 2] = [
    ("applications", include_str!("../../../presets/workloads/made_from/applications.toml")),
    ("combos", include_str!("../../../presets/workloads/made_from/combos.toml")),
];

/// Groups of presets, each with its names: `applications` and `combos` as in the paper's tables, and `phones`.
pub fn groups() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    GROUPS.iter().map(|(group, models)| (*group, models.iter().map(|(name, _)| *name).collect()))
}

/// All names, group by group.
pub fn names() -> impl Iterator<Item = &'static str> {
    presets().map(|(_, name, _)| name)
}

/// Group, name and text of each preset.
fn presets() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    GROUPS.iter().flat_map(|(group, models)| models.iter().map(move |(name, text)| (*group, *name, *text)))
}

fn preset(name: &str) -> Result<(&'static str, &'static str)> {
    let found = presets().find(|(_, known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(group, _, text)| (group, text)).ok_or_else(|| {
        let known = names().collect::<Vec<_>>().join(", ");
        Error::new(ErrorClass::Config, format!("there is no workload `{name}`")).hint(format!("choose one of: {known}"))
    })
}

/// The text of a preset, with its comments. Case does not matter.
/// Errors: [`ErrorClass::Config`] if there is no such preset; the hint lists all presets.
pub fn text(name: &str) -> Result<&'static str> {
    preset(name).map(|(_, text)| text)
}

/// The model of a preset, with the sources that its group shares.
pub fn model(name: &str) -> Result<WorkloadModel> {
    let (group, text) = preset(name)?;
    let mut model = WorkloadModel::from_toml(text)?;
    if let Some((_, shared)) = MADE_FROM.iter().find(|(of, _)| *of == group) {
        let shared: BTreeMap<String, Vec<String>> =
            toml::from_str(shared).map_err(|error| Error::new(ErrorClass::Config, error.to_string()))?;
        for (key, sources) in shared {
            model.made_from.entry(key).or_insert(sources);
        }
    }
    Ok(model)
}
