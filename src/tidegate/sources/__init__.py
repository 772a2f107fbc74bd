"""Sources: where events come from, one file per system."""
