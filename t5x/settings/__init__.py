"""What gin files may set: types, limits and upstream's names."""
