"""The built-in search: turns dials, needs no key."""
