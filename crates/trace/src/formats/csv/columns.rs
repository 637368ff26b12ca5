//! What the columns of a CSV mean: names, units, and which must be there.

use emmclab_base::{Error, Kind, Result, SECTOR_BYTES};

use crate::formats::format::ReadOptions;
use crate::formats::time_unit::TimeUnit;

/// What a column of the file means, with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Ignored,
    Time(Moment, TimeUnit),
    /// Address in units of so many bytes.
    Offset(u64),
    /// Length in units of so many bytes.
    Size(u64),
    Op,
    Flags,
    Pid,
    Process,
    Device,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    Arrival,
    Start,
    Issue,
    Complete,
    Response,
    Service,
}

/// The number of [`Moment`]s.
pub(super) const MOMENTS: usize = 6;

impl Moment {
    const ALL: [Moment; MOMENTS] =
        [Moment::Arrival, Moment::Start, Moment::Issue, Moment::Complete, Moment::Response, Moment::Service];

    /// The column's name without a unit.
    pub const fn name(self) -> &'static str {
        match self {
            Moment::Arrival => "arrival",
            Moment::Start => "start",
            Moment::Issue => "issue",
            Moment::Complete => "complete",
            Moment::Response => "response",
            Moment::Service => "service",
        }
    }
}

/// What a column's name says: its meaning, given the unit where the name leaves it to an option.
enum Named {
    Known(Meaning),
    TimeWithoutUnit(Moment),
    PlaceWithoutUnit(fn(u64) -> Meaning),
}

fn named(name: &str) -> Option<Named> {
    let known = match name {
        "-" => Meaning::Ignored,
        "sector" => Meaning::Offset(SECTOR_BYTES),
        "sectors" => Meaning::Size(SECTOR_BYTES),
        "offset" => return Some(Named::PlaceWithoutUnit(Meaning::Offset)),
        "offset_bytes" => Meaning::Offset(1),
        "offset_kb" => Meaning::Offset(1024),
        "size" => return Some(Named::PlaceWithoutUnit(Meaning::Size)),
        "size_bytes" => Meaning::Size(1),
        "size_kb" => Meaning::Size(1024),
        "op" => Meaning::Op,
        "flags" => Meaning::Flags,
        "pid" => Meaning::Pid,
        "process" => Meaning::Process,
        "device" => Meaning::Device,
        _ => {
            let (moment, unit) = match name.split_once('_') {
                Some((moment, unit)) => (moment, Some(TimeUnit::by_name(unit).ok()?)),
                None => (name, None),
            };
            let moment = Moment::ALL.into_iter().find(|known| known.name() == moment)?;
            match unit {
                Some(unit) => Meaning::Time(moment, unit),
                None => return Some(Named::TimeWithoutUnit(moment)),
            }
        }
    };
    Some(Named::Known(known))
}

/// Column names as they stand in a heading or in `--columns`.
fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim)
}

/// Whether a heading names columns, and enough of them.
pub(super) fn is_heading(line: &str) -> bool {
    names(line).count() >= 4 && names(line).all(|name| named(name).is_some())
}

/// Bytes in a unit of size.
fn size_unit(name: &str) -> Result<u64> {
    match name {
        "sector" => Ok(SECTOR_BYTES),
        "byte" => Ok(1),
        "kb" => Ok(1024),
        "page" => Ok(4096),
        _ => Err(Error::new(Kind::Config, "is no unit of size")
            .of_field("--size-unit", 0, name.as_bytes())
            .hint("choose one of: sector, byte, kb, page")),
    }
}

/// The meanings of the columns in `list`; units that no name states come from the options.
///
/// # Errors
/// An unknown name, a column twice, a needed one that is missing, a unit that is missing or not needed.
pub(super) fn meanings(list: &str, options: &ReadOptions) -> Result<Vec<Meaning>> {
    let config = |problem: String| Error::new(Kind::Config, problem);
    let unit = options.time_unit.as_deref().map(TimeUnit::by_name).transpose()?;
    let size_unit = options.size_unit.as_deref().map(size_unit).transpose()?;
    let (mut unit_used, mut size_unit_used) = (false, false);
    let mut columns = Vec::new();
    for (i, name) in names(list).enumerate() {
        let place = |error: Error| error.of_field("--columns", i as u64 + 1, name.as_bytes());
        let no_unit = || place(config("does not say its unit".into()));
        let column = match named(name) {
            None => {
                return Err(place(config("is no column name".into())).hint(
                    "name the columns with --columns, such as `arrival_us,op,offset_bytes,size_bytes`; `-` passes one over",
                ));
            }
            Some(Named::Known(column)) => column,
            Some(Named::TimeWithoutUnit(moment)) => {
                unit_used = true;
                Meaning::Time(moment, unit.ok_or_else(|| no_unit().hint("give --time-unit s, ms, us or ns"))?)
            }
            Some(Named::PlaceWithoutUnit(meaning)) => {
                size_unit_used = true;
                meaning(size_unit.ok_or_else(|| no_unit().hint("give --size-unit sector, byte, kb or page"))?)
            }
        };
        if column != Meaning::Ignored && columns.iter().any(|other| same(*other, column)) {
            return Err(place(config("stands twice".into())));
        }
        columns.push(column);
    }
    for (option, given, used) in
        [("--time-unit", &options.time_unit, unit_used), ("--size-unit", &options.size_unit, size_unit_used)]
    {
        if let Some(value) = given.as_ref().filter(|_| !used) {
            return Err(config("every column says its own unit".into())
                .of_field(option, 0, value.as_bytes())
                .hint("leave the option out, or take the unit off the column's name"));
        }
    }
    for (name, needed) in [
        ("arrival", Meaning::Time(Moment::Arrival, TimeUnit::Nanos)),
        ("sector or offset", Meaning::Offset(1)),
        ("sectors or size", Meaning::Size(1)),
        ("op", Meaning::Op),
    ] {
        if !columns.iter().any(|column| same(*column, needed)) {
            let missing = config(format!("there is no column {name}"));
            return Err(missing.of_field("--columns", 0, list.as_bytes()));
        }
    }
    Ok(columns)
}

/// Whether two columns say the same, be it in different units.
fn same(one: Meaning, other: Meaning) -> bool {
    match (one, other) {
        (Meaning::Time(one, _), Meaning::Time(other, _)) => one == other,
        _ => std::mem::discriminant(&one) == std::mem::discriminant(&other),
    }
}
