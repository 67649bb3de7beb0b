"""From an interruption to one follow-up run: checkpoints, rescue, resume, retry."""
