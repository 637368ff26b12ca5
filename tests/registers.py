"""Registers of an eMMC and of a UFS."""

#: Fields of an 8 GB eMMC 5.1 as (lowest byte, bytes, value).
FIELDS = {
    "EXT_CSD_REV": (192, 1, 8),
    "CSD_STRUCTURE": (194, 1, 2),
    "S_CMD_SET": (504, 1, 1),
    "SEC_COUNT": (212, 4, 0x00E90000),
    "CACHE_SIZE": (249, 4, 0x00010000),
    "CACHE_CTRL": (33, 1, 1),
    "CMDQ_SUPPORT": (308, 1, 1),
    "CMDQ_DEPTH": (307, 1, 15),
    "MAX_PACKED_WRITES": (500, 1, 63),
    "MAX_PACKED_READS": (501, 1, 63),
    "WR_REL_PARAM": (166, 1, 0x14),
    "DEVICE_TYPE": (196, 1, 0x57),
    "DEVICE_LIFE_TIME_EST_TYP_A": (268, 1, 1),
    "DEVICE_LIFE_TIME_EST_TYP_B": (269, 1, 1),
    "PRE_EOL_INFO": (267, 1, 1),
    "HC_WP_GRP_SIZE": (221, 1, 16),
    "HC_ERASE_GRP_SIZE": (224, 1, 1),
    "ENH_SIZE_MULT": (140, 3, 0),
    "PARTITIONS_ATTRIBUTE": (156, 1, 0),
    "PARTITION_SETTING_COMPLETED": (155, 1, 0),
    "BARRIER_SUPPORT": (486, 1, 1),
}


def register(**changes: int) -> bytes:
    """Return the 512 bytes of the register, with other values of some fields."""
    out = bytearray(512)
    for name, (at, length, usual) in FIELDS.items():
        out[at : at + length] = changes.get(name, usual).to_bytes(length, "little")
    return bytes(out)


#: Files of a UFS 3.1 of 119 GB with a shared WriteBooster of 4 GB.
UFS = {
    "device_descriptor/specification_version": "0x0310",
    "device_descriptor/queue_depth": "0x20",
    "device_descriptor/ext_feature_sup": "0x00000100",
    "device_descriptor/wb_presv_us_en": "0x01",
    "device_descriptor/wb_type": "0x01",
    "device_descriptor/wb_shared_alloc_units": "0x00000400",
    "geometry_descriptor/segment_size": "0x00002000",
    "geometry_descriptor/allocation_unit_size": "0x01",
    "health_descriptor/eol_info": "0x02",
    "health_descriptor/life_time_estimation_a": "0x05",
    "power_info/gear": "HS_GEAR3",
    "power_info/lane": "1",
    "host0/target0:0:0/0:0:0:0/unit_descriptor/lu_enable": "0x01",
    "host0/target0:0:0/0:0:0:0/unit_descriptor/logical_block_size": "0x0C",
    "host0/target0:0:0/0:0:0:0/unit_descriptor/logical_block_count": "0x0000000001DC0000",
}
