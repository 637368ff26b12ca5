"""General code that every package uses: files, threads, processes, buckets, texts and tables.

Nothing here knows a trace, a device or a study.
"""
