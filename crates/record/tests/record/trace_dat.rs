//! `trace.dat` files of both versions, written here by the manual pages of trace-cmd from pages of a real kernel, and by
//! trace-cmd itself if it is installed. Needs no root.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::containers::{PAGE, Packing, capture, version_6_of, version_7_of};
use emmclab_record::KernelByteOrder::{self, Little};
use emmclab_record::{Files, open_trace};
use emmclab_trace::{ErrorClass, ReadOptions, Request, Result, TraceReader};

/// The texts and the pages of each CPU in the stream of the host.
fn host() -> (Files, Vec<Vec<u8>>) {
    let (files, cpus, _) = capture("host.stream.zst");
    (files, cpus)
}

fn version_6() -> Vec<u8> {
    let (files, cpus) = host();
    version_6_of(Little, &files, &cpus, None)
}

fn version_7(packing: Packing) -> Vec<u8> {
    let (files, cpus) = host();
    version_7_of(packing, &[("", &cpus)], &files)
}

fn open_and_read(bytes: &[u8]) -> Result<(TraceReader, Vec<Request>)> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let mut reader = open_trace(file.path(), &ReadOptions::default())?;
    let mut out = Vec::new();
    while let Some(batch) = reader.next_batch()? {
        out.extend(batch.iter());
    }
    Ok((reader, out))
}

/// The requests of a file in which all are complete.
fn read(bytes: &[u8]) -> Result<Vec<Request>> {
    let (reader, out) = open_and_read(bytes)?;
    let (ledger, header) = (reader.ledger(), reader.header());
    assert_eq!((ledger.kept, ledger.unpaired), (out.len() as u64, 0));
    assert_eq!((header.format.as_str(), header.clock.as_str()), ("trace-cmd", "monotonic"));
    Ok(out)
}

#[test]
fn both_versions_plain_and_compressed_hold_the_same_requests() {
    let expected = read(&version_6()).unwrap();
    assert!(expected.len() > 200 && expected.is_sorted_by_key(|request| request.arrival));
    for packing in [Packing::None, Packing::Zlib, Packing::Zstd] {
        assert_eq!(read(&version_7(packing)).unwrap(), expected);
    }
}

#[test]
fn of_several_buffers_the_one_with_block_events_is_read() {
    let (files, cpus) = host();
    let expected = read(&version_6()).unwrap();
    // The main buffer was also recorded, but contains no block event.
    let empty = [vec![0; 2 * PAGE], vec![0; PAGE]];
    let bytes = version_6_of(Little, &files, &empty, Some(&cpus));
    assert_eq!(read(&bytes).unwrap(), expected);
    for packing in [Packing::None, Packing::Zstd] {
        let bytes = version_7_of(packing, &[("", &empty), ("disk", &cpus)], &files);
        assert_eq!(read(&bytes).unwrap(), expected);
    }
}

#[test]
fn what_the_kernel_lost_is_counted() {
    // A second section of options, to which the end of the first one refers.
    let statistics = b"CPU: 1\nentries: 0\noverrun: 3\ncommit overrun: 0\ndropped events: 4\n\0";
    let option = [&2u16.to_le_bytes()[..], &(statistics.len() as u32).to_le_bytes(), statistics].concat();
    let end = [&[0, 0, 8, 0, 0, 0][..], &[0; 8]].concat();
    let mut bytes = version_7(Packing::None);
    let at = bytes.len();
    bytes[at - 8..].copy_from_slice(&(at as u64).to_le_bytes());
    Packing::None.section(&mut bytes, 0, &[option, end].concat());
    let (reader, _) = open_and_read(&bytes).unwrap();
    assert_eq!(reader.ledger().lost, 7);
    assert_eq!(reader.header().note.as_deref(), Some("CPU 1 lost 7 events"));
}

/// A hypothetical big-endian machine, whose kernel has only the required fields.
#[test]
fn a_file_of_a_big_endian_machine_is_read() {
    let field = |name: &str, offset, size| format!("\tfield:{name};\toffset:{offset};\tsize:{size};\tsigned:0;\n");
    let mut files = host().0;
    files.retain(|name, _| !name.starts_with("events/block/"));
    for (id, name) in ["block_bio_queue", "block_rq_issue", "block_rq_complete"].into_iter().enumerate() {
        let fields = [
            field("unsigned short common_type", 0, 2),
            field("int common_pid", 4, 4),
            field("dev_t dev", 8, 4),
            field("sector_t sector", 16, 8),
            field("unsigned int nr_sector", 24, 4),
            field("char rwbs[8]", 28, 8),
        ];
        let text = format!("name: {name}\nID: {}\nformat:\n{}\nprint fmt: x\n", id + 1, fields.concat());
        files.insert(format!("events/block/{name}/format"), text);
    }
    let mut records = Vec::new();
    for id in 1..=3u16 {
        let mut record = [id.to_be_bytes(), [0; 2]].concat();
        record.extend([42u32, 179 << 20, 0].into_iter().flat_map(u32::to_be_bytes));
        record.extend(64u64.to_be_bytes());
        record.extend(8u32.to_be_bytes());
        record.extend(b"WS\0\0\0\0\0\0");
        // The two bit fields are allocated from the highest bit.
        records.extend((((record.len() as u32 / 4) << 27) + 1_000).to_be_bytes());
        records.extend(record);
    }
    let mut page = [5_000u64.to_be_bytes(), (records.len() as u64).to_be_bytes()].concat();
    page.extend(records);
    page.resize(PAGE, 0);
    let requests = read(&version_6_of(KernelByteOrder::Big, &files, &[page], None)).unwrap();
    let [request] = requests[..] else { panic!("{requests:?}") };
    let times = [Some(request.arrival), request.issue, request.complete].map(|time| time.unwrap().0);
    assert_eq!((times, request.sector.0, request.sectors), ([6_000, 7_000, 8_000], 64, 8));
    assert_eq!(request.pid, Some(42));
}

#[test]
fn a_file_of_trace_cmd_is_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/trace_dat/packed");
    assert_eq!(read(&std::fs::read(path).unwrap()).unwrap(), read(&version_6()).unwrap());
}

/// Files that trace-cmd converts from these files.
#[test]
fn what_trace_cmd_writes_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (files, cpus) = host();
    let empty = [vec![0; PAGE], vec![0; PAGE]];
    std::fs::write(path("one.dat"), version_6()).unwrap();
    std::fs::write(path("two.dat"), version_6_of(Little, &files, &empty, Some(&cpus))).unwrap();
    let expected = read(&version_6()).unwrap();
    for (source, version, compression) in
        [("one.dat", "7", "zstd"), ("one.dat", "7", "none"), ("one.dat", "6", "none"), ("two.dat", "7", "zstd")]
    {
        let done = Command::new("trace-cmd")
            .args(["convert", "--file-version", version, "--compression", compression, "-i"])
            .args([path(source), "-o".into(), path("out.dat")])
            .output();
        let Ok(done) = done else {
            emmclab_testing::skip("trace-cmd", "apt-get install trace-cmd");
            return;
        };
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let bytes = std::fs::read(path("out.dat")).unwrap();
        assert_eq!(read(&bytes).unwrap(), expected, "{source}, version {version}, {compression}");
    }
}

#[test]
fn a_file_that_was_compressed_as_a_whole_is_read_as_it_is() {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&version_6()).unwrap();
    let packed = packed.finish().unwrap();
    assert_eq!(read(&packed).unwrap(), read(&version_6()).unwrap());
    let error = open_and_read(&packed[..packed.len() / 2]).err().unwrap();
    assert!(error.to_string().contains("byte "), "{error}");
}

#[test]
fn what_cannot_be_read_is_said_with_a_way_out() {
    // Processor cycles are not times.
    let mut bytes = version_6();
    let at = bytes.windows(19).position(|bytes_there| bytes_there == b"local global [mono]").unwrap();
    bytes[at..at + 19].copy_from_slice(b"[counter] mono     ");
    let error = open_and_read(&bytes).err().unwrap();
    assert_eq!(error.kind(), ErrorClass::Unsupported, "{error}");
    assert!(error.hint_text().unwrap().contains("-C mono"));
    assert_eq!(open_and_read(b"").err().unwrap().kind(), ErrorClass::Empty);
}

#[test]
fn a_file_cut_or_damaged_anywhere_is_an_error_and_never_a_panic() {
    for (version, bytes) in [version_6(), version_7(Packing::None), version_7(Packing::Zstd)].iter().enumerate() {
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
    let error = open_and_read(b"\x17\x08\x44tracing8\0\0\x08\0\x10\0\0").err().unwrap();
    assert_eq!(error.kind(), ErrorClass::Unsupported);
}

#[test]
fn the_fuzz_corpus_never_panics() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/trace_dat");
    let mut files = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let _ = open_and_read(&std::fs::read(file.unwrap().path()).unwrap());
        files += 1;
    }
    assert!(files > 0, "the corpus is missing");
}
