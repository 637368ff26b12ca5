//! Workload models that are part of emmclab: the 18 applications and 7 combos of the IISWC 2015 paper (Zhou et al.), derived from the
//! published figures, and applications on a phone of 2022, fitted to public traces.

use std::collections::BTreeMap;

use emmclab_trace::{Error, ErrorClass, Result};

use crate::model::WorkloadModel;

macro_rules! presets {
    ($($group:literal { $($name:literal: $file:literal,)* })*) => {
        /// Groups of models; each model has a name and the text of its file.
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

/// Sources of parameters that all models of a group share; a model may list its own instead.
const MADE_FROM: [(&str, &str); 2] = [
    ("applications", include_str!("../../../presets/workloads/made_from/applications.toml")),
    ("combos", include_str!("../../../presets/workloads/made_from/combos.toml")),
];

/// The groups of workload presets, with the names of their presets: `applications` and `combos` as in the tables of IISWC 2015, and `phones`.
pub fn groups() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    GROUPS.iter().map(|(group, models)| (*group, models.iter().map(|(name, _)| *name).collect()))
}

/// The names of all presets, group by group.
pub fn names() -> impl Iterator<Item = &'static str> {
    presets().map(|(_, name, _)| name)
}

/// Group, name and file text of each preset.
fn presets() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    GROUPS.iter().flat_map(|(group, models)| models.iter().map(move |(name, text)| (*group, *name, *text)))
}

fn preset(name: &str) -> Result<(&'static str, &'static str)> {
    let preset = presets().find(|(_, known, _)| known.eq_ignore_ascii_case(name));
    preset.map(|(group, _, text)| (group, text)).ok_or_else(|| {
        let known = names().collect::<Vec<_>>().join(", ");
        Error::new(ErrorClass::Config, format!("there is no workload `{name}`")).hint(format!("the workloads are: {known}"))
    })
}

/// The file of a preset, with its comments. The name is not case-sensitive.
/// Errors: [`ErrorClass::Config`] if there is no such preset; the hint lists all presets.
pub fn text(name: &str) -> Result<&'static str> {
    preset(name).map(|(_, text)| text)
}

/// The model of a preset. Its `made_from` also contains the sources that all presets of the group share.
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
