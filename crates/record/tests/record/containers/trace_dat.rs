//! Writes `trace.dat` files of both versions, by the manual pages of trace-cmd.

use std::collections::BTreeMap;
use std::io::Write;

use emmclab_record::Files;

use Order::Little;

pub const PAGE: usize = 4096;

/// The file writes numbers lowest byte first, or highest first.
#[derive(Clone, Copy, PartialEq)]
pub enum Order {
    Little,
    Big,
}

impl Order {
    fn number(self, value: u64, size: usize) -> Vec<u8> {
        let mut bytes = value.to_le_bytes()[..size].to_vec();
        if self == Order::Big {
            bytes.reverse();
        }
        bytes
    }
}

fn text(order: Order, out: &mut Vec<u8>, text: &str) {
    out.extend(order.number(text.len() as u64, 8));
    out.extend(text.as_bytes());
}

fn start(order: Order, version: u8) -> Vec<u8> {
    let mut out = b"\x17\x08\x44tracing".to_vec();
    out.extend([version, 0, u8::from(order == Order::Big), 8]);
    out.extend(order.number(PAGE as u64, 4));
    out
}

fn header_info(order: Order, files: &Files) -> Vec<u8> {
    let mut out = Vec::new();
    for name in ["header_page", "header_event"] {
        out.extend(name.as_bytes());
        out.push(0);
        text(order, &mut out, &files[&format!("events/{name}")]);
    }
    out
}

fn event_formats(order: Order, files: &Files) -> Vec<u8> {
    let mut systems: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, text) in files {
        if let Some((system, _)) = name.strip_prefix("events/").and_then(|name| name.split_once('/')) {
            systems.entry(system).or_default().push(text);
        }
    }
    let mut out = order.number(systems.len() as u64, 4);
    for (system, events) in systems {
        out.extend(system.as_bytes());
        out.push(0);
        out.extend(order.number(events.len() as u64, 4));
        for format in events {
            text(order, &mut out, format);
        }
    }
    out
}

/// Names of tasks, where the machine gave them.
fn names_of_tasks(order: Order, files: &Files) -> Vec<u8> {
    let mut out = Vec::new();
    text(order, &mut out, files.get("saved_cmdlines").map_or("", String::as_str));
    out
}

/// A version 6 file of a main buffer and, behind it, one with a name.
pub fn version_6_of(order: Order, files: &Files, main: &[Vec<u8>], instance: Option<&[Vec<u8>]>) -> Vec<u8> {
    let mut out = start(order, b'6');
    out.extend(header_info(order, files));
    out.extend(order.number(0, 4)); // formats of ftrace's own events
    out.extend(event_formats(order, files));
    out.extend([0; 4 + 4]); // symbols, printk
    out.extend(names_of_tasks(order, files));
    out.extend(order.number(main.len() as u64, 4));
    out.extend(b"options  \0");
    let clock = b"local global [mono] boot\n\0";
    out.extend([order.number(4, 2), order.number(clock.len() as u64, 4), clock.to_vec()].concat());
    let named_at = out.len() + 6;
    if instance.is_some() {
        out.extend([order.number(3, 2), order.number(8 + 5, 4), vec![0; 8], b"disk\0".to_vec()].concat());
    }
    out.extend([0, 0]);
    pages_6(order, &mut out, main);
    if let Some(cpus) = instance {
        let at = out.len() as u64;
        out[named_at..named_at + 8].copy_from_slice(&order.number(at, 8));
        pages_6(order, &mut out, cpus);
    }
    out
}

fn pages_6(order: Order, out: &mut Vec<u8>, cpus: &[Vec<u8>]) {
    out.extend(b"flyrecord\0");
    let mut at = (out.len() + 16 * cpus.len()).next_multiple_of(PAGE);
    for cpu in cpus {
        out.extend(order.number(at as u64, 8));
        out.extend(order.number(cpu.len() as u64, 8));
        at += cpu.len();
    }
    out.resize(out.len().next_multiple_of(PAGE), 0);
    out.extend(cpus.concat());
}

/// How a version 7 file is packed.
#[derive(Clone, Copy, PartialEq)]
pub enum Packing {
    None,
    Zlib,
    Zstd,
}

impl Packing {
    /// Packed, behind both sizes.
    fn chunk(self, data: &[u8]) -> Vec<u8> {
        let packed = if self == Packing::Zlib {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        } else {
            zstd::encode_all(data, 1).unwrap()
        };
        let sizes = [packed.len(), data.len()];
        sizes.iter().flat_map(|size| Little.number(*size as u64, 4)).chain(packed).collect()
    }

    /// In pieces of three pages, behind their number.
    fn chunks(self, data: &[u8]) -> Vec<u8> {
        let pieces: Vec<_> = data.chunks(3 * PAGE).collect();
        let mut out = Little.number(pieces.len() as u64, 4);
        out.extend(pieces.into_iter().flat_map(|piece| self.chunk(piece)));
        out
    }

    pub fn section(self, out: &mut Vec<u8>, id: u16, content: &[u8]) -> u64 {
        let at = out.len() as u64;
        let content = if self == Packing::None { content.to_vec() } else { self.chunk(content) };
        out.extend(id.to_le_bytes());
        out.extend(u16::from(self != Packing::None).to_le_bytes());
        out.extend([0; 4]);
        out.extend((content.len() as u64).to_le_bytes());
        out.extend(content);
        at
    }
}

pub fn version_7_of(packing: Packing, buffers: &[(&str, &[Vec<u8>])], files: &Files) -> Vec<u8> {
    let mut out = start(Little, b'7');
    out.extend(match packing {
        Packing::None => &b"none\0\0"[..],
        Packing::Zlib => b"zlib\x001.2\0",
        Packing::Zstd => b"zstd\x001.5\0",
    });
    let options_at = out.len();
    out.extend([0; 8]);
    let header = packing.section(&mut out, 16, &header_info(Little, files));
    let formats = packing.section(&mut out, 18, &event_formats(Little, files));
    let tasks = packing.section(&mut out, 21, &names_of_tasks(Little, files));
    let sections = [(16u16, header), (18, formats), (21, tasks)];
    let mut all: Vec<_> = sections.map(|(id, at)| (id, at.to_le_bytes().to_vec())).into();
    for (name, cpus) in buffers {
        let mut buffer = [&[0; 8][..], name.as_bytes(), b"\0mono\0"].concat();
        buffer.extend(Little.number(PAGE as u64, 4));
        buffer.extend(Little.number(cpus.len() as u64, 4));
        for (number, cpu) in cpus.iter().enumerate() {
            let data = if packing == Packing::None { cpu.clone() } else { packing.chunks(cpu) };
            buffer.extend((number as u32).to_le_bytes());
            buffer.extend((out.len() as u64).to_le_bytes());
            buffer.extend((data.len() as u64).to_le_bytes());
            out.extend(data);
        }
        all.push((3, buffer));
    }
    all.push((0, vec![0; 8]));
    let mut options = Vec::new();
    for (id, data) in all {
        options.extend(id.to_le_bytes());
        options.extend((data.len() as u32).to_le_bytes());
        options.extend(data);
    }
    let at = packing.section(&mut out, 0, &options);
    out[options_at..options_at + 8].copy_from_slice(&at.to_le_bytes());
    out
}
