//! The built-in device presets: those of `presets/devices`, and those of a single paper, which are in the paper's folder.

/// A built-in device.
pub struct DevicePreset {
    /// Name for [`super::DeviceConfig::preset`].
    pub name: &'static str,
    /// The TOML file.
    pub text: &'static str,
}

macro_rules! presets {
    ($($folder:literal: [$($name:literal),* $(,)?]),* $(,)?) => {
        &[$($(DevicePreset {
            name: $name,
            text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../", $folder, "/", $name, ".toml")),
        },)*)*]
    };
}

/// All presets, in the order in which they are listed. To add one, put a file into one of these folders and its name here.
pub fn presets() -> &'static [DevicePreset] {
    presets! {
        "python/emmclab/papers/iiswc15/devices": ["iiswc15-4ps", "iiswc15-8ps", "iiswc15-hps"],
        "presets/devices": [
            "ssdsim",
            "nexus5",
            "galaxys2",
            "emmc51-tlc",
            "emmc51-cache",
            "emmc50-cache",
            "emmc50-write-through",
            "ufs22",
            "ufs31",
            "ufs31-hps",
            "ufs40",
            "zufs",
            "pixel6a",
            "microsd-class10",
            "sdcard",
        ],
        "python/emmclab/papers/fast12/devices": [
            "transcend-c2",
            "ridata-c2",
            "sandisk-c4",
            "kingston-c4",
            "wintec-c6",
            "adata-c6",
            "patriot-c10",
            "pny-c10",
            "nexusone",
        ],
        "python/emmclab/papers/systor24/devices": ["systor24-clustered", "systor24-packed"],
        "presets/devices": ["small-1gb", "pcm-16mb"],
    }
}
