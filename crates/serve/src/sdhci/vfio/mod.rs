//! vfio-user: a PCI function in this process, driven by a virtual machine over a unix socket.
//!
//! The protocol is QEMU's `interop/vfio-user`, version 0.0. This is an independent server, since a server must end on request, survive
//! malformed messages, and handle guest memory that is not shared with it.

mod function;
mod link;
mod memory;
mod message;

pub(super) use function::{ClientProbe, SdhciPciFunction, SessionEnd, serve};
pub(super) use link::{ExportWaker, VfioLink};
#[cfg(any(test, fuzzing))]
pub(super) use message::{HEADER_BYTES, VfioHeader, VfioMessage};
