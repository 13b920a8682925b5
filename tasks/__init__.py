"""From text to token ids: sources, normalization, vocabularies, objectives, and the tasks.

Importing a module of tasks registers them with seqio and touches neither network nor corpora.
"""
