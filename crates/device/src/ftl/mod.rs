//! The flash translation layer: the map, the distributor of requests over page sizes, placement and collection.

pub(crate) mod collect;
pub mod gc;
pub(crate) mod idle;
pub(crate) mod mapping;
mod page;
pub(crate) mod place;
pub(crate) mod slc;
pub(crate) mod split;
