//! `trace.dat` files of both versions, written here by the manual pages of trace-cmd around pages of a real kernel. Needs no
//! root. (Files that trace-cmd 3.1 itself wrote of the same pages gave the same requests.)
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::io::Write;
use std::path::Path;

use emmclab_record::{Files, Frame, HelperStream, open_trace};
use emmclab_trace::{Kind, ReadOptions, Request, Result};

const PAGE: usize = 4096;

/// The texts and the pages of each CPU of the host's stream.
fn host() -> (Files, Vec<Vec<u8>>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/host.stream.zst");
    let bytes = zstd::decode_all(std::fs::File::open(path).unwrap()).unwrap();
    let mut stream = HelperStream::new(&bytes[..]);
    let files = stream.texts("ready").unwrap();
    stream.texts("stream").unwrap();
    let mut cpus = vec![Vec::new(); 2];
    while let Frame::Pages { cpu, count } = stream.frame().unwrap() {
        for _ in 0..count {
            let mut page = vec![0; PAGE];
            stream.page(&mut page).unwrap();
            cpus[cpu].extend(page);
        }
    }
    (files, cpus)
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn start(version: u8) -> Vec<u8> {
    let mut out = b"\x17\x08\x44tracing".to_vec();
    out.extend([version, 0, 0, 8]);
    out.extend((PAGE as u32).to_le_bytes());
    out
}

fn header_info(files: &Files) -> Vec<u8> {
    let mut out = Vec::new();
    for name in ["header_page", "header_event"] {
        out.extend(name.as_bytes());
        out.push(0);
        text(&mut out, &files[&format!("events/{name}")]);
    }
    out
}

fn event_formats(files: &Files) -> Vec<u8> {
    let events: Vec<_> = files.iter().filter(|(name, _)| name.starts_with("events/block/")).collect();
    let mut out = 1u32.to_le_bytes().to_vec();
    out.extend(b"block\0");
    out.extend((events.len() as u32).to_le_bytes());
    for (_, format) in events {
        text(&mut out, format);
    }
    out
}

fn version_6() -> Vec<u8> {
    let (files, cpus) = host();
    let mut out = start(b'6');
    out.extend(header_info(&files));
    out.extend(0u32.to_le_bytes()); // formats of ftrace's own events
    out.extend(event_formats(&files));
    out.extend([0; 4 + 4 + 8]); // symbols, printk, tasks
    out.extend((cpus.len() as u32).to_le_bytes());
    out.extend(b"options  \0");
    out.extend([1, 0, 3, 0, 0, 0, b'a', b'b', b'c', 0, 0]);
    out.extend(b"flyrecord\0");
    let mut at = (out.len() + 16 * cpus.len()).next_multiple_of(PAGE);
    for cpu in &cpus {
        out.extend((at as u64).to_le_bytes());
        out.extend((cpu.len() as u64).to_le_bytes());
        at += cpu.len();
    }
    out.resize(out.len().next_multiple_of(PAGE), 0);
    out.extend(cpus.concat());
    out
}

fn section(out: &mut Vec<u8>, id: u16, content: &[u8], packed: bool) -> u64 {
    let at = out.len() as u64;
    let content = if packed { chunk(content) } else { content.to_vec() };
    out.extend(id.to_le_bytes());
    out.extend(u16::from(packed).to_le_bytes());
    out.extend([0; 4]);
    out.extend((content.len() as u64).to_le_bytes());
    out.extend(content);
    at
}

/// Packed, behind both sizes.
fn chunk(data: &[u8]) -> Vec<u8> {
    let packed = zstd::encode_all(data, 1).unwrap();
    let sizes = [packed.len() as u32, data.len() as u32];
    sizes.iter().flat_map(|size| size.to_le_bytes()).chain(packed).collect()
}

/// In pieces of three pages, behind their number.
fn chunks(data: &[u8]) -> Vec<u8> {
    let pieces: Vec<_> = data.chunks(3 * PAGE).collect();
    let mut out = (pieces.len() as u32).to_le_bytes().to_vec();
    out.extend(pieces.into_iter().flat_map(chunk));
    out
}

fn version_7(packed: bool) -> Vec<u8> {
    let (files, cpus) = host();
    let mut out = start(b'7');
    out.extend(if packed { &b"zstd\x001.5\0"[..] } else { b"none\0\0" });
    let options_at = out.len();
    out.extend([0; 8]);
    let header = section(&mut out, 16, &header_info(&files), packed);
    let formats = section(&mut out, 18, &event_formats(&files), packed);
    let mut buffer = [0; 8].to_vec();
    buffer.extend(b"\0mono\0");
    buffer.extend((PAGE as u32).to_le_bytes());
    buffer.extend((cpus.len() as u32).to_le_bytes());
    for (number, cpu) in cpus.iter().enumerate() {
        let data = if packed { chunks(cpu) } else { cpu.clone() };
        buffer.extend((number as u32).to_le_bytes());
        buffer.extend((out.len() as u64).to_le_bytes());
        buffer.extend((data.len() as u64).to_le_bytes());
        out.extend(data);
    }
    let mut options = Vec::new();
    for (id, data) in [
        (16u16, header.to_le_bytes().to_vec()),
        (18, formats.to_le_bytes().to_vec()),
        (3, buffer),
        (0, vec![0; 8]),
    ] {
        options.extend(id.to_le_bytes());
        options.extend((data.len() as u32).to_le_bytes());
        options.extend(data);
    }
    let at = section(&mut out, 0, &options, packed);
    out[options_at..options_at + 8].copy_from_slice(&at.to_le_bytes());
    out
}

fn read(bytes: &[u8]) -> Result<Vec<Request>> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let mut reader = open_trace(file.path(), &ReadOptions::default())?;
    let mut out = Vec::new();
    while let Some(batch) = reader.next_batch()? {
        out.extend(batch.iter());
    }
    let ledger = reader.ledger();
    assert_eq!(ledger.kept, out.len() as u64);
    assert_eq!((ledger.lost, ledger.unpaired), (0, 0), "{ledger}");
    assert_eq!(reader.header().format, "trace-cmd");
    Ok(out)
}

#[test]
fn both_versions_plain_and_compressed_hold_the_same_requests() {
    let expected = read(&version_6()).unwrap();
    assert!(expected.len() > 200 && expected.is_sorted_by_key(|request| request.arrival));
    assert_eq!(read(&version_7(false)).unwrap(), expected);
    assert_eq!(read(&version_7(true)).unwrap(), expected);
}

#[test]
fn a_file_cut_or_damaged_anywhere_is_an_error_and_never_a_panic() {
    for (version, bytes) in [version_6(), version_7(false), version_7(true)].iter().enumerate() {
        for end in (10..bytes.len()).step_by(997) {
            let error = open_and_read(&bytes[..end]).err();
            assert!(error.is_some(), "{version}: {end} of {} bytes", bytes.len());
        }
        for at in (0..bytes.len()).step_by(499) {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0xff;
            let _ = open_and_read(&bytes);
        }
    }
    let error = open_and_read(b"\x17\x08\x44tracing8\0\0\x08\0\x10\0\0").unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
}

/// As `read`, of a file that may hold anything.
fn open_and_read(bytes: &[u8]) -> Result<usize> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let mut reader = open_trace(file.path(), &ReadOptions::default())?;
    let mut count = 0;
    while let Some(batch) = reader.next_batch()? {
        count += batch.len();
    }
    Ok(count)
}
