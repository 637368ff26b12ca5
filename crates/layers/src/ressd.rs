//! ReSSD (Lee, Kim, Maeng, SAC 2010), on which Advil is based. It logs small random writes and writes them back in ascending order, without
//! hot data and padding.

use emmclab_base::{ByteSize, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Table;

use crate::advil::{Advil, AdvilSettings, HotPolicy, InvalidationMeasure, MoverSchedule};
use crate::layer::{DisksBelow, Layer};
use crate::registry::{LayerKind, LayerSetting, read_settings, settings_of};

pub(crate) const KIND: LayerKind = LayerKind {
    name: "ressd",
    about: "logs small random writes in a reserved area and moves them in ascending order",
    build,
    settings: ressd_settings,
};

/// Settings of ReSSD, with the same meaning as in [`AdvilSettings`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct RessdSettings {
    reserved: ByteSize,
    second_device: bool,
    reserved_at: Option<ByteSize>,
    original: Option<ByteSize>,
    small: ByteSize,
    /// Number of bytes that are moved at once.
    clustered_block: ByteSize,
    mover: MoverSchedule,
    recovery: bool,
    checkpoint: Option<ByteSize>,
}

impl Default for RessdSettings {
    fn default() -> Self {
        let AdvilSettings { reserved, second_device, reserved_at, original, small, .. } = AdvilSettings::default();
        let AdvilSettings { clustered_block, mover, recovery, checkpoint, .. } = AdvilSettings::default();
        Self { reserved, second_device, reserved_at, original, small, clustered_block, mover, recovery, checkpoint }
    }
}

/// Returns the settings that ReSSD shares with Advil, with the same unit, default and meaning.
fn ressd_settings() -> Vec<LayerSetting> {
    let own = settings_of::<RessdSettings>();
    settings_of::<AdvilSettings>().into_iter().filter(|setting| own.iter().any(|own| own.name == setting.name)).collect()
}

fn build(table: &Table, below: &DisksBelow) -> Result<Box<dyn Layer>> {
    let settings: RessdSettings = read_settings(KIND.name, table)?;
    let settings = AdvilSettings {
        reserved: settings.reserved,
        second_device: settings.second_device,
        reserved_at: settings.reserved_at,
        original: settings.original,
        small: settings.small,
        clustered_page: ByteSize::kb(4),
        clustered_block: settings.clustered_block,
        page_padding: false,
        block_padding: false,
        block_padding_over: None,
        read_through: None,
        hot: HotPolicy::None,
        hot_invalidated: InvalidationMeasure::Pages,
        hot_start_pct: 0,
        hot_step_pct: 0,
        hot_most_pct: 0,
        mover: settings.mover,
        recovery: settings.recovery,
        checkpoint: settings.checkpoint,
    };
    Ok(Box::new(Advil::new(KIND.name, &settings, below)?))
}
