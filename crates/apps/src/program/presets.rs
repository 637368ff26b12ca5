//! The built-in applications, from `presets/apps`.

use emmclab_base::Result;

use crate::toml_files;

macro_rules! presets {
    ($($name:literal,)*) => {
        /// Names and contents of the files.
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

/// The names of the built-in applications.
pub fn preset_names() -> impl ExactSizeIterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}

/// The text of a built-in application, with its comments. The case of the name does not matter.
///
/// # Errors
/// [`emmclab_base::ErrorClass::Config`] if there is no such application; the hint lists them.
pub fn preset_text(name: &str) -> Result<&'static str> {
    toml_files::preset("application", PRESETS, name)
}
