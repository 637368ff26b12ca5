#![no_main]

use emmclab_fuzz::read_as;
use libfuzzer_sys::fuzz_target;

const FORMATS: [&str; 21] = [
    "biotracer", "pixel", "msr", "alibaba", "tencent", "systor17", "spc1", "ssdsim", "mqsim", "disksim", "fio", "csv", "biosnoop", "iosnoop",
    "fiu", "iotrace", "k5cloud", "hfplayer", "thesios", "tectonic", "vscsi-csv",
];

fuzz_target!(|data: &[u8]| read_as(&FORMATS, data));
