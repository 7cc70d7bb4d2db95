"""The mirror."""
