"""The author's side of a task: its run, steps, effects, lists, waits, retries and forks."""
