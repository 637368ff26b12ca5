//! Determines which calls wait, and for what: the device, a clock, or something that is not recorded.

use super::{CallRecording, OpenEnd};
use crate::learn::call::{CallArgument, SystemCall};
use crate::learn::files::DescriptorTarget;

/// Calls that wait for any of several events, such as an answer from the network.
pub(super) const POLLS: &[&str] = &[
    "poll",
    "ppoll",
    "select",
    "_newselect",
    "pselect6",
    "pselect6_time64",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "ppoll_time64",
];
/// Calls that may wait for the device.
const REACH_STORAGE: &[&str] = &[
    "open",
    "openat",
    "openat2",
    "creat",
    "read",
    "readv",
    "pread64",
    "preadv",
    "preadv2",
    "sendfile",
    "sendfile64",
    "copy_file_range",
    "fsync",
    "fdatasync",
    "sync",
    "syncfs",
    "unlink",
    "unlinkat",
    "rename",
    "renameat",
    "renameat2",
    "truncate",
    "ftruncate",
];
/// Calls on files, sockets or pipes.
const TRANSFERS: &[&str] = &["connect", "read", "readv", "recvfrom", "recvmsg", "write", "writev", "sendto", "sendmsg"];
/// Calls that sleep.
const SLEEPS: &[&str] = &["nanosleep", "clock_nanosleep", "clock_nanosleep_time64"];
/// Other calls than [`POLLS`] and [`SLEEPS`] that wait for something that is not recorded.
const WAITS: &[&str] = &[
    "futex",
    "futex_time64",
    "futex_wait",
    "futex_waitv",
    "wait4",
    "waitpid",
    "waitid",
    "rt_sigtimedwait",
    "rt_sigtimedwait_time64",
    "rt_sigsuspend",
    "pause",
    "accept",
    "accept4",
    "io_getevents",
    "io_pgetevents",
    "restart_syscall",
    "ioctl",
    "flock",
    "msgrcv",
    "msgsnd",
    "mq_timedreceive",
    "mq_timedsend",
    "semop",
    "semtimedop",
    "semtimedop_time64",
];

pub(super) fn reaches_storage(name: &str) -> bool {
    REACH_STORAGE.contains(&name)
}

/// Whether calls of this name wait.
pub(in crate::learn) fn is_wait(name: &str) -> bool {
    [POLLS, SLEEPS, WAITS].iter().any(|names| names.contains(&name))
}

/// Whether a call that is not on a file of a device waits.
pub(super) fn waits(call: &SystemCall, on_channel: bool) -> bool {
    let name = call.name.as_str();
    is_wait(name)
        || matches!(name, "read" | "readv" | "recvfrom" | "recvmsg")
        || on_channel && matches!(name, "write" | "writev" | "sendto" | "sendmsg")
        || waits_for_a_lock(call)
}

/// Whether a call waits until another process unlocks a part of a file.
pub(super) fn waits_for_a_lock(call: &SystemCall) -> bool {
    call.name.starts_with("fcntl")
        && ["F_SETLKW", "F_SETLKW64", "F_OFD_SETLKW"].iter().any(|flag| call.has_flag(1, flag))
}

/// Whether a call sleeps, also if it continues after a signal.
pub(super) fn is_sleep(call: &SystemCall) -> bool {
    SLEEPS.contains(&call.name.as_str()) || resumes(call, "nanosleep")
}

/// Whether a wait is ended by a clock: a sleep, or a timeout.
pub(super) fn is_timer(call: &SystemCall) -> bool {
    let name = call.name.as_str();
    let polls = POLLS.contains(&name) || ["poll", "select"].iter().any(|polls| resumes(call, polls));
    let of_a_clock =
        call.arguments.first().and_then(CallArgument::annotation).is_some_and(|shown| shown.contains("[timerfd]"));
    is_sleep(call)
        || polls && call.result == 0
        || (name.starts_with("futex") || name.starts_with("rt_sigtimedwait")) && call.result == -1
        || of_a_clock
}

/// Whether a call of this kind continues after a signal: `restart_syscall(<... resuming interrupted clock_nanosleep ...>)`.
fn resumes(call: &SystemCall, kind: &str) -> bool {
    call.name == "restart_syscall"
        && call.arguments.iter().filter_map(CallArgument::word).any(|word| word.contains(kind))
}

impl CallRecording {
    /// How the time after the begin of a call is used while the call has not returned.
    pub(super) fn in_progress(&mut self, thread: usize, call: &SystemCall) -> OpenEnd {
        let on_channel = self.channel(thread, call).is_some();
        let open = self.open(thread, call, 0);
        let transfers = TRANSFERS.contains(&call.name.as_str());
        let of_file = match open {
            Some(open) => matches!(open, DescriptorTarget::File(_)),
            None => call.arguments.first().is_some_and(|one| one.path().is_some()),
        };
        if is_sleep(call) {
            OpenEnd::Sleep
        } else if transfers && matches!(open, Some(DescriptorTarget::Socket)) {
            OpenEnd::Network
        } else if reaches_storage(&call.name) && (of_file || !transfers) {
            OpenEnd::Storage
        } else if waits(call, on_channel) {
            OpenEnd::Wait
        } else {
            OpenEnd::Work
        }
    }
}
