//! Input is the bytes that a client sends to the NBD server: from its first byte on (first byte of the input even), or as requests behind a
//! handshake with structured replies (first byte odd). The server has to end with its client.
#![no_main]

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use emmclab_serve::MemoryDevice;
use emmclab_serve::nbd::{NbdExportOptions, serve_stream};
use libfuzzer_sys::fuzz_target;

/// Client flags, structured replies, `base:allocation`, and the start of transmission.
const HANDSHAKE: &[u8] = b"\0\0\0\x03IHAVEOPT\0\0\0\x08\0\0\0\0\
    IHAVEOPT\0\0\0\x0a\0\0\0\x1b\0\0\0\0\0\0\0\x01\0\0\0\x0fbase:allocation\
    IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0";

fuzz_target!(|data: &[u8]| {
    let Some((first, bytes)) = data.split_first() else { return };
    let Ok((mut ours, theirs)) = UnixStream::pair() else { return };
    let before = if first % 2 == 1 { HANDSHAKE } else { &[] };
    // Socket buffers are larger than any input, so this does not wait.
    if bytes.len() > 1 << 16 || ours.write_all(before).and_then(|()| ours.write_all(bytes)).is_err() {
        return;
    }
    let _ = ours.shutdown(Shutdown::Write);
    std::thread::scope(|scope| {
        scope.spawn(move || std::io::copy(&mut ours, &mut std::io::sink()));
        let _ = serve_stream(Arc::new(MemoryDevice::new(4096)), NbdExportOptions::default(), theirs.into());
    });
});
