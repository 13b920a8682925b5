"""The checks: `checklist` lists and runs them; each other module has those of one subject."""
