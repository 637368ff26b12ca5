//! Striped by address (`static`): consecutive logical pages go round the planes, wherever they were before.

use super::{AllocationPolicy, PageRequest, View, WaySelection};
use crate::ftl::core::home_plane;

#[derive(Clone, Copy, Debug)]
pub(super) struct AddressStriped;

impl AllocationPolicy for AddressStriped {
    #[inline]
    fn choose(&self, view: View<'_>, page: PageRequest) -> WaySelection {
        WaySelection { plane: home_plane(view.geometry, page.first, page.group), position: None }
    }
}
