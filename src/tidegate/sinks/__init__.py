"""Sinks: where panes go, exactly once. One file per system, one conformance suite for all."""
