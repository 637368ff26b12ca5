//! The applications in `presets/apps`, built in.

use emmclab_base::Result;

use crate::text;

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
    "background",
    "iperf",
}

/// The names of the applications that come with emmclab.
pub fn preset_names() -> impl ExactSizeIterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}

/// The text of one, with its comments. Case does not matter.
///
/// # Errors
/// [`emmclab_base::Kind::Config`] where there is no such application; the hint lists them.
pub fn preset_text(name: &str) -> Result<&'static str> {
    text::preset("application", PRESETS, name)
}
