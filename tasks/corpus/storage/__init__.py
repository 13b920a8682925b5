"""Where the bytes of a corpus lie: a disk, http(s), a bucket or the hub; how they are opened."""
