"""The checks: `checklist` lists and runs them all; each other module has those of one subject."""
