"""Options with an optional value, which the command-line parser does not support."""

import re

#: A word after `--mend-clock` that is taken as its value (valid or not), and not as a file.
_LENGTH = re.compile(r"auto|[-+]?[0-9]+(\.[0-9]+)?[A-Za-z]*")


def insert_default_values(words: list[str]) -> list[str]:
    """Insert the default value of `--mend-clock` if the next word is not a length.

    >>> insert_default_values(["profile", "--mend-clock", "trace.txt"])
    ['profile', '--mend-clock=auto', 'trace.txt']
    >>> insert_default_values(["profile", "trace.txt", "--mend-clock", "1h"])
    ['profile', 'trace.txt', '--mend-clock', '1h']
    """
    end = words.index("--") if "--" in words else len(words)
    following = [*words[1:end], "", *words[end + 1 :], ""]
    return [
        f"{word}=auto" if word == "--mend-clock" and place < end and not _LENGTH.fullmatch(next_word) else word
        for place, (word, next_word) in enumerate(zip(words, following, strict=False))
    ]
