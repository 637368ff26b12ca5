//! The word that a user may have meant.

/// The word most similar to `word`; `None` if none is so similar that it may have been meant: a third of its letters differ, or it
/// begins with `word`.
pub fn closest<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = word.to_lowercase();
    let judged = |candidate: &'a str| {
        let other = candidate.to_lowercase();
        let begins = 2 * wanted.len() >= other.len() && other.starts_with(&wanted);
        let differing = if begins { 1 } else { strsim::levenshtein(&wanted, &other) };
        (3 * differing <= wanted.len().max(other.len()), differing, candidate)
    };
    let may_be_meant = |(is_near, ..): &(bool, usize, &str)| *is_near;
    words.into_iter().map(judged).filter(may_be_meant).min().map(|(_, _, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_word_that_may_have_been_meant_is_proposed() {
        let known = ["about", "gc.policy", "name", "p99_ms", "packed read", "precondition", "watermark"];
        let near = |word| closest(word, known);
        for (word, meant) in [("gc.polcy", "gc.policy"), ("nam", "name"), ("p99", "p99_ms"), ("Watermrk", "watermark")]
        {
            assert_eq!(near(word), Some(meant), "{word}");
        }
        for word in ["retention", "enhanced area", "boot", "nand", "", "zzzz"] {
            assert_eq!(near(word), None, "{word}");
        }
    }
}
