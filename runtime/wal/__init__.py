"""The write-ahead log of one process: frames, segments, group commit, reading and recovery. `FORMAT.md` is the law."""
