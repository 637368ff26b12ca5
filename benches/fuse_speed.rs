//! What FUSE and a loop device cost: IOPS of 4 KB random requests over a device in memory that takes no time, beside a plain
//! loop device on a file in tmpfs. Needs root, fio, and 256 MB of tmpfs at /dev/shm.
//!
//! ```text
//! cargo run --release -p emmclab-serve --example fuse_speed [-- SECONDS]
//! ```

use std::error::Error;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use emmclab_serve::{FuseFile, HostDisk, LoopOptions, MemoryDevice};

const BYTES: u64 = 256 << 20;
/// Runs of each case; the median counts.
const RUNS: usize = 3;

/// Runs a program; what it printed.
fn output(program: &str, arguments: &[&str]) -> Result<String, Box<dyn Error>> {
    let output = Command::new(program).args(arguments).output()?;
    if !output.status.success() {
        return Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// IOPS of random requests of 4 KB: the 8th field of fio's terse output for reads, the 49th for writes.
fn iops(file: &Path, write: bool, depth: u32, seconds: u32) -> Result<f64, Box<dyn Error>> {
    let arguments = [
        "--name=speed".to_owned(),
        format!("--filename={}", file.display()),
        format!("--rw={}", if write { "randwrite" } else { "randread" }),
        format!("--iodepth={depth}"),
        format!("--runtime={seconds}"),
    ];
    let constant = [
        "--bs=4k",
        "--direct=1",
        "--ioengine=libaio",
        "--time_based",
        "--size=256m",
        "--output-format=terse",
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(constant).collect();
    let said = output("fio", &arguments)?;
    let fields: Vec<&str> = said.lines().last().unwrap_or_default().split(';').collect();
    Ok(fields.get(if write { 48 } else { 7 }).ok_or("fio printed no IOPS")?.parse()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let seconds: u32 = std::env::args().nth(1).map_or(Ok(5), |text| text.parse())?;
    let disk = || {
        let file = FuseFile::start(Arc::new(MemoryDevice::new(BYTES / 512)))?;
        HostDisk::on_loop(file, &LoopOptions::default())
    };
    let (disk, fuse) = (disk()?, FuseFile::start(Arc::new(MemoryDevice::new(BYTES / 512)))?);
    let plain = tempfile::NamedTempFile::new_in("/dev/shm")?;
    File::set_len(plain.as_file(), BYTES)?;
    let plain_path = plain.path().display().to_string();
    let plain_disk =
        output("losetup", &["--find", "--show", "--direct-io=on", "--sector-size=512", &plain_path])?;
    let roads = [
        ("FUSE", fuse.path()),
        ("FUSE + loop", disk.path().to_owned()),
        ("tmpfs + loop", plain_disk.clone().into()),
    ];
    println!("{:<14} {:>6} {:>6} {:>12}", "road", "op", "depth", "IOPS");
    let mut outcome = Ok(());
    'all: for (write, op) in [(true, "write"), (false, "read")] {
        for depth in [1, 32] {
            let mut measured = vec![Vec::new(); roads.len()];
            // In turn, so that a busy moment of the machine touches all roads.
            for _ in 0..RUNS {
                for ((_, path), measured) in roads.iter().zip(&mut measured) {
                    match iops(path, write, depth, seconds) {
                        Ok(iops) => measured.push(iops),
                        Err(error) => {
                            outcome = Err(error);
                            break 'all;
                        }
                    }
                }
            }
            for ((road, _), mut measured) in roads.iter().zip(measured) {
                measured.sort_by(f64::total_cmp);
                println!("{road:<14} {op:>6} {depth:>6} {:>12.0}", measured[RUNS / 2]);
            }
        }
    }
    output("losetup", &["-d", &plain_disk])?;
    disk.stop()?;
    fuse.stop()?;
    outcome
}
