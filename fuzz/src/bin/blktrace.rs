#![no_main]

use emmclab_fuzz::read_as;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| read_as(&["blktrace"], data));
