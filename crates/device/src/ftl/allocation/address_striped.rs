//! Striped by address (`static`): the logical address determines the plane, so that consecutive pages use the planes in turn.

use super::{AllocationPolicy, Next, PageRequest, View, WaySelection};
use emmclab_settings::{PolicyKind, Settings};

#[derive(Clone, Copy, Debug)]
pub(super) struct AddressStriped;

impl AddressStriped {
    pub const KIND: PolicyKind =
        PolicyKind { name: "static", about: "By the logical address.", settings: &[] };

    pub fn new(_: &Settings) -> Self {
        Self
    }
}

impl AllocationPolicy for AddressStriped {
    #[inline]
    fn choose(&self, view: View<'_>, page: PageRequest) -> WaySelection {
        WaySelection { plane: view.geometry.home_plane(page.first, page.group), next: Next::Anywhere }
    }
}
