//! Keys of settings that had another name before, which files may still hold.

use toml::{Table, Value};

/// Section, old key, new key.
const ALIASES: [(&str, &str, &str); 2] =
    [("gc", "hard_free_blocks", "low_watermark"), ("gc", "soft_free_blocks", "high_watermark")];

/// The name of today for a dotted key.
pub(super) fn current(key: &str) -> String {
    let alias = ALIASES.iter().find(|(section, old, _)| key.split_once('.') == Some((section, old)));
    alias.map_or_else(|| key.to_owned(), |(section, _, new)| format!("{section}.{new}"))
}

/// Renames old keys, and notes each; a file that has both keeps both, and the old one is refused.
pub(super) fn rename(given: &mut Table, notes: &mut Vec<String>) {
    for (section, old, new) in ALIASES {
        let Some(Value::Table(table)) = given.get_mut(section) else { continue };
        if table.contains_key(new) {
            continue;
        }
        if let Some(value) = table.remove(old) {
            table.insert(new.to_owned(), value);
            notes.push(format!(
                "`{section}.{old}` is called `{section}.{new}` now; the next version will no longer know the old name"
            ));
        }
    }
}
