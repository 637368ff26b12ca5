"""What every room uses and what is not about storage: files, threads, processes, buckets, texts and tables.

Nothing here knows a trace, a device or a study. This room imports no other room.
"""
