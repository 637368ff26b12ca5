//! The `EXT_CSD` register (JESD84-B51, 7.4) of a card: 512 bytes with properties, and with modes that CMD6 changes.

use emmclab_base::{DeviceHealth, SECTOR_BYTES};
use emmclab_registers::ext_csd::fields::{self, FIELDS, REGISTER_BYTES, RegisterField};

use super::settings::{CardSettings, ERASE_UNIT, PARTITION_UNIT};

/// Modes that CMD0 does not reset. All except the first two also survive a power loss.
const LASTING: [RegisterField; 7] = [
    fields::BOOT_WP,
    fields::BOOT_WP_STATUS,
    fields::RST_N_FUNCTION,
    fields::BKOPS_EN,
    fields::BOOT_BUS_CONDITIONS,
    fields::BOOT_CONFIG_PROT,
    fields::PARTITION_CONFIG,
];

/// Number of sectors in an erase group for hosts that leave `ERASE_GROUP_DEF` clear: (31 + 1) * (31 + 1), as in the CSD.
const DEFAULT_ERASE_GROUP: u64 = 32 * 32;

/// The operation that must follow when CMD6 changes a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SwitchEffect {
    None,
    Flush,
    Barrier,
    Sanitize,
}

/// How CMD6 changes a byte (JESD84-B51, 6.6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SwitchAccess {
    SetBits,
    ClearBits,
    WriteByte,
}

pub(super) struct CardExtCsd {
    pub bytes: [u8; REGISTER_BYTES],
}

impl CardExtCsd {
    /// Creates the register of a card with these settings, after the first power-up.
    pub fn new(settings: &CardSettings, sectors: u64) -> Self {
        let mut bytes = [0; REGISTER_BYTES];
        let partition = |bytes: u32| u64::from(bytes / PARTITION_UNIT);
        let secure = [(settings.secure_erase, 0), (settings.trim, 4), (settings.sanitize, 6)];
        let secure = secure.iter().map(|(has, bit)| u64::from(*has) << bit).sum();
        for (field, value) in [
            (fields::S_CMD_SET, 1),                                                          // standard MMC
            (fields::HPI_FEATURES, if settings.high_priority_interrupt { 0b11 } else { 0 }), // by CMD12
            (fields::BKOPS_SUPPORT, settings.background_operations.into()),
            (fields::DATA_TAG_SUPPORT, settings.data_tags.into()),
            (fields::BARRIER_SUPPORT, settings.barrier.into()),
            (fields::OPTIMAL_WRITE_SIZE, (settings.optimal_write_bytes / 4096).into()),
            (fields::FIRMWARE_VERSION, settings.revision.into()),
            (fields::CACHE_SIZE, settings.cache_bytes / 128),
            (fields::GENERIC_CMD6_TIME, 50),
            (fields::POWER_OFF_LONG_TIME, 100),
            (fields::INI_TIMEOUT_AP, 10),
            (fields::CACHE_FLUSH_POLICY, settings.cache_in_order.into()),
            (fields::TRIM_MULT, 2),
            (fields::SEC_FEATURE_SUPPORT, secure),
            (fields::SEC_ERASE_MULT, 10),
            (fields::SEC_TRIM_MULT, 10),
            (fields::BOOT_INFO, if settings.boot_bytes > 0 { 0b111 } else { 0 }),
            (fields::BOOT_SIZE_MULT, partition(settings.boot_bytes)),
            (fields::ACC_SIZE, 6), // 16 KiB
            (fields::HC_ERASE_GRP_SIZE, (settings.erase_group_bytes / ERASE_UNIT).into()),
            (fields::ERASE_TIMEOUT_MULT, 2),
            (fields::REL_WR_SEC_C, settings.reliable_sectors.into()),
            (fields::HC_WP_GRP_SIZE, 1),
            (fields::S_C_VCC, 8), // 256 uA
            (fields::S_C_VCCQ, 8),
            (fields::S_A_TIMEOUT, 16),
            (fields::SLEEP_NOTIFICATION_TIME, 10),
            (fields::SEC_COUNT, sectors),
            // The same low performance class for all bus widths and clocks.
            (fields::MIN_PERF_W_8_52, 0x0a),
            (fields::MIN_PERF_R_8_52, 0x0a),
            (fields::MIN_PERF_W_8_26_4_52, 0x0a),
            (fields::MIN_PERF_R_8_26_4_52, 0x0a),
            (fields::MIN_PERF_W_4_26, 0x0a),
            (fields::MIN_PERF_R_4_26, 0x0a),
            (fields::PARTITION_SWITCH_TIME, 10),
            (fields::OUT_OF_INTERRUPT_TIME, 10),
            (fields::DRIVER_STRENGTH, 1),    // type 0
            (fields::DEVICE_TYPE, 0b1_0111), // 26 and 52 MHz, 52 MHz at both edges, HS200 at 1.8 V
            (fields::CSD_STRUCTURE, 2),      // version 1.2
            (fields::EXT_CSD_REV, 8),        // 5.1
            (fields::RPMB_SIZE_MULT, partition(settings.rpmb_bytes)),
            (fields::WR_REL_SET, 0x1f), // a write that is interrupted does not harm older data, in any partition
            (fields::WR_REL_PARAM, u64::from(settings.reliable_write) << 2), // the enhanced reliable write
        ] {
            field.put(&mut bytes, value);
        }
        Self { bytes }
    }

    /// Updates the register fields that report the health of the flash.
    pub fn report(&mut self, health: DeviceHealth) {
        self.put(fields::BKOPS_STATUS, health.background.min(3).into());
        // PRE_EOL_INFO: 1 is normal; 2 and 3 mean that 80 % and 90 % of the spare blocks are used. 0 means unknown.
        let spares = match health.spares_used {
            None => 0,
            Some(used) => 1 + u64::from(used >= 0.8) + u64::from(used >= 0.9),
        };
        self.put(fields::PRE_EOL_INFO, spares);
        // Lifetime estimates are in steps of 10 %. 11 means that the lifetime is exceeded, and 0 that it is unknown.
        let steps = |used: Option<f64>| used.map_or(0, |used| (used * 10.0).ceil().clamp(1.0, 11.0) as u64);
        self.put(fields::DEVICE_LIFE_TIME_EST_TYP_A, steps(health.slc_life_used));
        self.put(fields::DEVICE_LIFE_TIME_EST_TYP_B, steps(health.life_used));
    }

    fn put(&mut self, field: RegisterField, value: u64) {
        field.put(&mut self.bytes, value);
    }

    fn get(&self, field: RegisterField) -> u64 {
        field.get(&self.bytes)
    }

    /// Executes CMD0: resets the modes except those in [`LASTING`]. Of `PARTITION_CONFIG`, only the partition access is reset.
    pub fn reset(&mut self) {
        // These properties of the device are in the modes segment of EXT_CSD, and are not reset.
        let properties = [fields::WR_REL_PARAM, fields::WR_REL_SET, fields::RPMB_SIZE_MULT];
        for field in FIELDS.iter().filter(|field| field.byte < fields::EXT_CSD_REV.byte) {
            if !LASTING.contains(field) && !properties.contains(field) {
                self.put(*field, 0);
            }
        }
        self.put(fields::PARTITION_CONFIG, self.get(fields::PARTITION_CONFIG) & !0b111);
    }

    /// Resets the modes after a power loss.
    pub fn power_cycle(&mut self) {
        self.reset();
        self.put(fields::BOOT_WP, 0);
        self.put(fields::BOOT_WP_STATUS, 0);
    }

    /// Whether the cache is turned on; `None` if there is no cache.
    pub fn cache_on(&self) -> Option<bool> {
        (self.get(fields::CACHE_SIZE) > 0).then(|| self.get(fields::CACHE_CTRL) & 1 == 1)
    }

    /// The partition that commands access (`PARTITION_ACCESS`): 0 user area, 1 and 2 boot, 3 RPMB.
    pub fn partition(&self) -> u8 {
        (self.get(fields::PARTITION_CONFIG) & 0b111) as u8
    }

    /// Whether boot partition 0 or 1 is write-protected until the next power loss.
    pub fn boot_protected(&self, partition: usize) -> bool {
        self.get(fields::BOOT_WP_STATUS) >> (2 * partition) & 0b11 != 0
    }

    pub fn high_priority_interrupt(&self) -> bool {
        self.get(fields::HPI_MGMT) & 1 == 1
    }

    /// Whether HS200 timing is selected; only then is CMD21 legal.
    pub fn hs200(&self) -> bool {
        self.get(fields::HS_TIMING) & 0xf == 2
    }

    /// Number of data lines in use.
    pub fn bus_lines(&self) -> usize {
        match self.get(fields::BUS_WIDTH) {
            0 => 1,
            1 | 5 => 4,
            _ => 8,
        }
    }

    /// Number of sectors in an erase group.
    pub fn erase_group(&self) -> u64 {
        if self.get(fields::ERASE_GROUP_DEF) & 1 == 1 {
            self.get(fields::HC_ERASE_GRP_SIZE) * u64::from(ERASE_UNIT) / SECTOR_BYTES
        } else {
            DEFAULT_ERASE_GROUP
        }
    }

    pub fn has_trim(&self) -> bool {
        self.get(fields::SEC_FEATURE_SUPPORT) >> 4 & 1 == 1
    }

    pub fn has_secure_erase(&self) -> bool {
        self.get(fields::SEC_FEATURE_SUPPORT) & 1 == 1
    }

    /// Executes CMD6 on one byte. `None` (`SWITCH_ERROR`) if the host must not write this byte or this value.
    pub fn switch(&mut self, access: SwitchAccess, index: u8, value: u8) -> Option<SwitchEffect> {
        let field = FIELDS.iter().find(|field| field.byte == u16::from(index))?;
        let old = self.bytes[usize::from(index)];
        let new = match access {
            SwitchAccess::SetBits => old | value,
            SwitchAccess::ClearBits => old & !value,
            SwitchAccess::WriteByte => value,
        };
        let cache = self.cache_on();
        let mut effect = SwitchEffect::None;
        let mut kept = new;
        let allowed = match *field {
            fields::FLUSH_CACHE => {
                kept = 0;
                // Flushing a disabled cache has no effect.
                match (new, cache) {
                    (0, Some(_)) | (1 | 2, Some(false)) => true,
                    (1, Some(true)) => {
                        effect = SwitchEffect::Flush;
                        true
                    }
                    (2, Some(true)) => {
                        effect = SwitchEffect::Barrier;
                        self.get(fields::BARRIER_CTRL) == 1
                    }
                    _ => false,
                }
            }
            fields::CACHE_CTRL => {
                // Disabling the cache makes its data durable, so the cache is flushed.
                if cache == Some(true) && new == 0 {
                    effect = SwitchEffect::Flush;
                }
                cache.is_some() && new <= 1
            }
            fields::BARRIER_CTRL => self.get(fields::BARRIER_SUPPORT) == 1 && new <= 1,
            fields::POWER_OFF_NOTIFICATION => {
                // The host announces that it will turn off the power, so the cache must be flushed.
                if (2..=4).contains(&new) && cache == Some(true) {
                    effect = SwitchEffect::Flush;
                }
                new <= 4
            }
            fields::HPI_MGMT => self.get(fields::HPI_FEATURES) & 1 == 1 && new <= 1,
            fields::BKOPS_EN => self.get(fields::BKOPS_SUPPORT) == 1 && new <= 0b11,
            fields::BKOPS_START => {
                kept = 0;
                self.get(fields::BKOPS_SUPPORT) == 1
            }
            fields::SANITIZE_START => {
                kept = 0;
                effect = SwitchEffect::Sanitize;
                self.get(fields::SEC_FEATURE_SUPPORT) >> 6 & 1 == 1
            }
            fields::BOOT_WP => self.protect_boot(new),
            fields::ERASE_GROUP_DEF => new <= 1,
            fields::PARTITION_CONFIG => {
                new & 0x80 == 0
                    && match new & 0b111 {
                        0 => true,
                        1 | 2 => self.get(fields::BOOT_SIZE_MULT) > 0,
                        3 => self.get(fields::RPMB_SIZE_MULT) > 0,
                        _ => false,
                    }
            }
            // RST_N_FUNCTION can be written once; before, it is 0.
            fields::RST_N_FUNCTION => new <= 2 && (old == 0 || old == new),
            fields::BUS_WIDTH => matches!(new, 0..=2 | 5 | 6),
            fields::HS_TIMING => new <= 2,
            fields::POWER_CLASS => new <= 0xf,
            fields::BOOT_BUS_CONDITIONS => new <= 0x1f,
            fields::BOOT_CONFIG_PROT => new <= 0x11,
            fields::EXCEPTION_EVENTS_CTRL => new.is_multiple_of(4),
            fields::CMD_SET => new == 0,
            _ => false,
        };
        if !allowed {
            return None;
        }
        self.bytes[usize::from(index)] = kept;
        Some(effect)
    }

    /// `BOOT_WP [173]`: protects both boot partitions, or the one that bit 1 selects, until the next power loss (bit 0).
    /// Permanent protection (bits 2 and 3) is not supported.
    fn protect_boot(&mut self, value: u8) -> bool {
        let (power_on, which, chosen) = (value & 1 == 1, value >> 1 & 1, value >> 7 == 1);
        let old = self.get(fields::BOOT_WP_STATUS) as u8;
        if value & 0b0011_1100 != 0 || self.get(fields::BOOT_SIZE_MULT) == 0 || !power_on && old != 0 {
            return false;
        }
        if power_on {
            let status = if chosen { 1 << (2 * which) } else { 0b0101 };
            self.put(fields::BOOT_WP_STATUS, u64::from(old | status));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use emmclab_registers::RegisterSource;

    use super::*;

    #[test]
    fn the_reader_of_registers_reads_what_the_card_states() {
        let register = CardExtCsd::new(&CardSettings::default(), 1 << 21);
        let source = RegisterSource { path: Path::new("ext_csd"), bytes: &register.bytes };
        let report = emmclab_registers::read(&[source]).unwrap();
        assert_eq!((report.standard.as_str(), report.capacity.unwrap().bytes), ("eMMC 5.1", 1 << 30));
        let text = |topic| report.facts.iter().find(|fact| fact.topic == topic).unwrap().text.clone();
        assert_eq!(text("volatile cache").as_deref(), Some("512 KB, off when it was read"));
        assert_eq!(text("boot partitions").as_deref(), Some("2 of 4 MB"));
        assert_eq!(text("erasing").as_deref(), Some("secure erase, trim, sanitize"));
    }

    #[test]
    fn the_state_of_the_flash_is_reported_in_the_steps_of_the_standard() {
        let mut register = CardExtCsd::new(&CardSettings::default(), 1 << 21);
        assert_eq!(register.bytes[212..216], (1_u32 << 21).to_le_bytes(), "SEC_COUNT");
        let mut report = |slc, other, spares, background| {
            register.report(DeviceHealth { slc_life_used: slc, life_used: other, spares_used: spares, background });
            [register.bytes[246], register.bytes[267], register.bytes[268], register.bytes[269]]
        };
        assert_eq!(report(None, None, None, 0), [0, 0, 0, 0], "not known");
        assert_eq!(report(Some(0.0), Some(0.1), Some(0.0), 1), [1, 1, 1, 1]);
        assert_eq!(report(Some(0.11), Some(0.95), Some(0.8), 2), [2, 2, 2, 10]);
        assert_eq!(report(Some(1.0), Some(1.01), Some(0.9), 3), [3, 3, 10, 11]);
        assert_eq!(report(Some(0.0), Some(f64::MAX), Some(9.0), 9), [3, 3, 1, 11]);
    }
}
