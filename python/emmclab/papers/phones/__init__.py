"""Phones of today: the findings of IISWC 2015 judged again with applications of 2022 on eMMC and UFS."""
