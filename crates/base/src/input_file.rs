//! Reads inputs that may be pipes. The standard library restarts a read after a signal, so a command that waits for data from a pipe could
//! not be interrupted. The functions of this module call [`interrupt::check`] regularly while they wait.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use crate::interrupt;

/// Time between two calls of [`interrupt::check`] while waiting for data.
const PATIENCE: Duration = Duration::from_millis(50);
const PATIENCE_SPEC: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// The open flag that opens a pipe without waiting for its other end (`O_NONBLOCK`).
const AT_ONCE: i32 = OFlags::NONBLOCK.bits().cast_signed();

/// A file, pipe or device that is read from its start to its end.
#[derive(Debug)]
pub struct InputFile {
    file: File,
    /// Whether a read of this file may have to wait for data.
    waits: bool,
    /// Whether this is a pipe that no process is known to have opened for writing. A read of such a pipe returns no bytes, as at
    /// the end of a file.
    unopened: bool,
}

impl InputFile {
    /// Opens the file. If a named pipe has no writer yet, the first read waits for it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).custom_flags(AT_ONCE).open(path)?;
        let kind = file.metadata()?.file_type();
        Ok(Self { file, waits: !kind.is_file(), unopened: kind.is_fifo() })
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl Read for InputFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.waits {
            return self.file.read(buffer);
        }
        loop {
            let read = self.file.read(buffer);
            match &read {
                Ok(0) if self.unopened && !buffer.is_empty() => {
                    if wait(&self.file, PollFlags::IN)?.contains(PollFlags::HUP) {
                        self.unopened = false;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.unopened = false;
                    wait(&self.file, PollFlags::IN)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => check()?,
                _ => {
                    self.unopened = false;
                    return read;
                }
            }
        }
    }
}

/// Opens a file for reads at any offset. Fails for a pipe.
pub fn open_seekable(path: &Path) -> io::Result<File> {
    let input = InputFile::open(path)?;
    if input.unopened {
        return Err(io::Error::new(ErrorKind::NotSeekable, "this is a pipe, and it is read at more than one place"));
    }
    Ok(input.file)
}

/// Opens a device or pipe for writing; waits until a process opens the pipe for reading. Fails on an interruption.
pub fn open_pipe(path: &Path) -> io::Result<File> {
    let file = loop {
        match OpenOptions::new().write(true).custom_flags(AT_ONCE).open(path) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NXIO) && is_fifo(path) => {
                check()?;
                sleep(PATIENCE);
            }
            opened => break opened?,
        }
    };
    // Clears `O_NONBLOCK` for this open file only. `wait_writable` is called before each write.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

fn is_fifo(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo())
}

/// Waits until a pipe or terminal accepts more bytes, or its reader has closed it. Fails on an interruption.
pub fn wait_writable(file: &impl AsFd) -> io::Result<()> {
    while wait(file, PollFlags::OUT)?.is_empty() {}
    Ok(())
}

/// Waits for one of the events for a short time; returns the events that occurred.
fn wait(file: &impl AsFd, events: PollFlags) -> io::Result<PollFlags> {
    check()?;
    let mut polled = [PollFd::new(file, events)];
    match poll(&mut polled, Some(&PATIENCE_SPEC)) {
        Ok(_) | Err(Errno::INTR) => Ok(polled[0].revents()),
        Err(error) => Err(error.into()),
    }
}

/// Calls [`interrupt::check`] and returns its error inside an `io::Error`, from which `Error::io` extracts it.
fn check() -> io::Result<()> {
    interrupt::check().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;
    use std::sync::mpsc::channel;
    use std::thread::spawn;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;
    use crate::error::{Error, ErrorClass};
    use crate::interrupt::interruptible;

    fn fifo(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("emmclab-base-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        mknodat(CWD, &path, FileType::Fifo, Mode::from(0o600), 0).unwrap();
        path
    }

    fn interrupted<T: std::fmt::Debug>(path: &Path, result: io::Result<T>) {
        assert_eq!(Error::io(path, result.unwrap_err()).kind(), ErrorClass::Interrupted);
    }

    #[test]
    fn a_wait_for_the_other_end_of_a_pipe_ends_with_an_interruption() {
        let path = fifo("silent");
        interruptible(
            || true,
            || {
                let mut byte = [0];
                interrupted(&path, InputFile::open(&path).unwrap().read(&mut byte));
                interrupted(&path, open_pipe(&path));
                // An interruption ends a read from an empty pipe, and a wait for space in a full pipe.
                let (reader, writer) = io::pipe().unwrap();
                let name = PathBuf::from(format!("/proc/self/fd/{}", reader.as_raw_fd()));
                interrupted(&path, InputFile::open(&name).unwrap().read(&mut byte));
                fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
                while (&writer).write(&[0; 1 << 12]).is_ok() {}
                interrupted(&path, wait_writable(&writer));
            },
        );
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_pipe_is_read_from_its_first_writer_to_its_end() {
        let path = fifo("read");
        for text in ["", "text", &"many ".repeat(100_000)] {
            let (ready, opened) = channel();
            let (of_reader, of_writer) = (path.clone(), path.clone());
            let reader = spawn(move || {
                let input = InputFile::open(&of_reader).unwrap();
                ready.send(()).unwrap();
                io::read_to_string(input).unwrap()
            });
            opened.recv().unwrap();
            sleep(PATIENCE);
            open_pipe(&of_writer).unwrap().write_all(text.as_bytes()).unwrap();
            assert!(reader.join().unwrap() == text);
        }
        std::fs::remove_file(path).unwrap();
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"left by a writer that is gone").unwrap();
        drop(writer);
        let input = InputFile::open(Path::new(&format!("/proc/self/fd/{}", reader.as_raw_fd()))).unwrap();
        assert_eq!(io::read_to_string(input).unwrap(), "left by a writer that is gone");
    }

    #[test]
    fn a_pipe_is_no_file_with_offsets() {
        let path = fifo("offsets");
        assert!(open_seekable(&path).unwrap_err().to_string().contains("pipe"));
        std::fs::remove_file(path).unwrap();
    }
}
