//! ReSSD (Lee, Kim, Maeng, SAC 2010), on which Advil is based: small random writes are logged and written back in ascending order,
//! without hot data and without padding.

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

/// Settings of ReSSD; they mean what they mean in [`AdvilSettings`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct RessdSettings {
    reserved: ByteSize,
    second_device: bool,
    reserved_at: Option<ByteSize>,
    original: Option<ByteSize>,
    small: ByteSize,
    /// Bytes that are moved at once.
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

/// Returns the settings of Advil that ReSSD has too; unit, default and meaning are the same.
fn ressd_settings() -> Vec<LayerSetting> {
    let own = settings_of::<RessdSettings>();
    settings_of::<AdvilSettings>().into_iter().filter(|setting| own.iter().any(|own| own.name == setting.name)).collect()
}

fn build(table: &Table, below: &DisksBelow) -> Result<Box<dyn Layer>> {
    let given: RessdSettings = read_settings(KIND.name, table)?;
    let settings = AdvilSettings {
        reserved: given.reserved,
        second_device: given.second_device,
        reserved_at: given.reserved_at,
        original: given.original,
        small: given.small,
        clustered_page: ByteSize::kb(4),
        clustered_block: given.clustered_block,
        page_padding: false,
        block_padding: false,
        block_padding_over: None,
        read_through: None,
        hot: HotPolicy::None,
        hot_invalidated: InvalidationMeasure::Pages,
        hot_start_pct: 0,
        hot_step_pct: 0,
        hot_most_pct: 0,
        mover: given.mover,
        recovery: given.recovery,
        checkpoint: given.checkpoint,
    };
    Ok(Box::new(Advil::new(KIND.name, &settings, below)?))
}
