//! Compares presets of real devices with the published figures to which they were fitted (`fitted_to`). A small deviation is no evidence
//! for the model, because the preset was fitted. A large one shows a limit of the model, or a contradiction between the figures.

use emmclab_device::DeviceConfig;
use emmclab_trace::{Error, ErrorClass, Nanos, Op, Result};
use schemars::JsonSchema;
use serde::Serialize;

use crate::bandwidth::{BandwidthRow, FILE_BYTES, SyncMethod, TransferPattern, UsedDevice, bandwidth};

/// A published figure, and the same figure measured with a preset.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FittedFigure {
    /// Name of the table in `presets/published` with the figure.
    pub source: &'static str,
    /// Name of the figure.
    pub figure: String,
    /// Unit of both values.
    pub unit: &'static str,
    /// Published value.
    pub published: f64,
    /// Value of the preset.
    pub here: f64,
    /// Deviation of `here` from `published` in percent.
    pub deviation_pct: f64,
    /// Lower bound of agreement: 10 or 15 % below the published value, or the minimum that is rounded to it.
    pub least: f64,
    /// Upper bound of agreement.
    pub most: f64,
}

impl FittedFigure {
    /// Whether the preset agrees with the published value.
    pub fn agrees(&self) -> bool {
        (self.least..=self.most).contains(&self.here)
    }

    /// Sets the bounds of agreement to a fraction `share` around the published value.
    fn within(mut self, share: f64) -> Self {
        (self.least, self.most) = ((1.0 - share) * self.published, (1.0 + share) * self.published);
        self
    }

    /// Widens the bounds of agreement for a figure with a rounding error of at most `most`.
    fn rounded_by(mut self, most: f64) -> Self {
        self.least = self.least.min(self.published - most);
        self.most = self.most.max(self.published + most);
        self
    }
}

/// A table in `presets/published` as CSV.
struct PublishedTable {
    name: &'static str,
    text: &'static str,
}

macro_rules! table {
    ($name:literal) => {
        PublishedTable { name: $name, text: include_str!(concat!("../../../presets/published/", $name, ".csv")) }
    };
}

const ADVIL: PublishedTable = table!("advil12_table2_bandwidth");
const UNISOC: PublishedTable = table!("unisoc22_fua_bandwidth");
const HUNTER: PublishedTable = table!("hunter23_command_times");
const SAMSUNG: PublishedTable = table!("samsung13_emmc50");
const FAST12: PublishedTable = table!("fast12_sdcards");
const EUFS: PublishedTable = table!("samsung20_eufs");
const UFS40: PublishedTable = table!("samsung22_ufs40");
const BOOSTER: PublishedTable = table!("freebsd25_write_booster");
const UFS_FUA: PublishedTable = table!("ufs_fua_times");

/// Size of the file of `AndroBench` in bytes. Its sequential transfers have 32 MB, its random ones 4 KB.
const ANDROBENCH_BYTES: u64 = 64 << 20;
/// Length of the sequential transfers of `AndroBench` in KB.
const LONG_KB: u64 = 32 << 10;

/// Duration of the random writes to the cards of FAST 2012, and length of their sequential writes. The talk does not state them.
const CARD_TIME: Nanos = Nanos::from_secs(3600);
const CARD_KB: u64 = 512;
/// Rounding error of the rates of the cards, in MB/s.
const CARD_ROUNDING: f64 = 0.005;

/// Measures a preset for the rows of a table with this name.
type Measure = fn(&DeviceConfig, &str) -> Result<Vec<FittedFigure>>;

/// Presets that were fitted to published figures, as (preset, measurement, name in the table).
const PRESETS: &[(&str, Measure, &str)] = &[
    ("galaxys2", advil, "eMMC"),
    ("microsd-class10", advil, "microSD"),
    ("emmc50-cache", emmc50, "SanDisk SEM128"),
    ("emmc50-write-through", emmc50_through, "SanDisk SEM128"),
    ("emmc51-cache", emmc51, "Toshiba 064G30"),
    ("ufs22", ufs22, "eUFS 2.1 1 TB"),
    ("ufs31", ufs31, "eUFS 3.1 512 GB"),
    ("ufs40", ufs40, "UFS 4.0"),
    ("transcend-c2", fast12, "Transcend"),
    ("ridata-c2", fast12, "RiData"),
    ("sandisk-c4", fast12, "Sandisk"),
    ("kingston-c4", fast12, "Kingston"),
    ("wintec-c6", fast12, "Wintec"),
    ("adata-c6", fast12, "A-Data"),
    ("patriot-c10", fast12, "Patriot"),
    ("pny-c10", fast12, "PNY"),
];

impl PublishedTable {
    /// The number in a column of the row that begins with these cells.
    fn number(&self, row: &[&str], column: &str) -> Result<f64> {
        let mut lines = self.text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let index = lines.next().and_then(|names| names.iter().position(|name| *name == column));
        let cell = index.and_then(|index| {
            let line = lines.find(|line| line.starts_with(row))?;
            line.get(index)?.parse().ok()
        });
        cell.ok_or_else(|| {
            Error::new(ErrorClass::Config, format!("the published table {} has no such figure", self.name)).of_field(
                column,
                0,
                row.join(",").as_bytes(),
            )
        })
    }

    fn figure(&self, row: &[&str], column: &str, (figure, unit): (&str, &'static str), here: f64) -> Result<FittedFigure> {
        Ok(self.compare(self.number(row, column)?, (figure, unit), here))
    }

    fn compare(&self, published: f64, (figure, unit): (&str, &'static str), here: f64) -> FittedFigure {
        FittedFigure {
            source: self.name,
            figure: figure.to_owned(),
            unit,
            published,
            here,
            deviation_pct: 100.0 * (here / published - 1.0),
            least: 0.9 * published,
            most: 1.1 * published,
        }
    }
}

/// Compares a preset, identified by its name, with all published figures to which it was fitted.
/// Errors: [`ErrorClass::Config`] for a device without published figures; other errors if the device is full before its end.
pub fn fitted_figures(config: &DeviceConfig) -> Result<Vec<FittedFigure>> {
    let Some((_, measure, row)) = PRESETS.iter().find(|(name, ..)| *name == config.name()) else {
        let names: Vec<_> = PRESETS.iter().map(|(name, ..)| *name).collect();
        return Err(Error::new(ErrorClass::Config, format!("`{}` was not fitted to published figures", config.name()))
            .hint(format!("choose one of: {}", names.join(", "))));
    };
    measure(config, row)
}

fn advil(config: &DeviceConfig, device: &str) -> Result<Vec<FittedFigure>> {
    let rows = ADVIL.text.lines().filter_map(|line| line.strip_prefix(device)?.strip_prefix(','));
    let units: Vec<u64> = rows.filter_map(|row| row.split(',').next()?.parse().ok()).collect();
    let mut out = Vec::new();
    for row in bandwidth(config, &units)? {
        let BandwidthRow { unit_kb, seq_read_mb_s, seq_write_mb_s, random_read_mb_s, random_write_mb_s } = row;
        for (column, what, here) in [
            ("seq_read_mb_s", "sequential reads", seq_read_mb_s),
            ("seq_write_mb_s", "sequential writes", seq_write_mb_s),
            ("random_read_mb_s", "random reads", random_read_mb_s),
            ("random_write_mb_s", "random writes", random_write_mb_s),
        ] {
            let figure = format!("{what}, {unit_kb} KB");
            out.push(ADVIL.figure(&[device, &unit_kb.to_string()], column, (&figure, "MB/s"), here)?);
        }
    }
    Ok(out)
}

/// MB/s of transfers over the file of `AndroBench`.
fn rate(device: &UsedDevice, op: Op, random: bool, sync: SyncMethod) -> Result<f64> {
    let unit_kb = if random { 4 } else { LONG_KB };
    device.rate(&TransferPattern { op, unit_kb, random, sync }, ANDROBENCH_BYTES)
}

fn emmc51(config: &DeviceConfig, of: &str) -> Result<Vec<FittedFigure>> {
    let device = UsedDevice::half_full(config)?;
    let mut out = Vec::new();
    for (fua, sync) in [("on", SyncMethod::Fua), ("off", SyncMethod::None)] {
        for (column, what, op, random) in [
            ("seq_read_mb_s", "sequential reads", Op::Read, false),
            ("random_read_mb_s", "random reads, 4 KB", Op::Read, true),
            ("seq_write_mb_s", "sequential writes", Op::Write, false),
            ("random_write_mb_s", "random writes, 4 KB", Op::Write, true),
        ] {
            let here = rate(&device, op, random, sync)?;
            out.push(UNISOC.figure(&[fua], column, (&format!("{what}, FUA {fua}"), "MB/s"), here)?);
        }
    }
    out.extend(commands(&device, of)?);
    Ok(out)
}

/// Bounds for figures of several devices of a class, which are wider than for one device.
const CLASS: f64 = 0.15;

fn emmc50(config: &DeviceConfig, of: &str) -> Result<Vec<FittedFigure>> {
    let device = UsedDevice::half_full(config)?;
    // The device of these times is write-through, so only the sum of a write and the following flush is compared.
    let times = commands(&device, of)?.into_iter().skip(2);
    let mut out: Vec<_> = times.map(|figure| figure.within(CLASS)).collect();
    let row = &["eMMC 5.0 PRO 64 GB"];
    // The figures were published in MB of 1,000,000 bytes, and in transfers of 4 KB per second.
    let (mega, per_s) = (1.048_576, 256.0);
    for (column, what, unit, factor, op, random) in [
        ("seq_read_mb_s", "sequential reads", "10^6 B/s", mega, Op::Read, false),
        ("seq_write_mb_s", "sequential writes", "10^6 B/s", mega, Op::Write, false),
        ("random_read_iops", "random reads, 4 KB", "1/s", per_s, Op::Read, true),
        ("random_write_iops", "random writes, 4 KB", "1/s", per_s, Op::Write, true),
    ] {
        let here = factor * rate(&device, op, random, SyncMethod::None)?;
        out.push(SAMSUNG.figure(row, column, (what, unit), here)?.within(CLASS));
    }
    Ok(out)
}

fn emmc50_through(config: &DeviceConfig, of: &str) -> Result<Vec<FittedFigure>> {
    commands(&UsedDevice::half_full(config)?, of)
}

/// A UFS whose writes all bypass `WriteBooster`.
fn without_booster(config: &DeviceConfig) -> Result<UsedDevice> {
    let mut config = config.clone();
    config.set("slc.max_kb", "1")?;
    UsedDevice::half_full(&config)
}

/// MB/s (1,048,576 bytes) of requests of [`UFS_REQUEST_KB`] to a UFS whose queue is always full.
fn queued_mb_s(device: &UsedDevice, op: Op) -> Result<f64> {
    device.queued_rate(op, UFS_REQUEST_KB, false, FILE_BYTES)
}

/// Factor from MB of 1,048,576 bytes to MB of 1,000,000 bytes.
const MEGA: f64 = 1_048_576.0 / 1e6;
/// Maximum size of a request of Linux. The published sequential figures of a UFS are assumed to be measured with it.
const UFS_REQUEST_KB: u64 = 512;

/// Sequential reads, random reads and random writes of a row in the table of Samsung.
fn published_rates(device: &UsedDevice, row: &str) -> Result<Vec<FittedFigure>> {
    let row = &[row];
    let here = MEGA * queued_mb_s(device, Op::Read)?;
    let mut out = vec![EUFS.figure(row, "seq_read_mb_s", ("sequential reads", "10^6 B/s"), here)?];
    for (column, what, op) in
        [("random_read_iops", "random reads, 4 KB", Op::Read), ("random_write_iops", "random writes, 4 KB", Op::Write)]
    {
        // Number of transfers of 4 KB in a MB.
        let here = 256.0 * device.queued_rate(op, 4, true, FILE_BYTES / 4)?;
        out.push(EUFS.figure(row, column, (what, "1/s"), here)?);
    }
    Ok(out)
}

fn ufs22(config: &DeviceConfig, of: &str) -> Result<Vec<FittedFigure>> {
    let mut out = published_rates(&UsedDevice::half_full(config)?, of)?;
    let here = MEGA * queued_mb_s(&without_booster(config)?, Op::Write)?;
    let what = ("sequential writes without WriteBooster", "10^6 B/s");
    out.push(EUFS.figure(&[of], "seq_write_mb_s", what, here)?);
    Ok(out)
}

fn ufs31(config: &DeviceConfig, of: &str) -> Result<Vec<FittedFigure>> {
    let device = UsedDevice::half_full(config)?;
    let mut out = published_rates(&device, of)?;
    let without = without_booster(config)?;
    for (row, what, device) in
        [(of, "sequential writes", &device), ("eUFS 3.0 512 GB", "sequential writes without WriteBooster", &without)]
    {
        let here = MEGA * queued_mb_s(device, Op::Write)?;
        out.push(EUFS.figure(&[row], "seq_write_mb_s", (what, "10^6 B/s"), here)?);
    }
    for kb in [4, 256] {
        let [fua, both] = device.durable_times(kb)?;
        let row = &[&*kb.to_string()];
        out.push(UFS_FUA.figure(row, "fua_us", (&format!("a write with FUA, {kb} KB"), "us"), fua)?);
        let what = format!("a write and a flush, {kb} KB");
        out.push(UFS_FUA.figure(row, "write_and_flush_us", (&what, "us"), both)?);
    }
    Ok(out)
}

fn ufs40(config: &DeviceConfig, of: &str) -> Result<Vec<FittedFigure>> {
    let device = UsedDevice::half_full(config)?;
    let mut out = Vec::new();
    for (column, what, op) in
        [("seq_read_mb_s", "sequential reads", Op::Read), ("seq_write_mb_s", "sequential writes", Op::Write)]
    {
        let here = MEGA * queued_mb_s(&device, op)?;
        out.push(UFS40.figure(&[of], column, (what, "10^6 B/s"), here)?);
    }
    let mut slower = config.clone();
    slower.set("interface.gear", "hs_g4")?;
    for (row, what, device) in [
        ("on", "sequential writes, HS-G4", UsedDevice::half_full(&slower)?),
        ("off", "sequential writes without WriteBooster, HS-G4", without_booster(&slower)?),
    ] {
        out.push(BOOSTER.figure(&[row], "seq_write_mib_s", (what, "MiB/s"), queued_mb_s(&device, Op::Write)?)?);
    }
    Ok(out)
}

/// Sequential writes and sustained random writes over 1 GB of a full card. The random figure was published in MB/s and in 4 KB writes per
/// second.
fn fast12(config: &DeviceConfig, vendor: &str) -> Result<Vec<FittedFigure>> {
    let device = UsedDevice::full(config)?;
    let transfers = TransferPattern { op: Op::Write, unit_kb: CARD_KB, random: false, sync: SyncMethod::None };
    let sequential = device.rate(&transfers, FILE_BYTES)?;
    let per_s = device.lasting_random_writes_per_s(FILE_BYTES, CARD_TIME)?;
    // Number of writes of 4 KB in a MB.
    let per_mb = 256.0;
    let row = &[vendor];
    let rate = FAST12.figure(row, "random_write_mb_s", ("random writes, 4 KB", "MB/s"), per_s / per_mb)?;
    let rate = rate.rounded_by(CARD_ROUNDING);
    let mut iops = FAST12.figure(row, "random_write_iops", ("random writes, 4 KB", "1/s"), per_s)?;
    if rate.published < 3.0 * CARD_ROUNDING {
        // For the slowest cards, only one digit was printed (0.01 MB/s), from which their 2.6 writes per second follow.
        (iops.least, iops.most) = (per_mb * rate.least, per_mb * rate.most);
    }
    let sequential = FAST12.figure(row, "seq_write_mb_s", ("sequential writes, 512 KB", "MB/s"), sequential)?;
    Ok(vec![sequential, rate, iops])
}

/// Times of single 4 KB commands, and of a plain write with the following flush.
fn commands(device: &UsedDevice, of: &str) -> Result<Vec<FittedFigure>> {
    let times = device.command_times()?;
    let both = HUNTER.number(&[of], "write_us")? + HUNTER.number(&[of], "flush_us")?;
    Ok(vec![
        HUNTER.figure(&[of], "write_us", ("a write, 4 KB", "us"), times.write_us)?,
        HUNTER.figure(&[of], "flush_us", ("a flush after a write, 4 KB", "us"), times.flush_us)?,
        HUNTER.compare(both, ("both, 4 KB", "us"), times.write_us + times.flush_us),
        HUNTER.figure(&[of], "reliable_write_us", ("a reliable write, 4 KB", "us"), times.reliable_write_us)?,
    ])
}
