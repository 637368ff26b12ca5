//! Parses the output of the helper script on the recorded machine: texts first, then raw pages.
//!
//! ```text
//! @@emmclab 1                     the helper runs
//! @@file NAME                     lines up to the next @@ are the text NAME
//! @@error WORD                    it cannot record
//! @@ready                         it waits for the reply on its standard input
//! @@file registers/DISK ...       the registers of the devices of the disks
//! @@stream                        frames follow:
//! P CPU COUNT                       COUNT pages of one CPU
//! R                                 a round over all CPUs has ended
//! E                                 the last round has ended
//! @@file per_cpu/cpuN/stats ...   counters at the end
//! @@end
//! ```

use std::io::{self, BufRead, BufReader, Read};

use emmclab_trace::{Error, ErrorClass, Result};

use crate::kernel_format::Files;

/// Version of the protocol, which the helper sends in its first line.
const VERSION: &str = "1";
/// Maximum length of a line; lines of the protocol, of `/proc/mounts` and of format files are shorter.
const LONGEST_LINE: u64 = 1 << 16;
/// Maximum length of all texts together, in bytes. The helper sends about 30 KB, so longer output is not from the helper.
const LARGEST_TEXTS: usize = 1 << 24;

/// A frame of the helper's output, which follows the texts.
#[derive(Debug, PartialEq, Eq)]
pub enum HelperFrame {
    /// Pages follow; each is read with [`HelperStream::page`].
    Pages {
        /// The CPU of the pages.
        cpu: usize,
        /// Number of pages.
        count: u64,
    },
    /// End of a round, in which the ring buffer of each CPU was read to its end.
    Round,
    /// The end of the recording; the final texts follow.
    End,
}

/// Reads the output of the helper (the program that records on the other machine), from a live connection or from a file.
pub struct HelperStream<R> {
    input: BufReader<R>,
    line: Vec<u8>,
}

/// The error for a connection or file that ends too early.
pub(crate) fn link_lost() -> Error {
    Error::new(ErrorClass::Truncated, "the link to the recorded machine was lost")
        .hint("use the trace, which is complete up to the loss; the recorded machine removes its tracefs instance by itself")
}

impl<R: Read> HelperStream<R> {
    /// Creates a stream from input that begins with the helper's first line, or with output of the login shell before it.
    pub fn new(input: R) -> Self {
        Self { input: BufReader::with_capacity(1 << 18, input), line: Vec::new() }
    }

    /// The next line without its end; `None` at the end of the stream.
    fn line(&mut self) -> Result<Option<&str>> {
        self.line.clear();
        let read = self.input.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut self.line).map_err(|error| failed(&error))?;
        if read == 0 {
            return Ok(None);
        }
        if self.line.pop() != Some(b'\n') {
            return Err(if read as u64 == LONGEST_LINE { foreign(&self.line) } else { link_lost() });
        }
        // A pseudo-terminal replaces each LF by CR LF, also in the binary pages of the stream.
        if self.line.last() == Some(&b'\r') {
            return Err(Error::new(
                ErrorClass::Unsupported,
                "the link changes line ends, so that the bytes are not received as they were sent",
            )
            .hint("a pseudo-terminal changes line ends: update adb, or remove `RequestTTY` from the ssh configuration"));
        }
        let line = &self.line;
        std::str::from_utf8(line).map(Some).map_err(|_| foreign(line))
    }

    /// Reads the texts up to the mark `@@until`. Lines before the helper's first line are output of the login shell.
    /// Errors: if the helper cannot record, the connection is lost, or the output is not that of the helper.
    pub fn texts(&mut self, until: &str) -> Result<Files> {
        let mut files = Files::new();
        let mut name: Option<String> = None;
        let mut total = 0;
        while let Some(line) = self.line()? {
            total += line.len();
            if total > LARGEST_TEXTS {
                return Err(foreign(line.as_bytes()));
            }
            let Some(mark) = line.strip_prefix("@@") else {
                if let Some(text) = name.as_ref().and_then(|name| files.get_mut(name)) {
                    text.push_str(line);
                    text.push('\n');
                }
                continue;
            };
            match mark.split_once(' ').unwrap_or((mark, "")) {
                ("emmclab", VERSION) => {}
                ("file", file) => {
                    files.insert(file.to_owned(), String::new());
                    name = Some(file.to_owned());
                }
                ("error", word) => return Err(refused(word)),
                (mark, _) if mark == until => return Ok(files),
                _ => return Err(foreign(line.as_bytes())),
            }
        }
        Err(link_lost())
    }

    /// Reads the next frame.
    /// Errors: if the connection is lost or the stream is damaged.
    pub fn frame(&mut self) -> Result<HelperFrame> {
        let line = self.line()?.ok_or_else(link_lost)?;
        let mut words = line.split(' ');
        match (words.next(), words.next(), words.next()) {
            (Some("R"), None, None) => Ok(HelperFrame::Round),
            (Some("E"), None, None) => Ok(HelperFrame::End),
            (Some("P"), Some(cpu), Some(count)) => match (cpu.parse(), count.parse()) {
                (Ok(cpu), Ok(count)) => Ok(HelperFrame::Pages { cpu, count }),
                _ => Err(foreign(line.as_bytes())),
            },
            _ => Err(foreign(line.as_bytes())),
        }
    }

    /// Reads a page into `page`, which must have the length of a page.
    /// Errors: if the connection is lost before the page is complete.
    pub fn page(&mut self, page: &mut [u8]) -> Result<()> {
        self.input.read_exact(page).map_err(|error| failed(&error))
    }
}

fn failed(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::TimedOut
        | io::ErrorKind::WouldBlock => link_lost(),
        _ => Error::new(ErrorClass::Io, format!("reading from the recorded machine failed: {error}"))
            .hint("check the connection, and record again"),
    }
}

fn foreign(line: &[u8]) -> Error {
    Error::new(ErrorClass::Syntax, "the recorded machine sent a line that does not come from emmclab's recording helper")
        .of_field("stream", 0, line)
        .hint("check that no login script on the recorded machine prints to the same output, and that its shell is a POSIX shell")
}

/// Translates an error code of the helper into a text with a hint.
fn refused(word: &str) -> Error {
    let (problem, hint) = match word {
        "tracefs" => (
            "the recorded machine has no tracefs that can be used",
            "the kernel needs CONFIG_FTRACE and CONFIG_BLK_DEV_IO_TRACE; run as root (Android: `adb root`, or a rooted phone with `su`)",
        ),
        "instance" => (
            "the recorded machine does not allow a tracefs instance",
            "run as root; on Android the su domain must be allowed to write to tracefs; kernel lockdown=confidentiality forbids tracing",
        ),
        "buffer" => ("the recorded machine does not have enough memory for the trace buffer", "give a smaller --buffer-kb"),
        _ => (
            "the recorded machine refuses to record",
            "run `emmclab record` as root on the recorded machine; the value above is the error code of its recording helper",
        ),
    };
    Error::new(ErrorClass::Unsupported, problem).of_field("helper", 0, word.as_bytes()).hint(hint)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLE: &[u8] = b"Welcome to board!\n@@emmclab 1\n@@file a\nx\n# y\n@@file b\n@@ready\n@@stream\nP 3 2\nabcdefghR\nE\n@@file s\nentries: 0\n@@end\n";

    fn run(bytes: &[u8]) -> Result<(Files, Vec<Vec<u8>>, Files)> {
        let mut stream = HelperStream::new(bytes);
        let before = stream.texts("ready")?;
        assert!(stream.texts("stream")?.is_empty());
        let mut pages = Vec::new();
        loop {
            match stream.frame()? {
                HelperFrame::Pages { cpu: _, count } => {
                    for _ in 0..count {
                        let mut page = vec![0; 4];
                        stream.page(&mut page)?;
                        pages.push(page);
                    }
                }
                HelperFrame::Round => {}
                HelperFrame::End => return Ok((before, pages, stream.texts("end")?)),
            }
        }
    }

    #[test]
    fn texts_pages_and_counters_come_out_as_they_were_sent() {
        let (before, pages, after) = run(SAMPLE).unwrap();
        assert_eq!((before["a"].as_str(), before["b"].as_str()), ("x\n# y\n", ""));
        assert_eq!(pages, [b"abcd", b"efgh"]);
        assert_eq!(after["s"], "entries: 0\n");
    }

    #[test]
    fn a_stream_cut_anywhere_is_a_lost_link() {
        for end in 0..SAMPLE.len() {
            assert_eq!(run(&SAMPLE[..end]).unwrap_err().kind(), ErrorClass::Truncated, "cut at {end}");
        }
    }

    #[test]
    fn what_the_helper_cannot_do_is_said_in_words() {
        let error = run(b"@@emmclab 1\n@@error tracefs\n").unwrap_err();
        assert!(error.to_string().contains("no tracefs"), "{error}");
        assert!(error.hint_text().is_some());
        let error = run(b"@@emmclab 1\r\n").unwrap_err();
        assert!(error.hint_text().unwrap().contains("pseudo-terminal"));
    }

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(at in 0..SAMPLE.len(), with in prop::collection::vec(any::<u8>(), 0..20)) {
            let mut bytes = SAMPLE.to_vec();
            bytes.splice(at..(at + with.len()).min(SAMPLE.len()), with);
            // The expected texts may be anywhere in the bytes or absent; the test only checks that parsing ends.
            let mut stream = HelperStream::new(&bytes[..]);
            let _ = stream.texts("ready");
            while let Ok(frame) = stream.frame() {
                if let HelperFrame::Pages { count, .. } = frame {
                    for _ in 0..count {
                        if stream.page(&mut [0; 4]).is_err() { break; }
                    }
                }
            }
        }
    }
}
