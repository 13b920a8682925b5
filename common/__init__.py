"""What every command shares: its end, the types of its flags, the check of its output paths."""
