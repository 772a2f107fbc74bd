"""Seeing what a pipeline does: metrics, alerts, the lateness profile and its pictures."""
