//! Reads settings files: devices, hosts, programs, workloads and jobs.

use std::io::{self, Read};
use std::path::Path;

use crate::{Error, ErrorClass, InputFile, Result};

const MOST_BYTES: u64 = 16 << 20;

/// Returns the text of a settings file, which may be a pipe. Fails with [`ErrorClass::Io`] if the file cannot be read or is larger than 16
/// MB, and with [`ErrorClass::Syntax`] if it is not UTF-8.
pub fn read_settings(path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    let read = InputFile::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|error| Error::io(path, error))?;
    if bytes.len() as u64 > MOST_BYTES {
        let problem = format!("not a settings file: it is larger than {} MB, or endless", MOST_BYTES >> 20);
        return Err(Error::new(ErrorClass::Io, problem).in_file(path).hint("check the path"));
    }
    String::from_utf8(bytes)
        .map_err(|_| Error::io(path, io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8")))
}

/// Returns the most similar of `words`, as a suggestion for a misspelled `word`. Words are similar if at most a third of their letters
/// differ, or if they begin with `word`. `None` if no word is similar.
pub fn closest<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = word.to_lowercase();
    let rate = |candidate: &'a str| {
        let other = candidate.to_lowercase();
        let begins = 2 * wanted.len() >= other.len() && other.starts_with(&wanted);
        let differing = if begins { 1 } else { strsim::levenshtein(&wanted, &other) };
        (3 * differing <= wanted.len().max(other.len()), differing, candidate)
    };
    let may_be_meant = |(is_near, ..): &(bool, usize, &str)| *is_near;
    words.into_iter().map(rate).filter(may_be_meant).min().map(|(_, _, candidate)| candidate)
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

    #[test]
    fn only_a_word_that_may_have_been_meant_is_proposed() {
        let known = ["about", "gc.policy", "name", "p99_ms", "packed read", "precondition", "watermark"];
        let near = |word| closest(word, known);
        for (word, meant) in [("gc.polcy", "gc.policy"), ("nam", "name"), ("p99", "p99_ms"), ("Watermrk", "watermark")] {
            assert_eq!(near(word), Some(meant), "{word}");
        }
        for word in ["retention", "enhanced area", "boot", "nand", "", "zzzz"] {
            assert_eq!(near(word), None, "{word}");
        }
    }
}
