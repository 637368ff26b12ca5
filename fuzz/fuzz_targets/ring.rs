//! Pages of the ring buffer, of a kernel that exists and of its like in the other byte order (first byte odd).
#![no_main]

use std::sync::LazyLock;

use emmclab_record::{Files, HelperStream, Kernel};
use libfuzzer_sys::fuzz_target;

static KERNELS: LazyLock<Vec<Kernel>> = LazyLock::new(|| {
    let stream = include_bytes!("../../crates/record/tests/fixtures/host.stream.zst");
    let bytes = zstd::decode_all(&stream[..]).unwrap_or_default();
    let files = HelperStream::new(&bytes[..]).texts("ready").unwrap_or_default();
    let of_order = |order: &str| {
        let byte_order = Files::from([("byte_order".to_owned(), order.to_owned())]);
        Kernel::from_files(&files.clone().into_iter().chain(byte_order).collect())
    };
    ["\u{1}", "\u{2}"].into_iter().flat_map(of_order).collect()
});

fuzz_target!(|data: &[u8]| {
    let Some((order, page)) = data.split_first() else { return };
    let kernel = &KERNELS[usize::from(order & 1)];
    let _ = kernel.decode(page, |time, event| {
        std::hint::black_box((time, event));
    });
});
