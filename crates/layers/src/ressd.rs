//! ReSSD (Lee, Kim, Maeng, SAC 2010), on which Advil is based. It logs small random writes and writes them back in ascending order, without
//! hot data and padding.

use emmclab_base::ByteSize;

use crate::advil::{Advil, AdvilSettings, HotPolicy, InvalidationMeasure};
use crate::registry::{LayerKind, invalid_setting, read_settings, settings_of};

pub(crate) const KIND: LayerKind = LayerKind {
    name: "ressd",
    about: "logs small random writes in a reserved area and moves them in ascending order",
    build: |table, below| {
        if let Some(name) = table.keys().find(|name| !SETTINGS.contains(&name.as_str())) {
            let names = SETTINGS.map(|name| format!("`{name}`")).join(", ");
            return Err(invalid_setting(KIND.name, &format!("unknown setting `{name}`, expected one of {names}")));
        }
        let settings = AdvilSettings {
            clustered_page: ByteSize::kb(4),
            page_padding: false,
            block_padding: false,
            block_padding_over: None,
            read_through: None,
            hot: HotPolicy::None,
            hot_invalidated: InvalidationMeasure::Pages,
            hot_start_pct: 0,
            hot_step_pct: 0,
            hot_most_pct: 0,
            ..read_settings(KIND.name, table)?
        };
        Ok(Box::new(Advil::new(KIND.name, &settings, below)?))
    },
    settings: || settings_of::<AdvilSettings>().into_iter().filter(|row| SETTINGS.contains(&row.name.as_str())).collect(),
};

/// The settings of Advil that ReSSD has, with the same unit, default and meaning.
const SETTINGS: [&str; 9] =
    ["reserved", "second_device", "reserved_at", "original", "small", "clustered_block", "mover", "recovery", "checkpoint"];
