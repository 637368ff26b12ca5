//! Pass-through: forwards every request unchanged. It is the smallest layer, and measures the overhead of the layer interface.

use toml::Table;

use emmclab_base::{BlockNote, CommandFlags, Result};

use crate::layer::{DisksBelow, Layer, RequestDecision};
use crate::layer_kind::{LayerKind, read_settings};
use crate::plan::CommandPlan;
use crate::request::HostRequest;

pub(crate) const KIND: LayerKind =
    LayerKind { name: "pass-through", about: "passes on every request unchanged", build, settings: Vec::new };

/// Forwards every request unchanged.
#[derive(Clone, Copy, Debug)]
pub struct PassThrough {
    capacity: u64,
}

impl PassThrough {
    /// A layer that offers all of the disk below.
    pub const fn new(capacity: u64) -> Self {
        Self { capacity }
    }
}

#[derive(Default, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PassThroughSettings {}

fn build(table: &Table, below: &DisksBelow) -> Result<Box<dyn Layer>> {
    let PassThroughSettings {} = read_settings(KIND.name, table)?;
    Ok(Box::new(PassThrough::new(below.main)))
}

impl Layer for PassThrough {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn accepts(&self) -> CommandFlags {
        CommandFlags::all()
    }

    #[inline]
    fn request(&mut self, request: &HostRequest, _: &[BlockNote], plan: &mut CommandPlan) -> RequestDecision {
        plan.flag(request.modifiers);
        plan.forward(request);
        RequestDecision::Run
    }
}
