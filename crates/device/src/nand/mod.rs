//! The flash itself: blocks and their states, lists of them, and the timelines of channels and arrays.

mod block;
mod channel;
mod copies;
mod flash;
mod lane;
mod lists;
mod pool;

pub use block::{Block, BlockState};
pub(crate) use copies::Copies;
pub(crate) use flash::{Flash, Operation};
pub use pool::Order;
pub(crate) use pool::{NONE, Pool, Stream, Victim};
