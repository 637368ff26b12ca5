//! The built-in device presets: those of `presets/devices`, and those of a single paper, which are in the paper's folder.

/// A built-in device.
pub struct DevicePreset {
    /// Name for [`super::DeviceConfig::preset`].
    pub name: &'static str,
    /// The TOML file.
    pub text: &'static str,
}

/// All presets, in order of their names. `build.rs` finds them.
pub fn presets() -> &'static [DevicePreset] {
    include!(concat!(env!("OUT_DIR"), "/presets.rs"))
}
