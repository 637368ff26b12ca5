//! The `EXT_CSD` register (JESD84-B51, 7.4): 512 bytes of properties, and modes that CMD6 changes.

use emmclab_base::SECTOR_BYTES;

use crate::sdhci::settings::{CardSettings, ERASE_UNIT, PARTITION_UNIT};
use emmclab_base::Health;

// Modes by index, which CMD6 writes.
const BARRIER_CTRL: u8 = 31;
const FLUSH_CACHE: u8 = 32;
const CACHE_CTRL: u8 = 33;
const POWER_OFF_NOTIFICATION: u8 = 34;
const EXCEPTION_EVENTS_CTRL: u8 = 56;
const HPI_MGMT: u8 = 161;
const RST_N_FUNCTION: u8 = 162;
const BKOPS_EN: u8 = 163;
const BKOPS_START: u8 = 164;
const SANITIZE_START: u8 = 165;
const BOOT_WP: u8 = 173;
const BOOT_WP_STATUS: u8 = 174;
const ERASE_GROUP_DEF: u8 = 175;
const BOOT_BUS_CONDITIONS: u8 = 177;
const BOOT_CONFIG_PROT: u8 = 178;
const PARTITION_CONFIG: u8 = 179;
const BUS_WIDTH: u8 = 183;
const HS_TIMING: u8 = 185;
const POWER_CLASS: u8 = 187;
const CMD_SET: u8 = 191;

/// Modes that CMD0 leaves alone. All but the first two outlast a loss of power, too.
const LASTING: [u8; 7] = [
    BOOT_WP,
    BOOT_WP_STATUS,
    RST_N_FUNCTION,
    BKOPS_EN,
    BOOT_BUS_CONDITIONS,
    BOOT_CONFIG_PROT,
    PARTITION_CONFIG,
];

/// Sectors of the erase group that hosts see which leave `ERASE_GROUP_DEF` clear: (31 + 1) * (31 + 1), as in the CSD.
const DEFAULT_ERASE_GROUP: u64 = 32 * 32;

/// Work that a change of a mode starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    Flush,
    Barrier,
    Sanitize,
}

/// The way in which CMD6 changes a byte (JESD84-B51, 6.6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    SetBits,
    ClearBits,
    WriteByte,
}

/// The `EXT_CSD` register.
pub(super) struct ExtCsd {
    bytes: [u8; 512],
}

impl ExtCsd {
    /// The register of a card with these settings, after power is applied for the first time.
    pub fn new(settings: &CardSettings, sectors: u64) -> Self {
        let mut bytes = [0; 512];
        bytes[504] = 1; // S_CMD_SET: standard MMC
        bytes[503] = if settings.high_priority_interrupt { 0b11 } else { 0 }; // by CMD12
        bytes[502] = settings.background_operations.into();
        bytes[499] = settings.data_tags.into();
        bytes[486] = settings.barrier.into();
        bytes[265] = (settings.optimal_write_bytes / 4096) as u8;
        bytes[254..262].copy_from_slice(&u64::from(settings.revision).to_le_bytes());
        bytes[249..253].copy_from_slice(&((settings.cache_bytes / 128) as u32).to_le_bytes());
        bytes[248] = 50; // GENERIC_CMD6_TIME, 10 ms each
        bytes[247] = 100; // POWER_OFF_LONG_TIME, 10 ms each
        bytes[241] = 10; // INI_TIMEOUT_AP, 100 ms each
        bytes[240] = settings.cache_in_order.into(); // CACHE_FLUSH_POLICY
        bytes[232] = 2; // TRIM_MULT, 300 ms each
        let secure = [(settings.secure_erase, 0), (settings.trim, 4), (settings.sanitize, 6)];
        bytes[231] = secure.iter().map(|(has, bit)| u8::from(*has) << bit).sum();
        bytes[229..231].fill(10); // SEC_ERASE_MULT and SEC_TRIM_MULT
        bytes[228] = if settings.boot_bytes > 0 { 0b111 } else { 0 }; // BOOT_INFO
        bytes[226] = (settings.boot_bytes / PARTITION_UNIT) as u8;
        bytes[225] = 6; // ACC_SIZE: 16 KiB
        bytes[224] = (settings.erase_group_bytes / ERASE_UNIT) as u8;
        bytes[223] = 2; // ERASE_TIMEOUT_MULT, 300 ms each
        bytes[222] = settings.reliable_sectors;
        bytes[221] = 1; // HC_WP_GRP_SIZE
        bytes[219..221].fill(8); // sleep currents: 256 uA
        bytes[217] = 16; // S_A_TIMEOUT: 100 ns * 2^16
        bytes[216] = 10; // SLEEP_NOTIFICATION_TIME: 10 us * 2^10
        bytes[212..216].copy_from_slice(&(sectors as u32).to_le_bytes());
        bytes[205..211].fill(0x0a); // MIN_PERF: class of 2.4 MB/s and 4.5 MB/s
        bytes[199] = 10; // PARTITION_SWITCH_TIME, 10 ms each
        bytes[198] = 10; // OUT_OF_INTERRUPT_TIME, 10 ms each
        bytes[197] = 1; // DRIVER_STRENGTH: type 0
        bytes[196] = 0b1_0111; // DEVICE_TYPE: 26 and 52 MHz, 52 MHz at both edges, HS200 at 1.8 V
        bytes[194] = 2; // CSD_STRUCTURE: version 1.2
        bytes[192] = 8; // EXT_CSD_REV: 5.1
        bytes[168] = (settings.rpmb_bytes / PARTITION_UNIT) as u8;
        bytes[167] = 0x1f; // WR_REL_SET: a write that is cut harms no older data, in any partition
        bytes[166] = u8::from(settings.reliable_write) << 2; // WR_REL_PARAM: the enhanced reliable write
        Self { bytes }
    }

    pub fn bytes(&self) -> &[u8; 512] {
        &self.bytes
    }

    /// Reports the state of the flash.
    pub fn report(&mut self, health: Health) {
        self.bytes[246] = health.background.min(3); // BKOPS_STATUS
        // PRE_EOL_INFO: normal; 80 % and 90 % of the spare blocks used.
        self.bytes[267] = match health.spares_used {
            None => 0,
            Some(used) => 1 + u8::from(used >= 0.8) + u8::from(used >= 0.9),
        };
        // DEVICE_LIFE_TIME_EST_TYP_A and _B, in steps of 10 %; 11 is beyond the life.
        let steps = |used: Option<f64>| used.map_or(0, |used| (used * 10.0).ceil().clamp(1.0, 11.0) as u8);
        self.bytes[268] = steps(health.slc_life_used);
        self.bytes[269] = steps(health.life_used);
    }

    fn get(&self, index: u8) -> u8 {
        self.bytes[usize::from(index)]
    }

    /// CMD0: modes are as after power-up, but protection until power is lost stays.
    pub fn reset(&mut self) {
        for at in 0..192 {
            // Properties lie among the modes: WR_REL_PARAM, WR_REL_SET and RPMB_SIZE_MULT.
            if !LASTING.contains(&at) && !(166..=168).contains(&at) {
                self.bytes[usize::from(at)] = 0;
            }
        }
        self.bytes[usize::from(PARTITION_CONFIG)] &= !0b111;
    }

    /// Power was lost.
    pub fn power_cycle(&mut self) {
        self.reset();
        self.bytes[usize::from(BOOT_WP)] = 0;
        self.bytes[usize::from(BOOT_WP_STATUS)] = 0;
    }

    /// Whether the cache is on; `None` where there is no cache.
    pub fn cache_on(&self) -> Option<bool> {
        (self.bytes[249..253] != [0; 4]).then(|| self.get(CACHE_CTRL) & 1 == 1)
    }

    /// The partition that commands go to (`PARTITION_ACCESS`): 0 user area, 1 and 2 boot, 3 RPMB.
    pub fn partition(&self) -> u8 {
        self.get(PARTITION_CONFIG) & 0b111
    }

    /// Whether boot partition 0 or 1 is protected until power is lost.
    pub fn boot_protected(&self, partition: usize) -> bool {
        self.get(BOOT_WP_STATUS) >> (2 * partition) & 0b11 != 0
    }

    pub fn high_priority_interrupt(&self) -> bool {
        self.get(HPI_MGMT) & 1 == 1
    }

    /// Whether the timing is that of HS200, for which alone CMD21 is there.
    pub fn hs200(&self) -> bool {
        self.get(HS_TIMING) & 0xf == 2
    }

    /// Data lines in use.
    pub fn bus_lines(&self) -> usize {
        match self.get(BUS_WIDTH) {
            0 => 1,
            1 | 5 => 4,
            _ => 8,
        }
    }

    /// Sectors of an erase group.
    pub fn erase_group(&self) -> u64 {
        if self.get(ERASE_GROUP_DEF) & 1 == 1 {
            u64::from(self.bytes[224]) * u64::from(ERASE_UNIT) / SECTOR_BYTES
        } else {
            DEFAULT_ERASE_GROUP
        }
    }

    pub fn has_trim(&self) -> bool {
        self.bytes[231] >> 4 & 1 == 1
    }

    pub fn has_secure_erase(&self) -> bool {
        self.bytes[231] & 1 == 1
    }

    /// CMD6 on one byte. `None` where the byte or the value is not for the host to write: `SWITCH_ERROR`.
    pub fn switch(&mut self, access: Access, index: u8, value: u8) -> Option<Effect> {
        let old = self.get(index);
        let new = match access {
            Access::SetBits => old | value,
            Access::ClearBits => old & !value,
            Access::WriteByte => value,
        };
        let cache = self.cache_on();
        let mut effect = Effect::None;
        let mut kept = new;
        let allowed = match index {
            FLUSH_CACHE => {
                kept = 0;
                // A flush of a cache that is off has nothing to do.
                match (new, cache) {
                    (0, Some(_)) | (1 | 2, Some(false)) => true,
                    (1, Some(true)) => {
                        effect = Effect::Flush;
                        true
                    }
                    (2, Some(true)) => {
                        effect = Effect::Barrier;
                        self.get(BARRIER_CTRL) == 1
                    }
                    _ => false,
                }
            }
            CACHE_CTRL => {
                // What is in the cache becomes durable when the cache is turned off.
                if cache == Some(true) && new == 0 {
                    effect = Effect::Flush;
                }
                cache.is_some() && new <= 1
            }
            BARRIER_CTRL => self.bytes[486] == 1 && new <= 1,
            POWER_OFF_NOTIFICATION => {
                // The host announces the end of power: nothing may be left in the cache.
                if (2..=4).contains(&new) && cache == Some(true) {
                    effect = Effect::Flush;
                }
                new <= 4
            }
            HPI_MGMT => self.bytes[503] & 1 == 1 && new <= 1,
            BKOPS_EN => self.bytes[502] == 1 && new <= 0b11,
            BKOPS_START => {
                kept = 0;
                self.bytes[502] == 1
            }
            SANITIZE_START => {
                kept = 0;
                effect = Effect::Sanitize;
                self.bytes[231] >> 6 & 1 == 1
            }
            BOOT_WP => self.protect_boot(new),
            ERASE_GROUP_DEF => new <= 1,
            PARTITION_CONFIG => {
                new & 0x80 == 0
                    && match new & 0b111 {
                        0 => true,
                        1 | 2 => self.bytes[226] > 0,
                        3 => self.bytes[168] > 0,
                        _ => false,
                    }
            }
            // Written once: 0 until the host decides.
            RST_N_FUNCTION => new <= 2 && (old == 0 || old == new),
            BUS_WIDTH => matches!(new, 0..=2 | 5 | 6),
            HS_TIMING => new <= 2,
            POWER_CLASS => new <= 0xf,
            BOOT_BUS_CONDITIONS => new <= 0x1f,
            BOOT_CONFIG_PROT => new <= 0x11,
            EXCEPTION_EVENTS_CTRL => new.is_multiple_of(4),
            CMD_SET => new == 0,
            _ => false,
        };
        if !allowed {
            return None;
        }
        self.bytes[usize::from(index)] = kept;
        Some(effect)
    }

    /// `BOOT_WP [173]`: protection of both boot partitions (bit 0), or of the one in bit 1, until power is lost. Permanent
    /// protection (bits 2 and 3) is not offered.
    fn protect_boot(&mut self, value: u8) -> bool {
        let (power_on, which, chosen) = (value & 1 == 1, value >> 1 & 1, value >> 7 == 1);
        let old = self.get(BOOT_WP_STATUS);
        if value & 0b0011_1100 != 0 || self.bytes[226] == 0 || !power_on && old != 0 {
            return false;
        }
        if power_on {
            let status = if chosen { 1 << (2 * which) } else { 0b0101 };
            self.bytes[usize::from(BOOT_WP_STATUS)] = old | status;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_the_flash_is_reported_in_the_steps_of_the_standard() {
        let mut register = ExtCsd::new(&CardSettings::default(), 1 << 21);
        assert_eq!(register.bytes[212..216], (1_u32 << 21).to_le_bytes(), "SEC_COUNT");
        let mut report = |slc, other, spares, background| {
            register.report(Health { slc_life_used: slc, life_used: other, spares_used: spares, background });
            [register.bytes[246], register.bytes[267], register.bytes[268], register.bytes[269]]
        };
        assert_eq!(report(None, None, None, 0), [0, 0, 0, 0], "not known");
        assert_eq!(report(Some(0.0), Some(0.1), Some(0.0), 1), [1, 1, 1, 1]);
        assert_eq!(report(Some(0.11), Some(0.95), Some(0.8), 2), [2, 2, 2, 10]);
        assert_eq!(report(Some(1.0), Some(1.01), Some(0.9), 3), [3, 3, 10, 11]);
        assert_eq!(report(Some(0.0), Some(f64::MAX), Some(9.0), 9), [3, 3, 1, 11]);
    }
}
