"""Pure-Python twins of the allocators: oracle of the property tests, readable as explanation."""
