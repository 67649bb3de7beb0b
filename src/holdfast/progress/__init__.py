"""Where are we? Starts the items of campaigns, and reports how far they are."""
