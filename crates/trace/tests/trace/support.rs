//! Helpers of this crate's tests: real traces, fixtures, and a sample of every format.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use emmclab_testing::{ProtobufMessage as Message, real_trace};
use emmclab_trace::{
    Batch, BatchBuilder, Ledger, NameTable, ReadOptions, Request, Result, TraceHeader, TraceReader, TraceWriter, WriteLosses,
    WriteOptions,
};
use tempfile::TempDir;

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// A temporary folder, and the path of a file in it.
pub fn scratch(name: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    (folder, path)
}

/// A real recording in the text form of the kernel.
pub fn host_text() -> String {
    let path = fixture("../../../record/tests/fixtures/host.trace.zst");
    String::from_utf8(zstd::decode_all(std::fs::File::open(path).unwrap()).unwrap()).unwrap()
}

/// The contents of a trace.
#[derive(Debug)]
pub struct Trace {
    pub requests: Vec<Request>,
    pub processes: Vec<String>,
    pub devices: Vec<String>,
    pub ledger: Ledger,
    pub header: TraceHeader,
}

impl Trace {
    /// The values of `row` for all requests.
    pub fn rows<T>(&self, row: impl FnMut(&Request) -> T) -> Vec<T> {
        self.requests.iter().map(row).collect()
    }
}

pub fn read_with(path: &Path, options: &ReadOptions) -> Result<Trace> {
    let mut reader = TraceReader::open(path, options)?;
    let (mut requests, mut processes, mut devices) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(batch) = reader.next_batch()? {
        requests.extend(batch.iter());
        processes = batch.processes().iter().map(str::to_owned).collect();
        devices = batch.devices().iter().map(str::to_owned).collect();
    }
    Ok(Trace { requests, processes, devices, ledger: reader.ledger(), header: reader.header() })
}

pub fn read(path: &Path) -> Result<Trace> {
    read_with(path, &ReadOptions::default())
}

pub fn lenient() -> ReadOptions {
    ReadOptions { lenient: true, ..ReadOptions::default() }
}

/// Reads bytes as a trace in a file with this extension.
pub fn read_bytes(bytes: &[u8], ending: &str, options: &ReadOptions) -> Result<Trace> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("sample.{ending}"));
    std::fs::write(&path, bytes).unwrap();
    read_with(&path, options)
}

/// Like [`read_bytes`], with default options.
pub fn read_plain(content: impl AsRef<[u8]>, ending: &str) -> Result<Trace> {
    read_bytes(content.as_ref(), ending, &ReadOptions::default())
}

/// Writes a trace in the format that the name of the output determines, like `convert`.
pub fn convert(input: &Path, options: &ReadOptions, output: &Path) {
    let mut reader = TraceReader::open(input, options).unwrap();
    let mut writer = TraceWriter::create(output, &reader.header(), &WriteOptions::default()).unwrap();
    while let Some(batch) = reader.next_batch().unwrap() {
        writer.write(&batch).unwrap();
    }
    writer.finish(&reader.ledger(), &reader.header()).unwrap();
}

pub fn batch_of(requests: &[Request], processes: &Arc<NameTable>, devices: &Arc<NameTable>) -> Batch {
    let mut builder = BatchBuilder::default();
    for request in requests {
        builder.push(request);
    }
    builder.finish(processes, devices)
}

/// Writes a trace in the format that the name of the file determines.
pub fn write_batches(path: &Path, batches: &[Batch], ledger: &Ledger, header: &TraceHeader) -> Result<WriteLosses> {
    let mut writer = TraceWriter::create(path, header, &WriteOptions::default())?;
    for batch in batches {
        writer.write(batch)?;
    }
    let losses = writer.losses();
    writer.finish(ledger, header)?;
    Ok(losses)
}

/// Operation letters, sector and length in sectors.
pub type Step = (&'static str, u64, u32);

/// Issue and completion of each step as text of the kernel's tracer, perf and blkparse, and as a Perfetto trace, each with the
/// extension of its file.
pub fn steps_in_every_format(steps: &[Step]) -> [(Vec<u8>, &'static str); 4] {
    let (mut tracer, mut perf, mut blkparse) = (String::new(), String::new(), String::new());
    let mut bundle = Message::default().number(1, 0);
    for (number, &(letters, sector, length)) in (0..).zip(steps) {
        let bytes = format!("{} ", length * 512);
        for (moment, name, letter, bytes, end, field) in
            [(0, "issue", "D", bytes.as_str(), "dd", 45), (9, "complete", "C", "", "0", 125)]
        {
            let event = format!("8,0 {letters} {bytes}() {sector} + {length} [{end}]");
            let _ = writeln!(tracer, "  dd-2 [000] ..... 1.{number}00{moment}00: block_rq_{name}: {event}");
            let _ = writeln!(perf, "dd     2 [000]     1.{number}00{moment}00: block:block_rq_{name}: {event}");
            let _ = writeln!(
                blkparse,
                "  8,0    1  {number}  1.{number}00{moment}00000  7  {letter}  {letters} {sector} + {length} [{end}]"
            );
            let message = Message::default().number(1, 8 << 8).number(2, sector).number(3, u64::from(length));
            let event = Message::default().number(1, number * 1_000 + moment).number(2, 7);
            bundle = bundle.bytes(2, event.bytes(field, message.bytes(5, letters)));
        }
    }
    let packet = Message::default().number(10, 2).bytes(1, bundle);
    let perfetto = Message::default().bytes(1, packet).0;
    [(tracer.into(), "txt"), (perf.into(), "txt"), (blkparse.into(), "txt"), (perfetto, "pftrace")]
}

/// A small trace in a format, and templates for invalid ones.
pub struct Sample {
    pub format: &'static str,
    /// Extension of the file, for formats that are recognised by it.
    pub ending: &'static str,
    pub text: &'static str,
    /// Number of requests.
    pub requests: usize,
    /// A line in which `{time}`, `{address}` and `{size}` are replaced; empty if lines are events.
    pub line: &'static str,
    /// The text before such a line.
    pub heading: &'static str,
}

/// Values that most samples share.
const TABLE: Sample = Sample { format: "", ending: "csv", text: "", requests: 2, line: "", heading: "" };

/// All text formats. The binary formats have their own tests.
pub const SAMPLES: &[Sample] = &[
    Sample {
        format: "biotracer",
        ending: "txt",
        text: "4220896\t\t8\t\t4096\t\t5\t\t10.756832000\t\t10.757233000\t\t10.757241000\t\t10.757950000\n\
               49592392\t\t17\t\t8704\t\t5\t\t10.762147000\t\t10.762182000\t\t10.762199000\t\t10.763593000\n",
        line: "{address} {size} 4096 5 {time} 11.0 11.0 11.0\n",
        ..TABLE
    },
    Sample {
        format: "pixel",
        text: "proces,device,rw_flag,sector,size,timestamp\n\
               <...>-12228,8388608,R,29880920,16,159273.751646\n\
               kworker/4:1H-225,8388608,R,30175712,8,159273.83748699998\n\
               Jit,8388608,W,4292400,120,159274.5\n",
        requests: 3,
        line: "fio-7,8388608,W,{address},{size},{time}\n",
        heading: "proces,device,rw_flag,sector,size,timestamp\n",
        ..TABLE
    },
    Sample {
        format: "msr",
        text: "128166372003061629,usr,0,Read,7014609920,24576,41286\n\
               128166372016382155,usr,0,Write,1317441536,8192,1963\n",
        line: "{time},usr,0,Read,{address},{size},41286\n",
        ..TABLE
    },
    Sample {
        format: "alibaba",
        text: "419,W,8792731648,16384,1577808144360767\n725,R,59110326272,360448,1577808144360813\n",
        line: "419,W,{address},{size},{time}\n",
        ..TABLE
    },
    Sample {
        format: "tencent",
        text: "1538323200,12910952,128,0,1063\n1538323200,6338688,8,1,1627\n",
        line: "{time},{address},{size},0,1063\n",
        ..TABLE
    },
    Sample {
        format: "systor17",
        text: "Timestamp,Response,IOType,LUN,Offset,Size\n\
               1455592080.027178000,0.000113,W,0,38651207680,4096\n1455592080.030000000,,R,0,512,8192\n",
        line: "{time},0.000113,W,0,{address},{size}\n",
        heading: "Timestamp,Response,IOType,LUN,Offset,Size\n",
        ..TABLE
    },
    Sample {
        format: "spc1",
        ending: "spc",
        text: "0,20941264,8192,W,0.551706,Alpha/NT\n0, 20939840, 8192, r, 0.554041\n",
        line: "0,{address},{size},W,{time}\n",
        ..TABLE
    },
    Sample {
        format: "ssdsim",
        ending: "ascii",
        text: "0 0 4220896 8 0\n3773000 0 49592384 8 1\n",
        line: "{time} 0 {address} {size} 1\n",
        ..TABLE
    },
    Sample {
        format: "mqsim",
        ending: "mqsim",
        text: "4851300 1 524288 16 0\n4864300 1 524304 16 1\n",
        line: "{time} 0 {address} {size} 1\n",
        ..TABLE
    },
    Sample {
        format: "disksim",
        ending: "trace",
        text: "0.000000 0 4220896 8 0\n3.773000 0 49592384 8 1\n",
        line: "{time} 0 {address} {size} 1\n",
        heading: "1.5 0 8 8 1\n",
        ..TABLE
    },
    Sample {
        format: "fio",
        ending: "log",
        text: "fio version 3 iolog\n20 /d/f add\n156 /d/f open\n161 /d/f read 61440 4096\n\
               50388 /d/f write 774144 4096\n60000 /d/f sync 0 0\n200828 /d/f close\n",
        requests: 3,
        line: "{time} /d/f read {address} {size}\n",
        heading: "fio version 3 iolog\n",
    },
    Sample {
        format: "csv",
        text: "arrival_us,op,offset_bytes,size_bytes,process\n1.5,read,4096,512,\"a,b\"\n2,W,8192,4096,c\n",
        line: "{time},read,{address},{size}\n",
        heading: "arrival_us,op,offset_bytes,size_bytes\n",
        ..TABLE
    },
    Sample {
        format: "ftrace",
        ending: "txt",
        text: "# tracer: nop\n#\n\
               \x20   Binder:1_2-77  [000] .....  1807.610870: block_bio_queue: 7,0 RM 15942 + 2 [fio]\n\
               \x20   Binder:1_2-77  [000] .....  1807.610878: block_rq_issue: 7,0 RM 1024 () 15942 + 2 be,0,4 [fio]\n\
               CPU:0 [LOST 3 EVENTS]\n\
               \x20   <idle>-0       [000] ..s..  1807.610904: block_rq_complete: 7,0 RM () 15942 + 2 be,0,4 [0]\n",
        requests: 1,
        ..TABLE
    },
    Sample {
        format: "systrace",
        ending: "html",
        text: "<html>\n<script>x[0]</script>\n<script class=\"trace-data\" type=\"application/text\">\n{}\n</script>\n\
               <script class=\"trace-data\" type=\"application/text\">\n# tracer: nop\n\
               mmcqd/0-147   (  147) [001] ...1  7.610870: block_rq_issue: 179,0 W 0 () 15942 + 8 [mmcqd/0]\n\
               <idle>-0     (-----) [000] ..s1  7.610904: block_rq_complete: 179,0 W () 15942 + 8 [0]\n\
               </script>\n</html>\n",
        requests: 1,
        ..TABLE
    },
    Sample {
        format: "blkparse",
        ending: "txt",
        text: "  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n\
               \x20 8,0    3        2     0.000004000   697  P   N [kjournald]\n\
               \x20 8,0    3        3     0.000010000   697  D   W 223490 + 8 [kjournald]\n\
               \x20 8,0    3        4     0.001000000     0  C   W 223490 + 8 [0]\n\
               CPU3 (8,0):\n Reads Queued:           0,        0KiB\n\nSkips: 4 forward (4 -   0.0%)\n",
        requests: 1,
        ..TABLE
    },
    Sample {
        format: "biosnoop",
        ending: "txt",
        text: "Tracing block I/O... Hit Ctrl-C to end.\n\
               TIME(s)     COMM           PID    DISK    T SECTOR     BYTES  QUE(ms) LAT(ms)\n\
               0.000004    Web Content    1950   sda     W 13092560   4096      0.25    0.74\n\
               0.002000    jbd2/sda-8     446    sda     W 18446744073709551615 0  0.00    2.90\n\
               Possibly lost 5 samples\n",
        ..TABLE
    },
    Sample {
        format: "iosnoop",
        ending: "txt",
        text: "Tracing block I/O. Ctrl-C to end.\n\
               STARTs         ENDs           COMM         PID    TYPE DEV      BLOCK        BYTES     LATms\n\
               5982800.302061 5982800.302679 supervise    1809   WS   202,1    17039600     4096       0.62\n\
               5982800.302423 5982800.302842 <idle>       0      FWS  202,1    18446744073709551615 0  0.42\n",
        ..TABLE
    },
    Sample {
        format: "iotrace",
        text: "device.id,device.name,file.path,header.sid,header.timestamp,io.error,io.flush,io.fua,io.latency,io.lba,io.len,io.operation\n\
               8388608,sda,,48,82383915,false,false,true,145584,193227744,8,Write\n\
               8388608,sda,,65,82575353,false,false,false,85643,0,0,Write\n",
        line: "8388608,sda,,48,{time},false,false,false,7,{address},{size},Read\n",
        heading: "device.id,device.name,file.path,header.sid,header.timestamp,io.error,io.flush,io.fua,io.latency,io.lba,io.len,io.operation\n",
        ..TABLE
    },
    Sample {
        format: "hfplayer",
        text: "#ELAPSED_USECS.D,CMD.S,LUN_SSID.I,PHASE.I,LBA.I,NBLKS.I,LATENCY_USECS.D\n\
               0.000,RD_IN,5,0,1170210688,8,39.964\n145.714,WR_IN,5,0,112,16,0\n",
        line: "{time},WR_IN,5,0,{address},{size},10\n",
        heading: "#ELAPSED_USECS.D,CMD.S,LUN_SSID.I,PHASE.I,LBA.I,NBLKS.I,LATENCY_USECS.D\n",
        ..TABLE
    },
    Sample {
        format: "thesios",
        text: "filename,file_offset,application,op_type,request_io_size_bytes,start_time,simulated_disk_start_time,simulated_latency\n\
               5297085226331206160,344064,bigtable,READ,45056,1709712000.0000124,1709712000.0000124,0.0023\n\
               529,0,spanner,WRITE,1000,1709712000.01,0,0.0121\n",
        line: "529,{address},spanner,WRITE,{size},{time},0,0.5\n",
        heading: "filename,file_offset,application,op_type,request_io_size_bytes,start_time,simulated_disk_start_time,simulated_latency\n",
        ..TABLE
    },
    Sample {
        format: "tectonic",
        ending: "trace",
        text: "block_id io_offset io_size op_time op_name user_namespace user_name rs_shard_id op_count host_name\n\
               8181595286 0 4194304 1644810000 4 10 12 0 1 1\n8181595287 1048576 131072 1644810001 1 10 12 3 2 1\n",
        line: "8181595286 {address} {size} {time} 4 10\n",
        heading: "block_id io_offset io_size op_time op_name user_namespace\n",
        ..TABLE
    },
    Sample {
        format: "vscsi-csv",
        text: "version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633899,28,4096,8\n1,5633899,12,36,0\n",
        ..TABLE
    },
    Sample {
        format: "k5cloud",
        text: "1,0.000000,W,1048576,4096\n2,0.000125,R,0,512\n",
        line: "1,{time},W,{address},{size}\n",
        ..TABLE
    },
    Sample {
        format: "fiu",
        ending: "blkparse",
        text: "0 4892 syslogd 904265560 8 W 6 0 531e779e67d1ab2d5a7ba8b1a0b2d6a4\n\
               39064000 2522 my daemon 926858672 16 R 6 1 0 1 2 3\n",
        line: "{time} 4892 syslogd {address} {size} W 6 0 531e\n",
        ..TABLE
    },
];
