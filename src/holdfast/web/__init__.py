"""The door for people with a browser: pages over the same views that the commands print."""
