"""The study `phones`: applications of 2022 on eMMC and UFS."""
