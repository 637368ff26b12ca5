//! First free (`dynamic`): the way that can begin first. If several can, they take turns, and so do the planes of a way (the dynamic
//! allocation of SSDsim; Hu et al., ICS 2011).
#![expect(clippy::inline_always, reason = "once for each page; arguments stay in registers")]

use super::{AllocationPolicy, AllocationView, CursorMove, PageRequest, PlaneSelection};
use crate::ids::PlaneId;
use emmclab_settings::{DeviceSettings, PolicyDescription};

#[derive(Clone, Copy, Debug)]
pub(super) struct FirstFree;

impl FirstFree {
    pub const KIND: PolicyDescription =
        PolicyDescription { name: "dynamic", about: "The way that is free first.", settings: &[] };

    pub fn new(_: &DeviceSettings) -> Self {
        Self
    }
}

impl AllocationPolicy for FirstFree {
    #[inline(always)]
    fn choose(&self, view: AllocationView<'_>, page: PageRequest) -> PlaneSelection {
        let position = view.nand.first_way(view.cursor as usize, page.ready);
        let (way, planes) = (view.nand.ways()[position], view.nand.planes_per_way());
        let mut plane = way.0;
        if planes > 1 {
            let next = view.last_planes[way.index()] + 1;
            plane = way.0 * planes + if next >= planes { 0 } else { next };
        }
        PlaneSelection { plane: PlaneId(plane), next: CursorMove::Behind(position as u32) }
    }
}
