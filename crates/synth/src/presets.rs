//! The 18 applications and 7 combos of the IISWC 2015 paper (Zhou et al.), made from what it publishes of them.

use emmclab_trace::{Error, Kind, Result};

use crate::model::WorkloadModel;

macro_rules! presets {
    ($($name:literal: $file:literal,)*) => {
        /// Names as in the paper's tables, and the text of the models.
        const PRESETS: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../../../presets/workloads/", $file, ".toml"))),)*
        ];
    };
}

presets! {
    "Idle": "idle",
    "CallIn": "call_in",
    "CallOut": "call_out",
    "Booting": "booting",
    "Movie": "movie",
    "Music": "music",
    "AngryBirds": "angry_birds",
    "CameraVideo": "camera_video",
    "GoogleMaps": "google_maps",
    "Messaging": "messaging",
    "Twitter": "twitter",
    "Email": "email",
    "Facebook": "facebook",
    "Amazon": "amazon",
    "YouTube": "youtube",
    "Radio": "radio",
    "Installing": "installing",
    "WebBrowsing": "web_browsing",
    "Music/WB": "music_wb",
    "Radio/WB": "radio_wb",
    "Music/FB": "music_fb",
    "Radio/FB": "radio_fb",
    "Music/Msg": "music_msg",
    "Radio/Msg": "radio_msg",
    "FB/Msg": "fb_msg",
}

/// Names in the order of the paper's tables: applications, then combos.
pub fn names() -> impl ExactSizeIterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}

/// The text of a preset, with its comments. Case does not matter.
///
/// # Errors
/// [`Kind::Config`] where there is no such preset; the hint lists them.
pub fn text(name: &str) -> Result<&'static str> {
    PRESETS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, text)| *text).ok_or_else(
        || {
            let known = names().collect::<Vec<_>>().join(", ");
            Error::new(Kind::Config, format!("there is no workload `{name}`"))
                .hint(format!("there are: {known}"))
        },
    )
}

/// The model of a preset.
///
/// # Errors
/// As [`text`].
pub fn model(name: &str) -> Result<WorkloadModel> {
    WorkloadModel::from_toml(text(name)?)
}
