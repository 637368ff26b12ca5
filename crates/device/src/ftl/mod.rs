//! The flash translation layer: mapping schemes, the distributor of requests over page sizes, placement and collection.

pub(crate) mod blocks;
mod books;
pub(crate) mod collect;
mod demand;
pub(crate) mod fetch;
pub mod gc;
pub(crate) mod idle;
pub(crate) mod mapping;
mod page;
pub(crate) mod place;
pub(crate) mod reverse;
pub(crate) mod slc;
pub(crate) mod split;
mod stream;
