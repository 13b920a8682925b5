"""What the files of a corpus hold: their format, their records, and the documents of those."""
