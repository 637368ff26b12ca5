//! Tests of recording and of decoding recordings.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

mod common;
mod containers;
mod decode;
mod guest;
mod guest_reissues;
mod guest_ufs;
mod live;
mod others;
mod registers;
mod remote;
mod stored;
mod trace_dat;
