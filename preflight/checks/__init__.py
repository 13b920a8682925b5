"""The checks: `checklist` lists and runs them all; each other module has one subject's checks."""
