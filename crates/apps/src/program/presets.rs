//! The applications in `presets/apps`, built in.

use emmclab_base::{Error, Kind, Result};

macro_rules! presets {
    ($($name:literal,)*) => {
        /// Names, and the text of the files.
        const PRESETS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../../presets/apps/", $name, ".toml"))),)*];
    };
}

presets! {
    "webbench",
    "facebook",
    "email",
    "maps",
    "pulse",
    "appinstall",
    "rlbench",
    "applaunch",
}

/// The names of the applications that come with emmclab.
pub fn preset_names() -> impl ExactSizeIterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}

/// The text of one, with its comments. Case does not matter.
///
/// # Errors
/// [`Kind::Config`] where there is no such application; the hint lists them.
pub fn preset_text(name: &str) -> Result<&'static str> {
    PRESETS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, text)| *text).ok_or_else(
        || {
            let known = preset_names().collect::<Vec<_>>().join(", ");
            Error::new(Kind::Config, format!("there is no application `{name}`"))
                .hint(format!("there are: {known}; or give a TOML file"))
        },
    )
}
