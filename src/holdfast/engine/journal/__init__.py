"""What a program leaves behind: keys of steps, encoded results, plan, artifacts, decisions."""
