//! Export of a block device by the Network Block Device protocol, fixed newstyle, on a unix socket or loopback.
//!
//! Source: `doc/proto.md` of NetworkBlockDevice/nbd; the constants here have the names used there. Supported beyond the baseline:
//! structured replies with `DF` and holes, `base:allocation`, FUA, write-zeroes with `NO_HOLE` and `FAST_ZERO`, size constraints, several
//! connections. Not supported: TLS (nothing leaves the machine), extended headers, resizing. `NBD_CMD_CACHE` is checked and has no effect,
//! so it is not advertised: there is no cache between the client and the device.
//!
//! Each connection has a thread, which reads many requests at once, submits them as one list and writes the replies with one system call.
//! Completions from other threads are written by those threads, as far as the socket accepts them without blocking.

mod budget;
mod buffer;
mod connection;
mod export;
mod link;
mod listen;
mod negotiation;
mod output;
mod pending;
mod request;
mod request_parser;
mod server;
mod wire;

pub use export::NbdExportOptions;
pub use listen::ListenAddress;
pub use server::{NbdServer, serve_stream};
