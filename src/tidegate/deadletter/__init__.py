"""Dead letters: every event that was refused, with the reason, and its raw record byte for byte."""
