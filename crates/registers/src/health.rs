//! Health reports of vendors: erase counts, spare and bad blocks of parts whose formats are public (512 bytes, or a dump of them).
//!
//! Two open programs and two drivers of vendors' kernels describe them; [`HealthFormat::source`] names those of each format. Where a
//! program skips a byte or shifts it wrongly, the field has the width of its neighbours; where sources contradict each other, it is left out.

use emmclab_base::{Error, ErrorClass, Result};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{RegisterSource, dump, is_ext_csd, text_of};

/// Length of a health report in bytes.
const REPORT_BYTES: usize = 512;
/// The largest plausible number of erases of a block: flash in SLC mode is specified for 100,000 at most.
const MOST_ERASES: u64 = 1_000_000;
const SDMON: &str = "sdmon (github.com/Ognian/sdmon, 94cda42)";
const SDEMMC: &str = "SDeMMCHealth (github.com/ugurkrl/SDeMMCHealth, 6f6211f)";
const MOVINAND: &str =
    "SDeMMCHealth (github.com/ugurkrl/SDeMMCHealth, 6f6211f), and drivers/mmc/ffu/movinand.h of Samsung's kernels";
const NEEDS_VENDOR_MODE: &str =
    "a vendor command (CMD62) first changes the mode of the device, which some parts do not leave again";
const NEEDS_PASSWORD: &str = "a password has to be written first";

/// A public format of a vendor's health report.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct HealthFormat {
    /// Name of the format.
    pub name: &'static str,
    /// The parts that are known to have it.
    pub parts: &'static str,
    /// Where the format is described.
    pub source: &'static str,
    /// The only command that reads the report, if no other command is needed.
    pub command: Option<HealthCommand>,
    /// Why emmclab does not read the report from a device; empty if it does.
    pub unreadable: &'static str,
    #[serde(skip)]
    signature: &'static [u8],
    #[serde(skip)]
    is_big_endian: bool,
    #[serde(skip)]
    fields: &'static [CountField],
}

/// A command that reads a health report and changes nothing.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct HealthCommand {
    /// Number of the command.
    pub opcode: u32,
    /// Its argument.
    pub argument: u32,
    /// Manufacturer IDs (CID) of the devices to which it may be sent; empty for SD cards, whose reports have a signature.
    pub makers: &'static [u32],
}

/// What a vendor's health report states.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HealthReport {
    /// Name of the format.
    pub format: &'static str,
    /// The parts that are known to have this format.
    pub parts: &'static str,
    /// Erase counts by area of the flash.
    pub erases: Vec<EraseCounts>,
    /// Erases that the vendor rates the flash for; `None` if the report does not state it.
    pub rated_erases: Option<u64>,
    /// Blocks that are left to replace bad ones; `None` if the report does not state it.
    pub spare_blocks: Option<u64>,
    /// Blocks that were bad from the factory; `None` if the report does not state it.
    pub factory_bad_blocks: Option<u64>,
    /// Blocks that became bad in use; `None` if the report does not state it.
    pub runtime_bad_blocks: Option<u64>,
    /// All fields whose meaning is public.
    pub fields: Vec<HealthField>,
}

/// Erase counts of the blocks of one area of the flash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct EraseCounts {
    /// `SLC`, `MLC/TLC`, `system`, or `all` if the report does not separate them.
    pub area: &'static str,
    /// Erases of the least worn block; `None` if the report does not state it.
    pub least: Option<u64>,
    /// Mean erases of the blocks; `None` if the report does not state it.
    pub mean: Option<u64>,
    /// Erases of the most worn block; `None` if the report does not state it.
    pub most: Option<u64>,
}

/// A field of a health report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HealthField {
    /// What the field counts.
    pub name: String,
    /// Its bytes in the report.
    pub place: String,
    /// Its value.
    pub value: u64,
    /// Where the field is described.
    pub from: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    /// A number of so many bytes.
    Number(usize, usize),
    /// A number of four bytes whose low and high halves are apart.
    Halves(usize, usize),
    /// The sum of single bytes.
    Sum(usize, usize),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Least(&'static str),
    Mean(&'static str),
    Most(&'static str),
    Rated,
    Spare(&'static str),
    FactoryBad(&'static str),
    RuntimeBad(&'static str),
    Other(&'static str),
}
use Role::{FactoryBad, Least, Mean, Most, Other, Rated, RuntimeBad, Spare};

type CountField = (Place, Role);

const fn number(at: usize, bytes: usize, role: Role) -> CountField {
    (Place::Number(at, bytes), role)
}

const ALL: &str = "all";
const SLC: &str = "SLC";
const MAIN: &str = "MLC/TLC";
const SYSTEM: &str = "system";

/// What all reports of moviNAND have in common: blocks of four banks, and erase counts of all blocks.
macro_rules! movinand {
    ($($more:expr),* $(,)?) => {
        &[
            number(4, 4, Other("super block size")), number(8, 4, Other("super page size")), number(12, 4, Other("optimal write size")),
            number(16, 4, Other("banks")),
            number(20, 4, FactoryBad("bank 0")), number(24, 4, RuntimeBad("bank 0")), number(28, 4, Spare("bank 0")),
            number(32, 4, FactoryBad("bank 1")), number(36, 4, RuntimeBad("bank 1")), number(40, 4, Spare("bank 1")),
            number(44, 4, FactoryBad("bank 2")), number(48, 4, RuntimeBad("bank 2")), number(52, 4, Spare("bank 2")),
            number(56, 4, FactoryBad("bank 3")), number(60, 4, RuntimeBad("bank 3")), number(64, 4, Spare("bank 3")),
            number(68, 4, Most(ALL)), number(72, 4, Least(ALL)), number(76, 4, Mean(ALL)),
            $($more),*
        ]
    };
}

const EMPTY: HealthFormat = HealthFormat {
    name: "",
    parts: "",
    source: "",
    command: None,
    unreadable: "",
    signature: &[],
    is_big_endian: false,
    fields: &[],
};

/// The command with which SD cards report their state: CMD56, whose argument has bit 0 set for reading.
const fn of_sd(argument: u32) -> HealthCommand {
    HealthCommand { opcode: 56, argument, makers: &[] }
}

/// All formats.
#[rustfmt::skip]
pub static FORMATS: &[HealthFormat] = &[
    HealthFormat {
        name: "samsung-movinand",
        parts: "Samsung eMMC 4.41 to 5.0 with a report of SLC and MLC (KLM8G2FE3B, KMVTU000LM, KMQ310013M, ...)",
        source: MOVINAND,
        unreadable: NEEDS_VENDOR_MODE,
        fields: movinand![
            number(80, 4, Other("read reclaims")), number(84, 4, Other("optimal trim size")),
            number(120, 4, Most(SLC)), number(124, 4, Least(SLC)), number(128, 4, Mean(SLC)),
            number(132, 4, Most(MAIN)), number(136, 4, Least(MAIN)), number(140, 4, Mean(MAIN)),
        ],
        ..EMPTY
    },
    HealthFormat {
        name: "samsung-movinand-43",
        parts: "Samsung eMMC 4.3 (KLM4G1EEHM, KLM8G4DEHE)",
        source: SDEMMC,
        unreadable: NEEDS_VENDOR_MODE,
        fields: movinand![number(80, 4, Other("uncorrectable errors")), number(220, 4, Other("read reclaims"))],
        ..EMPTY
    },
    HealthFormat {
        name: "samsung-vsm",
        parts: "Samsung eMMC 5.1 (KMQE60013M, KMGX6001BM)",
        source: SDEMMC,
        unreadable: NEEDS_PASSWORD,
        fields: &[
            number(0, 4, Most(ALL)), number(4, 4, Least(ALL)), number(8, 4, Mean(ALL)), number(12, 4, Other("read reclaims")),
            number(16, 4, FactoryBad("")), number(20, 4, RuntimeBad("")), number(24, 4, Spare("")),
            number(36, 4, Other("data written, 100 MB")), number(40, 4, Other("initialisations")),
            number(44, 4, Most(SLC)), number(48, 4, Least(SLC)), number(52, 4, Mean(SLC)),
            number(56, 4, Most(MAIN)), number(60, 4, Least(MAIN)), number(64, 4, Mean(MAIN)),
            number(72, 4, Other("data read, 100 MB")),
        ],
        ..EMPTY
    },
    HealthFormat {
        name: "hynix-v0",
        parts: "SK hynix eMMC with the old report (HBG4a2, H9TQ26ADFTBC)",
        source: SDEMMC,
        unreadable: "two vendor commands (CMD60) first change the mode of the device",
        fields: &[
            number(32, 4, Spare(SLC)), number(36, 4, Most(SLC)), number(40, 4, Least(SLC)), number(44, 4, Mean(SLC)),
            number(48, 4, Spare(MAIN)), number(52, 4, Most(MAIN)), number(56, 4, Least(MAIN)), number(60, 4, Mean(MAIN)),
            number(92, 4, Other("initialisations")), number(104, 4, RuntimeBad("")), number(136, 4, Other("read reclaims")),
            number(140, 4, Other("drops of the supply voltage")),
        ],
        ..EMPTY
    },
    HealthFormat {
        name: "hynix-v1",
        parts: "SK hynix eMMC 5.1 with the new report (hB8aP>, hC8aP>, hC9aP3, hDEaP3)",
        source: SDEMMC,
        command: Some(HealthCommand { opcode: 8, argument: 0x5345_4852, makers: &[0x90] }),
        fields: &[
            number(270, 2, FactoryBad("")), number(272, 2, RuntimeBad("")), number(296, 2, Spare("")),
            number(274, 2, Most(ALL)), number(276, 2, Least(ALL)), number(278, 2, Mean(ALL)),
            number(280, 2, Other("read reclaims")), number(282, 4, Other("sudden power-offs")),
            number(286, 4, Other("data written, 100 MB")), number(298, 4, Other("data read, 100 MB")),
        ],
        ..EMPTY
    },
    HealthFormat {
        name: "toshiba-erase",
        parts: "Toshiba/Kioxia eMMC 4.5 to 5.1 (THGBM5 to THGBMH)",
        source: SDEMMC,
        unreadable: NEEDS_PASSWORD,
        signature: &[7, 0, 0],
        is_big_endian: true,
        fields: &[
            number(3, 1, Other("status")), number(4, 4, Most(MAIN)), number(8, 4, Mean(MAIN)),
            number(12, 4, Most(SLC)), number(16, 4, Mean(SLC)),
        ],
        ..EMPTY
    },
    HealthFormat {
        name: "sandisk-inand",
        parts: "SanDisk/WD iNAND 7232 and EM111 (SDINADF4)",
        source: SDEMMC,
        unreadable: NEEDS_VENDOR_MODE,
        fields: &[
            number(0, 4, Other("mean erases of the enhanced area")), number(4, 4, Mean(SLC)), number(8, 4, Mean(MAIN)),
            number(96, 4, Other("mean erases of the hybrid area")), number(24, 4, FactoryBad("")),
            number(28, 4, RuntimeBad("enhanced")), number(32, 4, RuntimeBad(SLC)), number(36, 4, RuntimeBad(MAIN)),
            number(20, 4, Other("read reclaims, MLC/TLC")), number(64, 4, Other("data written, 100 MB")),
        ],
        ..EMPTY
    },
    HealthFormat {
        name: "micron-emmc",
        parts: "Micron eMMC with the secure SMART report of TN-FC-42",
        source: "denso_health.c of Denso's kernels, 2015 to 2019 (after Micron TN-FC-42)",
        command: Some(HealthCommand { opcode: 56, argument: 0x39, makers: &[0x13, 0xfe] }),
        is_big_endian: true,
        fields: &[
            number(0, 2, FactoryBad("")), number(2, 2, RuntimeBad("")), number(4, 2, Spare("")),
            number(16, 4, Least(MAIN)), number(20, 4, Most(MAIN)), number(24, 4, Mean(MAIN)),
            number(32, 4, Least(SLC)), number(36, 4, Most(SLC)), number(40, 4, Mean(SLC)),
        ],
        ..EMPTY
    },
    HealthFormat {
        name: "adata-sd",
        parts: "SD cards of ADATA and PNY with a controller of Silicon Motion (AUSDX128GUICL10A1)",
        source: SDMON,
        command: Some(of_sd(0x1100_05f1)),
        signature: &[0x09, 0x41],
        is_big_endian: true,
        fields: &[
            number(24, 2, FactoryBad("")), number(26, 1, RuntimeBad("")), number(27, 1, Other("spare blocks, SLC")), number(30, 2, Spare("")),
            number(32, 4, Least(MAIN)), number(36, 4, Most(MAIN)), number(44, 4, Mean(MAIN)),
            number(48, 4, Least(SYSTEM)), number(52, 4, Most(SYSTEM)), number(60, 4, Mean(SYSTEM)),
            number(68, 2, Rated), number(70, 1, Other("life left, %")), number(76, 4, Other("power cycles")),
            number(96, 2, Other("read reclaims, TLC")), number(98, 2, Other("read reclaims, SLC")),
        ],
        ..EMPTY
    },
    HealthFormat {
        name: "transcend-sd",
        parts: "industrial SD cards of Transcend",
        source: SDMON,
        command: Some(of_sd(0x1100_05f9)),
        signature: &[0x54, 0x72],
        fields: &[
            number(26, 1, RuntimeBad("")), number(27, 1, Spare("")), number(28, 4, Other("abnormal power losses")),
            number(32, 4, Least(ALL)), number(36, 4, Most(ALL)), number(44, 4, Mean(ALL)), number(70, 1, Other("life left, %")),
        ],
        ..EMPTY
    },
    HealthFormat {
        name: "innodisk-sd",
        parts: "industrial SD cards of Innodisk",
        source: SDMON,
        command: Some(of_sd(0x1100_05fd)),
        signature: &[0x4c, 0x58],
        is_big_endian: true,
        fields: &[
            number(24, 1, Spare("")), number(25, 1, FactoryBad("")), number(26, 1, RuntimeBad("")),
            number(32, 4, Least(ALL)), number(36, 4, Most(ALL)), number(44, 4, Mean(ALL)),
        ],
        ..EMPTY
    },
    HealthFormat {
        name: "swissbit-sd",
        parts: "industrial SD cards of Swissbit",
        source: SDMON,
        command: Some(of_sd(0x5342_0001)),
        signature: &[0x53, 0x77],
        is_big_endian: true,
        fields: &[
            number(48, 4, Rated), number(52, 4, Most(MAIN)), number(60, 4, Mean(MAIN)), number(68, 4, Most(SYSTEM)), number(76, 4, Mean(SYSTEM)),
            number(80, 1, Other("life left, %")), number(88, 4, Spare("user")), number(92, 4, Spare(SYSTEM)),
            number(96, 4, RuntimeBad("user")), number(100, 4, RuntimeBad(SYSTEM)),
        ],
        ..EMPTY
    },
    HealthFormat {
        name: "two-step-sd",
        parts: "SD cards of Apacer and Kingston (SDCIT, SDCE)",
        source: SDMON,
        unreadable: "a general command that writes (CMD56 with argument 0x10) has to come first",
        is_big_endian: true,
        fields: &[
            number(16, 2, Spare("")), (Place::Sum(32, 32), FactoryBad("")), (Place::Sum(184, 32), RuntimeBad("")),
            (Place::Halves(100, 106), Least(ALL)), (Place::Halves(102, 108), Most(ALL)), (Place::Halves(98, 104), Mean(ALL)),
            number(80, 4, Other("erases of all blocks")), number(96, 2, Other("life left, 0.01 %")), number(112, 4, Other("power-ups")),
        ],
        ..EMPTY
    },
];

/// Reads a health report: 512 bytes, or a hexadecimal dump of them in any form that registers have.
/// `format` is the name of its format; without a name, it is recognised by the signature that reports of SD cards have.
pub fn read_health(source: &RegisterSource<'_>, format: Option<&str>) -> Result<HealthReport> {
    read_bytes(source.bytes)
        .and_then(|bytes| format_of(&bytes, format)?.report(&bytes))
        .map_err(|error| error.in_file(source.path))
}

fn read_bytes(content: &[u8]) -> Result<[u8; REPORT_BYTES]> {
    const HINT: &str = "give the 512 bytes that the device answered with, or a hexadecimal dump of them";
    let bytes = match text_of(content) {
        None => content.to_vec(),
        Some(text) => dump::read(&text, REPORT_BYTES)?.map_or_else(Vec::new, |dump| dump.bytes),
    };
    let class = if bytes.len() < REPORT_BYTES { ErrorClass::Truncated } else { ErrorClass::Syntax };
    let length = bytes.len();
    let report = <[u8; REPORT_BYTES]>::try_from(bytes).map_err(|_| {
        let problem = format!("these are {length} bytes, and a health report has {REPORT_BYTES}");
        Error::new(class, problem).at_offset(length.min(REPORT_BYTES) as u64).hint(HINT)
    })?;
    if let Some(byte) = [0, 0xff].into_iter().find(|byte| report.iter().all(|other| other == byte)) {
        return Err(Error::new(ErrorClass::Value, format!("every byte is {byte:#04x}: the device did not answer with a report"))
            .at_offset(0)
            .hint(HINT));
    }
    if is_ext_csd(&report) {
        return Err(Error::new(ErrorClass::Value, "this is an EXT_CSD register, with which other parts answer the same command")
            .at_offset(0)
            .hint("read it with --ext-csd; this part has no health report of this format"));
    }
    Ok(report)
}

fn format_of(bytes: &[u8; REPORT_BYTES], name: Option<&str>) -> Result<&'static HealthFormat> {
    let signed = |format: &&HealthFormat| !format.signature.is_empty() && bytes.starts_with(format.signature);
    let names = || FORMATS.iter().map(|format| format.name).collect::<Vec<_>>().join(", ");
    let Some(name) = name else {
        return FORMATS.iter().find(signed).ok_or_else(|| {
            Error::new(ErrorClass::UnknownFormat, "the report has no signature of a known format")
                .at_offset(0)
                .hint(format!("name its format as FILE@FORMAT: {}", names()))
        });
    };
    let Some(format) = FORMATS.iter().find(|format| format.name == name) else {
        return Err(Error::new(ErrorClass::Config, format!("there is no format `{name}` of health reports"))
            .hint(format!("the formats are {}", names())));
    };
    if bytes.starts_with(format.signature) {
        return Ok(format);
    }
    let found: Vec<_> = bytes[..format.signature.len()].iter().map(|byte| format!("{byte:02x}")).collect();
    let other = FORMATS.iter().find(signed).map_or("the report is that of another part", |other| other.name);
    Err(Error::new(ErrorClass::Value, format!("the report begins with {}, which is not {name}", found.join(" ")))
        .at_offset(0)
        .hint(format!("by its signature: {other}")))
}

impl HealthFormat {
    fn report(&'static self, bytes: &[u8; REPORT_BYTES]) -> Result<HealthReport> {
        let mut report = HealthReport {
            format: self.name,
            parts: self.parts,
            erases: Vec::new(),
            rated_erases: None,
            spare_blocks: None,
            factory_bad_blocks: None,
            runtime_bad_blocks: None,
            fields: Vec::new(),
        };
        for (place, role) in self.fields {
            let value = place.value(bytes, self.is_big_endian);
            let field = HealthField { name: role.name(), place: place.text(), value, from: self.source };
            if matches!(role, Least(_) | Mean(_) | Most(_) | Rated) && value > MOST_ERASES {
                return Err(self.impossible(place, &field, "a block of flash survives fewer erases"));
            }
            report.fields.push(field);
            let count = match role {
                Least(area) => &mut report.area(area).least,
                Mean(area) => &mut report.area(area).mean,
                Most(area) => &mut report.area(area).most,
                Rated => &mut report.rated_erases,
                Spare(_) => &mut report.spare_blocks,
                FactoryBad(_) => &mut report.factory_bad_blocks,
                RuntimeBad(_) => &mut report.runtime_bad_blocks,
                Other(_) => continue,
            };
            *count = Some(count.unwrap_or(0) + value);
        }
        if report.fields.iter().all(|field| field.value == 0) {
            return Err(Error::new(
                ErrorClass::Value,
                format!("every known field is 0: the report is not that of {}", self.name),
            )
            .hint(format!("this format is that of {}", self.parts)));
        }
        for counts in &report.erases {
            let stated: Vec<_> = [counts.least, counts.mean, counts.most].into_iter().flatten().collect();
            if !stated.is_sorted() {
                let of_area = |(_, role): &&CountField| matches!(role, Mean(area) | Most(area) if *area == counts.area);
                let (place, role) = self.fields.iter().find(of_area).unwrap_or(&self.fields[0]);
                let value = place.value(bytes, self.is_big_endian);
                let field = HealthField { name: role.name(), place: place.text(), value, from: self.source };
                return Err(self.impossible(place, &field, "least, mean and most erases are not in this order"));
            }
        }
        Ok(report)
    }

    fn impossible(&self, place: &Place, field: &HealthField, reason: &str) -> Error {
        let (Place::Number(at, _) | Place::Halves(at, _) | Place::Sum(at, _)) = *place;
        Error::new(ErrorClass::Value, format!("{reason}: the report is damaged, or not {}", self.name))
            .at_offset(at as u64)
            .of_field(field.name.as_str(), 0, field.value.to_string().as_bytes())
            .hint(format!("this format is that of {}", self.parts))
    }
}

impl HealthReport {
    fn area(&mut self, area: &'static str) -> &mut EraseCounts {
        let at = self.erases.iter().position(|counts| counts.area == area).unwrap_or_else(|| {
            self.erases.push(EraseCounts { area, ..EraseCounts::default() });
            self.erases.len() - 1
        });
        &mut self.erases[at]
    }
}

impl Place {
    fn value(self, bytes: &[u8; REPORT_BYTES], is_big_endian: bool) -> u64 {
        let number = |at: usize, length: usize| {
            let add = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
            let field = &bytes[at..at + length];
            if is_big_endian { field.iter().fold(0, add) } else { field.iter().rev().fold(0, add) }
        };
        match self {
            Self::Number(at, length) => number(at, length),
            Self::Halves(low, high) => number(high, 2) << 16 | number(low, 2),
            Self::Sum(at, length) => bytes[at..at + length].iter().map(|byte| u64::from(*byte)).sum(),
        }
    }

    fn text(self) -> String {
        match self {
            Self::Number(at, 1) => format!("[{at}]"),
            Self::Number(at, length) | Self::Sum(at, length) => format!("[{}:{at}]", at + length - 1),
            Self::Halves(low, high) => format!("[{}:{high}], [{}:{low}]", high + 1, low + 1),
        }
    }
}

impl Role {
    fn name(self) -> String {
        let of = |text: &str, area: &str| if area.is_empty() { text.to_owned() } else { format!("{text}, {area}") };
        match self {
            Least(area) => of("least erases", area),
            Mean(area) => of("mean erases", area),
            Most(area) => of("most erases", area),
            Rated => "rated erases".to_owned(),
            Spare(area) => of("spare blocks", area),
            FactoryBad(area) => of("bad blocks from the factory", area),
            RuntimeBad(area) => of("bad blocks of use", area),
            Other(text) => text.to_owned(),
        }
    }
}
