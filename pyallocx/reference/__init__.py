"""Pure-Python twins of the allocators: the oracle of the property tests, readable as explanation."""
