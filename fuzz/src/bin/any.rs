#![no_main]

use emmclab_fuzz::read_as_found;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| read_as_found(data));
