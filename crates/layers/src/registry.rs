//! The registry of layers, by name.

use emmclab_base::{Error, ErrorClass as ErrorKind, Result};

use crate::layer_kind::LayerKind;

const LAYERS: &[LayerKind] = &[
    crate::pass_through::KIND,
    crate::advil::KIND,
    crate::ressd::KIND,
    crate::pair::KIND,
    crate::nvm_buffer::KIND,
    crate::journal::KIND,
    crate::lfs::KIND,
];

/// Returns all layers. A new layer needs its own file and an entry here.
pub fn layers() -> &'static [LayerKind] {
    LAYERS
}

pub(crate) fn find(name: &str) -> Result<&'static LayerKind> {
    LAYERS.iter().find(|kind| kind.name == name).ok_or_else(|| {
        let names: Vec<_> = LAYERS.iter().map(|kind| kind.name).collect();
        Error::new(ErrorKind::Config, format!("there is no layer `{name}`"))
            .hint(format!("choose from: {}", names.join(", ")))
    })
}
