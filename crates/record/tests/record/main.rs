//! Tests of recording and of decoding recordings.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

mod activity;
mod adb;
mod common;
mod containers;
mod decode;
mod disks;
mod guest;
mod guest_reissues;
mod guest_ufs;
mod live;
mod others;
mod page;
mod registers;
mod remote;
mod stored;
mod trace_dat;
