//! Pages of the ring buffer, of two kernels that exist (bit 1 of the first byte) and of their like in the other byte
//! order (bit 0).
#![no_main]

use std::sync::LazyLock;

use emmclab_record::{Files, HelperStream, KernelFormat};
use libfuzzer_sys::fuzz_target;

static KERNELS: LazyLock<Vec<KernelFormat>> = LazyLock::new(|| {
    let host = &include_bytes!("../../../crates/record/tests/fixtures/host.stream.zst")[..];
    let card = &include_bytes!("../../../crates/record/tests/fixtures/debian-6.12-card.stream.zst")[..];
    let mut kernels = Vec::new();
    for stream in [host, card] {
        let bytes = zstd::decode_all(stream).unwrap_or_default();
        let files = HelperStream::new(&bytes[..]).texts("ready").unwrap_or_default();
        for order in ["\u{1}", "\u{2}"] {
            let byte_order = Files::from([("byte_order".to_owned(), order.to_owned())]);
            kernels.extend(KernelFormat::from_files(&files.clone().into_iter().chain(byte_order).collect()));
        }
    }
    kernels
});

fuzz_target!(|data: &[u8]| {
    let Some((order, page)) = data.split_first() else { return };
    let kernel = &KERNELS[usize::from(order & 3)];
    let _ = kernel.decode(page, |time, event| {
        std::hint::black_box((time, event));
    });
});
