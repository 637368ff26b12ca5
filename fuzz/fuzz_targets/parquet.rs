//! The library below panics on some damaged files, which the reader makes an error of: only what it lets through is a
//! finding, so that a panic as such must not end the run.
#![no_main]

use emmclab_fuzz::read_as;
use libfuzzer_sys::fuzz_target;

fuzz_target!(
    init: std::panic::set_hook(Box::new(|_| {})),
    |data: &[u8]| read_as(&["parquet"], data)
);
