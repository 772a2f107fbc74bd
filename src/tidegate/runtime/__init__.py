"""The runtime: one batch, who calls it, and what it leaves behind."""
