//! The order of the bytes of a whole register: printed from the last byte to the first, as kernels up to 3.1 do, or in words whose
//! bytes are swapped.

use emmclab_base::{Error, ErrorClass, Result};

use super::fields::{self, FIELDS, REGISTER_BYTES};
use super::{HINT, MOST};

/// Orders in which programs print a register, as the number of bytes that are reversed together.
const ORDERS: [(usize, &str); 3] = [
    (REGISTER_BYTES, "byte 511 is first, as kernels up to 3.1 print it"),
    (4, "the bytes of each word of 4 are swapped"),
    (2, "the bytes of each word of 2 are swapped"),
];
/// The register in the order of the standard, with a note if it was turned.
///
/// # Errors
/// If neither these bytes nor another order of them can be a register.
pub(super) fn in_order(bytes: &[u8; REGISTER_BYTES]) -> Result<([u8; REGISTER_BYTES], Option<String>)> {
    let signs = order_signs(bytes);
    if signs.is_empty() {
        return Ok((*bytes, None));
    }
    let shown = signs.join(", ");
    for (size, order) in ORDERS {
        let mut turned = *bytes;
        turned.chunks_mut(size).for_each(<[u8]>::reverse);
        if self::order_signs(&turned).is_empty() && fields::EXT_CSD_REV.get(&turned) > 0 {
            return Ok((turned, Some(format!("{order} ({shown} as printed): the register was turned"))));
        }
    }
    // A single sign may be a peculiarity of a device.
    if let [sign] = &*signs {
        return Ok((*bytes, Some(format!("{sign}: the dump may be damaged"))));
    }
    Err(Error::new(
        ErrorClass::Value,
        format!("{shown}: the bytes are damaged, in another order, or of something else"),
    )
    .at_offset(0)
    .hint(HINT))
}

/// What contradicts that these bytes are a register in the order of the standard.
fn order_signs(bytes: &[u8; REGISTER_BYTES]) -> Vec<String> {
    let [revision, structure, sets, sectors] =
        [fields::EXT_CSD_REV, fields::CSD_STRUCTURE, fields::S_CMD_SET, fields::SEC_COUNT]
            .map(|field| field.get(bytes));
    let is_reserved = |at| !FIELDS.iter().any(|field| field.range().contains(&at));
    let reserved = bytes.iter().enumerate().find(|(at, byte)| **byte != 0 && is_reserved(*at));
    let signs = [
        reserved.map(|(at, byte)| format!("reserved byte {at} is {byte:#04x}")),
        // Every device has the standard command set, bit 0.
        (sets & 1 == 0 || sets > 31).then(|| format!("S_CMD_SET is {sets:#04x}")),
        (sectors == 0).then(|| "SEC_COUNT is 0".to_owned()),
        (revision > MOST.into()).then(|| format!("EXT_CSD_REV is {revision:#04x}")),
        (structure > 3).then(|| format!("CSD_STRUCTURE is {structure:#04x}")),
    ];
    signs.into_iter().flatten().collect()
}
