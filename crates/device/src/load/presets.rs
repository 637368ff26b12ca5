//! The presets in `presets/devices`, built in.

/// A device that comes with the program.
pub struct Preset {
    /// Name for [`super::DeviceConfig::preset`].
    pub name: &'static str,
    /// The TOML file.
    pub text: &'static str,
}

macro_rules! presets {
    ($($name:literal),* $(,)?) => {
        &[$(Preset {
            name: $name,
            text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../presets/devices/", $name, ".toml")),
        }),*]
    };
}

/// Every preset; a new one is a file in `presets/devices` and a word here.
pub fn presets() -> &'static [Preset] {
    presets![
        "iiswc15-4ps",
        "iiswc15-8ps",
        "iiswc15-hps",
        "ssdsim",
        "nexus5",
        "galaxys2",
        "emmc51-tlc",
        "emmc51-cache",
        "emmc50-cache",
        "ufs22",
        "ufs31",
        "ufs31-hps",
        "ufs40",
        "zufs",
        "pixel6a",
        "microsd-class10",
        "sdcard",
        "transcend-c2",
        "ridata-c2",
        "sandisk-c4",
        "kingston-c4",
        "wintec-c6",
        "adata-c6",
        "patriot-c10",
        "pny-c10",
        "nexusone",
        "small-1gb",
        "pcm-16mb"
    ]
}

/// The word nearest to `word`, where one is near enough to be meant.
pub(super) fn closest<'a>(word: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    words
        .map(|candidate| (strsim::levenshtein(word, candidate), candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= candidate.len().max(word.len()) / 2)
        .map(|(_, candidate)| candidate)
}
