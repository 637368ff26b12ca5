//! All fields of the `EXT_CSD` register (JESD84-B51, 7.4). The code that reads the register and the code that writes it share them.

/// A field of the `EXT_CSD` register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterField {
    /// Name of the field in the standard.
    pub name: &'static str,
    /// Number of the field's lowest byte.
    pub byte: u16,
    /// Length in bytes; the lowest byte comes first.
    pub bytes: u16,
    /// First revision of the register (`EXT_CSD_REV`) that has the field.
    pub since: u8,
    /// Meaning of the field, with its unit.
    pub meaning: &'static str,
}

/// Length of the `EXT_CSD` register in bytes.
pub const REGISTER_BYTES: usize = 512;

impl RegisterField {
    /// The bytes of the register that the field occupies.
    pub fn range(self) -> std::ops::Range<usize> {
        usize::from(self.byte)..usize::from(self.byte + self.bytes)
    }

    /// The value of the field in a register, lowest byte first. For a field of more than eight bytes, the value of its lowest eight bytes.
    pub fn get(self, register: &[u8; REGISTER_BYTES]) -> u64 {
        let bytes = register[self.range()].iter().take(8).rev();
        bytes.fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    /// Writes the value of the field into a register; bits that do not fit are discarded.
    pub fn put(self, register: &mut [u8; REGISTER_BYTES], value: u64) {
        for (at, byte) in register[self.range()].iter_mut().enumerate() {
            *byte = value.checked_shr(8 * at as u32).unwrap_or(0) as u8;
        }
    }

    /// Returns the bytes of the register that the field occupies in the notation of the standard, such as `[252:249]`.
    pub fn place(self) -> String {
        match self.bytes {
            1 => format!("[{}]", self.byte),
            bytes => format!("[{}:{}]", self.byte + bytes - 1, self.byte),
        }
    }

    /// The field with this name in the standard.
    pub fn by_name(name: &str) -> Option<Self> {
        FIELDS.iter().find(|field| field.name == name).copied()
    }
}

macro_rules! fields {
    ($($name:ident $byte:literal $bytes:literal since $since:literal: $meaning:literal;)*) => {
        $(
            #[doc = $meaning]
            pub const $name: RegisterField =
                RegisterField { name: stringify!($name), byte: $byte, bytes: $bytes, since: $since, meaning: $meaning };
        )*

        /// All fields of the register, in the order of their bytes.
        pub static FIELDS: &[RegisterField] = &[$($name),*];
    };
}

fields! {
    CMDQ_MODE_EN 15 1 since 8: "1: the command queue is on";
    SECURE_REMOVAL_TYPE 16 1 since 7: "how removed data is made unreadable";
    PRODUCT_STATE_AWARENESS_ENABLEMENT 17 1 since 7: "loading of data before soldering";
    MAX_PRE_LOADING_DATA_SIZE 18 4 since 7: "maximum data that can be loaded before soldering, in sectors";
    PRE_LOADING_DATA_SIZE 22 4 since 7: "data to be loaded before soldering, in sectors";
    FFU_STATUS 26 1 since 7: "result of the last update of the firmware";
    MODE_OPERATION_CODES 29 1 since 7: "operation that the mode performs";
    MODE_CONFIG 30 1 since 7: "0: normal, 1: firmware update, 16: vendor specific";
    BARRIER_CTRL 31 1 since 8: "1: cache barriers are on";
    FLUSH_CACHE 32 1 since 6: "writing 1 flushes the cache, 2 sets a barrier";
    CACHE_CTRL 33 1 since 6: "1: the cache is on";
    POWER_OFF_NOTIFICATION 34 1 since 6: "1: the host announces power-off";
    PACKED_FAILURE_INDEX 35 1 since 6: "the entry of a packed command that failed";
    PACKED_COMMAND_STATUS 36 1 since 6: "result of the last packed command";
    CONTEXT_CONF 37 15 since 6: "contexts 1 to 15";
    EXT_PARTITIONS_ATTRIBUTE 52 2 since 6: "types of the general purpose partitions";
    EXCEPTION_EVENTS_STATUS 54 2 since 6: "exception events that occurred";
    EXCEPTION_EVENTS_CTRL 56 2 since 6: "exception events that are reported";
    DYNCAP_NEEDED 58 1 since 6: "capacity that the device asks the host to release";
    CLASS_6_CTRL 59 1 since 6: "1: dynamic capacity replaces write protection";
    INI_TIMEOUT_EMU 60 1 since 6: "time of the first start with sectors of 512 bytes, in 100 ms";
    DATA_SECTOR_SIZE 61 1 since 6: "0: sectors of 512 bytes, 1: of 4 KB";
    USE_NATIVE_SECTOR 62 1 since 6: "1: the host uses the sector size of the flash";
    NATIVE_SECTOR_SIZE 63 1 since 6: "0: the flash has sectors of 512 bytes, 1: of 4 KB";
    VENDOR_SPECIFIC_FIELD 64 64 since 6: "fields of the vendor";
    PROGRAM_CID_CSD_DDR_SUPPORT 130 1 since 6: "1: CID and CSD can be written at both clock edges";
    PERIODIC_WAKEUP 131 1 since 6: "how often the host wakes the device";
    TCASE_SUPPORT 132 1 since 6: "1: the temperature of the package may be reported";
    PRODUCTION_STATE_AWARENESS 133 1 since 7: "state of loading before soldering";
    SEC_BAD_BLK_MGMNT 134 1 since 5: "1: bad blocks are erased before they are retired";
    ENH_START_ADDR 136 4 since 5: "start of the enhanced area, in sectors";
    ENH_SIZE_MULT 140 3 since 5: "size of the enhanced area, in write protect groups";
    GP_SIZE_MULT_1 143 3 since 5: "size of general purpose partition 1, in write protect groups";
    GP_SIZE_MULT_2 146 3 since 5: "size of general purpose partition 2, in write protect groups";
    GP_SIZE_MULT_3 149 3 since 5: "size of general purpose partition 3, in write protect groups";
    GP_SIZE_MULT_4 152 3 since 5: "size of general purpose partition 4, in write protect groups";
    PARTITION_SETTING_COMPLETED 155 1 since 5: "1: the partitions are set permanently";
    PARTITIONS_ATTRIBUTE 156 1 since 5: "partitions with enhanced flash: bit 0 the user area, bits 1 to 4 the general purpose ones";
    MAX_ENH_SIZE_MULT 157 3 since 5: "maximum size of the enhanced area, in write protect groups";
    PARTITIONING_SUPPORT 160 1 since 5: "bit 0: partitions, bit 1: enhanced flash, bit 2: extended types";
    HPI_MGMT 161 1 since 5: "1: the high priority interrupt is on";
    RST_N_FUNCTION 162 1 since 5: "1: the reset line is used";
    BKOPS_EN 163 1 since 5: "background operations: bit 0 the host starts them, bit 1 the device does";
    BKOPS_START 164 1 since 5: "writing it starts background operations";
    SANITIZE_START 165 1 since 6: "writing it starts a sanitize";
    WR_REL_PARAM 166 1 since 5: "bit 2: reliable writes of any length, bit 4: of RPMB";
    WR_REL_SET 167 1 since 5: "partitions in which an interrupted write does not damage old data";
    RPMB_SIZE_MULT 168 1 since 5: "size of the RPMB partition, in 128 KB";
    FW_CONFIG 169 1 since 5: "1: updates of the firmware are permanently disabled";
    USER_WP 171 1 since 5: "write protection of the user area";
    BOOT_WP 173 1 since 5: "write protection of the boot partitions";
    BOOT_WP_STATUS 174 1 since 6: "active write protection of the boot partitions";
    ERASE_GROUP_DEF 175 1 since 5: "1: large erase groups are used";
    BOOT_BUS_CONDITIONS 177 1 since 5: "bus during a boot operation";
    BOOT_CONFIG_PROT 178 1 since 5: "protection of the boot settings";
    PARTITION_CONFIG 179 1 since 3: "the partition that boots, and the one that commands access";
    ERASED_MEM_CONT 181 1 since 3: "value of the bits of erased sectors";
    BUS_WIDTH 183 1 since 3: "data lines: 0: 1, 1: 4, 2: 8; 5 and 6: 4 and 8 at both clock edges";
    STROBE_SUPPORT 184 1 since 8: "1: enhanced strobe";
    HS_TIMING 185 1 since 0: "timing in use: 1: high speed, 2: HS200, 3: HS400";
    POWER_CLASS 187 1 since 0: "power class in use";
    CMD_SET_REV 189 1 since 0: "revision of the command set";
    CMD_SET 191 1 since 0: "command set in use";
    EXT_CSD_REV 192 1 since 0: "revision of this register: 5: eMMC 4.41, 6: 4.5, 7: 5.0, 8: 5.1";
    CSD_STRUCTURE 194 1 since 0: "version of the CSD register";
    DEVICE_TYPE 196 1 since 0: "bus modes: 26 and 52 MHz, 52 MHz at both edges (1.8 V, 1.2 V), HS200 (1.8 V, 1.2 V), HS400 (1.8 V, 1.2 V)";
    DRIVER_STRENGTH 197 1 since 6: "driver strengths";
    OUT_OF_INTERRUPT_TIME 198 1 since 5: "longest time of an interrupt, in 10 ms";
    PARTITION_SWITCH_TIME 199 1 since 5: "longest time of a change of partition, in 10 ms";
    PWR_CL_52_195 200 1 since 0: "power class at 52 MHz and 1.95 V";
    PWR_CL_26_195 201 1 since 0: "power class at 26 MHz and 1.95 V";
    PWR_CL_52_360 202 1 since 0: "power class at 52 MHz and 3.6 V";
    PWR_CL_26_360 203 1 since 0: "power class at 26 MHz and 3.6 V";
    MIN_PERF_R_4_26 205 1 since 0: "minimum read rate, 4 lines at 26 MHz, in 150 KB/s";
    MIN_PERF_W_4_26 206 1 since 0: "minimum write rate, 4 lines at 26 MHz, in 150 KB/s";
    MIN_PERF_R_8_26_4_52 207 1 since 0: "minimum read rate, 8 lines at 26 or 4 at 52 MHz, in 150 KB/s";
    MIN_PERF_W_8_26_4_52 208 1 since 0: "minimum write rate, 8 lines at 26 or 4 at 52 MHz, in 150 KB/s";
    MIN_PERF_R_8_52 209 1 since 0: "minimum read rate, 8 lines at 52 MHz, in 150 KB/s";
    MIN_PERF_W_8_52 210 1 since 0: "minimum write rate, 8 lines at 52 MHz, in 150 KB/s";
    SECURE_WP_INFO 211 1 since 8: "authenticated write protection";
    SEC_COUNT 212 4 since 2: "sectors of 512 bytes that the host sees";
    SLEEP_NOTIFICATION_TIME 216 1 since 7: "longest time of a sleep notification, as a power of 2 of 10 us";
    S_A_TIMEOUT 217 1 since 3: "longest time to sleep or wake, as a power of 2 of 100 ns";
    PRODUCTION_STATE_AWARENESS_TIMEOUT 218 1 since 7: "longest time to change the state of production, as a power of 2 of 100 us";
    S_C_VCCQ 219 1 since 3: "current of VCCQ in sleep, as a power of 2 of 1 uA";
    S_C_VCC 220 1 since 3: "current of VCC in sleep, as a power of 2 of 1 uA";
    HC_WP_GRP_SIZE 221 1 since 3: "size of a write protect group, in erase groups";
    REL_WR_SEC_C 222 1 since 3: "size of an atomic reliable write, in sectors";
    ERASE_TIMEOUT_MULT 223 1 since 3: "longest time of an erase, in 300 ms";
    HC_ERASE_GRP_SIZE 224 1 since 3: "size of an erase group, in 512 KB";
    ACC_SIZE 225 1 since 3: "size of a super-page";
    BOOT_SIZE_MULT 226 1 since 3: "size of each boot partition, in 128 KB";
    BOOT_INFO 228 1 since 3: "supported boot operations";
    SEC_TRIM_MULT 229 1 since 5: "longest time of a secure trim";
    SEC_ERASE_MULT 230 1 since 5: "longest time of a secure erase";
    SEC_FEATURE_SUPPORT 231 1 since 5: "bit 0: secure erase, bit 2: retired blocks are erased, bit 4: trim, bit 6: sanitize";
    TRIM_MULT 232 1 since 5: "longest time of a trim, in 300 ms";
    MIN_PERF_DDR_R_8_52 234 1 since 5: "minimum read rate, 8 lines at 52 MHz and both edges, in 300 KB/s";
    MIN_PERF_DDR_W_8_52 235 1 since 5: "minimum write rate, 8 lines at 52 MHz and both edges, in 300 KB/s";
    PWR_CL_200_130 236 1 since 6: "power class at 200 MHz and 1.3 V";
    PWR_CL_200_195 237 1 since 6: "power class at 200 MHz and 1.95 V";
    PWR_CL_DDR_52_195 238 1 since 5: "power class at 52 MHz, both edges and 1.95 V";
    PWR_CL_DDR_52_360 239 1 since 5: "power class at 52 MHz, both edges and 3.6 V";
    CACHE_FLUSH_POLICY 240 1 since 8: "bit 0: data leaves the cache in the order of the writes";
    INI_TIMEOUT_AP 241 1 since 5: "longest time of the first start after partitioning, in 100 ms";
    CORRECTLY_PRG_SECTORS_NUM 242 4 since 5: "sectors of the last interrupted write that were programmed";
    BKOPS_STATUS 246 1 since 5: "background operations: 0: none, 1: not urgent, 2: performance suffers, 3: urgent";
    POWER_OFF_LONG_TIME 247 1 since 6: "longest time of a long power-off notification, in 10 ms";
    GENERIC_CMD6_TIME 248 1 since 6: "longest time of a change of a mode, in 10 ms";
    CACHE_SIZE 249 4 since 6: "volatile cache, in 1,024 bits";
    PWR_CL_DDR_200_360 253 1 since 7: "power class at 200 MHz, both edges and 3.6 V";
    FIRMWARE_VERSION 254 8 since 7: "version of the firmware";
    DEVICE_VERSION 262 2 since 7: "version of the device";
    OPTIMAL_TRIM_UNIT_SIZE 264 1 since 7: "size that the device prefers to trim, as a power of 2 of 2 KB";
    OPTIMAL_WRITE_SIZE 265 1 since 7: "size that the device prefers to write, in 4 KB";
    OPTIMAL_READ_SIZE 266 1 since 7: "size that the device prefers to read, in 4 KB";
    PRE_EOL_INFO 267 1 since 7: "spare blocks: 1: normal, 2: 80 % used, 3: 90 % used";
    DEVICE_LIFE_TIME_EST_TYP_A 268 1 since 7: "life used of the flash of type A (mostly SLC), in steps of 10 %; 11: beyond it";
    DEVICE_LIFE_TIME_EST_TYP_B 269 1 since 7: "life used of the flash of type B (mostly MLC or TLC), in steps of 10 %; 11: beyond it";
    VENDOR_PROPRIETARY_HEALTH_REPORT 270 32 since 7: "health report of the vendor";
    NUMBER_OF_FW_SECTORS_CORRECTLY_PROGRAMMED 302 4 since 7: "sectors of a new firmware that were programmed";
    CMDQ_DEPTH 307 1 since 8: "depth of the command queue, minus one";
    CMDQ_SUPPORT 308 1 since 8: "bit 0: there is a command queue";
    BARRIER_SUPPORT 486 1 since 8: "bit 0: cache barriers are supported";
    FFU_ARG 487 4 since 7: "argument of commands that update the firmware";
    OPERATION_CODE_TIMEOUT 491 1 since 7: "longest time of an operation of the mode, as a power of 2 of 100 us";
    FFU_FEATURES 492 1 since 7: "bit 0: operation codes of updates of the firmware";
    SUPPORTED_MODES 493 1 since 7: "bit 0: the firmware can be updated, bit 1: the vendor's mode";
    EXT_SUPPORT 494 1 since 6: "extended types of partitions";
    LARGE_UNIT_SIZE_M1 495 1 since 6: "size of the large unit of contexts, in MB, minus one";
    CONTEXT_CAPABILITIES 496 1 since 6: "supported contexts";
    TAG_RES_SIZE 497 1 since 6: "space for tagged data";
    TAG_UNIT_SIZE 498 1 since 6: "unit of tagged data, as a power of 2 of sectors";
    DATA_TAG_SUPPORT 499 1 since 6: "bit 0: writes may be tagged as system data";
    MAX_PACKED_WRITES 500 1 since 6: "maximum entries of a packed write";
    MAX_PACKED_READS 501 1 since 6: "maximum entries of a packed read";
    BKOPS_SUPPORT 502 1 since 5: "bit 0: background operations";
    HPI_FEATURES 503 1 since 5: "bit 0: a high priority interrupt, bit 1: by CMD12";
    S_CMD_SET 504 1 since 0: "supported command sets";
    EXT_SECURITY_ERR 505 1 since 6: "errors of security commands";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_in_order_and_do_not_overlap() {
        for pair in FIELDS.windows(2) {
            assert!(pair[0].range().end <= pair[1].range().start, "{} and {}", pair[0].name, pair[1].name);
        }
        assert!(FIELDS.last().is_some_and(|last| last.range().end <= REGISTER_BYTES));
    }

    #[test]
    fn a_value_is_read_as_it_was_written() {
        let mut register = [0; REGISTER_BYTES];
        for field in FIELDS {
            field.put(&mut register, 0xa5);
            assert_eq!(field.get(&register), 0xa5, "{}", field.name);
            assert_eq!(RegisterField::by_name(field.name), Some(*field));
        }
        assert_eq!((SEC_COUNT.place(), EXT_CSD_REV.place()), ("[215:212]".to_owned(), "[192]".to_owned()));
    }
}
