"""General code that every package uses: files, threads, processes, buckets, texts and tables.

No module here depends on traces, devices or studies.
"""
