//! Tests with tools of other projects: libnbd, QEMU and fio. A test is skipped if its tool is missing.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use emmclab_serve::nbd::{ListenAddress, NbdServer};
use emmclab_testing::has_tools;

use crate::devices::TestDevice;
use crate::support::{TestServer, memory, options, pattern};

const SIZE: usize = 8 << 20;

/// A server for a test that needs this tool; `None` if the test must be skipped.
fn bench(tool: &str) -> Option<TestServer> {
    has_tools(&[tool]).then(|| TestServer::on(memory(SIZE as u64 / 512)))
}

/// Like [`bench`], with a device that completes late and out of order.
fn late_bench(tool: &str, max_sectors: u32) -> Option<TestServer> {
    has_tools(&[tool]).then(|| TestServer::on(Arc::new(TestDevice::late(SIZE as u64 / 512, max_sectors))))
}

impl TestServer {
    fn uri(&self) -> String {
        self.server.uri()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file that consists of data, holes, and data again.
    fn image(&self, name: &str) -> String {
        let mut data = pattern(11, SIZE);
        data[1 << 20..5 << 20].fill(0);
        fs::write(self.path(name), data).unwrap();
        self.path(name).display().to_string()
    }

    /// Runs a tool, which must succeed; returns its output.
    fn run(&self, tool: &str, arguments: &[&str]) -> String {
        let done = Command::new(tool).args(arguments).current_dir(self.folder.path()).output().unwrap();
        let [out, errors] = [&done.stdout, &done.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        assert!(done.status.success(), "{tool} {arguments:?}: {out}{errors}");
        out
    }
}

#[test]
fn nbdinfo_sees_what_is_offered() {
    let Some(bench) = bench("nbdinfo") else { return };
    let text = bench.run("nbdinfo", &[&bench.uri()]);
    for line in [
        "newstyle-fixed without TLS, using structured packets",
        "export-size: 8388608 (8M)",
        "description: a device for tests",
        "base:allocation",
        "is_read_only: false",
        "can_cache: false",
        "can_df: true",
        "can_fast_zero: true",
        "can_flush: true",
        "can_fua: true",
        "can_multi_conn: true",
        "can_trim: true",
        "can_zero: true",
        "block_size_minimum: 512",
        "block_size_preferred: 4096",
        "block_size_maximum: 33554432",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let listed = bench.run("nbdinfo", &["--list", &bench.uri()]);
    assert!(listed.contains("export=\"\"") && listed.contains("export=\"disk\""), "{listed}");
    assert_eq!(bench.run("nbdinfo", &["--size", &bench.uri().replace("///", "///disk")]), "8388608\n");
    let mapped = bench.run("nbdinfo", &["--map", &bench.uri()]);
    assert_eq!(mapped.split_whitespace().collect::<Vec<_>>(), ["0", "8388608", "3", "hole,zero"]);
}

#[test]
fn nbdcopy_there_and_back_is_identical() {
    for bench in [bench("nbdcopy"), late_bench("nbdcopy", 100)].into_iter().flatten() {
        let image = bench.image("image");
        bench.run("nbdcopy", &["--flush", &image, &bench.uri()]);
        for (name, arguments) in [("a", &[][..]), ("b", &["--synchronous"]), ("c", &["--connections=4"])] {
            bench.run("nbdcopy", &[arguments, &[&bench.uri(), name]].concat());
            assert!(fs::read(bench.path(name)).unwrap() == fs::read(&image).unwrap(), "{arguments:?}");
        }
    }
}

#[test]
fn nbdsh_finds_the_errors_of_the_specification() {
    // The module belongs to Debian's Python, which may not be the first one in `PATH`.
    let python = "/usr/bin/python3";
    if !Command::new(python).args(["-c", "import nbd"]).output().is_ok_and(|done| done.status.success()) {
        emmclab_testing::skip("nbdsh", "apt-get install python3-libnbd");
        return;
    }
    let script = r#"
import errno
def fails(code, work):
    try:
        work()
    except nbd.Error as error:
        assert error.errnum == code, error
    else:
        assert False, "no error"
h.set_strict_mode(0)
size = h.get_size()
h.pwrite(b"x" * 1024, 512, nbd.CMD_FLAG_FUA)
assert h.pread(512, 1024) == b"x" * 512
assert h.pread(1024, 0, nbd.CMD_FLAG_DF) == bytes(512) + b"x" * 512
fails(errno.EINVAL, lambda: h.pread(512, size))
fails(errno.ENOSPC, lambda: h.pwrite(bytes(512), size))
fails(errno.ENOSPC, lambda: h.zero(1024, size - 512))
fails(errno.EINVAL, lambda: h.trim(1024, size - 512))
fails(errno.EINVAL, lambda: h.pread(100, 0))
fails(errno.EINVAL, lambda: h.pwrite(b"x" * 512, 3))
fails(errno.ENOTSUP, lambda: h.zero(512, 0, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_NO_HOLE))
h.zero(1024, 0, nbd.CMD_FLAG_FAST_ZERO)
assert h.pread(1024, 0) == bytes(1024)
h.flush()
h.trim(size, 0)
seen = []
def note(context, offset, entries, error):
    seen.append((context, offset, entries))
    return 0
h.block_status(size, 0, note)
assert seen == [("base:allocation", 0, [size, 3])], seen
"#;
    let bench = TestServer::on(memory(SIZE as u64 / 512));
    bench.run(python, &["-m", "nbd", "--base-allocation", "-u", &bench.uri(), "-c", script]);
    let tcp = NbdServer::start(memory(64), &ListenAddress::tcp("127.0.0.1:0").unwrap(), options()).unwrap();
    bench.run(python, &["-m", "nbd", "-u", &tcp.uri(), "-c", "h.pwrite(b'x' * 512, 0)", "-c", "h.flush()"]);
}

#[test]
fn qemu_img_converts_compares_and_maps() {
    let Some(bench) = bench("qemu-img") else { return };
    let (image, uri) = (bench.image("image"), bench.uri());
    bench.run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", &image, &uri]);
    bench.run("qemu-img", &["compare", "-f", "raw", "-F", "raw", &image, &uri]);
    let mapped = bench.run("qemu-img", &["map", "--output=json", "-f", "raw", &uri]);
    let extents: Vec<_> = mapped.lines().map(|line| line.contains("\"data\": true")).collect();
    assert_eq!(extents, [true, false, true], "{mapped}");
    bench.run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &uri, "copy.qcow2"]);
    bench.run("qemu-img", &["check", "copy.qcow2"]);
    bench.run("qemu-img", &["compare", "-F", "qcow2", "-f", "raw", &uri, "copy.qcow2"]);
    // A qcow2 image on the device itself.
    bench.run("qemu-img", &["create", "-q", "-f", "qcow2", &uri, "4M"]);
    bench.run("qemu-io", &["-f", "qcow2", "-c", "write -P 7 64k 1M", "-c", "read -P 7 64k 1M", &uri]);
    bench.run("qemu-img", &["check", "-f", "qcow2", &uri]);
}

#[test]
fn qemu_io_reads_the_patterns_that_it_wrote() {
    let Some(bench) = late_bench("qemu-io", 64) else { return };
    let commands = [
        "write -P 1 0 1M", "write -f -P 2 512k 64k", "write -z 256k 64k", "write -z -u 768k 64k", "discard 900k 100k", "flush",
        "read -P 1 0 256k", "read -P 0 256k 64k", "read -P 1 320k 192k", "read -P 2 512k 64k", "read -P 0 768k 64k",
        "aio_write -P 9 2M 1M", "aio_write -P 8 3M 1M", "aio_flush", "read -P 9 2M 1M", "read -P 8 3M 1M",
    ];
    let arguments: Vec<&str> = commands.iter().flat_map(|command| ["-c", command]).collect();
    let text = bench.run("qemu-io", &[&["-f", "raw"], &arguments[..], &[&bench.uri()]].concat());
    assert!(!text.contains("failed"), "{text}");
}

#[test]
fn fio_verifies_what_it_wrote() {
    let engines = Command::new("fio").arg("--enghelp").output().unwrap().stdout;
    if !String::from_utf8_lossy(&engines).contains("nbd") {
        emmclab_testing::skip("a fio with an NBD engine", "apt-get install fio");
        return;
    }
    let Some(bench) = late_bench("fio", 8) else { return };
    let uri = format!("--uri={}", bench.uri());
    let job = ["--name=job", "--ioengine=nbd", &uri, "--rw=randwrite", "--bs=4k", "--iodepth=32", "--size=4M"];
    let verify = ["--verify=crc32c", "--verify_fatal=1", "--fsync=64"];
    bench.run("fio", &[&job[..], &verify].concat());
}
