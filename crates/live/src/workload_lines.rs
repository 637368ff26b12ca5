//! Lines that a workload prints, read from the other end of its terminal or pipe.
//!
//! A line that was printed before a write has to be in the log before this write. The device therefore reads the lines itself, before
//! it logs a request: what a program has printed by then can be read, whoever is running at that moment. (Linux moves what is in
//! transit between the ends of a terminal when one end is read.)

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::{Errno, ioctl_fionbio, read, write};

/// Maximum length of a line in bytes; the rest of a longer one is not logged.
const MOST_BYTES: usize = 4096;
/// Maximum number of lines that are logged.
const MOST_LINES: u64 = 1_000_000;
/// Maximum number of reads at once: more than a terminal or pipe holds, so that a workload which prints without end holds up no
/// request.
const MOST_READS: usize = 256;

/// The lines of a workload.
pub(crate) struct WorkloadLines {
    input: OwnedFd,
    answers: Option<OwnedFd>,
    /// The start of the line that has not ended yet.
    partial_line: Vec<u8>,
    lines: u64,
    /// The lines that [`WorkloadLines::take_new`] has not returned yet.
    new: Vec<String>,
}

impl WorkloadLines {
    /// Lines that are read from `input`; each is answered by a byte to `answers`.
    pub fn new(input: OwnedFd, answers: Option<OwnedFd>) -> std::io::Result<Self> {
        ioctl_fionbio(input.as_fd(), true)?;
        Ok(Self { input, answers, partial_line: Vec::new(), lines: 0, new: Vec::new() })
    }

    /// Reads all that was printed so far; calls `log` with each line.
    pub fn read(&mut self, mut log: impl FnMut(&str)) {
        let mut buffer = [0; 4096];
        for _ in 0..MOST_READS {
            match read(&self.input, &mut buffer) {
                Ok(0) => return,
                Ok(bytes) => self.add(&buffer[..bytes], &mut log),
                Err(Errno::INTR) => {}
                // There is nothing to read, or the other end is closed.
                Err(_) => return,
            }
        }
    }

    fn add(&mut self, bytes: &[u8], log: &mut impl FnMut(&str)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = piece.strip_suffix(b"\n");
            let part = text.unwrap_or(piece);
            self.partial_line.extend(&part[..part.len().min(MOST_BYTES - self.partial_line.len())]);
            if text.is_none() {
                continue;
            }
            let line = String::from_utf8_lossy(&self.partial_line).trim().to_owned();
            self.partial_line.clear();
            if !line.is_empty() && self.lines < MOST_LINES {
                self.lines += 1;
                log(&line);
                self.new.push(line);
            }
            if let Some(answers) = &self.answers {
                // Fails if the workload has ended.
                let _ = write(answers, b".");
            }
        }
    }

    /// Removes and returns the lines that were read since the last call.
    pub fn take_new(&mut self) -> Vec<String> {
        std::mem::take(&mut self.new)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn lines_are_read_when_they_end_without_blanks_and_cut_off_at_the_longest() {
        let (input, mut output) = std::io::pipe().unwrap();
        let mut lines = WorkloadLines::new(input.into(), None).unwrap();
        let mut read = |text: &[u8]| {
            output.write_all(text).unwrap();
            let mut logged = Vec::new();
            lines.read(|line| logged.push(line.to_owned()));
            assert_eq!(lines.take_new(), logged);
            logged
        };
        assert_eq!(read(b""), [""; 0]);
        assert_eq!(read(b"one\r\n\n  two \nthr"), ["one", "two"]);
        assert_eq!(read(b"ee\n\xff\n"), ["three", "\u{fffd}"]);
        let long = [b'a'; MOST_BYTES + 7];
        assert_eq!(read(&long), [""; 0]);
        let logged = read(b"b\nnext\n");
        assert_eq!((logged[0].len(), &*logged[1]), (MOST_BYTES, "next"));
    }
}
