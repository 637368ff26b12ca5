//! Finds the device presets: a TOML file in `presets/devices`, or in the folder `devices` of a paper, is all that a preset needs.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../..").canonicalize()?;
    let mut folders = vec![root.join("presets/devices")];
    for paper in fs::read_dir(root.join("python/emmclab/papers"))? {
        folders.push(paper?.path().join("devices"));
    }
    let mut presets = Vec::new();
    for folder in folders.iter().filter(|folder| folder.is_dir()) {
        println!("cargo::rerun-if-changed={}", folder.display());
        for file in fs::read_dir(folder)? {
            let path = file?.path();
            if let (Some(name), true) = (path.file_stem(), path.extension().is_some_and(|ending| ending == "toml")) {
                presets.push((name.to_string_lossy().into_owned(), path.to_string_lossy().into_owned()));
            }
        }
    }
    presets.sort();
    let mut list = String::from("&[");
    for (name, path) in presets {
        let _ = write!(list, "DevicePreset {{ name: {name:?}, text: include_str!({path:?}) }}, ");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(out.join("presets.rs"), list + "]")
}
