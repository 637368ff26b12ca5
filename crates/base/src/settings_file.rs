//! Files of settings: texts of devices, hosts, programs, workloads and jobs.

use std::io::{self, Read};
use std::path::Path;

use crate::error::{Error, ErrorClass, Result};
use crate::input_file::InputFile;

/// Maximum number of bytes of a file of settings.
const MOST_BYTES: u64 = 16 << 20;

/// The text of a file of settings. It may be a pipe; input without an end is refused.
///
/// # Errors
/// [`ErrorClass::Io`] if it cannot be read or is larger than 16 MB, [`ErrorClass::Syntax`] if it is no UTF-8.
pub fn read_settings(path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    let read = InputFile::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|error| Error::io(path, error))?;
    if bytes.len() as u64 > MOST_BYTES {
        let problem = format!("no file of settings: it is larger than {} MB, or has no end", MOST_BYTES >> 20);
        return Err(Error::new(ErrorClass::Io, problem).in_file(path).hint("check the path"));
    }
    String::from_utf8(bytes)
        .map_err(|_| Error::io(path, io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_and_what_is_no_text_is_refused() {
        let error = read_settings(Path::new("/dev/zero")).unwrap_err();
        assert!(error.kind() == ErrorClass::Io && error.to_string().contains("/dev/zero"), "{error}");
        let missing = read_settings(Path::new("/no/such.toml")).unwrap_err();
        assert_eq!(missing.kind(), ErrorClass::Io);
    }
}
