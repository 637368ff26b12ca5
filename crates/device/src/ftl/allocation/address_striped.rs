//! Striped by address (`static`): the logical address determines the plane, so that consecutive pages use the planes in turn.

use super::{AllocationPolicy, AllocationView, CursorMove, PageRequest, PlaneSelection};
use emmclab_settings::{DeviceSettings, PolicyDescription};

#[derive(Clone, Copy, Debug)]
pub(super) struct AddressStriped;

impl AddressStriped {
    pub const KIND: PolicyDescription =
        PolicyDescription { name: "static", about: "By the logical address.", settings: &[] };

    pub fn new(_: &DeviceSettings) -> Self {
        Self
    }
}

impl AllocationPolicy for AddressStriped {
    #[inline]
    fn choose(&self, view: AllocationView<'_>, page: PageRequest) -> PlaneSelection {
        PlaneSelection { plane: view.geometry.home_plane(page.first, page.group), next: CursorMove::Anywhere }
    }
}
